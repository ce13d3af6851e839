# What one does here, in one word each. `make help` lists it.

CARGO ?= cargo
# The recording that `make run` replays, and the limits it tries.
RECORDING ?= recordings/web-closed.perf.data
LIMITS ?= --set '50000 100000' --set '10000 20000'

.DEFAULT_GOAL := help
.PHONY: help guest run test lint fmt bench recordings deps

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# Alone in the memory of a virtual machine it finds no C library, so it brings its own.
guest: deps ## Build the static program that runs scenarios with real processes
	$(CARGO) rustc --quiet --release -p cpumax-guest --bin cpumax-guest -- -C target-feature=+crt-static

run: deps ## Replay a shipped recording under two limits on every generation
	$(CARGO) run --quiet --release -p cpumax -- replay $(RECORDING) $(LIMITS)

test: deps ## Run every test of the workspace
	$(CARGO) test --workspace

lint: deps ## Formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt: deps ## Format all sources
	$(CARGO) fmt --all

bench: deps ## Measure speed: time, and instructions where valgrind is installed
	$(CARGO) bench --workspace

recordings: deps ## Make the shipped recordings again (root, perf, and a machine that does nothing else)
	$(CARGO) run --quiet --release -p cpumax-testload -- recordings --raw-dir target/recordings

# Only a C linker and Rust are needed. A missing linker is installed where that is possible.
deps:
	@command -v $(firstword $(CARGO)) >/dev/null 2>&1 || { \
		echo "cargo not found: install Rust 1.88 or newer, see https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev; \
		else \
			echo "no C linker: install gcc and libc6-dev (Debian, Ubuntu) or gcc and glibc-devel (Fedora)" >&2; exit 1; \
		fi; }
