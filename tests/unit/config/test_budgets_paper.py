"""What docs/budgets.md shows is what the file takes and what the closed form gives."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import token_cost
from budgets.cost import kv_read_bytes
from config.catalogue import model
from tests.unit.config.samples import changed, problems_of

PAPER = (Path(__file__).parents[3] / "docs" / "budgets.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAPER, re.DOTALL)]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_are_right(block: dict[str, Any]) -> None:
    small = {"models": ["small"], "hardware": "l4", "replicas": ["http://127.0.0.1:9002"]}
    data = changed(
        ("models/demo/aliases", ["llama"]),
        ("models/small", {"geometry": "qwen2.5-7b"}),
        ("pools/spare", small),
        ("pools/main/features", {"priority": True}),
    )
    if "budgets" in block:
        data["tiers"]["standard"] |= block
    else:
        data |= block
    assert problems_of(data) == {}


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "gemma-3-27b", "deepseek-v3"])
def test_the_table_is_the_closed_form(name: str) -> None:
    entry = model(name)
    assert entry is not None
    read = [kv_read_bytes(entry.geometry, tokens, 1) / 1e9 for tokens in (1_000, 8_000, 32_000, 128_000)]
    assert f"| {name} | {' | '.join(f'{round(each, 3):g}' for each in read)} |" in PAPER


def test_the_same_tokens_in_short_and_in_long_contexts() -> None:
    entry = model("llama-3.1-8b")
    assert entry is not None
    short, long = 50 * kv_read_bytes(entry.geometry, 1_000, 200), kv_read_bytes(entry.geometry, 50_000, 10_000)
    assert (f"{short / 1e12:.2f} TB" in PAPER, f"{long / 1e12:.1f} TB" in PAPER) == (True, True)
    assert short < 20e12 < long


def test_the_picture_and_the_prices_are_made_by_the_closed_forms() -> None:
    assert token_cost.FILE.read_text("utf-8") == token_cost.svg()
    assert "\n".join(token_cost.rows()) in PAPER


def test_the_dots_of_the_picture_are_the_table() -> None:
    for name in token_cost.MODELS:
        read = [token_cost.kv_gigabytes(token_cost.geometry_of(name), context) for context in token_cost.CONTEXTS]
        assert f"| {name} | {' | '.join(f'{round(each, 3):g}' for each in read)} |" in PAPER
