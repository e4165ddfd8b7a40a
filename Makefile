# make dev            build and run a cluster on this machine; ARGS="--data-nodes 4" and the like are passed on
# make test           everything that CI runs but formatting and lints; FULL=1 for the long forms
# make bench          Apus against MariaDB/InnoDB by sysbench, in the same run (20 minutes; TIME=1 for a quick look)
# make reliability    what clients feel when real processes break; docs/reliability.md (13 minutes, needs root)
# make fmt            format all Rust code

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PYTHON := $(TARGET)/test-clients/venv/bin/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: dev test unit scenarios setup release bench reliability fmt lint

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
	@$(PYTHON) tests/run.py $(SCENARIOS)

bench: setup release
	@$(PYTHON) scripts/perf/compare.py --write docs/performance.md $(ARGS)

reliability: setup release
	@$(PYTHON) tests/process/measure.py --write docs/reliability.md $(ARGS)

fmt:
	@cargo fmt --all

lint:
	@cargo fmt --all -- --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
