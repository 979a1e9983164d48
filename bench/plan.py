"""How long step 4 takes: one conversation planned by all policies, cold and with its edits known.

Rule: pure planning, without a server. Cold: nothing was planned before. The messages themselves are counted and
measured before, as they are once in their lives and off the loop where they are long; what planning counts, it counts
here. CPU time, the best of several rounds, for a busy machine only ever adds.

    python -m bench.plan
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

import xxhash

from gateway.counting import Counter, Scaled
from gateway.rendered import Rendered
from gateway.tokens import counter
from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation, Message, ToolCall
from policies.dedupe_tool_output import DedupeToolOutput
from policies.extract_facts import Read, read
from policies.keep_recent_turns import KeepRecentTurns
from policies.measuring import Marks, Measure
from policies.memory import EMPTY
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.repair import Repair
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput

POLICIES: Final[tuple[Policy, ...]] = (
    Strip(),
    Repair(),
    DedupeToolOutput(),
    TrimToolOutput(max_tokens=2_000),
    ClearOldReasoning(),
    KeepRecentTurns(high_water_tokens=800_000),
    CapContext(limit_tokens=1_000_000),
)
SIZES: Final = (
    (200, 0, "log"),
    (200, 20, "log"),
    (200, 20, "rows"),
    (200, 20, "tree"),
    (2_000, 0, "log"),
    (2_000, 20, "log"),
)
"""Messages, how many of them are long outputs (30 kB), and of what kind: lines of a log, JSON that is one long array of
small items, JSON of objects in arrays in objects."""
RECORD_TOKENS: Final = 1_000
ROUNDS: Final = 30
TURN: Final = 4


def output(kind: str, number: int) -> str:
    """Some 30 kB that no other output repeats."""
    if kind == "tree":
        variables = [{"name": f"VARIABLE_{at}", "value": "a value of some length"} for at in range(6)]
        names = [f"image-{at}" for at in range(3)]
        parts = [[{"image": f"{name}:{row}-{number}", "env": variables} for name in names] for row in range(26)]
        pods = [{"meta": {"name": f"pod-{row}", "node": f"n{row % 4}"}, "spec": part} for row, part in enumerate(parts)]
        return json.dumps({"kind": "List", "items": pods})
    if kind == "rows":
        rows = range(440)
        return json.dumps(
            [{"id": row, "name": f"item {row}-{number}", "price": row * 1.25, "on": True} for row in rows]
        )
    times = ((row % 60, row % 7) for row in range(350))
    return "\n".join(
        f"10:{a:02}:{b:02} INFO worker-{b} processed item {a}-{number} in {a * 7 % 97} ms" for a, b in times
    )


def conversation(messages: int, long: int, kind: str, count: Callable[[str], int]) -> Conversation:
    """An agent's session of about so many: a system prompt, turns of four, a question; `long` outputs are long."""

    def made(role: str, text: str, **more: object) -> Message:
        name = xxhash.xxh3_128_digest(f"{len(found)} {text}".encode())
        return Message(role, name, count(text) + 4, text, **more)  # type: ignore[arg-type]

    found: list[Message] = []
    found.append(made("system", "Be careful and brief. " * 20))
    every = max(1, messages // TURN // long) if long else 0
    for number in range((messages - 2) // TURN):
        is_long = every and number % every == 0 and number // every < long
        call = ToolCall(f"c{number}", "read", json.dumps({"path": f"a{number}"}))
        found.append(made("user", f"Step {number}: look at it and say what is wrong. " * 5))
        found.append(made("assistant", "", calls=(call,)))
        text = output(kind, number) if is_long else f"result {number} is fine, nothing to see\n" * 6
        found.append(made("tool", text, answers=call.id, name="read"))
        found.append(made("assistant", f"It is fine, step {number} is done. " * 10))
    return Conversation((*found, made("user", "And now?")))


def best_ms(work: Callable[[], object]) -> float:
    """The shortest of the rounds."""
    return min(timed(work) for _ in range(ROUNDS)) * 1e3


def timed(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


class Noting(Measure):
    """A measure that notes what it counts."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.texts: list[str] = []

    def __call__(self, text: str, /) -> int:
        self.texts.append(text)
        return self._measure(text)

    def marks(self, digest: bytes, text: str) -> Marks:
        return self._measure.marks(digest, text)


def rows() -> Iterator[str]:
    """The table, line by line."""
    count = Scaled(Counter(counter()), 1.0)
    yield "| messages | long outputs | edits | cold, ms | of it counting, ms | known, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for messages, long, kind in SIZES:
        talk = conversation(messages, long, kind, count)
        noting = Noting(count)

        def fresh(talk: Conversation = talk) -> Conversation:
            return Conversation(talk.messages, talk.overhead_tokens)

        done = plan(fresh(), POLICIES, EMPTY, noting)
        assert isinstance(done, Plan)
        rendered, memory, known = Rendered(), done.memory, len(talk.messages) - 2
        cold = best_ms(lambda: plan(fresh(), POLICIES, EMPTY, count))
        counting = best_ms(lambda: [count(text) for text in noting.texts])  # noqa: B023
        again = best_ms(
            lambda: plan(fresh(), POLICIES, memory, count, known_messages=known, rendered=rendered)  # noqa: B023
        )
        what = f"{long} of {kind}" if long else "none"
        yield f"| {messages} | {what} | {len(done.edits)} | {cold:.2f} | {counting:.2f} | {again:.2f} |"


def record_rows() -> Iterator[str]:
    """What a record of facts takes, over messages that were read before and over others."""
    count = Scaled(Counter(counter()), 1.0)
    yield "| messages | long outputs | not read before, ms | read as they arrived, ms |"
    yield "| --- | --- | --- | --- |"
    for messages, long, kind in SIZES[:4]:
        talk = conversation(messages, long, kind, count)
        high = talk.total_tokens - 1
        policy = SummarizeOlderTurns(
            by="facts", high_water_tokens=high, low_water_tokens=high // 2, max_tokens=RECORD_TOKENS
        )

        def recorded(read: Read, talk: Conversation = talk, policy: Policy = policy) -> None:
            done = plan(Conversation(talk.messages, talk.overhead_tokens), (policy,), EMPTY, count, read=read)
            assert isinstance(done, Plan) and done.summary is not None

        before = Rendered().read
        recorded(before)
        first, again = best_ms(lambda: recorded(read)), best_ms(lambda: recorded(before))  # noqa: B023
        yield f"| {messages} | {f'{long} of {kind}' if long else 'none'} | {first:.2f} | {again:.2f} |"


if __name__ == "__main__":
    print(*rows(), "", *record_rows(), sep="\n")
