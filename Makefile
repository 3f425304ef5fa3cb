# Everything a fresh clone needs: Python 3.11+ and make. All targets create .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo and the commands need only the package and its server; all else needs everything.
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The version that was tested. Without a GPU the CPU build is much smaller: PIP_INDEX_URL can name its index.
TORCH ?= torch==2.13.0
# What was tested together; empty takes the newest that pyproject.toml allows.
CONSTRAINTS ?= -c constraints.txt
# Processes that run tests at once: some of them always wait for something.
WORKERS ?= 3
# Which tests: all, or some (make test TESTS=tests/decoding).
TESTS ?=

.PHONY: setup packages demo test test-clients attack audit lint format docs reproduce bench bench-cache bench-blocks bench-serve clean help

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/ —/'

setup: $(DEV) ## create .venv with the package and everything needed to work on it

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)" $(CONSTRAINTS)
	$(PIP) -e ".[serve]" $(CONSTRAINTS)
	@touch $@

$(DEV): $(READY) docs/requirements.txt
	$(PIP) -e ".[dev]" -r docs/requirements.txt $(CONSTRAINTS)
	@touch $@

demo: $(READY) ## ρ-EOS beside fixed length and DAEDAL on the embedded model
	@$(BIN)/python examples/demo.py

packages: ## the Debian packages that some tests need: bubblewrap, chromium, g++, systemd
	@PYTHON="$(PYTHON)" .ci/packages

test: packages $(DEV) ## all tests; the last line says what could not be tried on this machine
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# Other people's clients have requirements of their own.
CLIENTS := .venv-clients
$(CLIENTS)/.ready: clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	@touch $@

test-clients: $(READY) $(CLIENTS)/.ready ## langchain-openai, litellm and llama-index against a real server
	RHO_EOS_PYTHON=$(abspath $(BIN)/python) $(CLIENTS)/bin/python -m pytest -q -p no:cacheprovider -c clients/pytest.ini clients

attack: packages $(DEV) ## everything that attacks sandbox, server, engine, files and checkpoints, at length
	@$(BIN)/python -m tests.attack $(AREAS)

audit: $(READY) ## known vulnerabilities of the tested versions; asks a database on the network
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@$(VENV)/audit/bin/python -m tests.audit $(VENV)/audit/bin/pip-audit

lint: $(DEV) ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV) ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site is made from the sources as text, so it needs neither torch nor the package.
DOCS := .venv-docs
$(DOCS)/.ready: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $< $(CONSTRAINTS)
	@touch $@

docs: $(DOCS)/.ready ## the documentation site, in site/; a broken link or reference is an error
	$(DOCS)/bin/zensical build --strict --clean
	@echo "The site is built: open $(CURDIR)/site/index.html in a browser, or serve it with"
	@echo "$(PYTHON) -m http.server --directory site"

reproduce: $(DEV) ## the paper's tables and figures on the embedded model, about a quarter of an hour
	$(BIN)/rho-eos reproduce all --model tiny --limit 40 --out reproduction

bench: $(DEV) ## speed and memory as ratios to the naive reference decoder
	@$(BIN)/python -m benchmarks.decode

bench-cache: $(DEV) ## what the window cache saves on the embedded model, about two hours
	@$(BIN)/python -m benchmarks.cache

bench-blocks: $(DEV) ## what kept blocks save block diffusion models; an hour and 16 GB, less with --layers
	@$(BIN)/python -m benchmarks.blocks $(OPTIONS)

bench-serve: $(DEV) ## throughput of the server under load, exact and with the window cache
	@$(BIN)/python -m benchmarks.serve_load

clean: ## remove the environments and caches
	rm -rf $(VENV) $(CLIENTS) $(DOCS) .cache .mypy_cache .pytest_cache .ruff_cache site
