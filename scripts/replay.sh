#!/usr/bin/env bash
# Replays recorded executions under other versions of Python: is each state the same to the byte?
# usage: scripts/replay.sh [PYTHON...]    by default those of 3.12 to 3.14 that are on the PATH
#
# Recorded are the journals of the tests and, with the Python of .venv, all patterns. The others get
# an environment of their own with the two packages that the kernel needs, as pinned.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/pythons.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/patterns"
.venv/bin/python -m tests.kernel.replaying record "$work/patterns"
grep -E '^(msgpack|cel-expr-python)==' requirements/dev.txt >"$work/needed.txt"

status=0
for python in "${pythons[@]}"; do
  "$python" -m venv --clear "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$work/needed.txt"
  PYTHONPATH=. PYTHONHASHSEED=1 "$work/venv/bin/python" -m tests.kernel.replaying \
    tests/kernel/journals "$work/patterns" || status=1
done
exit "$status"
