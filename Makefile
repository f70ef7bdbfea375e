# `make run` does the main job on real input, `make test` runs the whole suite. Each first sets up what it needs in .venv:
# `make run` the package and its light extras; `make test` also the test tools, the software back ends and, when root, the
# system packages that the tests require. Without root, a message names the packages and what is missing without them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What each stage of the set-up leaves when it has succeeded.
RUN_STAMP := $(VENV)/.ready-to-run
TEST_STAMP := $(VENV)/.ready-to-test
SETUP := pyproject.toml .ci/setup .ci/constraints.txt
OUT := reports/make-run

.PHONY: run test test-optional check study format clean setup setup-run setup-test
.DEFAULT_GOAL := run

run: $(RUN_STAMP)
	@$(BIN)/windtunnel run scenarios/azure-code.yaml --out $(OUT)
	@echo "Open $(CURDIR)/$(OUT)/report.html"

test: $(TEST_STAMP) check
	$(BIN)/pytest -n 2 --dist worksteal

# Format, lint and types: what every change is held to before its tests are looked at.
check: $(TEST_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The optional job: what needs packages too large for every run, JAX (600 MB) and CuPy with its libraries (1.7 GB). JAX
# runs on the processor where there is no TPU, and CuPy compiles and is compared with its stand-in where there is no GPU.
test-optional: $(TEST_STAMP)
	$(BIN)/python -m pip install --quiet -e ".[tpu,cuda]"
	WINDTUNNEL_REQUIRE=tpu $(BIN)/pytest -n 2 --dist worksteal tests/backends/test_tpu.py tests/backends/test_fake_cupy.py \
		tests/backends/test_cupy_libraries.py tests/backends/test_cuda.py tests/conformance/test_operations.py

# Longer studies than the test suite has time for; writes under reports/.
study: $(TEST_STAMP)
	$(BIN)/python benchmarks/process_engine.py --out reports/benchmarks
	$(BIN)/python benchmarks/engines.py --out reports/benchmarks
	$(BIN)/python benchmarks/commands.py --out reports/benchmarks
	$(BIN)/python benchmarks/sweep.py --out reports/benchmarks
	$(BIN)/python benchmarks/interval_coverage.py --out reports/benchmarks
	$(BIN)/python benchmarks/kernels.py --out reports/benchmarks

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: setup-test
setup-run: $(RUN_STAMP)
setup-test: $(TEST_STAMP)

$(RUN_STAMP): $(SETUP)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup run
	@touch $@

# After the first stage, so that two jobs of one make never install into .venv at once.
$(TEST_STAMP): $(RUN_STAMP)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup test
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) dist .pytest_cache .mypy_cache .ruff_cache
