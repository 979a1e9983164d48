"""What a session remembers of its edits, so that each is made again to the same bytes on every later turn.

Rule: no text. A trimmed message is remembered by its digest and by where it was cut, never by what was kept; memory
that cannot be read is no memory (the price is one cold prefix, never a failed request).
"""

from typing import Literal

import msgspec

VERSION = 1
"""Goes up when the same `Trim` would render to other bytes; older memory is then forgotten."""

Form = Literal["text", "folded", "json", "rows", "wrapped", "same", "superseded"]


class Trim(msgspec.Struct, frozen=True, gc=False):
    """How one tool output was trimmed.

    `spans` are the character ranges kept of a text (head, lines of the middle, tail; none: all of it, folded); `level`
    is the step of the ladder used for JSON. For `rows` the spans are of the items of an array. `of_tokens` and
    `removed_tokens` are the message's tokens before and what the trim saved. The forms `same` and `superseded` keep
    nothing and point to an earlier or later output. `late`: for its age, so that it says less than a fresh copy would.
    Under `handle` the original is kept; empty for none.
    """

    digest: bytes
    form: Form
    of_tokens: int
    removed_tokens: int
    spans: tuple[tuple[int, int], ...] = ()
    level: int = 0
    late: bool = False
    handle: str = ""

    def saved_of(self, tokens: int) -> int:
        """What the trim saves where the message has `tokens`: at least 1, in proportion to what it was."""
        return max(1, self.removed_tokens * tokens // self.of_tokens) if self.of_tokens else self.removed_tokens


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A border: message `at` is the first one behind it; `prefix` names all messages up to and with that one.

    `turns`: how many the conversation had when the border was drawn. `note_tokens` is what the note costs that says
    where the messages before it are kept; 0: there is none.
    """

    at: int
    prefix: bytes
    policy: str = "keep_recent_turns"
    turns: int = 0
    note_tokens: int = 0


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A record in the place of the messages before `stop`, which `prefix` names together; `key` is the record's name.

    It costs `tokens` where what it stands for has `of_tokens`. `room` above 0: it holds facts in so many characters,
    found without a model. `kept`: it says where what it stands for is kept.
    """

    stop: int
    prefix: bytes
    key: bytes
    tokens: int = 0
    room: int = 0
    of_tokens: int = 0
    kept: bool = False

    def costs(self, of_tokens: int) -> int:
        """What it costs where what it stands for has so many tokens: in proportion to what it was."""
        return max(1, self.tokens * of_tokens // self.of_tokens) if self.of_tokens else self.tokens


class InForce(msgspec.Struct, frozen=True):
    """The edits in force in one lane.

    The window begins at `cut`, reasoning is cleared up to `cleared`, and `standing` holds the settings, as JSON, of the
    policies that are no edits to remember but rules in force: `pin`, `strip` and `repair`. `ahead` is a record that was
    asked for and is not used yet.
    """

    trims: tuple[Trim, ...] = ()
    cut: Cut | None = None
    cleared: Cut | None = None
    standing: str = ""
    summary: Recorded | None = None
    ahead: Recorded | None = None

    @property
    def edits(self) -> bool:
        """Whether there is any edit to make again."""
        return self != InForce(ahead=self.ahead)

    @property
    def counts(self) -> bool:
        """Whether there are edits whose tokens matter: more than rules in force."""
        if self.trims or self.cut is not None or self.cleared is not None:
            return True
        return self.summary is not None or self.ahead is not None


class Seen(msgspec.Struct, frozen=True, gc=False):
    """So many messages there were at this time, in seconds since 1970."""

    messages: int
    at_seconds: int


class Memory(msgspec.Struct, frozen=True):
    """The edits made so far, and apart from them those that policies in shadow would have made.

    `seen` says since when messages are there, where a policy asks for it.
    """

    enforced: InForce = InForce()
    shadow: InForce = InForce()
    version: int = VERSION
    seen: tuple[Seen, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether there are edits whose tokens matter, in either lane."""
        return self.enforced.counts or self.shadow.counts

    def dumps(self) -> bytes:
        """As JSON, for the session's record."""
        return msgspec.json.encode(self)

    @staticmethod
    def loads(data: bytes) -> "Memory":
        """From JSON; `EMPTY` for anything that is not memory of this version."""
        try:
            memory = msgspec.json.decode(data, type=Memory)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return EMPTY
        return memory if memory.version == VERSION and memory != EMPTY else EMPTY


EMPTY = Memory()
