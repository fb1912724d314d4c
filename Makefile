# `make run` does the main job, `make test` passes the tests; both make the environment first if it is missing.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
EXTRA ?= dev
WORKERS ?= --numprocesses auto --dist worksteal
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test test-all test-versions test-lowest test-newest check lint types clean

run: $(STAMP)
	$(BIN)/sheafstate demo

test: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS)

test-all: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) -m 'not gpu and not browser'

# The tests in two environments of their own: the lowest versions that pyproject.toml allows, and what is newest today.
test-versions: test-lowest test-newest

test-lowest:
	$(MAKE) test VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt EXTRA=test

test-newest:
	rm -rf .venv-newest
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=

check: lint types test

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "sheafstate needs Python 3.11 to 3.13; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS:%=-c %) -e '.[$(EXTRA)]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
