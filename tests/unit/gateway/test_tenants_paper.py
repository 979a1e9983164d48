"""docs/tenants.md names the commands, their options and the routes that there are, and all of them."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

from typer.core import TyperGroup
from typer.main import get_command

from config.settings import Settings
from gateway import cli
from gateway.admin_api import AdminApi
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk
from tests.unit.tree import ROOT

ROUTE: Final = re.compile(r"`([A-Z]+) (/[^`?]*)[^`]*`")
PAPER: Final = (ROOT / "docs" / "tenants.md").read_text()


def commands() -> Iterator[list[str]]:
    """The words behind `kvgate` of every command in the paper's blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```$", PAPER, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"^\w+=\$\((.*?)\)", r"\1", line), comments=True)
            if words[:1] == ["kvgate"]:
                yield words[1:]


def test_every_command_stands_in_the_paper() -> None:
    known = get_command(cli.app)
    assert isinstance(known, TyperGroup)
    for group in ("tenants", "keys", "limits"):
        members = known.commands[group]
        assert isinstance(members, TyperGroup)
        told = {name for first, name, *_ in commands() if first == group}
        blocks = "\n".join(line for line in PAPER.splitlines() if f"kvgate {group} " in line)
        assert {
            name for name in members.commands if name not in told and not re.search(rf"\b{name}\b", blocks)
        } == set()


def never(who: str) -> tuple[Desk, LimitDesk]:
    raise AssertionError


def test_the_routes_of_the_paper_are_those_there_are() -> None:
    there = {
        (route.method, route.path.replace("{switch:enable|disable}", "disable"))
        for route in AdminApi(None, never).routes()
    }
    rows = re.findall(r"^\| (`[A-Z]+ /.*?) \|", PAPER, re.M)
    told = {
        (method, path.partition("?")[0]) for row in rows for method, path in re.findall(r"`([A-Z]+) (/[^`]*)`", row)
    }
    assert told == there


def test_settings_that_are_spoken_of_exist() -> None:
    named = set(re.findall(r"KVGATE_[A-Z_]+", PAPER)) - {"KVGATE_OPERATOR"}
    assert named <= {f"KVGATE_{name.upper()}" for name in Settings.model_fields}
