"""What is measured: the options of the load generator for each scenario, in a full run and in a quick one.

Rule: a scenario says what the load does and nothing about who is measured.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.gateways import MODEL

STREAMS: Final = 100
CHUNKS: Final = 100
CHUNK_INTERVAL_SECONDS: Final = 0.02
CHAT_MESSAGES: Final = 20
SENTENCE: Final = (
    "A session stays where its cache is warm, while a long prompt is read by another pool and paid by bytes. "
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure and how often. A figure of a quick run is a sign of life, not a result."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    quiet_seconds: float
    """How long at most to wait before each measurement for the machine to be quiet."""


FULL: Final = Pace(rounds=4, seconds=3.0, warm_up_seconds=1.0, quiet_seconds=3.0)
QUICK: Final = Pace(rounds=1, seconds=1.5, warm_up_seconds=0.5, quiet_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measurement: its name in the results and what the load generator is told besides the time."""

    name: str
    options: tuple[str, ...]
    stream: bool = False

    def command(self, pace: Pace) -> list[str]:
        """The options with the time. Streams need one whole life to be evenly spread before measuring begins."""
        warm_up = CHUNKS * CHUNK_INTERVAL_SECONDS + pace.warm_up_seconds if self.stream else pace.warm_up_seconds
        return [*self.options, "-t", str(pace.seconds), "-w", str(warm_up)]


def stream_options(streams: int, chunks: int = CHUNKS, interval_seconds: float = CHUNK_INTERVAL_SECONDS) -> list[str]:
    """So many open streams, each of so many chunks at this interval, begun again when they end."""
    return ["-s", "-c", str(streams), "-n", str(chunks), "-i", str(round(interval_seconds * 1e6))]


def scenarios(folder: Path) -> tuple[Scenario, ...]:
    """All of them; bodies that the load generator cannot make itself are written into `folder`."""
    chat = folder / "chat.json"
    chat.write_text(json.dumps(chat_body(CHAT_MESSAGES)))
    return (
        Scenario("small", ("-c", "64", "-b", "200")),
        Scenario("large", ("-c", "64", "-b", "20000")),
        Scenario("chat", ("-c", "64", "-B", str(chat))),
        Scenario("alone", ("-c", "1", "-b", "200")),
        Scenario("streams", tuple(stream_options(STREAMS)), stream=True),
    )


def chat_body(messages: int) -> dict[str, object]:
    """A request whose conversation has this many messages of 1,000 characters of words, turn about."""
    text = [(SENTENCE * 12)[7 * number :][:1000] for number in range(messages)]
    roles = ("user", "assistant")
    conversation = [{"role": roles[i % 2], "content": content} for i, content in enumerate(text)]
    return {"model": MODEL, "messages": conversation, "max_tokens": 64, "temperature": 0.7}
