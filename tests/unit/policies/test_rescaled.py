"""A remembered trim keeps its text when tokens are counted by another measure; only the numbers follow."""

from msgspec.structs import replace

from policies.conversation import Conversation, Message, ToolCall
from policies.edit import ReplaceText
from policies.memory import EMPTY
from policies.plan import Plan, plan
from policies.trim_tool_output import TrimToolOutput

TRIM = TrimToolOutput(max_tokens=100)


def conversation(tokens_per_character: float) -> Conversation:
    output = "\n".join(f"line {number} of the output" for number in range(400))
    messages = (
        Message("user", b"u" * 16, 5, "read it"),
        Message("assistant", b"a" * 16, 5, calls=(ToolCall("c1", "read", "{}"),)),
        Message("tool", b"t" * 16, int(len(output) * tokens_per_character), output, answers="c1"),
    )
    return Conversation(messages)


def counted(text: str) -> int:
    return len(text) // 4


def test_what_was_trimmed_before_is_counted_by_the_new_measure() -> None:
    first = plan(conversation(0.25), [TRIM], EMPTY, counted)
    assert isinstance(first, Plan)
    again = plan(conversation(0.5), [TRIM], first.memory, counted, known_messages=3)
    assert isinstance(again, Plan)
    before, after = first.edits[0], again.edits[0]
    assert isinstance(before, ReplaceText)
    assert isinstance(after, ReplaceText)
    assert after.text == before.text
    assert abs(again.sent_tokens - 2 * first.sent_tokens) <= 20
    assert replace(after, removed_tokens=0) == replace(before, removed_tokens=0)
