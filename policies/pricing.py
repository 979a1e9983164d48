"""What it costs to break a warm prefix, and what shorter prompts gain: whether a step pays.

Rule: seconds against seconds. A break costs the prefill of what the engine would have found in its cache; a token
removed spares the read of its keys and values with every token generated from then on. Source: the design's own
model, from the roofline of prefill (FLOPs) and decode (memory bandwidth). A step is not now or never: what has only
just begun to pay costs less later, when more goes at once, so it waits for a margin.
"""

from itertools import accumulate

import msgspec

from policies.draft import Draft

MARGIN = 3.0
"""How many times its cost a step gains before it is taken. Measured with `make bench-context` and models of 8B and 70B:
at 0 (a step whenever it pays) sessions take about a tenth more seconds and up to four times the steps, at 5 no less."""


class Pricing(msgspec.Struct, frozen=True, gc=False):
    """Numbers of the pool, the model and the session.

    `warm_probability` (0 to 1): that the engine still holds the prefix; `expected_decode_tokens`: all that the session
    will yet generate.
    """

    warm_probability: float
    prefill_tokens_per_second: float
    kv_bytes_per_token: float
    expected_decode_tokens: float
    memory_bytes_per_second: float

    def gain_seconds(self, removed_tokens: int, again_tokens: int) -> float:
        """What a step gains that removes so many tokens and makes the engine compute so many again; below 0: a loss."""
        kv_bytes = removed_tokens * self.kv_bytes_per_token * self.expected_decode_tokens
        return kv_bytes / self.memory_bytes_per_second - self.cost_seconds(again_tokens)

    def cost_seconds(self, again_tokens: int) -> float:
        """What it costs that the engine computes so many tokens again."""
        return self.warm_probability * again_tokens / self.prefill_tokens_per_second

    def pays(self, removed_tokens: int, again_tokens: int) -> bool:
        """Whether a step is to be taken."""
        return self.gain_seconds(removed_tokens, again_tokens) > MARGIN * self.cost_seconds(again_tokens)


def pays(before: Draft, after: Draft, pricing: Pricing | None) -> bool:
    """Whether a step gains; without prices the marks alone decide."""
    if pricing is None or before.open:
        return True
    removed = before.total_tokens - after.total_tokens
    return pricing.pays(removed, after.tokens_between(_broken_from(before, after), after.known))


def might_pay(before: Draft, moved: Draft, pricing: Pricing | None) -> bool:
    """Whether to try a step: told from what is due without doing it, for to do it takes counts of tokens.

    `moved` is `before` with the window moved alone.
    """
    if pricing is None or before.open or not before.dues:
        return True
    due = [(at, saved) for due in before.dues for at, saved in due.savings if moved.keeps(at)]
    saved = sum(tokens for _, tokens in due)
    first = min((_broken_from(before, moved), *(at for at, _ in due)))
    again = moved.tokens_between(first, moved.known) - saved
    return pricing.pays(before.total_tokens - moved.total_tokens + saved, max(0, again))


def _broken_from(before: Draft, after: Draft) -> int:
    """`first_change`, told before there is a note of what falls out: that stands behind the task."""
    first, task = first_change(before, after), after.frame.task
    return min(first, task) if after.cut != before.cut and after.cut_keeps and task is not None else first


def first_change(before: Draft, after: Draft) -> int:
    """The first message that was sent before and is sent otherwise now; `known` where there is none.

    Only what is edited is looked at.
    """
    changed: list[int] = []
    if after.cut != before.cut or after.summary != before.summary:
        changed += (at for at in range(max(before.cut, after.cut)) if before.keeps(at) != after.keeps(at))
        changed += [after.summary.cover.at] if after.summary is not None and after.summary != before.summary else []
    if after.note != before.note:
        changed += [note.at for note in (before.note, after.note) if note is not None]
    changed += before.cleared_messages ^ after.cleared_messages
    texts = before.trimmed.keys() | before.copies.keys() | after.trimmed.keys() | after.copies.keys()
    was, now = before.texts, after.texts
    changed += [at for at in texts if was.get(at) is not now.get(at) and after.keeps(at)]
    return min([before.known, *(at for at in changed if before.keeps(at))])


def best_start(draft: Draft, pricing: Pricing) -> int | None:
    """From which message on to do what is due so that it gains most; None where it pays nowhere."""
    savings = sorted((saving for due in draft.dues for saving in due.savings), reverse=True)
    tokens = (draft.tokens(at) if draft.keeps(at) else 0 for at in range(draft.known))
    sent = list(accumulate(tokens, initial=0))
    best, start, removed = 0.0, None, 0
    for at, saved in savings:
        removed += saved
        again = max(0, sent[-1] - sent[min(at, draft.known)] - removed)
        gain = pricing.gain_seconds(removed, again)
        if gain > best and pricing.pays(removed, again):
            best, start = gain, at
    return start
