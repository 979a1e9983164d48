"""Which session a call belongs to: what it claims, how it opens, and one digest for each message.

Rule: what an engine never sees makes no new session. A clock in the system prompt is left out by `strip`, so the
conversation of a minute ago is still the same one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import xxhash

from config.tiers import IDENTITY, IdentitySource
from gateway.call import Call
from gateway.dialects.openai_messages import decoded, text_of
from gateway.dialects.roles import role_of
from gateway.identity import identify
from policies.conversation import INSTRUCTIONS
from policies.policy import Policy
from policies.strip import Strip

_OTHER = re.compile(rb'\{\s*"role"\s*:\s*"(?:user|assistant|tool)"')
"""How most messages begin that are no instructions: nothing more of them needs be looked at."""


def stripping(policies: Iterable[Policy]) -> Strip | None:
    """The policy that leaves lines out, where one is in force."""
    return next((policy for policy in policies if isinstance(policy, Strip) and policy.mode == "enforce"), None)


def recognised(messages: Iterable[bytes], digests: tuple[bytes, ...], strip: Strip | None) -> tuple[bytes, ...]:
    """`digests` of the messages, those of instructions replaced by digests of what `strip` leaves of their text."""
    if strip is None:
        return digests
    return tuple(_of(message, digest, strip) for message, digest in zip(messages, digests, strict=True))


def _of(message: bytes, digest: bytes, strip: Strip) -> bytes:
    if _OTHER.match(message) or (b"system" not in message and b"developer" not in message):
        return digest
    wire = decoded(message)
    role = wire.get("role")
    if not isinstance(role, str) or role not in INSTRUCTIONS:
        return digest
    text = text_of(wire.get("content"))
    return xxhash.xxh3_128_digest(f"{role}\n{strip.rest(text) or text}".encode("utf-8", "surrogatepass"))


def session_id(
    call: Call,
    headers: Mapping[bytes, bytes],
    key: tuple[str, str],
    names: tuple[bytes, ...],
    sources: Sequence[IdentitySource] = IDENTITY,
) -> str:
    """The session that a call claims, or one derived from how its conversation opens; `key`: tenant and model."""
    opener = b"".join(names[: first_user(call) + 1])
    return identify(headers, call.hints, *key, opener, sources).id


def first_user(call: Call) -> int:
    """Where the first user message stands: what comes before it is the same in every chat of an application."""
    for at, message in enumerate(call.messages):
        if role_of(message) == "user":
            return at
    return len(call.messages)
