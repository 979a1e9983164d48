"""Facts of a conversation, found without a model: what was asked, decided, gone wrong, measured and named.

Rule: only what stands there, letter by letter, in lines of the messages themselves; the latest count most. The same
messages and the same room give the same text. Linear: each line is looked at once, and of a message only so many.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from policies import odd_lines
from policies.conversation import INSTRUCTIONS, Message
from policies.text_spans import boundary
from policies.trimmed_text import whole

VALUES = re.compile(
    r"https?://[^\s\"'<>)\]]{3,200}"
    r"|(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+-]{1,80}){2,12}"
    r"|\b[\w-]{1,60}(?:/[\w.@+-]{1,60}){1,8}\.\w{1,6}\b"
    r"|\b[\w-]{1,60}\.(?:py|pyi|js|jsx|ts|tsx|go|rs|c|cc|cpp|h|hpp|java|rb|sh|sql|md|rst|txt|json|ya?ml|toml|cfg|ini|csv|log|html|css)\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]{1,9}-\d{1,9}\b"
    r"|(?<![\w.])[-+]?\d[\d,_]*(?:\.\d+)?%?(?![\w])"
)
"""Values that must survive to the letter: addresses, paths, files, hashes, tickets, numbers."""

_NAMED = re.compile(
    r"[A-Za-z_][\w .\-\[\]]{1,50}?[\"']?\s?(?:=|:|->|=>|\bis\b)\s?[\"']?[^\s\"',;{}\[\]]*[\d/@][^\s\"',;{}\[\]]*"
)
_DECIDED = re.compile(
    r"\b(?:decid\w+|agreed?|chose|chosen|settled on|go(?:ing)? with|instead of|rather than|must(?: not)?|never|always|"
    r"do not|don't|should(?: not)?|we(?: wi|')ll|let's|prefer\w*|approved?|rejected?|conclu\w+|root cause|because)\b",
    re.I,
)
_PLACE = re.compile(r"[/.-]")

_SENTENCE = re.compile(r"(?<=[.!?;])[ \t]+|\n+")

MARK: Final = "kvgate"
LINE_CHARACTERS: Final = 240
LOOKED_AT_CHARACTERS: Final = 400
MESSAGE_LINES: Final = 400
"""Lines of one message that are looked at: half from its beginning, half from its end."""
LONG_CHARACTERS: Final = 600
"""What a user sends that is longer, and has more than a few lines, is an output: some agents have no other way."""
SHARES: Final = (("INTENT", 0.15), ("DECISIONS", 0.3), ("FACTS", 0.75), ("ARTEFACTS", 1.0))
"""Of the room that is left when the section's turn comes."""

Said = tuple[int, int, str]
"""How much a line matters (less is more), its place in the conversation, and the line."""


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


def extract(messages: Sequence[Message]) -> Facts:
    """The facts of these messages. What they say twice is taken once, where it was said last."""
    outputs = {at: odd_lines.read(message.text) for at, message in enumerate(messages) if _is_output(message)}
    found: dict[str, list[Said]] = {name: [] for name, _ in SHARES}
    seen: set[str] = set()
    for at in range(len(messages) - 1, -1, -1):
        output = outputs.get(at)
        said = _of(messages[at]) if output is None else _of_output(output)
        for number, (section, rank, line) in enumerate(said):
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


def _of(message: Message) -> Iterator[tuple[str, int, str]]:
    """Sections, ranks and lines of one message that somebody wrote, the last first."""
    if message.role in INSTRUCTIONS:
        return
    if message.role == "user":
        yield "INTENT", 0, _line(message.text.strip().partition("\n")[0])
    for line in reversed(_halves(_SENTENCE.split(message.text))):
        if found := _DECIDED.search(line):
            yield "DECISIONS", 0, _line(line, found.start())
        elif found := VALUES.search(line):
            yield "FACTS", 0, _line(line, found.start())
    for call in message.calls:
        named = [value for value in VALUES.findall(call.arguments) if _PLACE.search(value) and not value[0].isdigit()]
        yield from (("ARTEFACTS", 0, f"{call.name} {value}") for value in named[:8])


def _of_output(output: odd_lines.Output) -> Iterator[tuple[str, int, str]]:
    """Errors, the odd ones out, then named values: of an output's other lines there are too many."""
    lines = [line for line in output.lines if MARK not in line]
    named = [found[0].strip() for line in lines if (found := _NAMED.search(line))]
    yield from (("FACTS", 0, _line(line)) for line in reversed(output.errors))
    yield from (("FACTS", 1, _line(line)) for line in reversed(odd_lines.odd(output)))
    yield from (("FACTS", 2, _line(line)) for line in reversed([*named[:4], *named[4:][-4:]]))


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
