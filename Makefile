# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/pytest -n 2 --dist worksteal

check: .venv/complete
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: .venv/complete
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

# Compiling all that torch brings takes longer than compiling what is used of it, when it is; and that is kept, whatever
# the environment says, or every process would compile it again.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) '.[onnx]'
	touch $@

.venv/complete: .venv/ready
	$(PIP) '.[vision,onnx,dev]'
	touch $@

clean:
	rm -rf .venv
