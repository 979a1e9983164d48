"""Texts of trimmed outputs, facts of messages and records of them, remembered: a turn does not make again what one
before has made.

Rule: of one tenant and model alone; bounded for all of them together (`gateway.kept`).
"""

from collections.abc import Mapping, Sequence

from gateway.kept import NOBODY, Kept, Owner
from policies.conversation import Message
from policies.extract_facts import Line, read
from policies.memory import InForce, Trim
from policies.summary import Summary
from policies.trimmed_text import render


class Rendered:
    """`render`, with what it gave last; without `kept` it remembers by itself."""

    __slots__ = ("_facts", "_owner", "_said", "_texts")

    def __init__(self, kept: Kept | None = None, owner: Owner = NOBODY) -> None:
        kept = kept or Kept()
        self._owner = owner
        self._texts, self._facts, self._said = kept.trimmed, kept.facts, kept.said

    def __call__(self, text: str, trim: Trim) -> str:
        """Raises what `render` raises. A trim names its message by digest, so it stands for its text."""
        key = (self._owner, trim)
        if (known := self._texts.get(key)) is None:
            known = render(text, trim)
            self._texts.keep(key, known)
        return known

    def read(self, message: Message) -> Sequence[Line]:
        """The facts of a message, as `policies.extract_facts` finds them."""
        if (known := self.known(message)) is None:
            known = read(message)
            self._said.keep((self._owner, message.digest), known)
        return known

    def known(self, message: Message) -> Sequence[Line] | None:
        """The facts of a message that was read before; None of another."""
        return self._said.get((self._owner, message.digest))

    def records(self, in_force: InForce) -> Mapping[bytes, str]:
        """The record of facts that is in force, if it was made here."""
        recorded = in_force.summary
        if recorded is None or (text := self._facts.get((self._owner, recorded.key, recorded.room))) is None:
            return {}
        return {recorded.key: text}

    def keep(self, summary: Summary | None) -> None:
        """Remember a record that was put together without a model: to make it again is to read all it stands for."""
        if summary is not None and summary.room:
            self._facts.keep((self._owner, summary.key, summary.room), summary.record)
