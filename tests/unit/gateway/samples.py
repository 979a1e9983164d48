"""A configuration, a caller, a call and a connection for the tests of the gateway's parts; all of them real."""

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from config.model import Config
from config.models import Model
from gateway.call import Call
from gateway.dialects.openai_chat import OpenAIChat
from gateway.responder import Responder
from gateway.tenants import Caller, Tenants
from tests.unit.config.samples import config as right

KEY = "sk-a-key-of-acme"
SECRET = b"a secret of thirty-two bytes ok!"
KEYS = [{"name": "laptop", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]
BEARER: Mapping[bytes, bytes] = {b"authorization": b"Bearer " + KEY.encode()}

__all__ = ["BEARER", "KEY", "SECRET", "Recorder", "call", "caller", "config", "model", "responder"]


def config(*changes: tuple[str, Any]) -> Config:
    """The right file with a key whose text is known."""
    return right(("tenants/acme/keys", deepcopy(KEYS)), *changes)


def caller(*changes: tuple[str, Any]) -> Caller:
    """The one tenant of the right file, changed."""
    return Tenants(config(*changes), SECRET).identify(BEARER)


def model(*changes: tuple[str, Any]) -> Model:
    return config(*changes).models["demo"]


def call(body: bytes) -> Call:
    """A chat call."""
    return OpenAIChat().parse(body)


class Recorder:
    """A connection that keeps what was written to it."""

    date = b""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.kept: bool | None = None
        self.was_cut = False

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def answered(self, *, keep: bool) -> None:
        self.kept = keep

    def cut(self) -> None:
        self.was_cut = True

    @property
    def bytes(self) -> "bytes":
        return b"".join(self.sent)


def responder(*, keep: bool = True, http10: bool = False, head_only: bool = False) -> tuple[Responder, Recorder]:
    """An answer and where it is written."""
    line = Recorder()
    return Responder(line, keep=keep, http10=http10, head_only=head_only), line
