"""Messages that no other policy touches.

Rule: a pinned message is sent as it came, and its turn is not dropped, for a call without its question or its answer
would be no conversation. What is pinned hangs on the message alone, so it stays pinned as the conversation grows.
"""

from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator

from policies.conversation import Conversation, Message, Role


class Pin(BaseModel):
    """Pin the first `first_turns` turns, and messages by role, by the name of their tool or by a piece of their text.

    `tools` are globs over the names of tools, and pin a call with its answers; `markers` are looked for in the text as
    they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["pin"] = "pin"
    mode: Literal["enforce", "shadow"] = "enforce"
    first_turns: NonNegativeInt = 0
    roles: tuple[Role, ...] = ()
    tools: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _pins_something(self) -> Self:
        if not (self.first_turns or self.roles or self.tools or self.markers):
            raise ValueError("give at least one of first_turns, roles, tools and markers, or nothing is pinned")
        if not all(self.markers):
            raise ValueError("an empty marker would pin every message")
        return self

    def untouched(self, conversation: Conversation) -> frozenset[int]:
        """The messages that are pinned."""
        first = conversation.turns()[: self.first_turns]
        names = bool(self.roles or self.tools or self.markers)
        named = (at for at, message in enumerate(conversation.messages) if names and self._names(message))
        return frozenset(named).union(*first)

    def _names(self, message: Message) -> bool:
        if message.role in self.roles or any(marker in message.text for marker in self.markers):
            return True
        names = [message.name or ""] if message.role == "tool" else [call.name for call in message.calls]
        return any(fnmatchcase(name, glob) for name in names for glob in self.tools)
