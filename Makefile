# Everything goes into .venv; `make test` and `make demo` need python3, make and a C compiler.
# PYTHON=python3.12 make setup   chooses another Python (3.10 to 3.13).
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-real-nccl test-gpu gpu-check fuzz check bench bench-offline clean format dashboards dashboards-pixels screenshots metrics-doc constraints

PY := .venv/bin/python
# RANK chooses the demo's slow rank; under torchrun the same name means something else.
unexport RANK
BASE_PYTHON := $(or $(PYTHON),python3)
SOURCES := agent service dashboards tools tests
# The tests start hundreds of processes: each would compile all of Paceline anew.
unexport PYTHONDONTWRITEBYTECODE
CORES := $(shell nproc 2>/dev/null || echo 2)
# Most tests wait for processes, so there are two workers more than cores; 12 are enough for all.
WORKERS ?= $(shell echo $$(( $(CORES) + 2 < 12 ? $(CORES) + 2 : 12 )))
# Verdicts about whole jobs, and deadlines of theirs: they would measure what runs beside them, too.
ALONE := tests/integration/test_gpu_check.py \
  $(addprefix tests/e2e/test_,control.py demo.py late.py replicas.py)

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

setup: ## Install everything into .venv (seconds when nothing changed)
	@command -v "$(BASE_PYTHON)" >/dev/null || { \
	  echo "$(BASE_PYTHON) is missing: install Python 3.10 to 3.13, or name one with PYTHON=..." >&2; \
	  exit 2; }
	@"$(BASE_PYTHON)" tools/bootstrap.py $(if $(PYTHON),--chosen)

demo: setup ## Train a small model on 4 ranks, slow one down, watch it being named (FAULT=, RANK=)
	@$(if $(RANK),DEMO_SLOW_RANK="$(RANK)") $(if $(FAULT),FAULT="$(FAULT)") .venv/bin/paceline demo

test: setup ## Run all tests but gpu, bench and slow (WORKERS= side by side)
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile $(ALONE:%=--ignore=%) $(PYTEST_ARGS)
	@$(PY) -m pytest $(ALONE) $(PYTEST_ARGS) || [ $$? -eq 5 ]  # none chosen

test-slow: setup ## Run the tests that are too long for `make test`
	@$(PY) -m pytest -m slow

test-real-nccl: setup ## Run the NCCL plugin inside real NCCL libraries (downloads 2 GB once)
	@$(PY) -m pytest -m realnccl tests/plugin

test-gpu: setup ## Run the tests that need an NVIDIA GPU
	@$(PY) -m pytest -m gpu tests/gpu

FUZZ_S ?= 60
FUZZ ?= all
fuzz: setup ## Fuzz the API, decoder, rings and importers, FUZZ_S seconds each (FUZZ=ring for one)
	@$(if $(filter all api,$(FUZZ)),FUZZ_S=$(FUZZ_S) $(PY) -m pytest -q -n 0 -m slow tests/integration/faults/test_api_fuzz.py)
	@$(if $(filter-out api,$(FUZZ)),$(PY) -m tests.fuzz.run $(FUZZ) --seconds $(FUZZ_S))

# Works straight from the checkout with whatever torch that Python has: see docs/gpu.md.
gpu-check: ## Check plugin, timers and overhead on an NVIDIA GPU (8 minutes, PYTHON=)
	@"$(or $(PYTHON),$(wildcard $(PY)),python3)" -m tools.gpu_check $(GPU_CHECK_ARGS)

CHECKS := check-format check-lint check-types check-layers check-dashboards check-unit
.PHONY: $(CHECKS)
check: $(CHECKS) ## Format, lint, types, layers, unit tests, committed dashboards
$(CHECKS): setup
check-format:
	$(PY) -m ruff format --check --quiet $(SOURCES)
check-lint:
	$(PY) -m ruff check $(SOURCES)
check-types:
	$(PY) -m mypy
check-layers:
	.venv/bin/lint-imports --no-logo
check-dashboards:
	$(PY) -m paceline_dashboards.build build dashboards/dist --prometheus-only dashboards/dist-prometheus --rules deploy/prometheus/rules --check
check-unit:
	$(PY) -m pytest -q -n $(CORES) tests/unit

bench: setup ## Measure overhead, memory and throughput; writes bench/results
	@.venv/bin/paceline bench

bench-offline: setup ## paceline analyze beside HTA, TraceLens and ByteDance's analyzer (6 minutes)
	@.venv/bin/paceline bench offline

format: setup ## Put the code into its one format
	$(PY) -m ruff format $(SOURCES)
	$(PY) -m ruff check --fix $(SOURCES)

metrics-doc: setup ## Write the tables of docs/metrics.md from the catalogue
	@$(PY) -m tools.metrics_doc

dashboards: setup ## Build the committed dashboards, alerts and recording rules
	$(PY) -m paceline_dashboards.build build dashboards/dist --prometheus-only dashboards/dist-prometheus --rules deploy/prometheus/rules

dashboards-pixels: setup ## Draw the dashboards with Grafana's components (npm, 450 MB; 6 minutes)
	@$(PY) -m pytest -n 0 -m pixels tests/pixels

PIXELS_DIR ?= build/pixels
screenshots: setup ## Take the docs' pictures anew: page, dashboards, a night on call (root; 15 minutes)
	$(PY) -m tests.e2e.page.screenshots docs/img
	$(PY) -m tests.e2e.page.report_pictures
	PIXELS_DIR="$(abspath $(PIXELS_DIR))" $(MAKE) --no-print-directory dashboards-pixels
	cp "$(PIXELS_DIR)"/pictures/*.png docs/img/dashboards/
	$(PY) -m tests.integration.deploy.oncall docs/img/oncall --site "$(PIXELS_DIR)/web/dist"

constraints: setup ## Resolve constraints.txt anew
	$(PY) tools/constraints.py

clean: ## Remove .venv and everything that is made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find agent service dashboards tools tests -name __pycache__ -prune -exec rm -rf {} +
