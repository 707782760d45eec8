# Everything runs in .venv. uv is used when it is on the PATH, otherwise the venv
# and pip that come with Python.
PYTHON ?= python3
UV     := $(shell command -v uv 2>/dev/null)
BIN    := .venv/bin
READY  := .venv/.ready

.DEFAULT_GOAL := help

help:  ## Show this help.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY)  ## Create .venv with the pinned tools and the project, editable.

# The stamp depends on pyproject.toml because entry points are metadata: a new one is seen only
# after the project is installed again.
$(READY): pyproject.toml requirements/dev.txt scripts/install.sh
	@PYTHON="$(PYTHON)" UV="$(UV)" scripts/install.sh
	@touch $@

demo: $(READY)  ## Review a folder of documents: wait, approve with an edit, resume, report.
	@$(BIN)/python examples/document_review/demo.py

# While one processor is busy with types, the other compiles the tests: else each of the processes
# that run them would do that for itself. What the machine lacks is fetched meanwhile.
test: $(READY)  ## Check format, lint, types and import contracts, then run the tests.
	@scripts/sandboxes.sh & machine=$$!; $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 & \
	  $(MAKE) --no-print-directory lint && wait $$machine; status=$$?; wait; exit $$status
	$(BIN)/pytest -n auto --dist worksteal --no-skips $(ARGS)

lint: $(READY)  ## Check format, lint, types and import contracts.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(READY)  ## Format, and repair what can be repaired.
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(READY)  ## Measure speed, size and growth against SQLite alone.
	$(BIN)/python -m benchmarks $(ARGS)

replay: $(READY)  ## Replay recorded executions under other versions of Python (ARGS: which).
	@scripts/replay.sh $(ARGS)

coverage: $(READY)  ## Which lines and branches of the kernel do its tests not reach?
	$(BIN)/pytest -q -n auto tests/kernel tests/language --timeout 0 -o faulthandler_timeout=0 \
	  --cov --cov-report term-missing:skip-covered $(ARGS)

versions: $(READY)  ## Run the tests without processes under other versions of Python (ARGS: which).
	@scripts/versions.sh $(ARGS)

small-model: $(READY)  ## Run agents on a real small model, on this machine (ARGS: for pytest).
	@scripts/small_model.sh $(ARGS)

mutate: $(READY)  ## Make 400 small changes to the program: which of them do tests miss?
	@$(BIN)/python -m scripts.mutate $(ARGS)

lock:  ## Pin the newest allowed versions (needs uv).
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url \
	  --all-extras --no-annotate --custom-compile-command 'make lock' \
	  pyproject.toml requirements/dev.in --output-file requirements/dev.txt

clean:  ## Remove what the other targets made.
	rm -rf .venv .mutate build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo test lint fix bench replay coverage versions small-model mutate lock clean
