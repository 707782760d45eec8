#!/usr/bin/env bash
# Replays recorded executions under other versions of Python, and compares each state by bytes.
# usage: scripts/replay.sh [PYTHON...]    default: those of 3.12 to 3.14 that are on the PATH
#
# The Python of .venv records all patterns. Each other version gets a virtual environment with the
# two pinned packages that the kernel needs.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/pythons.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/patterns"
.venv/bin/python -m tests.kernel.replaying record "$work/patterns"
grep -E '^(msgpack|google-re2)==' requirements/dev.txt >"$work/needed.txt"

status=0
for python in "${pythons[@]}"; do
  "$python" -m venv --clear "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$work/needed.txt"
  PYTHONPATH=. PYTHONHASHSEED=1 "$work/venv/bin/python" -m tests.kernel.replaying "$work/patterns" || status=1
done
exit "$status"
