#!/usr/bin/env bash
# Check format, lint, types and import contracts, and run the tests. Called by the Makefile.
# usage: scripts/test.sh [PYTEST-ARGUMENT...]
#
# Type checking takes a minute of one CPU, so it runs beside the tests and is reported at the end.
# Before the tests begin, missing programs are installed, and meanwhile one process compiles the
# tests. Otherwise each process that runs them would compile them. The bytecode is kept until a
# file changes.
set -euo pipefail
cd "$(dirname "$0")/.."

checks=$(mktemp)
trap 'rm -f "$checks"; kill $(jobs -p) 2>/dev/null || true' EXIT

.venv/bin/ruff format --check --quiet
.venv/bin/ruff check --quiet
scripts/sandboxes.sh &
machine=$!
stamp=.venv/.compiled
if [ ! -e "$stamp" ] || [ -n "$(find .venv/.ready-tests tests flowengine nodes envs -newer "$stamp" \
  \( -name '*.py' -o -name .ready-tests \) -print -quit)" ]; then
  touch "$stamp.begun"
  { .venv/bin/pytest --collect-only -qq >/dev/null 2>&1 && mv "$stamp.begun" "$stamp"; } &
else
  true &
fi
compiled=$!
{ .venv/bin/mypy && .venv/bin/lint-imports --no-logo && .venv/bin/python -m scripts.terms; } >"$checks" 2>&1 &
lint=$!
wait "$machine"
wait "$compiled" || true # what is wrong there, the tests report

status=0
.venv/bin/pytest -n auto --dist worksteal --no-skips "$@" || status=$?
if ! wait "$lint"; then
  cat "$checks"
  status=1
fi
exit "$status"
