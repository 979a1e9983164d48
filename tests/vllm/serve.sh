#!/usr/bin/env bash
# Serves a model of setup.sh on 127.0.0.1, in the foreground.
#
#   tests/vllm/serve.sh FOLDER MODEL PORT [more arguments of `vllm serve`]
#
# docs/vllm.md says what each flag is for.
set -euo pipefail

dir=$1 model=$2 port=$3
shift 3
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 # no look-ups, no reports: the model is here
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind}
exec "$dir/venv/bin/vllm" serve "$dir/$model" --served-model-name "$model" --host 127.0.0.1 --port "$port" \
  --dtype bfloat16 --max-model-len 4096 --max-num-seqs 16 \
  --enable-prompt-tokens-details --enable-mfu-metrics --enable-request-id-headers \
  --enable-auto-tool-choice --tool-call-parser hermes "$@"
