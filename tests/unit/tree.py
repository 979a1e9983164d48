"""Where the tests of packaging and papers find the tree they speak of."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("backends", "budgets", "config", "gateway", "loadtest", "policies")


def files_of(package: str) -> set[str]:
    """Every file of a package that belongs into the wheel, relative to the root."""
    found = (path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}
