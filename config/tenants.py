"""Tenants: who may call, in which tier, and where a tenant differs from it.

Rule: the file holds digests of keys, never keys.
"""

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from config.secret import SECRET
from config.section import ModelName, Name, NamedSection, Section
from config.soft import Priority
from config.tiers import Budgets, Context, MaxTokens, Mode, Policies, Session, SoftSteps, UsageRecords

HEX_DIGITS = frozenset("0123456789abcdef")


def _digest(text: str) -> str:
    digest = text.strip().lower()
    if len(digest) != 64 or set(digest) - HEX_DIGITS:
        raise PydanticCustomError(
            SECRET, 'expected the 64 hex digits of the key\'s SHA-256; make it with: printf %s "$KEY" | sha256sum'
        )
    return digest


class Key(Section):
    """One API key of a tenant, by its SHA-256 (lower-case hex), and what it may use of what the tenant may."""

    name: Name
    sha256: Annotated[str, AfterValidator(_digest)]
    budgets: Budgets = ()


class Organisation(NamedSection):
    """Tenants that share budgets."""

    budgets: Budgets = ()


class Tenant(NamedSection):
    """One paying party. `models` None: every model. Overrides replace the tier's value field by field; lists, whole."""

    tier: Name
    organisation: Name | None = None
    keys: tuple[Key, ...] = ()
    models: tuple[ModelName, ...] | None = None
    mode: Mode | None = None
    context: Context | None = None
    max_tokens: MaxTokens | None = None
    policies: Policies | None = None
    session: Session | None = None
    budgets: Budgets | None = None
    soft: SoftSteps | None = None
    usage_records: UsageRecords | None = None
    priority: Priority | None = None
    ietf_headers: bool | None = None
