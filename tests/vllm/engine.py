"""The real engine as tests see it, and the counters of both sides as they are scraped."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

READ_BYTES = "vllm:estimated_read_bytes_per_gpu_total"
CACHE_HITS = "vllm:prefix_cache_hits_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens_total"


async def scraped(origin: str) -> dict[str, float]:
    """Every counter and gauge of a server by its name, summed over its labels, and by name and one label's value."""
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{origin}/metrics", timeout=60)).text
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            for name in (sample.name, *(f"{sample.name} {value}" for value in sample.labels.values())):
                values[name] = values.get(name, 0.0) + sample.value
    return values


@dataclass(frozen=True, slots=True)
class Engine:
    """A vLLM server at `url`, a bare origin."""

    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    async def metrics(self) -> dict[str, float]:
        return await scraped(self.url)

    async def idle(self) -> dict[str, float]:
        """The metrics once it runs nothing: it counts a step a moment after it has sent the step's tokens."""
        before: dict[str, float] = {}
        while True:
            values = await self.metrics()
            counted = {name: value for name, value in values.items() if name.startswith("vllm:")}
            if values[RUNNING] == values[WAITING] == 0 and counted == before:
                return values
            before = counted
            await asyncio.sleep(0.2)
