"""The secret of a deployment, from which cache salts are made.

Rule: the operator's own if it is set; else one is made once and kept in the data folder, readable by its owner only, so
that a restart does not turn every engine's prefix cache cold.
"""

import os
import secrets
from pathlib import Path

from config.settings import Settings

FILE_NAME = "secret"
MIN_BYTES = 16


class SecretError(Exception):
    """There is no usable secret. One line: what is wrong and what to do about it."""


def secret_of(settings: Settings) -> bytes:
    """The secret's bytes. Raises `SecretError`."""
    if settings.secret is not None:
        return _long_enough(settings.secret.get_secret_value().encode(), "KVGATE_SECRET")
    path = settings.data_dir / FILE_NAME
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
        return _long_enough(path.read_bytes().strip(), str(path))
    except OSError as error:
        raise SecretError(f"the secret in {path} cannot be used: {error.strerror}; set KVGATE_SECRET") from error


def known_secret(settings: Settings) -> bytes:
    """The secret, if there is one already; a command makes none. Raises `SecretError`."""
    path = settings.data_dir / FILE_NAME
    if settings.secret is None and not path.exists():
        raise SecretError(f"there is no secret in {path}; set KVGATE_SECRET to the one of the gateways")
    return secret_of(settings)


def _make(path: Path) -> None:
    """Written beside and linked into place: two processes that start at once agree on one."""
    if path.exists():
        return
    draft = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _long_enough(secret: bytes, where: str) -> bytes:
    if len(secret) < MIN_BYTES:
        raise SecretError(f"the secret in {where} has {len(secret)} bytes; it needs at least {MIN_BYTES}")
    return secret
