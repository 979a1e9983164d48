"""Texts of trimmed outputs, remembered, so that a turn does not make again what the turn before has made.

Rule: of one tenant alone; bounded by what they hold; nothing is lost with them but the time to make them again.
"""

from typing import Final

from policies.memory import Trim
from policies.trimmed_text import render

MAX_CHARACTERS: Final = 4 * 1024 * 1024


class Rendered:
    """`render`, with what it gave last."""

    __slots__ = ("_characters", "_limit", "_texts")

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._limit = max_characters
        self._texts: dict[Trim, str] = {}
        self._characters = 0

    def __call__(self, text: str, trim: Trim) -> str:
        """Raises what `render` raises. A trim names its message by digest, so it stands for its text."""
        if (known := self._texts.get(trim)) is None:
            known = render(text, trim)
            self._remember(trim, known)
        return known

    def _remember(self, trim: Trim, text: str) -> None:
        if self._characters + len(text) > self._limit:
            self._texts.clear()
            self._characters = 0
        self._texts[trim] = text
        self._characters += len(text)
