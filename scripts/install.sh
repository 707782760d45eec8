#!/usr/bin/env bash
# Make .venv with the project in it, editable, and the pinned packages.
# usage: scripts/install.sh [demo|all]
#
#   demo   what the demo needs: the project's own dependencies and the extra for documents
#   all    every extra, and the tools of `make test`
#
# The Makefile calls it, with the interpreter in PYTHON and a uv on the PATH in UV. If UV is empty,
# the pinned one is installed into .venv first: that takes 3 seconds and saves a minute.
# pip installs the packages if no uv exists for the machine, or if uv cannot reach the registry.
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:-all}
python=${PYTHON:-python3}
uv=${UV:-}
pins=requirements/dev.txt
builder=(hatchling editables) # what builds the project: installed first, so that its pins hold
quiet=(--quiet --disable-pip-version-check)
# uv bundles certificates, while Debian's pip trusts those of the system, which can be more.
if [ -s /etc/ssl/certs/ca-certificates.crt ]; then
  export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
fi

say() { echo "install: $*"; }
give_up() { echo "install: $*" >&2; exit 1; }

# Set `pip` to a command that installs into .venv, if there is one.
find_pip() {
  if .venv/bin/python -m pip --version >/dev/null 2>&1; then
    pip=(.venv/bin/python -m pip)
  elif "$python" -m pip --python .venv/bin/python --version >/dev/null 2>&1; then
    pip=("$python" -m pip --python .venv/bin/python)
  else
    return 1
  fi
}

# Make .venv and find its pip. The interpreter's pip is preferred, because installing one into .venv
# takes seconds, and fails on Debian without python3-venv. But it can be missing or too old.
make_venv() {
  { "$python" -m venv --without-pip .venv >/dev/null 2>&1 && find_pip; } \
    || { "$python" -m venv .venv >/dev/null 2>&1 && find_pip; }
}

make_venv_anywhere() {
  make_venv && return
  scripts/debian.sh install python3-venv python3-pip
  make_venv || give_up "$python can make no .venv with pip, not even with python3-venv and python3-pip"
}

# Set `uv` to the pinned one in .venv, if a wheel exists for this machine: building it would
# require a Rust compiler and take minutes.
fetch_uv() {
  "${pip[@]}" install "${quiet[@]}" --no-deps --only-binary :all: --requirement requirements/uv.txt \
    && .venv/bin/uv --version >/dev/null && uv=.venv/bin/uv
}

# pip always compiles, uv only with an option. Without bytecode, each process that cannot write it
# would compile its imports: those in sandboxes (a second more for each PDF), and all where
# PYTHONDONTWRITEBYTECODE is set.
with_uv() {
  local into=(--quiet --python .venv --compile-bytecode)
  if [ "$part" = demo ]; then
    "$uv" pip install "${into[@]}" --constraint "$pins" "${builder[@]}" \
      && "$uv" pip install "${into[@]}" --constraint "$pins" --no-build-isolation --editable '.[documents]'
  else
    "$uv" pip sync "${into[@]}" "$pins" \
      && "$uv" pip install "${into[@]}" --no-deps --no-build-isolation --editable .
  fi
}

with_pip() {
  if [ "$part" = demo ]; then
    "${pip[@]}" install "${quiet[@]}" --constraint "$pins" "${builder[@]}"
    "${pip[@]}" install "${quiet[@]}" --constraint "$pins" --no-build-isolation --editable '.[documents]'
  else
    "${pip[@]}" install "${quiet[@]}" --requirement "$pins"
    "${pip[@]}" install "${quiet[@]}" --no-deps --no-build-isolation --editable .
  fi
}

case $part in
  demo) content="what the demo needs" ;;
  all) content="all pinned packages" ;;
  *) give_up "usage: scripts/install.sh [demo|all]" ;;
esac
command -v "$python" >/dev/null || scripts/debian.sh install python3 python3-venv python3-pip
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || give_up "flowengine needs Python 3.11 or newer, $python is older; say PYTHON=python3.12 make install"

say "making .venv with $("$python" --version) and $content"
if [ -n "$uv" ]; then
  "$uv" venv --quiet --allow-existing --python "$python" .venv
else
  make_venv_anywhere
  fetch_uv || say "there is no uv for this machine (see above), so pip installs the packages: this takes a minute"
fi

if [ -z "$uv" ]; then
  with_pip
elif ! with_uv; then
  say "uv could not install the packages (see above). It does not read pip's configuration, such as" \
    "another registry or a certificate; trying pip: this takes a minute"
  make_venv_anywhere
  with_pip
fi
say "done: .venv/bin/flowengine"
