# What a person and CI type. `make help` lists the targets. Everything is made in .venv and can be deleted with it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
IMAGE ?= horovod
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# The real MNIST where it lies beside the clone; otherwise the examples look for it or download it.
ifndef MNIST_DATA_DIR
ifneq ($(wildcard ../shared/data/mnist),)
export MNIST_DATA_DIR := $(abspath ../shared/data/mnist)
endif
endif

# The package is installed in place, so a change of Python code needs no step; these make it be built again.
BUILD_INPUTS := setup.py pyproject.toml CMakeLists.txt horovod/__init__.py $(wildcard build_support/*.py) \
	$(shell find horovod/native -name '*.cc' -o -name '*.h')

# Further options of `make lab`: make lab LAB="--lang zh --np 1 2"
LAB ?=

.PHONY: help mnist lab test test-fresh test-sanitize check bench docs image clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

mnist: $(VENV)/.examples ## train MNIST for one epoch: 2 processes, 8-bit gradients
	@horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce --epochs 1 --allow-digits

lab: $(VENV)/.lab ## the experiment: train with 1, 2 and 4 ranks, in 32, 16 and 8 bits, and report (LAB="more options")
	@$(BIN)/python -m horovod.lab --epochs 1 --seeds 1 $(LAB)

test: check ## all checks, then all tests but the slow ones
	@failed=0; \
	$(BIN)/pytest -m 'not slow' --ignore test/single test || failed=1; \
	$(BIN)/pytest -m 'not slow' --numprocesses 2 test/single || failed=1; \
	exit $$failed

test-fresh: $(VENV)/.tests ## the slow tests: builds from scratch, and README's commands on a fresh Debian
	@$(BIN)/pytest -m slow --timeout 1800 test

check: $(VENV)/.tests ## style, types, size budget, layers
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/check_budget.py
	@$(BIN)/python scripts/check_cuda.py
	@$(BIN)/pytest -q test/single/test_layers.py

bench: $(VENV)/.tests ## codecs, allreduce and the engine beside memcpy, MPI and gloo
	@$(BIN)/python benchmarks/codec.py
	@$(BIN)/python benchmarks/allreduce.py
	@$(BIN)/python benchmarks/engine.py

test-sanitize: $(VENV)/.tests ## test/single under AddressSanitizer, UBSan and ThreadSanitizer
	@bash scripts/test_sanitized.sh $(BIN)/python address,undefined
	@bash scripts/test_sanitized.sh $(BIN)/python thread

docs: $(VENV)/.tests ## the documentation site, in build/site; open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

image: ## build the container image with docker, podman or buildah
	@bash scripts/build_image.sh $(IMAGE)

clean: ## remove what was built, but not .venv
	rm -rf build dist *.egg-info horovod/*.so horovod/build_info.json $(VENV)/.package

$(VENV)/.made:
	@bash scripts/check_prerequisites.sh $(PYTHON)
	@echo "making $(VENV)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch: $(VENV)/.made
	@bash scripts/install_torch.sh $(BIN)/python
	@touch $@

$(VENV)/.package: $(VENV)/.torch $(BUILD_INPUTS)
	@bash scripts/check_prerequisites.sh $(PYTHON)
	@echo "building and installing horovod (about a minute; two more where CUDA is found)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.examples: $(VENV)/.package
	@$(PIP) $$($(BIN)/python scripts/requirements_of.py examples)
	@touch $@

$(VENV)/.lab: $(VENV)/.examples
	@$(PIP) $$($(BIN)/python scripts/requirements_of.py lab)
	@touch $@

$(VENV)/.tests: $(VENV)/.lab
	@echo "installing what the checks and tests need"
	@$(PIP) $$($(BIN)/python scripts/requirements_of.py test) $$($(BIN)/python scripts/requirements_of.py check) \
		$$($(BIN)/python scripts/requirements_of.py docs) \
		$$($(BIN)/python scripts/requirements_of.py friends) \
		$$($(BIN)/python -m build_support.requirements)
	@touch $@
