"""Seeded random conversations through random policies in random order: the same ones on every machine.

A few hundred in every run of the tests; as many as wished by `python -m tests.property.test_policies_seeded --runs N`.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from msgspec.structs import replace

from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation, Message
from policies.dedupe_tool_output import DedupeToolOutput
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import apply
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import NOTHING, Keeping
from policies.memory import EMPTY, Memory
from policies.pin import Pin
from policies.plan import Plan, Pricing, Refuse, plan
from policies.policy import Policy
from policies.repair import Repair
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import Counter, conversation, count, message, says

RUNS = 400
HUGE = 350
RECORD = "INTENT\nGo on.\nFACTS\n" + "port 8443\n" * 20


class Written(dict[bytes, str]):
    """Every record a model could have made, and the facts that were found: what a gateway remembers."""

    def get(self, key: bytes, default: object = None) -> str:
        return self[key] if key in self.keys() else RECORD

    def learn(self, done: Plan) -> None:
        if done.summary is not None and done.summary.room:
            self[done.summary.key] = done.summary.record

    def __contains__(self, key: object) -> bool:
        return True


OUTPUTS = (
    "ok",
    "all is well here\n" * 90,
    "".join(f"{number} fine\n" for number in range(300)),
    "".join(f"{number} fine\n" for number in range(200)) + "ERROR: disk is full\n" * 30,
    '{"rows": [' + ", ".join(f'{{"id": {number}}}' for number in range(150)) + "]}",
    "\ud83d" * 900,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 300,
    "x" * 6000,
)
ARGUMENTS = ("{}", "{}", '{"path": "a"}', '{"path": "b"}', '{"path": ', "", "[1]", '{"p": "\ud83d"}')
HEADS = (
    (),
    (message("system", "Be brief."),),
    (message("system", "# Now: 10:00:01\nBe brief.\ud83d", cache_control=1),),
)
POLICIES: tuple[Callable[[Random], Policy], ...] = (
    lambda r: TrimToolOutput(
        max_tokens=r.randint(64, 400), head_share=r.random(), min_removed_tokens=r.choice((1, 50))
    ),
    lambda r: TrimToolOutput(max_tokens=r.randint(64, 200), age_turns=r.randint(1, 3)),
    lambda r: TrimToolOutput(max_tokens=r.randint(64, 200), age_groups=r.randint(1, 3)),
    lambda r: DedupeToolOutput(min_tokens=r.randint(64, 300), superseded=r.random() < 0.7),
    lambda r: ClearOldReasoning(keep_turns=r.randint(1, 3), min_removed_tokens=r.choice((1, 200))),
    lambda r: DropStaleTurns(gap_seconds=60, keep_turns=r.randint(1, 3), keep_original_seconds=r.choice((0, 60))),
    lambda r: DropStaleTurns(gap_seconds=None, older_than_seconds=r.choice((200, 900))),
    lambda r: KeepRecentTurns(turns=r.randint(1, 3), high_water_turns=r.randint(3, 6)),
    lambda r: KeepRecentTurns(turns=r.randint(1, 3), high_water_turns=r.randint(3, 6), keep_original_seconds=60),
    lambda r: KeepRecentTurns(high_water_tokens=r.randint(900, 9000), low_water_tokens=r.randint(100, 899)),
    lambda r: KeepRecentTokens(
        high_water_tokens=r.randint(900, 9000),
        low_water_tokens=r.randint(100, 899),
        keep_original_seconds=r.choice((0, 60)),
    ),
    lambda r: SummarizeOlderTurns(
        by="facts",
        high_water_tokens=r.randint(900, 9000),
        low_water_tokens=r.randint(400, 899),
        max_tokens=r.randint(128, 399),
        keep_original_seconds=r.choice((0, 60)),
    ),
    lambda r: SummarizeOlderTurns(
        high_water_tokens=r.randint(900, 9000), low_water_tokens=r.randint(400, 899), max_tokens=r.randint(128, 399)
    ),
    lambda r: CapContext(limit_tokens=r.randint(50, 9000)),
    lambda r: Pin(first_turns=r.randint(1, 2), tools=r.choice(((), ("loo*",))), roles=r.choice(((), ("assistant",)))),
    lambda r: Pin(markers=("Go",)),
    lambda _: Strip(),
    lambda _: Repair(),
)
PRICES = (None, None, Pricing(1.0, 100.0, 1e3, 10.0, 1e12), Pricing(0.5, 1e4, 1e5, 1e4, 1e11))


def answer(r: Random, call: str) -> Message:
    return message("tool", r.choice(OUTPUTS), answers=call.strip(), media=int(r.random() < 0.1), name="look")


def calls(r: Random, number: int) -> list[Message]:
    """One message with calls and its answers, some missing, some in another order; at times one to no call."""
    ids = [f"{r.choice(('a', ' b', 'c '))}{number}{at}" for at in range(r.randint(1, 3))]
    asked = message(
        "assistant", r.choice(("", "Looking.")), calls=ids, arguments=r.choice(ARGUMENTS), thinking=thought(r)
    )
    answered = r.sample(ids, r.choice((len(ids), len(ids), r.randint(0, len(ids)))))
    stray = [answer(r, "nobody")] if r.random() < 0.1 else []
    return [asked, *stray, *(answer(r, call) for call in answered)]


def thought(r: Random) -> str:
    return "hm " * r.choice((0, 0, 0, 40, 600))


def turn(r: Random, number: int) -> list[Message]:
    asked = [message("user", r.choice(("", "Go on.", "\ud83d?")), media=int(r.random() < 0.1))] * r.choice((1, 1, 1, 2))
    reminder = [message("system", "Mind the budget.")] * (r.random() < 0.1)
    called = [part for at in range(r.choice((0, 1, 1, 2))) for part in calls(r, 10 * number + at)]
    closing = [message("assistant", "Done.", thinking=thought(r))] * (r.random() < 0.8)
    return [*asked, *reminder, *called, *closing]


def talk(r: Random, turns: int) -> Conversation:
    parts = [part for number in range(turns) for part in turn(r, number)]
    if r.random() < 0.1:
        r.shuffle(parts)
    return conversation(*r.choice(HEADS), *parts, overhead_tokens=r.choice((0, 300)))


def some_policies(r: Random) -> list[Policy]:
    return [r.choice(POLICIES)(r) for _ in range(r.randint(0, 6))]


def turns_of(seed: int, r: Random) -> int:
    """A median of some 20 messages; every hundredth conversation has about 300, every thousandth about 2,000."""
    if seed % 1000 == HUGE:
        return 400
    return 60 if seed % 100 == 0 else r.choice((1, 3, 5, 5, 8))


def check(seed: int) -> None:
    """One conversation, planned whole and as it grows."""
    r = Random(seed)
    whole, policies = talk(r, turns_of(seed, r)), some_policies(r)
    idle, pricing, cold = r.choice((0.0, 100.0)), r.choice(PRICES), r.random() < 0.3
    records: Mapping[bytes, str] = r.choice(({}, Written()))
    keeping = r.choice((NOTHING, Keeping(b"acme")))

    def planned(of: Conversation) -> Plan | Refuse:
        make = partial(plan, idle_seconds=idle, pricing=pricing, cold=cold, records=records, keeping=keeping)
        return make(of, policies, EMPTY, count)

    done = planned(whole)
    assert done == planned(whole)
    if isinstance(done, Plan):
        is_sound(whole, policies, done, records)
        again = planned(apply(whole, done.edits))
        assert isinstance(again, Plan) and (again.edits == () or may_move_further(policies, done))
        is_remembered(whole, done, records, keeping)
    if seed % 1000 == HUGE:
        return  # to plan it at each of its messages would take minutes
    grows(whole, policies, pricing, records, keeping, r)


def is_sound(of: Conversation, policies: Sequence[Policy], done: Plan, records: Mapping[bytes, str]) -> None:
    assert violations(of, done.edits) == ()
    assert apply(of, done.edits).total_tokens == done.sent_tokens
    assert all(done.sent_tokens <= p.prompt_limit_tokens() for p in policies if isinstance(p, CapContext))
    if isinstance(records, Written):
        records.learn(done)
    assert len(done.reasons) == len(done.edits) and "" not in done.reasons
    nothing = replace(EMPTY, seen=done.memory.seen)
    assert (done.memory == nothing) == (done.edits == () and done.memory.enforced.ahead is None)


def may_move_further(policies: Sequence[Policy], done: Plan) -> bool:
    """Whether a window stayed because it would have had to bring back what a pointer stands for, or a record of facts
    would not have freed enough that holds what trimmed outputs said.

    Of what is sent nobody can tell that a pointer has an original, so a second plan for it may move that window; nor
    what an output said before it was trimmed, so a second record may be shorter.
    """
    trims = done.memory.enforced.trims
    pointers = any(trim.form == "same" for trim in trims)
    windows = KeepRecentTurns | KeepRecentTokens | SummarizeOlderTurns
    facts = any(isinstance(policy, SummarizeOlderTurns) and policy.by == "facts" for policy in policies)
    return (pointers and any(isinstance(policy, windows) for policy in policies)) or (bool(trims) and facts)


def is_remembered(of: Conversation, done: Plan, records: Mapping[bytes, str], keeping: Keeping) -> None:
    counter, known = Counter(), len(of.messages)
    memory = Memory.loads(done.memory.dumps())
    again = plan(of, [], memory, counter, known_messages=known, records=records, keeping=keeping)
    assert isinstance(again, Plan)
    assert again.edits == done.edits
    assert counter.calls == 0


def grows(
    whole: Conversation,
    policies: Sequence[Policy],
    pricing: Pricing | None,
    records: Mapping[bytes, str],
    keeping: Keeping,
    r: Random,
) -> None:
    """Turn by turn: every plan is sound, and without a step what was sent stays as it was sent."""
    memory, known = EMPTY, 0
    stepping = KeepRecentTurns | KeepRecentTokens | SummarizeOlderTurns | DropStaleTurns | CapContext
    steps = any(isinstance(p, stepping) for p in policies) or pricing is not None
    repairs = any(isinstance(p, Repair) for p in policies)
    sent: tuple[Message, ...] = ()
    for stop in [at + 1 for at, part in enumerate(whole.messages) if part.role in ("user", "tool")]:
        part = Conversation(whole.messages[:stop], whole.overhead_tokens)
        done = plan(
            part,
            policies,
            memory,
            count,
            known_messages=known,
            pricing=pricing,
            idle_seconds=r.choice((0, 99)),
            records=records,
            keeping=keeping,
            now_seconds=1e6 + 60 * stop,
        )
        if isinstance(done, Refuse):
            return
        is_sound(part, policies, done, records)
        if r.random() < 0.2:  # the client begins the answer: no turn is over by that, nor anything answered
            begun = conversation(*part.messages, says("It is"), overhead_tokens=whole.overhead_tokens)
            going_on = plan(begun, policies, memory, count, known_messages=known, records=records, keeping=keeping)
            if isinstance(going_on, Plan):
                is_sound(begun, policies, going_on, records)
        view = apply(part, done.edits).messages
        assert steps or repairs or view[: len(sent)] == sent
        if not repairs and not brought_back(memory, done.memory):
            stands = next((at for at, (was, now) in enumerate(zip(sent, view, strict=False)) if was != now), len(sent))
            assert done.cached_tokens == part.overhead_tokens + sum(each.tokens for each in view[:stands])
        memory, known, sent = Memory.loads(done.memory.dumps()), stop, view


def brought_back(before: Memory, after: Memory) -> bool:
    """Whether an answer that came late has brought messages back that had been left out."""
    return left_out(after) < left_out(before)


def left_out(memory: Memory) -> int:
    """Before which message nothing is sent but what must stay."""
    cut, summary = memory.enforced.cut, memory.enforced.summary
    return max(cut.at if cut else 0, summary.stop if summary else 0)


def test_random_policies_over_random_conversations() -> None:
    for seed in range(RUNS):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.runs):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    print(f"{arguments.runs} conversations, none broken")
