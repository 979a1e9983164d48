"""Files that are right, files that are wrong, and how every mistake is told."""

import json
from pathlib import Path

import pytest

import config as package
from config.load import load, parse, schema
from config.problems import ConfigError, Problem
from tests.unit.config.samples import DIGEST, changed, config, problems, problems_of

HERE = Path(package.__file__).parent


@pytest.mark.parametrize("name", ["demo.yaml", "example.yaml"])
def test_the_files_we_ship_are_right(name: str) -> None:
    assert load(HERE / name) == load(HERE / name)


def test_the_demo_knows_the_key_that_it_prints() -> None:
    demo = load(HERE / "demo.yaml")
    assert demo.tenants["demo"].keys[0].sha256 == "3e0d2fcfa074e6300f7d4f6f15fcad9a4f12255fd20bc4f69a9036b348dc4c34"
    assert [pool.phase for pool in demo.pools.values()] == ["prefill", "decode"]
    urls = [replica.url for pool in demo.pools.values() for replica in pool.replicas]
    assert urls == [f"http://127.0.0.1:{port}" for port in (9001, 9002, 9003, 9004)]


def test_the_example_admits_nobody_until_a_key_is_put_in() -> None:
    assert [key.sha256 for key in load(HERE / "example.yaml").tenants["acme"].keys] == ["0" * 64]


def test_the_right_file_has_no_problems() -> None:
    assert problems() == {}


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "no.yaml")
    assert str(caught.value) == f"{tmp_path / 'no.yaml'}: No such file or directory"


def test_a_folder_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "binary").write_bytes(b"models: \xff")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 8\)"):
        load(tmp_path / "binary")


def test_all_mistakes_are_told_at_once_with_their_lines() -> None:
    text = f"""
models:
  demo: {{geometry: llama-3.1-8b}}
pools:
  main:
    models: [dmeo]
    hardware: h100-smx
    replicas: [http://127.0.0.1:9001]
tiers:
  standard:
    context: {{high_water_tokens: 8k, low_water_tokens: 9k}}
  broken: {{prio: 1}}
tenants:
  acme:
    tier: standrad
    keys: [{{name: a, sha256: {DIGEST}}}]
  emca:
    tier: broken
    keys: [{{name: a, sha256: {DIGEST}}}]
"""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.problems == (
        Problem("pools.main.hardware", "unknown hardware 'h100-smx'; did you mean 'h100-sxm'?", 7),
        Problem(
            "tiers.standard.context.low_water_tokens",
            "9000 must be below high_water_tokens (8000); lower it or raise high_water_tokens",
            11,
        ),
        Problem(
            "tiers.standard.context.high_water_tokens",
            "has no effect without a window; add {kind: keep_recent_turns} to the policies",
            11,
        ),
        Problem("tiers.broken.prio", "unknown field; did you mean 'priority'?", 12),
        Problem("tenants.acme.tier", "unknown tier 'standrad'; did you mean 'standard'?", 15),
        Problem(
            "tenants.emca.keys[0].sha256",
            "the key 'a' is the same as 'acme.a'; a key belongs to one tenant, once",
            19,
        ),
    )


def test_a_broken_part_is_not_called_missing() -> None:
    """The tier, pool and model exist; that they have mistakes of their own is said once, of them."""
    found = problems(("tiers/standard/priority", "high"), ("pools/main/max_concurrent", 0), ("models/demo/encoding", 7))
    assert found.keys() == {"tiers.standard.priority", "pools.main.max_concurrent", "models.demo.encoding"}


def test_a_file_of_nothing_names_every_section() -> None:
    assert problems_of({}) == dict.fromkeys(("models", "pools", "tiers", "tenants"), "this field is needed")


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_a_section_that_is_no_mapping(value: object) -> None:
    assert problems(("tiers", value))["tiers"] == "expected a mapping"


def test_routing_and_unknown_sections() -> None:
    found = problems(("routing", {"attempts": 0, "atempts": 2}), ("tennants", {}))
    assert found == {
        "routing.attempts": "input should be greater than or equal to 1, not 0",
        "routing.atempts": "unknown field; did you mean 'attempts'?",
        "tennants": "unknown field; did you mean 'tenants'?",
    }


@pytest.mark.parametrize(
    ("place", "value", "where", "expected"),
    [
        ("tiers/standard/session", {"tll": "1m"}, "tiers.standard.session.tll", "did you mean 'ttl'?"),
        ("tiers/standard/session", {"ttl": "half"}, "tiers.standard.session.ttl", "expected a duration such as 250ms"),
        ("tiers/standard/session", {"ttl": "half"}, "tiers.standard.session.ttl", "not 'half'"),
        (
            "tiers/standard/policies/0/kind",
            "trim_tool",
            "tiers.standard.policies[0]",
            "did you mean 'trim_tool_output'?",
        ),
        ("tiers/standard/policies/0/kind", "zzz", "tiers.standard.policies[0]", "known here: cap_context, clear_"),
        ("tiers/standard/policies/0", {}, "tiers.standard.policies[0]", "it needs a kind"),
        ("tiers/standard/policies/0/max_tokenz", 1, "tiers.standard.policies[0].max_tokenz", "mean 'max_tokens'?"),
        ("tiers/standard/policies/0/max_tokens", 1, "tiers.standard.policies[0].max_tokens", "equal to 64, not 1"),
        ("tiers/standard/policies/1/low_water_tokens", 9, "tiers.standard.policies[1]", "needs high_water_tokens"),
        ("tiers/standard/budgets/0/amount", 0, "tiers.standard.budgets[0].amount", "greater than 0, not 0"),
        ("tiers/standard/budgets/0/amount", "2TB", "tiers.standard.budgets[0].amount", "expected a count such as"),
        (
            "tiers/standard/budgets/0/amount",
            10**40,
            "tiers.standard.budgets[0].amount",
            "at most 9000000000000 in total_tokens",
        ),
        ("tiers/standard/budgets/0/amount", 10**40, "tiers.standard.budgets[0].amount", f"total_tokens, not {10**40}"),
        ("tiers/standard/budgets/0/burst", "10p", "tiers.standard.budgets[0].burst", "in total_tokens, not '10p'"),
        ("tiers/standard/budgets/0/per", "0s", "tiers.standard.budgets[0].per", "greater than 0, not '0s'"),
        ("tiers/standard/budgets/0/dimension", "tokens", "tiers.standard.budgets[0].dimension", "'total_tokens'"),
        ("tiers/standard/name", "other", "tiers.standard", "unknown field"),
        ("tenants/acme/keys/0/sha256", "abc", "tenants.acme.keys[0].sha256", "expected the 64 hex digits"),
        ("pools/main/replicas", [], "pools.main.replicas", "at least 1 item"),
        ("pools/main/models", [], "pools.main.models", "at least 1 item"),
        ("pools/main/engine", "vlm", "pools.main.engine", "'vllm', 'tgi', 'sglang' or 'openai', not 'vlm'"),
        ("models/demo/geometry", "lama-3.1-8b", "models.demo.geometry", "did you mean 'llama-3.1-8b'?"),
        ("models/demo/kv_dtype", "int4", "models.demo.kv_dtype", "'bf16', 'fp8' or 'nvfp4', not 'int4'"),
        ("models/demo/geometry", {"hidden": 8, "attention": []}, "models.demo.geometry.total_params", "is needed"),
        ("models/demo/geometry", 3, "models.demo.geometry", "expected a mapping of fields"),
        ("models/demo", "llama-3.1-8b", "models.demo", "expected a mapping of fields"),
        ("pools/main/replicas", "http://a:1", "pools.main.replicas", "expected a list"),
        ("models/a b", {"geometry": "tiny"}, "models.a b", "should match pattern"),
        ("tenants/{acme}", {"tier": "standard"}, "tenants.{acme}", "should match pattern"),
        ("tenants/acme/tier", None, "tenants.acme.tier", "valid string"),
    ],
)
def test_a_mistake_is_told_at_its_place(place: str, value: object, where: str, expected: str) -> None:
    found = problems((place, value))
    assert expected in found[where]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("tenants/acme/keys/0/sha256", "sk-very-secret"),
        ("tenants/acme/keys/0/key", "sk-very-secret"),
        ("tenants/acme/keys/0", "sk-very-secret"),
        ("tenants/acme/keys", "sk-very-secret"),
        ("tenants/acme/api_key", "sk-very-secret"),
        ("tenants/acme", "sk-very-secret"),
        ("pools/main/engine_key", "sk-very-secret"),
        ("pools/main/engine_key", "env:sk-very-secret"),
        ("pools/main/engine_key", {"value": "sk-very-secret"}),
        ("pools/main/replicas/0", "http://user:sk-very-secret@host:1"),
        ("pools/main/replicas/0", {"url": "http://sk-very-secret@host:1"}),
        ("pools/main/replicas/0", {"url": "http://host:1", "key": "sk-very-secret"}),
    ],
)
def test_a_secret_is_never_repeated(place: str, value: object) -> None:
    found = problems((place, value))
    assert len(found) == 1
    assert "very-secret" not in str(found)


def test_the_schema_describes_the_file() -> None:
    described = schema()
    assert json.loads(json.dumps(described)) == described
    assert set(described["properties"]) == {"models", "pools", "routing", "tiers", "organisations", "tenants"}
    assert {"ttl", "absolute_ttl"} <= set(described["$defs"]["Session"]["properties"])


def test_a_models_own_config_json_is_read_from_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "hidden_size": 576,
                "intermediate_size": 1536,
                "num_hidden_layers": 30,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "vocab_size": 49152,
            }
        )
    )
    (tmp_path / "kvgate.yaml").write_text(json.dumps(changed(("models/demo/geometry", {"config_json": "config.json"}))))
    assert load(tmp_path / "kvgate.yaml").models["demo"].geometry.kv_bytes_per_token == 30 * 2 * 3 * 64 * 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[]", "is not a model's config.json"),
        ('{"layer_types": 5, "num_hidden_layers": 1}', "is not a model's config.json"),
        ("{}", "has no num_hidden_layers"),
    ],
)
def test_a_config_json_that_cannot_be_used(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    text = json.dumps(changed(("models/demo/geometry", {"config_json": str(tmp_path / "config.json")})))
    with pytest.raises(ConfigError, match=expected) as caught:
        parse(text)
    assert caught.value.problems[0].place == "models.demo.geometry"


def test_nothing_of_a_configuration_can_be_changed() -> None:
    loaded = config()
    with pytest.raises(TypeError):
        loaded.tiers["new"] = loaded.tiers["standard"]  # type: ignore[index]
    with pytest.raises(ValueError, match="frozen"):
        loaded.tiers["standard"].priority = 3  # type: ignore[misc]
