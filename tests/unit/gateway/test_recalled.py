"""Sessions as a process left them: taken up by what goes on from there, bounded by number and by time."""

from msgspec import structs

from gateway.digests import Chain, of_messages
from gateway.recalled import EDITS_A_SESSION, SECONDS, Recollections
from gateway.sessions import Progress, Saved, Session, SessionLimits
from policies.memory import EMPTY, InForce, Memory, Trim

LIMITS = SessionLimits()
UNREAD = Session("acme", "chat", "unread")
READ = Session("acme", "chat", "known", known_messages=2, branch=1, revision=4, memory_revision=3)


def chain(text: str) -> Chain:
    return Chain(of_messages(letter.encode() for letter in text))


def memory(*letters: str) -> Memory:
    trims = (Trim(digest, "text", 10, 5) for digest in of_messages(letter.encode() for letter in letters))
    return Memory(InForce(trims=tuple(trims)))


def saved(kept: Recollections, text: str, edits: Memory, now: float = 0.0, session: Session = READ) -> None:
    progress = Progress(chain(text), memory=b"sealed", home="one")
    kept.saved(session, progress, Saved("extended", 1, 5), LIMITS, edits, now)


def unwritten(kept: Recollections, text: str, edits: Memory, now: float = 0.0, session: Session = READ) -> int:
    return kept.unwritten(session, Progress(chain(text), memory=b"sealed", home="one"), LIMITS, edits, now)


def test_a_turn_that_was_not_read_goes_on_from_where_the_session_was_left() -> None:
    kept = Recollections()
    saved(kept, "abc", memory("a"), now=100)
    found = kept.of(UNREAD, chain("abcd"), EMPTY, now=107)
    assert found is not None and (found.messages, found.memory, found.unsaved) == (3, memory("a"), None)
    session = found.session
    assert (session.status, session.branch, session.revision, session.memory_revision) == ("recalled", 1, 5, 5)
    assert (session.known_messages, session.home, session.idle_seconds) == (3, "one", 7)


def test_what_is_recalled_is_as_old_as_what_it_builds_on() -> None:
    """Should the session have been deleted since that was read, what goes on from it is not written either."""
    kept = Recollections()
    saved(kept, "abc", memory("a"), session=structs.replace(READ, read_ms=123_456))
    found = kept.of(structs.replace(UNREAD, unread_at=9.0), chain("abcd"), EMPTY, now=7)
    assert found is not None and (found.session.read_ms, found.session.unread_at) == (123_456, 0.0)
    unwritten(kept, "abc", memory("a"), session=structs.replace(UNREAD, unread_at=5.0))
    found = kept.of(structs.replace(UNREAD, unread_at=9.0), chain("abcd"), EMPTY, now=7)
    assert found is not None and (found.session.read_ms, found.session.unread_at) == (0, 5.0)


def test_what_does_not_go_on_from_there_is_not_recalled() -> None:
    kept = Recollections()
    saved(kept, "abc", memory("a"))
    for read, text in (
        (UNREAD, "ab"),
        (UNREAD, "abx"),
        (UNREAD, "xbcd"),
        (structs.replace(UNREAD, id="other"), "abcd"),
    ):
        assert kept.of(read, chain(text), EMPTY, 1) is None
    assert kept.of(structs.replace(UNREAD, tenant="zeta"), chain("abcd"), EMPTY, 1) is None
    assert kept.of(READ, chain("abcd"), EMPTY, 1) is None, "the store's own word, where there is nothing that it lacks"


def test_a_session_without_edits_or_overtaken_by_another_call_is_not_kept() -> None:
    kept = Recollections()
    saved(kept, "abc", EMPTY)
    kept.saved(READ, Progress(chain("abc")), Saved("held", 1, 5), LIMITS, memory("a"), 0)
    assert kept.of(UNREAD, chain("abcd"), EMPTY, 1) is None and kept.saved_ones.weight == 0


def test_what_was_left_is_good_for_a_time() -> None:
    kept = Recollections()
    saved(kept, "abc", memory("a"))
    assert kept.of(UNREAD, chain("abcd"), EMPTY, SECONDS + 1) is None
    short = SessionLimits(idle_seconds=5)
    kept.saved(READ, Progress(chain("abc"), memory=b""), Saved("extended", 1, 5), short, memory("a"), 0)
    assert kept.of(UNREAD, chain("abcd"), EMPTY, 6) is None
    unwritten(kept, "abc", memory("a"))
    assert kept.unsaved == 1 and list(kept.waiting(SECONDS + 1)) == [] and kept.unsaved == kept.weight == 0


def test_what_the_store_lacks_is_joined_with_what_it_has() -> None:
    kept = Recollections()
    unwritten(kept, "abcd", memory("a"))
    same = kept.of(READ, chain("abcde"), memory("b"), 1)
    assert same is not None and same.memory == memory("a") and same.messages == 4
    assert same.session.known_messages == 2 and same.unsaved is not None, "it is written as the store knows it"
    newer = structs.replace(READ, revision=9, memory_revision=9)
    both = kept.of(newer, chain("abcde"), memory("b"), 1)
    assert both is not None and set(both.memory.enforced.trims) == set(memory("a", "b").enforced.trims)
    ahead = structs.replace(READ, known_messages=4)
    assert kept.of(ahead, chain("abcde"), memory("b"), 1) is None, "it has been told by another gateway"


def test_a_later_turn_takes_the_place_of_an_earlier_one() -> None:
    kept = Recollections()
    unwritten(kept, "abc", memory("a"))
    (first,) = kept.waiting(1)
    unwritten(kept, "abcd", memory("a"))
    assert not kept.still(first) and kept.unsaved == 1 and kept.weight == 4
    saved(kept, "abcde", memory("a"))
    assert kept.unsaved == kept.weight == 0 and kept.of(UNREAD, chain("abcde"), EMPTY, 1) is not None


def test_both_kinds_are_bounded_and_what_is_lost_is_told() -> None:
    kept = Recollections(most_edits=10 * EDITS_A_SESSION, most_messages=10)
    for at in range(50):
        saved(kept, "abc", memory("a"), session=structs.replace(READ, id=f"s{at}"))
        assert kept.saved_ones.weight <= 10 * EDITS_A_SESSION
    lost = [unwritten(kept, "abcd", EMPTY, session=structs.replace(READ, id=f"u{at}")) for at in range(4)]
    assert lost == [0, 0, 1, 1] and kept.weight == 8
    assert [left.session.id for left in kept.waiting(1)] == ["u2", "u3"], "the oldest goes"


def test_a_deleted_session_is_forgotten() -> None:
    kept = Recollections()
    saved(kept, "abc", memory("a"))
    kept.forget("acme", "chat")
    assert kept.of(UNREAD, chain("abcd"), EMPTY, 1) is None
    unwritten(kept, "abc", memory("a"))
    kept.forget("acme", "chat")
    assert list(kept.waiting(1)) == [] and kept.weight == 0
