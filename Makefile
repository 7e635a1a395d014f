# Thin: what each target does is written here, how is in xtask, e2e/ and benches/.
.DEFAULT_GOAL := help
.PHONY: help install uninstall wheel deb example test fast check unit sim e2e soak release bench fmt tools mpi shells kubernetes clean

TRAINYARD := target/release/trainyard
PREFIX ?= $(if $(HOME),$(HOME)/.local)
VENV := .venv
comma := ,
RERUNS ?= 1
SEEDS ?= 1000
export CARGO_TERM_PROGRESS_WHEN := never
# what Debian has and this machine has not: installed by root, named to everybody else
# $(call lacking,WHAT,TESTS): tests that are left out on this machine; the gate leaves out nothing
lacking = { echo "$(1): $(2) are left out" >&2; [ -z "$$TRAINYARD_GATE" ]; }
debian = { [ "$$(id -u)" = 0 ] || { echo "$(1) is missing: as root, apt-get install $(1); then run make again" >&2; exit 1; }; \
	apt-get update -qq && apt-get install -y -qq $(1); }

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: release ## the binary, man pages and completions to PREFIX [default: ~/.local]
	@packaging/install.sh install $(TRAINYARD) "$(PREFIX)"

uninstall: ## take them away again
	@packaging/install.sh uninstall "$(PREFIX)"

example: release $(VENV)/example ## train on handwritten digits: 2 nodes x 2 processes
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(TRAINYARD) --home "$${TRAINYARD_HOME:-$${XDG_DATA_HOME:-$$HOME/.local/share}/trainyard}" \
		run --nodes 2 --nproc-per-node 2 examples/torch-digits/train.py

test: tools ## everything that CI runs, lane by lane, with the time of each
	@.ci/lanes check unit release sim e2e

fast: tools ## the part that is quick: no real clusters, no frameworks; a tenth of the seeds
	@.ci/lanes check unit release sim e2e SEEDS=100 K="run or history or recordings or hostile or kubectl and not matrix"

check: ## formatting, lints, the rules of the house
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo xtask tidy
	cargo xtask conformance --check

unit: ## unit, property and simulator tests
	cargo test --workspace --quiet

sim: ## SEEDS=1000 seeds of the whole system with faults; then planted bugs, each of which some seed must find
	cargo run --release --quiet --package sim -- --seeds $(SEEDS)
	cargo run --release --quiet --package sim -- --seeds $(SEEDS) --bugs

release: tools ## the binary: target/release/trainyard
	@test -x $(TRAINYARD) || echo "building trainyard for the first time: Cargo fetches and compiles some 300 libraries, about five minutes on two cores" >&2
	cargo build --release --package trainyard

wheel: release $(VENV)/packaging ## a Python wheel, dist/trainyard-*.whl, for pip and uv
	@rm -f dist/trainyard-*.whl
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" maturin build --release --out dist

deb: release ## a Debian package, dist/trainyard_*.deb
	@rm -f dist/trainyard_*.deb
	@command -v objdump >/dev/null || $(call debian,binutils)
	packaging/deb.sh $(TRAINYARD) dist

# One more try for a test that fails, told in the summary: these are whole systems of many processes on whatever machine there is.
e2e: release wheel deb mpi shells kubernetes $(VENV)/frameworks ## the binary through real clients, and the recordings [K=EXPRESSION: some tests]
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e -q -ra --durations=15 --reruns $(RERUNS) $(if $(K),-k "$(K)")

soak: release $(VENV)/e2e ## what the gate does a tenth of: thousands of watches, disks that fail, kills under load, requests made up
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" WATCHES=$${WATCHES:-3000} SOAK_SECONDS=$${SOAK_SECONDS:-60} $(VENV)/bin/python -m pytest e2e/test_watchers.py -q -s
	SOAK_FAULTS=$${SOAK_FAULTS:-1000} cargo test --quiet --package store --package node on_a_disk_that_fails -- --nocapture
	SOAK_KILLS=$${SOAK_KILLS:-200} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/test_durability.py -q -s -k kills
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CASES=$${CASES:-20000} SEED=$${SEED:-$$$$} $(VENV)/bin/python -m pytest e2e/test_schemas.py -q -s --timeout 0
	PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --package apiserver --test it parsers
	PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --package trainyard --bin trainyard shells::properties
	SEED=$${SEED:-$$$$} CASES=$${CASES:-1200} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/test_api_differential.py -q -s
	SEED=$${SEED:-$$$$} RIGHTS=$${RIGHTS:-600} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/test_rights_differential.py -q -s

bench: release $(VENV)/e2e ## ratios against real peers
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cargo run --release --quiet --package benches

fmt: ## format all code
	cargo fmt --all

tools: # what a fresh Debian machine may lack
	@command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup, then run make again" >&2; exit 1; }
	@command -v cc >/dev/null || $(call debian,build-essential)

mpi: # for jobs that mpirun starts
	@command -v mpirun >/dev/null && command -v ssh-keygen >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends openmpi-bin openssh-client; } \
		|| $(call lacking,Open MPI is not installed,the tests of MPI)

shells: # in which completion and the documents' commands are tried
	@command -v tmux >/dev/null && command -v zsh >/dev/null && command -v fish >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends tmux zsh fish; } \
		|| $(call lacking,tmux$(comma) zsh or fish is not installed,the tests in them)

kubernetes: # upstream's control plane and controllers, to compare with; built once, kept in ~/.cache
	@if command -v go >/dev/null; then { cargo xtask kubernetes build --trainer >/dev/null && cargo xtask helm >/dev/null \
		&& cargo xtask kubernetes build --kueue >/dev/null; } || $(call lacking,upstream's programs were not built,comparisons with them); \
		else $(call lacking,Go is not installed,comparisons with upstream's live controllers); fi

$(VENV)/bin/python: | tools
	@python3 -c 'import venv, ensurepip' 2>/dev/null || $(call debian,python3-venv)
	python3 -m venv $(VENV)

$(VENV)/example: examples/torch-digits/requirements.txt | $(VENV)/bin/python
	@echo "pip puts PyTorch and scikit-learn into $(VENV): some gigabytes, a few minutes, not a word meanwhile" >&2
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/packaging: packaging/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/e2e: e2e/requirements.txt $(VENV)/example
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/frameworks: $(wildcard examples/*/requirements.txt) $(VENV)/e2e
	@for file in $(filter %.txt,$^); do \
		$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $$file \
			|| $(call lacking,$$file was not installed,its tests) || exit 1; done
	@touch $@

clean: ## remove what was built
	cargo clean
	rm -rf $(VENV)
