"""All that a gateway remembers has a bound, and docs/performance.md names it."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.embedded import EmbeddedServer
from tests.house import House, house

TABLE = Path(__file__).parents[2] / "docs" / "performance.md"


async def remembered(house: House, name: str) -> dict[str, float]:
    page = await house.http.get(f"http://127.0.0.1:{house.gateway.admin_port}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(page.text)}
    return {sample.labels["what"]: sample.value for sample in families[name].samples}


async def test_the_bounds_are_those_of_the_documents(valkey: EmbeddedServer) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) ", TABLE.read_text(), re.M)
    async with house(valkey.url, {"any": ["one"]}) as running:
        await running.chat()
        assert await remembered(running, "kvgate_remembered_most") == {
            name: float(most.replace(",", "")) for name, most in rows
        }
        held = await remembered(running, "kvgate_remembered")
        assert held["predicted_seconds"] > 0
        assert held.keys() == {name for name, _ in rows}
