"""Texts of trimmed outputs and records of facts, remembered: a turn does not make again what the one before has made.

Rule: of one tenant alone; bounded by what they hold; nothing is lost with them but the time to make them again.
"""

from collections.abc import Mapping
from typing import Final

from policies.memory import InForce, Trim
from policies.summary import Summary
from policies.trimmed_text import render

MAX_CHARACTERS: Final = 4 * 1024 * 1024
MAX_RECORDS: Final = 1_024


class Rendered:
    """`render`, with what it gave last."""

    __slots__ = ("_characters", "_facts", "_limit", "_texts")

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._limit = max_characters
        self._texts: dict[Trim, str] = {}
        self._facts: dict[tuple[bytes, int], str] = {}
        self._characters = 0

    def __call__(self, text: str, trim: Trim) -> str:
        """Raises what `render` raises. A trim names its message by digest, so it stands for its text."""
        if (known := self._texts.get(trim)) is None:
            known = render(text, trim)
            self._remember(trim, known)
        return known

    def records(self, in_force: InForce) -> Mapping[bytes, str]:
        """The record of facts that is in force, if it was made here."""
        recorded = in_force.summary
        if recorded is None or (text := self._facts.get((recorded.key, recorded.room))) is None:
            return {}
        return {recorded.key: text}

    def keep(self, summary: Summary | None) -> None:
        """Remember a record that was put together without a model: to make it again is to read all it stands for."""
        if summary is not None and summary.room:
            if len(self._facts) >= MAX_RECORDS:
                self._facts.clear()
            self._facts[summary.key, summary.room] = summary.record

    def _remember(self, trim: Trim, text: str) -> None:
        if self._characters + len(text) > self._limit:
            self._texts.clear()
            self._characters = 0
        self._texts[trim] = text
        self._characters += len(text)
