"""`kvgate tenants`, `keys` and `limits`: what they print and what they refuse; a key is printed once and alone."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gateway.cli import app
from gateway.embedded import EmbeddedServer
from gateway.keys import PREFIX
from gateway.store import Store
from gateway.tasks import Tasks
from tests.conftest import PATIENT
from tests.house import document

Kvgate = Callable[..., Result]


async def flush(url: str) -> None:
    tasks = Tasks()
    store = await Store.connect(url, tasks, PATIENT)
    await store.command("FLUSHALL")
    store.close()
    await tasks.close()


@pytest.fixture
def kvgate(valkey: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kvgate:
    """Runs a command on a store that was empty when the test began."""
    asyncio.run(flush(valkey.url))
    data = document({"any": {"one": "http://127.0.0.1:1"}})
    data["organisations"] = {
        "group": {"budgets": [{"name": "all", "dimension": "requests", "amount": 9, "every": "month"}]}
    }
    data["tiers"]["standard"]["budgets"].append({"name": "lanes", "dimension": "concurrent_calls", "amount": 4})
    data["tiers"]["standard"]["budgets"].append(
        {"name": "reads", "dimension": "kv_read_bytes", "amount": "1TB", "per": "1000000d"}
    )
    file = tmp_path / "kvgate.yaml"
    file.write_text(yaml.safe_dump(data))
    for name, value in {"STORE_URL": valkey.url, "SECRET": "s" * 32, "CONFIG": str(file), "OPERATOR": "ann"}.items():
        monkeypatch.setenv(f"KVGATE_{name}", value)
    monkeypatch.setenv("KVGATE_DATA_DIR", str(tmp_path / "data"))
    return lambda *words, **rest: CliRunner().invoke(app, [str(word) for word in words], **rest)


def done(result: Result) -> str:
    """What stood on standard output of a command that succeeded."""
    assert (result.exit_code, result.exception) == (0, None), result.output
    return result.stdout


def refused(result: Result) -> str:
    """The one line of a command that was refused."""
    assert result.exit_code == 1, result.output
    (line,) = result.output.splitlines()
    return line


def shown(result: Result) -> Any:
    return json.loads(done(result))


def test_from_a_tenant_to_its_key_and_back(kvgate: Kvgate) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--organisation", "group", "--models", "demo"))
    made = kvgate("keys", "create", "beta", "laptop", "--expires", "90d")
    key = done(made).strip()
    assert done(made) == f"{key}\n" and key.startswith(PREFIX)
    assert made.stderr == "beta, laptop: created; this is the only time that the key is shown\n"
    rotated = done(kvgate("keys", "rotate", "beta", "laptop", "--overlap", "1h")).strip()
    assert rotated.startswith(PREFIX) and rotated != key
    head, acme, beta, _ = done(kvgate("tenants", "list")).splitlines()
    assert head.split() == ["name", "from", "tier", "organisation", "enabled", "keys", "boosts", "problem"]
    assert acme.split() == ["acme", "file", "standard", "-", "yes", "1", "0", "-"]
    assert beta.split() == ["beta", "store", "standard", "group", "yes", "1", "0", "-"]
    (laptop,) = shown(kvgate("keys", "list", "beta", "--json"))
    assert (laptop["name"], laptop["state"]) == ("laptop", "valid") and laptop["old_until"] and laptop["expires_at"]
    for command in ("disable", "enable"):
        done(kvgate("keys", command, "beta", "laptop"))
        (laptop,) = shown(kvgate("keys", "list", "beta", "--json"))
        assert laptop["state"] == ("disabled" if command == "disable" else "valid")
    done(kvgate("keys", "expire", "beta", "laptop"))
    assert shown(kvgate("keys", "list", "beta", "--json"))[0]["state"] == "expired"
    done(kvgate("keys", "expire", "beta", "laptop", "--at", "never"))
    done(kvgate("keys", "delete", "beta", "laptop"))
    assert shown(kvgate("keys", "list", "beta", "--json")) == []
    done(kvgate("tenants", "delete", "beta"))
    everything = done(kvgate("tenants", "changes", "--json")) + done(kvgate("tenants", "changes"))
    for secret in (key, rotated):
        assert secret[len(PREFIX) :] not in everything
    whats = [entry["what"] for entry in reversed(shown(kvgate("tenants", "changes", "beta", "--json")))]
    assert whats == [
        *("tenant created", "key created", "key rotated", "key disabled", "key enabled"),
        *("key expires", "key expires", "key deleted", "tenant deleted"),
    ]
    assert {entry["who"] for entry in shown(kvgate("tenants", "changes", "--json"))} == {"ann"}


def test_settings_come_from_a_file_and_are_changed_one_by_one(kvgate: Kvgate, tmp_path: Path) -> None:
    file = tmp_path / "beta.yaml"
    file.write_text("max_tokens: {default: 64, limit: 1k}\npriority: 5\n")
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--settings", file))
    done(kvgate("tenants", "set", "beta", "--settings", "-", "--unset", "priority", input='{"models": ["demo"]}'))
    (told,) = shown(kvgate("tenants", "show", "beta"))
    assert told["settings"] == {
        "tier": "standard",
        "max_tokens": {"default": 64, "limit": "1k"},
        "models": ["demo"],
    }


def test_a_tenant_of_the_file_is_switched_and_gets_keys_but_keeps_its_settings(kvgate: Kvgate) -> None:
    done(kvgate("tenants", "disable", "acme"))
    assert "no" in done(kvgate("tenants", "list")).splitlines()[1].split()
    done(kvgate("tenants", "enable", "acme"))
    done(kvgate("keys", "create", "acme", "second"))
    done(kvgate("keys", "disable", "acme", "main"))
    states = {key["name"]: (key["from"], key["state"]) for key in shown(kvgate("keys", "list", "acme", "--json"))}
    assert states == {"main": ("file", "disabled"), "second": ("store", "valid")}
    assert "stand in the file" in refused(kvgate("tenants", "set", "acme", "--tier", "standard"))
    assert "stands in the file" in refused(kvgate("tenants", "create", "acme", "--tier", "standard"))


def test_limits_are_shown_boosted_and_corrected(kvgate: Kvgate) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--organisation", "group"))
    boost = kvgate("limits", "boost", "--tenant", "beta", "--limit", "reads", "--amount", "2TB", "--until", "2h")
    done(boost)
    assert boost.stderr.startswith("beta, reads: 2TB until 20")
    done(
        kvgate(
            *("limits", "set-used", "--tenant", "beta", "--limit", "reads", "--used", "500GB"),
            *("--reason", "a report was run twice"),
        )
    )
    limits = {limit["name"]: limit for limit in shown(kvgate("limits", "list", "--tenant", "beta", "--json"))}
    assert limits.keys() == {"all", "tokens", "lanes", "reads"}
    assert limits["reads"]["limit"] == 2 * 10**12
    assert 4.999e11 < limits["reads"]["used"] <= 5e11
    assert limits["all"]["scope"] == "organisation:group"
    done(
        kvgate(
            *("limits", "set-used", "--tenant", "beta", "--limit", "all", "--organisation", "--used", "9"),
            *("--reason", "counted elsewhere"),
        )
    )
    assert "all " in done(kvgate("limits", "list", "--tenant", "beta"))
    limits = {limit["name"]: limit for limit in shown(kvgate("limits", "list", "--tenant", "beta", "--json"))}
    assert (limits["all"]["used"], limits["all"]["remaining"]) == (9, 0)
    done(kvgate("limits", "end-boost", "--tenant", "beta", "--limit", "reads"))
    entries = shown(kvgate("tenants", "changes", "beta", "--json"))
    assert entries[2]["detail"]["reason"] == "a report was run twice"


def test_a_limit_of_the_organisation_and_one_of_sessions_are_boosted(kvgate: Kvgate) -> None:
    session = {"ttl": "1h", "budgets": [{"name": "turns", "dimension": "requests", "amount": 9, "every": "day"}]}
    settings = ("--settings", "-")
    made = ("tenants", "create", "beta", "--tier", "standard", "--organisation", "group", *settings)
    done(kvgate(*made, input=json.dumps({"session": session})))
    more = ("--amount", "20", "--until", "2h")
    shared = kvgate("limits", "boost", "--tenant", "beta", "--organisation", "--limit", "all", *more)
    done(shared)
    assert shared.stderr.startswith("beta, all of its organisation: 20 until 20")
    done(kvgate("limits", "boost", "--tenant", "beta", "--session", "chat-7", "--limit", "turns", *more))
    asked = ("limits", "list", "--tenant", "beta", "--session", "chat-7", "--json")
    limits = {limit["scope"]: limit["limit"] for limit in shown(kvgate(*asked)) if limit["name"] in ("all", "turns")}
    assert limits == {"organisation:group": 20, "session:chat-7": 20}
    assert shown(kvgate("tenants", "changes", "organisation/group", "--json"))[0]["what"] == "limit boosted"
    for place in (("--organisation", "--limit", "all"), ("--session", "chat-7", "--limit", "turns")):
        done(kvgate("limits", "end-boost", "--tenant", "beta", *place))
    limits = {limit["scope"]: limit["limit"] for limit in shown(kvgate(*asked)) if limit["name"] in ("all", "turns")}
    assert limits == {"organisation:group": 9, "session:chat-7": 9}


KEY_LIKE = PREFIX + "x" * 43
ACME = ("--tenant", "acme", "--limit")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tenants", "show", "nobody"), "there is no tenant 'nobody'"),
        (("tenants", "show", KEY_LIKE), "there is no tenant '(a key)'"),
        (("tenants", "create", "beta", "--tier", "gold"), "tier: unknown tier 'gold'"),
        (("tenants", "create", "beta"), "tier: this field is needed"),
        (("tenants", "create", "b/c", "--tier", "standard"), "1 to 64 letters"),
        (("tenants", "create", KEY_LIKE, "--tier", "standard"), "a key is no name"),
        (("tenants", "set", "nobody", "--tier", "standard"), "there is no tenant"),
        (("tenants", "set", "nobody"), "nothing to change"),
        (("tenants", "delete", "acme"), "the store has no record of 'acme'"),
        (("tenants", "enable", "acme", "--as", KEY_LIKE), "and no key"),
        (("keys", "create", "nobody", "laptop"), "there is no tenant"),
        (("keys", "create", "acme", "main"), "has a key 'main' already"),
        (("keys", "create", "acme", KEY_LIKE), "a key is no name"),
        (("keys", "create", "acme", "laptop", "--expires", "soon"), "--expires: expected a duration"),
        (("keys", "create", "acme", "laptop", "--expires", "2020-01-01"), "which is past"),
        (("keys", "rotate", "acme", "main"), "has no key 'main' in the store"),
        (("keys", "rotate", "acme", "main", "--overlap", "long"), "--overlap: expected a duration"),
        (("limits", "list", "--tenant", "acme", "--key", "nothing"), "has no key 'nothing'; known: main"),
        (("limits", "boost", *ACME, "x", "--amount", "4", "--until", "2h"), "known: tokens, lanes, reads"),
        (("limits", "boost", *ACME, "reads", "--amount", "4x", "--until", "2h"), "amount: expected a size"),
        (("limits", "boost", *ACME, "reads", "--amount", "0", "--until", "2h"), "amount: expected at least 1"),
        (("limits", "boost", *ACME, "reads", "--amount", f"1{'0' * 25}", "--until", "2h"), "in kv_read_bytes, not"),
        (
            ("limits", "boost", *ACME, "tokens", "--amount", "1", "--burst", "10000g", "--until", "2h"),
            "burst: expected",
        ),
        (
            ("limits", "set-used", *ACME, "reads", "--used", "9" * 40, "--reason", "why"),
            f"kv_read_bytes, not '{'9' * 40}'",
        ),
        (("limits", "boost", *ACME, "lanes", "--amount", "9", "--burst", "9", "--until", "2h"), "burst is of rates"),
        (("limits", "boost", *ACME, "reads", "--amount", "4", "--until", "2020-01-01"), "which is past"),
        (("limits", "set-used", *ACME, "lanes", "--used", "0", "--reason", "why"), "cannot be set"),
        (("limits", "set-used", *ACME, "reads", "--used", "0", "--reason", ""), "reason"),
        (("limits", "set-used", *ACME, "reads", "--used", "0", "--reason", f"for {KEY_LIKE}"), "reason"),
        (("limits", "end-boost", *ACME, "reads"), "no boost of 'reads'"),
        (("limits", "end-boost", *ACME, "all", "--organisation"), "'acme' is in no organisation"),
        (("limits", "set-used", *ACME, "reads", "--used", "0", "--reason", "why", "--session", "*"), "name one"),
        (("limits", "list", "--tenant", "acme", "--session", "no id"), "the session: expected an id"),
        (("tenants", "delete", "organisation/group"), "the store has no record of 'organisation/group'"),
    ],
)
def test_what_is_refused_is_one_line_and_changes_nothing(kvgate: Kvgate, words: tuple[str, ...], said: str) -> None:
    line = refused(kvgate(*words))
    assert said in line and KEY_LIKE not in line
    assert shown(kvgate("tenants", "changes", "--json")) == []


def test_a_key_is_made_only_with_the_secret_of_the_gateways(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    done(kvgate("keys", "create", "acme", "one"))
    monkeypatch.setenv("KVGATE_SECRET", "t" * 32)
    assert "made with another secret" in refused(kvgate("keys", "create", "acme", "two"))
    monkeypatch.delenv("KVGATE_SECRET")
    assert "set KVGATE_SECRET to the one of the gateways" in refused(kvgate("keys", "create", "acme", "two"))
    done(kvgate("keys", "disable", "acme", "one"))


def test_a_store_that_is_away_is_one_line(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVGATE_STORE_URL", f"unix://{tmp_path}/nothing.sock")
    assert "no store at" in refused(kvgate("tenants", "list"))


def test_other_commands_know_the_tenants_of_the_store(kvgate: Kvgate, tmp_path: Path) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--organisation", "group"))
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}))
    assert done(kvgate("plan", body, "--tenant", "beta")).startswith("tenant beta, tier standard, model demo\n")
    assert refused(kvgate("plan", body, "--tenant", "nobody")).endswith("In the store: there is no tenant 'nobody'")
    assert done(kvgate("usage", "--tenant", "beta")).startswith("tenant,model,day,calls,")
    assert refused(kvgate("usage", "--tenant", "nobody")) == "there is no tenant 'nobody'; known: acme, beta, zeta"
    done(kvgate("tenants", "delete", "beta"))
    assert done(kvgate("usage", "--tenant", "beta")).startswith("tenant,model,day,calls,")


def test_the_store_s_tenants_are_checked_against_another_file(kvgate: Kvgate, tmp_path: Path) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard", "--models", "demo"))
    file = tmp_path / "kvgate.yaml"
    of_store, of_file = done(kvgate("check", file, "--store")).splitlines()
    assert of_store == "the store: right. 1 tenant."
    assert of_file.endswith(" 1 model, 1 pool, 1 tier, 2 tenants.")
    other = yaml.safe_load(file.read_text())
    other["tiers"]["gold"] = other["tiers"].pop("standard")
    for tenant in other["tenants"].values():
        tenant["tier"] = "gold"
    file.write_text(yaml.safe_dump(other))
    assert (
        refused(kvgate("check", file, "--store"))
        == "the store, tenant beta: tier: unknown tier 'standard'; known here: gold"
    )


def test_the_name_of_a_deleted_tenant_is_used_again_only_if_told(kvgate: Kvgate) -> None:
    words = ("tenants", "create", "beta", "--tier", "standard")
    done(kvgate(*words))
    done(kvgate("tenants", "delete", "beta"))
    assert "there was a tenant 'beta' before" in refused(kvgate(*words))
    done(kvgate(*words, "--again"))
    assert "already" in refused(kvgate(*words))


def test_deleting_what_the_store_adds_never_switches_anything_on_again(kvgate: Kvgate) -> None:
    done(kvgate("tenants", "disable", "acme"))
    assert "enable it first" in refused(kvgate("tenants", "delete", "acme"))
    done(kvgate("tenants", "enable", "acme"))
    done(kvgate("keys", "disable", "acme", "main"))
    assert "enable it first" in refused(kvgate("tenants", "delete", "acme"))
    done(kvgate("keys", "enable", "acme", "main"))
    assert "the store has no record of 'acme'" in refused(kvgate("tenants", "delete", "acme"))


def test_a_record_that_the_file_hides_is_not_changed_but_deleted(kvgate: Kvgate, tmp_path: Path) -> None:
    done(kvgate("tenants", "create", "beta", "--tier", "standard"))
    done(kvgate("keys", "create", "beta", "main"))
    file = tmp_path / "kvgate.yaml"
    data = yaml.safe_load(file.read_text())
    data["tenants"]["beta"] = {"tier": "standard"}
    file.write_text(yaml.safe_dump(data))
    for words in (
        ("tenants", "disable", "beta"),
        ("keys", "rotate", "beta", "main"),
        ("keys", "create", "beta", "two"),
    ):
        assert "the file has a tenant of this name" in refused(kvgate(*words))
    assert "does not count" in refused(kvgate("check", file, "--store"))
    done(kvgate("tenants", "delete", "beta"))
    done(kvgate("keys", "create", "beta", "two"))


def test_a_span_that_ends_before_it_begins_is_a_slip(kvgate: Kvgate) -> None:
    line = refused(kvgate("usage", "--since", "2026-12-05", "--until", "2026-12-01"))
    assert line == "--until 2026-12-01 is before --since 2026-12-05"
