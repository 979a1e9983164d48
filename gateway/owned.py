"""The fields of a request that are ours to set, per call and pool: one closed table as one function.

Rule: what steers an engine's cache, scheduler or templates never comes from a client; what an engine does not know is
not sent to it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from config.pools import Features
from config.tiers import MaxTokens
from gateway.call import Call
from gateway.dialects.base import FORBIDDEN, LIMIT_FIELDS
from gateway.tenants import Caller

EVERY_FRAME: Final = "continuous_usage_stats"
"""Of no effect without `include_usage`; with it, every frame tells the usage so far."""
_FORBIDDEN = frozenset(FORBIDDEN)
_NUMBER = msgspec.json.Decoder(int | None, strict=False)


def owned_fields(
    call: Call, caller: Caller, engine_name: str, features: Features, reply_tokens: int | None = None
) -> Mapping[str, bytes | None]:
    """Raw JSON values to set and, as `None`, fields to remove. Nothing to change gives an empty mapping.

    `reply_tokens`: what a policy clamped the reply to, if one did.
    """
    fields: dict[str, bytes | None] = dict.fromkeys(_FORBIDDEN.intersection(call.present))
    if call.model != engine_name:
        fields["model"] = msgspec.json.encode(engine_name)
    if features.cache_salt:
        fields["cache_salt"] = caller.cache_salt
    if features.priority and caller.may.priority:
        fields["priority"] = b"%d" % caller.may.priority
    if call.stream and not call.wants_usage and features.usage_in_stream:
        fields["stream_options"] = _with_usage(call.present.get("stream_options"))
    return fields | _limits(call, lowered(caller.may.max_tokens, reply_tokens)) if call.generates else fields


def lowered(tier: MaxTokens, reply_tokens: int | None) -> MaxTokens:
    """The tier's limits on a reply, none above `reply_tokens`."""
    if reply_tokens is None:
        return tier
    limit = reply_tokens if tier.limit is None else min(tier.limit, reply_tokens)
    return tier.model_copy(update={"limit": limit})


def generated_limit(call: Call, tier: MaxTokens) -> int | None:
    """How many tokens a choice may have: the client's wish or the tier's default, at most the tier's limit."""
    wished = call.max_tokens if call.max_tokens is not None else tier.default
    if tier.limit is None:
        return wished
    return tier.limit if wished is None else min(wished, tier.limit)


def _limits(call: Call, tier: MaxTokens) -> dict[str, bytes]:
    """Every limit of the client's that is above the tier's; where it gave none, one in its place.

    Engines differ in which of the two fields they read first, so neither may be above.
    """
    if call.max_tokens is None:
        limit = generated_limit(call, tier)
        name = LIMIT_FIELDS[0] if LIMIT_FIELDS[0] in call.present else LIMIT_FIELDS[1]
        return {} if limit is None else {name: b"%d" % limit}
    if (limit := tier.limit) is None:
        return {}
    given = {name: _NUMBER.decode(call.present[name]) for name in LIMIT_FIELDS if name in call.present}
    return {name: b"%d" % limit for name, asked in given.items() if (asked or 0) > limit}


def _with_usage(options: bytes | None) -> bytes:
    """The client's options, with the usage that it did not ask for: in one frame at the end, which can be taken out."""
    given = msgspec.json.decode(options) if options else None
    kept = {name: value for name, value in given.items() if name != EVERY_FRAME} if isinstance(given, dict) else {}
    return msgspec.json.encode(kept | {"include_usage": True})
