# What a developer or a stranger runs. Everything happens in an environment of its own, made on first use; it is made
# anew when pyproject.toml or the chosen Python changes. Needs make and Python 3.11 or newer, nothing else.

PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(notdir $(PYTHON))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test check fmt bench bench-context soak test-vllm clean

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "Another Python: make PYTHON=python3.12 ..."

install: $(STAMP) ## Make the environment (.venv) with kvgate in it; the others do so by themselves

demo: $(STAMP) ## Run everything on this machine: a store, four emulated engines, the gateway
	@$(BIN)/kvgate demo

test: check ## The whole check: lint, format, types, imports, all tests
	$(BIN)/pytest -m "not vllm"

check: $(STAMP) ## Lint, format, types and imports, without the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP) ## Put the code in order: format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## Measure what the gateway costs (see docs/performance.md)
	PYTHON=$(abspath $(BIN)/python) bash bench/run.sh

bench-context: $(STAMP) ## Replay sessions through the context policies: what they cost and what they keep
	@$(BIN)/python -m bench.context $(ARGS)

soak: $(STAMP) ## Ten minutes of load with faults, then 1,000 schedules of kills (MINUTES=, SCHEDULES=)
	@$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),10); load=$$?; \
	$(BIN)/python -m bench.kills --schedules $(or $(SCHEDULES),1000); kills=$$?; \
	if [ $$load = 0 ]; then load=clean; else load="not clean"; fi; \
	if [ $$kills = 0 ]; then kills=right; else kills="not right"; fi; \
	echo "load with faults: $$load; kills: $$kills"; \
	[ "$$load, $$kills" = "clean, right" ]

test-vllm: $(STAMP) ## The same conversations against a real vLLM on this machine's CPU (installs it; slow)
	PYTHON=$(abspath $(BIN)/python) bash tests/vllm/run.sh

clean: ## Remove the environment, the caches and the demo's data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache kvgate-data

# A Python that is missing, too old or without venv is one line that says so.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || \
	  { echo "kvgate needs Python 3.11 or newer, and there is no $(PYTHON) here. Another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kvgate needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make environments: its venv module is missing. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test "$$($(BIN)/python -V 2>/dev/null)" = "$$($(PYTHON) -V)" || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
