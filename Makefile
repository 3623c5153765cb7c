# `make demo` and `make test` do everything, including the set-up. `make` alone lists the other targets.
#
# The environment is in .venv and is created once. It is rebuilt only if the pins in constraints.txt have changed. After a
# change of pyproject.toml or setup.py the package is installed again. After a change of a kernel only that is compiled.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Without the compiled modules each of the thousands of short programs of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell tools/find_python.sh)
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PINS := $(VENV)/constraints.txt
INSTALLED := $(VENV)/installed
BENCH := $(VENV)/installed-bench
KERNELS := $(shell find src -name '*.pyx' -o -name '*.pxd') $(shell grep -rlx --include='*.py' ' *import cython' src)
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt

CHECKS = echo "== style: ruff check, ruff format --check" && $(BIN)/ruff check . && $(BIN)/ruff format --check . \
	&& echo "== types: mypy" && $(BIN)/mypy

# Each run of pytest has its own directory for temporary files: the leftovers of a killed run, perhaps a mounted file
# system, must not fail the next one.
PYTEST = root=$$(mktemp -d) && run() { PYTEST_DEBUG_TEMPROOT=$$root $(BIN)/python -m pytest -n $(JOBS) "$$@"; \
	status=$$?; rm -rf --one-file-system "$$root"; return $$status; } && run

.PHONY: help setup doctor demo test check lint torture mutants sanitize bench docs wheel kernels clean

help: ## list the targets
	@echo "make TARGET, where TARGET is one of:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

setup: doctor $(INSTALLED) ## create the environment in .venv, if it does not exist

doctor: ## report missing tools
	@PYTHON="$(PYTHON)" tools/doctor.sh

demo: setup ## write sample journals, turn them into tables on Spark, and write a report
	@$(BIN)/logwright demo --pipeline

test: setup ## style, types, and all tests
	@$(BIN)/python -m tests.spark.quick & { $(CHECKS); }; status=$$?; wait; exit $$status
	@echo "== the codecs without compiled kernels: pytest tests -k 'codec or golden'"
	@export LOGWRIGHT_PURE=1 && $(PYTEST) -m "not torture" --durations=0 --durations-min=5 -q \
		tests/sej tests/kestrel tests/appendfile tests/versioned tests/yeltsin -k "codec or golden"
	@echo "== all tests: pytest -n $(JOBS)"
	@$(PYTEST) --max-worker-restart=0 -m "not torture"

check: setup ## style, and the tests of what has changed since the last commit
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(PYTEST) -q -m "not torture" $$($(BIN)/python tools/changed_tests.py)

lint: setup ## style and types only
	@$(CHECKS)

torture: setup ## the longer runs of the fault tests
	@$(PYTEST) -m torture

mutants: setup ## remove each sync, rename, lock and truncation once, and check that a test fails
	@$(BIN)/python tools/mutants.py --jobs $(JOBS)

sanitize: setup ## the tests of the kernels with AddressSanitizer and UBSan; needs GCC
	@JOBS=$(JOBS) tools/sanitize.sh

bench: setup $(BENCH) ## measure against the peers, and print one table
	@$(BIN)/python -m benchmarks

docs: setup ## build the documentation in site/
	@$(BIN)/python -m mkdocs build --strict --quiet

wheel: setup ## build the source distribution and the wheel in dist/, and try the wheel in a clean environment
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python tools/smoke.py dist/*.whl

kernels: setup ## compile all kernels again, for instance after installing a compiler
	@$(BIN)/python setup.py --quiet build_ext --inplace --force
	@PYTHON="$(PYTHON)" tools/doctor.sh

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist site demo demo-tables src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants benchmarks/results
	find src -name '*.so' -delete
	find src -name '*.c' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment ------------------------------------------------------------------------------------------------

# A copy of the pins: a constraints.txt that is newer but unchanged does not rebuild the environment.
$(PINS): constraints.txt
	@if ! cmp -s constraints.txt $@; then \
		echo "== creating the environment in $(VENV) with $(PYTHON): once, a few minutes"; \
		"$(PYTHON)" -m venv --clear $(VENV) \
		&& $(PIP) setuptools Cython \
		&& cp constraints.txt $@; \
	fi

$(INSTALLED): $(PINS) pyproject.toml setup.py $(KERNELS)
	@if [ -n "$(filter-out src/%,$?)" ]; then \
		echo "== installing logwright and its tools, and compiling the kernels"; \
		$(PIP) --no-build-isolation --editable '.[dev]'; \
	else \
		echo "== compiling the kernels that have changed"; \
		$(BIN)/python setup.py --quiet build_ext --inplace; \
	fi
	@touch $@

$(BENCH): $(INSTALLED)
	@echo "== installing the packages for the benchmarks"
	@$(PIP) --no-build-isolation --editable '.[bench]'
	@touch $@
