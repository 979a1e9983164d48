"""What the store keeps of one tenant: settings, digests of keys, boosts, and what is switched off.

Rule: an immutable value, read as it is on every request and replaced as a whole. A record with settings is a tenant of
the store; one without adds to the tenant of that name in the file, or, under a name that no tenant can have, to an
organisation of the file, of which it holds the boosts. Times are seconds since 1970.
"""

from typing import Annotated, Any, Final

import msgspec

from budgets.limit import Dimension, units

VERSION: Final = 1
EVERY_SESSION: Final = "*"
"""In the place of a session's id, which has no such character."""
_ORGANISATION: Final = "organisation/"


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key as it is kept: its digest under the deployment's secret. `until` None: as long as its name holds."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    since: float
    until: float | None = None


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key by name. It has two secrets while one that was replaced still holds, none when it was made to end."""

    name: str
    secrets: tuple[Secret, ...]
    created_at: float
    until: float | None = None
    budgets: tuple[dict[str, Any], ...] = ()


class Boost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another amount for one limit until a moment: of the record's tenant or organisation, or of one of the tenant's
    keys, of one of its sessions, of each of them (`EVERY_SESSION`). Amounts are parts of the limit's dimension.
    """

    limit: str
    amount: int
    until: float
    burst: int | None = None
    key: str | None = None
    session: str | None = None
    dimension: Dimension | None = None

    @property
    def of(self) -> tuple[str | None, str | None]:
        """Whose limit it is, the tenant's if nobody is named."""
        return self.key, self.session

    @property
    def told(self) -> dict[str, object]:
        """Its fields as people are told them: amounts in units."""
        fields = msgspec.structs.asdict(self)
        if (dimension := self.dimension) is not None:
            fields |= {at: units(dimension, fields[at]) for at in ("amount", "burst") if fields[at] is not None}
        return fields


class StoredTenant(msgspec.Struct, frozen=True, omit_defaults=True):
    """`settings` are those of a tenant in the file, as somebody wrote them, without its keys; None: the file has it.

    `disabled_keys` are names of its keys, of the store or of the file.
    """

    name: str
    settings: dict[str, Any] | None = None
    keys: tuple[StoredKey, ...] = ()
    boosts: tuple[Boost, ...] = ()
    disabled: bool = False
    disabled_keys: tuple[str, ...] = ()
    created_at: float = 0.0
    version: int = VERSION

    @property
    def says_nothing(self) -> bool:
        """Whether it adds nothing to a tenant of the file, so that it need not be kept."""
        return self.settings is None and not (self.keys or self.boosts or self.disabled or self.disabled_keys)

    def key(self, name: str) -> StoredKey | None:
        return next((key for key in self.keys if key.name == name), None)


def organisation_record(organisation: str) -> str:
    """The name of an organisation's record."""
    return f"{_ORGANISATION}{organisation}"


def organisation_of(name: str) -> str | None:
    """The organisation whose record has this name; None: it is a tenant's."""
    return name.removeprefix(_ORGANISATION) if name.startswith(_ORGANISATION) else None


_DECODER: Final = msgspec.json.Decoder(StoredTenant)
_ENCODER: Final = msgspec.json.Encoder()


def encoded(record: StoredTenant) -> bytes:
    return _ENCODER.encode(record)


def decoded(data: bytes) -> StoredTenant:
    """Raises `msgspec.DecodeError` for what is no record. Fields of later versions are passed over."""
    return _DECODER.decode(data)
