"""What a broken prefix costs and a shorter prompt gains, for one session on one pool: the numbers behind `Pricing`.

Rule: what was learned from engines where there is something, else the dear side: a prefix counts as warm until cached
tokens have shown otherwise, and a session is expected to go on for as long as it has so far.
"""

from typing import Final

from gateway.forecast import Forecast
from gateway.service import Service
from gateway.sessions import Session
from policies.plan import Pricing

TYPICAL_PROMPT_TOKENS: Final = 8_192
"""At which size the speed of prefill is taken."""


def pricing(service: Service, session: Session, forecast: Forecast, reply_tokens: int) -> Pricing | None:
    """The prices for a call, `None` where the tier's marks alone decide. `reply_tokens`: of one expected reply."""
    if not service.prices_breaks:
        return None
    hardware, geometry = service.pools[0].settings.hardware, service.model.geometry
    seconds = service.paces[0].prefill_seconds(TYPICAL_PROMPT_TOKENS)
    return Pricing(
        warm_probability=forecast.warm(service.name) if session.status == "known" else 0.0,
        prefill_tokens_per_second=TYPICAL_PROMPT_TOKENS / seconds,
        kv_bytes_per_token=geometry.kv_bytes_per_token,
        expected_decode_tokens=reply_tokens * max(1, session.calls),
        memory_bytes_per_second=hardware.total_memory_bytes_per_second * hardware.efficiencies.kv_read,
    )
