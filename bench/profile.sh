#!/usr/bin/env bash
# Where the CPU time of one worker goes under load, by py-spy where it is installed, else by cProfile.
exec bash "$(dirname "${BASH_SOURCE[0]}")/run.sh" profile "$@"
