"""Continuous batching as vLLM's V1 scheduler does it: who computes how many tokens in the next step.

Rule: running sequences first, in order of admission; then waiting ones, first come first served (or by priority),
while the token budget, the sequence limit and the blocks last. Nobody is preempted to admit somebody; a step that
preempted admits nobody. Preempted sequences lose their blocks and compute everything anew. Time is an argument.

The behaviours are those of vLLM 0.32 as observed and as its documentation states them; the code is our own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.blocks import BlockPool
from loadtest.sequence import Key, Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine computes at once: tokens of a step, sequences, tokens of a block, blocks of the cache."""

    max_batched_tokens: int = 8192
    max_sequences: int = 256
    block_tokens: int = 16
    blocks: int = 8192
    prefix_caching: bool = True
    by_priority: bool = False

    @property
    def cache_tokens(self) -> int:
        return self.blocks * self.block_tokens


@dataclass(frozen=True, slots=True)
class Share:
    """What one sequence computes in a step: `new_tokens` after `context_tokens`."""

    sequence: Sequence
    new_tokens: int
    context_tokens: int

    @property
    def decodes(self) -> bool:
        return self.context_tokens >= self.sequence.prompt_tokens and self.new_tokens == 1


@dataclass(frozen=True, slots=True)
class Token:
    """Token number `index` of a sequence, `gap_seconds` after the one before it (number 0: after its arrival)."""

    sequence: Sequence
    index: int
    gap_seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step: the shares, and who was preempted or admitted to make it."""

    shares: tuple[Share, ...]
    preempted: tuple[Sequence, ...]
    admitted: tuple[Sequence, ...]
    prefill: tuple[tuple[int, int], ...]
    """(new tokens, context before them) of every sequence that is still in its prompt pass."""
    decode_contexts: tuple[int, ...]
    """The context of every sequence that generates, in tokens."""
    tokens: int


def _step(shares: list[Share], preempted: list[Sequence], admitted: list[Sequence]) -> Step:
    prefill: list[tuple[int, int]] = []
    decode: list[int] = []
    for share in shares:
        if share.decodes:
            decode.append(share.context_tokens)
        else:
            prefill.append((share.new_tokens, share.context_tokens))
    tokens = len(decode) + sum(new for new, _ in prefill)
    return Step(tuple(shares), tuple(preempted), tuple(admitted), tuple(prefill), tuple(decode), tokens)


class Scheduler:
    """What waits and what runs. `begin` plans a step, `finish` applies it; between the two a step takes its time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.blocks)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Let it wait. Raises `ValueError` when it could never fit, not even alone."""
        if len(sequence.tokens) > self.limits.cache_tokens:
            raise ValueError(f"{len(sequence.tokens)} tokens never fit {self.limits.cache_tokens} tokens of KV cache")
        self.waiting.append(sequence)
        self._order()

    def abort(self, key: Key) -> Sequence | None:
        """Forget it wherever it is and free its blocks."""
        for queue in (self.running, self.waiting):
            for sequence in queue:
                if sequence.key == key:
                    queue.remove(sequence)
                    sequence.running = False
                    self.pool.release(sequence.blocks)
                    return sequence
        return None

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting

    def begin(self, now_seconds: float) -> Step:
        """Plan the next step and reserve its blocks."""
        shares: list[Share] = []
        preempted: list[Sequence] = []
        budget = self._continue_running(shares, preempted)
        admitted = [] if preempted else list(self._admit(shares, budget, now_seconds))
        self._order()
        return _step(shares, preempted, admitted)

    def finish(self, step: Step, now_seconds: float) -> list[Token]:
        """The step is done: the tokens that it generated. Sequences that ended have left."""
        generated = []
        for share in step.shares:
            sequence = share.sequence
            if not sequence.running:
                continue
            sequence.computed_tokens += share.new_tokens
            self._publish(sequence)
            if sequence.missing_tokens == 0:
                generated.append(self._generate(sequence, now_seconds))
        return generated

    def _generate(self, sequence: Sequence, now_seconds: float) -> Token:
        token = Token(sequence, sequence.generated_tokens, now_seconds - sequence.last_event_seconds)
        sequence.generated_tokens += 1
        sequence.last_event_seconds = now_seconds
        if token.index == 0:
            sequence.first_token_seconds = now_seconds
        if sequence.finished:
            self._leave(sequence)
        return token

    def unpin(self, sequence: Sequence) -> None:
        """Free the blocks that an ended, pinned sequence still holds."""
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def _continue_running(self, shares: list[Share], preempted: list[Sequence]) -> int:
        budget, at = self.limits.max_batched_tokens, 0
        while at < len(self.running) and budget:
            sequence = self.running[at]
            new_tokens = min(sequence.missing_tokens, budget)
            if not self._make_room(sequence, new_tokens, preempted):
                break
            self._hold(sequence, sequence.computed_tokens + new_tokens)
            shares.append(Share(sequence, new_tokens, sequence.computed_tokens))
            budget -= new_tokens
            at += 1
        return budget

    def _make_room(self, sequence: Sequence, new_tokens: int, preempted: list[Sequence]) -> bool:
        """Preempt from the tail until the blocks suffice; False: it had to preempt itself."""
        while not self.pool.fits(self._lacking(sequence, sequence.computed_tokens + new_tokens)):
            victim = self.running[-1]
            self._preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        self.running.remove(victim)
        self.pool.release(victim.blocks)
        victim.forget_computed()
        self.waiting.insert(0, victim)
        self._order()

    def _order(self) -> None:
        """With priorities both queues are in order of urgency: the tail is the first to give way."""
        if self.limits.by_priority:
            self.waiting.sort(key=_urgency)
            self.running.sort(key=_urgency)

    def _admit(self, shares: list[Share], budget: int, now_seconds: float) -> Iterator[Sequence]:
        while self.waiting and budget and len(self.running) < self.limits.max_sequences:
            sequence = self.waiting[0]
            shared = self._cached_blocks(sequence)
            present = max(len(shared) * self.limits.block_tokens, sequence.external_tokens)
            new_tokens = min(sequence.present_tokens - present, budget)
            if not self.pool.fits(self._blocks(present + new_tokens) - len(shared), shared):
                return
            self.waiting.pop(0)
            self._enter(sequence, shared, present, now_seconds)
            self._hold(sequence, present + new_tokens)
            sequence.running = True
            self.running.append(sequence)
            shares.append(Share(sequence, new_tokens, present))
            budget -= new_tokens
            yield sequence

    def _cached_blocks(self, sequence: Sequence) -> list[int]:
        """Cached blocks of its beginning; the last token is always computed, or no next one could come."""
        if not self.limits.prefix_caching:
            return []
        full = (sequence.present_tokens - 1) // self.limits.block_tokens
        return self.pool.cached(sequence.chains_to(full, self.limits.block_tokens))

    def _enter(self, sequence: Sequence, shared: list[int], present: int, now_seconds: float) -> None:
        self.pool.share(shared)
        sequence.blocks = list(shared)
        sequence.published_blocks = len(shared)
        sequence.computed_tokens = present
        if sequence.cached_tokens is None:
            sequence.cached_tokens = len(shared) * self.limits.block_tokens
            sequence.known_tokens = present
            sequence.scheduled_seconds = now_seconds

    def _hold(self, sequence: Sequence, tokens: int) -> None:
        sequence.blocks += self.pool.take(self._lacking(sequence, tokens))

    def _lacking(self, sequence: Sequence, tokens: int) -> int:
        return max(0, self._blocks(tokens) - len(sequence.blocks))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_tokens)

    def _publish(self, sequence: Sequence) -> None:
        if not self.limits.prefix_caching:
            return
        full = sequence.computed_tokens // self.limits.block_tokens
        if full <= sequence.published_blocks:
            return
        chains = sequence.chains_to(full, self.limits.block_tokens)
        for at in range(sequence.published_blocks, full):
            self.pool.publish(sequence.blocks[at], chains[at])
        sequence.published_blocks = full

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        sequence.running = False
        if not sequence.pinned:
            self.pool.release(sequence.blocks)
            sequence.blocks = []


def _urgency(sequence: Sequence) -> tuple[int, float]:
    return (sequence.priority, sequence.arrived_seconds)
