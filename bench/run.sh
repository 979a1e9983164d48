#!/usr/bin/env bash
# Builds the mock engine and the load generator, then measures: `bash bench/run.sh --help` says what can be chosen.
#   bash bench/run.sh            kvgate and vllm-router side by side, one table
#   bash bench/run.sh streams    memory per open stream, system calls per request and per chunk
#   bash bench/run.sh profile    where the time of one worker goes
#   bash bench/run.sh table      the last table again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "bench: $1" >&2; exit 1; }

PYTHON=${PYTHON:-$PWD/.venv/bin/python}
[ "$(uname)" = Linux ] || fail "needs Linux: cores are pinned, and CPU time comes from /proc"
command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON; run 'make bench', which makes the environment first"
command -v taskset >/dev/null || fail "needs taskset (package util-linux)"
CC=${CC:-cc}
command -v "$CC" >/dev/null || fail "needs a C compiler for the mock engine and the load generator: apt install gcc"

mkdir -p bench/bin bench/out
for program in mock load; do
  [ "bench/bin/$program" -nt "bench/src/$program.c" ] || "$CC" -O2 -o "bench/bin/$program" "bench/src/$program.c"
done

case ${1:-} in
  streams | table) module=bench.$1; shift ;;
  profile) module=bench.profiling; shift ;;
  *) module=bench ;;
esac
exec "$PYTHON" -m "$module" "$@"
