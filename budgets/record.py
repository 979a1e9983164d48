"""The record of a settled call, as it stands in its tenant's stream.

Rule: numbers and names only, no text of a request. A record is a JSON array, so that a hundred thousand of them are
small; fields are only ever added at its end, and `version` says what they mean.
"""

from typing import Final, Literal

import msgspec

OPERATOR: Final = "operator"
"""The label of what nobody is charged for."""
FIELD: Final = "r"
"""The one field of an entry of the stream; the time of a record is its entry's id."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What one call used. `label`: what for. `source`: who counted the tokens. Reasoning is part of the decode tokens.

    `gpu_microseconds` are those of one device, `money_nanos` billionths of the currency. Of version 1: they and what
    stands around them were not told, and are 0.
    """

    tenant: str
    key: str
    session: str
    model: str
    pool: str
    outcome: str
    source: Literal["engine", "estimated"]
    prefill_tokens: int
    cached_tokens: int
    decode_tokens: int
    kv_read_bytes: int
    label: str = "client"
    version: int = 2
    reasoning_tokens: int = 0
    kv_byte_seconds: int = 0
    gpu_microseconds: int = 0
    money_nanos: int = 0
    network_bytes: int = 0


class Entry(msgspec.Struct, frozen=True):
    """Records on their way into the stream `stream`, which keeps about `keep` of them."""

    stream: str
    keep: int
    records: tuple[Record, ...]


_DECODER = msgspec.json.Decoder(Record)
_ENCODER = msgspec.json.Encoder()


def encoded(record: Record) -> bytes:
    return _ENCODER.encode(record)


def decoded(data: bytes) -> Record:
    """Raises `msgspec.DecodeError` for what is no record."""
    return _DECODER.decode(data)


def stream_of(tenant: str, organisation: str | None) -> str:
    """The key of a tenant's stream, under the hash tag of its budgets."""
    return f"kvgate:1:{{{organisation or tenant}}}:usage:{tenant}"
