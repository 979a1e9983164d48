"""One request inside the engine: its prompts, what will be said to them, and how much of it is out.

Rule: a job knows nothing of wire formats or of time beyond when it was created; a wire format reads it and never
changes it.
"""

from array import array
from dataclasses import dataclass, field

from loadtest.sequence import Sequence as Work
from loadtest.utterance import Utterance


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers: the prompt it answers, its utterance, the sequence that computes it."""

    prompt: "array[int]"
    prompt_text: str | None
    utterance: Utterance
    work: Work


@dataclass(slots=True)
class Job:
    """`request_id` is what the wire shows; `unique_id` names the job within the engine."""

    request_id: str
    unique_id: str
    created: int
    choices: tuple[Choice, ...]
    prompt_tokens: int
    block_tokens: int
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    usage_details: bool = True
    return_token_ids: bool = False
    cached_elsewhere_tokens: int | None = None
    """What the engine that computed the prompt had cached, for a prompt whose KV came from there."""
    transfer_params: dict[str, object] | None = None
    """What a prefill leg answers with."""
    sent_tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent_tokens = [0] * len(self.choices)

    @property
    def works(self) -> list[Work]:
        return [choice.work for choice in self.choices]

    @property
    def finished(self) -> bool:
        return all(choice.work.finished for choice in self.choices)

    @property
    def decode_tokens(self) -> int:
        """Generated and handed on so far, over all choices."""
        return sum(self.sent_tokens)

    @property
    def cached_tokens(self) -> int:
        if self.cached_elsewhere_tokens is not None:
            return self.cached_elsewhere_tokens
        return max(choice.work.cached_tokens or 0 for choice in self.choices)

    @property
    def created_cache_tokens(self) -> int:
        """Prompt tokens written into full blocks that others may share from now on."""
        full = self.prompt_tokens // self.block_tokens * self.block_tokens
        return max(0, full - self.cached_tokens)
