"""One sequence on its way through an engine: its tokens, how far they are computed, which blocks it holds.

Rule: the tokens that will be generated are known from the start (the emulated model is deterministic), so a chain
over any full block can be made at any time.
"""

from array import array
from dataclasses import dataclass, field

from loadtest.blocks import Chain, extend, root


@dataclass(frozen=True, slots=True)
class Key:
    """One choice of one request."""

    request: str
    choice: int = 0


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` is the prompt and all that will be generated; `external_tokens` of the prompt come from elsewhere."""

    key: Key
    tokens: "array[int]"
    prompt_tokens: int
    arrived_seconds: float
    salt: str | None = None
    priority: int = 0
    external_tokens: int = 0
    finish: str = "stop"
    """Why it will end: "stop" or "length"."""
    pinned: bool = False
    """Keep the blocks when it ends: another engine will fetch them."""

    running: bool = False
    computed_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int | None = None
    """Of the prompt, served by the prefix cache when it was first scheduled; None: not yet scheduled."""
    known_tokens: int = 0
    """Of the prompt, not computed when it was first scheduled: cached, or come from another engine."""
    preemptions: int = 0
    scheduled_seconds: float = 0.0
    first_token_seconds: float = 0.0
    last_event_seconds: float = field(init=False)
    """When its last token came, or it arrived."""
    blocks: list[int] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    published_blocks: int = 0

    def __post_init__(self) -> None:
        self.last_event_seconds = self.arrived_seconds

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def present_tokens(self) -> int:
        """Prompt and generated so far: what must be computed before the next token can come."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def missing_tokens(self) -> int:
        return self.present_tokens - self.computed_tokens

    @property
    def finished(self) -> bool:
        return self.generated_tokens >= self.output_tokens

    def chains_to(self, count: int, block_tokens: int) -> list[Chain]:
        """The chains of the first `count` full blocks."""
        while len(self.chains) < count:
            start = len(self.chains) * block_tokens
            parent = self.chains[-1] if self.chains else root(self.salt)
            self.chains.append(extend(parent, self.tokens[start : start + block_tokens]))
        return self.chains[:count]

    def forget_computed(self) -> None:
        """After a preemption everything is computed anew."""
        self.running = False
        self.computed_tokens = 0
        self.external_tokens = 0
        self.blocks = []
        self.preemptions += 1
