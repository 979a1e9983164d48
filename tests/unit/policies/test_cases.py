"""Public reports about context handling, one instance of each kind. The report is named where it is tested."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from gateway import digests
from gateway.dialects.openai_chat import MEDIA_BYTES, OpenAIChat
from gateway.dialects.openai_edits import rendered as edited
from gateway.dialects.openai_messages import neutral
from policies.arguments import KEY
from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation, Message
from policies.dedupe_tool_output import DedupeToolOutput
from policies.edit import DropMessages, ReplaceText, apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.plan import Plan, Refuse, plan
from policies.policy import Policy
from policies.repair import Repair
from policies.sizes import may_act
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, count, message, result, says, system, user

LOG = "".join(f"{number} all is well\n" for number in range(2000))
EVERY: tuple[Policy, ...] = (
    Strip(),
    Repair(),
    DedupeToolOutput(),
    TrimToolOutput(max_tokens=200),
    ClearOldReasoning(min_removed_tokens=1),
    KeepRecentTurns(turns=1, high_water_turns=1),
)


def sent(talk: Conversation, policies: Sequence[Policy], *, cold: bool = False) -> Conversation:
    done = plan(talk, policies, EMPTY, count, cold=cold)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    return apply(talk, done.edits)


def is_paired(talk: Conversation) -> bool:
    """Whether every tool message answers a call that stands before it, and every call is answered."""
    grouped = {at for group in talk.groups() for at in group}
    answered = all(
        {call.id.strip() for call in talk.messages[group[0]].calls}
        == {(talk.messages[at].answers or "").strip() for at in group[1:]}
        for group in talk.groups()
    )
    return answered and all(at in grouped for at, kept in enumerate(talk.messages) if kept.role == "tool")


def parallel(number: int, size: int = 300) -> list[Message]:
    """A turn of two calls side by side."""
    one, two = f"a{number}", f"b{number}"
    return [user(f"{number}?"), calling(one, two), result(one, "x" * 4 * size), result(two, "y" * 4 * size), says()]


# Pairing and order


@pytest.mark.parametrize("budget", [60, 100, 200, 400, 800, 1600])
def test_c1_c2_c7_a_call_and_its_answers_go_or_stay_together_at_every_budget(budget: int) -> None:
    """litellm 4931 and 10696, semantic-kernel 12708: trimming to a budget left `tool` messages without their call."""
    talk = conversation(system(), *(part for number in range(5) for part in parallel(number)), user())
    window = KeepRecentTurns(high_water_tokens=budget, low_water_tokens=budget // 2)
    assert is_paired(sent(talk, [window]))


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_c4_interleaved_calls_are_not_cut_apart(turns: int) -> None:
    """langchain 38352: two calling messages, then their answers; the cut fell between."""
    between = [user(), calling("old"), calling("new"), result("old"), result("new")]
    talk = conversation(user(), says(), *between, user(), says(), user(), says(), user())
    assert is_paired(sent(talk, [KeepRecentTurns(turns=turns, high_water_turns=turns)]))


@pytest.mark.parametrize("high", [1000, 1500, 2000, 3000, 5000])
def test_c5_a_call_is_summarised_with_its_answers(high: int) -> None:
    """deepagents 270: the calling message went into the summary, its tool message stayed."""
    talk = conversation(system(), *(part for number in range(9) for part in parallel(number)), user())
    policy = SummarizeOlderTurns(by="facts", max_tokens=200, high_water_tokens=high, low_water_tokens=high // 2)
    after = sent(talk, [policy])
    assert is_paired(after)
    assert after.total_tokens < talk.total_tokens


def test_c8_a_cut_falls_between_turns() -> None:
    """OpenHands 7512: the first half of the messages was dropped wherever that fell."""
    talk = conversation(system(), *(part for number in range(9) for part in parallel(number)), user())
    done = plan(talk, [KeepRecentTurns(high_water_tokens=3000, low_water_tokens=1500)], EMPTY, count)
    assert isinstance(done, Plan)
    *_, last = (edit for edit in done.edits if isinstance(edit, DropMessages))
    assert talk.messages[last.stop].role == "user"


def test_c10_half_answered_calls_are_answered_with_an_error() -> None:
    """Cogtrix 2238, opencode 44852: the engine refused the conversation for ever."""
    talk = conversation(user(), calling("c1", "c2"), result("c1"), user())
    assert not is_paired(talk)
    assert is_paired(sent(talk, [Repair()]))
    assert sent(talk, [TrimToolOutput()]) is talk


def test_c11_ids_match_with_white_space_around_them() -> None:
    """hermes-agent PR 10500: `tool_call_id` " c1 " was taken for an orphan."""
    talk = conversation(user(), calling("c1"), result(" c1 "), says(), user())
    assert sent(talk, [Repair()]) is talk


def test_c11_a_call_known_by_call_id_keeps_its_result() -> None:
    """hermes-agent PR 56148: the call had `call_id` where others have `id`."""
    asked = {"role": "assistant", "tool_calls": [{"call_id": "call_1", "function": {"name": "f", "arguments": "{}"}}]}
    talk = read(asked, {"role": "tool", "tool_call_id": "call_1", "content": "ok"})
    assert talk.groups() == ((0, 1),)


# Endings, roles, prompts


@pytest.mark.parametrize("ending", [[user()], [user(), calling("z"), result("z")]])
def test_c13_c14_c16_what_is_sent_ends_as_it_came(ending: list[Message]) -> None:
    """ursa 296, pulse-agent PR 354, CLIProxyAPI 5358: compaction left an assistant message last."""
    talk = conversation(system(), *(part for number in range(9) for part in parallel(number)), *ending)
    assert sent(talk, EVERY).messages[-1].role == talk.messages[-1].role


def test_c19_the_task_survives_a_giant_result() -> None:
    """strands PR 2196: one user message and a result longer than the window; the task was dropped."""
    talk = conversation(user("The task."), calling("c"), result("c", LOG))
    after = sent(talk, [TrimToolOutput(max_tokens=200), CapContext(limit_tokens=1000)])
    assert after.messages[0] is talk.messages[0]
    assert after.total_tokens <= 1000


def test_c20_instructions_never_fall_out_of_the_window() -> None:
    """summarization-pydantic-ai 17, ollama 8531."""
    first, late = [system(), message("developer", "Mind."), *parallel(0)], [system("Late."), *parallel(1), *parallel(2)]
    roles = [kept.role for kept in sent(conversation(*first, *late, user()), EVERY).messages]
    assert [role for role in roles if role in ("system", "developer")] == ["system", "developer", "system"]


# JSON, Unicode, media


def test_c22_arguments_are_never_cut() -> None:
    """hermes-agent 13574: arguments with a 5 kB string were cut to 200 characters, and were JSON no more."""
    asked = calling("c", arguments=json.dumps({"text": "x" * 5000}))
    talk = conversation(user(), asked, result("c", LOG), says(), user())
    assert sent(talk, EVERY[:5]).messages[1].calls == talk.messages[1].calls


def test_c22_json_results_stay_json() -> None:
    talk = conversation(user(), calling("c"), result("c", json.dumps({"text": "x" * 5000, "ok": True})), says())
    assert json.loads(sent(talk, [TrimToolOutput(max_tokens=100)]).messages[2].text)["ok"] is True


def test_c23_broken_arguments_are_wrapped() -> None:
    """vllm PR 48922, local-inference-lab/vllm 684: `{"value": ` in the history was a 400 for ever."""
    talk = conversation(user(), calling("c", arguments='{"value": '), result("c"), user())
    assert json.loads(sent(talk, [Repair()]).messages[1].calls[0].arguments) == {KEY: '{"value": '}


def test_c25_lone_surrogates_do_not_leave() -> None:
    """claude-code 56064: an error text had been cut inside an emoji."""
    raws = (b'{"role": "user", "content": "cut \\ud83d"}', b'{"role": "assistant", "content": "Done."}')
    talk = Conversation(tuple(replace(one, tokens=20) for one in neutral(raws, digests.of_messages(raws))))
    done = plan(talk, [Repair()], EMPTY, count)
    assert isinstance(done, Plan)
    first, second = edited(raws, done.edits)
    assert json.loads(first.decode())["content"] == "cut \ufffd"
    assert second is raws[1]


def test_c26_no_cut_inside_a_character() -> None:
    """kilocode PR 10471: a cut at 2,000 characters fell on U+1F4C1."""
    for shift in range(4):
        talk = conversation(user(), calling("c"), result("c", "x" * shift + "\U0001f4c1" * 4000), says())
        kept = sent(talk, [TrimToolOutput(max_tokens=200)]).messages[2].text
        assert "\ufffd" not in kept
        kept.encode()


def test_c28_a_system_prompt_in_parts_is_read() -> None:
    """litellm PR 34482: a content list made the whole call fall back to the original."""
    parts = {
        "role": "system",
        "content": [{"type": "text", "text": "now: 10:00"}, {"type": "text", "text": "Be brief."}],
    }
    body = rendered([Strip()], parts, {"role": "user", "content": "Hi"})
    assert json.loads(body)["messages"][0]["content"] == [{"type": "text", "text": "Be brief."}]


def test_c29_an_image_costs_what_images_cost_and_stays() -> None:
    """open-webui 29761, codegraff 260: 3 MB of base64 looked like a million tokens, and the image was dropped."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    call = OpenAIChat().parse(body_of({"role": "user", "content": [image]}))
    assert call.content_bytes < 2 * MEDIA_BYTES
    assert not may_act([CapContext(limit_tokens=16_000)], call.content_bytes, call.largest_output_bytes, 1)
    talk = conversation(*parallel(0), user("And this?", media=1))
    assert sent(talk, EVERY).messages[-1].media == 1


@pytest.mark.parametrize("text", [one * 100_000 for one in ("a", "^", "\n", "\u0301", "[", '"', "a\n", "\ud83d")])
def test_c31_work_is_bounded_on_every_text(text: str) -> None:
    """litellm 3329: the loop that shortened never ended on some texts."""
    counter = Counter()
    done = plan(conversation(user(), calling("c"), result("c", text)), EVERY, EMPTY, counter)
    assert isinstance(done, Plan)
    assert counter.calls <= 12


def test_c32_null_content_is_legal() -> None:
    """litellm.compress failed on `content: null` beside calls."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    talk = read({"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "tool_call_id": "c"})
    assert [kept.text for kept in talk.messages] == ["", ""]
    assert sent(talk, EVERY) is talk


# Summaries

FACTS = SummarizeOlderTurns(by="facts", max_tokens=300, high_water_tokens=2500, low_water_tokens=1200)


def grown(steps: int) -> tuple[list[Conversation], list[Conversation]]:
    """A session turn by turn, as it came and as it was sent; its first answer holds a number that nothing else does."""
    parts = [system(), user("Open a port on host db-7."), says("The port is 48731 now, on db-7.")]
    memory, known = EMPTY, 0
    came, went = [], []
    for number in range(steps):
        parts += [*parallel(number, 200), user(f"Step {number}: use /srv/data/{number}.csv next.")]
        talk = conversation(*parts)
        done = plan(talk, [FACTS], memory, count, known_messages=known)
        assert isinstance(done, Plan)
        came.append(talk)
        went.append(apply(talk, done.edits))
        memory, known = done.memory, len(parts)
    return came, went


RECORD, END = "[kvgate: record of ", "[kvgate: end of the record]"


def records(talk: Conversation) -> list[str]:
    texts = (part.text for part in talk.messages if RECORD in part.text)
    return [text[text.index(RECORD) : text.index(END)] for text in texts]


def test_c35_many_compactions_stay_flat_and_bounded() -> None:
    """claw-code 3050, opencrabs 1649: every summary held the one before, eight times the size after five."""
    _, went = grown(24)
    sizes = [len(talk.messages) for talk in went]
    assert sum(later < earlier for earlier, later in pairwise(sizes)) >= 3
    assert max(talk.total_tokens for talk in went) <= 2500
    for talk in went:
        assert "".join(part.text for part in talk.messages).count(RECORD) == len(records(talk)) <= 1
        assert all(count(record) <= 400 for record in records(talk))


def test_c37_a_later_summary_holds_what_the_first_one_held() -> None:
    """dyad PR 2515: the second compaction left the first summary out, and all it held was lost."""
    _, went = grown(24)
    assert records(went[-1]) and not records(went[0])
    assert all("48731" in "".join(part.text for part in talk.messages) for talk in went)


# Loops and limits


def test_c41_a_fixed_overhead_above_the_limit_is_said_and_nothing_is_cut() -> None:
    """kimi-code PR 2498: 29k of system and tools, a limit of 27.9k: compacted again and again."""
    talk = conversation(system(), user(), overhead_tokens=29_000)
    refusal = plan(talk, [*EVERY, CapContext(limit_tokens=27_900)], EMPTY, count)
    assert isinstance(refusal, Refuse)
    assert refusal.tokens - refusal.limit_tokens > 1_000
    assert sent(talk, [KeepRecentTurns(high_water_tokens=27_900)]) is talk


def test_c49_c50_a_late_summary_replaces_only_what_it_covers() -> None:
    """codex 13946, claude-code-proxy PR 94: the session had gone on when the summary came, and lost what was new."""
    policy = SummarizeOlderTurns(high_water_tokens=3000, low_water_tokens=1200, max_tokens=300)
    parts = [system(), user("The task."), says(), *(part for n in range(5) for part in parallel(n, 220)), user("5?")]
    early = conversation(*parts)
    done = plan(early, [policy], EMPTY, count)
    assert isinstance(done, Plan) and done.wanted is not None
    more = [says(), *(part for n in range(5, 8) for part in parallel(n, 220)), user("And now?")]
    late = conversation(*parts, *more)
    used = plan(late, [policy], done.memory, count, records={done.wanted.key: "FACTS\nport 8443"})
    assert isinstance(used, Plan) and used.summary is not None
    assert used.summary.cover.stop == done.wanted.cover.stop
    assert apply(late, used.edits).messages[-len(more) :] == late.messages[-len(more) :]


def test_c43_c44_one_giant_result_is_cut_and_nothing_else() -> None:
    """claude-code 24179 and 82131, deepagentsjs PR 228: history was compacted for one result that never fitted."""
    talk = conversation(system(), *parallel(0, 10), user(), calling("c"), result("c", LOG))
    policies: list[Policy] = [TrimToolOutput(max_tokens=500), KeepRecentTurns(), CapContext(limit_tokens=2000)]
    done = plan(talk, policies, EMPTY, count)
    assert isinstance(done, Plan)
    assert [type(edit) for edit in done.edits] == [ReplaceText]
    assert done.sent_tokens <= 2000


def test_c43_a_giant_user_message_is_refused_once_and_history_is_not_dropped_for_nothing() -> None:
    talk = conversation(system(), *parallel(0, 10), user("x" * 40_000))
    assert isinstance(plan(talk, [*EVERY, CapContext(limit_tokens=2000)], EMPTY, count), Refuse)
    assert sent(talk, [KeepRecentTurns(high_water_tokens=2000, low_water_tokens=500)]) is talk


# Cache


def test_c56_without_edits_the_very_bytes_leave() -> None:
    """headroom 1042: a request that nothing was done to was encoded anew, and the cache missed."""
    body = b'{ "messages":[ {"content" :"Hi\\u0020","role":"user"} ], "model":"m" }'
    chat = OpenAIChat()
    call = chat.parse(body)
    talk = Conversation(chat.messages(call, digests.of_messages(call.messages)))
    done = plan(talk, EVERY, EMPTY, count)
    assert isinstance(done, Plan)
    assert chat.render(call, done.edits) is body


def test_c58_markers_never_become_more() -> None:
    """9router 3795: four cache_control in, five out."""
    marked = message("system", "now: 10:00\nBe brief.", cache_control=1)
    talk = conversation(marked, *parallel(0), *parallel(1), *parallel(2), user())
    assert sum(kept.cache_control for kept in sent(talk, EVERY, cold=True).messages) <= 1


def test_c61_nothing_is_added_to_the_last_user_message() -> None:
    """opencode-dynamic-context-pruning 410: a note put into it moved on every turn."""
    talk = conversation(system(), *parallel(0), *parallel(1), *parallel(2), user("And now?"))
    assert sent(talk, EVERY, cold=True).messages[-1] is talk.messages[-1]


# What is lost is said


@pytest.mark.parametrize("text", [LOG, json.dumps(list(range(5000))), "word " * 5000])
def test_c40_c62_what_is_left_out_is_said_to_be_lost_and_no_handle_is_shown(text: str) -> None:
    """xagent PR 1238, headroom 1006: models invented what was missing, or asked for what nobody could give."""
    talk = conversation(user(), calling("c"), result("c", text), says())
    kept = sent(talk, [TrimToolOutput(max_tokens=200)]).messages[2].text
    assert "not recoverable" in kept
    assert "hash=" not in kept


def test_c64_a_window_only_slides() -> None:
    """strands PR 1837: results inside the window were cut though the window had room."""
    talk = conversation(system(), *(part for number in range(4) for part in parallel(number)), user())
    done = plan(talk, [KeepRecentTurns(turns=2, high_water_turns=2)], EMPTY, count)
    assert isinstance(done, Plan)
    assert {type(edit) for edit in done.edits} == {DropMessages}


def test_a_session_forty_turns_long_is_the_same_on_every_gateway() -> None:
    """Whatever a gateway remembers is in the memory, so another one goes on to the same bytes."""
    parts = [part for number in range(12) for part in parallel(number)]
    memory, known = EMPTY, 0
    for stop in [at + 1 for at, part in enumerate(parts) if part.role in ("user", "tool")]:
        talk = conversation(system("now: 10:00\nBe brief."), *parts[:stop])
        one = plan(talk, EVERY, memory, count, known_messages=known)
        two = plan(talk, EVERY, Memory.loads(memory.dumps()), count, known_messages=known)
        assert isinstance(one, Plan) and isinstance(two, Plan)
        assert one.edits == two.edits and one.memory == two.memory
        memory, known = one.memory, len(talk.messages)


# The wire


def body_of(*messages: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages}).encode()


def read(*messages: object) -> Conversation:
    """A conversation as the gateway reads it, a token for each character."""
    chat = OpenAIChat()
    call = chat.parse(body_of(*messages))
    messages = chat.messages(call, digests.of_messages(call.messages))
    return Conversation(tuple(replace(one, tokens=len(one.text) + 10) for one in messages))


def rendered(policies: Sequence[Policy], *messages: object) -> bytes:
    """What the gateway would send."""
    chat, talk = OpenAIChat(), read(*messages)
    done = plan(talk, policies, EMPTY, count)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    return chat.render(chat.parse(body_of(*messages)), done.edits)
