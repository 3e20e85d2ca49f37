# prefixwatch: `make` alone lists what there is.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit tools bench bench-alerts fuzz soak previews generate check-generated licences audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "prefixwatch needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) \
	  || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(INSTALLED) ## a stand-in engine, traffic and the exporter: see what it shows
	@$(BIN)/prefixwatch demo $(ARGS)

test: lint types unit ## everything that must pass

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED)
	@$(BIN)/mypy
	@cd dashboards && MYPYPATH=.:../exporter $(abspath $(BIN))/mypy --strict generate.py preview.py lib boards drawing
	@cd alerts && MYPYPATH=. $(abspath $(BIN))/mypy --strict render.py rulebook
	@cd helm && MYPYPATH=.:../alerts $(abspath $(BIN))/mypy --strict sync.py chartfiles prefixwatch/files/ask.py

unit: $(INSTALLED) tools check-generated
	@$(BIN)/pytest -q

tools: ## the programs that the tests need beside Python
	@tests/tools.sh

bench: $(INSTALLED) ## the benchmarks that README cites
	@for file in tests/bench/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

previews: $(INSTALLED) tools ## draw the dashboards over the demo's scenarios, into previews/
	@$(BIN)/python tests/dashboards/pictures.py --to previews

fuzz: $(INSTALLED) ## fuzz readers and decoders with a hundred times as many examples as the tests (an hour)
	@$(BIN)/pytest -q tests/fuzz --hypothesis-profile=fuzz --timeout=7200

soak: $(INSTALLED) ## an hour of demo traffic with random faults, for several seeds, in simulated time (minutes)
	@for seed in 1 2 3; do $(BIN)/python tests/bench/soak.py --seed $$seed || exit 1; done

bench-alerts: $(INSTALLED) ## each alert on its cause, on a real Prometheus and Alertmanager (6 minutes)
	@$(BIN)/python tests/bench/alert_guards.py
	@$(BIN)/python tests/bench/alerts_live.py

generate: $(INSTALLED) ## write the generated files anew: metric reference, rules, alerts, dashboards, the chart's copies
	@$(BIN)/python -m prefixwatch.reference > exporter/METRICS.md
	@$(BIN)/python alerts/render.py
	@$(BIN)/python dashboards/generate.py
	@$(BIN)/python helm/sync.py

check-generated: $(INSTALLED)
	@$(BIN)/python -m prefixwatch.reference | diff -u exporter/METRICS.md - \
	  || { echo "exporter/METRICS.md is not current: run make generate"; exit 1; }
	@$(BIN)/python alerts/render.py --check
	@$(BIN)/python dashboards/generate.py --check
	@$(BIN)/python helm/sync.py --check

licences: $(INSTALLED) ## list the licences of the runtime dependencies
	@$(BIN)/python tests/licences.py

audit: $(INSTALLED) ## known vulnerabilities of the runtime dependencies (asks pypi.org)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3'
	@$(BIN)/python tests/audit.py

clean: ## remove what make created
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
