# `make` lists what there is.

# What `make demo`, `make screenshots`, `make faults` and `make bench` pass on.
ARGS ?=
# Where the DCI of `make demo` listens on 127.0.0.1.
PORT ?= 8080

# These tools wait for others most of the time; optimising them takes most of the time of building them.
INSTALL := CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --locked
INSTALL_MDBOOK := $(INSTALL) mdbook@0.5.4 --no-default-features --features search
INSTALL_NEXTEST := $(INSTALL) cargo-nextest --no-default-features --features default-no-update

# What `make release` builds with besides (FEATURES="--features disbatch-kubernetes/client").
FEATURES ?=
# What tests and lints need: all that there is. Always the same, or everything that shares a dependency would be built twice.
ALL := --locked --workspace --features disbatch-kubernetes/client
BUILD_TESTS := cargo build $(ALL) --all-targets

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
DEMO_DATA := .disbatch/demo
# That of a version manager is a shell script, which takes longer than most plugins of the tests.
REAL_PYTHON := PATH="$$(dirname "$$(python3 -c 'import sys; print(sys.executable)')"):$$PATH"
# Tests wait for seconds more often than they compute.
TESTS_AT_ONCE := NEXTEST_TEST_THREADS=$${NEXTEST_TEST_THREADS:-$$(($$(nproc) + 3))}

.DEFAULT_GOAL := help
.PHONY: help prepare prepare-browser prepare-clients release dist check-packages mdbook docs demo test screenshots faults lint fmt-check clippy deny advisories bench fuzz fuzz-targets fmt clean-data

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

prepare:
	@scripts/prepare

# Apart, because programs can be built and used without a browser.
prepare-browser:
	@scripts/prepare browser

prepare-clients:
	@scripts/prepare clients

release: prepare ## Build all programs for use, into target/release (FEATURES=..: see docs/engines/kubernetes.md)
	cargo build --locked --release $(FEATURES)

dist: ## Pack release programs into dist/: tarball, Debian packages, RPMs, wheel (ARGS=--check: pack twice and compare)
	scripts/dist $(ARGS)

mdbook:
	@mdbook --version >/dev/null 2>&1 || $(INSTALL_MDBOOK)

# Apart from `test`: packing and installing takes minutes. What is optimised is packed by `make dist`; here it is what tests use.
check-packages: prepare ## Pack, install and run packages, wheel and images with the programs of the tests (needs root)
	$(BUILD_TESTS)
	scripts/dist --profile debug
	scripts/dist-check $(ARGS)
	scripts/image-check $(ARGS)

docs: mdbook ## Make a site of docs/ with search, in target/docs/site, and check all links
	scripts/docs

demo: prepare ## Run 20 real tasks in a database of their own, then stay (ARGS=--exit: stop; PORT=8080)
	cargo build --locked --profile demo $(FEATURES)
	@mkdir -p $(DEMO_DATA) && touch $(DEMO_DATA)/lock
	@flock --nonblock $(DEMO_DATA)/lock rm -rf $(DEMO_DATA) || { echo "another demo runs"; exit 1; }
	target/demo/disbatch dev --data $(DEMO_DATA) --port $(PORT) --demo $(ARGS)

# All targets at once: the tests ask for other features of some dependencies than the programs alone, and
# everything that uses those would be built twice.
test: prepare-browser prepare-clients ## Make the docs, and run all tests against real MongoDB servers, and the pages in Chromium
	$(BUILD_TESTS)
	@cargo nextest --version >/dev/null 2>&1 || $(INSTALL_NEXTEST)
	@$(MAKE) --no-print-directory docs
	$(REAL_PYTHON) DISBATCH_REQUIRE_DOCS=1 $(TESTS_AT_ONCE) target/debug/disbatch-mongod run -- cargo nextest run $(ALL) $(ARGS)

screenshots: prepare-browser ## Make pictures of all pages, into docs/images (ARGS=--help)
	$(BUILD_TESTS)
	target/debug/disbatch-screenshots $(ARGS)

# Its short form is among the tests. Here the limits are tested with more tasks, too.
faults: prepare ## Break everything at random for minutes and check what must hold (ARGS=--help)
	$(BUILD_TESTS)
	target/debug/disbatch-faults $(ARGS)
	@cargo nextest --version >/dev/null 2>&1 || $(INSTALL_NEXTEST)
	DISBATCH_LIMIT_TASKS=2000 NEXTEST_PROFILE=faults \
		target/debug/disbatch-mongod run -- cargo nextest run $(ALL) -E 'package(disbatch-tests) & test(limits::)'

lint: fmt-check clippy deny ## Check formatting, lints, and licenses and origin of dependencies

fmt-check:
	cargo fmt --all --check

clippy:
	cargo clippy $(ALL) --all-targets -- -D warnings

deny:
	@cargo deny --version >/dev/null 2>&1 || $(INSTALL) cargo-deny
	cargo deny --locked check bans licenses sources

# Apart from `deny`, because it fetches the advisory database from GitHub, and because its outcome changes
# while nothing here does.
advisories: ## Check dependencies for known vulnerabilities (needs github.com, or ADVISORY_DB)
	scripts/advisories $(ARGS)

bench: prepare ## Measure, beside other systems, which are installed (ARGS="processes --rounds 1")
	cargo build --locked --release --workspace --exclude disbatch-hostile --exclude disbatch-model --exclude disbatch-tests
	scripts/bench-peers
	target/release/disbatch-bench $(ARGS)

# Apart from `test`, because it fetches its tool from PyPI.
fuzz: prepare ## Send odd requests to the REST API
	$(BUILD_TESTS)
	scripts/fuzz-api $(ARGS)

fuzz-targets: ## Give all parsers what a fuzzer makes up (nightly Rust; ARGS="control 60": one, for a minute)
	scripts/fuzz-targets $(ARGS)

fmt: ## Format the sources
	cargo fmt --all

clean-data: ## Remove what `make demo` left in .disbatch
	rm -rf .disbatch
