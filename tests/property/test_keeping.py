"""Over random conversations: what is shown is what may be shown, and everything else holds as without handles."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.conversation import Conversation
from policies.dedupe_tool_output import DedupeToolOutput
from policies.edit import Edit, ReplaceText, apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import HANDLE, NOTHING, Keeping
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.property.test_policies import conversations
from tests.unit.policies.conversations import count

ACME = Keeping(b"acme")
keepers = st.lists(
    st.sampled_from(
        [
            TrimToolOutput(max_tokens=64, keep_original_seconds=60),
            TrimToolOutput(max_tokens=64, age_groups=1, keep_original_seconds=60),
            TrimToolOutput(max_tokens=100),
            DedupeToolOutput(min_tokens=64, keep_original_seconds=60),
            KeepRecentTurns(turns=2, high_water_turns=4),
        ]
    ),
    min_size=1,
    max_size=4,
)


def planned(talk: Conversation, policies: Sequence[Policy], keeping: Keeping, memory: Memory = EMPTY) -> Plan:
    found = plan(talk, policies, memory, count, cold=memory is EMPTY, keeping=keeping)
    assert isinstance(found, Plan)
    return found


def shown(edits: Sequence[Edit]) -> set[str]:
    return {edit.handle for edit in edits if isinstance(edit, ReplaceText) and edit.handle}


@settings(max_examples=150, deadline=None)
@given(conversations, keepers, st.data())
def test_only_what_may_be_shown_is_shown_and_the_rest_holds(
    talk: Conversation, policies: list[Policy], data: st.DataObject
) -> None:
    done = planned(talk, policies, ACME)
    assert violations(talk, done.edits) == ()
    for edit in done.edits:
        if isinstance(edit, ReplaceText):
            says = set(HANDLE.findall(edit.text)) - set(HANDLE.findall(talk.messages[edit.at].text))
            assert says == ({edit.handle} if edit.handle else set())
            assert not edit.handle or edit.handle == ACME.handle_of(talk.messages[edit.at].text)
    assert planned(apply(talk, done.edits), policies, ACME, done.memory).edits == ()

    named = sorted(shown(done.edits))
    held = frozenset(data.draw(st.sets(st.sampled_from(named)))) if named else frozenset()
    less = planned(talk, policies, Keeping(ACME.key, held))
    assert violations(talk, less.edits) == () and shown(less.edits) <= held
    assert shown(planned(talk, policies, NOTHING).edits) == set()


@settings(max_examples=100, deadline=None)
@given(conversations, keepers)
def test_a_replay_under_another_secret_says_the_same(talk: Conversation, policies: list[Policy]) -> None:
    done = planned(talk, policies, ACME)
    remembered = Memory.loads(done.memory.dumps())
    if remembered is not EMPTY:
        assert planned(talk, policies, Keeping(b"another"), remembered).edits == done.edits
