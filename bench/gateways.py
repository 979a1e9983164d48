"""Who is measured: read from peers.toml, installed, started, asked whether it answers.

Rule: each peer has an environment of its own and a pinned version; one that cannot be installed is left out and said
so, and the rest is measured.
"""

import http.client
import json
import os
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from bench.machine import BenchError, running, say

BENCH: Final = Path(__file__).parent
ENGINE: Final = "http://127.0.0.1:9000"
MODEL: Final = "mock-model"


class Gateway(BaseModel):
    """One entry of peers.toml. No command: the mock engine itself, asked directly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    port: int
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    headers: tuple[str, ...] = ()
    boot_seconds: float = 30.0

    @property
    def venv(self) -> Path:
        return BENCH / ".venv" / self.name


def known() -> dict[str, Gateway]:
    """Every entry of peers.toml by name."""
    entries = tomllib.loads((BENCH / "peers.toml").read_text())
    return {name: Gateway.model_validate({"name": name, **entry}) for name, entry in entries.items()}


def choose(names: list[str]) -> list[Gateway]:
    """The entries of these names. Raises `BenchError` for an unknown one."""
    entries = known()
    if unknown := [name for name in names if name not in entries]:
        raise BenchError(f"unknown peer {unknown[0]}; peers.toml knows {', '.join(entries)}")
    return [entries[name] for name in names]


def installed(gateway: Gateway) -> bool:
    """Install what a peer needs, once a version; False, and said so, where that fails."""
    stamp = gateway.venv / "installed.txt"
    pinned = "\n".join(gateway.packages)
    if not pinned or (stamp.exists() and stamp.read_text() == pinned):
        return True
    say(f"installing {pinned} into bench/.venv/{gateway.name}")
    pip = [str(gateway.venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *gateway.packages]
    for command in ([sys.executable, "-m", "venv", "--clear", str(gateway.venv)], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            say(f"{gateway.name} could not be installed and is left out (no network?): {reason}")
            return False
    stamp.write_text(pinned)
    return True


@contextmanager
def started(gateway: Gateway, core: int, words: Mapping[str, str]) -> Iterator[int | None]:
    """The gateway while it runs: the process to account for, None for the engine itself.

    `words` fill the braces of peers.toml. Raises `BenchError` if it does not answer in its time.
    """
    if not gateway.command:
        yield None
        return
    known_words = {"python": sys.executable, "venv": str(gateway.venv), "bench": str(BENCH), "engine": ENGINE, **words}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KVGATE_")}
    env = inherited | {name: value.format_map(known_words) for name, value in gateway.env.items()}
    command = [word.format_map(known_words) for word in gateway.command]
    log = BENCH / "out" / f"{gateway.name}.log"
    with running(command, core=core, env=env, log=log) as process:
        _wait_until_ready(gateway, process, log)
        yield process.pid


def _wait_until_ready(gateway: Gateway, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + gateway.boot_seconds
    while (trouble := _trouble(gateway)) is not None:
        if process.poll() is not None:
            raise BenchError(f"{gateway.name} ended with code {process.returncode}; see {log}")
        if time.monotonic() > deadline:
            raise BenchError(f"{gateway.name} did not answer within {gateway.boot_seconds:g} s ({trouble}); see {log}")
        time.sleep(0.1)


def _trouble(gateway: Gateway) -> str | None:
    """None if it answers a call."""
    try:
        ask(gateway, stream=False)
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    return None


def ask(gateway: Gateway, *, stream: bool) -> bytes:
    """The body of the answer to one small call of three tokens. Raises `OSError` or `http.client.HTTPException`."""
    body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    if stream:  # the mock reads the time between tokens, in microseconds, from `seed`
        body |= {"stream": True, "seed": 1000, "stream_options": {"include_usage": True}}
    headers = dict(line.split(": ", 1) for line in gateway.headers) | {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return bytes(answer.read())


def smoke(gateway: Gateway) -> None:
    """Ask for a stream. Raises `BenchError` unless three stamped tokens, the usage and the end come."""
    try:
        answer = ask(gateway, stream=True)
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{gateway.name} does not stream: {error}") from error
    if answer.count(b"@@") != 3 or b'"prompt_tokens"' not in answer or b"[DONE]" not in answer:
        raise BenchError(f"{gateway.name}: a stream of three tokens came without all its parts")
