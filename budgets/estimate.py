"""What a call will probably use, before anything is counted: enough to reserve by, and settled by the truth later.

Rule: an estimate is never zero for a call that will use something, and never above what the call may use. What is
learned is a value: `observe` returns the next one and changes nothing.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

import msgspec

from budgets.usage import Usage


class LearnedRatio(msgspec.Struct, frozen=True):
    """Tokens per byte of prompt content, learned from the usage that engines report. One value a model.

    A ratio of sums over roughly the last `window_bytes`, so long prompts count for more than short ones, up to a
    tenth of the window each. It begins at one token for three bytes, on the safe side for English.
    """

    tokens: float = 1_000.0
    bytes: float = 3_000.0
    window_bytes: float = 1_000_000.0

    @property
    def tokens_per_byte(self) -> float:
        return self.tokens / self.bytes

    def observe(self, content_bytes: int, prompt_tokens: int) -> "LearnedRatio":
        """The ratio after a prompt of so many bytes turned out to have so many tokens."""
        tokens, seen = self.seen(content_bytes, prompt_tokens)
        if not seen:
            return self
        kept = max(0.0, min(1.0, (self.window_bytes - seen) / self.bytes))
        return LearnedRatio(self.tokens * kept + tokens, self.bytes * kept + seen, self.window_bytes)

    def seen(self, content_bytes: int, prompt_tokens: int) -> tuple[float, float]:
        """The tokens and the bytes that such a prompt counts for; nothing where it tells nothing."""
        if content_bytes <= 0 or prompt_tokens <= 0:
            return 0.0, 0.0
        weight = min(1.0, self.window_bytes / 10 / content_bytes)
        return prompt_tokens * weight, content_bytes * weight

    def estimate(self, content_bytes: int) -> int:
        """Tokens of so many bytes: at least 1, and at most one a byte (a byte-level tokenizer can do no worse)."""
        tokens = math.ceil(content_bytes * (self.tokens / self.bytes))
        return (tokens if tokens < content_bytes else content_bytes) or 1


_STEPS = 4  # bins per doubling: an estimate is at most a fifth too high
_BINS = 20 * _STEPS + 1  # up to a million tokens
_FULL = 512.0
TAIL = 0.99


class Quantile(msgspec.Struct, frozen=True):
    """The `level` quantile of a number of tokens, over roughly the last 500 calls. One value a tenant and model.

    `tail` is the one that 99 in 100 keep to. Counts in bins of equal ratio; all are halved when they reach 512, so what
    is long past fades.
    """

    level: float = 0.9
    counts: tuple[float, ...] = (0.0,) * _BINS
    total: float = 0.0
    value: int | None = None
    tail: int | None = None

    @classmethod
    def counted(cls, counts: Mapping[int, float], level: float = 0.9) -> "Quantile":
        """The quantile of so many calls in each bin."""
        filled = tuple([max(0.0, counts.get(at, 0.0)) for at in range(_BINS)])
        total = sum(filled)
        return cls(level, filled, total, *_values(filled, level, total)) if total else cls(level)

    def observe(self, tokens: int) -> "Quantile":
        """The quantile after a call used so many tokens."""
        at = bin_of(tokens)
        counts = (*self.counts[:at], self.counts[at] + 1.0, *self.counts[at + 1 :])
        total = self.total + 1.0
        if total >= _FULL:
            counts, total = tuple([count / 2 for count in counts]), total / 2
        return Quantile(self.level, counts, total, *_values(counts, self.level, total))

    def estimate(self, otherwise: int) -> int:
        """The upper edge of the bin that holds the quantile; `otherwise` before the first call."""
        return otherwise if self.value is None else self.value


def _values(counts: tuple[float, ...], level: float, total: float) -> tuple[int, int]:
    seen = list(accumulate(counts))
    value, tail = (min(_BINS - 1, bisect_left(seen, share * total)) for share in (level, TAIL))
    return _upper(value), _upper(tail)


def bin_of(tokens: int) -> int:
    """The number of the bin that a reply of so many tokens falls into."""
    return 0 if tokens <= 1 else min(_BINS - 1, math.ceil(math.log2(tokens) * _STEPS))


def _upper(bin: int) -> int:
    return math.ceil(2 ** (bin / _STEPS))


class Ask(msgspec.Struct, frozen=True):
    """What a request says about its size.

    `content_bytes` are those of all `prompts` together, `sequences` how many replies an engine may compute for them.
    `generates` is false for embeddings.
    """

    content_bytes: int
    prompts: int = 1
    sequences: int = 1
    max_tokens: int | None = None
    generates: bool = True


class Bounds(msgspec.Struct, frozen=True):
    """What the tier and the model allow: tokens of one prompt as sent, tokens of one reply; None: no bound.

    `usual_reply_tokens` stands in until there is something to learn from.
    """

    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    usual_reply_tokens: int = 512


def estimate(ask: Ask, ratio: LearnedRatio, reply: Quantile, bounds: Bounds) -> Usage:
    """Prompt and generated tokens to reserve. `reply` is learned from single replies."""
    prompt = ratio.estimate(ask.content_bytes)
    if bounds.prompt_tokens is not None:
        most = bounds.prompt_tokens * ask.prompts
        prompt = most if most < prompt else prompt
    if not ask.generates:
        return Usage.estimated(prompt, 0)
    decode = bounds.usual_reply_tokens if reply.value is None else reply.value
    if ask.max_tokens is not None:
        decode = max(0, ask.max_tokens) if ask.max_tokens < decode else decode
    if bounds.reply_tokens is not None:
        decode = min(decode, bounds.reply_tokens)
    return Usage.estimated(prompt, decode * (ask.sequences or 1))
