"""Planning: nothing is counted that need not be, refusals are exact, shadow is counted apart, caps are the lowest."""

import json
import threading
from collections.abc import Mapping

import pytest

from budgets.usage import Usage
from gateway import digests
from gateway.call import Call
from gateway.context import Context, Known, Planned
from gateway.counting import MESSAGE_OVERHEAD_TOKENS, Counter
from gateway.dialects.base import Dialect
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.errors import ContextTooLong
from gateway.forecast import Forecast
from gateway.metrics import Metrics
from gateway.service import Service
from gateway.tier_policies import capped
from policies.cap_context import CapContext, EngineWindow
from policies.draft import Draft
from policies.edit import DropMessages, ReplaceText
from policies.keeping import NOTHING, Keeping
from policies.memory import EMPTY
from policies.policy import Policy
from policies.trim_search import Count
from policies.trim_tool_output import TrimToolOutput
from tests.unit.gateway.samples import call as chat
from tests.unit.gateway.samples import caller, model

Change = tuple[str, object]
TRIM = {"kind": "trim_tool_output", "max_tokens": 200}
CAP = {"kind": "cap_context", "limit_tokens": 1000}


class Words:
    """One token a word; notes how many texts were counted."""

    def __init__(self) -> None:
        self.texts = 0

    def __call__(self, text: str) -> int:
        self.texts += 1
        return len(text.split())


def service(count: Words, *policies: Mapping[str, object], limit: int | None = None) -> Service:
    unlimited: Change = ("tiers/standard/context", {})
    changes: list[Change] = [unlimited, ("tiers/standard/policies", list(policies))]
    sized: list[Change] = [("models/demo/context_limit_tokens", limit)] if limit else []
    return Service(caller(*changes), model(*sized), (), Counter(count))


def conversation(*texts: str) -> Call:
    return chat(json.dumps({"model": "demo", "messages": [{"role": "user", "content": t} for t in texts]}).encode())


def with_result(words: int) -> Call:
    made = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "a", "content": "\n".join(f"line number {n}" for n in range(words // 3))},
    ]
    return chat(json.dumps({"model": "demo", "messages": messages}).encode())


async def planned(call: Call, at: Service, metrics: Metrics | None = None, ratio: float = 1.0) -> Planned:
    known = Known(digests.of_messages(call.messages))
    return await Context(metrics or Metrics(), lambda _: ratio).plan(call, at, known)


async def test_far_from_every_threshold_nothing_is_counted() -> None:
    count = Words()
    plan = await planned(conversation("Hello there"), service(count, TRIM, CAP))
    assert (count.texts, plan.counted, plan.edits) == (0, False, ())


async def test_what_has_no_threshold_is_done_without_counting_too() -> None:
    """Turn after turn, with rules in force that the session remembers."""
    count = Words()
    at = service(count, {"kind": "strip"}, {"kind": "repair"}, TRIM, CAP)
    messages = [{"role": "system", "content": "Current time: 10:00:01\nBe brief."}, {"role": "user", "content": "Hi"}]
    call = chat(json.dumps({"model": "demo", "messages": messages}).encode())
    first = await planned(call, at)
    known = Known(digests.of_messages(call.messages), len(call.messages), first.memory)
    again = await Context(Metrics(), lambda _: 1.0).plan(call, at, known)
    assert [edit.policy for edit in first.edits] == ["strip"]
    assert (again.edits, again.memory, count.texts, again.counted) == (first.edits, first.memory, 0, False)
    assert first.sent_tokens < first.original_tokens


async def test_since_when_messages_are_there_is_noted_without_counting() -> None:
    count = Words()
    at = service(count, {"kind": "drop_stale_turns", "older_than_seconds": 3600})
    plan = await planned(conversation("Hello", "there"), at)
    assert [each.messages for each in plan.memory.seen] == [2]
    assert (count.texts, plan.counted, plan.edits) == (0, False, ())


async def test_without_policies_and_limits_nothing_is_ever_counted() -> None:
    count = Words()
    plan = await planned(conversation("word " * 50_000), service(count))
    assert (count.texts, plan.counted) == (0, False)


async def test_near_a_threshold_all_is_counted() -> None:
    count = Words()
    plan = await planned(conversation("word " * 500), service(count, CAP))
    tokens = 501 + MESSAGE_OVERHEAD_TOKENS
    assert (plan.counted, plan.original_tokens, plan.sent_tokens) == (True, tokens, tokens)
    assert plan.message_tokens == (tokens,)


async def test_a_refusal_says_the_limit_and_the_size() -> None:
    metrics = Metrics()
    with pytest.raises(ContextTooLong) as refused:
        await planned(conversation("secret " * 1200), service(Words(), CAP), metrics)
    assert refused.value.extra == {"limit": 1000, "requested": 1201 + MESSAGE_OVERHEAD_TOKENS}
    assert refused.value.param == "messages"
    assert "secret" not in refused.value.message
    assert metrics.refusals.values == {("acme", "cap_context", "enforce"): 1}


async def test_the_models_own_limit_holds_without_a_policy() -> None:
    with pytest.raises(ContextTooLong):
        await planned(conversation("word " * 1200), service(Words(), limit=1000))


async def test_the_learned_ratio_counts_in_the_models_tokens() -> None:
    with pytest.raises(ContextTooLong):
        await planned(conversation("word " * 700), service(Words(), CAP), ratio=1.5)


async def test_an_edit_is_planned_and_counted() -> None:
    metrics = Metrics()
    plan = await planned(with_result(900), service(Words(), TRIM), metrics)
    (edit,) = plan.edits
    assert isinstance(edit, ReplaceText)
    assert plan.sent_tokens == plan.original_tokens - edit.removed_tokens
    assert metrics.edits.values == {("trim_tool_output", "enforce"): 1}
    assert metrics.removed.values == {("trim_tool_output", "arrival", "enforce"): edit.removed_tokens}
    assert metrics.violations.values == {}


async def test_what_a_repair_adds_is_counted_as_no_removal() -> None:
    metrics = Metrics()
    made = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked, called = {"role": "user", "content": "Look."}, {"role": "assistant", "content": None, "tool_calls": [made]}
    call = chat(json.dumps({"model": "demo", "messages": [asked, called, asked]}).encode())
    plan = await planned(call, service(Words(), {"kind": "repair"}), metrics)
    assert [edit.removed_tokens < 0 for edit in plan.edits] == [True]
    assert metrics.removed.values == {("repair", "rule", "enforce"): 0}


class Careless(TrimToolOutput):
    """Drops half a group: what no policy of ours does."""

    def revise(self, draft: Draft, count: Count, keeping: Keeping = NOTHING) -> Draft:
        return draft.with_cut(2)


class CarelessService(Service):
    """Has that policy."""

    @property
    def policies(self) -> tuple[Policy, ...]:
        return (Careless(),)


async def test_an_edit_that_breaks_a_rule_is_counted() -> None:
    metrics, terms = Metrics(), caller(("tiers/standard/context", {}), ("tiers/standard/policies", [TRIM]))
    messages = [json.loads(message) for message in with_result(900).messages]
    messages += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}]
    call = chat(json.dumps({"model": "demo", "messages": messages}).encode())
    await planned(call, CarelessService(terms, model(), (), Counter(Words())), metrics)
    assert sum(metrics.violations.values.values()) > 0


async def test_a_policy_in_shadow_is_counted_and_changes_nothing() -> None:
    metrics = Metrics()
    plan = await planned(with_result(900), service(Words(), TRIM | {"mode": "shadow"}), metrics)
    assert (plan.edits, plan.sent_tokens) == ((), plan.original_tokens)
    assert metrics.edits.values == {("trim_tool_output", "shadow"): 1}


async def test_a_cap_in_shadow_is_counted_and_refuses_nothing() -> None:
    metrics = Metrics()
    plan = await planned(conversation("word " * 1200), service(Words(), CAP | {"mode": "shadow"}), metrics)
    assert plan.edits == ()
    assert metrics.refusals.values == {("acme", "cap_context", "shadow"): 1}


async def test_a_tier_in_shadow_counts_all_and_applies_nothing() -> None:
    metrics = Metrics()
    tier: list[Change] = [("tiers/standard/mode", "shadow"), ("tiers/standard/policies", [TRIM])]
    context = {"limit_tokens": 1000}
    at = Service(caller(*tier, ("tiers/standard/context", context)), model(), (), Counter(Words()))
    plan = await planned(with_result(900), at, metrics)
    assert (plan.edits, plan.sent_tokens) == ((), plan.original_tokens)
    assert metrics.edits.values == {("trim_tool_output", "shadow"): 1}
    plan = await planned(conversation("word " * 1200), at, metrics)
    assert plan.sent_tokens > 1000
    assert metrics.refusals.values == {("acme", "cap_context", "shadow"): 1}
    assert at.bounds.prompt_tokens is None


async def test_a_tenant_may_be_enforced_in_a_tier_in_shadow() -> None:
    tier: list[Change] = [("tiers/standard/mode", "shadow"), ("tiers/standard/policies", [TRIM])]
    tier.append(("tiers/standard/context", {}))
    at = Service(caller(*tier, ("tenants/acme/mode", "enforce")), model(), (), Counter(Words()))
    assert len((await planned(with_result(900), at)).edits) == 1


async def test_a_reply_is_clamped_to_what_the_prompt_leaves() -> None:
    free: Change = ("tiers/standard/max_tokens", {})
    cap: Change = ("tiers/standard/policies", [CAP | {"reply": "clamp"}])
    at = Service(caller(free, cap, ("tiers/standard/context", {})), model(), (), Counter(Words()))
    plan = await planned(conversation("word " * 300), at)
    assert plan.reply_tokens == 1000 - plan.sent_tokens
    count = Words()
    bounded: Change = ("tiers/standard/max_tokens", {"default": 100})
    at = Service(caller(bounded, cap, ("tiers/standard/context", {})), model(), (), Counter(count))
    plan = await planned(conversation("word " * 100), at)
    assert (plan.reply_tokens, count.texts) == (None, 0)


@pytest.mark.parametrize(("words", "elsewhere"), [(900, False), (30_000, True)])
async def test_where_much_is_new_it_is_counted_and_planned_in_a_thread(words: int, *, elsewhere: bool) -> None:
    threads: set[int] = set()

    class Where(Words):
        def __call__(self, text: str) -> int:
            threads.add(threading.get_ident())
            return super().__call__(text)

    plan = await planned(with_result(words), service(Where(), TRIM))
    assert len(plan.edits) == 1
    assert (threading.get_ident() not in threads) is elsewhere


async def test_edits_in_force_are_made_again_far_from_every_threshold() -> None:
    at = service(Words(), TRIM)
    first = await planned(with_result(900), at)
    call = with_result(900)
    known = Known(digests.of_messages(call.messages), len(call.messages), first.memory)
    again = await Context(Metrics(), lambda _: 1.0).plan(call, at, known)
    assert again.edits == first.edits


async def test_a_window_drops_turns() -> None:
    window = {"kind": "keep_recent_turns", "high_water_tokens": 900, "low_water_tokens": 300}
    messages = []
    for number in range(6):
        messages += [
            {"role": "user", "content": "word " * 180},
            {"role": "assistant", "content": f"Answer {number}."},
        ]
    call = chat(json.dumps({"model": "demo", "messages": [*messages, {"role": "user", "content": "More."}]}).encode())
    plan = await planned(call, service(Words(), window))
    assert any(isinstance(edit, DropMessages) for edit in plan.edits)
    assert plan.sent_tokens < 900


@pytest.mark.parametrize("dialect", [OpenAIEmbeddings(), OpenAICompletions()])
async def test_of_several_prompts_the_longest_is_limited(dialect: Dialect) -> None:
    def batch(*words: int) -> Call:
        texts = ["word " * count for count in words]
        return dialect.parse(json.dumps({"model": "demo", "input": texts, "prompt": texts}).encode())

    plan = await planned(batch(*[600] * 20), service(Words(), CAP))
    assert (plan.edits, plan.counted) == ((), False)
    with pytest.raises(ContextTooLong):
        await planned(batch(10, 1_100, 10), service(Words(), CAP))


def cap(limit: int, mode: str = "enforce") -> CapContext:
    return CapContext.model_validate({"limit_tokens": limit, "mode": mode})


@pytest.mark.parametrize(
    ("policies", "limit", "added"),
    [
        ([], None, False),
        ([], 1000, True),
        ([cap(900)], 1000, False),
        ([cap(1000)], 1000, False),
        ([cap(1100)], 1000, True),
        ([cap(1100), cap(900)], 1000, False),
        ([cap(900, "shadow")], 1000, True),
    ],
)
def test_the_models_limit_stands_behind_caps_that_are_higher(
    policies: list[Policy], limit: int | None, added: bool
) -> None:
    assert list(capped(policies, limit)) == [*policies, *([cap(1000)] if added else [])]
    reported = list(capped(policies, limit, reported=True))
    assert reported == [*policies, *([EngineWindow(limit_tokens=1000)] if added else [])]


@pytest.mark.parametrize("true_ratio", [0.7, 1.0, 1.6])
async def test_counts_converge_to_the_models_own_tokenizer(true_ratio: float) -> None:
    forecast, at = Forecast(), service(Words(), CAP | {"limit_tokens": 5000})
    context = Context(Metrics(), forecast.ratio)
    call = conversation("word " * 2000)
    own_tokens = 2001 + MESSAGE_OVERHEAD_TOKENS
    for _ in range(60):
        plan = await context.plan(call, at, Known(digests.of_messages(call.messages)))
        forecast.learn(call, at, Usage.reported(round(own_tokens * true_ratio), None, 5), plan.own_tokens)
    assert forecast.ratio("demo") == pytest.approx(true_ratio, rel=0.01)


@pytest.mark.parametrize(("a_picture", "learned"), [(260, 1.0), (4000, 1.3)])
async def test_pictures_cheaper_than_we_take_them_for_do_not_make_texts_cheaper(a_picture: int, learned: float) -> None:
    """Dearer ones do make them dearer: a limit holds rather too soon than too late."""
    forecast, at = Forecast(), service(Words(), CAP | {"limit_tokens": 15_000})
    context = Context(Metrics(), forecast.ratio)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 60_000}}
    parts = [{"type": "text", "text": "word " * 2000}, picture, picture]
    messages = [{"role": "user", "content": parts}]
    call = chat(json.dumps({"model": "demo", "messages": messages}).encode())
    told = Usage.reported(2001 + MESSAGE_OVERHEAD_TOKENS + 2 * a_picture, None, 5)
    for _ in range(60):
        plan = await context.plan(call, at, Known(digests.of_messages(call.messages)))
        assert plan.unsure
        forecast.learn(call, at, told, plan.own_tokens, teaches=plan.teaches(told.prompt_tokens))
    assert forecast.ratio("demo") == pytest.approx(1.0) if learned == 1.0 else forecast.ratio("demo") > learned


UNSURE: dict[str, dict[str, object]] = {
    "old reasoning": {"messages": [{"role": "assistant", "content": "Yes.", "reasoning_content": "hm " * 1_500}]},
    "documents": {"documents": [{"title": "t", "text": "page " * 1_500}]},
}


@pytest.mark.parametrize("unsure", UNSURE)
async def test_what_a_template_leaves_out_does_not_make_texts_cheaper(unsure: str) -> None:
    """Most templates drop the reasoning of turns that are over and know no documents; the limit is for all alike."""
    forecast, at = Forecast(), service(Words(), CAP | {"limit_tokens": 5_000})
    context = Context(Metrics(), forecast.ratio)
    said: list[dict[str, object]] = [{"role": "user", "content": "word " * 1_000}]
    body: dict[str, object] = {"model": "demo"} | UNSURE[unsure]
    earlier = body.pop("messages", [])
    assert isinstance(earlier, list)
    call = chat(json.dumps(body | {"messages": [*said, *earlier, *said]}).encode())
    for _ in range(60):
        plan = await context.plan(call, at, Known(digests.of_messages(call.messages)))
        told = Usage.reported(2_010, None, 5)
        assert plan.own_tokens is not None and plan.own_tokens > 3_000
        forecast.learn(call, at, told, plan.own_tokens, teaches=plan.teaches(told.prompt_tokens))
    assert forecast.ratio("demo") == 1.0


async def test_a_switch_of_a_template_does_not_keep_a_prompt_from_teaching() -> None:
    at = service(Words(), CAP | {"limit_tokens": 5_000})
    switched = {"model": "demo", "chat_template_kwargs": {"enable_thinking": False}}
    call = chat(json.dumps(switched | {"messages": [{"role": "user", "content": "word " * 2_000}]}).encode())
    assert (await planned(call, at)).teaches(1)


async def test_a_window_that_is_full_again_within_three_turns_is_counted() -> None:
    metrics, texts = Metrics(), ["word " * 99]
    at = service(Words(), {"kind": "keep_recent_turns", "high_water_tokens": 700, "low_water_tokens": 450})
    context, known = Context(metrics, lambda _: 1.0), (0, EMPTY)
    for _ in range(8):
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        call = chat(json.dumps({"model": "demo", "messages": messages}).encode())
        plan = await context.plan(call, at, Known(digests.of_messages(call.messages), *known))
        known = len(texts), plan.memory
        texts += ["word " * 99] * 2
    assert metrics.thrash.values[("keep_recent_turns",)] > 0
