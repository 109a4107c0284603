# Two commands are enough: `make quickstart` and `make test`. Both build what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help quickstart test lint fast faults calibration bench bench-gpu bench-queue clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/  —/'

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev,gpt2]"
	@touch $@

quickstart: $(VENV)/installed ## install, train the quickstart, print Table 1, draw both figures, write the page
	$(BIN)/nlq sweep specs/quickstart.yaml
	$(BIN)/nlq report --table1
	@echo
	@echo "Figures:"
	@$(BIN)/nlq plot training-dynamics
	@$(BIN)/nlq plot relative-improvement
	@echo
	@echo "The page, to open in a browser:"
	@$(BIN)/nlq report --html report/

test: $(VENV)/installed lint ## lint, types, layers and all tests
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/installed ## ruff and mypy --strict
	$(BIN)/ruff check nlq tests
	$(BIN)/ruff format --check nlq tests
	$(BIN)/mypy

fast: $(VENV)/installed ## the tests that train nothing
	$(BIN)/python -m pytest -n $(WORKERS) tests/unit tests/contract tests/numerics tests/test_layers.py tests/test_docs.py

faults: $(VENV)/installed ## a sweep under injected faults against a quiet one (FAULTS=120 SEED=0)
	$(BIN)/python tests/faults/storm.py --faults $(or $(FAULTS),120) --seed $(or $(SEED),0)

calibration: $(VENV)/installed ## whether intervals, verdicts and power keep their promise: simulated and real sweeps, under ten minutes
	OMP_NUM_THREADS=1 $(BIN)/python tests/calibration/calibrate.py --train

bench: $(VENV)/installed ## what a step costs here: floor, plain, tuned, nlq; six to ten minutes (BENCH="--size tiny")
	$(BIN)/nlq bench $(BENCH)

bench-gpu: $(VENV)/installed ## GPT-2 small on a GPU, four arms beside a nanoGPT-style step: under eight minutes
	$(BIN)/python -m nlq.bench.gpu

bench-queue: $(VENV)/installed ## what the queue and the recording cost on this machine
	$(BIN)/python tests/bench/queue.py

clean: ## remove the environment and caches, never a database
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
