"""What the emulated model answers when it is asked for a record of the conversation: facts that stand in it.

Rule: it recognises the gateway's own question and nothing else; the record is in the form asked for, in ASCII, and as
long as the request allows.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.dialects.openai_messages import neutral
from policies import record
from policies.extract_facts import extract

ROOM_CHARACTERS: Final = 1_200


def recorded(messages: Sequence[Mapping[str, object]]) -> str | None:
    """A record of the messages before the last one; None if the last one asks for something else."""
    if not messages or record.ASKED not in str(messages[-1].get("content")):
        return None
    raws = [msgspec.json.encode(message) for message in messages]
    *before, asked = neutral(raws, [b""] * len(raws))
    facts = extract(before).written(ROOM_CHARACTERS) or f"FACTS\n{len(asked.text)} characters were asked for"
    text = facts if facts.startswith("INTENT") else f"INTENT\nGo on.\n{facts}"
    return f"{text}\nOPEN\nAll that comes.".encode("ascii", "replace").decode()
