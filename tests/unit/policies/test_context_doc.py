"""docs/context.md tells of every policy and every setting, and its examples can be copied."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from config.tiers import IdentitySource, Policies, Tier
from policies.policy import Policy

DOC = (Path(__file__).parents[3] / "docs" / "context.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
MODELS: tuple[type[BaseModel], ...] = get_args(get_args(Policy)[0])


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_examples_are_policies_or_parts_of_a_tier(block: str) -> None:
    example = yaml.safe_load(block)
    if isinstance(example, list):
        TypeAdapter(Policies).validate_python(example)
    else:
        Tier.model_validate(example)


def test_the_first_example_is_a_tier() -> None:
    for tier in yaml.safe_load(BLOCKS[0])["tiers"].values():
        Tier.model_validate(tier)


@pytest.mark.parametrize("source", get_args(IdentitySource))
def test_every_source_of_identity_is_told_of(source: str) -> None:
    _, _, section = DOC.partition("## Sessions")
    assert f"`{source}`" in section.partition("\n## ")[0]


@pytest.mark.parametrize("model", MODELS)
def test_every_policy_and_setting_is_told_of(model: type[BaseModel]) -> None:
    kind = model.model_fields["kind"].default
    _, _, section = DOC.partition(f"### {kind}\n")
    section = section.partition("\n### ")[0]
    names = {field.alias or name for name, field in model.model_fields.items()} - {"kind", "mode"}
    missing = [name for name in names if name not in section]
    assert section and not missing
