"""`kvgate explain`: what it foretells is what a reservation then meets, and it repeats no key and no prompt."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from budgets.foresight import NEVER, wait_seconds
from budgets.grant import Denied, Grant
from budgets.lease import Amounts
from budgets.ledger import reserve, settle
from budgets.limit import Limit
from budgets.scope import Scope
from gateway.keys import PREFIX
from gateway.statements import stated
from gateway.store import Store
from tests.house import KEY
from tests.integration.test_cli_tenants import Kvgate, done, kvgate, refused

__all__ = ["kvgate"]  # the fixture

PROMPT = "the launch code is 0000"


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    file = tmp_path / "request.json"
    body = {"model": "demo", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100, "stream": True}
    file.write_text(json.dumps(body))
    return file


def test_a_key_from_standard_input_is_explained(kvgate: Kvgate, request_file: Path) -> None:
    text = done(kvgate("explain", request_file, "--key", "-", input=f"{KEY}\n"))
    who, expected, head, *rows, verdict = text.splitlines()
    assert who.startswith("tenant acme, key main, tier standard, model demo, session d-")
    assert expected.startswith("expected: ") and expected.endswith(" generated")
    assert head.split() == ["limit", "of", "dimension", "asks", "used", "reserved", "holds", "remaining", "passes"]
    assert [row.split()[0] for row in rows] == ["tokens", "lanes", "reads"]
    assert all(row.endswith("now") for row in rows) and verdict == "it would pass now"
    assert KEY not in text and "launch" not in text


@pytest.mark.parametrize(
    ("body", "generated"), [({"input": ["Hello", "you"]}, 0), ({"prompt": ["a", "b"], "max_tokens": 9, "n": 2}, 36)]
)
def test_embeddings_and_completions_are_explained_as_well(
    kvgate: Kvgate, tmp_path: Path, body: dict[str, Any], generated: int
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"model": "demo"} | body))
    told = json.loads(done(kvgate("explain", file, "--tenant", "acme", "--json")))
    assert told["head"][1].endswith(f" prompt tokens, {generated} generated")
    assert told["limits"][0]["asks"] > generated


def test_a_key_of_the_store_from_the_environment_or_a_name(
    kvgate: Kvgate, request_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--organisation", "group"))
    key = done(kvgate("keys", "create", "beta", "laptop")).strip()
    monkeypatch.setenv("KVGATE_KEY", key)
    by_key = json.loads(done(kvgate("explain", request_file, "--json")))
    by_name = json.loads(done(kvgate("explain", request_file, "--tenant", "beta", "--key-name", "laptop", "--json")))
    assert by_key["head"] == by_name["head"] and by_key["limits"][0]["of"] == "organisation:group"
    assert [limit["limit"] for limit in by_key["limits"]] == ["all", "tokens", "lanes", "reads"]


@pytest.mark.parametrize(
    ("limit", "used", "said"),
    [
        ("all", "9", "it would be refused by all of organisation:group, and pass in "),
        ("tokens", "1g", "it would be refused by tokens of tenant:beta, and pass in "),
    ],
)
def test_a_request_that_would_be_refused_says_by_what_and_until_when(
    kvgate: Kvgate, request_file: Path, limit: str, used: str, said: str
) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--organisation", "group"))
    where = ("--tenant", "beta", "--limit", limit, *(("--organisation",) if limit == "all" else ()))
    done(kvgate("limits", "set-used", *where, "--used", used, "--reason", "a test"))
    verdict = done(kvgate("explain", request_file, "--tenant", "beta")).splitlines()[-1]
    assert verdict.startswith(said) and verdict.endswith("if nobody else uses any")


def test_a_soft_limit_that_is_reached_is_told_and_reckoned_with(
    kvgate: Kvgate, request_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "kvgate.yaml"
    data = yaml.safe_load(file.read_text())
    data["tiers"]["standard"]["soft"] = [{"at": "80%", "of": ["tokens"], "max_tokens": 10}]
    file.write_text(yaml.safe_dump(data))
    words = ("explain", request_file, "--tenant", "acme", "--json")
    before = json.loads(done(kvgate(*words)))
    assert len(before["head"]) == 2
    where = ("--tenant", "acme", "--limit", "tokens", "--reason", "a test")
    done(kvgate("limits", "set-used", *where, "--used", "999_999_950"))
    told = json.loads(done(kvgate(*words)))
    assert told["head"][2] == "soft limit: tokens is in use to 80% or more; the tier gives less: max_tokens 10"
    assert told["limits"][0]["asks"] < before["limits"][0]["asks"] <= 200 and told["verdict"] == "it would pass now"


def test_an_operator_is_told_why_a_key_is_refused(kvgate: Kvgate, request_file: Path) -> None:
    key = done(kvgate("keys", "create", "acme", "laptop")).strip()

    def why(given: str = key) -> str:
        line = refused(kvgate("explain", request_file, "--key", "-", input=given))
        assert given[len(PREFIX) :] not in line
        return line

    new = done(kvgate("keys", "rotate", "acme", "laptop", "--overlap", "0s")).strip()
    assert why() == "The API key is not valid here."
    done(kvgate("keys", "disable", "acme", "laptop"))
    assert why(new) == "The key 'laptop' of 'acme' is refused: disabled."
    done(kvgate("keys", "enable", "acme", "laptop"))
    done(kvgate("keys", "expire", "acme", "laptop"))
    assert why(new) == "The key 'laptop' of 'acme' is refused: expired."
    done(kvgate("tenants", "disable", "acme"))
    assert why(KEY) == "The key 'main' of 'acme' is refused: its tenant is disabled."
    assert why("sk-nobody-has-this-one") == "The API key is not valid here."


@pytest.mark.parametrize(
    ("words", "body", "said"),
    [
        ((), {}, "say whose request it is"),
        (("--tenant", "nobody"), {}, "there is no tenant 'nobody'"),
        (("--tenant", "acme", "--key-name", "x"), {}, "has no key 'x'; known: main"),
        (("--tenant", "acme"), {"model": "gpt-9"}, "gpt-9"),
        (("--tenant", "acme"), {"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    kvgate: Kvgate, tmp_path: Path, words: tuple[str, ...], body: dict[str, Any], said: str
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x"}]} | body))
    assert said in refused(kvgate("explain", file, *words))


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_foretold_is_what_a_reservation_meets(store: Store, seed: int) -> None:
    """Random limits, random use: the same limit refuses, and after the same time, as exactly as whole units allow."""
    rng = random.Random(seed)
    limits = (
        Limit(name="rate", dimension="total_tokens", amount=rng.randint(50, 200), per_seconds=1e6),
        Limit(name="quota", dimension="total_tokens", amount=rng.randint(50, 200), every="month"),
        Limit(name="strict", dimension="total_tokens", amount=rng.randint(80, 200), every="month", hardness="strict"),
        Limit(name="calls", dimension="requests", amount=rng.randint(3, 12), every="month"),
        Limit(name="lanes", dimension="concurrent_calls", amount=rng.randint(2, 6)),
    )
    scope = Scope("acme", limits)
    for _ in range(20):
        amounts: Amounts = {"requests": 1, "total_tokens": rng.randint(0, 60)}
        most: Amounts = {"total_tokens": amounts["total_tokens"] * 2}
        accounts, now = await stated(store, scope), time.time()
        waits = [wait_seconds(each, asked(each.terms.limit, amounts, most), now) for each in accounts]
        found = await reserve(store.run, scope, amounts, now, most)
        if isinstance(found, Grant):
            assert max(waits) == 0
            if rng.random() < 0.7:
                await settle(store.run, found, amounts)
            continue
        assert isinstance(found, Denied)
        told = dict(zip((limit.label for limit in limits), waits, strict=True))[found.label]
        assert told == max(waits) > 0
        if told == NEVER:
            assert found.never
        else:
            a_unit_seconds = 1e6 / 50
            assert found.retry_after_seconds == pytest.approx(told, abs=2 * a_unit_seconds)


def asked(limit: Limit, amounts: Amounts, most: Amounts) -> int:
    if limit.kind == "slots":
        return 1
    return (most if limit.hardness == "strict" else amounts).get(limit.dimension, 0)
