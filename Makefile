# gpuplan: commands for developers. `make demo` and `make test` work from a fresh checkout.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
# Optional dependencies that are installed, and whether all of their files are compiled at once.
EXTRAS ?= test,docs
COMPILE ?= --compile
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The newest Python that runs here.
NEWEST ?= $(shell for minor in 14 13 12 11; do \
	python3.$$minor -c "" 2> /dev/null && echo python3.$$minor && break; done)
WORKERS ?= auto
# Clusters, killed processes and the disk keep many of all tests waiting: one worker more than cores.
ALL_WORKERS ?= $(shell expr 1 + $$(nproc))
TESTS ?= tests
DEMO := .gpuplan/demo

# Commands in tests start hundreds of processes: without bytecode each would compile hundreds of files again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-edges demo test test-fast test-newest test-oldest test-slurm check fmt bench golden reference docs clean

help:
	@echo "make setup   create .venv with everything below"
	@echo "make demo    plan, review, apply and verify the production-size scenario"
	@echo "make test    all checks and all tests, as CI runs them: about 17 minutes on 2 cores"
	@echo "make test-fast  all tests but those marked slow: under 2 minutes on 2 cores"
	@echo "make test-newest  the fast tests with the newest Python of this machine"
	@echo "make test-oldest  the fast tests with the oldest allowed dependencies"
	@echo "make test-slurm   the loop on a private Slurm on this machine, if it is installed"
	@echo "make check   formatting, linters, words, types, import rules"
	@echo "make fmt     format the code"
	@echo "make bench   measure and print the tables of docs/benchmarks.md"
	@echo "make golden  record expected.txt of scenarios, plans of tests/net, texts and messages; review the diff"
	@echo "make reference  rewrite docs/reference/ from the data model"
	@echo "make docs    build the documentation site: build/site/index.html"

setup: $(STAMP)

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gpuplan needs Python 3.11 or newer; set for example PYTHON=python3.12."; exit 1; }
	@echo "Installing into $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@# The pip that comes with Python 3.11 takes twice the time; where there is no newer one, it does.
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --upgrade \
		--constraint $(CONSTRAINTS) pip > $(VENV)/install.log 2>&1 || true
	@$(BIN)/python -m pip install --disable-pip-version-check $(COMPILE) --constraint $(CONSTRAINTS) \
		--editable '.[$(EXTRAS)]' > $(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@

demo: $(STAMP)
	@sh scenarios/demo.sh $(BIN)/gpuplan scenarios/production $(DEMO)

test: check
	$(BIN)/pytest -n $(ALL_WORKERS) --dist worksteal

test-fast: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow" $(TESTS)

# The same with other versions; each has an environment of its own, for tests that import few files of libraries.
NEWEST_VENV = VENV=.venv-newest PYTHON=$(NEWEST) EXTRAS=test COMPILE=--no-compile
OLDEST_VENV = VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt EXTRAS=test COMPILE=--no-compile

setup-edges:
	$(MAKE) setup $(NEWEST_VENV)
	$(MAKE) setup $(OLDEST_VENV)

test-newest:
	$(MAKE) test-fast $(NEWEST_VENV)

test-oldest:
	$(MAKE) test-fast $(OLDEST_VENV)

# A private Slurm on this machine, where it is installed (Debian: slurm-wlm slurmctld slurmd munge, and slurmdbd
# mariadb-server for limits of accounts). Another version:
# `tests/support/harness/unpack_slurm.sh /tmp/slurm-24.11 trixie`, then `make test-slurm GPUPLAN_SLURM_ROOT=/tmp/slurm-24.11`.
test-slurm: $(STAMP)
	GPUPLAN_SLURM_ROOT=$(GPUPLAN_SLURM_ROOT) GPUPLAN_EVERY_SEED=1 \
		$(BIN)/pytest -n $(WORKERS) --dist worksteal -m slurm -rs

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell --toml pyproject.toml
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; exit 1; }
	@tail -n 1 .lint-imports.log

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

golden: $(STAMP)
	GPUPLAN_REWRITE_GOLDEN=1 $(BIN)/pytest -q tests/net \
		$$(grep -rlE 'import (golden|figures, golden)' tests --include='test_*.py')
	git diff --stat scenarios tests

reference: $(STAMP)
	@mkdir -p docs/reference
	@for kind in snapshot policy plan scenario; do \
		$(BIN)/gpuplan schema $$kind --markdown > docs/reference/$$kind.md || exit 1; done

# A link that leads nowhere, or a page that no list names, is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees -c docs/site . build/site
	@echo "Open build/site/index.html."

clean:
	rm -rf .venv .venv-newest .venv-oldest .gpuplan build dist *.egg-info .lint-imports.log .edges.log
