"""Steps 4 and 5: what the tier's policies make of a conversation, and that the originals they name are kept.

Rule: nothing is counted that need not be. Far from every threshold the sizes in bytes decide, and what has no threshold
(`strip`, `repair`) is planned by guessed sizes; else each message is counted once and remembered by digest. What a
policy decides is checked by the validator before it is sent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from gateway import errors
from gateway.call import Call
from gateway.clock import wall
from gateway.counting import Scaled
from gateway.metrics import Metrics
from gateway.owned import generated_limit
from gateway.planning import made, read_ahead
from gateway.service import Service
from gateway.shown import Makers, Shown, shown_by
from policies.caps import reply_size
from policies.conversation import Conversation, Message
from policies.edit import DropMessages, Edit
from policies.keeping import NOTHING, Keeping
from policies.memory import EMPTY, Memory
from policies.outcome import Reason
from policies.plan import Plan, Pricing, Refuse, plan
from policies.summary import Summary, Wanted
from policies.validate import violations

Mode = Literal["enforce", "shadow"]


class Known(msgspec.Struct, frozen=True):
    """What earlier turns left: digests of this request's messages, how many were sent before, edits in force, and how
    long the session has rested. `there`: its originals in the store, by handle, and seconds left. `records` of older
    turns by name: those in force, and one that was written ahead. `cold`: no engine holds the prefix, or it does not
    matter, so all is decided anew. `read_ms`: when the session was read, by the store's clock (0: not known)."""

    digests: tuple[bytes, ...] = ()
    known_messages: int = 0
    memory: Memory = EMPTY
    idle_seconds: float = 0.0
    pricing: Pricing | None = None
    session: str = ""
    keeping: Keeping = NOTHING
    there: Mapping[str, float] = {}
    records: Mapping[bytes, str] = {}
    cold: bool = False
    read_ms: int = 0


class Planned(msgspec.Struct, frozen=True):
    """The edits, and the prompt's tokens before and after them; `counted` tells exact counts from estimates.

    `reply_tokens`: what the reply is clamped to, if it is. `mended` places of the body held lone surrogates.
    Of what was sent before, `cached_tokens` stand unchanged at the front and `again_tokens` are sent otherwise now.
    `unsure`: whether a part of the prompt that counts is only guessed.
    `summary`, `wanted` and `resting` are records of older turns: the one sent, one to be written, one to leave behind.
    """

    edits: tuple[Edit, ...]
    original_tokens: int
    sent_tokens: int
    memory: Memory
    counted: bool
    message_tokens: tuple[int, ...] = ()
    scale: float = 1.0
    reply_tokens: int | None = None
    mended: int = 0
    reasons: tuple[Reason, ...] = ()
    cached_tokens: int = 0
    again_tokens: int = 0
    shadow: tuple[Edit, ...] = ()
    shadow_reasons: tuple[Reason, ...] = ()
    summary: Summary | None = None
    wanted: Wanted | None = None
    resting: Wanted | None = None
    unsure: bool = False

    @property
    def drops(self) -> bool:
        """Whether whole messages are left out that were sent before."""
        made = zip(self.edits, self.reasons, strict=False)
        return any(isinstance(edit, DropMessages) and reason not in ("again", "rule") for edit, reason in made)

    @property
    def own_tokens(self) -> int | None:
        """What is sent by our own count, before the model's ratio: what that ratio is learned from."""
        return round(self.sent_tokens / self.scale) if self.counted else None

    def teaches(self, prompt_tokens: int) -> bool:
        """Whether the ratio may be learned from what the engine counted: pictures that are cheaper than we take them
        for, or what its template left out, do not make texts cheaper, and a limit must hold for texts too."""
        return not self.unsure or prompt_tokens >= self.sent_tokens


class Hold(Protocol):
    """Keeps originals: which of the handles in `shown` may be shown (see `gateway.originals`)."""

    def __call__(
        self, service: Service, session: str, there: Mapping[str, float], shown: Makers, read_ms: int, /
    ) -> Awaitable[frozenset[str]]: ...


class Write(Protocol):
    """Finds or writes the record that is wanted, or none (see `gateway.summarizing`): by name."""

    def __call__(self, wanted: Wanted, /) -> Awaitable[Mapping[bytes, str]]: ...


class Context:
    """Plans. `ratio(model)` is how many tokens of the model's own there are to one of ours, as learned.

    Without `hold` no handle is shown.
    """

    def __init__(self, metrics: Metrics, ratio: Callable[[str], float], hold: Hold | None = None) -> None:
        self._metrics = metrics
        self._ratio = ratio
        self._hold = hold

    async def plan(self, call: Call, service: Service, known: Known, write: Write | None = None) -> Planned:
        """The edits for a call. Raises `ContextTooLong`. Without `write` no record of older turns is looked for."""
        weight = reply_size(service.policies, _reply_limit(call, service)) if service.caps_replies else 0
        size = (call.prompt_bytes, call.largest_output_bytes, len(call.messages), weight)
        repair = None if service.takes_broken_arguments else service.arguments.repair(call, known.digests)
        counts = (known.memory is not EMPTY and known.memory.counts) or not service.quiet(size, known.idle_seconds)
        if not (counts or service.looks or service.ages or repair or known.memory is not EMPTY):
            return estimated(call)
        scale = self._ratio(service.name) if counts else 1.0
        counter = service.counter
        counting = counter.conversation(call, known.digests, scale) if counts else None
        conversation = await counting if counting else counter.guessed(call, known.digests)
        make = partial(
            plan,
            conversation,
            service.policies,
            known.memory,
            known_messages=known.known_messages,
            cold=known.cold,
            idle_seconds=known.idle_seconds,
            pricing=known.pricing,
            reply_tokens=_reply_limit(call, service),
            automatic=repair,
            rendered=service.rendered,
            now_seconds=wall() if service.ages else None,
        )
        count, rendered = Scaled(counter, scale), service.rendered
        new = sum(map(len, call.messages[known.known_messages :])) if counts else 0
        keeping = known.keeping if self._hold is not None else NOTHING
        records = {**rendered.records(known.memory.enforced), **known.records}
        found = await made(make, count, rendered, new, keeping, records)
        if write is not None and found.wanted is not None and (written := await write(found.wanted)):
            records = {**records, **written}
            found = await made(make, count, rendered, new, keeping, records)
        if isinstance(found, Plan) and (shown := shown_by(conversation, found.edits, keeping)).texts:
            held = await self._held(service, known, shown)
            if held != shown.texts.keys():
                found = await made(make, count, rendered, new, replace(known.keeping, only=held), records)
        if isinstance(found, Refuse):
            self._refused(service, found, "enforce")
            extra = {"limit": found.limit_tokens, "requested": found.tokens}
            raise errors.ContextTooLong(found.message, param="messages", extra=extra)
        if found.shadow_refusal is not None:
            self._refused(service, found.shadow_refusal, "shadow")
        rendered.keep(found.summary)
        if service.records_facts and counts:
            read_ahead(rendered, conversation.messages[known.known_messages :])
        if call.prompts > 1:
            return estimated(call)  # the longest fits; how many tokens there are together was not counted
        self._account(conversation, found)
        tokens = tuple([message.tokens for message in conversation.messages]) if counts else ()
        return Planned(
            found.edits,
            found.original_tokens,
            found.sent_tokens,
            found.memory,
            counted=counts,
            message_tokens=tokens,
            scale=scale,
            reply_tokens=found.reply_tokens,
            mended=call.mended,
            reasons=found.reasons,
            cached_tokens=found.cached_tokens,
            again_tokens=found.again_tokens,
            shadow=found.shadow,
            shadow_reasons=found.shadow_reasons,
            summary=found.summary,
            wanted=found.wanted,
            resting=found.resting,
            unsure=counts and unsure(call, conversation.messages),
        )

    async def _held(self, service: Service, known: Known, shown: Shown) -> frozenset[str]:
        assert self._hold is not None
        return shown.redeemable(await self._hold(service, known.session, known.there, shown.texts, known.read_ms))

    def _refused(self, service: Service, refusal: Refuse, mode: Mode) -> None:
        self._metrics.refusals.add(1, self._metrics.tenant(service.caller.tenant), refusal.policy, mode)

    def _account(self, conversation: Conversation, found: Plan) -> None:
        self._count(found.edits, found.reasons, "enforce")
        self._count(found.shadow, found.shadow_reasons, "shadow")
        if found.refilled and found.memory.enforced.cut is not None:
            self._metrics.thrash.add(1, found.memory.enforced.cut.policy)
        self._validate(conversation, found.edits)
        if found.shadow:
            self._validate(conversation, found.what_if)

    def _count(self, edits: Sequence[Edit], reasons: Sequence[Reason], mode: Mode) -> None:
        for edit, reason in zip(edits, reasons, strict=True):
            self._metrics.edits.add(1, edit.policy, mode)
            # What a repair adds is no negative removal: a counter never goes down.
            self._metrics.removed.add(max(0, edit.removed_tokens), edit.policy, reason, mode)

    def _validate(self, conversation: Conversation, edits: Sequence[Edit]) -> None:
        for violation in violations(conversation, edits) if edits else ():
            self._metrics.violations.add(1, violation.rule)


def _reply_limit(call: Call, service: Service) -> int | None:
    return generated_limit(call, service.caller.may.max_tokens) if call.generates else 0


def unsure(call: Call, messages: Sequence[Message]) -> bool:
    """Whether an eighth of a prompt or more may take another number of tokens than ours, or none at all.

    Media have a price of the engine's own; the reasoning of earlier turns and what stands outside the messages reach
    the prompt only as far as the model's template puts them there.
    """
    if any(message.media for message in messages):
        return True
    outside = len(call.overhead) - len(call.tools) if call.messages else 0
    reasoning = sum([len(message.reasoning_text) for message in messages])
    return (outside + reasoning) * 8 > call.content_bytes


def estimated(call: Call) -> Planned:
    """No edits, and a guess at the tokens by the bytes."""
    tokens = call.content_bytes // 4
    return Planned((), tokens, tokens, EMPTY, counted=False, mended=call.mended)
