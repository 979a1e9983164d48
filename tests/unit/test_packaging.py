"""The wheel holds the application and nothing else: built as a release would build it, then looked into."""

import configparser
import subprocess
import sys
from zipfile import ZipFile

import pytest

from tests.unit.tree import PACKAGES, ROOT, files_of


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return ZipFile(built)


def test_the_top_level_names_are_the_six_packages(wheel: ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_in_the_wheel(wheel: ZipFile, package: str) -> None:
    assert files_of(package) - set(wheel.namelist()) == set()


@pytest.mark.parametrize(
    "name", ["config/gpus.yaml", "config/models.yaml", "config/demo.yaml", "gateway/lua/", "budgets/lua/"]
)
def test_data_files_are_in_the_wheel(wheel: ZipFile, name: str) -> None:
    assert any(found.startswith(name) and not found.endswith(".py") for found in wheel.namelist())


def test_the_command_is_declared(wheel: ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    declared = configparser.ConfigParser()
    declared.read_string(wheel.read(name).decode())
    assert dict(declared["console_scripts"]) == {"kvgate": "gateway.cli:main"}
