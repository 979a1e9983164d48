"""The edits in force of a session: opened, sealed, and joined where two turns ran side by side.

Rule: what has not changed is not written; what two turns remember is never lost by the later one's writing. Edits that
cannot be opened are made anew as for a cold prefix.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from budgets.script import Step
from gateway import sessions
from gateway.sessions import Other, Saved, Session, memory_place
from gateway.vault import Vault, VaultError
from policies.joined import joined
from policies.memory import EMPTY, Memory

Unopened = Callable[[VaultError], None]


class Run(Protocol):
    """Runs a step at the store. Raises `StoreError`."""

    def __call__(self, step: Step[Other | None], /) -> Awaitable[Other | None]: ...


class Memories:
    """Reads and writes memory. `unopened` is told of what does not open."""

    def __init__(self, vault: Vault, unopened: Unopened) -> None:
        self._vault = vault
        self._unopened = unopened

    def of(self, session: Session) -> Memory | None:
        """The edits in force; None where they cannot be opened. Then what was sent before is not known either, so
        nothing may be taken to stand as it was."""
        return self._opened(session, session.memory) if session.memory else EMPTY

    def changed(self, session: Session, read: Memory, now: Memory) -> bytes | None:
        """What is to be written, sealed; None where `now` is what was read, and sealed as it would be today."""
        if now is EMPTY and read is EMPTY and not session.memory:
            return None
        same = now is read and (now is not EMPTY or not session.memory)
        if same and (not session.memory or self._vault.current(session.memory)):
            return None
        return self.sealed(session, now)

    async def join(self, run: Run, session: Session, saved: Saved, ours: Memory) -> None:
        """Bring ours together with what another turn of the branch wrote meanwhile. Raises `StoreError`.

        An attempt fails only where another turn's has gone through, so it ends.
        """
        other = saved.other
        while other is not None and other.revision >= 0:
            theirs = (self._opened(session, other.memory) if other.memory else EMPTY) or EMPTY
            # Who has more messages was sent later; where the two differ about the same message, that holds.
            both = joined(theirs, ours) if saved.status == "held" else joined(ours, theirs)
            if both == theirs:
                return
            other = await run(sessions.remembering(session, saved.branch, other.revision, self.sealed(session, both)))

    def sealed(self, session: Session, memory: Memory) -> bytes:
        """As it is written; empty for no edits."""
        return b"" if memory is EMPTY else self._vault.seal(memory.dumps(), memory_place(session))

    def _opened(self, session: Session, memory: bytes) -> Memory | None:
        try:
            return Memory.loads(self._vault.open(memory, memory_place(session)))
        except VaultError as error:
            self._unopened(error)
            return None
