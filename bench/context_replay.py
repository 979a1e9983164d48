"""A session replayed under a tier: what is sent, what the engine must compute, what decoding reads.

Rule: the planner and its measure of texts are the gateway's own, and what it remembers goes from call to call as the
gateway stores it. Every plan is checked by the validator. Sizes are those of the tokens that are sent, not the
planner's own account.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.context_sessions import Session
from bench.prefix_cache import PrefixCache, Tokens
from budgets.cost import kv_read_bytes
from budgets.geometry import Geometry
from budgets.hardware import Hardware
from gateway.counting import Counter, Scaled
from gateway.dialects.openai_chat import OpenAIChat
from gateway.pace import Pace
from gateway.prices import TYPICAL_PROMPT_TOKENS
from gateway.shown import Shown, shown_by
from gateway.tokens import counter, encoding
from policies.conversation import Conversation, Message
from policies.edit import apply
from policies.keeping import Keeping
from policies.memory import EMPTY, Memory
from policies.plan import Pricing, Refuse, plan
from policies.policy import Policy
from policies.validate import violations

KEEPING: Final = Keeping(key=b"bench")
"""Originals are kept where a tier says so, and all of them can be."""
START, END = 200_000, 200_001
"""Tokens of a chat template, which no text has."""
DIALECT: Final = OpenAIChat()


@dataclass(frozen=True, slots=True)
class Tier:
    """Policies under a name; with `economic` steps a step is taken only where it gains."""

    name: str
    policies: tuple[Policy, ...] = ()
    economic: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """The model and the hardware that seconds and bytes are those of."""

    geometry: Geometry
    hardware: Hardware

    def pricing(self, calls: int, decoded_tokens: int) -> Pricing:
        """As `gateway/prices.py` puts it for a session of so many calls whose prefix is warm."""
        seconds = Pace(self.geometry, self.hardware).prefill_seconds(TYPICAL_PROMPT_TOKENS)
        return Pricing(
            warm_probability=1.0 if calls else 0.0,
            prefill_tokens_per_second=TYPICAL_PROMPT_TOKENS / seconds,
            kv_bytes_per_token=self.geometry.kv_bytes_per_token,
            expected_decode_tokens=decoded_tokens,
            memory_bytes_per_second=self.hardware.total_memory_bytes_per_second * self.hardware.efficiencies.kv_read,
        )


@dataclass(frozen=True, slots=True)
class Served:
    """One call under a tier: the conversation as it came and as it was sent, and its tokens.

    `broken`: what had been sent before was sent otherwise. `shown`: what its handles stand for.
    """

    original: Conversation
    sent: Conversation
    broken: bool
    prompt_tokens: int
    cached_tokens: int
    decode_tokens: int
    shown: Shown = field(default_factory=Shown)

    def read_bytes(self, machine: Machine) -> int:
        """KV bytes read while the reply is generated."""
        return kv_read_bytes(machine.geometry, self.prompt_tokens, self.decode_tokens)


class Rendered:
    """Messages as the tokens an engine sees, each made once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tokens] = {}

    def message(self, message: Message) -> Tokens:
        if (known := self._known.get(message.digest)) is None:
            text = encoding().encode(DIALECT.countable(message), disallowed_special=())
            known = self._known[message.digest] = array("I", [START, *text, END, END, END])
        return known

    def prompt(self, messages: Sequence[Message]) -> Tokens:
        tokens: Tokens = array("I")
        for message in messages:
            tokens += self.message(message)
        return tokens


def replayed(session: Session, tier: Tier, machine: Machine) -> Iterator[Served | Refuse]:
    """Every call of a session under a tier, up to one that is refused: no client comes back from there.

    Raises `ValueError` for a plan that breaks an invariant.
    """
    cache, rendered, count = PrefixCache(), Rendered(), Scaled(Counter(counter()), 1.0)
    memory, known, decoded = EMPTY, 0, 0
    before: tuple[Message, ...] = ()
    for number, (conversation, reply) in enumerate(session.calls()):
        pricing = machine.pricing(number, decoded) if tier.economic else None
        made = plan(conversation, tier.policies, memory, count, known_messages=known, pricing=pricing, keeping=KEEPING)
        if isinstance(made, Refuse):
            yield made
            return
        if violations(conversation, made.edits):
            raise ValueError(f"session {session.name} under {tier.name}: the plan for call {number} is none")
        sent = apply(conversation, made.edits)
        prompt, answer = rendered.prompt(sent.messages), rendered.message(reply)
        broken = sent.messages[: len(before)] != before
        shown = shown_by(conversation, made.edits, KEEPING)
        yield Served(conversation, sent, broken, len(prompt), cache.serve(prompt, answer), len(answer), shown)
        memory, known, before = Memory.loads(made.memory.dumps()), len(conversation.messages), sent.messages
        decoded += len(answer)
