# Two commands: `make demo` and `make test`. The rest is for maintainers.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# The newest Python that the lock covers, tried rather than looked up: a version manager's shim is
# on the path for versions that are not there.
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && \
	echo $$p && break; done)

.PHONY: demo test lint types tests bench torture lock docs clean

demo: $(VENV)/runtime
	$(BIN)/pocket-ingest dev --samples $(if $(ONCE),--once)

test: lint types tests

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/dev
	$(BIN)/mypy

# Files side by side: most of the time goes by waiting for servers and processes.
tests: $(VENV)/dev
	$(BIN)/pytest --numprocesses=auto --dist=loadfile $(ARGS)

bench: $(VENV)/dev
	$(BIN)/python -m benchmarks all

torture: $(VENV)/dev
	$(BIN)/python -m pocket_ingest_tests.torture --kills $(or $(N),100)

docs: $(VENV)/dev
	$(BIN)/python -m docs.generate

# Pinned versions with hashes for every supported Python and platform; no address of a registry.
lock:
	uv pip compile pyproject.toml --extra build --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-strip-extras --no-emit-index-url --quiet --output-file requirements.lock
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-strip-extras --no-emit-index-url --quiet --output-file requirements-dev.lock

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; none of them was found." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/runtime: $(VENV)/bin/python requirements.lock pyproject.toml
	@echo "Installing the pinned packages"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
		--require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
		--no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(VENV)/bin/python requirements-dev.lock pyproject.toml
	@echo "Installing the pinned packages, those for development included"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
		--require-hashes --requirement requirements-dev.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
		--no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/runtime

clean:
	rm -rf $(VENV) .pocket
