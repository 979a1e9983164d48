"""`python -m bench.token_cost`: what one generated token costs by the length of its context, as docs/token-cost.svg.

Rule: the curves are the closed forms of `budgets.cost` and the catalogue of models, nothing is drawn by hand.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from budgets.charge import Tariff
from budgets.cost import kv_read_bytes, weight_read_bytes
from budgets.geometry import Geometry
from budgets.usage import Usage
from config.catalogue import gpu, model

FILE: Final = Path(__file__).parents[1] / "docs" / "token-cost.svg"
MODELS: Final = {
    "llama-3.1-8b": "#1f77b4",
    "llama-3.1-70b": "#d62728",
    "gemma-3-27b": "#2ca02c",
    "deepseek-v3": "#9467bd",
}
CONTEXTS: Final = (1_000, 8_000, 32_000, 128_000)
BATCH: Final = 64
GPU: Final = "h200"
DEVICES: Final = {"llama-3.1-8b": 1, "llama-3.1-70b": 4, "gemma-3-27b": 2, "deepseek-v3": 16}
HOUR_NANOS: Final = 3_000_000_000

WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 132, 46, 52
LEAST_GB, MOST_GB = 0.03, 100.0
FONT: Final = 'font-family="system-ui, sans-serif"'


def geometry_of(name: str) -> Geometry:
    entry = model(name)
    assert entry is not None
    return entry.geometry


def kv_gigabytes(geometry: Geometry, context_tokens: int) -> float:
    """KV that one token after such a context reads."""
    return kv_read_bytes(geometry, context_tokens, 1) / 1e9


def weight_gigabytes(geometry: Geometry) -> float:
    """Its share of the weights, read once for `BATCH` sequences."""
    return weight_read_bytes(geometry, BATCH) / BATCH / 1e9


def price(name: str, context_tokens: int) -> float:
    """Money for a million tokens generated after such a context, at `HOUR_NANOS` for an hour of a GPU."""
    hardware = gpu(GPU)
    assert hardware is not None
    geometry = geometry_of(name)
    tokens = 1_000  # so that the step in which a charge is rounded does not show
    used = Usage(0, context_tokens, tokens, "engine")
    read = tokens * kv_read_bytes(geometry, context_tokens, 1)
    micros = Tariff(geometry, hardware.scaled(DEVICES[name])).gpu_microseconds(used, BATCH, read)
    return micros / 3.6e9 * HOUR_NANOS / 1e9 * 1e6 / tokens


def rows() -> Iterator[str]:
    """The table of prices as it stands in docs/budgets.md."""
    for name in MODELS:
        prices = " | ".join(f"{price(name, context):.2f}" for context in CONTEXTS)
        yield f"| {name} | {DEVICES[name]} | {prices} |"


def across(context_tokens: float) -> float:
    share = math.log(context_tokens / CONTEXTS[0]) / math.log(CONTEXTS[-1] / CONTEXTS[0])
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def up(gigabytes: float) -> float:
    share = math.log(gigabytes / LEAST_GB) / math.log(MOST_GB / LEAST_GB)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", fill: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def line(points: Sequence[tuple[float, float]], stroke: str, dashes: str = "", width: float = 2) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{joined}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashed}/>'


def axes() -> Iterator[str]:
    for gigabytes in (0.1, 1, 10, 100):
        yield line([(LEFT, up(gigabytes)), (WIDTH - RIGHT, up(gigabytes))], "#ddd", width=1)
        yield text(LEFT - 8, up(gigabytes) + 4, f"{gigabytes:g} GB", anchor="end")
    for context in CONTEXTS:
        yield line([(across(context), up(LEAST_GB)), (across(context), up(MOST_GB))], "#eee", width=1)
        yield text(across(context), HEIGHT - BOTTOM + 18, f"{context // 1_000}k", anchor="middle")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "tokens of context", anchor="middle")
    yield text(LEFT, 20, "What an engine reads to generate one token", size=15)
    told = f"solid: KV cache; dashed: with its share of the weights, {BATCH} sequences at once"
    yield text(LEFT, 37, told, fill="#777")


def curves() -> Iterator[str]:
    contexts = [round(1_000 * 2 ** (step / 4)) for step in range(29)]
    ends: list[tuple[float, str, str]] = []
    for name, colour in MODELS.items():
        geometry = geometry_of(name)
        kv = [(context, kv_gigabytes(geometry, context)) for context in contexts]
        weights = weight_gigabytes(geometry)
        yield line([(across(context), up(read + weights)) for context, read in kv], colour, "5 4", 1.5)
        yield line([(across(context), up(read)) for context, read in kv], colour)
        for context in CONTEXTS:
            height = up(kv_gigabytes(geometry, context))
            yield f'<circle cx="{across(context):.1f}" cy="{height:.1f}" r="3.5" fill="{colour}"/>'
        ends.append((up(kv[-1][1]), name, colour))
    last = -math.inf
    for height, name, colour in sorted(ends):
        last = max(height, last + 15)
        yield text(WIDTH - RIGHT + 10, last + 4, name, fill=colour)


def svg() -> str:
    """The whole picture."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {FONT}>'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join([head, paper, *axes(), *curves(), "</svg>", ""])


if __name__ == "__main__":
    FILE.write_text(svg(), "utf-8")
    print(*rows(), sep="\n")
