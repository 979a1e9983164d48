"""Whose budgets bound a call of one caller to one model: the organisation's, the tenant's, the key's, the session's.

Rule: a limit of one model bounds calls of that model only, under whatever name it was called.
"""

from collections.abc import Iterator

from budgets.limit import Limit
from budgets.scope import Owner, Scope
from config.models import Model
from gateway.admission import boosted
from gateway.tenants import Caller


def scope_of(caller: Caller, model: Model) -> Scope:
    """Every limit that does not depend on the session."""
    scope = Scope(caller.tenant, (), organisation=caller.may.organisation)
    for owner, limits in levels(caller):
        scope = scope.joined_by(bounding(limits, model), owner)
    return scope


def levels(caller: Caller, session: str | None = None) -> Iterator[tuple[Owner, tuple[Limit, ...]]]:
    """Owners above the session, the highest first, each with its limits; with an id, that session last."""
    tenant = Scope(caller.tenant, (), organisation=caller.may.organisation).owner
    if caller.may.organisation is not None:
        name = caller.may.organisation
        yield Owner("organisation", name, f"organisation/{name}/"), caller.may.organisation_budgets
    yield tenant, caller.may.budgets
    yield Owner("key", caller.key, f"key/{caller.tenant}/{caller.key}/"), caller.budgets
    if session is not None:
        yield session_owner(caller, session), session_limits(caller.may.session.budgets, caller, session)


def session_owner(caller: Caller, session: str) -> Owner:
    """A session of the caller's tenant, whichever key it uses."""
    return Owner("session", session, f"session/{caller.tenant}/{session}/")


def session_limits(limits: tuple[Limit, ...], caller: Caller, session: str) -> tuple[Limit, ...]:
    """The limits of a session, with the boosts of that one."""
    return boosted(limits, [boost for boost in caller.session_boosts if boost.session == session])


def bounding(limits: tuple[Limit, ...], model: Model) -> tuple[Limit, ...]:
    """Those of the limits that a call of the model is bound by."""
    names = (None, model.name, *model.aliases)
    return tuple([limit for limit in limits if limit.model in names])
