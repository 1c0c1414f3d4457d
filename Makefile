# Everything runs from a fresh clone: `make test` and `make demo` install into .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install prepared test test-all lint demo goldens bench bench-all clean

install: .venv/.installed

.venv/.installed: pyproject.toml
	@command -v java >/dev/null || echo "note: no java found; running queries needs a JDK 17 or newer (explaining them does not)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

# Spark's classes, so that it starts in half the time; where this fails, it starts as always.
.venv/share/penstock/spark-classes.jsa: .venv/.installed
	-@$(BIN)/penstock prepare

prepared: .venv/share/penstock/spark-classes.jsa

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: install lint prepared
	$(BIN)/pytest -n 2 -m "not slow"

test-all: install lint prepared
	$(BIN)/pytest -n 2

demo: prepared
	@$(BIN)/penstock demo

goldens: install
	$(BIN)/python -m tests.goldens
	$(BIN)/python -m tests.goldens_native_update

# At most an hour for the experiments of paper 001; `make bench QUICK=1` takes 6 minutes, `make bench-all` has the rest.
# With TRIALS=FILE what was measured is kept there, and not measured again.
bench: prepared
	$(BIN)/penstock bench paper $(if $(QUICK),--quick) $(if $(TRIALS),--trials $(TRIALS))
	$(if $(QUICK),,$(BIN)/penstock bench report)

bench-all: bench
	$(BIN)/penstock bench rest --output benchmarks/results/rest.json
	$(BIN)/penstock bench fuzz --output benchmarks/results/fuzz.json
	$(BIN)/penstock bench qaware --output benchmarks/results/qaware.json
	$(BIN)/penstock bench mig --output benchmarks/results/mig.json
	$(BIN)/penstock bench fresh --output benchmarks/results/fresh.json
	$(BIN)/penstock bench overload --output benchmarks/results/overload.json
	$(BIN)/penstock bench flat --output benchmarks/results/flat.json

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
