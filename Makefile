# `make run` does the main job on real input, `make test` runs the whole suite. Both set everything up first:
# a virtual environment in .venv and, when root, the system packages that the tests need.
# Nothing here needs root; without it the message says what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
OUT := reports/make-run

.PHONY: run test test-optional check study format clean setup
.DEFAULT_GOAL := run

run: $(STAMP)
	@$(BIN)/windtunnel run scenarios/azure-code.yaml --out $(OUT)
	@echo "Open $(CURDIR)/$(OUT)/report.html"

test: $(STAMP) check
	$(BIN)/pytest -n 2 --dist worksteal

# Format, lint and types: what every change is held to before its tests are looked at.
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The optional job: what needs packages too large for every run, JAX (600 MB) and CuPy with its libraries (1.7 GB). JAX
# runs on the processor where there is no TPU, and CuPy compiles and is compared with its stand-in where there is no GPU.
test-optional: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[tpu,cuda]"
	WINDTUNNEL_REQUIRE=tpu $(BIN)/pytest -n 2 --dist worksteal tests/backends/test_tpu.py tests/backends/test_fake_cupy.py \
		tests/backends/test_cupy_libraries.py tests/backends/test_cuda.py tests/conformance/test_operations.py

# Longer studies than the test suite has time for; writes under reports/.
study: $(STAMP)
	$(BIN)/python benchmarks/process_engine.py --out reports/benchmarks
	$(BIN)/python benchmarks/engines.py --out reports/benchmarks
	$(BIN)/python benchmarks/commands.py --out reports/benchmarks
	$(BIN)/python benchmarks/sweep.py --out reports/benchmarks
	$(BIN)/python benchmarks/interval_coverage.py --out reports/benchmarks
	$(BIN)/python benchmarks/kernels.py --out reports/benchmarks

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(STAMP)

$(STAMP): pyproject.toml .ci/setup
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) dist .pytest_cache .mypy_cache .ruff_cache
