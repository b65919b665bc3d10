# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
# CONTRIBUTING.md says what the other targets are for.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := src tests benchmarks examples docs

.PHONY: demo test extensive quick runtimes timing faults test-plain check format docs wheel-demo clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

# The gate: all tests but those that compare times; of long lists of cases only a sample.
GATE := -n 2 --dist worksteal -m "not timing and not extensive"

test: check
	$(BIN)/pytest $(GATE)

extensive: .venv/complete
	$(BIN)/pytest -n 2 --dist worksteal -m extensive

# The contributor's tier, about a minute on two cores.
QUICK := -n 2 --dist worksteal -m "not slow and not timing and not gpu and not extensive"

quick: .venv/complete
	$(BIN)/pytest $(QUICK)

# The runtimes whose packages `make test` does not install: OpenVINO with NNCF, ExecuTorch, ncnn.
runtimes: .venv/runtimes
	$(BIN)/pytest -n 2 --dist worksteal -m "not timing" tests/latency/runtimes tests/latency/devices \
		tests/pipeline/test_quantization.py tests/pipeline/test_device_check.py

# One process: a second one would disturb the clock.
timing: .venv/complete
	$(BIN)/pytest -m timing

# Every fault of tests/faults, about 20 minutes on two cores (EVERY=5 for a fifth of them); it writes the table of
# docs/reliability.md and benchmarks/results/faults.json.
EVERY ?= 1

faults: .venv/complete
	PYTHONPATH=tests $(BIN)/python -m faults.run --every $(EVERY)

# The core must work without the code that only makes it faster. Slow tests are left out: on a CPU they run the same code
# with and without it, and `make test` fails if one does not (tests/plain_tests.py). ALL=1 runs all tests of the gate.
PLAIN := $(if $(ALL),$(GATE),$(QUICK))

test-plain: .venv/complete
	rm -rf build/plain && mkdir -p build/plain
	tar --exclude ./build --exclude ./.venv --exclude ./.git --exclude ./runs -cf - . | tar -xf - -C build/plain
	rm -rf build/plain/src/aacp/accelerate build/plain/tests/accelerate
	cd build/plain && PYTHONPATH=src "$(CURDIR)/$(BIN)/python" -m pytest $(PLAIN)

check: .venv/complete
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: .venv/complete
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# The site in build/site. Its pages are copied so that their relative links hold; a broken link fails the build.
docs: .venv/docs
	rm -rf build/pages && mkdir -p build/pages/src/aacp/zoo
	cp -R *.md docs examples benchmarks build/pages
	cp src/aacp/zoo/DIGITS.md build/pages/src/aacp/zoo
	$(BIN)/python docs/generate_api.py build/pages/docs/api.md
	$(BIN)/zensical build --clean --strict

# The demo with the installed wheel alone, from an empty folder.
wheel-demo:
	rm -rf build/wheel && mkdir -p build/wheel/empty
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	build/wheel/venv/bin/pip install --quiet --no-compile --constraint constraints.txt \
		"$$(echo build/wheel/aacp-*.whl)[onnx,train,report]"
	cd build/wheel/empty && env -u PYTHONPATH ../venv/bin/python "$(CURDIR)/examples/demo.py"

# Bytecode is compiled when a module is first imported and then kept: compiling all of torch at installation takes longer,
# and an environment that sets PYTHONDONTWRITEBYTECODE would compile again in every process.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) '.[onnx,train,report]'
	touch $@

.venv/complete: .venv/ready
	$(PIP) '.[all,ray,dev]'
	touch $@

.venv/runtimes: .venv/complete
	$(PIP) '.[openvino-int8,executorch,ncnn]'
	touch $@

.venv/docs: .venv/ready
	$(PIP) '.[all,docs]'
	touch $@

clean:
	rm -rf .venv build
