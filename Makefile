# Everything runs from .venv, which each target makes when it must. The stamp says that it is up to
# date with pyproject.toml, so that the second time costs nothing.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PARALLEL := --dist loadfile --no-loadscope-reorder

# The versions that are installed. `make setup LOCK=` takes the newest that pyproject.toml allows.
LOCK := requirements-dev.lock

.PHONY: setup java demo test test-quick fmt check sim docs protocol changelog bench soak clean

setup: $(STAMP) java

$(STAMP): pyproject.toml setup.sh $(LOCK)
	@sh setup.sh venv $(VENV)
	@echo "installing into $(VENV): a few minutes the first time (PySpark is 400 MB)"
	@$(BIN)/python -m pip install --disable-pip-version-check \
		$(if $(LOCK),-c $(LOCK)) -e '.[dev]'
	@touch $(STAMP)

java:
	@sh setup.sh java

demo: setup  ## start a federation, run the intrusion query, kill a peer, check the answers
	@$(BIN)/medusa-testnet intrusion --speed 60 --kills 1

test: setup  ## every test but the long campaigns; in more processes than there are cores: many wait
	@$(BIN)/python -m pytest -q -n auto $(PARALLEL)

test-quick: setup  ## what only computes, in two minutes
	@$(BIN)/python -m pytest -q -n 2 $(PARALLEL) -m quick

fmt: $(STAMP)  ## format the code, and mend what the linter can mend
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

check: $(STAMP)  ## format, lint, strict types, the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

sim: $(STAMP)  ## replay one seed of the simulation with its history: make sim SEED=7
	@test -n "$(SEED)" || { echo "make sim SEED=7: which seed is missing"; exit 2; }
	@$(BIN)/medusa-testnet simulate --seed $(SEED) --trace

docs: protocol  ## write docs/generated and the lock of the limits from the code
	@$(BIN)/python -m medusa.testnet.pages

protocol: $(STAMP)  ## write docs/generated/protocol.md and docs/protocol.lock from the types of the messages
	@$(BIN)/python -m medusa.testnet.protocol

changelog: $(STAMP)  ## show the items of changes/; make changelog VERSION=0.2.0 moves them to CHANGELOG.md
	@$(BIN)/python changes/fold.py $(VERSION)

bench: setup  ## ratios against the reference, into bench.json
	@$(BIN)/python -m medusa.testnet.bench

soak: setup  ## the long campaigns, and new examples for the property tests
	@$(BIN)/python -m pytest -q -m 'hypothesis and not soak' --hypothesis-profile=soak
	@$(BIN)/python -m pytest -q -m soak

clean:  ## what these targets made
	rm -rf $(VENV) build dist out docs/generated bench.json *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
