# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/pytest -n 2 --dist worksteal

check: .venv/ready
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[vision,onnx,dev]'
	touch $@

clean:
	rm -rf .venv
