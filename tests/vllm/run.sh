#!/usr/bin/env bash
# The tests of this folder against a real vLLM: installs it if need be, starts it, tests, stops it.
#
#   tests/vllm/run.sh [arguments of pytest]
#
# VLLM_DIR (default .vllm) is where it is installed; KVGATE_VLLM_URL, if set, is a server that runs already.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
dir=${VLLM_DIR:-.vllm}
python=${PYTHON:-.venv/bin/python}

if [ -z "${KVGATE_VLLM_URL:-}" ]; then
  "$here/setup.sh" "$dir"
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  export KVGATE_VLLM_URL=http://127.0.0.1:$port
  echo "Starting vLLM on port $port; its log is $dir/serve.log ..."
  nice "$here/serve.sh" "$dir" smollm2 "$port" >"$dir/serve.log" 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true' EXIT
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$dir/serve.log" >&2; echo "vLLM did not start." >&2; exit 1; }
    sleep 1
  done
fi
"$python" -m pytest tests/vllm -m vllm "$@"
