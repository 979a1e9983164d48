"""What holds for every conversation, however odd: no plan breaks an invariant, and none ever changes its mind."""

import json
from collections.abc import Sequence
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation, Message
from policies.dedupe_tool_output import DedupeToolOutput
from policies.draft import Draft
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import ReplaceText, apply
from policies.frame import Frame
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.outcome import edits
from policies.pin import Pin
from policies.plan import Plan, Refuse, plan
from policies.policy import Policy
from policies.pricing import Pricing
from policies.repair import Repair
from policies.sizes import may_act
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.text_spans import boundary
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from policies.window import borders
from tests.unit.policies.conversations import Counter, conversation, count, message

GIANT = (
    "".join(f"{number} fine\n" for number in range(2000)),
    "error: no\n" * 700,
    "x" * 30_000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 900,
    "\U0001f1e9\U0001f1ea" * 900,
    "e\u0301" * 2000,
    "\ud83d" * 3000,
    "\ud83d\ude00" * 1500,
    json.dumps([{"id": number, "note": "n" * 90} for number in range(200)], indent=2),
    json.dumps({f"key {number}": number for number in range(900)}),
    json.dumps("\ud83d" * 900),
    "[" * 3000 + "]" * 3000,
    "{" + " " * 9000,
)
arguments = st.sampled_from(("{}", "{}", "{}", '{"path": "a"}', '{"path": ', "", "[1]", '{"p": "\ud83d"}'))
thinking = st.sampled_from(("", "", "", "hm " * 40, "hm " * 600))
texts = st.one_of(st.just(""), st.text(max_size=40), st.sampled_from(GIANT))
short = st.sampled_from(("", "Go on.", "\U0001f44d", "\ud83d"))
ids = st.sampled_from(("a", "b", " a ", "c"))

policies = st.lists(
    st.one_of(
        st.builds(
            TrimToolOutput,
            max_tokens=st.integers(64, 400),
            head_share=st.floats(0, 1),
            min_removed_tokens=st.sampled_from((1, 50)),
        ),
        st.integers(1, 4).map(lambda turns: KeepRecentTurns(turns=turns)),
        st.builds(
            SummarizeOlderTurns,
            by=st.sampled_from(("facts", "model")),
            high_water_tokens=st.integers(900, 9000),
            low_water_tokens=st.integers(400, 899),
            max_tokens=st.integers(128, 399),
        ),
        st.integers(1, 3).map(lambda turns: KeepRecentTurns(turns=turns, high_water_turns=turns)),
        st.integers(100, 9000).map(
            lambda high: KeepRecentTurns(high_water_tokens=high, low_water_tokens=max(1, high // 3))
        ),
        st.integers(100, 9000).map(lambda high: KeepRecentTokens(high_water_tokens=high)),
        st.integers(50, 9000).map(lambda limit: CapContext(limit_tokens=limit)),
        st.builds(TrimToolOutput, max_tokens=st.integers(64, 200), age_turns=st.integers(1, 3)),
        st.builds(TrimToolOutput, max_tokens=st.integers(64, 200), age_groups=st.integers(1, 3)),
        st.builds(DedupeToolOutput, min_tokens=st.integers(64, 300), superseded=st.booleans()),
        st.builds(ClearOldReasoning, keep_turns=st.integers(1, 3), min_removed_tokens=st.sampled_from((1, 200))),
        st.builds(DropStaleTurns, gap_seconds=st.just(60.0), keep_turns=st.integers(1, 3)),
        st.just(Strip()),
        st.just(Repair()),
        st.sampled_from((Pin(first_turns=2), Pin(tools=("look",)), Pin(roles=("assistant",)), Pin(markers=("Go",)))),
    ),
    max_size=6,
)
idle = st.sampled_from((0.0, 0.0, 100.0))
dear, cheap = Pricing(1.0, 100.0, 1e3, 10.0, 1e12), Pricing(0.5, 1e4, 1e5, 1e4, 1e11)
prices = st.sampled_from((None, None, dear, cheap))


@st.composite
def rounds(draw: st.DrawFn, answers_missing: int = 2) -> list[Message]:
    """One assistant message with calls and its answers, in any order, some perhaps missing."""
    calls = draw(st.lists(ids, min_size=1, max_size=3, unique_by=str.strip))
    answers = draw(st.permutations(calls))[draw(st.integers(0, answers_missing)) :]
    asked = message(
        "assistant",
        draw(short),
        calls=calls,
        reasoning=draw(st.booleans()),
        arguments=draw(arguments),
        thinking=draw(thinking),
    )
    media = draw(st.sampled_from((0, 0, 0, 1)))
    return [asked, *(message("tool", draw(texts), answers=call.strip(), media=media) for call in answers)]


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A turn: one or two user messages, rounds of calls, and mostly an answer."""
    asked = [message("user", draw(short), media=draw(st.integers(0, 1))) for _ in range(draw(st.integers(1, 2)))]
    reminder = [message("system", "Mind the budget.")] * draw(st.sampled_from((0, 0, 0, 1)))
    called = chain.from_iterable(draw(st.lists(rounds(), max_size=2)))
    closing = [message("assistant", draw(short), thinking=draw(thinking))] * draw(st.sampled_from((0, 1, 1, 1)))
    return [*asked, *reminder, *called, *closing]


heads = st.sampled_from(
    (
        [],
        [message("system", "Be brief.", cache_control=1)],
        [message("system", "Current time: 10:00:01\nBe brief.")],
        [message("developer"), message("assistant")],
    )
)


@st.composite
def orderly(draw: st.DrawFn) -> Conversation:
    """What clients send, up to a few hundred messages."""
    body = list(chain.from_iterable(draw(st.lists(turns(), max_size=8)))) * draw(st.sampled_from((1, 1, 1, 8)))
    return conversation(*draw(heads), *body[:300], overhead_tokens=draw(st.sampled_from((0, 300))))


chaotic = st.lists(
    st.one_of(
        st.builds(message, st.sampled_from(("system", "developer", "user", "assistant")), short),
        st.builds(
            lambda calls, given, thought: message("assistant", calls=calls, arguments=given, thinking=thought),
            st.lists(ids, max_size=2),
            arguments,
            thinking,
        ),
        st.builds(lambda text, call: message("tool", text, answers=call), texts, st.one_of(st.none(), ids)),
    ),
    max_size=30,
).map(lambda messages: conversation(*messages))

conversations = st.one_of(orderly(), orderly(), chaotic)


def limits(policies: Sequence[Policy]) -> list[int]:
    return [policy.prompt_limit_tokens() for policy in policies if isinstance(policy, CapContext)]


def size(message: Message) -> int:
    """Bytes as a gateway would give them: never fewer than the tokens, an image at its tokens."""
    given = sum(10 + len(call.arguments.encode("utf-8", "surrogatepass")) for call in message.calls)
    return (
        len(message.text.encode("utf-8", "surrogatepass")) + len(message.reasoning_text) + given + 500 * message.media
    )


@settings(max_examples=150, deadline=None)
@given(conversations, policies, idle, prices, st.booleans())
def test_a_plan_breaks_no_invariant_and_meets_the_limit_or_refuses(
    talk: Conversation, policies: list[Policy], idle: float, prices: Pricing | None, cold: bool
) -> None:
    counter = Counter()
    done = plan(talk, policies, EMPTY, counter, idle_seconds=idle, pricing=prices, cold=cold)
    long = sum(message.role == "tool" and message.tokens > 64 for message in talk.messages)
    assert counter.calls <= 24 * len(policies) * (long + 1)  # one for a record of older turns
    assert done == plan(talk, policies, EMPTY, count, idle_seconds=idle, pricing=prices, cold=cold)
    if isinstance(done, Refuse):
        assert done.limit_tokens == min(limits(policies)) < done.tokens
        return
    assert violations(talk, done.edits) == ()
    after = apply(talk, done.edits)
    assert after.total_tokens == done.sent_tokens <= min([done.sent_tokens, *limits(policies)])
    assert done.sent_tokens <= talk.total_tokens or any(isinstance(policy, Repair) for policy in policies)
    assert (after is talk) == (done.edits == ())
    assert (done.memory is EMPTY) == (done.edits == () and done.memory.enforced.ahead is None)
    assert len(done.reasons) == len(done.edits) and "" not in done.reasons


@settings(max_examples=100, deadline=None)
@given(conversations, policies, idle, prices, st.booleans())
def test_a_plan_for_what_is_sent_is_empty(
    talk: Conversation, policies: list[Policy], idle: float, prices: Pricing | None, cold: bool
) -> None:
    done = plan(talk, policies, EMPTY, count, idle_seconds=idle, pricing=prices, cold=cold)
    if isinstance(done, Plan):
        after = apply(talk, done.edits)
        again = plan(after, policies, done.memory, count, idle_seconds=idle, pricing=prices, cold=cold)
        assert isinstance(again, Plan)
        assert again.edits == ()


@settings(max_examples=100, deadline=None)
@given(conversations, policies, idle, st.booleans())
def test_a_plan_is_made_again_from_memory_alone(
    talk: Conversation, policies: list[Policy], idle: float, cold: bool
) -> None:
    done = plan(talk, policies, EMPTY, count, idle_seconds=idle, cold=cold)
    if isinstance(done, Plan):
        counter = Counter()
        memory = Memory.loads(done.memory.dumps())
        again = plan(talk, [], memory, counter, known_messages=len(talk.messages))
        assert isinstance(again, Plan)
        assert again.edits == done.edits
        assert again.memory is memory
        assert counter.calls == 0


@settings(max_examples=60, deadline=None)
@given(conversations, policies)
def test_shadow_is_the_same_plan_unsent(talk: Conversation, policies: list[Policy]) -> None:
    policies = [policy for policy in policies if getattr(policy, "by", "facts") == "facts"]  # a model is not asked
    shadowed: list[Policy] = [policy.model_copy(update={"mode": "shadow"}) for policy in policies]
    done, real = plan(talk, shadowed, EMPTY, count), plan(talk, policies, EMPTY, count)
    assert isinstance(done, Plan)
    assert done.edits == () and done.sent_tokens == talk.total_tokens
    if isinstance(real, Plan):
        assert (done.shadow, done.memory.shadow, done.shadow_refusal) == (real.edits, real.memory.enforced, None)
    else:
        assert done.shadow_refusal == real


@settings(max_examples=100, deadline=None)
@given(conversations, policies)
def test_sizes_never_hide_a_plan(talk: Conversation, policies: list[Policy]) -> None:
    sizes = [size(message) for message in talk.messages]
    if not may_act(policies, talk.overhead_tokens + sum(sizes), max(sizes, default=0), len(sizes)):
        done = plan(talk, policies, EMPTY, count)
        assert isinstance(done, Plan)
        assert done.edits == ()


@settings(max_examples=60, deadline=None)
@given(orderly(), st.integers(64, 400), st.integers(400, 6000))
def test_a_growing_conversation_breaks_the_prefix_only_by_steps(talk: Conversation, most: int, high: int) -> None:
    low = high // 3
    window = KeepRecentTurns(high_water_tokens=high, low_water_tokens=low)
    policies: list[Policy] = [TrimToolOutput(max_tokens=most), window]
    memory, sent, breaks = EMPTY, talk.messages[:0], 0
    stops = [at + 1 for at, message in enumerate(talk.messages) if message.role in ("user", "tool")]
    for known, stop in zip([0, *stops], stops, strict=False):
        part = Conversation(talk.messages[:stop], talk.overhead_tokens)
        done = plan(part, policies, memory, count, known_messages=known)
        assert isinstance(done, Plan)
        assert violations(part, done.edits) == ()
        view = apply(part, done.edits).messages
        stand = next((at for at, (was, is_) in enumerate(zip(sent, view, strict=False)) if was != is_), len(sent))
        assert done.cached_tokens == talk.overhead_tokens + sum(message.tokens for message in view[:stand])
        if view[: len(sent)] != sent:
            breaks += 1
            assert "mark" in done.reasons
            assert done.memory.enforced.cut != memory.enforced.cut
        else:
            # A window that moves over what was never sent breaks nothing.
            assert done.again_tokens == 0 and set(done.reasons) <= {"arrival", "again", "mark"}
        memory, sent = Memory.loads(done.memory.dumps()), view
    trimmed = sum(edit.removed_tokens for edit in _trims(talk, most))
    assert breaks <= (talk.total_tokens - trimmed) // (high - low)


def _trims(talk: Conversation, most: int) -> list[ReplaceText]:
    made = edits(TrimToolOutput(max_tokens=most).revise(Draft(Frame(talk)), count))
    return [edit for edit in made if isinstance(edit, ReplaceText)]


@settings(max_examples=60, deadline=None)
@given(chaotic, policies, st.integers(0, 30))
def test_even_a_chaotic_conversation_may_grow(talk: Conversation, policies: list[Policy], first: int) -> None:
    part = Conversation(talk.messages[:first])
    begun = plan(part, policies, EMPTY, count)
    if isinstance(begun, Plan):
        done = plan(talk, policies, begun.memory, count, known_messages=len(part.messages))
        assert isinstance(done, Refuse) or violations(talk, done.edits) == ()


@given(st.text(), st.integers(-3, 300))
def test_a_border_is_a_border(text: str, at: int) -> None:
    border = boundary(text, at)
    assert 0 <= border <= max(0, min(at, len(text)))
    assert boundary(text, border) == border


@settings(max_examples=60, deadline=None)
@given(chaotic)
def test_windows_begin_where_the_validator_agrees(talk: Conversation) -> None:
    draft = Draft(Frame(talk))
    for cut in borders(talk, draft.frame.pinned):
        assert violations(talk, edits(draft.with_cut(cut))) == ()
