"""How requests find a replica, and how long each step may take.

Rule: every wait has a bound.
"""

from typing import Annotated

from pydantic import Field, PositiveFloat

from config.section import Section
from config.units import Duration

Wait = Annotated[Duration, Field(gt=0)]


class Routing(Section):
    """Choice and patience. Times are written as durations; attributes are in seconds.

    A request is prefill-heavy when predicted prefill seconds exceed `prefill_heavy_above` times predicted decode
    seconds. A session stays on its home replica unless that is behind the least loaded one by more than
    `affinity_slack` of outstanding work. `attempts` counts the first one.
    """

    prefill_heavy_above: PositiveFloat = 1.0
    affinity_slack_seconds: Duration = Field(default=2.0, alias="affinity_slack")
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    max_waiting: Annotated[int, Field(ge=0, description="Calls that may wait per pool; more are shed.")] = 256
    connect_timeout_seconds: Wait = Field(default=2.0, alias="connect_timeout")
    first_token_timeout_seconds: Wait = Field(default=600.0, alias="first_token_timeout")
    idle_timeout_seconds: Wait = Field(default=120.0, alias="idle_timeout")
    queue_timeout_seconds: Wait = Field(default=30.0, alias="queue_timeout")
    unread_timeout_seconds: Wait = Field(
        default=60.0, alias="unread_timeout", description="How long a client may leave its stream unread."
    )
    probe_interval_seconds: Wait = Field(default=2.0, alias="probe_interval")
