# Trireme. `make up` starts a cluster on this machine, `make down` stops it, `make test` is what continuous integration runs.
# Everything here works as root on a fresh Debian 12 with Rust.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build up down test lint bench soak packages

DATA ?= $(CURDIR)/.run
CARGO ?= cargo

help: ## Say what there is to make
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

packages: ## Install the Debian packages that running and testing need
	@scripts/packages build run test

build: ## Build the release binary, target/release/trireme
	@scripts/packages build
	@$(CARGO) build --release --locked -p trireme

up: build ## Start a cluster in the background and show it at work
	@scripts/packages run
	@DATA="$(DATA)" scripts/up

down: ## Stop the cluster that `make up` started, containers too unless KEEP=1; its data stays in .run
	@DATA="$(DATA)" KEEP="$(KEEP)" scripts/down

test: ## Run all tests
	@scripts/packages build run test
	@$(CARGO) test --locked --workspace

lint: ## Check format, lints and licences
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --log-level error check; fi

bench: build ## Measure, as JSON lines; PEER_KUBECONFIG=file measures another server the same way
	@scripts/packages run
	@$(CARGO) run --release --locked -q -p trireme --example bench

soak: ## The long runs: 100 kills under load on each store, a node with 110 pods, 500 pods that come and go, 60 kills, 64,000 connections, every odd value in every field, 20,000 seeds
	@scripts/packages build run test
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p trireme --test it soak -- --nocapture --test-threads 1
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p trireme --test it poison -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p proxy --test it soak -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p controllers --test it seeds -- --nocapture
	@TRIREME_SOAK=1 $(CARGO) test --release --locked -p apiserver --test it decode -- --nocapture
