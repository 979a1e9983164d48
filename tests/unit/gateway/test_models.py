"""`/v1/models`: what a tenant may use, under every name, and nothing of what it may not."""

import json

import pytest

from config.model import Config
from gateway.call import Request
from gateway.errors import ModelNotFound
from gateway.models import card, cards
from tests.unit.gateway.samples import BEARER, config
from tests.unit.gateway.wholes import CREATED, Front, snapshot

MODELS = {
    "demo": {"aliases": ["gpt-4o-mini"], "geometry": "llama-3.1-8b", "engine_name": "internal-name"},
    "org/large": {"geometry": "llama-3.1-8b", "context_limit_tokens": "8k"},
}


def loaded(*allowed: str) -> Config:
    changes: list[tuple[str, object]] = [("models", MODELS), ("pools/main/models", list(MODELS))]
    return config(*changes, *([("tenants/acme/models", list(allowed))] if allowed else []))


def ids(of: Config) -> list[object]:
    made = snapshot(of)
    listed = cards(made, made.tenants.identify(BEARER))["data"]
    assert isinstance(listed, list)
    return [entry["id"] for entry in listed]


def test_every_name_and_alias_is_listed() -> None:
    assert set(ids(loaded())) == {"demo", "gpt-4o-mini", "org/large"}


def test_an_allow_list_bounds_what_is_listed_and_found() -> None:
    assert ids(loaded("org/large")) == ["org/large"]
    assert set(ids(loaded("gpt-4o-mini"))) == {"demo", "gpt-4o-mini"}  # an alias allows the model


@pytest.mark.parametrize("name", ["demo", "gpt-4o-mini", "nothing", ""])
def test_a_model_that_is_not_allowed_reads_like_one_that_does_not_exist(name: str) -> None:
    made = snapshot(loaded("org/large"))
    with pytest.raises(ModelNotFound) as refused:
        card(made, made.tenants.identify(BEARER), name)
    assert refused.value.message == f"The model `{name}` does not exist or is not open to you."


def test_a_long_name_is_not_repeated_whole() -> None:
    made = snapshot(loaded())
    with pytest.raises(ModelNotFound) as refused:
        card(made, made.tenants.identify(BEARER), "x" * 10_000)
    assert len(refused.value.message) < 300


def test_a_card() -> None:
    made = snapshot(loaded())
    caller = made.tenants.identify(BEARER)
    alias = {"id": "gpt-4o-mini", "object": "model", "created": CREATED, "owned_by": "kvgate"}
    assert card(made, caller, "gpt-4o-mini") == alias
    assert card(made, caller, "org/large")["max_model_len"] == 8_000


def test_a_limit_that_is_not_configured_is_what_every_engine_can_take() -> None:
    made = snapshot(loaded())
    caller = made.tenants.identify(BEARER)
    pool = made.pools["main"].pool
    pool.learn(pool.replicas[0].name, load=None, max_model_len=4096)
    assert card(made, caller, "demo")["max_model_len"] == 4096
    assert card(made, caller, "org/large")["max_model_len"] == 8_000


@pytest.mark.parametrize("path", ["/v1/models/org/large", "/v1/models/org%2Flarge", "/v1/models/org%2flarge"])
async def test_a_name_with_a_slash_can_be_asked_for(path: str) -> None:
    answer = await Front(loaded()).ask(Request("GET", path, BEARER))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["id"] == "org/large"


async def test_nothing_tells_where_a_model_runs() -> None:
    answer = await Front(loaded()).ask(Request("GET", "/v1/models", BEARER))
    assert b"internal-name" not in answer
    assert b"127.0.0.1" not in answer


def test_a_service_is_made_once() -> None:
    made = snapshot(loaded())
    caller = made.tenants.identify(BEARER)
    assert made.service(caller, "demo") is made.service(caller, "demo")
    assert made.service(caller, "gpt-4o-mini").model is made.service(caller, "demo").model
