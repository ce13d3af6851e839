# The tasks of development. `make help` lists them.

CARGO ?= cargo
# The recording that `make run` replays, and the limits it tries.
RECORDING ?= recordings/web-closed.perf.data
LIMITS ?= --set '50000 100000' --set '10000 20000'
# The scheduler needs clang 19 and the headers of two libraries, `cpumax record` needs clang 12. Where these are missing and cannot be
# installed, the scheduler or the recorder is left out and the target `clang` says so; `install` then stops.
HAVE_BPF = { command -v $${BPF_CLANG:-clang-19} || clang -dumpversion | grep -Eq '^(19|[2-9][0-9])\.'; } >/dev/null 2>&1 \
	&& printf '\#include <libelf.h>\n\#include <zlib.h>\n' | cc -E - >/dev/null 2>&1
LEFT_OUT = $(shell $(HAVE_BPF) || echo --exclude scx_cpumax)
HAVE_CLANG = (for clang in $${BPF_CLANG:-clang $$(seq -f clang-%.0f 12 39)}; do \
	$$clang -dumpversion | grep -Eq '^(1[2-9]|[2-9][0-9])\.' && exit; done; exit 1) >/dev/null 2>&1
FEATURES = $(shell $(HAVE_CLANG) || echo --no-default-features)

.DEFAULT_GOAL := help
.PHONY: help guest install manual kernels test-kernels run test python-test wheel python-bench mutants apart conformance conformance-parallel sources scx-sources scx-test lint prose check docs dist browser kube node-test fmt bench peers \
	recordings proof calibrate understand fuzz deps rust clang

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

# The guest is the only program in the memory of a virtual machine, without a C library, so it is linked statically. Its symbols are
# stripped: they would be read with every restored snapshot, and their size depends on the build directory. A file of another size
# changes the start of the machine, and no run in it would be equal to one elsewhere.
# The guest has its own target directory, because `cargo build` there would make programs that need shared libraries.
guest: deps ## Build the static programs that run in virtual machines
	$(CARGO) rustc --quiet --release --target-dir $${CARGO_TARGET_DIR:-target}/guest -p cpumax-guest --bin cpumax-guest -- -C target-feature=+crt-static -C strip=symbols
	$(if $(FEATURES),,$(CARGO) rustc --quiet --release --target-dir $${CARGO_TARGET_DIR:-target}/guest -p cpumax-recorder --example in_lab -- -C target-feature=+crt-static -C strip=symbols)

install: rust clang ## Install cpumax, the plugin kubectl-cpumax, and the guest where cargo puts programs
	$(CARGO) install --path crates/cpumax
	RUSTFLAGS='-C target-feature=+crt-static -C strip=symbols' $(CARGO) install --path crates/guest --target x86_64-unknown-linux-gnu
	ln -sf cpumax $(dir $(CPUMAX))kubectl-cpumax
	$(MAKE) --no-print-directory manual

# Where man and shells look for files that a user installed. A package sets PREFIX=/usr and DESTDIR.
PREFIX ?= $(HOME)/.local
SHARE = $(DESTDIR)$(PREFIX)/share
# The program that writes the man pages and the completions.
CPUMAX ?= $(or $(CARGO_INSTALL_ROOT),$(CARGO_HOME),$(HOME)/.cargo)/bin/cpumax

manual: ## Install man pages and completions of the installed cpumax
	@mkdir -p $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(CPUMAX) man $(SHARE)/man/man1
	$(CPUMAX) completions bash > $(SHARE)/bash-completion/completions/cpumax
	$(CPUMAX) completions zsh > $(SHARE)/zsh/site-functions/_cpumax
	$(CPUMAX) completions fish > $(SHARE)/fish/vendor_completions.d/cpumax.fish

# A replay needs no recorder, so clang is not installed for it.
run: rust ## Replay a shipped recording under two limits on the recorded kernel and the newest
	@$(if $(FEATURES),echo "There is no clang: this cpumax is built without the command record" >&2)
	$(CARGO) run --quiet --release $(FEATURES) -p cpumax -- replay $(RECORDING) $(LIMITS)

comma := ,
# Names of the kernels in a set of kernels.toml.
kernels_of = $(shell awk -F '"' '/^name/ { name = $$2 } /^sets.*"$(1)"/ { print name }' kernels.toml)
# The same as a list for --kernel.
list_of = $(subst $() ,$(comma),$(strip $(call kernels_of,$(1))))

# Kernels and random cases that `make conformance` compares. Each case takes about a second per kernel, all of them an hour and a
# quarter on two cores. Runs are kept, so the target can be stopped and resumes.
CONFORMANCE_KERNELS ?= $(call list_of,conformance)
CONFORMANCE_CASES ?= --cases 1000340..1000839
# Its tables; docs/lab/conformance.md has their sums.
TABLES = target/conformance

conformance: guest ## Hold the model against all real kernels: tables in target/conformance/one-cpu.md, found.md
	$(CARGO) run --quiet --release -p cpumax -- lab fetch $(subst $(comma), ,$(CONFORMANCE_KERNELS))
	mkdir -p $(TABLES)/traces
	$(CARGO) run --quiet --release -p cpumax -- compare --all $(CONFORMANCE_CASES) --kernel $(CONFORMANCE_KERNELS) \
		--runs $(TABLES) --trace $(TABLES)/traces --markdown $(TABLES)/one-cpu.md --svg $(TABLES)/one-cpu.svg || [ $$? = 1 ]
	$(CARGO) run --quiet --release -p cpumax -- compare $(sort $(wildcard scenarios/found/*.toml)) --kernel $(CONFORMANCE_KERNELS) \
		--runs $(TABLES) --trace $(TABLES)/traces --markdown $(TABLES)/found.md || [ $$? = 1 ]
	cat $(TABLES)/one-cpu.md $(TABLES)/found.md

# Kernels, random cases and scenarios that `make conformance-parallel` compares. The random cases have two to eight parallel CPUs and
# run three times each: some 35 minutes on two cores, and the boots. The scenarios have 2 to 80 CPUs and run on every kernel: some
# 40 minutes.
PARALLEL_KERNELS ?= $(call list_of,parallel)
PARALLEL_CASES ?= --cases 0..63 --median 3
EVERY_KERNEL ?= $(call list_of,compare)
PARALLEL_SCENARIOS ?= affinity-move balance-throttled class-change double-spend edge-charge edge-keep fibtest-8 \
	fibtest group-move hackbench-3deep hotplug-leak late-slice limbo-write limit-write load-clock lock-holder moved-away \
	nohz-full parked-move parked-order period-scaling profile-small release-tick remote-charge slack threadgroup-rwsem \
	throttled-caller throttled-order thundering-hogs thundering-wakes wake-on-throttled scenarios/found/concur.toml \
	scenarios/found/twice-placed.toml

conformance-parallel: guest ## The same on several CPUs: tables in target/conformance/scenarios.md, cases.md
	$(CARGO) run --quiet --release -p cpumax -- lab fetch $(sort $(subst $(comma), ,$(EVERY_KERNEL),$(PARALLEL_KERNELS)))
	mkdir -p $(TABLES)
	CPUMAX_KVM=off $(CARGO) run --quiet --release -p cpumax -- compare --parallel $(PARALLEL_SCENARIOS) --kernel $(EVERY_KERNEL) \
		--runs target/conformance-parallel --markdown $(TABLES)/scenarios.md || [ $$? = 1 ]
	CPUMAX_KVM=off $(CARGO) run --quiet --release -p cpumax -- compare --parallel $(PARALLEL_CASES) --kernel $(PARALLEL_KERNELS) \
		--runs target/conformance-parallel --markdown $(TABLES)/cases.md || [ $$? = 1 ]
	cat $(TABLES)/scenarios.md $(TABLES)/cases.md

sources: deps ## Print again the numbers behind the claims of four documents: docs/lab/sources.md
	SNAPSHOTS=overwrite $(CARGO) test --quiet -p cpumax --test sources

# Kernels that tests run on. They are fetched once, through apt; FETCH takes options of `cpumax lab fetch`, e.g. FETCH='--mirror URI'.
TEST_KERNELS ?= $(call kernels_of,test)
FETCH ?=

kernels: deps ## Fetch the real kernels that tests run on, where that is possible
	@$(CARGO) build --quiet $(FEATURES) -p cpumax
	@timeout 600 $(CARGO) run --quiet $(FEATURES) -p cpumax -- lab fetch $(FETCH) $(TEST_KERNELS) \
		|| echo "NOT TESTED on real kernels: not all of $(TEST_KERNELS) are here, and they cannot be fetched" >&2

test-kernels:
	@echo $(TEST_KERNELS)

test: guest kernels apart python-test ## Run every test of the workspace, on real kernels too where they can be had
	$(CARGO) test --workspace --no-fail-fast $(FEATURES) $(LEFT_OUT)

# The environment of the Python package, installed once. The package in it is that of the development profile.
PYTHON_ENV = target/python/env
PYTHON_TOOLS = maturin pytest pyarrow polars fsspec optuna ray

$(PYTHON_ENV)/ready:
	@python3 -m venv $(PYTHON_ENV) && $(PYTHON_ENV)/bin/pip install --quiet $(PYTHON_TOOLS) && touch $@

# Tests of the Python package. Those with a Ray cluster of two nodes need a machine that is otherwise idle: `make python-test RAY=1`.
RAY ?=

python-test: rust ## Test the Python package; RAY=1: with a Ray cluster of two nodes as well
	@if $(MAKE) --no-print-directory $(PYTHON_ENV)/ready >/dev/null 2>&1; then \
		cd crates/python && VIRTUAL_ENV=$(CURDIR)/$(PYTHON_ENV) PATH=$(CURDIR)/$(PYTHON_ENV)/bin:$$PATH sh -c \
			'maturin develop --quiet $(FEATURES) && pytest --quiet -p no:cacheprovider $(if $(RAY),,--ignore tests/test_ray.py)'; \
	else \
		echo "NOT TESTED: the Python package, as there is no Python 3 with venv, or pip cannot install $(PYTHON_TOOLS)" >&2; \
	fi

# The builder of wheels has an environment of its own: that of the tests is large.
MATURIN = target/tools/maturin/bin/maturin

$(MATURIN):
	@python3 -m venv target/tools/maturin && target/tools/maturin/bin/pip install --quiet maturin

# Times in it are those of the last commit.
wheel: rust $(MATURIN) ## Build the wheel of the Python package, which has the command too, in target/wheels
	@rm -rf target/wheels
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(MATURIN) build --quiet --release $(FEATURES) \
		--manifest-path crates/python/Cargo.toml --out target/wheels
	@ls -l target/wheels

python-bench: wheel $(PYTHON_ENV)/ready ## Measure the Python package, installed from its wheel
	@$(PYTHON_ENV)/bin/pip install --quiet --no-deps --upgrade --target target/python/wheel target/wheels/*.whl
	PYTHONPATH=$(CURDIR)/target/python/wheel $(PYTHON_ENV)/bin/python bench/python.py

# Workspaces of their own. Checking a fuzz target needs no libFuzzer. CUSTOM_LIBFUZZER_PATH keeps its build script from building one.
APART = bench/peers crates/recording/fuzz

apart: rust ## Compile the workspaces that `cargo test` does not include
	@for folder in $(APART); do \
		if $(CARGO) fetch --quiet --manifest-path $$folder/Cargo.toml; then \
			CUSTOM_LIBFUZZER_PATH=/none/libFuzzer.a $(CARGO) check --quiet --offline --all-targets --manifest-path $$folder/Cargo.toml \
				--target-dir $${CARGO_TARGET_DIR:-target} || { echo "$$folder does not compile" >&2; exit 1; }; \
		else \
			echo "NOT COMPILED: $$folder, whose crates cannot be downloaded" >&2; \
		fi; \
	done

lint: deps prose ## Formatting, clippy, and the documents' sentences; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(FEATURES) $(LEFT_OUT) --all-targets -- -D warnings

# Sentences of at most 200 characters that name their subject, in every document (docs/style).
prose:
	@mkdir -p target/prose && cp -r docs/style/. target/prose
	@if command -v npm >/dev/null && (cd target/prose && npm install --silent --no-audit --no-fund --no-package-lock); then \
		git ls-files '*.md' | NODE_PATH=target/prose/node_modules xargs target/prose/node_modules/.bin/textlint \
			--config ./target/prose/textlintrc.json --rulesdir target/prose/rules; \
	else \
		echo "NOT CHECKED: sentences of documents, as npm cannot install textlint" >&2; \
	fi

# The crates in which a file differs from the last commit, and what of each can be tested without its integration tests.
CHANGED = $(shell { git diff --name-only HEAD; git ls-files --others --exclude-standard; } | sed -n 's|^crates/\([^/]*\)/.*|\1|p' | sort -u)

check: rust ## Formatting, clippy and unit tests of the crates that changed since the last commit
	@$(CARGO) fmt --all --check
	@for crate in $(CHANGED); do \
		name=$$(sed -n 's/^name = "\(.*\)"/\1/p' crates/$$crate/Cargo.toml | head -n 1); \
		units=$$([ -f crates/$$crate/src/lib.rs ] && echo --lib || echo --bins); \
		echo "$$name" && $(CARGO) clippy --quiet -p $$name --all-targets -- -D warnings && $(CARGO) test --quiet -p $$name $$units || exit; \
	done

docs: rust ## Build the documentation as a site with a search, below target/docs
	@[ -x target/tools/bin/mdbook ] || $(CARGO) install --quiet --locked --root target/tools --no-default-features --features search mdbook@0.5.4
	@rm -rf target/docs && mkdir -p target/docs/src
	@git ls-files '*.md' 'docs/*' 'scenarios/*' | grep -v '^docs/style/' | xargs cp --parents -t target/docs/src
	@sed 's|](|](docs/|; s|(docs/\.\./|(|' docs/SUMMARY.md > target/docs/src/SUMMARY.md
	@cp docs/book.toml target/docs/ && target/tools/bin/mdbook build target/docs
	@echo "target/docs/book/index.html"

# MUTANTS takes parts of names; the output lists what notices each of those mutants, e.g. MUTANTS='pelt slack'.
MUTANTS ?=

mutants: ## Break each rule and step of bandwidth control, one at a time, and list those that no expectation notices (docs/reference/model.md)
	$(CARGO) run --quiet --release -p cpumax-study --features faults --example mutants -- $(MUTANTS)

scx-sources: deps ## Build the kernel's own tests and scx_simple from Debian's sources, for scx-test
	sh crates/scx_cpumax/tests/sources.sh

scx-test: deps ## Run every check of the scheduler on every kernel in the cache (see docs/guide/scx.md)
	$(CARGO) build -p cpumax
	CPUMAX_SCX_SET=all $(CARGO) test -p scx_cpumax

# Without npm nothing is installed, and tests name the missing program.
browser: ## Install what the test of reports needs to drive Chromium, below target/
	@mkdir -p target/browser && cp crates/cpumax/tests/browser/package.json target/browser/
	@cd target/browser && npm install --silent --no-audit --no-fund --no-package-lock \
		|| echo "NOT TESTED in a browser: npm cannot install what drives it" >&2

kube: ## Build the parts of Kubernetes that tests start, outside of the tree: 25 minutes (Go, apt, pip); NODE_KERNEL=6.12 for node-test
	@packaging/kube/build

node-test: kube ## Record a pod on a node in a virtual machine, resize it, and verify the prediction
	$(CARGO) build --workspace $(FEATURES) $(LEFT_OUT) --bin cpumax --bin testload
	CPUMAX_REQUIRE=kube,node $(CARGO) test --workspace $(FEATURES) $(LEFT_OUT) --test kubernetes -- node:: --nocapture

# Programs that need no library, so that one file runs on every Linux on x86-64.
DIST = target/dist
PROGRAMS = $(DIST)/build/x86_64-unknown-linux-gnu/release
DIST_TOOLS = rpm cpio jq xz-utils python3-venv

dist: deps wheel ## Packages for x86-64 in target/dist, each installed and used once: tar.xz, deb, rpm, wheel, OCI image, checksums
	@for tool in rpmbuild cpio jq xz python3; do command -v $$tool >/dev/null || missing=1; done; \
		[ -z "$$missing" ] || { $(call install_packages,$(DIST_TOOLS)); } || { echo "make dist needs $(DIST_TOOLS)" >&2; exit 1; }
	RUSTFLAGS='-C target-feature=+crt-static -C strip=symbols' $(CARGO) build --quiet --release --target-dir $(DIST)/build \
		--target x86_64-unknown-linux-gnu -p cpumax -p cpumax-guest --bin cpumax --bin cpumax-guest
	rm -f $(DIST)/cpumax* $(DIST)/SHA256SUMS
	packaging/dist x86_64 $(PROGRAMS) $(PROGRAMS)/cpumax $(DIST)
	cp target/wheels/cpumax-*.whl $(DIST)
	cd $(DIST) && sha256sum cpumax* > SHA256SUMS
	packaging/try $(DIST)
	@ls -l $(DIST)

fmt: rust ## Format all sources
	$(CARGO) fmt --all

bench: deps ## Measure speed in time, and in instructions where valgrind is installed; then run peers (docs/lab/speed.md)
	$(CARGO) bench --workspace $(FEATURES) $(LEFT_OUT) --bench '*'
	CARGO=$(CARGO) bench/peers/run

calibrate: rust ## Measure how often the ranges fitted to counters contain the true value: docs/guide/advise.md
	$(CARGO) run --quiet --release -p cpumax-observed --example calibrate

peers: deps ## Compare the event queue and an M/M/1 with SimPy and SimCore, which are installed below target/
	CARGO=$(CARGO) bench/peers/run

recordings: deps ## Make the shipped recordings again (root, perf, and an idle machine)
	$(CARGO) run --quiet --release -p cpumax-testload -- recordings --raw-dir target/recordings

# An hour and a half: each of 25 services is recorded twice and runs 24 times. PROOF takes options, e.g. PROOF='--only http.node-open'.
# Recordings, runs and tables are kept in target/proof.
PROOF ?=

proof: deps ## Record real servers, run them under limits, and measure the error of replays (root, perf, an idle machine)
	@for program in perf zstd nginx wrk redis-server redis-benchmark postgres pgbench python3 node go javac; do \
		command -v $$program >/dev/null 2>&1 || echo "no $$program: services that need it are left out" >&2; done
	$(CARGO) build --quiet --release -p cpumax
	$(CARGO) run --quiet --release -p cpumax-testload -- proof $(PROOF)

# UNDERSTAND takes options, e.g. UNDERSTAND='--seeds 0..197 --kind tiers --list'.
UNDERSTAND ?= --seeds 0..1999

fuzz: rust ## Feed changed bytes to the readers of recordings and scenarios, for an hour each (FUZZ=3600)
	@crates/recording/fuzz/run.sh $(or $(FUZZ),3600)

understand: rust ## Measure how well recordings are understood, by 2000 services whose structure is known (docs/lab/understanding.md)
	$(CARGO) run --quiet --release -p cpumax-understand -- $(UNDERSTAND)

# A replay needs only Rust and a C linker. The recorder and the scheduler need clang, and the scheduler the headers of libelf and zlib.
# Real kernels need an emulator. Missing packages are installed where that is possible.
deps: rust clang
	@command -v qemu-system-x86_64 >/dev/null 2>&1 || { $(call install_packages,qemu-system-x86); } \
		|| echo "no QEMU, so no virtual machines: install qemu-system-x86 (Debian, Ubuntu)" >&2

rust:
	@command -v $(firstword $(CARGO)) >/dev/null 2>&1 || { \
		echo "cargo not found: install Rust 1.89 or newer, see https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { $(call install_packages,gcc libc6-dev); } || { \
		echo "no C linker: install gcc and libc6-dev (Debian, Ubuntu) or gcc and glibc-devel (Fedora)" >&2; exit 1; }

clang:
	@{ $(HAVE_BPF); } || { $(call install_packages,clang-19 libelf-dev zlib1g-dev pkg-config); } \
		|| echo "crates/scx_cpumax is left out: it needs clang 19 or newer, libelf and zlib" \
		"(Debian, Ubuntu: clang-19 libelf-dev zlib1g-dev pkg-config)" >&2
	@{ $(HAVE_CLANG); } || { $(call install_packages,clang); } \
		|| echo "cpumax record cannot be built: it needs clang 12 or newer (Debian, Ubuntu: clang)" >&2

install_packages = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt-get update -qq \
	&& apt-get install -y -qq --no-install-recommends $(1)
