"""The trade-off as a picture: for each tier how much KV is still read against how many facts are retained.

Rule: an SVG of a few kB, written by hand so that it needs no library and changes only where the figures do.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from bench.context_figures import Figures

HEIGHT, LEFT, TOP, PLOT, GAP = 460, 56, 56, 300, 210
"""Pixels; a panel is a square of `PLOT` and what its names need beside it."""
DEAR: Final = 1.0
"""Uncached prefill, as a share of that without a policy, above which a tier is drawn hollow."""
STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.axis{stroke:#888}.grid{stroke:#ddd}.good{fill:#1f6fb2}"
    ".dear{fill:#fff;stroke:#b2361f;stroke-width:2}.name{font-size:11px}.title{font-weight:bold}"
)


def svg(groups: Mapping[str, Sequence[Figures]]) -> str:
    """One panel for each group of sessions; the first row of each is that without a policy."""
    panels = [line for at, (title, rows) in enumerate(groups.items()) for line in _panel(at, title, rows)]
    width = len(groups) * (PLOT + GAP) + LEFT
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">',
        f'<style>{STYLE}</style><rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
        *panels,
        f'<circle class="dear" cx="{LEFT + 6}" cy="{HEIGHT - 20}" r="5"/>',
        f'<text x="{LEFT + 18}" y="{HEIGHT - 16}">hollow: more uncached prefill than without a policy</text>',
        "</svg>\n",
    ])  # fmt: skip


def _panel(at: int, title: str, rows: Sequence[Figures]) -> Iterator[str]:
    left = LEFT + at * (PLOT + GAP)
    yield f'<g transform="translate({left} {TOP})"><text class="title" y="-24">{escape(title)}</text>'
    for tenth in range(0, 11, 2):
        share = tenth / 10
        x, y = PLOT * share, PLOT * (1 - share)
        yield f'<path class="grid" d="M0 {y:.0f}H{PLOT}M{x:.0f} 0V{PLOT}"/>'
        yield f'<text x="-8" y="{y + 4:.0f}" text-anchor="end">{share:.0%}</text>'
        yield f'<text x="{x:.0f}" y="{PLOT + 18}" text-anchor="middle">{share:.0%}</text>'
    yield f'<path class="axis" fill="none" d="M0 0V{PLOT}H{PLOT}"/>'
    yield f'<text x="{PLOT / 2}" y="{PLOT + 40}" text-anchor="middle">KV bytes read, of those without a policy</text>'
    yield '<text x="0" y="-8">facts retained or recoverable</text>'
    yield from _dots([row for row in rows if not row.refused], rows[0])
    yield "</g>"


def _dots(rows: Sequence[Figures], base: Figures) -> Iterator[str]:
    """Names go to the right of their dots, moved down where another name stands."""
    taken: list[float] = []
    for row in sorted(rows, key=lambda row: -_kept(row)):
        x, y = PLOT * row.kv_read_bytes / base.kv_read_bytes, PLOT * (1 - _kept(row))
        kind = "dear" if row.prefill_tokens > DEAR * base.prefill_tokens else "good"
        beside = max([y + 4, *(other + 13 for other in taken)])
        taken.append(beside)
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        yield f'<path class="grid" d="M{x + 6:.1f} {y:.1f}L{PLOT + 10} {beside - 4:.1f}"/>'
        yield f'<text class="name" x="{PLOT + 14}" y="{beside:.1f}">{escape(row.tier)}</text>'


def _kept(row: Figures) -> float:
    return row.kept.share("retained") + row.kept.share("recoverable")
