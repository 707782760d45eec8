#!/usr/bin/env bash
# Check format, lint, types and import contracts, and run the tests. Called by the Makefile.
# usage: scripts/test.sh [PYTEST-ARGUMENT...]
#
# Types take a minute of one processor, so they are checked beside the tests, and reported at the
# end. Before the tests begin, what the machine lacks is fetched, and meanwhile one process compiles
# the tests: otherwise each of the processes that run them would do that for itself. What it compiled
# lasts until something is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

checks=$(mktemp)
trap 'rm -f "$checks"' EXIT

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
{ .venv/bin/mypy && .venv/bin/lint-imports --no-logo; } >"$checks" 2>&1 &
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
