"""Messages that are a role and a text and nothing else, told apart without decoding them.

Rule: the text of such a message holds no quote, not even an escaped one, so whatever stands in it, it is text. That is
most long messages, and one search for a byte, which is the fastest there is.
"""

import re
from typing import Final

_HEAD: Final = re.compile(rb'\{"role": ?"(user|assistant|system|tool|developer)", ?"content": ?"')
_ROLES: Final = {role.encode(): role for role in ("user", "assistant", "system", "tool", "developer")}


def quoteless_role(message: bytes) -> str | None:
    """The role of a valid JSON object that is such a message; None for any other."""
    head = _HEAD.match(message)
    if head is None or message.find(b'"', head.end()) != len(message) - 2:
        return None
    return _ROLES[head[1]]
