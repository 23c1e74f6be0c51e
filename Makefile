# make demo | test | test-long | lint | docs | bench | clean. The first of each sets up what it needs; after that nothing is downloaded.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Neighbouring tests share what they made: each worker takes a part of the list, and whoever ends first helps the others.
# Three on two cores: servers, browsers and commands that tests start leave cores idle.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal
unexport PYTHONDONTWRITEBYTECODE  # the suite starts hundreds of interpreters: each file is compiled once

.PHONY: demo test test-long lint docs bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	@rm -rf demo
	$(BIN)/tabulae demo --out demo

test: $(VENV)/.installed-dev
	@tests/browser/chromium.sh
	@tests/engines/servers.sh
	$(PYTEST) -m "not long"

# Statistical sweeps and exhaustive matrices: each has a short version in `make test`. Laws are tried on more examples.
test-long: $(VENV)/.installed-dev
	@tests/browser/chromium.sh
	@tests/engines/servers.sh
	HYPOTHESIS_PROFILE=long $(PYTEST) -m "long or hypothesis"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.circles

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/information.py
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/tutorials/execute.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-bench
	@for script in $(notdir $(basename $(wildcard benchmarks/*.py))); do echo "== $$script"; $(BIN)/python -m "benchmarks.$$script" || exit 1; done

clean:
	rm -rf build demo dist site .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "tabulae needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp for each set of packages, renewed when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml | $(VENV)/.python
	@echo "Installing tabulae into $(VENV) (once)"
	$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.python
	@echo "Installing tabulae and its development tools into $(VENV) (once)"
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.python
	@echo "Installing tabulae and what it is compared with into $(VENV) (once)"
	$(PIP) install --editable '.[bench]'
	@touch $@ $(VENV)/.installed
