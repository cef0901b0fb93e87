# Everything a newcomer needs is `make demo` and `make test`; both do the set-up themselves.
.DEFAULT_GOAL := help
.PHONY: help demo setup test test-fast test-slow test-long test-all coverage chaos fuzz audit lint format bench docs imports errors contracts constraints clean

READY := .venv/.ready
SPARK_CLASSES := .venv/spark-classes.jsa
KILLS := 100
CUTS := 200
N := 10000000
BIN := .venv/bin
PARALLEL := -n auto --maxprocesses 8 --dist worksteal
PYTEST := $(BIN)/pytest $(PARALLEL)
QUICK := not slow and not long and not delta_jar

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

demo: setup ## run a small simulation through the whole pipeline and look at its tables
	@$(BIN)/ticklake demo

setup: $(READY) ## make .venv with the pinned dependencies; checks Python and Java first
	@:

$(READY): constraints.txt pyproject.toml tools/setup
	@tools/setup
	@touch $@

# Without it the tests take longer, and that is all: so nobody minds where it cannot be made.
$(SPARK_CLASSES): $(READY) tools/spark-classes
	@rm -f $@
	@$(BIN)/python tools/spark-classes $@ || echo "make: Spark starts without an archive of its classes" >&2

test: setup $(SPARK_CLASSES) ## run the test suite (all but the slow tests)
	@$(PYTEST) -m "$(QUICK)"

test-fast: setup ## run the tests that need neither Spark nor killed processes
	@$(PYTEST) -m "$(QUICK) and not spark and not chaos"

test-slow: setup $(SPARK_CLASSES) ## run what `make test` leaves out and a change still has to pass
	@HYPOTHESIS_PROFILE=normal $(PYTEST) -m "(slow or hypothesis) and not long and not delta_jar"

test-long: setup $(SPARK_CLASSES) ## run the tests that take hours: soaks, a million rows, hundreds of faults
	@$(PYTEST) -m long

test-all: setup $(SPARK_CLASSES) ## run every test, the long ones and those that fetch the Delta jar too
	@HYPOTHESIS_PROFILE=normal $(PYTEST)

coverage: setup $(SPARK_CLASSES) ## run `make test` and list the lines that no test reaches
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(PARALLEL) -m "$(QUICK)"; code=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report; exit $$code

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
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* ticklake-demo dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
