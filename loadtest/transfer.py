"""KV blocks that a prefill engine keeps for the engine that will decode: leases, and the parameters that name them.

Rule: a lease ends once: fetched by the decode engine, or expired, which is counted. The shape of the parameters is
that of vLLM's NIXL connector as recorded; here `remote_host` and `remote_port` name the emulated engine's own HTTP
port, where the other engine asks for the blocks. Time is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from loadtest.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Lease:
    """Blocks kept until `expires_seconds`."""

    sequence: Sequence
    expires_seconds: float


class Leases:
    """What one engine keeps for others."""

    def __init__(self, lease_seconds: float) -> None:
        self.engine_id = str(uuid4())
        self._lease_seconds = lease_seconds
        self._held: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_expiry_seconds(self) -> float | None:
        """When the first lease ends; None: nothing is held."""
        return min((lease.expires_seconds for lease in self._held.values()), default=None)

    def grant(self, request_id: str, sequence: Sequence, now_seconds: float) -> None:
        self._held[request_id] = Lease(sequence, now_seconds + self._lease_seconds)

    def fetch(self, engine_id: str, request_id: str) -> Sequence | None:
        """The other engine has the blocks now; None: unknown, expired or not ours."""
        lease = self._held.pop(request_id, None) if engine_id == self.engine_id else None
        return lease.sequence if lease else None

    def expire(self, now_seconds: float) -> list[Sequence]:
        """End the leases whose time is over."""
        over = [request_id for request_id, lease in self._held.items() if lease.expires_seconds <= now_seconds]
        return [self._held.pop(request_id).sequence for request_id in over]


def wants_remote_decode(params: Mapping[str, object] | None) -> bool:
    """The prefill leg: compute the prompt and keep its blocks."""
    return bool(params and params.get("do_remote_decode"))


@dataclass(frozen=True, slots=True)
class Source:
    """Where the KV of a prompt waits."""

    engine_id: str
    request_id: str
    host: str
    port: int
    tokens: int
    cached_tokens: int


def source_of(params: Mapping[str, object] | None) -> Source | None:
    """The decode leg: where to fetch from; None: compute it here, also when the parameters are incomplete."""
    if not params or not params.get("do_remote_prefill"):
        return None
    match params:
        case {
            "remote_engine_id": str(engine_id),
            "remote_request_id": str(request_id),
            "remote_host": str(host),
            "remote_port": int(port),
        }:
            tokens, cached = params.get("remote_num_tokens"), params.get("remote_prefill_cached_tokens")
            return Source(engine_id, request_id, host, port, _count(tokens), _count(cached))
    return None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def handed_over(leases: Leases, request_id: str, sequence: Sequence, host: str, port: int) -> dict[str, object]:
    """The parameters that a prefill leg answers with."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(sequence.blocks)],
        "remote_engine_id": leases.engine_id,
        "remote_request_id": request_id,
        "remote_host": host,
        "remote_port": port,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": sequence.prompt_tokens,
        "remote_blocks_expiry_time": None,
        "transfer_mode": "pull",
        "remote_prefill_cached_tokens": sequence.cached_tokens or 0,
    }
