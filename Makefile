# Everything a newcomer needs is `make demo` and `make test`; both do the set-up themselves.
.DEFAULT_GOAL := help
.PHONY: help demo setup test test-fast test-all chaos fuzz audit lint format bench docs imports errors contracts constraints clean

READY := .venv/.ready
KILLS := 100
CUTS := 200
N := 10000000
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

demo: setup ## run a small simulation through the whole pipeline and look at its tables
	@$(BIN)/ticklake demo

setup: $(READY) ## make .venv with the pinned dependencies; checks Python and Java first
	@:

$(READY): constraints.txt pyproject.toml tools/setup
	@tools/setup
	@touch $@

test: setup ## run the test suite (all but the slow tests)
	@$(PYTEST) -m "not slow and not delta_jar"

test-fast: setup ## run the tests that need neither Spark nor killed processes
	@$(PYTEST) -m "not slow and not delta_jar and not spark and not chaos"

test-all: setup ## run every test, the slow ones and those that fetch the Delta jar too
	@$(PYTEST)

chaos: setup ## torment a whole pipeline (KILLS=1000, CUTS=200, SEED=n) and check that nothing is lost or doubled
	@$(BIN)/python tests/crash/chaos.py --faults $(KILLS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python tests/crash/scenes.py --acts $(KILLS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python tests/crash/powercut.py --cuts $(CUTS) $(if $(SEED),--seed $(SEED))

fuzz: setup ## read mutated files, messages and configurations (N=10000000, SEED=n)
	@$(BIN)/python tests/crash/fuzz.py --inputs $(N) $(if $(SEED),--seed $(SEED))

lint: setup ## ruff, mypy --strict and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## sort imports and format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: setup ## measure this machine and write bench/RESULTS.md
	@$(BIN)/python -m bench

docs: setup ## build the documentation as a site in site/, which needs no server and no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open site/index.html"

imports: setup ## draw docs/packages.svg: which package imports which
	@$(BIN)/python tools/draw_imports.py

errors: setup ## write docs/errors.md from the error classes
	@$(BIN)/python tools/list_errors.py

contracts: setup ## regenerate the Python code of the .proto files
	@$(BIN)/python -m ticklake.contracts.generate

constraints: setup ## pin what pyproject.toml asks for and keep all other versions (UPGRADE=1: the newest of all)
	@$(BIN)/uv pip compile pyproject.toml --quiet $(if $(UPGRADE),--upgrade) --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file constraints.txt

audit: setup ## look the pinned packages up in the advisory database, where it can be reached
	@$(BIN)/python tools/audit

clean: ## remove .venv, caches and what the demo made
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis ticklake-demo dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
