"""What policies read: a conversation as digests, roles, token counts and texts, in no wire format.

Rule: nothing here is ever rendered. The bytes that reach an engine come from the call's own dialect, which looks only
at the edits; so a field that no policy reads does not belong here.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]

INSTRUCTIONS: frozenset[Role] = frozenset({"system", "developer"})
"""Roles that are never dropped, replaced or reordered."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call inside an assistant message; `arguments` is the JSON text as sent."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message. `digest` is 16 bytes over its wire form; `tokens` holds the template's share too.

    `reasoning_text` is what its reasoning says, as far as it is counted in `tokens`.
    """

    role: Role
    digest: bytes
    tokens: int
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    name: str | None = None
    media: int = 0
    reasoning: bool = False
    cache_control: int = 0
    reasoning_text: str = ""

    def counted(self, tokens: int) -> "Message":
        """The same with its tokens; spelled out, for every message of every call passes here."""
        return Message(
            self.role,
            self.digest,
            tokens,
            self.text,
            self.calls,
            self.answers,
            self.name,
            self.media,
            self.reasoning,
            self.cache_control,
            self.reasoning_text,
        )

    @property
    def reasoning_tokens(self) -> int:
        """How many of `tokens` are reasoning: its share by characters, so that nothing is counted twice."""
        if not self.reasoning_text:
            return 0
        others = len(self.text) + sum(len(call.arguments) for call in self.calls)
        return self.tokens * len(self.reasoning_text) // (len(self.reasoning_text) + others + 1)


class Conversation(msgspec.Struct, frozen=True, dict=True):
    """Messages in order; `overhead_tokens` is what the tool list and the template's head cost on top."""

    messages: tuple[Message, ...]
    overhead_tokens: int = 0

    @cached_property
    def total_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.overhead_tokens + sum([message.tokens for message in self.messages])

    @cached_property
    def roles(self) -> Sequence[Role]:
        """The role of each message."""
        return [message.role for message in self.messages]

    @cached_property
    def instructions(self) -> tuple[int, ...]:
        """The messages that are instructions."""
        return tuple([at for at, role in enumerate(self.roles) if role in INSTRUCTIONS])

    @cached_property
    def asked(self) -> int:
        """How many messages the model has before it: all but the beginning of an answer that it is to go on with."""
        messages = self.messages
        begun = bool(messages) and messages[-1].role == "assistant" and not messages[-1].calls
        return len(messages) - begun

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """The messages that are a tool's output and hold nothing but text."""
        messages = self.messages
        return tuple([at for at, role in enumerate(self.roles) if role == "tool" and not messages[at].media])

    @cached_property
    def thinks(self) -> bool:
        """Whether any message carries reasoning."""
        return True in [message.reasoning for message in self.messages]

    def turns(self) -> tuple[range, ...]:
        """The turns as index ranges: a user message with all that answers it, tool calls and results included.

        User messages in a row open one turn together (none of them is answered before the last); instructions
        between them do not part them. What stands before the first user message belongs to no turn.
        """
        return self._turns

    @cached_property
    def answered(self) -> int:
        """How many messages the model has answered: all up to its last answer, a beginning of one aside."""
        roles = self.roles
        return next((at + 1 for at in range(self.asked - 1, -1, -1) if roles[at] == "assistant"), 0)

    @cached_property
    def _turns(self) -> tuple[range, ...]:
        borders = [*_turn_starts(self.roles), len(self.messages)]
        return tuple([range(start, stop) for start, stop in pairwise(borders)])

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Every assistant message with calls, followed by the tool messages that answer it, as indices.

        An answer belongs to the nearest earlier message that made a call of that id; ids are compared trimmed. A tool
        message without such a call is in no group.
        """
        return self._groups

    @cached_property
    def callers(self) -> Mapping[int, int]:
        """Of each answer in a group, which message made the call."""
        return {at: group[0] for group in self.groups() for at in group[1:]}

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        groups: dict[int, list[int]] = {}
        caller: dict[str, int] = {}
        for at, message in enumerate(self.messages):
            if message.calls:
                groups[at] = [at]
                for call in message.calls:
                    caller[call.id.strip()] = at
            elif message.answers is not None and (owner := caller.get(message.answers.strip())) is not None:
                groups[owner].append(at)
        return tuple([tuple(group) for group in groups.values()])


def _turn_starts(roles: Sequence[Role]) -> list[int]:
    starts: list[int] = []
    previous: Role = "assistant"
    for at, role in enumerate(roles):
        if role == "user":
            if previous != "user":
                starts.append(at)
        elif role in INSTRUCTIONS:
            continue
        previous = role
    return starts
