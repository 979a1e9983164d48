"""Policies that are no edits to remember but rules in force: they hold for the whole conversation, on every turn.

Rule: with the first edit of a session its standing policies are remembered as settings, and hold until the prefix is
cold; so a changed configuration never changes what a warm engine has been sent.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from policies.conversation import Conversation
from policies.extract_facts import Read, read
from policies.frame import Frame
from policies.mends import Mends
from policies.pin import Pin
from policies.repair import Repair
from policies.strip import Strip

Standing = Pin | Strip | Repair

_STANDING: TypeAdapter[tuple[Standing, ...]] = TypeAdapter(tuple[Annotated[Standing, Field(discriminator="kind")], ...])


def dumps(policies: Sequence[Standing]) -> str:
    """As JSON, only what differs from the defaults; empty for none."""
    settings = [{"kind": policy.kind, **_settings(policy)} for policy in policies]
    return json.dumps(settings, separators=(",", ":")) if settings else ""


def _settings(policy: Standing) -> dict[str, object]:
    settings: dict[str, object] = policy.model_dump(mode="json", exclude_defaults=True, exclude={"kind", "mode"})
    return settings


@lru_cache(maxsize=256)
def loads(text: str) -> tuple[Standing, ...] | None:
    """From JSON; None for what is no list of standing policies of this version. A tier's are all the same."""
    if not text:
        return ()
    try:
        return _STANDING.validate_json(text)
    except ValidationError:
        return None


def framed(conversation: Conversation, policies: Sequence[Standing], read: Read = read) -> Frame:
    """The conversation with what these policies say of it: first what is pinned, then what is put right elsewhere."""
    untouched = frozenset[int]().union(*(p.untouched(conversation) for p in policies if isinstance(p, Pin)))
    mends = Mends()
    for policy in policies:
        if isinstance(policy, Strip):
            mends = policy.mended(conversation, untouched, mends)
    parts = tuple(dict.fromkeys(part for policy in policies if isinstance(policy, Repair) for part in policy.parts))
    if parts:
        mends = Repair(parts=parts).mended(conversation, untouched, mends)
    return Frame(conversation, untouched, mends, read)
