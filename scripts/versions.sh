#!/usr/bin/env bash
# Runs the tests without processes under other versions of Python, with the pinned tools.
# usage: scripts/versions.sh [PYTHON...]    default: those of 3.12 to 3.14 that are on the PATH
#
# Each gets a virtual environment, with the project installed as by a user.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests/building tests/expressions tests/flow tests/journal tests/kernel tests/language tests/nodes)

source scripts/pythons.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for python in "${pythons[@]}"; do
  "$python" -m venv --clear "$work/venv"
  pip=("$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" -r requirements/dev.txt
  "${pip[@]}" --no-deps --no-build-isolation --editable .
  "$work/venv/bin/python" --version
  "$work/venv/bin/python" -m pytest -q -n auto -p no:cacheprovider "${tests[@]}" || status=1
done
exit "$status"
