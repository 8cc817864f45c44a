# Every target sets up what it needs: Python 3.11 (or newer) and make are all a machine must have.
.DEFAULT_GOAL := help
.PHONY: help run test test-engine test-times check format lint types contracts migrations deploy-check bench lock sbom clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product-installed
TOOLS := $(VENV)/.tools-installed
# Tests wait for servers most of the time, so there is one process more than processors. The units begin in the order of
# tests/distribution.py: without the option pytest-xdist begins with those that have most tests.
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
SIDE_BY_SIDE = $(BIN)/python -m pytest --numprocesses $(PROCESSES) --no-loadscope-reorder \
	$(if $(filter random,$(ORDER)),-p randomly)
SQLITE = $(SIDE_BY_SIDE) -m "not alone" $(PYTEST_OPTIONS)
# Exit code 5: the options of somebody who runs a part of the tests chose none of these.
ALONE = $(BIN)/python -m pytest -m alone $(PYTEST_OPTIONS) || [ $$? = 5 ]
# What runs a second time: what is tried on both clusters is tried on the sandbox.
ON_POSTGRESQL := database and not apiserver and not alone
# The plugins that the engine's tests use. To load all of them takes a second more: pytest looks through whatever comes
# with a plugin for assertions to rewrite.
ENGINE_PLUGINS := -p pytest_timeout -p _hypothesis_pytestplugin
# What `check --deploy` looks at: the settings of an installation that users reach by HTTPS.
PRODUCTION := HTTPS=1 DEBUG=0 ALLOWED_HOSTS=grove.example.com DATA_DIR=$(VENV)/deploy-check \
	SECRET_KEY=only-for-the-deployment-check-0123456789-abcdefghijklmnopqrstuvwxyz

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(PRODUCT) ## Start the whole product on a simulated cluster; Ctrl-C stops it
	@$(BIN)/python manage.py run

test: $(TOOLS) ## Run all tests that this machine has the servers for, and say what is skipped; ORDER=random shuffles
	@$(SQLITE)
	@$(ALONE)
ifdef GROVE_TEST_DATABASE_URL
	@echo "Once more on PostgreSQL, what depends on the database:"
	@DATABASE_URL="$$GROVE_TEST_DATABASE_URL" $(SIDE_BY_SIDE) -m "$(ON_POSTGRESQL)" $(PYTEST_OPTIONS)
else ifdef CI
	@echo "GROVE_TEST_DATABASE_URL is not set, and CI must run the tests on PostgreSQL too" >&2; exit 1
else
	@echo "skipped PostgreSQL: set GROVE_TEST_DATABASE_URL=postgresql://user:password@host/name to run there too"
endif

test-engine: $(TOOLS) ## Run the tests of the engine alone, in seconds; EXAMPLES_TIMES=20 for more random ones
	@PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest tests/engine $(ENGINE_PLUGINS) $(PYTEST_OPTIONS)

test-times: $(TOOLS) ## Run the tests of `make test` on SQLite and print where the time goes
	@PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache-times GROVE_TEST_DURATIONS=tests/durations.json \
		$(SIDE_BY_SIDE) -m "not alone" -p tests.times $(PYTEST_OPTIONS)

check: format lint types contracts migrations deploy-check test ## Everything that must hold before a change lands

format: $(TOOLS) ## Check the format (make format FIX=1 fixes it)
	@$(BIN)/ruff format $(if $(FIX),,--check) .
	@$(BIN)/djangofmt $(if $(FIX),,--check) templates
	@$(BIN)/oxfmt $(if $(FIX),,--check) static

lint: $(TOOLS) ## Lint, and check that the pinned packages fit together
	@$(BIN)/ruff check $(if $(FIX),--fix) .
	@$(BIN)/djangofmt check $(if $(FIX),--fix) templates
	@$(BIN)/oxlint --deny-warnings $(if $(FIX),--fix) static
	@$(BIN)/pip check

types: $(TOOLS) ## Check the types, strictly
	@$(BIN)/mypy

contracts: $(TOOLS) ## Check which package may import which
	@$(BIN)/lint-imports

migrations: $(TOOLS) ## Check that the migrations match the models
	@DATA_DIR=$(VENV)/deploy-check $(BIN)/python manage.py makemigrations --check --dry-run

deploy-check: $(TOOLS) ## Django's deployment checks under production settings
	@$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING

bench: $(TOOLS) ## Measure, and print figures and ratios
	@$(BIN)/python -m tests.engine.bench
	@$(BIN)/python -m tests.mirror.bench
	@$(BIN)/python -m tests.bench.api
	@$(BIN)/python -m tests.bench.pages
	@$(BIN)/python -m tests.bench.abuse
	@$(BIN)/python -m tests.bench

lock: ## Resolve requirements*.in into the pinned requirements*.txt
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-lock.txt
	@for name in requirements requirements-dev requirements-sbom requirements-lock; do \
		$(VENV)-lock/bin/uv pip compile -q $$name.in -o $$name.txt --python-version 3.11 --universal \
			--no-emit-index-url --generate-hashes --custom-compile-command 'make lock' || exit 1; done
	@rm -rf $(VENV)-lock

sbom: requirements.txt requirements-sbom.txt ## Write what the product is made of to sbom.json (CycloneDX), for any scanner
	@$(PYTHON) -m venv $(VENV)-sbom
	@$(VENV)-sbom/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-sbom.txt
	@PYTHONWARNINGS=ignore $(VENV)-sbom/bin/cyclonedx-py requirements requirements.txt --pyproject pyproject.toml --output-reproducible \
		--output-file sbom.json
	@rm -rf $(VENV)-sbom

clean: ## Remove the virtual environment and caches; the data in var/ stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Grove UI needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "The virtual environment cannot be made; install Python's venv module (Debian: python3-venv)" >&2; exit 1; }

$(PRODUCT): requirements.txt | $(VENV)/bin/python
	@echo "Installing what the product needs (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(TOOLS): requirements-dev.txt $(PRODUCT)
	@echo "Installing what the checks need (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@
