"""`/v1/models` of the OpenAI API: what a tenant may use, by every name it may use it under.

Rule: the context limit told is the configured one, else what the engines report; nothing tells where a model runs.
"""

from gateway.snapshot import Snapshot
from gateway.tenants import Caller

Card = dict[str, object]


def cards(snapshot: Snapshot, caller: Caller) -> dict[str, object]:
    """The list object."""
    return {"object": "list", "data": [card(snapshot, caller, name) for name in snapshot.names(caller)]}


def card(snapshot: Snapshot, caller: Caller, name: str) -> Card:
    """One model. Raises `ModelNotFound`, the same for a model that does not exist and for one not allowed."""
    limit = snapshot.service(caller, name).context_limit_tokens
    told: Card = {"id": name, "object": "model", "created": snapshot.created, "owned_by": "kvgate"}
    return told | ({"max_model_len": limit} if limit is not None else {})
