"""Settings of the process, from `KVGATE_*` environment variables: where to listen, where to keep, what to trust.

Rule: nothing here changes what a tenant may do; that is the configuration file's part.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from config.problems import ConfigError, Problem
from config.units import Duration, Size

Port = Annotated[int, Field(ge=0, le=65_535)]


PREFIX = "KVGATE_"


class Settings(BaseSettings):
    """Every setting has a default that is right for one machine.

    `store_url` None: the embedded Valkey in `data_dir`. `secret` None: one is made and kept in `data_dir`.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    config: Path = Path("kvgate.yaml")
    host: str = "127.0.0.1"
    port: Port = 8080
    admin_host: str = "127.0.0.1"
    admin_port: Port = 9090
    admin_token: SecretStr | None = Field(
        default=None, min_length=16, description="Opens the admin API; none: there is none."
    )
    store_url: str | None = Field(default=None, repr=False, description="redis://, rediss://, unix:// and so on.")
    store_program: Path | None = Field(default=None, description="The server to embed; none: the bundled Valkey.")
    store_timeout_seconds: Annotated[Duration, Field(gt=0)] = 0.05
    data_dir: Path = Path("kvgate-data")
    secret: SecretStr | None = Field(default=None, description="Salts of digests; at least 16 characters.")
    store_keys: SecretStr | None = Field(default=None, description="id:base64,... : text in the store is sealed.")
    store_plain: Literal["open", "refuse"] = "open"
    body_limit_bytes: Annotated[Size, Field(gt=0)] = 32 * 1024 * 1024
    tenants_trust_seconds: Annotated[
        Duration, Field(gt=0, description="How long what is known of the store's tenants holds while it is away.")
    ] = 3600.0
    workers: Annotated[int, Field(ge=1, le=256, description="Processes that share the port.")] = 1
    admin_socket: Path | None = Field(default=None, description="Where a worker tells its supervisor how it is.")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_seconds: Duration = 30.0
    drain_delay_seconds: Annotated[
        Duration, Field(description="How long /readyz says no before the port closes and draining begins.")
    ] = 0.0

    @property
    def worker(self) -> int:
        """Which of the workers this process is, by the socket that its supervisor gave it."""
        name = "" if self.admin_socket is None else self.admin_socket.stem
        return int(name) if name.isdecimal() else 0


def from_environment() -> Settings:
    """The settings of this process. Raises `ConfigError` with every variable that is wrong; no value is repeated."""
    try:
        return Settings()
    except ValidationError as fault:
        raise ConfigError([_problem(error["loc"], error["msg"]) for error in fault.errors()]) from fault


def _problem(loc: tuple[str | int, ...], message: str) -> Problem:
    return Problem(PREFIX + str(loc[0]).upper(), message.removeprefix("Value error, "))
