"""One emulated engine, assembled: settings, tokenizer, driver, metrics, leases, faults; and how jobs are made for it.

Rule: what differs between wire formats (vLLM, TGI) lives in their routes; what an engine is lives here.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from xxhash import xxh3_64_intdigest

from gateway.clock import monotonic
from loadtest import faults, transfer, utterance
from loadtest.driver import Driver
from loadtest.engine_metrics import EngineMetrics
from loadtest.engine_settings import Plant, Settings
from loadtest.faults import Fault
from loadtest.job import Choice, Job
from loadtest.meter import Meter
from loadtest.sequence import Key
from loadtest.sequence import Sequence as Work
from loadtest.text import Manner, seed_of
from loadtest.tgi_metrics import TgiMetrics
from loadtest.tokenizer import Tokenizer
from loadtest.utterance import Utterance, Wish

SOON_SECONDS = 0.001


class Emulator:
    """Everything that one engine holds. `die` is called when a fault says that the process goes away."""

    def __init__(self, settings: Settings, die: Callable[[], None]) -> None:
        self.settings = settings
        self.plant = Plant.build(settings)
        self.tokenizer = Tokenizer()
        self.metrics = _metrics(settings, self.plant)
        self.driver = Driver(self.plant, settings.speed, self.metrics)
        self.metrics.watch(self.driver.scheduler)
        self.leases = transfer.Leases(settings.kv_lease_seconds)
        self._expiry: asyncio.TimerHandle | None = None
        self.faults: tuple[Fault, ...] = tuple(map(faults.parse, settings.faults))
        self.die = die
        self.port = settings.port
        self.serving = 0
        """Requests in hand on the routes that generate."""
        self.requests = 0

    def close(self) -> None:
        self.driver.close()
        if self._expiry is not None:
            self._expiry.cancel()

    def faults_for(self, asked: str | None) -> list[Fault]:
        """The faults of the next request: those it asks for, and those that chance gives it. Raises `ValueError`."""
        self.requests += 1
        own = faults.parse_all(asked or "")
        return list(faults.chosen((*own, *self.faults), self.settings.seed, self.requests))

    def seed(self, prompt: "array[int]", asked: int | None, choice: int) -> int:
        """What decides a reply: the prompt, the client's seed, the engine's, and which choice it is."""
        return seed_of(xxh3_64_intdigest(prompt.tobytes()), asked, self.settings.seed, choice)

    def choice(
        self,
        key: Key,
        prompt: "array[int]",
        text: str | None,
        how: Manner,
        wish: Wish | None = None,
        seed: int | None = None,
        told: str | None = None,
        **more: Any,
    ) -> Choice:
        """What will be said to a prompt: what is `told`, the call that is wished for, or words in this manner."""
        if told is not None:
            said = utterance.tell(told, how.max_tokens, self.tokenizer)
        elif wish:
            said = utterance.call(wish, how.max_tokens, self.tokenizer)
        else:
            said = utterance.say(self.seed(prompt, seed, key.choice), how, self.tokenizer)
        return Choice(prompt, text, said, self.work(key, prompt, said, **more))

    def work(self, key: Key, prompt: "array[int]", utterance: Utterance, **more: Any) -> Work:
        """The sequence that computes an utterance; `more` are fields of it."""
        now = monotonic()
        finish = "length" if utterance.finish == "length" else "stop"
        return Work(key, prompt + utterance.tokens, len(prompt), now, finish=finish, **more)

    def job(self, prefix: str, base_id: str | None, choices: Sequence[Choice], prompt_tokens: int, **more: Any) -> Job:
        """A job whose reply id is `prefix` and the client's own id, or one made up; `more` are fields of it."""
        request_id = f"{prefix}-{base_id or uuid4().hex[:16]}"
        return Job(
            request_id=request_id,
            unique_id=choices[0].work.key.request,
            created=int(time.time()),
            choices=tuple(choices),
            prompt_tokens=prompt_tokens,
            block_tokens=self.plant.limits.block_tokens,
            usage_details=self.settings.enable_prompt_tokens_details,
            **more,
        )

    def full(self, choices: int) -> bool:
        """Whether so many more sequences would pass the admission limit."""
        limit = self.settings.max_num_queued_reqs
        return limit is not None and self.driver.queued + choices > limit

    def hand_over(self, job: Job) -> None:
        """Keep the blocks of a prefill leg for the engine that will decode, and name them in the reply."""
        work = job.works[0]
        self.leases.grant(job.unique_id, work, monotonic())
        job.transfer_params = transfer.handed_over(self.leases, job.unique_id, work, self.settings.host, self.port)
        self._watch_leases()

    def give(self, params: Mapping[str, object]) -> int | None:
        """Another engine fetches blocks: how many tokens it gets; None: they are not here (any more)."""
        engine_id, request_id = str(params.get("engine_id")), str(params.get("request_id"))
        work = self.leases.fetch(engine_id, request_id)
        if work is None:
            return None
        self.driver.unpin(work)
        return work.prompt_tokens

    def _expire(self) -> None:
        """A timer may fire a little early, so what is still held is looked at again."""
        self._expiry = None
        for work in self.leases.expire(monotonic()):
            self.metrics.transfer_expired()
            self.driver.unpin(work)
        self._watch_leases()

    def _watch_leases(self) -> None:
        due = self.leases.next_expiry_seconds
        if due is not None and self._expiry is None:
            seconds = max(due - monotonic(), SOON_SECONDS)
            self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)


def _metrics(settings: Settings, plant: Plant) -> Meter:
    if settings.kind == "tgi":
        return TgiMetrics(plant)
    return EngineMetrics(
        settings.served, plant, estimate_reads=settings.enable_mfu_metrics, transfers=settings.kv_transfer
    )
