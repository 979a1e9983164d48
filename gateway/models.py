"""`/v1/models` of the OpenAI API: what a tenant may use, by every name it may use it under.

Rule: the context limit told is the configured one, else what the engines report; nothing tells where a model runs.
"""

from gateway.snapshot import Snapshot
from gateway.tenants import Caller

Card = dict[str, object]


def cards(snapshot: Snapshot, caller: Caller) -> dict[str, object]:
    """The list object."""
    names = [name for model in snapshot.config.models.values() for name in (model.name, *model.aliases)]
    return {"object": "list", "data": [_card(snapshot, name) for name in names if snapshot.allows(caller, name)]}


def card(snapshot: Snapshot, caller: Caller, name: str) -> Card:
    """One model. Raises `ModelNotFound`, the same for a model that does not exist and for one not allowed."""
    snapshot.model(caller, name)
    return _card(snapshot, name)


def _card(snapshot: Snapshot, name: str) -> Card:
    model = snapshot.config.model_named(name)
    limit = snapshot.context_limit(model) if model is not None else None
    told: Card = {"id": name, "object": "model", "created": snapshot.created, "owned_by": "kvgate"}
    return told | ({"max_model_len": limit} if limit is not None else {})
