"""The route of an emulated pooling model: vectors that follow from the text, after the time of a prefill.

Rule: equal texts have equal vectors of length one; nothing else about them means anything.
"""

import base64
import math
import struct
import time
from array import array
from collections.abc import Sequence
from uuid import uuid4

from aiohttp import web
from xxhash import xxh3_64_intdigest

from loadtest import utterance
from loadtest.emulator import Emulator
from loadtest.http_json import json_reply, read_body, token_ids
from loadtest.openai_requests import EmbeddingBody, check_model, check_prompt
from loadtest.sequence import Key
from loadtest.text import seed_of

DIMENSIONS = 256


class EmbeddingRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._settings = emulator.settings

    def table(self) -> list[web.RouteDef]:
        return [web.post("/v1/embeddings", self.embeddings)] if self._settings.enable_embeddings else []

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(EmbeddingBody, request)
        check_model(body, self._settings)
        prompts = [
            self._emulator.tokenizer.encode(each) if isinstance(each, str) else token_ids(each) for each in body.inputs
        ]
        for prompt in prompts:
            check_prompt(len(prompt), self._settings.max_model_len)
        vectors = [_vector(prompt, body.dimensions or DIMENSIONS) for prompt in prompts]
        await self._compute(prompts)
        return json_reply(self._embedded(body, prompts, vectors))

    async def _compute(self, prompts: "Sequence[array[int]]") -> None:
        """Takes the time of the prefill, in the same batch as everything else."""
        emulator, unique_id = self._emulator, f"embd-{uuid4().hex}"
        end = utterance.Utterance(array("I", [emulator.tokenizer.end]), (None,), "", "stop")
        works = [emulator.work(Key(unique_id, at), prompt, end) for at, prompt in enumerate(prompts)]
        arrivals = emulator.driver.submit(works)
        try:
            for _ in works:
                await arrivals.get()
        finally:
            emulator.driver.abort(works)

    def _embedded(
        self, body: EmbeddingBody, prompts: "Sequence[array[int]]", vectors: Sequence[list[float]]
    ) -> dict[str, object]:
        shown = [_encoded(vector) if body.encoding_format == "base64" else vector for vector in vectors]
        tokens = sum(map(len, prompts))
        return {
            "id": f"embd-{uuid4().hex[:16]}",
            "object": "list",
            "created": int(time.time()),
            "model": self._settings.served,
            "data": [{"index": at, "object": "embedding", "embedding": value} for at, value in enumerate(shown)],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }


def _vector(prompt: "array[int]", dimensions: int) -> list[float]:
    """A unit vector that follows from the text."""
    raw = [seed_of(xxh3_64_intdigest(prompt.tobytes()), at) / 2**63 - 1 for at in range(dimensions)]
    length = math.sqrt(sum(value * value for value in raw)) or 1.0
    return [value / length for value in raw]


def _encoded(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
