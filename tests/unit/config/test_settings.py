"""Settings of the process come from the environment and nowhere else."""

from pathlib import Path

import pytest

from config.problems import ConfigError
from config.settings import PREFIX, Settings, from_environment


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


def test_defaults_listen_on_this_machine_only() -> None:
    settings = from_environment()
    assert (settings.host, settings.port, settings.admin_host, settings.admin_port) == (
        "127.0.0.1",
        8080,
        "127.0.0.1",
        9090,
    )
    assert settings.store_url is None and settings.secret is None


def test_values_are_read_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "9999", "BODY_LIMIT_BYTES": "8MiB", "DRAIN_SECONDS": "1m", "DATA_DIR": "/x"}.items():
        monkeypatch.setenv(PREFIX + name, value)
    settings = from_environment()
    assert (settings.port, settings.body_limit_bytes, settings.drain_seconds, settings.data_dir) == (
        9_999,
        8 * 1024**2,
        60,
        Path("/x"),
    )


def test_every_wrong_variable_is_named_and_no_value_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGATE_PORT", "99999")
    monkeypatch.setenv("KVGATE_DRAIN_SECONDS", "sk-wrong-place")
    with pytest.raises(ConfigError) as caught:
        from_environment()
    assert [problem.place for problem in caught.value.problems] == ["KVGATE_PORT", "KVGATE_DRAIN_SECONDS"]
    assert "sk-wrong-place" not in str(caught.value)


def test_secrets_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGATE_SECRET", "a-long-enough-secret")
    monkeypatch.setenv("KVGATE_STORE_URL", "redis://:hidden@host")
    assert "enough" not in repr(from_environment()) and "hidden" not in repr(from_environment())


@pytest.mark.parametrize("token", ["", "too-short"])
def test_an_admin_token_that_opens_too_easily_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("KVGATE_ADMIN_TOKEN", token)
    with pytest.raises(ConfigError, match=r"KVGATE_ADMIN_TOKEN: .*16") as caught:
        from_environment()
    assert "too-short" not in str(caught.value)


@pytest.mark.parametrize(
    ("socket", "worker"), [(None, 0), ("/data/workers/0.sock", 0), ("/data/workers/17.sock", 17), ("/tmp/x.sock", 0)]
)
def test_a_worker_knows_its_number_by_its_socket(socket: str | None, worker: int) -> None:
    assert Settings(admin_socket=None if socket is None else Path(socket)).worker == worker
