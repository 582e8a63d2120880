# What a person or a CI job does here. `make` lists it; each target sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Present and newer than pyproject.toml: the environment has what pyproject.toml asks for.
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
FUZZ_READY := $(VENV)/.ready-fuzz

.DEFAULT_GOAL := help
.PHONY: help run test test-node test-upstream test-pythons guest test-guest check proof long lint new-actor bench bench-kubelet bench-runtimes proto clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) ## Run the agent on etc/samples, in the foreground, until Ctrl-C
	@exec $(BIN)/python -m tests.run_samples $(BIN)/supervisor run

# Side by side, since tests wait for most of their time; what a module makes once for all its tests stays on one worker.
# pytest's own options win: PYTEST_ARGS="-n 0 -x".
SIDE_BY_SIDE := --dist loadgroup --no-loadscope-reorder --durations 15 --durations-min 5

test: $(DEV_READY) ## Run the tests that need nothing but this machine; says at its end what it left out
	@$(BIN)/pytest --target=test -n 4 $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-node: $(DEV_READY) ## Run the others: on containerd, CNI, a control plane, Chromium; installs them on Debian as root
	@$(BIN)/python -m tests.suite.prepare
	@$(BIN)/pytest --target=node -n 3 $(SIDE_BY_SIDE) $(PYTEST_ARGS)

# Which specs: tests/upstream/specs.py. The first time it builds the suite, ten minutes.
test-upstream: $(DEV_READY) ## Run upstream's end-to-end specs of a node, half an hour (UPSTREAM_ARGS="--runtime embedded")
	@$(BIN)/python -m tests.suite.prepare
	@$(BIN)/python -m tests.upstream $(UPSTREAM_ARGS)

test-pythons: $(DEV_READY) ## Run `make test` with each other Python here, from 3.11 on: ten minutes for each
	@.ci/pythons

test-guest: $(DEV_READY) ## Run the tests of a guest with systemd and cgroup v2, under qemu or on NODEVISOR_GUEST=root@HOST
	@$(BIN)/python -m tests.guest.prepare
	@$(BIN)/pytest --target=guest --durations 15 --durations-min 5 tests/guest $(PYTEST_ARGS)

guest: $(DEV_READY) ## Start such a guest with this checkout, and a shell in it; its disk is gone with it
	@$(BIN)/python -m tests.guest.prepare
	@exec $(BIN)/python -m tests.guest

check: $(DEV_READY) ## Lint, and test what changed against main, within a minute (PACKAGE=actors/probe: its pure tests)
	@$(BIN)/python -m tests.suite.check $(PACKAGE)

# What each variable sets the full size of is in the module that reads it.
FULL_SIZE := NODEVISOR_KILLS=200 NODEVISOR_CHANGES=100 NODEVISOR_DEAD_S=600 NODEVISOR_FOREIGN_S=300 \
    NODEVISOR_MUTATIONS=10000 NODEVISOR_MODEL_EXAMPLES=2000 NODEVISOR_MODEL_STEPS=100 NODEVISOR_FOLLOW_S=600 \
    NODEVISOR_IDLE_TLS=10000 NODEVISOR_OUTAGE_S=180 NODEVISOR_STORM_S=300 NODEVISOR_SOAK=1000 \
    NODEVISOR_LIES_S=3600 NODEVISOR_FRAMES=100000 NODEVISOR_CHAOS_S=600 NODEVISOR_HUNG_S=600 NODEVISOR_HISTORIES=10000
FUZZ_SECONDS ?= 3600

long: $(FUZZ_READY) ## Run the tests at full length, before a release: seven hours, one of them fuzzing (FUZZ_SECONDS=...)
	@$(BIN)/python -m tests.suite.prepare
	$(FULL_SIZE) $(BIN)/pytest $(PYTEST_ARGS) \
	    tests/agent/volumes/test_kills.py tests/agent/volumes/test_volumes.py tests/agent/volumes/test_dead_mount.py \
	    tests/agent/recovery/runtime/test_embedded_kills.py tests/agent/recovery/test_soak.py \
	    tests/agent/recovery/static_pods/test_lying_server.py tests/agent/api/test_storms.py \
	    tests/resources/test_kills.py tests/runtime/containers/test_kills.py \
	    tests/runtime/images/store/test_recovery.py \
	    tests/server/routes/test_following.py tests/server/transport/test_many.py tests/model/test_model.py \
	    tests/kubeletconfig/test_mutations.py tests/foreign tests/fuzz \
	    tests/proof/process/test_attack.py tests/proof/process/test_chaos.py tests/proof/process/test_hung_call.py \
	    tests/image_gc/pure/test_histories.py tests/container_gc/pure/test_histories.py tests/eviction/pure/test_histories.py
	NODEVISOR_TEST_RUNTIME=embedded $(BIN)/pytest $(PYTEST_ARGS) \
	    tests/agent/lifecycle/test_ends.py tests/agent/lifecycle/test_hooks.py tests/agent/lifecycle/test_restart.py \
	    tests/agent/lifecycle/test_sidecars.py tests/agent/specs/test_probes.py
	$(BIN)/python -m tests.fuzz long --seconds $(FUZZ_SECONDS)
	$(MAKE) test-upstream
	NODEVISOR_GUEST_SUITES=all $(MAKE) test-guest

proof: $(DEV_READY) ## Prove the promises of the supervision; prints a table for each (PROOF="matrix", NODEVISOR_PROOF_PODS=30)
	@$(BIN)/python -m tests.proof $(PROOF)

new-actor: $(DEV_READY) ## Write a new actor with its messages and tests (NAME=disk_health PURPOSE="watches disks")
	@$(BIN)/python .ci/new_actor.py "$(NAME)" "$(PURPOSE)"

lint: $(DEV_READY) ## Check style, formatting, types, dead code, who imports whom, and prose
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.pages.dead_code
	$(BIN)/python -m tests.pages prose

bench: $(RUN_READY) ## Measure the agent next to floors of the same run (BENCH_ARGS="--parts pods,service --pods 1,10 --json")
	@exec $(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-kubelet: $(RUN_READY) ## Measure the agent next to a real kubelet, Debian's or KUBELET=PATH (BENCH_ARGS="--rounds 5")
	@[ -n "$$KUBELET" ] || .ci/kubernetes kubelet
	@exec $(BIN)/python -m tests.bench.kubelet $(BENCH_ARGS)

bench-runtimes: $(RUN_READY) ## Measure the embedded runtime next to containerd (BENCH_ARGS="--pods 50 --rounds 3 --agent")
	@exec $(BIN)/python -m tests.bench.runtimes $(BENCH_ARGS)

proto: $(DEV_READY) ## Generate the stubs of the .proto files
	$(BIN)/python -m proto.generate

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Says in one line what is wrong and what to do; see there.
SET_UP = @command -v $(PYTHON) >/dev/null || \
    { echo "cannot set up: no $(PYTHON) here; install Python 3.11 or later, or name it: make PYTHON=..." >&2; exit 1; }; \
    exec $(PYTHON) .ci/setup.py

$(RUN_READY): pyproject.toml
	$(SET_UP) run

$(DEV_READY): $(RUN_READY)
	$(SET_UP) dev

$(FUZZ_READY): $(DEV_READY)
	$(SET_UP) fuzz
