"""Facts of a conversation, found without a model: what was asked, decided, gone wrong, measured and named.

Rule: only what stands there, letter by letter, in lines of the messages themselves; the latest count most. The same
messages and the same room give the same text. Linear: each line is looked at once, and of a message only so many.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from policies import odd_lines
from policies.conversation import INSTRUCTIONS, Message
from policies.fact_lines import VALUES, decision, named_value, value
from policies.text_spans import boundary
from policies.trimmed_text import whole

_PLACE = re.compile(r"[/.-]")

_SENTENCE = re.compile(r"(?<=[.!?;])[ \t]+|\n+")

MARK: Final = "kvgate"
NAMED_LINES: Final = 4
"""So many lines with named values are taken of an output's beginning, and of its end."""
LINE_CHARACTERS: Final = 240
LOOKED_AT_CHARACTERS: Final = 400
MESSAGE_LINES: Final = 400
"""Lines of one message that are looked at: half from its beginning, half from its end."""
LONG_CHARACTERS: Final = 600
"""What a user sends that is longer, and has more than a few lines, is an output: some agents have no other way."""
SHARES: Final = (("INTENT", 0.15), ("DECISIONS", 0.3), ("FACTS", 0.75), ("ARTEFACTS", 1.0))
"""Of the room that is left when the section's turn comes."""

Line = tuple[str, int, str]
"""The section that a line belongs to, how much it matters there (less is more), and the line."""
Said = tuple[int, int, str]
"""How much a line matters, its place in the conversation, and the line."""
Read = Callable[[Message], Sequence[Line]]
"""How a message is read: `read`, or one that remembers what it found."""


class Facts(msgspec.Struct, frozen=True):
    """What was found, by section: what matters most first, of that the latest."""

    found: tuple[tuple[str, tuple[Said, ...]], ...]

    def written(self, room_characters: int) -> str:
        """As text of at most so many characters, each section in the order of the conversation; "" for nothing."""
        parts = dict(self.found)
        written: list[str] = []
        for name, share in SHARES:
            kept = sorted(_within(parts.get(name, ()), int(room_characters * share) - len(name) - 1), key=_place)
            if kept:
                written.append("\n".join((name, *(line for _, _, line in kept))))
                room_characters -= len(written[-1]) + 1
        return "\n".join(written)


def read(message: Message) -> Sequence[Line]:
    """What one message says, the last line first; it hangs on nothing but the message."""
    return tuple(_of_output(odd_lines.read(message.text)) if _is_output(message) else _of(message))


def extract(messages: Sequence[Message], read: Read = read) -> Facts:
    """The facts of these messages. What they say twice is taken once, where it was said last."""
    found: dict[str, list[Said]] = {name: [] for name, _ in SHARES}
    seen: set[str] = set()
    for at in range(len(messages) - 1, -1, -1):
        for number, (section, rank, line) in enumerate(read(messages[at])):
            if line and line not in seen:
                seen.add(line)
                found[section].append((rank, at * 1_000 - number, line))
    return Facts(tuple((name, tuple(sorted(lines, key=_worth))) for name, lines in found.items()))


def _worth(said: Said) -> tuple[int, int]:
    rank, place, _ = said
    return rank, -place


def _place(said: Said) -> int:
    return said[1]


def _is_output(message: Message) -> bool:
    if message.role == "tool":
        return True
    text = message.text
    return message.role == "user" and len(text) > LONG_CHARACTERS and text.count("\n") > odd_lines.FEW_LINES


def _of(message: Message) -> Iterator[Line]:
    """Sections, ranks and lines of one message that somebody wrote, the last first."""
    if message.role in INSTRUCTIONS:
        return
    if message.role == "user":
        yield "INTENT", 0, _line(message.text.strip().partition("\n")[0])
    for line in reversed(_halves(_SENTENCE.split(message.text))):
        if found := decision(line):
            yield "DECISIONS", 0, _line(line, found.start())
        elif found := value(line):
            yield "FACTS", 0, _line(line, found.start())
    for call in message.calls:
        named = [name for name in VALUES.findall(call.arguments) if _PLACE.search(name) and not name[0].isdigit()]
        yield from (("ARTEFACTS", 0, f"{call.name} {name}") for name in named[:8])


def _of_output(output: odd_lines.Output) -> Iterator[Line]:
    """Errors, the odd ones out, then named values: of an output's other lines there are too many."""
    lines = [line for line in output.lines if MARK not in line]
    yield from (("FACTS", 0, _line(line)) for line in reversed(output.errors))
    yield from (("FACTS", 1, _line(line)) for line in reversed(odd_lines.odd(output)))
    yield from (("FACTS", 2, _line(line)) for line in reversed(_named(lines)))


def _named(lines: Sequence[str]) -> list[str]:
    """Named values of the first lines that have any, and of the last; no line is looked at twice."""
    first, at = _some_named(lines, range(len(lines)))
    last, _ = _some_named(lines, range(len(lines) - 1, at, -1))
    return [*first, *reversed(last)]


def _some_named(lines: Sequence[str], places: range) -> tuple[list[str], int]:
    """Named values of so many lines at these places, and the place of the last one that was looked at."""
    found: list[str] = []
    at = -1
    for at in places:
        if named := named_value(lines[at]):
            found.append(named)
            if len(found) == NAMED_LINES:
                break
    return found, at


def _halves(lines: list[str]) -> list[str]:
    """Of too many lines those at the beginning and the end."""
    half = MESSAGE_LINES // 2
    return [*lines[:half], *lines[-half:]] if len(lines) > MESSAGE_LINES else lines


def _line(line: str, at: int = 0) -> str:
    """A line, or of a long one what stands around `at`; nothing for a note of ours, which is no fact."""
    if MARK in line:
        return ""
    start = boundary(line, at - LINE_CHARACTERS // 2) if at > LINE_CHARACTERS // 2 else 0
    return whole(line[start : boundary(line, start + LINE_CHARACTERS)].strip())


def _within(lines: Iterable[Said], room: int) -> Iterator[Said]:
    for said in lines:
        room -= len(said[2]) + 1
        if room < 0:
            return
        yield said
