"""Public reports about summaries, one instance of each kind. The report is named where it is tested."""

from policies import record
from policies.conversation import Conversation
from policies.edit import AddSummary, apply
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import calling, conversation, count, result, says, system, turn, user

FACTS = SummarizeOlderTurns(by="facts", high_water_tokens=900, low_water_tokens=450, max_tokens=200)
MODEL = FACTS.model_copy(update={"by": "model"})


def sent(talk: Conversation, *more: TrimToolOutput) -> Conversation:
    done = plan(talk, [*more, FACTS], EMPTY, count)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    return apply(talk, done.edits)


def test_what_is_sent_never_ends_on_the_summary() -> None:
    """https://github.com/lanl/ursa/issues/296, https://github.com/hua-bang/pulse-agent/pull/354"""
    talk = conversation(user("Port 9000, please."), says("x" * 4000), user("And now?"))
    after = sent(talk)
    assert [message.role for message in after.messages] == ["user", "assistant", "user"]
    assert after.messages[-1] == talk.messages[-1]


def test_there_is_a_user_message_and_the_summary_is_in_it() -> None:
    """https://github.com/coder/coder/pull/22819: a summary stored as the system's left no message."""
    talk = conversation(system(), *(part for number in range(12) for part in turn(number, 90)))
    after = sent(talk)
    assert after.messages[0] == talk.messages[0]
    assert after.messages[1].role == "user" and record.BEGIN in after.messages[1].text


def test_thirty_one_compactions_stay_flat() -> None:
    """https://github.com/ultraworkers/claw-code/issues/3050, https://github.com/adolfousier/opencrabs/issues/1649"""
    parts, memory, sizes = [system(), user("The task is port 8443.")], EMPTY, []
    known = 0
    for number in range(150):
        parts += [
            calling(f"c{number}"),
            result(f"c{number}", f"size = {number} MB " + "x" * 200),
            says(f"Done {number}."),
            user("Go on."),
        ]
        talk = conversation(*parts)
        done = plan(talk, [FACTS], memory, count, known_messages=known)
        assert isinstance(done, Plan)
        added = [edit for edit in done.edits if isinstance(edit, AddSummary)]
        assert len(added) <= 1 and all(edit.text.count(record.BEGIN) == 1 for edit in added)
        sizes += [len(edit.text) for edit in added]
        memory, known = Memory.loads(done.memory.dumps()), len(parts)
    assert max(sizes) <= 4 * 200 + 8


def test_the_second_summary_holds_what_the_first_held() -> None:
    """https://github.com/dyad-sh/dyad/pull/2515: the second compaction left the first summary out."""
    first = "INTENT\nMove it.\nFACTS\nthe port is 8443\nthe host is db-7.example.com"
    second = record.carried("INTENT\nMove it.\nFACTS\nthe build is 991", first, 2000)
    assert "8443" in second and "991" in second and second.count("INTENT") == 1


def test_a_summary_says_that_it_lacks_things_and_that_they_can_be_looked_up() -> None:
    """https://github.com/xorbitsai/xagent/pull/1238: told not to repeat tools, the model made numbers up."""
    framed = record.framed("FACTS\nport 8443", 30)
    assert "not complete" in framed and "looked up again" in framed
    assert "letter by letter" in record.question(500)


def test_one_result_larger_than_the_window_is_trimmed_and_not_summarised_for_ever() -> None:
    """https://github.com/anthropics/claude-code/issues/24179, https://github.com/langchain-ai/deepagentsjs/pull/228."""
    log = "".join(f"{number} all is well\n" for number in range(3000))
    talk = conversation(
        user("Port 9000?"),
        calling("a"),
        result("a", "small = 1"),
        says("Yes."),
        user("Read."),
        calling("b"),
        result("b", log),
    )
    memory, known, steps = EMPTY, 0, 0
    for _ in range(5):
        done = plan(talk, [TrimToolOutput(max_tokens=300), FACTS], memory, count, known_messages=known)
        assert isinstance(done, Plan) and done.sent_tokens <= 900
        steps += done.memory != memory
        memory, known = done.memory, len(talk.messages)
    assert steps == 1


def test_a_head_that_is_larger_than_the_limit_alone_asks_for_nothing() -> None:
    """https://github.com/MoonshotAI/kimi-code/pull/2498: an empty chat with 29k of tools was compacted for ever."""
    done = plan(conversation(user("Hi"), overhead_tokens=29_000), [MODEL], EMPTY, count)
    assert isinstance(done, Plan) and (done.edits, done.wanted) == ((), None)


def test_tool_calls_go_with_their_answers() -> None:
    """https://github.com/langchain-ai/deepagents/issues/270: the call was summarised, its answer stayed."""
    talk = conversation(
        user("Port 1?"),
        calling("a", "b"),
        result("a", "x" * 2000),
        result("b", "y = 2"),
        says("ok"),
        user("go"),
        says("z"),
        user("on"),
    )
    after = sent(talk)
    ids = {call.id for message in after.messages for call in message.calls}
    assert {message.answers for message in after.messages if message.answers} == ids
