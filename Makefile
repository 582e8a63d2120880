# What a person or a CI job does here. `make` lists it; each target sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Present and newer than pyproject.toml: the environment has what pyproject.toml asks for.
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev

.DEFAULT_GOAL := help
.PHONY: help run test long lint bench bench-runtimes proto clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) ## Run the agent on etc/samples, in the foreground, until Ctrl-C
	@exec $(BIN)/python -m tests.containerd.session $(BIN)/supervisor run etc/samples --objects-dir etc/samples/objects

test: $(DEV_READY) ## Run the tests; on a CI machine, install the Debian packages they need
	@$(BIN)/python -m tests.containerd.prepare
	$(BIN)/pytest $(PYTEST_ARGS)

long: $(DEV_READY) ## Run at full length, before a release, the tests that `test` runs with few repetitions (an hour)
	@$(BIN)/python -m tests.containerd.prepare
	NODEVISOR_KILLS=200 NODEVISOR_CHANGES=100 NODEVISOR_DEAD_S=600 $(BIN)/pytest $(PYTEST_ARGS) \
	    tests/agent/test_volume_kills.py tests/agent/test_volumes.py tests/agent/test_volume_dead.py \
	    tests/runtime/test_containers.py tests/runtime/test_store.py tests/agent/test_embedded_kills.py
	NODEVISOR_TEST_RUNTIME=embedded $(BIN)/pytest $(PYTEST_ARGS) \
	    tests/agent/test_lifecycle_ends.py tests/agent/test_lifecycle_hooks.py tests/agent/test_lifecycle_restart.py \
	    tests/agent/test_lifecycle_sidecars.py tests/agent/test_spec_probes.py

lint: $(DEV_READY) ## Check style, formatting, types and who imports whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(RUN_READY) ## Measure the agent next to the bare CRI calls (BENCH_ARGS="--pods 1,10 --json")
	@exec $(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-runtimes: $(RUN_READY) ## Measure the embedded runtime next to containerd (BENCH_ARGS="--pods 50 --rounds 3 --agent")
	@exec $(BIN)/python -m tests.bench.runtimes $(BENCH_ARGS)

proto: $(DEV_READY) ## Generate the stubs of the .proto files
	$(BIN)/python -m proto.generate

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip from 25.1 on knows dependency groups; the one that venv brings is older.
$(BIN)/pip: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "cannot set up: $(PYTHON) is older than Python 3.11; name another: make PYTHON=..." >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV); on Debian: apt-get install -y python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $(BIN)/pip

# Compiled ahead, since a process that compiles what it imports is larger for as long as it lives.
$(RUN_READY): $(BIN)/pip
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q supervisor actors proto
	@touch $@

$(DEV_READY): $(RUN_READY)
	@echo "Adding the development tools ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --group dev
	@touch $@
