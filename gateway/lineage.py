"""By what a conversation is known again: one digest for each message, without the lines that its tier leaves out.

Rule: what an engine never sees makes no new session. A clock in the system prompt is left out by `strip`, so the
conversation of a minute ago is still the same one.
"""

from collections.abc import Iterable

import xxhash

from gateway.dialects.openai_messages import decoded, text_of
from policies.conversation import INSTRUCTIONS
from policies.policy import Policy
from policies.strip import Strip


def stripping(policies: Iterable[Policy]) -> Strip | None:
    """The policy that leaves lines out, where one is in force."""
    return next((policy for policy in policies if isinstance(policy, Strip) and policy.mode == "enforce"), None)


def recognised(messages: Iterable[bytes], digests: tuple[bytes, ...], strip: Strip | None) -> tuple[bytes, ...]:
    """`digests` of the messages, those of instructions replaced by digests of what `strip` leaves of their text."""
    if strip is None:
        return digests
    return tuple(_of(message, digest, strip) for message, digest in zip(messages, digests, strict=True))


def _of(message: bytes, digest: bytes, strip: Strip) -> bytes:
    if b"system" not in message and b"developer" not in message:
        return digest
    wire = decoded(message)
    role = wire.get("role")
    if not isinstance(role, str) or role not in INSTRUCTIONS:
        return digest
    text = text_of(wire.get("content"))
    return xxhash.xxh3_128_digest(f"{role}\n{strip.rest(text) or text}".encode("utf-8", "surrogatepass"))
