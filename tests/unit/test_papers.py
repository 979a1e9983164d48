"""README, docs and deploy files say what is true: their snippets load, their commands exist, their names are ours."""

import ast
import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from config.load import parse
from config.settings import Settings
from gateway import cli
from gateway.errors import ANSWERS
from gateway.metric_kinds import Counts, Histogram, Levels
from gateway.metrics import Metrics
from gateway.readings import STORE_COUNTERS
from loadtest.cli import engine
from tests.unit.tree import PACKAGES, ROOT

README: Final = (ROOT / "README.md").read_text()
PAPERS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NEVER_ANSWERED: Final = {"client_closed_request"}
"""Codes of the table that no client reads: it has left."""
INTERNAL: Final = {"KVGATE_ADMIN_SOCKET"}
"""Set by the supervisor for its workers, never by a person."""
METRIC: Final = re.compile(r"kvgate_[a-z_]+")


def blocks(language: str, text: str = README) -> list[str]:
    """A paper's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str = README) -> Iterator[list[str]]:
    """The words of every shell command in a paper, variables in front and comments left out."""
    for block in blocks("sh", text):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s#.*", "", re.sub(r"^(\w+=\$\()?(\w+=\S+ )*", "", line))
            yield re.sub(r"\)$", "", command).split()


def known_commands() -> TyperGroup:
    """`kvgate` with all that it has, `engine` included."""
    app = typer.Typer()
    app.registered_commands = [*cli.app.registered_commands]
    app.registered_groups = [*cli.app.registered_groups]
    app.command("engine")(engine)
    known = get_command(app)
    assert isinstance(known, TyperGroup)
    return known


def declared_metrics() -> set[str]:
    """The metrics that the code declares, as a scrape names them."""
    counted = {f.name + ("_total" if f.type == "counter" else "") for f in Metrics().collect()}
    read = re.findall(r'reading\(\s*"(kvgate_\w+)"', (ROOT / "gateway" / "readings.py").read_text())
    return counted | set(read) | {f"kvgate_store_{name}_total" for name in STORE_COUNTERS}


def test_the_configuration_of_the_readme_is_right_when_put_together() -> None:
    config = parse("".join(blocks("yaml")))
    assert set(config.tiers) == {"standard"}
    key = config.tenants["acme"].keys[0]
    assert key.sha256 == hashlib.sha256(b"sk-acme-example").hexdigest()


@pytest.mark.parametrize("name", ["example.yaml", "demo.yaml"])
def test_the_shipped_files_pass_the_check(name: str) -> None:
    done = CliRunner().invoke(cli.app, ["check", str(ROOT / "config" / name)])
    assert (done.exit_code, done.stderr) == (0, "")


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    used = {words[1] for words in commands() if words[:1] == ["make"]}
    assert {"demo", "test", "install"} <= used <= targets


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_kvgate_commands_of_the_papers_exist_with_their_options(paper: Path) -> None:
    known = known_commands()
    for name, *words in kvgate_commands(paper.read_text()):
        command = known.commands[name]
        if isinstance(command, TyperGroup):
            command = command.commands[words[0]]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if re.match("-.", word)} <= options


def kvgate_commands(text: str) -> list[list[str]]:
    return [words[1:] for words in commands(text) if words and re.fullmatch(r"(.*bin/)?kvgate", words[0])]


def test_the_readme_shows_the_usual_commands() -> None:
    assert {words[0] for words in kvgate_commands(README)} == {
        "check",
        "serve",
        "engine",
        "plan",
        "tenants",
        "keys",
        "limits",
    }


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_what_papers_name_in_the_tree_is_there(paper: Path) -> None:
    """`NAME` stands for what a reader adds; bench/out and bench/.venv come about by a command."""
    named = re.findall(
        rf"`((?:{'|'.join((*PACKAGES, 'tests', 'bench', 'deploy', 'docs'))})/[\w./*-]+)`", paper.read_text()
    )
    made = ("bench/out", "bench/.venv")
    asked = [path for path in named if "NAME" not in path and not path.startswith(made)]
    assert [path for path in asked if not list(ROOT.glob(path.rstrip("/")))] == []
    modules = re.findall(r"python -m ([\w.]+)", paper.read_text())
    found = [ROOT / module.replace(".", "/") for module in modules if module.partition(".")[0] in (*PACKAGES, "bench")]
    assert [each for each in found if not (each.with_suffix(".py").exists() or (each / "__main__.py").exists())] == []


def test_the_map_of_the_house_has_every_module_of_the_gateway_and_no_other() -> None:
    folders = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    rows = [re.split(r"\s{2,}", row.strip())[0] for row in folders.splitlines() if row.startswith("  ")]
    named = [word for row in rows for word in row.split() if not row.startswith("(")]
    there = {path.stem for path in (ROOT / "gateway").glob("[a-z]*.py")} | {"dialects/", "lua/"}
    assert [module for module in sorted(there) if not any(fnmatch.fnmatch(module, name) for name in named)] == []
    assert [name for name in named if not fnmatch.filter(there, name)] == []


def test_the_readme_names_every_setting_of_the_process_and_no_other() -> None:
    settings = {f"KVGATE_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"KVGATE_[A-Z_]+", README)) == settings - INTERNAL


def test_the_readme_names_every_error_code_that_a_client_may_read() -> None:
    table = README.partition("| status | `code` | when |")[2].partition("\n\n")[0]
    codes = {code for row in table.splitlines()[2:] for code in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert codes == {answer.code for answer in ANSWERS.values() if answer.code} - NEVER_ANSWERED


def test_every_metric_is_described_once_with_its_labels() -> None:
    rows = re.findall(r"^\| `(kvgate_\w+)` \| \w+ \| (.*?) ?\|", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    assert sorted(name for name, _ in rows) == sorted(declared_metrics())
    labels = {name.removesuffix("_total"): told for name, told in rows}
    kept = [kept for kept in vars(Metrics()).values() if isinstance(kept, Counts | Levels | Histogram)]
    assert {each.name: labels[each.name] for each in kept} == {each.name: ", ".join(each.labels) for each in kept}


@pytest.mark.parametrize("name", ["README.md", "deploy/prometheus/alerts.yaml", "deploy/grafana/kvgate.json"])
def test_metrics_that_are_spoken_of_exist(name: str) -> None:
    named = set(METRIC.findall((ROOT / name).read_text())) - {"kvgate_"}
    assert {metric.removesuffix("_bucket") for metric in named} <= declared_metrics()


def test_deploy_files_can_be_read() -> None:
    for path in (ROOT / "deploy").rglob("*.yaml"):
        assert yaml.safe_load(path.read_text())
    panels = json.loads((ROOT / "deploy" / "grafana" / "kvgate.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_image_holds_every_package_and_its_health_check_is_a_program() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert {name for name in PACKAGES if f"COPY {name} {name}\n" in dockerfile} == set(PACKAGES)
    (check,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*?\])$", dockerfile.replace("\\\n", ""), re.M)
    assert ast.parse(json.loads(check)[2])


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_links_lead_somewhere(paper: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", paper.read_text())
    assert [link for link in links if not (paper.parent / link).exists()] == []
