# `make` lists what there is.

# What `make demo`, `make screenshots`, `make faults` and `make bench` pass on.
ARGS ?=
# Where the DCI of `make demo` listens on 127.0.0.1.
PORT ?= 8080

# These tools wait for others most of the time; optimising them takes most of the time of building them.
INSTALL := CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --locked
INSTALL_NEXTEST := $(INSTALL) cargo-nextest --no-default-features --features default-no-update

# What `make release` builds with besides (FEATURES="--features disbatch-kubernetes/client").
FEATURES ?=
# What tests and lints need: all that there is. Always the same, or everything that shares a dependency would be built twice.
ALL_FEATURES := --features disbatch-kubernetes/client

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
DEMO_DATA := .disbatch/demo

.DEFAULT_GOAL := help
.PHONY: help prepare prepare-browser release demo test screenshots faults lint fmt-check clippy deny advisories bench fuzz fuzz-targets fmt clean-data

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

prepare:
	@scripts/prepare

# Apart, because programs can be built and used without a browser.
prepare-browser:
	@scripts/prepare browser

release: prepare ## Build everything for use, into target/release (FEATURES=..: see docs/engines/kubernetes.md)
	cargo build --locked --release --workspace $(FEATURES)

demo: release ## Run 20 real tasks in a database of their own, then stay (ARGS=--exit: stop; PORT=8080)
	@mkdir -p $(DEMO_DATA) && touch $(DEMO_DATA)/lock
	@flock --nonblock $(DEMO_DATA)/lock rm -rf $(DEMO_DATA) || { echo "another demo runs"; exit 1; }
	target/release/disbatch dev --data $(DEMO_DATA) --port $(PORT) --demo $(ARGS)

# All targets at once: the tests ask for other features of some dependencies than the programs alone, and
# everything that uses those would be built twice.
test: prepare-browser ## Run all tests against real MongoDB servers, and the pages in Chromium
	cargo build --locked --release --workspace --all-targets $(ALL_FEATURES)
	@cargo nextest --version >/dev/null 2>&1 || $(INSTALL_NEXTEST)
	target/release/disbatch-mongod run -- cargo nextest run --locked --workspace --release $(ALL_FEATURES) $(ARGS)

screenshots: prepare-browser ## Make pictures of all pages, into docs/images (ARGS=--help)
	cargo build --locked --release --workspace --all-targets $(ALL_FEATURES)
	target/release/disbatch-screenshots $(ARGS)

# Its short form is among the tests. Here the limits are tested with more tasks, too.
faults: prepare ## Break everything at random for minutes and check what must hold (ARGS=--help)
	cargo build --locked --release --workspace --all-targets $(ALL_FEATURES)
	target/release/disbatch-faults $(ARGS)
	@cargo nextest --version >/dev/null 2>&1 || $(INSTALL_NEXTEST)
	DISBATCH_LIMIT_TASKS=2000 NEXTEST_PROFILE=faults \
		target/release/disbatch-mongod run -- cargo nextest run --locked --release -p disbatch-tests limits::

lint: fmt-check clippy deny ## Check formatting, lints, and licenses and origin of dependencies

fmt-check:
	cargo fmt --all --check

clippy:
	cargo clippy --locked --workspace --all-targets --release $(ALL_FEATURES) -- -D warnings

deny:
	@cargo deny --version >/dev/null 2>&1 || $(INSTALL) cargo-deny
	cargo deny --locked check bans licenses sources

# Apart from `deny`, because it fetches the advisory database from GitHub, and because its outcome changes
# while nothing here does.
advisories: ## Check dependencies for known vulnerabilities (needs github.com, or ADVISORY_DB)
	scripts/advisories $(ARGS)

# Not `cargo run -p`: for one package, Cargo would choose other features and build the dependencies anew.
bench: release ## Measure, beside other systems, which are installed (ARGS="processes --rounds 1")
	scripts/bench-peers
	target/release/disbatch-bench $(ARGS)

# Apart from `test`, because it fetches its tool from PyPI.
fuzz: release ## Send odd requests to the REST API
	scripts/fuzz-api $(ARGS)

fuzz-targets: ## Give all parsers what a fuzzer makes up (nightly Rust; ARGS="control 60": one, for a minute)
	scripts/fuzz-targets $(ARGS)

fmt: ## Format the sources
	cargo fmt --all

clean-data: ## Remove what `make demo` left in .disbatch
	rm -rf .disbatch
