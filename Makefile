# make dev            build and run a cluster on this machine; ARGS="--data-nodes 4" and the like are passed on
# make test           everything that CI runs but formatting and lints; FULL=1 for the long forms
# make bench          Apus against MariaDB/InnoDB by sysbench, in the same run (20 minutes; TIME=1 for a quick look)
# make reliability    what clients feel when real processes break; docs/reliability.md (20 minutes, needs root). ROWS="kill-data halves": only
#                     these, the others stay as measured last; `make reliability-page` writes only the page
# make kills          500 rounds of kill -9 (ROUNDS=500), at most MINUTES=20 of them; run again, it goes on
# make fuzz           a million inputs for each decoder that reads from strangers or a disk: both sides of the hello, signals, groupings, redo logs, MySQL packets (INPUTS=1000000)
# make fmt            format all Rust code

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PYTHON := $(TARGET)/test-clients/venv/bin/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: dev test unit scenarios setup release bench reliability reliability-page kills fuzz fmt lint

dev: release
	@exec $(TARGET)/release/apus dev $(ARGS)

release:
	@cargo build --release --quiet -p apus -p apus-chaos

test: setup unit scenarios

setup:
	@tests/setup.sh

unit:
	@cargo test --workspace --quiet
	@cargo test --quiet -p apus-sim --features planted-bugs --test planted

scenarios: release
	@cargo build --release --quiet -p apus-chaos-disk
	@$(PYTHON) tests/run.py $(SCENARIOS)

bench: setup release
	@$(PYTHON) scripts/perf/compare.py --write docs/performance.md $(ARGS)

reliability: setup release
	@$(PYTHON) tests/process/measure.py --publish --only "$(ROWS)" $(ARGS)

reliability-page: setup
	@$(PYTHON) tests/process/measure.py --page

ROUNDS := 500
MINUTES := 20
kills: setup release
	@$(PYTHON) tests/process/measure.py --publish --json --only kills --rounds $(ROUNDS) --minutes $(MINUTES)

INPUTS := 1000000
fuzz:
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-auth --test handshake garbage
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-signal --test fuzz
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-eval --test fuzz
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-redo --test fuzz
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-vault --test fuzz
	@APUS_FUZZ_INPUTS=$(INPUTS) cargo test --release -p apus-sql --lib not_panicked_on

fmt:
	@cargo fmt --all

lint:
	@cargo fmt --all -- --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
