"""Tiers: classes of service. A tier lists limits and policies; a tenant may override parts of it.

Rule: a policy's numbers may be written like every other number of the file (`4k`, `30m`).
"""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from budgets.limit import MOST_PARTS, PARTS, Limit, too_much
from budgets.weights import MOST, WEIGHT_PARTS, Weights
from config.section import NamedSection, Section
from config.soft import Positive, Priority, Soft
from config.units import (
    COUNT_EXPECTED,
    DURATION_EXPECTED,
    MONEY_EXPECTED,
    SIZE_EXPECTED,
    WEIGHT_EXPECTED,
    Count,
    Duration,
    Size,
    parse_count,
    parse_duration,
    parse_money,
    parse_size,
    parse_weight,
    plain_numbers,
)
from policies.policy import Policy

AMOUNT_SCHEMA = {
    "anyOf": [{"type": "number"}, {"type": "string"}],
    "description": f"{COUNT_EXPECTED}; for bytes and byte-seconds {SIZE_EXPECTED}; for gpu_seconds "
    f"{DURATION_EXPECTED}; for money {MONEY_EXPECTED}",
}


class Context(Section):
    """How much prompt a request may carry. At the high water mark the window is cut down to the low one.

    None: no limit of the tier's own; the model's limit holds in any case. With `economic` steps, one that breaks a warm
    prefix is taken only where it gains more than it costs, or where a limit forces it. With `retrieval_tool` models are
    told of a function that reads originals, which clients must know how to carry out.
    """

    limit_tokens: Positive | None = None
    high_water_tokens: Positive | None = None
    low_water_tokens: Positive | None = None
    steps: Literal["strict", "economic"] = "strict"
    retrieval_tool: bool = False


class MaxTokens(Section):
    """Tokens a reply may have: what is set when the client says nothing, and what it is clamped to."""

    default: Positive | None = None
    limit: Positive | None = None


def amount_of(value: object, dimension: object) -> int:
    """Parts of the dimension, out of what people write for it. Raises `ValueError`."""
    match dimension:
        case "kv_read_bytes" | "kv_byte_seconds" | "network_bytes":
            return parse_size(value)
        case "gpu_seconds":
            seconds = min(parse_duration(value), MOST_PARTS["gpu_seconds"])  # infinity has no parts
            return round(seconds * PARTS["gpu_seconds"])
        case "money":
            return parse_money(value)
        case "weighted_tokens":
            return parse_count(value) * PARTS["weighted_tokens"]
        case _:
            return parse_count(value)


def _amount(value: object, info: ValidationInfo) -> int:
    """Raises `ValueError`, for more than anybody has too."""
    dimension = info.data.get("dimension")
    parts = amount_of(value, dimension)
    if dimension is not None and (fault := too_much(dimension, parts)):
        raise ValueError(fault)
    return parts


Amount = Annotated[int, BeforeValidator(_amount), Field(gt=0), WithJsonSchema(AMOUNT_SCHEMA)]


def _weight(value: object) -> int:
    return parse_weight(value, WEIGHT_PARTS)


WrittenWeight = Annotated[
    int,
    BeforeValidator(_weight),
    Field(ge=0, le=MOST),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MOST // WEIGHT_PARTS, "description": WEIGHT_EXPECTED}),
]


class TokenWeights(Weights):
    """What tokens count for, as the file writes it: 1 is a token."""

    prefill: WrittenWeight = WEIGHT_PARTS
    cached: WrittenWeight = WEIGHT_PARTS // 10
    decode: WrittenWeight = WEIGHT_PARTS


class Budget(Limit):
    """A limit as the file writes it: a count, a size, a duration or money, and a time, in people's units."""

    amount: Amount
    per_seconds: Annotated[Duration, Field(gt=0)] | None = Field(default=None, alias="per")
    burst: Amount | None = None
    weights: TokenWeights | None = None


Policies = Annotated[tuple[Policy, ...], BeforeValidator(plain_numbers)]
Budgets = tuple[Budget, ...]


IdentitySource = Literal[
    "x-session-id",
    "vendor",
    "codex",
    "x-session-affinity",
    "session_id",
    "conversation",
    "previous_response_id",
    "prompt_cache_key",
    "metadata.session_id",
    "metadata.user_id",
]
IDENTITY: Final[tuple[IdentitySource, ...]] = (
    "x-session-id",
    "vendor",
    "codex",
    "x-session-affinity",
    "session_id",
    "conversation",
    "previous_response_id",
    "metadata.session_id",
    "metadata.user_id",
)
"""Where a session's id is looked for, in this order. A cache key is often one for all chats of an application."""

History = Literal["none", "stored"]


class Session(Section):
    """How long sessions are remembered (since last use, since their first), how many of a tenant's at once, how much
    text the store keeps for all of them together, and what each of them may use. With `history: stored` a client may
    have its messages kept (`X-Context: stored`) and send only new ones.
    """

    ttl_seconds: Annotated[Duration, Field(gt=0, alias="ttl")] = 1_800.0
    absolute_ttl_seconds: Annotated[Duration, Field(gt=0, alias="absolute_ttl")] = 86_400.0
    max_sessions: Positive = 10_000
    stored_bytes: Annotated[
        Size, Field(gt=0, description="Text of a tenant in the store; the longest unused goes.")
    ] = 256 * 1024 * 1024
    expire: Literal["forget", "summarize"] = Field(
        default="forget", description="What becomes of a session that is idle for its ttl."
    )
    identity: Annotated[
        tuple[IdentitySource, ...],
        Field(description="Where a session's id is looked for, in this order; none: sessions are told by content."),
    ] = IDENTITY
    history: History = "none"
    history_bytes: Annotated[
        Size, Field(gt=0, description="Text of one history; a call that would take it beyond is refused.")
    ] = 8 * 1024 * 1024
    budgets: Budgets = ()


UsageRecords = Annotated[Count, Field(description="How many settled calls of a tenant are kept, about; 0: none.")]
SoftSteps = tuple[Soft, ...]


Mode = Literal["enforce", "shadow"]


class Tier(NamedSection):
    """One class of service. Policies act in the listed order.

    In `mode: shadow` all of them, and the context's limit, are planned and counted but not applied.
    """

    mode: Mode = "enforce"
    context: Context = Context()
    max_tokens: MaxTokens = MaxTokens()
    policies: Policies = ()
    session: Session = Session()
    budgets: Budgets = ()
    soft: SoftSteps = ()
    usage_records: UsageRecords = 100_000
    priority: Priority = 0
    ietf_headers: bool = Field(default=False, description="RateLimit and RateLimit-Policy beside x-ratelimit-*.")
