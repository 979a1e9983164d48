"""Facts of a conversation, found without a model: what was asked, decided, gone wrong, measured and named.

Rule: only what stands there, letter by letter, in lines of the messages themselves; the latest count most. The same
messages and the same room give the same text. Linear: each line is looked at once, and of a message only so many.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policies.conversation import INSTRUCTIONS, Message
from policies.text_spans import boundary, error_lines
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
SHARES: Final = (("INTENT", 0.2), ("DECISIONS", 0.25), ("FACTS", 0.4), ("ARTEFACTS", 1.0))
"""Of the room that is left when the section's turn comes."""

_Found = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found, by section, the latest first."""

    found: tuple[tuple[str, tuple[str, ...]], ...]

    def written(self, room_characters: int) -> str:
        """As text of at most so many characters, each section in the order of the conversation; "" for nothing."""
        parts = dict(self.found)
        written: list[str] = []
        for name, share in SHARES:
            lines = list(_within(parts.get(name, ()), int(room_characters * share) - len(name) - 1))
            if lines:
                written.append("\n".join((name, *reversed(lines))))
                room_characters -= len(written[-1]) + 1
        return "\n".join(written)


def extract(messages: Sequence[Message]) -> Facts:
    """The facts of these messages. What they say twice is taken once, where it was said last."""
    found: _Found = {name: [] for name, _ in SHARES}
    seen: set[str] = set()
    for message in reversed(messages):
        if message.role not in INSTRUCTIONS:
            for section, line in _of(message):
                shape = _shape(line) if message.role == "tool" else line
                if shape not in seen:
                    seen.add(shape)
                    found[section].append(line)
    return Facts(tuple((name, tuple(lines)) for name, lines in found.items()))


def _of(message: Message) -> Iterator[tuple[str, str]]:
    """Sections and lines of one message, the last first."""
    if message.role == "user" and (asked := _line(message.text.strip().partition("\n")[0])):
        yield "INTENT", asked
    for call in message.calls:
        named = [value for value in VALUES.findall(call.arguments) if _PLACE.search(value) and not value[0].isdigit()]
        yield from (("ARTEFACTS", f"{call.name} {value}") for value in named[:8])
    if message.role == "tool":
        yield from _of_output(message.text)
        return
    for line in reversed(_halves(_SENTENCE.split(message.text))):
        if found := _DECIDED.search(line):
            section = "DECISIONS"
        elif found := VALUES.search(line):
            section = "FACTS"
        else:
            continue
        if said := _line(line, found.start()):
            yield section, said


def _of_output(text: str) -> Iterator[tuple[str, str]]:
    """Errors and named values: of an output's other lines there are too many."""
    errors = [_line(text[start:stop]) for start, stop in error_lines(text)[:8]]
    yield from (("FACTS", line) for line in reversed(errors) if line)
    lines = (line for line in _halves(text.split("\n")) if MARK not in line)
    named = [found[0].strip() for line in lines if (found := _NAMED.search(line[:LOOKED_AT_CHARACTERS]))]
    yield from (("FACTS", line) for line in reversed([*named[:8], *named[8:][-8:]]))


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


def _shape(line: str) -> str:
    """A line of a log with its numbers taken out: the next one of the kind says the same."""
    return re.sub(r"\d+", "0", line)


def _within(lines: Iterable[str], room: int) -> Iterator[str]:
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return
        yield line
