"""What a record of older turns is made of."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.call import Call
from gateway.service import Service
from gateway.snapshot import Snapshot
from policies.summarize_older_turns import SummarizeOlderTurns


@dataclass(frozen=True, slots=True)
class Source:
    """The call as it came, whose it is, and where the conversation is warm (`home`, a replica).

    `scale` is how many tokens of the model's own there are to one of ours; `records` those in force, by name.
    `read_ms`: when the session was read, by the store's clock (0: not known).
    """

    snapshot: Snapshot
    call: Call
    digests: tuple[bytes, ...]
    service: Service
    policy: SummarizeOlderTurns
    session: str
    home: str | None
    request_id: str
    scale: float
    records: Mapping[bytes, str]
    read_ms: int
