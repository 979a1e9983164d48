"""Active health: one loop a replica asks it how it is, and tells the pool.

The rule: `judge` decides and does nothing else; the asking itself is handed in, so that this module knows no HTTP.
A replica is taken out after some failed probes in a row and comes back after some good ones, so that one lost
packet changes nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backends.engines.load import Load
from backends.pool import Pool, Replica


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one round of questions gave. None: the replica did not say."""

    alive: bool
    max_model_len: int | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class HealthSettings:
    interval_seconds: float = 5.0
    down_after: int = 3
    up_after: int = 2


@dataclass(frozen=True, slots=True)
class Health:
    """`streak`: how many probes in a row contradicted `healthy`."""

    healthy: bool = True
    streak: int = 0


# Asks one replica; what goes wrong on the way is `alive=False` and no exception.
Probe = Callable[[Replica], Awaitable[ProbeResult]]
Sleep = Callable[[float], Awaitable[None]]


def judge(health: Health, alive: bool, settings: HealthSettings) -> Health:
    """The health after one more probe."""
    if alive == health.healthy:
        return Health(health.healthy)
    needed = settings.down_after if health.healthy else settings.up_after
    streak = health.streak + 1
    return Health(not health.healthy) if streak >= needed else Health(health.healthy, streak)


async def watch(pool: Pool, replica: Replica, probe: Probe, sleep: Sleep, settings: HealthSettings) -> None:
    """Probe `replica` until cancelled. A replica counts as healthy until probes have shown otherwise."""
    health = Health()
    while True:
        own_calls = pool.in_flight(replica.name)
        seen = await probe(replica)
        pool.learn(replica.name, load=seen.load, max_model_len=seen.max_model_len, own_calls=own_calls)
        judged = judge(health, seen.alive, settings)
        if judged.healthy != health.healthy:
            pool.set_health(replica.name, judged.healthy)
        health = judged
        await sleep(settings.interval_seconds)
