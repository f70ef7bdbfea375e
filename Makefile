# `make run` simulates a real trace; `make test` runs the whole test suite. Each first installs what it needs into .venv:
# `make run` the package and its light extras; `make test` also the test tools, the software back ends and, as root, the
# system packages that the tests require. Without root, a message names the missing packages and what fails without them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A file that each stage of the set-up creates when it has succeeded.
RUN_STAMP := $(VENV)/.ready-to-run
TEST_STAMP := $(VENV)/.ready-to-test
SETUP := pyproject.toml .ci/setup .ci/constraints.txt
OUT := reports/make-run

.PHONY: run test test-optional check study format clean setup setup-run setup-test
.DEFAULT_GOAL := run

run: $(RUN_STAMP)
	@$(BIN)/windtunnel run scenarios/azure-code.yaml --out $(OUT)
	@echo "Open $(CURDIR)/$(OUT)/report.html"

# mypy has one process, which checks the types beside the two of the tests. Tests start some 200 processes, each of which
# would compile the sources again where Python writes no bytecode (PYTHONDONTWRITEBYTECODE).
test: $(TEST_STAMP)
	@$(BIN)/python -m compileall -qq simulator device_models
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; \
	$(BIN)/pytest -n 2 --dist worksteal --cpu-times 15; tests=$$?; \
	wait $$types || { echo "mypy found errors: make check"; exit 1; }; exit $$tests

# Formatting, lint and types.
check: $(TEST_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Tests that need packages too large for every run: JAX (600 MB) and CuPy with its libraries (1.7 GB). Without a TPU, JAX
# runs on the processor. Without a GPU, CuPy compiles kernels and is compared with the fake CuPy of the other tests.
test-optional: $(TEST_STAMP)
	$(BIN)/python -m pip install --quiet -e ".[tpu,cuda]"
	WINDTUNNEL_REQUIRE=tpu $(BIN)/pytest -n 2 --dist worksteal tests/backends/test_tpu.py tests/backends/test_fake_cupy.py \
		tests/backends/test_cupy_libraries.py tests/backends/test_cuda.py tests/conformance/test_operations.py

# Benchmarks and studies that take too long for the test suite, and more seeds of the fuzz tests. The
# benchmarks write to reports/benchmarks.
study: $(TEST_STAMP)
	PYTHONPATH=. $(BIN)/python -m tests.differential.fuzz 0 1000
	PYTHONPATH=. $(BIN)/python -m tests.differential.serving_fuzz 0 500
	PYTHONPATH=. $(BIN)/python -m tests.differential.race_fuzz 0 2000
	PYTHONPATH=. $(BIN)/python -m tests.corpus.c_source.schedules 8
	PYTHONPATH=. $(BIN)/python -m tests.corpus.verdicts.test_pairs
	HYPOTHESIS_EXPLORE=1 $(BIN)/pytest -q -n 2 tests/property tests/differential
	$(BIN)/python benchmarks/process_engine.py --out reports/benchmarks
	$(BIN)/python benchmarks/engines.py --out reports/benchmarks
	$(BIN)/python benchmarks/commands.py --out reports/benchmarks
	$(BIN)/python benchmarks/plan.py --out reports/benchmarks
	$(BIN)/python benchmarks/sweep.py --out reports/benchmarks
	$(BIN)/python benchmarks/interval_coverage.py --out reports/benchmarks
	$(BIN)/python benchmarks/kernels.py --out reports/benchmarks
	$(BIN)/python benchmarks/numba_cuda_tests.py --out reports/benchmarks

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: setup-test
setup-run: $(RUN_STAMP)
setup-test: $(TEST_STAMP)

$(RUN_STAMP): $(SETUP)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup run
	@touch $@

# The second stage depends on the first, so that parallel jobs of make never install into .venv at the same time.
$(TEST_STAMP): $(RUN_STAMP)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup test
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) dist .pytest_cache .mypy_cache .ruff_cache
