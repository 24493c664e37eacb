# Two commands set everything up on a machine that has Python 3.10 to 3.13 and make:
#   make demo    an agent, a real torchrun training, the live tail
#   make test    the tests
# PYTHON chooses the interpreter, VENV the folder, PIP_FLAGS goes to pip (an index of CPU builds, say).
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
BIN = $(VENV)/bin
# Compiled is what is imported, when it is: all of torch and the trackers would take a minute.
INSTALL = $(BIN)/pip install --quiet --no-compile --constraint constraints.txt $(PIP_FLAGS)
CHAOS ?= short
FRAMEWORKS ?= .frameworks
ONLY ?=
PARALLEL ?= --numprocesses 3 --dist worksteal

.PHONY: demo test frameworks lint check chaos bench clean

demo: $(VENV)/.demo
	$(BIN)/rankside demo

test: $(VENV)/.test
	$(BIN)/pytest $(PARALLEL) -m "not chaos and not bench and not frameworks"

# The published TorchTitan, Megatron, Hugging Face and Lightning on two CPU ranks; needs Python 3.11 or later.
# One training of each: make frameworks ONLY="-k arrive"
frameworks: $(FRAMEWORKS)/.ready
	RANKSIDE_FRAMEWORKS=$(abspath $(FRAMEWORKS)) $(BIN)/pytest $(PARALLEL) -m frameworks $(ONLY)

$(FRAMEWORKS)/.ready: $(VENV)/.test tests/e2e/frameworks/setup.sh
	PIP_FLAGS="$(PIP_FLAGS)" tests/e2e/frameworks/setup.sh $(FRAMEWORKS) $(BIN)/python

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

# The long form runs for hours: make chaos CHAOS=long
chaos: $(VENV)/.test
	RANKSIDE_CHAOS=$(CHAOS) $(BIN)/pytest $(PARALLEL) -m chaos --timeout 900

bench: $(VENV)/.test
	$(BIN)/python tests/bench/run.py --json bench.json

clean:
	rm -rf $(VENV) rankside-demo bench.json

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing into $(VENV): torch, MLflow and W&B are large, this takes minutes"
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.test: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing into $(VENV): torch, MLflow and W&B are large, this takes minutes"
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.demo
