#!/usr/bin/env bash
# Make .venv with the pinned tools and the project in it. Called by the Makefile, which says in
# PYTHON which interpreter to use and in UV where uv is, if it is.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
uv=${UV:-}
pins=requirements/dev.txt

say() { echo "install: $*"; }
give_up() { echo "install: $*" >&2; exit 1; }

# Install Debian packages, or say what to do where that is not possible.
debian() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    give_up "this machine lacks $*; on Debian or Ubuntu: sudo apt-get install $*"
  fi
  say "installing the Debian packages $*"
  local log
  log=$(mktemp)
  if ! { apt-get update && apt-get install --yes --no-install-recommends "$@"; } >"$log" 2>&1; then
    cat "$log" >&2
    give_up "apt-get could not install $*"
  fi
  rm -f "$log"
}

command -v "$python" >/dev/null || debian python3 python3-venv python3-pip
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || give_up "flowengine needs Python 3.11 or newer, $python is older; say PYTHON=python3.12 make install"

if [ -n "$uv" ]; then
  say "making .venv with uv and $pins"
  "$uv" venv --quiet --allow-existing --python "$python" .venv
  "$uv" pip sync --quiet --python .venv "$pins"
  "$uv" pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
  exit
fi

say "making .venv with $("$python" --version) and $pins"
if ! "$python" -m venv .venv >/dev/null 2>&1; then
  # Debian splits venv: without python3-venv there is no ensurepip, but an outer pip will do.
  "$python" -m pip --version >/dev/null 2>&1 || debian python3-venv python3-pip
  "$python" -m venv .venv >/dev/null 2>&1 || "$python" -m venv --clear --without-pip .venv
fi
if .venv/bin/python -m pip --version >/dev/null 2>&1; then
  pip=(.venv/bin/python -m pip)
else
  pip=("$python" -m pip --python .venv/bin/python)
fi
"${pip[@]}" install --quiet --disable-pip-version-check --requirement "$pins"
"${pip[@]}" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
say "done: .venv/bin/flowengine"
