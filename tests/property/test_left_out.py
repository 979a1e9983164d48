"""Over growing conversations: a handle of messages left out stays until a step, and gives back all of them."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shown import Shown, listed, parts_of, shown_by, texts_of
from policies.conversation import Conversation, Message
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import AddNote, AddSummary, Edit, apply
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import TURNS_PREFIX, Keeping
from policies.memory import EMPTY, Memory
from policies.plan import Refuse, plan
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.property.test_policies import conversations
from tests.unit.policies.conversations import count

ACME = Keeping(b"acme")
droppers = st.lists(
    st.one_of(
        st.integers(1, 3).map(
            lambda turns: KeepRecentTurns(turns=turns, high_water_turns=turns + 1, keep_original_seconds=60)
        ),
        st.integers(200, 2000).map(lambda high: KeepRecentTokens(high_water_tokens=high, keep_original_seconds=60)),
        st.builds(
            SummarizeOlderTurns,
            by=st.just("facts"),
            high_water_tokens=st.integers(900, 2000),
            max_tokens=st.integers(128, 300),
            keep_original_seconds=st.sampled_from((0, 60)),
        ),
        st.just(DropStaleTurns(gap_seconds=60, keep_turns=1, keep_original_seconds=60)),
        st.just(TrimToolOutput(max_tokens=64, keep_original_seconds=60)),
    ),
    min_size=1,
    max_size=3,
)


def naming(edits: Sequence[Edit]) -> list[AddNote | AddSummary]:
    return [edit for edit in edits if isinstance(edit, AddNote | AddSummary) and edit.handle]


def redeemed(shown: Shown, handle: str) -> str:
    """What `GET /v1/artifacts/{handle}` gives, of what was kept."""
    texts = texts_of(shown)
    return "\n".join(texts[part] for part in parts_of(handle, texts[handle]))


@settings(max_examples=150, deadline=None)
@given(conversations, droppers, st.data())
def test_a_handle_stays_until_a_step_and_gives_back_what_was_left_out(
    whole: Conversation, policies: list[Policy], data: st.DataObject
) -> None:
    memory, known, before = EMPTY, 0, list[str]()
    sent: tuple[Message, ...] = ()
    for stop in [at + 1 for at, part in enumerate(whole.messages) if part.role in ("user", "tool")][:40]:
        part = Conversation(whole.messages[:stop], whole.overhead_tokens)
        idle = data.draw(st.sampled_from((0.0, 0.0, 99.0)))
        done = plan(part, policies, memory, count, known_messages=known, idle_seconds=idle, keeping=ACME)
        if isinstance(done, Refuse):
            return
        assert violations(part, done.edits) == ()
        named = naming(done.edits)
        reasons = dict(zip(map(id, done.edits), done.reasons, strict=True))
        view = apply(part, done.edits).messages
        if any(reasons[id(edit)] == "again" for edit in named) and set(done.reasons) <= {"again", "arrival"}:
            assert [edit.text for edit in named] == before and view[: len(sent)] == sent
        shown = shown_by(part, done.edits, ACME)
        for edit in named:
            text = redeemed(shown, edit.handle)
            assert all(part.messages[at].text in text for at in edit.messages)
        memory, known, before, sent = Memory.loads(done.memory.dumps()), stop, [edit.text for edit in named], view


@settings(max_examples=100, deadline=None)
@given(conversations, droppers, st.data())
def test_only_what_can_be_given_back_whole_is_named(
    talk: Conversation, policies: list[Policy], data: st.DataObject
) -> None:
    done = plan(talk, policies, EMPTY, count, cold=True, keeping=ACME)
    assert not isinstance(done, Refuse)
    shown = shown_by(talk, done.edits, ACME)
    if not shown.texts:
        return
    stored = frozenset(data.draw(st.sets(st.sampled_from(sorted(shown.texts)))))
    held = shown.redeemable(stored)
    assert all(held.issuperset(shown.parts.get(handle, ())) for handle in held)
    less = plan(talk, policies, EMPTY, count, cold=True, keeping=Keeping(ACME.key, held))
    assert not isinstance(less, Refuse) and violations(talk, less.edits) == ()
    assert shown_by(talk, less.edits, ACME).texts.keys() <= held


def test_the_list_of_parts_is_read_as_it_is_written() -> None:
    assert parts_of(TURNS_PREFIX + "a", listed(["kvo_a", "kvo_b"])) == ["kvo_a", "kvo_b"]
    assert parts_of("kvo_a", "kvo_b") == (), "an output that looks like a list is none"
