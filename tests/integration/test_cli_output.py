"""What the commands print that start nothing: `check`, `schema`, `plan`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from config.load import parse
from gateway.cli import app
from gateway.demo import CONFIG_FILE

EXAMPLE = CONFIG_FILE.with_name("example.yaml")
SECRET_TEXT = "the launch code is 0000 "


def kvgate(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def plan(folder: Path, body: object, *arguments: str) -> Result:
    request = folder / "request.json"
    request.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
    return kvgate("plan", request, "-c", CONFIG_FILE, *(arguments or ("--tenant", "demo")))


def conversation(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "demo", "messages": list(messages)}


USER: dict[str, Any] = {"role": "user", "content": "What does the file say?"}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}],
}
OUTPUT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": SECRET_TEXT * 2_000}


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        (CONFIG_FILE, "1 model, 2 pools, 2 tiers, 2 tenants."),
        (EXAMPLE, "1 model, 1 pool, 1 tier, 1 tenant."),
    ],
)
def test_the_files_that_ship_are_right(file: Path, counts: str) -> None:
    result = kvgate("check", file)
    assert result.exit_code == 0
    assert result.output == f"{file}: right. {counts}\n"


def test_the_schema_is_json_and_knows_every_section() -> None:
    schema = json.loads(kvgate("schema").output)
    assert {"models", "pools", "tiers", "tenants", "routing"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_a_plan_names_each_edit_and_shows_what_it_changes(tmp_path: Path) -> None:
    result = plan(tmp_path, conversation(USER, CALL, OUTPUT))
    assert result.exit_code == 0
    head, total, edit, *changed = result.output.splitlines()
    assert head == "tenant demo, tier standard, model demo"
    assert total.endswith("1 edits:")
    assert edit.strip().startswith("trim_tool_output: message 2, tool (read_file), shortened, ")
    assert [line.strip()[:1] for line in changed[:2]] == ["-", "+"]


def test_a_plan_without_edits_says_so(tmp_path: Path) -> None:
    assert plan(tmp_path, conversation(USER)).output.splitlines()[-1].endswith("sent as received")


def test_a_plan_goes_by_the_tenant_s_tier(tmp_path: Path) -> None:
    """What the standard tier takes is too long for the free one."""
    long = conversation({"role": "user", "content": "word " * 6_000})
    assert plan(tmp_path, long).exit_code == 0
    refused = plan(tmp_path, long, "--tenant", "demo-free")
    assert refused.exit_code == 1
    assert str(parse(CONFIG_FILE.read_text()).tiers["free"].context.limit_tokens) in refused.output


@pytest.mark.parametrize(
    ("body", "arguments", "said"),
    [
        (b"{", (), "not valid JSON"),
        ({"messages": []}, (), "model"),
        (conversation(), (), "messages"),
        ({"model": "gpt-9", "messages": [USER]}, (), "gpt-9"),
        (conversation(USER), ("--tenant", "nobody"), "known: demo, demo-free"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    tmp_path: Path, body: object, arguments: tuple[str, ...], said: str
) -> None:
    result = plan(tmp_path, body, *arguments)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1 and said in result.output


def test_a_request_that_is_missing_is_one_line(tmp_path: Path) -> None:
    result = kvgate("plan", tmp_path / "nothing.json", "--tenant", "demo", "-c", CONFIG_FILE)
    assert result.exit_code == 1
    assert result.output == f"{tmp_path / 'nothing.json'}: No such file or directory\n"
