"""`kvgate demo`: four emulated engines in two pools, an embedded Valkey and the gateway, in one command.

Rule: everything is what an operator would run, only smaller; all of it stops with this program.
"""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from config.model import Config
from config.pools import Replica
from config.settings import Settings
from gateway import guarded

CONFIG_FILE: Final = Path(__file__).parents[1] / "config" / "demo.yaml"
KEY: Final = "sk-kvgate-demo"
READY_SECONDS: Final = 120.0
"""On a machine that is busy; an engine that ends is told at once."""

_WELCOME: Final = """\
kvgate is ready.

  gateway        {url}
  key, model     {key}, {model}
  metrics        {metrics}
  configuration  {config}
  engines        {engines}

Try it with curl:

  curl {url}/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}], "max_tokens": 32}}'

or with the openai package:

  from openai import OpenAI
  client = OpenAI(base_url="{url}", api_key="{key}")
  messages = [{{"role": "user", "content": "Hello!"}}]
  for chunk in client.chat.completions.create(model="{model}", messages=messages, stream=True):
      print(chunk.choices[0].delta.content or "", end="", flush=True)

Ctrl-C stops everything.
"""


class DemoError(Exception):
    """The demo cannot start. One line: what is wrong and what to do about it."""


@contextmanager
def engines(config: Config, folder: Path, speed: float) -> Iterator[None]:
    """The emulated engines of a configuration, ready. Raises `DemoError`."""
    folder.mkdir(parents=True, exist_ok=True)
    replicas = [(pool.name, replica) for pool in config.pools.values() for replica in pool.replicas]
    for _, replica in replicas:
        _require_free(replica)
    children: list[guarded.Child] = []
    try:
        for _, replica in replicas:
            log = folder / f"{replica.name}.log"
            children.append(guarded.start(_command(config, replica, speed), log=log))
        for child, (_, replica) in zip(children, replicas, strict=True):
            _wait_until_ready(child, replica, folder)
        yield
    finally:
        for child in children:
            child.close()


def welcome(config: Config, port: int, admin_port: int) -> str:
    """What to try first."""
    names = [f"{pool.name}: {', '.join(r.name for r in pool.replicas)}" for pool in config.pools.values()]
    return _WELCOME.format(
        url=f"http://127.0.0.1:{port}/v1",
        metrics=f"http://127.0.0.1:{admin_port}/metrics",
        key=KEY,
        model=next(iter(config.models)),
        config=CONFIG_FILE,
        engines="; ".join(names),
    )


def own_folder(given: Settings) -> Settings:
    """The settings, with a data folder of the demo's own unless one is set."""
    if "data_dir" in given.model_fields_set:
        return given
    return given.model_copy(update={"data_dir": Path("kvgate-data") / "demo"})


def _command(config: Config, replica: Replica, speed: float) -> list[str]:
    model = next(iter(config.models.values()))
    port = str(urlsplit(replica.url).port)
    engine = [sys.executable, "-m", "gateway", "engine", "--port", port, "--speed", str(speed)]
    return [*engine, "--model", "llama-3.1-8b", "--served-model-name", model.upstream_name]


def _require_free(replica: Replica) -> None:
    port = urlsplit(replica.url).port or 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise DemoError(
                f"port {port} is taken, and engine {replica.name} needs it; stop what listens there"
            ) from error


def _wait_until_ready(child: guarded.Child, replica: Replica, folder: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    port = urlsplit(replica.url).port or 0
    while child.alive() and time.monotonic() < deadline:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise DemoError(f"engine {replica.name} did not start; see {folder / replica.name}.log")
