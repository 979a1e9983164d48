"""Plans on the loop and in a thread: where the text that must be counted or read decides, and the plan is the same."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from gateway.counting import THREAD_CHARACTERS, Counter, Scaled
from gateway.kept import Kept
from gateway.planning import ALLOWED_CHARACTERS, Allowance, Beyond, made, read_ahead
from gateway.rendered import Rendered
from policies.conversation import Conversation
from policies.keeping import NOTHING
from policies.memory import EMPTY
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from tests.unit.policies.conversations import calling, conversation, count, message, result, says, user

FACTS = SummarizeOlderTurns(by="facts", high_water_tokens=2_000, low_water_tokens=1_000, max_tokens=400)
NO_RECORDS: Mapping[bytes, str] = {}


class Where:
    """Counts, and notes in which threads."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __call__(self, text: str) -> int:
        self.threads.add(threading.get_ident())
        return count(text)


def scaled(counting: Where) -> Scaled:
    return Scaled(Counter(counting), 1.0)


def turns(number: int, sentences: int) -> Conversation:
    parts = [part for at in range(number) for part in (user(f"Set port {at}.\n" + "So it is. " * sentences), says())]
    return conversation(*parts, user("And now?"))


def trees(number: int) -> Conversation:
    """Outputs in JSON that are no long array, so that some shorter forms of them are counted."""
    text = '{"k": "' + "word " * 4_000 + '"}'
    answers = [
        part for at in range(number) for part in (calling(f"c{at}"), result(f"c{at}", f"{text[:-2]}{at}" + '"}'))
    ]
    return conversation(user(), *answers, says(), user())


async def planned(talk: Conversation, policy: Policy, counting: Where, rendered: Rendered, new_bytes: int = 0) -> Plan:
    make = partial(plan, talk, (policy,), EMPTY)
    found = await made(make, scaled(counting), rendered, new_bytes, NOTHING, NO_RECORDS)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(("outputs", "elsewhere"), [(1, False), (12, True)])
async def test_many_counts_go_to_a_thread_though_little_is_new(outputs: int, *, elsewhere: bool) -> None:
    where, talk, policy = Where(), trees(outputs), TrimToolOutput(max_tokens=1_500)
    found = await planned(talk, policy, where, Rendered())
    assert (where.threads != {threading.get_ident()}) is elsewhere
    assert found == plan(talk, (policy,), EMPTY, scaled(Where()))


async def test_much_that_is_new_is_planned_in_a_thread_from_the_beginning() -> None:
    where = Where()
    await planned(trees(1), TrimToolOutput(max_tokens=1_500), where, Rendered(), THREAD_CHARACTERS + 1)
    assert threading.get_ident() not in where.threads


@pytest.mark.parametrize(("sentences", "elsewhere"), [(40, False), (120, True)])
async def test_a_record_of_much_that_was_not_read_is_put_together_in_a_thread(
    sentences: int, *, elsewhere: bool
) -> None:
    where, talk = Where(), turns(40, sentences)
    found = await planned(talk, FACTS, where, Rendered())
    assert found.summary is not None
    assert (threading.get_ident() not in where.threads) is elsewhere
    assert found == plan(talk, (FACTS,), EMPTY, scaled(Where()))


async def test_what_was_read_as_it_arrived_is_not_read_again() -> None:
    """So the step that needs the facts of all messages takes no thread, and nothing but to put them together."""
    where, talk, rendered = Where(), turns(40, 120), Rendered()
    for at in range(0, len(talk.messages), 2):
        read_ahead(rendered, talk.messages[at : at + 2])
    allowed = Allowance(scaled(where), rendered, 0)
    for each in talk.messages:
        assert allowed.read(each) == rendered.known(each)
    found = await planned(talk, FACTS, where, rendered)
    assert where.threads == {threading.get_ident()}
    assert found == plan(talk, (FACTS,), EMPTY, scaled(Where()))


def test_much_that_arrives_at_once_is_not_read_ahead() -> None:
    rendered, long = Rendered(), turns(1, ALLOWED_CHARACTERS)
    read_ahead(rendered, long.messages)
    assert rendered.known(long.messages[0]) is None


def test_what_is_marked_costs_no_allowance() -> None:
    text = "word\n" * 2_000
    measure = scaled(Where())
    one = Allowance(measure, Rendered(), len(text))
    marks: Sequence[object] = [one.marks(b"a", text), one.marks(b"a", text)]
    assert marks[0] == marks[1]
    with pytest.raises(Beyond):
        one.marks(b"b", text)
    with pytest.raises(Beyond):
        one("x")


def test_tenants_share_no_facts() -> None:
    kept, said = Kept(), message("user", "Use port 8443.")
    one, other = Rendered(kept, ("acme", "demo")), Rendered(kept, ("zeta", "demo"))
    assert one.read(said)
    assert (one.known(said), other.known(said)) == (one.read(said), None)
