# Everything a fresh clone needs: Python 3.11+ and make. All targets create .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo and the commands need only the package and its server; all else needs everything.
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Pinned here, not in pyproject.toml, so that the small CPU build is installed.
TORCH ?= torch==2.13.0
# Processes that run tests at once.
WORKERS ?= 2

.PHONY: setup demo test test-clients lint format reproduce bench bench-cache bench-serve clean help

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/ —/'

setup: $(DEV) ## create .venv with the package and everything needed to work on it

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(PIP) -e ".[serve]"
	@touch $@

$(DEV): $(READY)
	$(PIP) -e ".[dev]"
	@touch $@

demo: $(READY) ## ρ-EOS beside fixed length and DAEDAL on the embedded model
	@$(BIN)/python examples/demo.py

test: $(DEV) ## all tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Other people's clients have requirements of their own.
CLIENTS := .venv-clients
$(CLIENTS)/.ready: clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	@touch $@

test-clients: $(READY) $(CLIENTS)/.ready ## langchain-openai, litellm and llama-index against a real server
	RHO_EOS_PYTHON=$(abspath $(BIN)/python) $(CLIENTS)/bin/python -m pytest -q -p no:cacheprovider -c clients/pytest.ini clients

lint: $(DEV) ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV) ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: $(DEV) ## the paper's tables and figures on the embedded model, about a quarter of an hour
	$(BIN)/rho-eos reproduce all --model tiny --limit 40 --out reproduction

bench: $(DEV) ## speed and memory as ratios to the naive reference decoder
	@$(BIN)/python -m benchmarks.decode

bench-cache: $(DEV) ## what the window cache saves on the embedded model, about two hours
	@$(BIN)/python -m benchmarks.cache

bench-serve: $(DEV) ## throughput of the server under load, as ratios to sequential requests
	@$(BIN)/python -m benchmarks.serve_load

clean: ## remove the environment and caches
	rm -rf $(VENV) $(CLIENTS) .mypy_cache .pytest_cache .ruff_cache
