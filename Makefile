# Needs make and Python 3.11 or later with pip. Everything is installed into .venv.
#
#   make stateful   Hypothesis drives the model, and live vLLM where it is installed
#   make test       installs live vLLM too; lint, types and every test
#   make nightly    what takes long or sees little more: findings on real engines, the diffs of their
#                   pages, a browser, and every search on every preset and every fault
#   make report NAME=finding   writes its reproducer as one file that needs vLLM and pytest alone
#   make live       installs live vLLM (CPU build; about 3.5 GB)
#   make lint       ruff, codespell, mypy, and what may import what (make types: mypy alone)
#   make clean      removes what make made; traces stay

PYTHON ?= python3
# Processes that run tests at a time; each holds about 1 GB where vLLM is there.
WORKERS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip
PYTEST := $(BIN)/python -m pytest -q -p kvproof.cli.keep_traces
PARALLEL := -n $(WORKERS) --dist worksteal

.NOTPARALLEL:
.PHONY: stateful test nightly report live lint types clean

stateful: .venv/base-installed
	@$(PYTEST) --live-line -m "stateful and not nightly" $(PARALLEL)

# Live tests that do not run are an error here.
test: export KVPROOF_REQUIRE_LIVE := 1
test: lint .venv/live-installed
	@$(PYTEST) --live-line -m "not nightly" $(PARALLEL)

nightly: .venv/live-installed
	@$(PYTEST) -m nightly

report: .venv/base-installed
	@$(BIN)/python -m findings.report $(NAME) kvproof-traces/test_$(NAME).py

live: .venv/live-installed
	@echo "live: vLLM is installed in .venv"

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-logo
	$(MAKE) types

types: .venv/dev-installed
	$(BIN)/mypy -p kvproof

.venv/base-installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is older than Python 3.11. Write make PYTHON=python3.11 or a later one."; \
	    exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) install -qq --editable '.[test]'
	@touch $@

.venv/dev-installed: .venv/base-installed
	$(PIP) install -qq --editable '.[dev]'
	@touch $@

# vLLM's CPU build also brings torchvision, torchaudio and torchcodec. Where pip takes their CUDA
# builds they do not load beside a CPU torch, and transformers, hence vLLM, cannot be imported while
# they are there. kvproof needs none of them: those that do not load are removed.
.venv/live-installed: .venv/base-installed
	@echo "Installing vLLM's CPU build. This takes some minutes."
	@$(PIP) install -qq --editable '.[live]' || { \
	    echo "vLLM's CPU build cannot be installed. Where pip finds no torch +cpu, set" \
	         "PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds and write make live again."; \
	    exit 2; }
	@for module in torchvision torchaudio torchcodec; do \
	    $(BIN)/python -c "import $$module" 2>/dev/null || $(PIP) uninstall -qq --yes $$module; \
	done
	@$(BIN)/python -c 'import vllm'
	@touch $@

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache src/*.egg-info
