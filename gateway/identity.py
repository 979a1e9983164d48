"""Which session a request belongs to, read from what clients send of their own accord.

Rule: the first source that holds a usable id wins; an id that is malformed or too long is treated as absent and stored
nowhere. An id is only a claim: whether the request really continues that session is decided by its messages
(`gateway.sessions`). A person (`user`) is no session, nor is a cache hint (`prompt_cache_key`) unless the tier says so.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import xxhash

from config.tiers import IDENTITY, IdentitySource

_USABLE = re.compile(r"[A-Za-z0-9._:@/+=-]{1,256}")
# Claude Code's `metadata.user_id`: user_<hash>_account_<uuid>_session_<uuid>.
_SESSION_OF_USER = re.compile(r"_session_([A-Za-z0-9-]{8,})$")
_KEPT_AS_IS = 64
_PARENT = b"x-parent-session-id"  # names the session that started this one
_CODEX_HEADERS = (b"session-id", b"session_id", b"thread-id", b"conversation_id")
Claim = tuple[str, str, str]
"""Source, id, and the id of a sub-agent that shares its parent's id."""


@dataclass(frozen=True, slots=True)
class SessionHints:
    """What the body says about its session, as sent; None where it says nothing."""

    session_id: str | None = None
    previous_response_id: str | None = None
    conversation: str | None = None
    prompt_cache_key: str | None = None
    metadata_session_id: str | None = None
    metadata_user_id: str | None = None


NO_HINTS = SessionHints()


class SessionKey(msgspec.Struct, frozen=True):
    """`id`: at most 64 characters, none of them special in a key or a header. `source`: where it was found."""

    id: str
    source: str


def identify(
    headers: Mapping[bytes, bytes],
    hints: SessionHints,
    tenant: str,
    model: str,
    opener: bytes,
    sources: Sequence[IdentitySource] = IDENTITY,
) -> SessionKey:
    """The session a request claims, or one derived from the tenant, the model and how the conversation opens.

    The first of `sources` that has a usable id decides.

    `headers` have lower-case names; `opener` is a digest of the messages up to the first user message.
    """
    claims = _claims(headers, hints, sources) if hints is not NO_HINTS or _names_session(headers) else ()
    for source, value, part in claims:
        if _USABLE.fullmatch(value):
            agent = f"|{part}" if _USABLE.fullmatch(part) else ""
            return SessionKey(_bounded(value + agent), source)
    return SessionKey(f"d-{xxhash.xxh3_128_hexdigest(_seed(tenant, model) + _part(opener))}", "derived")


def named(id: str) -> str | None:
    """A session that a client names outright (`parent|agent` for that of a sub-agent), as kept; None: no usable id."""
    return _bounded(id) if all(map(_USABLE.fullmatch, id.split("|", 1))) else None


def _names_session(headers: Mapping[bytes, bytes]) -> bool:
    """Whether any header could name a session; most requests have none."""
    names = b" ".join(headers)
    return names.find(b"session") >= 0 or names.find(b"thread-id") >= 0 or names.find(b"conversation_id") >= 0


def _claims(headers: Mapping[bytes, bytes], hints: SessionHints, sources: Sequence[IdentitySource]) -> Iterator[Claim]:
    for source in sources:
        match source:
            case "vendor":
                yield from _vendors(headers)
            case "codex":
                yield from [(name.decode(), _text(headers, name), "") for name in _CODEX_HEADERS]
            case "x-session-id" | "x-session-affinity":
                yield source, _text(headers, source.encode()), ""
            case "metadata.user_id":
                yield f"body.{source}", _session_of_user(hints.metadata_user_id or ""), ""
            case _:
                yield f"body.{source}", getattr(hints, source.replace(".", "_")) or "", ""


def _vendors(headers: Mapping[bytes, bytes]) -> Iterator[Claim]:
    """`x-<vendor>-session-id`, and the vendor's id of a sub-agent, which has its parent's session id."""
    for name in sorted(name for name in headers if _is_vendors(name)):
        agent = name.removesuffix(b"session-id") + b"agent-id"
        yield name.decode("latin-1"), _text(headers, name), _text(headers, agent)


def _is_vendors(name: bytes) -> bool:
    return name.startswith(b"x-") and name.endswith(b"-session-id") and len(name) > 13 and name != _PARENT


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


def _session_of_user(user_id: str) -> str:
    if found := _SESSION_OF_USER.search(user_id):
        return found[1]
    if user_id.startswith("{"):
        try:
            session = json.loads(user_id).get("session_id")
        except (ValueError, RecursionError):
            return ""
        return session if isinstance(session, str) else ""
    return ""


def _bounded(id: str) -> str:
    return id if len(id) <= _KEPT_AS_IS else f"h-{xxhash.xxh3_128_hexdigest(_part(id.encode()))}"


@lru_cache(maxsize=1_024)
def _seed(tenant: str, model: str) -> bytes:
    return _part(tenant.encode()) + _part(model.encode())


def _part(part: bytes) -> bytes:
    """With its length in front, so that no two lists of parts read the same. Used within one tenant only."""
    return b"%d:%b" % (len(part), part)
