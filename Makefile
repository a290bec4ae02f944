# Trireme. `make up` starts a cluster on this machine, `make down` stops it, `make test` is what continuous integration runs.
# Everything here works as root on a fresh Debian 12 with Rust.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build deb image up down test clients lint doc bench soak fuzz packages

DATA ?= $(CURDIR)/.run
CARGO ?= cargo

help: ## Say what there is to make
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

packages: ## Install the Debian packages that running and testing need
	@scripts/packages build run test

build: ## Build the release binary, target/release/trireme
	@scripts/packages build
	@$(CARGO) build --release --locked -p trireme

deb: build ## Make a Debian package, target/trireme_VERSION_ARCH.deb
	@scripts/deb target/release/trireme target

image: build ## Make an OCI image of the binary, target/trireme-image.tar
	@target/release/trireme image trireme target/trireme-image.tar

up: build ## Start a cluster in the background and show it at work
	@scripts/packages run
	@DATA="$(DATA)" scripts/up

down: ## Stop the cluster that `make up` started, containers too unless KEEP=1; its data stays in .run
	@DATA="$(DATA)" KEEP="$(KEEP)" scripts/down

test: ## Run all tests
	@scripts/packages build run test
	@scripts/clients target/clients quick || echo "SKIPPED: Helm, kopf, kr8s, lightkube and moto cannot be had from their registry, so they are not run" >&2
	@$(CARGO) test --locked --workspace

clients: ## Real clients, charts and operators from their registries, all of them
	@scripts/packages build run test clients
	@scripts/clients target/clients all
	@TRIREME_CLIENTS=target/clients $(CARGO) test --locked -p trireme --test it clients

lint: ## Check format, lints and licences
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --log-level error check; fi

doc: ## Write the documentation of the code, without a warning
	@RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --document-private-items

bench: ## Measure, as JSON lines; PEER_BIN=dir with upstream's programs and etcd compares both sides in one run and writes BENCHMARKS.md; BENCH="--help" says what else
	@scripts/packages build run
	@$(CARGO) build --release --locked -p trireme -p bench --bins
	@$(if $(PEER_BIN),BENCH_MARKDOWN=$${BENCH_MARKDOWN-BENCHMARKS.md}) target/release/bench $(BENCH)

soak: ## The long runs: 100 kills under load on each store, 50 while definitions change, a node with 110 pods, 500 pods that come and go, 60 kills, 100 kills while volumes move between nodes, 200 faults of three servers and two nodes, 64,000 connections, every odd value in every field, 20,000 seeds, a minute of each fuzz target
	@scripts/packages build run test
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p trireme --test it soak -- --nocapture --test-threads 1
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p trireme --test it poison -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p proxy --test it soak -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p controllers --test it seeds -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p apiserver --test it decode -- --nocapture
	@$(MAKE) --no-print-directory fuzz

fuzz: ## Inputs made at random for every target of fuzz/, a minute each; TRIREME_FUZZ_SECONDS=n says otherwise
	@for target in decode poison; do $(CARGO) run --release --locked -q -p fuzz --bin $$target || exit 1; done
