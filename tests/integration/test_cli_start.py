"""What goes wrong at a start: one line each, what and how to mend it, exit code 1, no traceback."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import program
from tests.program import Ended


@pytest.fixture
def taken() -> Iterator[str]:
    """A port on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


async def refused(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """What was said by a command that did not start."""
    ended = await program.run(folder, *arguments, **variables)
    assert ended.code == 1
    assert not [line for line in ended.lines if "Traceback" in line or line.startswith(" ")]
    assert ended.out == ""
    return ended.lines


async def serve(folder: Path, **variables: str) -> list[str]:
    return await refused(folder, "serve", "-c", str(program.file(folder)), **variables)


@pytest.mark.parametrize("variable", ["KVGATE_PORT", "KVGATE_ADMIN_PORT"])
async def test_a_port_that_is_taken(tmp_path: Path, taken: str, variable: str) -> None:
    (line,) = await serve(tmp_path, **{variable: taken})
    assert line.startswith(f"cannot listen on 127.0.0.1:{taken}: Address already in use; ")
    assert variable in line
    assert not program.processes_about(tmp_path), "the store that was started has gone with it"


async def test_a_store_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    (line,) = await serve(tmp_path, KVGATE_STORE_URL=f"redis://user:hunter2@127.0.0.1:{unused_tcp_port}/0")
    assert line == (
        f"no store at 127.0.0.1:{unused_tcp_port}: Connection refused; "
        "start it, or set KVGATE_STORE_URL to another store"
    )


async def test_a_store_url_that_is_none(tmp_path: Path) -> None:
    (line,) = await serve(tmp_path, KVGATE_STORE_URL="mysql://root:hunter2@localhost")
    assert "redis://" in line and "hunter2" not in line


async def test_a_data_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (line,) = await serve(tmp_path)
    assert str(tmp_path / "data") in line and line.endswith("Not a directory")


async def test_a_secret_that_is_too_short(tmp_path: Path) -> None:
    (line,) = await serve(tmp_path, KVGATE_SECRET="hunter2")
    assert "KVGATE_SECRET" in line and "hunter2" not in line


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_keys_of_the_store_that_are_none(tmp_path: Path, workers: str) -> None:
    (line,) = await serve(tmp_path, KVGATE_STORE_KEYS="k1:hunter2", KVGATE_WORKERS=workers)
    assert line.startswith("KVGATE_STORE_KEYS: key 1 ") and "hunter2" not in line
    assert not program.processes_about(tmp_path)


async def test_an_engine_key_that_is_not_set(tmp_path: Path) -> None:
    path = program.file(tmp_path)
    path.write_text(path.read_text().replace("    phase: any", "    engine_key: env:NOT_SET\n    phase: any"))
    (line,) = await refused(tmp_path, "serve", "-c", str(path))
    assert "pools.any.engine_key" in line and "NOT_SET" in line


async def test_every_wrong_variable_is_named(tmp_path: Path) -> None:
    lines = await serve(tmp_path, KVGATE_PORT="http", KVGATE_LOG_LEVEL="loud", KVGATE_DRAIN_SECONDS="soon")
    assert sorted(line.split(":")[0] for line in lines) == ["KVGATE_DRAIN_SECONDS", "KVGATE_LOG_LEVEL", "KVGATE_PORT"]


async def test_a_file_that_is_missing(tmp_path: Path) -> None:
    for command in (("serve", "-c"), ("check",)):
        (line,) = await refused(tmp_path, *command, "nothing.yaml")
        assert line == "nothing.yaml: No such file or directory"


async def test_a_wrong_file_has_all_its_problems_named(tmp_path: Path) -> None:
    path = program.file(tmp_path)
    text = path.read_text()
    path.write_text(text.replace("llama-3.1-8b", "llama-9").replace("tier: standard", "tier: gold") + "colour: red\n")
    lines = await refused(tmp_path, "serve", "-c", str(path))
    assert all(line.startswith(f"{path}: line ") for line in lines)
    for place in ("models.demo.geometry", "tenants.acme.tier", "tenants.zeta.tier", "colour"):
        assert any(f"{place}: " in line for line in lines), place


async def test_an_unknown_command(tmp_path: Path) -> None:
    ended: Ended = await program.run(tmp_path, "fly")
    assert ended.code == 2
    assert not [line for line in ended.lines if "Traceback" in line]
