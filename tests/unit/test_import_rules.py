"""The import rules notice a breach: a copy of the tree is broken in one line, and the check must fail on it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.tree import PACKAGES, ROOT

LAYERS = "Who may import whom"
PURE = "What decides does no I/O"
REDIS = "Redis is spoken to in few places"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the code with its rules."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def check(tree: Path) -> tuple[int, str]:
    """Exit code and output of the check, run in a tree."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    wide = os.environ | {"COLUMNS": "200"}  # one line a rule
    done = subprocess.run(command, cwd=tree, env=wide, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_code_as_it_is_keeps_the_rules(tree: Path) -> None:
    code, output = check(tree)
    assert code == 0, output
    assert "0 broken" in output


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("policies/plan.py", "import socket", PURE),
        ("backends/select.py", "import time", PURE),
        ("gateway/identity.py", "import logging", PURE),
        ("policies/edit.py", "import budgets.usage", LAYERS),
        ("budgets/cost.py", "import config.model", LAYERS),
        ("gateway/routes.py", "import loadtest.engine", LAYERS),
        ("budgets/ledger.py", "import redis", REDIS),
    ],
)
def test_a_breach_is_noticed(tree: Path, module: str, line: str, rule: str) -> None:
    with (tree / module).open("a") as file:
        file.write(f"\n{line}\n")
    code, output = check(tree)
    assert code == 1
    broken = [told for told in output.splitlines() if told.endswith("BROKEN")]
    assert len(broken) == 1
    assert broken[0].startswith(rule)
