"""The figures of tiers as tables in text that are tables in Markdown too.

Rule: the first row is that without a policy; shares are of it.
"""

from collections.abc import Iterable, Sequence

from bench.context_figures import Figures
from bench.probes import FATES, KINDS


def costs(rows: Sequence[Figures]) -> str:
    """A row a tier: breaks, sizes, and what is left of the facts."""
    head = ["tier", "breaks", "calls", "largest", "prompt", "uncached prefill", "KV read", "hit rate", "seconds"]
    return table([*head, *FATES], [_costs(row, rows[0]) for row in rows])


def _costs(row: Figures, base: Figures) -> list[str]:
    return [
        row.tier,
        f"{row.breaks}",
        f"{row.calls}, then refused" if row.refused else f"{row.calls}",
        f"{row.largest_tokens:,}",
        f"{row.prompt_tokens:,} ({row.prompt_tokens / base.prompt_tokens:.2f})",
        f"{row.prefill_tokens:,} ({row.prefill_tokens / base.prefill_tokens:.2f})",
        f"{row.kv_read_bytes / 1e12:.2f} TB ({row.kv_read_bytes / base.kv_read_bytes - 1:+.0%})",
        f"{row.hit_rate:.2f}",
        f"{row.seconds:.2f}",
        *(f"{row.kept.share(fate):.0%}" for fate in FATES),
    ]


def by_kind(rows: Sequence[Figures]) -> str:
    """What is retained of each kind of fact."""
    return table(["retained of", *KINDS], [
        [row.tier, *(f"{row.kept.share('retained', kind):.0%}" for kind in KINDS)] for row in rows
    ])  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; all but the first to the right."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    shown = [_line([_cell(cell, widths[at], at) for at, cell in enumerate(line)]) for line in lines]
    rule = _line([("-" * width) if not at else "-" * (width - 1) + ":" for at, width in enumerate(widths)])
    return "\n".join([shown[0], rule, *shown[1:]])


def _cell(text: str, width: int, at: int) -> str:
    return text.rjust(width) if at else text.ljust(width)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
