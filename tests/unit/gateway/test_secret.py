"""One secret for a deployment: the operator's, or one that is made once and read by its owner alone."""

import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from pydantic import SecretStr

from config.settings import Settings
from gateway.secret import FILE_NAME, SecretError, secret_of


def settings(folder: Path, secret: str | None = None) -> Settings:
    return Settings(data_dir=folder, secret=None if secret is None else SecretStr(secret))


def made(folder: str) -> bytes:
    return secret_of(settings(Path(folder)))


def test_the_operators_own_secret_leaves_no_file(tmp_path: Path) -> None:
    assert secret_of(settings(tmp_path, "0123456789abcdef")) == b"0123456789abcdef"
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = secret_of(settings(folder))
    assert len(first) == 64
    assert secret_of(settings(folder)) == first
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_deployments_have_different_secrets(tmp_path: Path) -> None:
    assert secret_of(settings(tmp_path / "a")) != secret_of(settings(tmp_path / "b"))


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as processes:
        secrets = set(processes.map(made, [str(tmp_path)] * 8))
    assert len(secrets) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_secret_that_is_too_short_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="KVGATE_SECRET has 5 bytes") as refused:
        secret_of(settings(tmp_path, "short"))
    assert "short" not in str(refused.value)
    (tmp_path / FILE_NAME).write_text("tiny\n")
    with pytest.raises(SecretError, match="has 4 bytes"):
        secret_of(settings(tmp_path))


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SecretError, match="set KVGATE_SECRET") as refused:
        secret_of(settings(tmp_path / "file"))
    assert "\n" not in str(refused.value)
