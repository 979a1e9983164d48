"""The sessions that policies are replayed over: the synthetic ones of forty tool results, twenty real ones of agents.

Rule: what a client sent and what it was answered stay as they are, whatever a policy makes of them; a real agent would
go on otherwise with less before its eyes, so a replay tells what policies cost and keep, not how well agents do.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway import digests
from gateway.counting import Counter
from gateway.dialects.openai_chat import OpenAIChat
from gateway.errors import Fault
from gateway.tokens import counter, encoding
from policies.conversation import Conversation, Message

TRACES: Final = Path(__file__).with_name("traces")
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
SYSTEM: Final = {"role": "system", "content": "You look after the pumps of a water works. Answer in one sentence."}

WireMessage = Mapping[str, Any]


@dataclass(frozen=True)
class Session:
    """One session in the form of OpenAI's chat messages; each assistant message answers one call."""

    name: str
    wire: Sequence[WireMessage]

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages as policies read them, counted as the gateway counts them."""
        call = OpenAIChat().parse(msgspec.json.encode({"model": "any", "messages": self.wire}))
        counted = Counter(counter()).conversation(call, digests.of_messages(call.messages))
        return asyncio.run(counted).messages

    def calls(self) -> Iterator[tuple[Conversation, Message]]:
        """Every call: what was sent, and what it was answered."""
        for at, message in enumerate(self.messages):
            if message.role == "assistant":
                yield Conversation(self.messages[:at]), message


def real(folder: Path = TRACES) -> list[Session]:
    """The sessions of a folder of `*.jsonl`, by default the twenty of `bench/traces`, whose README tells their origin.

    A line is an object with `name` and `messages`. Raises `OSError` and `ValueError`.
    """
    found = [session for path in sorted(folder.glob("*.jsonl")) for session in _read(path)]
    if not found:
        raise ValueError(f"there are no sessions (*.jsonl) in {folder}")
    return found


class _Line(msgspec.Struct):
    name: str
    messages: list[dict[str, Any]]


def _read(path: Path) -> Iterator[Session]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            read = msgspec.json.decode(line, type=_Line)
            session = Session(read.name, read.messages)
            calls = sum(message.role == "assistant" for message in session.messages[1:])
        except (msgspec.MsgspecError, Fault) as fault:
            raise ValueError(f"{path.name}, line {number} is no session: {fault}") from fault
        if not calls:
            raise ValueError(f"{path.name}, line {number}: a session needs a message and an assistant's answer to it")
        yield session


def forty_turns(result_tokens: int = 2000, turns: int = 40) -> Session:
    """A user who asks so many times, each time answered with the help of one tool's output of so many tokens."""
    return Session("turns", [SYSTEM, *(part for at in range(turns) for part in wire_turn(at, log(at, result_tokens)))])


def forty_steps(result_tokens: int = 2000, steps: int = 40) -> Session:
    """The same tool traffic in one turn: an agent that was given one task and calls its tool until it is done."""
    rounds = (part for at in range(steps) for part in wire_turn(at, log(at, result_tokens))[1:3])
    task = {"role": "user", "content": "Check all pumps."}
    return Session("steps", [SYSTEM, task, *rounds, {"role": "assistant", "content": "All pumps are checked."}])


def wire_turn(at: int, output: str) -> list[WireMessage]:
    """A question, the call of a tool, its output, and the answer."""
    function = {"name": "read_log", "arguments": json.dumps({"pump": at})}
    called = [{"id": f"c{at}", "type": "function", "function": function}]
    return [
        {"role": "user", "content": f"How is pump {at}?"},
        {"role": "assistant", "content": "", "tool_calls": called},
        {"role": "tool", "tool_call_id": f"c{at}", "content": output},
        {"role": "assistant", "content": f"Pump {at} runs; its pressure is {_pressure(at, 0)} bar."},
    ]


def log(pump: int, tokens: int) -> str:
    """A log of one pump of about so many tokens, no line of which stands in another pump's."""
    encode, left = encoding().encode, tokens
    lines: list[str] = []
    while left > 0:
        lines.append(_line(pump, len(lines)))
        left -= len(encode(lines[-1]))
    return "".join(lines[:-1])


def _line(pump: int, at: int) -> str:
    pressure = _pressure(pump, at)
    return f"{at // 60:02}:{at % 60:02} pump {pump} pressure {pressure} bar, valve {LETTERS[at % 26]} open\n"


def _pressure(pump: int, line: int) -> str:
    """A number that looks measured and is the same in every run."""
    return f"{3 + (pump * 7919 + line * 104729) % 997 / 500:.2f}"
