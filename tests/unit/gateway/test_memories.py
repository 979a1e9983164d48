"""Edits of two turns that ran side by side, brought together: what was sent later holds."""

import pytest

from budgets.script import Step
from gateway.memories import Memories
from gateway.sessions import Other, Saved, SavedStatus, Session, memory_place
from gateway.vault import Vault, VaultError
from policies.memory import InForce, Memory, Trim

SESSION = Session("acme", "chat", "known", branch=0, revision=3, memory_revision=2)


def never(error: VaultError) -> None:
    raise AssertionError("all of it opens") from error


def memory(level: int, *more: bytes) -> Memory:
    """A message that is trimmed so far, and others trimmed alike."""
    trims = [Trim(name * 16, "json", 100, 50, level=level if name == b"a" else 1) for name in (b"a", *more)]
    return Memory(InForce(trims=tuple(trims)))


@pytest.mark.parametrize(("status", "level"), [("held", 2), ("extended", 1)])
async def test_where_two_turns_differ_about_a_message_the_longer_conversation_holds(
    status: SavedStatus, level: int
) -> None:
    vault = Vault()
    memories = Memories(vault, never)
    ours, theirs = memory(1, b"b"), memory(2, b"c")
    written: list[Memory] = []

    async def run(step: Step[Other | None], /) -> Other | None:
        assert isinstance(step.args[-1], bytes)
        written.append(Memory.loads(vault.open(step.args[-1], memory_place(SESSION))))
        return None

    saved = Saved(status, 0, 4, other=Other(3, memories.sealed(SESSION, theirs)))
    await memories.join(run, SESSION, saved, ours)
    (both,) = written
    assert {trim.digest[:1]: trim.level for trim in both.enforced.trims} == {b"a": level, b"b": 1, b"c": 1}
