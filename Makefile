# Every verb does the set-up it needs. Stamps in .venv make a second run do no install work.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Downloads take minutes: show them, but for logs.
INSTALL := $(PIP) install $(if $(CI),--quiet)
# Given by its path, it satisfies the extra `minatar` without an index.
MINATAR_FAST := ./distributions/minatar-fast
SOURCES := src tests benchmarks tools distributions
# One thread a process keeps two test processes from fighting over two cores.
TEST_ENV := OMP_NUM_THREADS=1
TEST_JOBS ?= 2

.PHONY: help install install-all demo test test-faults test-nightly lint type imports bench bench-check docs pictures notebooks clean

help:
	@echo "make demo         forgetting and its cure, on this machine, in minutes"
	@echo "make test         lint, types, layers and all tests"
	@echo "make test-faults  the full counts of the fault injection tests"
	@echo "make test-nightly a minute of real training on every suite"
	@echo "make lint | type | imports"
	@echo "make bench | bench-check"
	@echo "make docs         the documentation as a site in build/docs; open build/docs/index.html"
	@echo "make pictures     the pictures of the documentation, out of real runs"
	@echo "make notebooks    the notebooks in examples/ with their outputs"
	@echo "make install | install-all | clean"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "clearl needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "making .venv with $(PYTHON), $$($(PYTHON) --version)"
	PYTHON="$(PYTHON)" tools/make-venv.sh .venv

.venv/.installed: pyproject.toml $(MINATAR_FAST)/pyproject.toml | $(BIN)/python
	@echo "installing clearl, PyTorch and MinAtar into .venv: a minute or more, most of it PyTorch (docs/install.md tells of its CPU build)"
	$(INSTALL) --editable '.[minatar]' $(MINATAR_FAST)
	@echo "installed: .venv/bin/clearl; 'make demo' or '.venv/bin/clearl --help' goes on"
	@touch $@

.venv/.installed-all: pyproject.toml $(MINATAR_FAST)/pyproject.toml tools/system-packages.sh | $(BIN)/python
	@echo "installing clearl with all extras and the development tools into .venv: some minutes; first a browser for tests, if there is none"
	tools/system-packages.sh
	$(INSTALL) --editable '.[all,dev]' $(MINATAR_FAST)
	@touch .venv/.installed $@

install: .venv/.installed
install-all: .venv/.installed-all

demo: install
	$(BIN)/clearl demo

# Exit code 1 of pytest: tests failed. Any other, such as an error while collecting, says nothing about single tests.
test: lint type imports
	$(TEST_ENV) $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal || { status=$$?; \
	test $$status -eq 1 || exit $$status; \
	echo "running what failed once more, in a new process: what passes there depends on the tests before it"; \
	$(TEST_ENV) $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

test-faults: install-all
	@mkdir -p build
	$(TEST_ENV) $(BIN)/python -m pytest -m faults -o junit_family=xunit1 --junitxml=build/faults.xml; status=$$?; \
	$(BIN)/python tools/reliability_table.py build/faults.xml docs/reliability.md; exit $$status

test-nightly: install-all
	$(BIN)/python -m pytest -m nightly

lint: install-all
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

type: install-all
	$(BIN)/pyright

imports: install-all
	$(BIN)/lint-imports

bench: install-all
	$(BIN)/clearl bench all --json build/bench.json

bench-check: install-all
	$(BIN)/python -m benchmarks.check

docs: install-all
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo build/docs/index.html

# Drawings, pictures of suites, the outputs of the notebooks and the README's picture, out of real runs: a few minutes.
pictures: install-all
	$(BIN)/python tools/drawings
	$(BIN)/python tools/suite_pictures.py
	$(BIN)/clearl demo --fast --quiet --out build/demo --report build/demo-report
	$(BIN)/python tools/demo_picture.py build/demo docs/home
	$(BIN)/python tools/page_pictures.py build/demo build/demo-report docs/home

notebooks: install-all
	$(BIN)/python tools/notebooks.py

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache src/clearl.egg-info distributions/*/src/*.egg-info distributions/*/build
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
