# What a person and CI type. `make help` lists the targets. Everything is made in .venv and can be deleted with it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
IMAGE ?= horovod
BIN := $(abspath $(VENV))/bin
PYTEST := $(BIN)/pytest --durations 10 --durations-min 5
# Tests that start processes of their own, side by side: test/conftest.py says which are not divided.
ABREAST := --numprocesses logical --maxprocesses 8 --dist loadscope
# Those that `make test` leaves out wait much of their time: three at once on two cores. Said after ABREAST.
CROWDED = --numprocesses $$(expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
# After pytest: tests have failed. Anything else that ended it leaves no list of them, which CI would go by.
FAILED = { code=$$?; [ $$code -eq 1 ] || { rm -f .pytest_cache/v/cache/lastfailed; exit $$code; }; failed=1; }
export PATH := $(BIN):$(PATH)
SHOWN := $(BIN)/python scripts/show_build.py
CHOOSE = $(BIN)/python scripts/changed_tests.py $(CHANGED)
# Python compiles what it imports, and keeps it, whatever the shell says. pip would compile all of PyTorch and SciPy: that
# costs as much as a quarter of our C++, and most of it is never imported.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile
INSTALL := $(SHOWN) --log install.log $(PIP)
unexport PYTHONDONTWRITEBYTECODE

# The real MNIST where it lies beside the clone; otherwise the examples look for it or download it.
ifndef MNIST_DATA_DIR
ifneq ($(wildcard ../shared/data/mnist),)
export MNIST_DATA_DIR := $(abspath ../shared/data/mnist)
endif
endif

# The package is installed in place, so a change of Python code needs no step; these make it be built again. Where they are
# CMake's, nothing is to be installed again. The core's settings are made of the table of options.
NATIVE_INPUTS := CMakeLists.txt $(shell find horovod/native -type f) horovod/common/time_limits.py $(wildcard horovod/common/options/*.py)
BUILD_INPUTS := setup.py pyproject.toml horovod/__init__.py $(wildcard build_support/*.py) $(NATIVE_INPUTS)

# Once with HOROVOD_DEVELOPER=1, and make builds with warnings as errors from then on; 0 is what others have.
HOROVOD_DEVELOPER ?= $(if $(wildcard $(VENV)/.developer-1),1,0)

# Further options of `make lab`: make lab LAB="--lang zh --np 1 2"
LAB ?=

# Further options of `make gpu-report`: make gpu-report GPU_REPORT="--minutes 9 --out results"
GPU_REPORT ?=

# Further options of `make test-wheel`: make test-wheel TEST_WHEEL="--torch 2.4.1 --folder /tmp/wheel"
TEST_WHEEL ?=

# Further options of `make wheels`: make wheels WHEELS="--python 3.11 --machine aarch64"
WHEELS ?=

.PHONY: help mnist lab docs image clean bench gpu-wheels gpu-report check generated wheels
.PHONY: test test-all test-rest test-wheel test-nightly test-fresh test-sanitize test-sanitize-slice test-faults test-mutants test-soak

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

mnist: $(VENV)/.examples ## train MNIST for one epoch: 2 processes, 8-bit gradients
	@horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce --epochs 1 --allow-digits

lab: $(VENV)/.lab ## the experiment: train with 1, 2 and 4 ranks, in 32, 16 and 8 bits, and report (LAB="more options")
	@$(BIN)/python -m horovod.lab --epochs 1 --seeds 1 $(LAB)

ifndef CHANGED
test: check ## checks, then every API and compression, and DDP, with 2 ranks; as root, 2 hosts: 8 minutes. CHANGED=1: less
	@echo "checked; now the tests: some 7 minutes on 2 cores, first what needs no launcher"
	@trap 'echo "stopped by Ctrl-C"; exit 130' INT; failed=0; \
	$(PYTEST) -m 'not slow' --numprocesses logical test/single || $(FAILED); \
	$(PYTEST) -m quick $(ABREAST) test/parallel test/cluster || $(FAILED); \
	exit $$failed

else
test: $(VENV)/.tests
	@if [ "$$($(CHOOSE))" = all ]; then $(MAKE) --no-print-directory test CHANGED=; else $(MAKE) --no-print-directory check; fi
	@chosen=$$($(CHOOSE)); [ "$$chosen" != all ] || exit 0; \
	echo "checked; now the tests of what has changed: $${chosen:-nothing}"; \
	[ -z "$$chosen" ] || $(PYTEST) -m 'not slow' $(ABREAST) $$chosen || [ $$? -eq 5 ] # all of them are slow
endif

test-all: test test-sanitize-slice test-rest ## all that CI runs

test-rest: $(VENV)/.all-tests ## what `make test` leaves out: more ranks, more on hosts, failures, pages, examples, browser
	@failed=0; $(PYTEST) -m 'not slow and not quick' $(ABREAST) --ignore test/single test $(CROWDED) || $(FAILED); exit $$failed

test-wheel: ## what `make test` tests, of the wheel in dist/ instead of the sources: in an environment outside of here
	@$(PYTHON) scripts/test_wheel.py $(TEST_WHEEL)

test-nightly: test-fresh test-sanitize test-faults test-soak ## what takes hours: fresh machines, sanitizers, fuzzing, faults, a wheel
	@HOROVOD_TEST_CASES=5000 $(PYTEST) test/single/schedule/test_random_programs.py test/single/schedule/test_random_gpu_programs.py
	@HOROVOD_TEST_CASES=1000 $(PYTEST) test/single/torch/test_random_scripts.py
	@HOROVOD_TEST_STEPS=1000 $(PYTEST) -k steps_keep_all_ranks_identical test/cluster
	@$(BIN)/python scripts/make_wheels.py --cuda no --python $(BIN)/python
	@$(BIN)/python scripts/test_wheel.py

test-fresh: $(VENV)/.all-tests ## the slow tests: builds from scratch, the image, README's commands on a fresh Debian, a wheel on a bare one
	@$(BIN)/python scripts/check_cuda.py --all
	@$(PYTEST) -m slow --timeout 1800 test

check: $(VENV)/.tests ## style, types, the stub, size budget, mutexes, the pages' English, layers
	@$(BIN)/ruff check .
	@$(SHOWN) --log mypy.log $(BIN)/mypy
	@$(BIN)/python scripts/check_budget.py
	@$(BIN)/python scripts/make_stub.py --check
	@$(BIN)/python scripts/check_cpp.py
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/pytest -q test/single/house/test_layers.py

generated: $(VENV)/.tests ## write again what is made of tables and bindings: settings, stub, a page, all errors' sentences
	@$(BIN)/python scripts/make_stub.py
	@$(BIN)/python -m horovod.runner.configuration_page >docs/configuration.md
	@$(BIN)/python test/single/house/test_sentences.py >test/single/house/sentences.txt

bench: $(VENV)/.tests ## codecs, allreduce and the engine beside memcpy, MPI and gloo
	@$(BIN)/python benchmarks/codec.py
	@$(BIN)/python benchmarks/allreduce.py
	@$(BIN)/python benchmarks/engine.py

gpu-wheels: ## fetch what `make gpu-report` needs on a machine without a network
	@$(PYTHON) benchmarks/gpu_report.py --wheels

gpu-report: ## what one GPU can show; goes on where it was (GPU_REPORT="more options")
	@$(PYTHON) benchmarks/gpu_report.py $(GPU_REPORT)

test-sanitize: $(VENV)/.tests ## test/single under AddressSanitizer, UBSan and ThreadSanitizer
	@bash scripts/test_sanitized.sh $(BIN)/python address,undefined
	@bash scripts/test_sanitized.sh $(BIN)/python thread

# What the engine's threads do with each other, and what comes from outside.
THREADED := $(addprefix test/single/schedule/test_,submissions.py engine.py join.py process_sets.py deadlocks.py random_programs.py) \
  $(addprefix test/single/transport/,test_transport_contract.py tcp/test_tcp_handshake.py)

test-sanitize-slice: $(VENV)/.tests ## a slice of it, which CI runs: the engine's threads, 5 minutes with both builds
	@HOROVOD_TEST_CASES=20 bash scripts/test_sanitized.sh $(BIN)/python address,undefined $(THREADED)
	@HOROVOD_TEST_CASES=20 bash scripts/test_sanitized.sh $(BIN)/python thread $(THREADED)

# Both go on where they were, until the next commit.
FAILURES = mkdir -p build; $(BIN)/python test/failures/run_failures.py --resume build/failures-$$(git describe --always --dirty).jsonl

test-faults: $(VENV)/.tests ## 300 fixed jobs that fail at random, on made hosts (root)
	@$(FAILURES) --seeds 0-299

test-soak: $(VENV)/.tests ## 300 deaths of workers of 100 elastic jobs, and one whose workers and hosts are struck 200 times (root)
	@$(FAILURES) --kind elastic --seeds 0-99
	@$(FAILURES) --kind soak --seeds $$RANDOM --events 200 --minutes 20

# Further options of `make test-mutants`: make test-mutants MUTANTS="--count 20 --seed 1"
MUTANTS ?=

test-mutants: $(VENV)/.tests ## 200 changes of one place, drawn at random, that `make test` has to catch; hours (root)
	@$(PIP) $$($(BIN)/python scripts/requirements_of.py mutants)
	@mkdir -p build
	@$(BIN)/python test/mutants/run_mutants.py --resume build/mutants-$$(git describe --always).jsonl $(MUTANTS)

docs: $(VENV)/.docs ## the documentation site, in build/site; open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

wheels: ## wheels for other machines, into dist/: Python 3.10, 3.11, and 3.12 and later; each built twice, to compare
	@$(PYTHON) scripts/make_wheels.py --twice $(WHEELS)

image: ## build the container image with docker, podman or buildah
	@bash scripts/build_image.sh $(IMAGE)

clean: ## remove what was built, but not .venv
	rm -rf build dist *.egg-info horovod/*.so horovod/build_info.json $(VENV)/.package $(VENV)/.base

$(VENV)/.made:
	@bash scripts/check_prerequisites.sh $(PYTHON)
	@echo "making $(VENV)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@touch $@

# What the build needs lies in .venv. An environment that pip makes for each build has another name each time, and ninja would
# compile all that includes its files again. First of all, as PyTorch needs setuptools too, and two pips cannot install it at once.
$(VENV)/.build-needs: $(VENV)/.made pyproject.toml build_support/requirements.py
	@$(INSTALL) $$($(BIN)/python -m build_support.requirements)
	@touch $@

$(VENV)/.torch: $(VENV)/.made | $(VENV)/.build-needs
	@bash scripts/install_torch.sh $(BIN)/python --no-compile
	@touch $@

$(VENV)/.developer-%: $(VENV)/.made
	@rm -f $(VENV)/.developer-*
	@touch $@

# Neither needs the other: PyTorch's files are unpacked while the core is compiled.
$(VENV)/.base: $(VENV)/.made $(VENV)/.developer-$(HOROVOD_DEVELOPER) $(BUILD_INPUTS)
	@bash scripts/check_prerequisites.sh $(PYTHON)
	@+$(MAKE) --no-print-directory --jobs 2 $(VENV)/.torch $(VENV)/.package
	@touch $@

$(VENV)/.package: $(VENV)/.made $(VENV)/.developer-$(HOROVOD_DEVELOPER) $(BUILD_INPUTS) | $(VENV)/.build-needs
	@export HOROVOD_DEVELOPER=$(HOROVOD_DEVELOPER); \
	if [ -z "$(filter-out $(NATIVE_INPUTS),$?)" ]; then \
	  echo "building what has changed of the core"; \
	  $(SHOWN) $(BIN)/python setup.py build_ext --inplace; \
	else \
	  echo "building and installing horovod (a minute or two; more where a GPU is present and CUDA's compiler)"; \
	  $(SHOWN) $(PIP) --no-build-isolation --verbose --editable .; \
	fi
	@touch $@

$(VENV)/.examples: $(VENV)/.base
	@$(INSTALL) $$($(BIN)/python scripts/requirements_of.py examples)
	@touch $@

$(VENV)/.lab: $(VENV)/.examples
	@$(INSTALL) $$($(BIN)/python scripts/requirements_of.py lab)
	@touch $@

$(VENV)/.tests: $(VENV)/.lab
	@echo "installing what the checks and tests need"
	@$(INSTALL) $$($(BIN)/python scripts/requirements_of.py test check)
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	@echo "installing what builds the documentation"
	@$(INSTALL) $$($(BIN)/python scripts/requirements_of.py docs)
	@touch $@

$(VENV)/.all-tests: $(VENV)/.tests $(VENV)/.docs
	@echo "installing what all tests need: a browser's driver, other people's training loops, TensorBoard"
	@$(INSTALL) $$($(BIN)/python scripts/requirements_of.py browser friends)
	@touch $@
