"""Lines of the system prompt that change with every request, and so break every prefix cache, left out.

Rule: whole lines near the top of system and developer messages, and never all of a message. What is left is the same
on every turn; so is the prompt, and the engine finds it in its cache. Lines are named by globs, not by regular
expressions: a glob's work on a line is bounded, whoever wrote the glob and the line.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from policies.conversation import Conversation, Message
from policies.edit import ReplaceText
from policies.mends import Mends
from policies.trimmed_text import whole

_CLOCK = "*[0-9][0-9]:[0-9][0-9]*"

VOLATILE = (
    "x-*-billing-header:*",
    *(f"current {label}:{_CLOCK}" for label in ("time", "date", "date and time", "datetime")),
    *(f"{label}{_CLOCK}" for label in ("current time is ", "the current time is ", "the current date and time is ")),
    *(f"{label}{_CLOCK}" for label in ("date:", "time:", "timestamp:", "datetime:", "now:", "it is now ", "today is ")),
    *(f"{label}?id:*" for label in ("request", "x?request", "trace", "correlation")),
)
"""Billing headers of clients, clocks (with hours and minutes: a mere date changes once a day), ids of one request."""

LINE_CHARACTERS = 512
"""Longer lines are more than a label and a value."""

_BULLETS = " \t\r-*#"


class Strip(BaseModel):
    """Leave out lines that match one of the globs `lines` as a whole, in letters of either case, bullets aside.

    Only lines are looked at that have fewer than `head_lines` kept lines before them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["strip"] = "strip"
    mode: Literal["enforce", "shadow"] = "enforce"
    lines: tuple[str, ...] = VOLATILE
    head_lines: PositiveInt = 20

    def mended(self, conversation: Conversation, untouched: frozenset[int], mends: Mends) -> Mends:
        """`mends` with the lines left out of instructions that none is to touch."""
        texts = dict(mends.texts)
        for at in conversation.instructions:
            message = conversation.messages[at]
            if at not in untouched and not message.media:
                text = texts[at].text if at in texts else message.text
                if (rest := self.rest(text)) is not None:
                    texts[at] = _replaced(at, message, rest)
        return Mends(texts, mends.calls, mends.orphans)

    def rest(self, text: str) -> str | None:
        """The text without its volatile lines; None where there are none, or nothing would be left."""
        lines = text.split("\n")
        kept = list(self._kept(lines))
        return "\n".join(kept) if len(kept) < len(lines) and any(line.strip() for line in kept) else None

    def _kept(self, lines: list[str]) -> Iterator[str]:
        kept = 0
        for line in lines:
            if kept < self.head_lines and self._is_volatile(line):
                continue
            kept += 1
            yield line

    def _is_volatile(self, line: str) -> bool:
        if len(line) > LINE_CHARACTERS:
            return False
        bare = line.strip(_BULLETS).lower()
        return bool(bare) and any(matches(bare) for matches in _matching(self.lines))


@lru_cache(maxsize=64)
def _matching(globs: tuple[str, ...]) -> tuple[Callable[[str], object], ...]:
    """What matches a line in small letters; made once for each tier."""
    return tuple([re.compile(translate(glob.lower())).match for glob in globs])


def _replaced(at: int, message: Message, rest: str) -> ReplaceText:
    """What it saves is the share of the lines in the text: counting would cost more than it tells."""
    removed = message.tokens * (len(message.text) - len(rest)) // (len(message.text) + 1)
    return ReplaceText("strip", at, message.digest, whole(rest), max(1, removed))
