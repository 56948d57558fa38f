# foedus: `make demo` and `make test` are all a newcomer needs. Versions come from constraints.txt.
# Reinstalls only when pyproject.toml, the constraints or the C code change. PYTHON=python3.12 chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT_FROM := pyproject.toml $(wildcard aggregators/*.c)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test check format protos baseline bench wheel clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@echo 'make demo    four hospitals train one model here; DEMO_JSON=FILE also writes the result as JSON;'
	@echo '             ATTACK=ipm lets a malicious site take part, AGGREGATOR=multi-krum holds against it'
	@echo 'make test    the tests; ARGS="-k layout" chooses some'
	@echo 'make check   format, lint, types, import rules, generated code'
	@echo 'make bench   every benchmark, one JSON object each'
	@echo 'make protos  regenerate the protobuf modules'
	@echo 'make wheel   dist/foedus-*.whl'
	@echo 'make clean   remove everything that was built'

# The command reads DEMO_JSON, ATTACK and AGGREGATOR from the environment; `make demo ATTACK=…` exports them too.
demo: $(VENV)/.installed-demo
	$(BIN)/foedus demo heart

test: $(VENV)/.installed-dev
	$(BIN)/pytest $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHON='$(PYTHON)' protos/check.sh

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos:
	PYTHON='$(PYTHON)' protos/generate.sh

# At a release only: what the wire promises from now on.
baseline: $(VENV)/.installed-dev
	$(BIN)/python -m foedus.protos.compatibility --update

bench: .venv-bench/.installed
	@for file in benchmarks/[!_]*.py; do .venv-bench/bin/python "$$file" --json || exit 1; done

wheel: $(VENV)/.installed-dev
	$(BIN)/python -m build --wheel

clean:
	rm -rf .venv .venv-bench .venv-protos build dist *.egg-info \
	    .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -f aggregators/_kernels*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
	    { echo 'foedus needs Python 3.11 or newer and found no "$(PYTHON)": install it, or name one with PYTHON=…' >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'foedus needs Python 3.11 or newer; "$(PYTHON)" is' "$$($(PYTHON) -V 2>&1)"': name a newer one with PYTHON=…' >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' || \
	    { echo '"$(PYTHON)" cannot make a virtual environment: install its venv package (python3-venv)' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: $(BUILT_FROM) constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[server,torch]'
	@touch $@

$(VENV)/.installed-dev: $(BUILT_FROM) constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed-demo

.venv-bench/.installed: $(BUILT_FROM) benchmarks/constraints.txt | $(BIN)/python
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c benchmarks/constraints.txt -e '.[server,torch,sklearn,bench]'
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c benchmarks/constraints.txt --no-deps byzfl
	@touch $@
