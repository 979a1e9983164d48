"""A small file that is right, and ways to make it wrong."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from config.load import parse
from config.model import Config
from config.problems import ConfigError

DIGEST = "ab" * 32

RIGHT: Mapping[str, Any] = {
    "models": {"demo": {"aliases": ["gpt-4o-mini"], "geometry": "llama-3.1-8b"}},
    "pools": {"main": {"models": ["demo"], "hardware": "h100-sxm", "replicas": ["http://127.0.0.1:9001"]}},
    "tiers": {
        "standard": {
            "context": {"limit_tokens": "32k", "high_water_tokens": "24k", "low_water_tokens": "16k"},
            "max_tokens": {"default": 1024, "limit": 4096},
            "policies": [{"kind": "trim_tool_output", "max_tokens": "2k"}, {"kind": "keep_recent_turns"}],
            "budgets": [{"dimension": "total_tokens", "amount": "200k", "per": "1m"}],
        }
    },
    "tenants": {"acme": {"tier": "standard", "keys": [{"name": "laptop", "sha256": DIGEST}]}},
}


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The right file with values set at places such as `tiers/standard/policies/0/kind`."""
    data = deepcopy(dict(RIGHT))
    for place, value in changes:
        *way, last = (int(step) if step.isdigit() else step for step in place.split("/"))
        part: Any = data
        for step in way:
            part = part[step]
        part[last] = value
    return data


def config(*changes: tuple[str, Any]) -> Config:
    """The right file, changed, as a configuration."""
    return parse(yaml.safe_dump(changed(*changes)))


def problems(*changes: tuple[str, Any]) -> dict[str, str]:
    """Messages by place of the right file after these changes; empty if it is still right."""
    return problems_of(changed(*changes))


def problems_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Messages by place of a file with this data."""
    try:
        parse(yaml.safe_dump(dict(data), sort_keys=False))
    except ConfigError as fault:
        return {problem.place: problem.message for problem in fault.problems}
    return {}
