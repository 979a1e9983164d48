"""`kvgate plan` in words."""

import json

import pytest

from config.model import Config
from gateway.errors import ContextTooLong, InvalidRequest, ModelNotFound
from gateway.explain import edits
from tests.unit.gateway.samples import config


def body(result_lines: int = 0, **fields: object) -> bytes:
    made = {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    messages: list[dict[str, object]] = [{"role": "user", "content": "Look."}]
    if result_lines:
        text = "\n".join(f"line {number} of the file" for number in range(result_lines))
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "a", "content": text},
        ]
    return json.dumps({"model": "demo", "messages": messages} | fields).encode()


def loaded(*policies: dict[str, object]) -> Config:
    return config(("tiers/standard/context", {}), ("tiers/standard/policies", list(policies)))


async def test_a_short_request_is_sent_as_received() -> None:
    head, plan = (await edits(config(), "acme", body())).splitlines()
    assert head == "tenant acme, tier standard, model demo"
    assert plan.startswith("about ") and plan.endswith(" tokens, sent as received")


async def test_an_edit_is_named_with_its_policy_tool_and_size() -> None:
    trim = {"kind": "trim_tool_output", "max_tokens": 200}
    _, plan, edit, *diff, predicted = (await edits(loaded(trim), "acme", body(2_000))).splitlines()
    assert plan.endswith("1 edits:")
    assert edit.startswith("  trim_tool_output: message 2, tool (read_file), shortened, ")
    original, sent = (int(word) for word in plan.split() if word.isdigit() and word != "1")
    assert edit.endswith(f" {original - sent} tokens removed (it has just arrived)")
    gone, *_, more, come = diff
    assert gone.startswith("    - line ") and more.endswith(" lines more") and come.startswith("    + [kvgate: about ")
    assert predicted.startswith("predicted for a reply of 512 tokens: no cached prefix broken, ")


async def test_a_window_names_what_it_leaves_out() -> None:
    window: dict[str, object] = {"kind": "keep_recent_turns", "high_water_tokens": 200, "low_water_tokens": 100}
    turns = [{"role": role, "content": "some words " * 20} for role in ("user", "assistant") * 6]
    request = body(messages=[*turns, {"role": "user", "content": "More."}])
    assert "keep_recent_turns: messages " in await edits(loaded(window), "acme", request)


async def test_a_refusal_is_a_refusal_here_too() -> None:
    with pytest.raises(ContextTooLong):
        await edits(config(("tiers/standard/context", {"limit_tokens": 100})), "acme", body(500))


async def test_a_completion_is_planned_too() -> None:
    report = await edits(config(), "acme", b'{"model":"gpt-4o-mini","prompt":"Once"}')
    assert "model demo" in report


@pytest.mark.parametrize(
    ("tenant", "request_body"), [("nobody", body()), ("acme", b"{}"), ("acme", b'{"model":"demo",')]
)
async def test_what_cannot_be_planned_is_said(tenant: str, request_body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        await edits(config(), tenant, request_body)


async def test_a_model_the_tenant_may_not_use_is_refused_as_in_the_pipeline() -> None:
    two = {"demo": {"geometry": "llama-3.1-8b"}, "other": {"geometry": "llama-3.1-8b"}}
    narrow = config(("models", two), ("pools/main/models", ["demo", "other"]), ("tenants/acme/models", ["other"]))
    with pytest.raises(ModelNotFound):
        await edits(narrow, "acme", body())
    with pytest.raises(ModelNotFound):
        await edits(config(), "acme", body(model="nothing"))
