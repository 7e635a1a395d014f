# Thin: what each target does is written here, how is in xtask, e2e/ and benches/.
.DEFAULT_GOAL := help
.PHONY: help ahead install uninstall wheel deb example example-mpijob test fast quick check unit sdk sdk-pythons web pages chromium prometheus sim e2e pytest skypilot suites shipped durations bin soak plateau release bench fmt tools mpi sshd shells kubernetes gpu mpijob-live mpijob-starts clouds docs clean $(foreach area,api cli dashboard data monitoring mpi node operator sky,e2e/$(area))

TRAINYARD := target/release/trainyard
PREFIX ?= $(if $(HOME),$(HOME)/.local)
VENV := .venv
MDBOOK := target/tools/bin/mdbook
comma := ,
XTASK ?= cargo xtask
# virtual environments of the tests
PACKAGES = $(VENV)/sdk $(VENV)/api $(VENV)/cli $(VENV)/dashboard $(VENV)/data $(VENV)/monitoring $(VENV)/frameworks $(VENV)/mpi/mpich/done $(VENV)/mpi/intel/done $(VENV)/mpi/openmpi5/done
# folders of end-to-end tests, each of which `make e2e/NAME` runs by itself
AREAS := api cli dashboard data monitoring mpi node operator sky
# of the simulator: `make sim` runs so many from FROM on, the gate a tenth of them, which the commit chooses
SEEDS ?= 1000
FROM ?= 0
TENTH = FROM=$$(( 0x$$(git rev-parse --short=7 HEAD) % 10 * 100 )) SEEDS=100 MPI_SEEDS=20
# of clusters whose user makes MPIJobs; `make sim MPI_SEEDS=1000` runs as many as of TrainJobs
MPI_SEEDS ?= 200
# in which a planted bug must be found; it ends with the first
BUG_SEEDS ?= 600
PYTHONS ?= 3.9 3.10 3.11 3.12 3.13
# files of end-to-end tests, and how many processes share them (0: none does)
TESTS ?= $(AREAS:%=e2e/%)
WORKERS ?= 4
export CARGO_TERM_PROGRESS_WHEN := never
# what Debian has and this machine has not: installed by root, named to everybody else
# $(call lacking,WHAT,TESTS): tests that are left out on this machine; the gate leaves out nothing
lacking = { echo "$(1): $(2) are left out" >&2; [ -z "$$TRAINYARD_GATE" ]; }
debian = { [ "$$(id -u)" = 0 ] || { echo "$(1) is missing: as root, apt-get install $(1); then run make again" >&2; exit 1; }; \
	apt-get update -qq && apt-get install -y -qq $(1); }

# $(call some,COMMAND): a test command; a filter that no test matches is a failure, for nothing was tried
some = said=$$(mktemp); { $(1) 2>&1 && echo passed; } | tee $$said; \
	tail -1 $$said | grep -qx passed && grep -qE '^test result: ok\. [1-9]' $$said; code=$$?; \
	rm -f $$said; [ $$code = 0 ] || { echo "failed, or no test ran: $(1)" >&2; exit 1; }

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: release ## the binary, man pages and completions to PREFIX [default: ~/.local]
	@packaging/install.sh install $(TRAINYARD) "$(PREFIX)"

uninstall: ## take them away again
	@packaging/install.sh uninstall "$(PREFIX)"

example: release $(VENV)/example ## train on handwritten digits: 2 nodes x 2 processes
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(TRAINYARD) --home "$${TRAINYARD_HOME:-$${XDG_DATA_HOME:-$$HOME/.local/share}/trainyard}" \
		run --nodes 2 --nproc-per-node 2 examples/torch-digits/train.py

example-mpijob: release mpi $(VENV)/mpijob ## an MPIJob on handwritten digits: 3 workers x 2 slots
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" examples/mpijob/run.sh $(TRAINYARD)

test: tools ## everything that CI runs, lane by lane, with the time of each
	@.ci/lanes web check 'ahead&' unit bin sim ahead. sdk e2e XTASK=target/debug/xtask $(TENTH)
	@echo "lanes of their own: make shipped (the optimized binary and its packages), make suites (long comparisons with upstream), make soak, make plateau (two hours of short jobs)" >&2

# What the last lanes need and cargo does not build. `check` has built xtask, which runs here without cargo: other lanes hold cargo's lock.
ahead: mpi sshd shells kubernetes chromium prometheus $(PACKAGES)

# no file of these wants a real cluster or a framework
QUICK := $(foreach name,cli/errors cli/history api/hostile api/kubectl api/recordings cli/run cli/wrong_input,e2e/$(dir $(name))test_$(notdir $(name)).py)

fast: tools ## the part that is quick: no real clusters, no frameworks; a tenth of the seeds
	@.ci/lanes check unit sdk bin sim quick $(TENTH)

quick: bin $(VENV)/cli
	$(MAKE) --no-print-directory pytest TESTS="$(QUICK)"

# clippy-driver is a compiler that lints, so one pass over all crates does both. cargo is given the variables that `cargo clippy` sets.
LINTED = CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver"

check: pages ## formatting, lints, this project's rules; it builds what `unit` runs
	cargo fmt --all --check
	@# these variables are clippy's own affair: a planted fault, of which clippy only warns, shows that they still make warnings errors
	@mkdir -p target; echo 'pub fn planted() -> u8 { return 1; }' | $(LINTED) \
		sh -c '"$$RUSTC_WORKSPACE_WRAPPER" rustc --crate-name planted --crate-type lib --emit metadata --out-dir target -' 2>&1 \
		| grep -q '^error: unneeded' || { echo "clippy-driver warned of nothing: see LINTED" >&2; exit 1; }
	$(LINTED) cargo build --workspace --all-targets --quiet
	target/debug/xtask tidy
	target/debug/xtask conformance --check

# what the pages of the dashboard are built from, and the first of the files that become part of the binary
WEB = web/index.html web/vite.config.ts web/tsconfig.json $(wildcard web/src/*) $(wildcard web/public/assets/*)
PAGES = crates/dashboard/assets/site/index.html

web: $(PAGES) ## the pages of the dashboard: types, tests with their coverage, and what becomes part of the binary
	cd web && npm run --silent check && npm run --silent test

pages: # the same without its tests, where Node.js is; without it the dashboard says what is missing
	@command -v npm >/dev/null && $(MAKE) --no-print-directory --silent $(PAGES) \
		|| $(call lacking,Node.js 20 or its packages are missing,the pages of the dashboard)

$(PAGES): web/node_modules/.package-lock.json $(WEB)
	cd web && npm run --silent build -- --logLevel warn

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

chromium:
	@command -v chromium >/dev/null || $(call debian,chromium)

prometheus: # with promtool; Alertmanager comes with amtool
	@command -v promtool >/dev/null || $(call debian,prometheus)
	@command -v amtool >/dev/null || $(call debian,prometheus-alertmanager)

unit: ## unit, property and simulator tests
	$(LINTED) .ci/unit

sdk: $(VENV)/sdk ## the Python SDK: format, lints, types, tests with their coverage; lints of all other Python
	$(VENV)/bin/ruff check --quiet .
	cd sdk/python && $(CURDIR)/$(VENV)/bin/ruff format --check --quiet . && $(CURDIR)/$(VENV)/bin/ruff check --quiet . \
		&& $(CURDIR)/$(VENV)/bin/mypy && $(CURDIR)/$(VENV)/bin/python -m pytest --cov

sdk-pythons: # the SDK's tests on every Python that it is for; pyenv has them
	@for version in $(PYTHONS); do \
		python=$$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python 2>/dev/null | tail -1); \
		[ -n "$$python" ] || { echo "there is no Python $$version: pyenv install $$version" >&2; exit 1; }; \
		"$$python" -m venv target/sdk/$$version && target/sdk/$$version/bin/python -m pip install --quiet --disable-pip-version-check -r sdk/python/requirements.txt \
			&& (cd sdk/python && echo "Python $$version" && $(CURDIR)/target/sdk/$$version/bin/python -m pytest) || exit 1; done

sim: bin ## SEEDS=1000 seeds of the whole system with faults; then planted bugs, each of which some seed must find
	target/debug/sim --from $(FROM) --seeds $(SEEDS)
	target/debug/sim --from $(FROM) --seeds $(MPI_SEEDS) --mpi
	target/debug/sim --seeds $(BUG_SEEDS) --bugs

# with the lints, so that it is what `check` has built
bin: tools pages ## what the simulator and end-to-end tests run: target/debug
	$(LINTED) cargo build --workspace --bins --quiet

release: tools pages ## the binary: target/release/trainyard
	@test -x $(TRAINYARD) || echo "building trainyard for the first time: Cargo fetches and compiles some 300 libraries, about five minutes on two cores" >&2
	cargo build --release --package trainyard

wheel: release $(VENV)/packaging ## a Python wheel, dist/trainyard-*.whl, for pip and uv
	@rm -f dist/trainyard-*.whl
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" maturin build --release --out dist

deb: release ## a Debian package, dist/trainyard_*.deb
	@rm -f dist/trainyard_*.deb
	@command -v objdump >/dev/null || $(call debian,binutils)
	packaging/deb.sh $(TRAINYARD) dist

shipped: release wheel deb $(VENV)/cli ## the binary as users get it, its packages, and the tests of both
	TRAINYARD_BIN=$(CURDIR)/$(TRAINYARD) $(MAKE) --no-print-directory pytest TESTS="e2e/shipped e2e/cli/test_install.py e2e/cli/test_run.py e2e/node/test_other_machines.py"

e2e: bin mpi sshd shells kubernetes chromium prometheus $(PACKAGES) ## the binary through real clients, and the recordings [TESTS=FILES, K=EXPRESSION: some tests]
	$(MAKE) --no-print-directory pytest

# `make e2e/api`: the tests of one area, which begin at once. What takes minutes to install (PyTorch, upstream's programs, other MPIs) is
# not waited for: what lacks is named at the end, with the tests that were left out; `make ahead` installs all of it.
e2e/dashboard: chromium
e2e/monitoring: prometheus
e2e/api e2e/cli e2e/dashboard e2e/data e2e/monitoring: e2e/%: bin $(VENV)/%
	$(MAKE) --no-print-directory pytest TESTS="$@"
e2e/sky: sshd
e2e/mpi e2e/node e2e/operator e2e/sky: bin $(VENV)/e2e
	$(MAKE) --no-print-directory pytest TESTS="$@"

# One test that fails may pass at a second try, and where two do the run has failed (e2e/conftest.py); the summary says why each first try failed.
# Four processes share the files, because tests spend part of their time waiting; a file's tests, and all on real clusters, stay in one (e2e/conftest.py).
pytest:
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest $(TESTS) -q -ra --durations=15 --reruns 1 \
		--numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder $(if $(K),-k "$(K)")

durations: ## a whole run of the end-to-end tests, by which the next ones are divided: e2e/durations.json
	WRITE_DURATIONS=1 $(MAKE) --no-print-directory e2e

suites: bin $(VENV)/api $(VENV)/frameworks kubernetes ## comparisons with upstream's live systems, of which the gate has a tenth; e2e/suites.json gets the results [SEED, ONLY=NAMES]
	@$(XTASK) kubernetes build --mpi >/dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python e2e/suites.py

soak: bin $(VENV)/api $(VENV)/data sdk-pythons sshd ## what the gate does a tenth of: thousands of watches, disks that fail, kills under load and at any byte of a download, requests made up
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" WATCHES=$${WATCHES:-3000} SOAK_SECONDS=$${SOAK_SECONDS:-60} $(VENV)/bin/python -m pytest e2e/api/test_watchers.py -q -s
	@$(call some,SOAK_FAULTS=$${SOAK_FAULTS:-1000} cargo test --quiet --package store --package node on_a_disk_that_fails -- --nocapture)
	SOAK_KILLS=$${SOAK_KILLS:-200} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/api/test_durability.py -q -s -k kills
	SOAK_KILLS=$${SOAK_KILLS:-200} SEED=$${SEED:-$$$$} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/data/test_initializers.py -q -s -k kill
	SOAK_KILLS=$${SOAK_KILLS:-20} SEED=$${SEED:-$$$$} PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/sky/test_sky_ssh.py e2e/sky/test_sky_lost.py -q -s -k 'kills or lost'
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" SEED=$${SEED:-$$$$} $(VENV)/bin/python e2e/sky/soak_jobs.py
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CASES=$${CASES:-20000} SEED=$${SEED:-$$$$} $(VENV)/bin/python -m pytest e2e/api/test_schemas.py -q -s --timeout 0
	@$(call some,PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --package apiserver --test it parsers)
	@$(call some,PROPTEST_CASES=$${PROPTEST_CASES:-2000} cargo test --release --package apiserver --test it hostile_definitions)
	@$(call some,PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --package streams --lib properties)
	@$(call some,PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --package placement --test it best)
	@$(call some,TRAINYARD_LEDGER_SEEDS=$${LEDGER_SEEDS:-20000} cargo test --release --package managed --test ledger)
	@$(call some,JOBS_SEEDS=$${JOBS_SEEDS:-1000} BUDGET_SEEDS=$${BUDGET_SEEDS:-100} CROWD_SEEDS=$${CROWD_SEEDS:-200} CROWD_BUGS=2 COMPOSED_SEEDS=$${COMPOSED_SEEDS:-200} COMPOSED_BUGS=7 JOBS_BUGS=12 cargo test --release --package managed --test jobs_world)
	@$(call some,TRAINYARD_LEDGER_SHARE=100 TRAINYARD_LEDGER_STORMS=$${LEDGER_STORMS:-20} cargo test --release --package sim --test ledger -- --nocapture)
	@$(call some,TRAINYARD_SUITE_STEP=1 cargo test --release --package infra --test suite -- --nocapture)
	cargo run --release --quiet --package sim -- --seeds $${SIM_SEEDS:-3000}
	cargo run --release --quiet --package sim -- --seeds $${SIM_SEEDS:-1000} --mpi

plateau: bin $(VENV)/e2e ## two hours of short jobs: what of the control plane still grows after them [SECONDS, RATE: jobs in a minute]
	nice $(VENV)/bin/python e2e/plateau.py --seconds $(or $(SECONDS),7200) --rate $(or $(RATE),70)

SEED ?= 1
FILES ?= 5000
PLANS ?= 2000
skypilot: $(VENV)/skypilot/done ## SEED=1 FILES=5000 PLANS=2000: random task files, read and placed by us and by SkyPilot 0.14.1
	@rm -rf target/skypilot && mkdir -p target/skypilot && cp -r crates/sky/golden/catalog target/skypilot/
	$(VENV)/skypilot/bin/python e2e/skypilot/generate.py $(SEED) $(FILES) $(PLANS) target/skypilot
	$(VENV)/skypilot/bin/python e2e/skypilot/words.py $(SEED) 20000 target/skypilot >target/skypilot/words.log 2>&1
	$(VENV)/skypilot/bin/python e2e/skypilot/launches.py $(SEED) 3000 target/skypilot >target/skypilot/launches.log 2>&1
	$(VENV)/skypilot/bin/python e2e/skypilot/serving.py $(SEED) 10000 target/skypilot >target/skypilot/serving.log 2>&1
	PYTHONHASHSEED=1 $(VENV)/skypilot/bin/python e2e/skypilot/record.py target/skypilot >target/skypilot/record.log 2>&1
	PYTHONHASHSEED=2 $(VENV)/skypilot/bin/python e2e/skypilot/record.py target/skypilot --plans >>target/skypilot/record.log 2>&1
	cargo xtask skypilot-goldens target/skypilot

bench: release $(VENV)/e2e ## ratios against real peers
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cargo run --release --quiet --package benches

docs: $(MDBOOK) ## the pages of docs/ as a book: target/book/index.html
	$(MDBOOK) build

fmt: ## format all code
	cargo fmt --all

tools: # what a fresh Debian machine may lack
	@command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup, then run make again" >&2; exit 1; }
	@command -v cc >/dev/null || $(call debian,build-essential)

mpi: # for jobs that mpirun starts
	@command -v mpirun >/dev/null && command -v ssh-keygen >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends openmpi-bin openssh-client; } \
		|| $(call lacking,Open MPI is not installed,the tests of MPI)

sshd: # a real SSH server for machines of pools and examples/mpi-image, unpacked and not installed: nothing is started
	@test -x target/sshd/usr/sbin/sshd || { apt-get update -qq && mkdir -p target/sshd/packages && cd target/sshd/packages \
		&& apt-get download -qq openssh-server libwrap0 && for file in *.deb; do dpkg-deb -x "$$file" .. || exit 1; done; } \
		|| $(call lacking,openssh-server cannot be had,the tests of SSH machines and examples/mpi-image)

shells: # in which completion and the documents' commands are tried
	@command -v tmux >/dev/null && command -v zsh >/dev/null && command -v fish >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends tmux zsh fish; } \
		|| $(call lacking,tmux$(comma) zsh or fish is not installed,the tests in them)

# Built once, kept in ~/.cache. Kueue and Helm are not built here: the tests of Kueue and of the chart build them, which one gate in five plays.
kubernetes: # upstream's control plane and controllers, to compare with
	@if command -v go >/dev/null; then $(XTASK) kubernetes build --trainer >/dev/null \
		|| $(call lacking,upstream's programs were not built,comparisons with them); \
		else $(call lacking,Go is not installed,comparisons with upstream's live controllers); fi

# Asks nothing of Python but pytest and PyYAML, and a `python3` that has PyTorch.
gpu: release ## a machine with NVIDIA GPUs as its user: jobs, their use, sky; no machine of the gate has one
	TRAINYARD_BIN=$(CURDIR)/$(TRAINYARD) python3 -m pytest --noconftest -q -s e2e/live_gpu.py

mpijob-live: bin $(VENV)/e2e ## MPIJOBS=100 SEED=1: random MPIJobs under mpi-operator 0.8.2 and under our operator, on two real API servers
	@cargo xtask kubernetes build --mpi >/dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MPIJOBS=$${MPIJOBS:-100} SEED=$(SEED) $(VENV)/bin/python -m pytest e2e/mpi/live_mpijobs.py -q -s --timeout 0

mpijob-starts: bin mpi $(VENV)/e2e $(VENV)/mpi/mpich/done $(VENV)/mpi/intel/done ## STARTS=100 SEED=1: launchers of Open MPI, MPICH and Intel MPI whose workers come 0 to 5 s late
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" STARTS=$${STARTS:-100} SEED=$(SEED) $(VENV)/bin/python -m pytest e2e/mpi/live_mpijob_starts.py -q -s --timeout 0

# Not part of the gate, which has stubs of these: a build of five minutes and 400 MB of packages.
CLOUDS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainyard-clouds
clouds: bin $(VENV)/e2e ## initializers against other people's servers: fake-gcs-server (by Go) and Azurite (by npm), kept in ~/.cache
	GOBIN="$(CLOUDS)/bin" go install github.com/fsouza/fake-gcs-server@v1.56.1
	npm install --silent --no-audit --no-fund --prefix "$(CLOUDS)" azurite@3.37.0
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest e2e/data/test_initializers_clouds.py -q -ra

# compiled once, from some 120 crates: a few minutes
$(MDBOOK): | tools
	cargo install mdbook --version 0.5.4 --locked --no-default-features --features search --root target/tools

$(VENV)/bin/python: | tools
	@python3 -c 'import venv, ensurepip' 2>/dev/null || $(call debian,python3-venv)
	python3 -m venv $(VENV)

$(VENV)/skypilot/done: e2e/skypilot/requirements.txt | $(VENV)/bin/python
	python3 -m venv $(VENV)/skypilot
	$(VENV)/skypilot/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/example: examples/torch-digits/requirements.txt | $(VENV)/bin/python
	@echo "pip puts PyTorch and scikit-learn into $(VENV): some gigabytes, a few minutes, not a word meanwhile" >&2
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/packaging: packaging/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/e2e: e2e/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# what the tests of one area import
$(VENV)/api $(VENV)/cli $(VENV)/dashboard $(VENV)/data $(VENV)/monitoring: $(VENV)/%: e2e/%/requirements.txt $(VENV)/e2e
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Horovod's launcher reads who the hosts are; it is built here without what trains
HOROVOD = HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1

$(VENV)/mpi/%/done: e2e/mpi/%.txt | $(VENV)/bin/python
	python3 -m venv $(VENV)/mpi/$*
	$(HOROVOD) $(VENV)/mpi/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/mpijob: examples/mpijob/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/sdk: sdk/python/requirements.txt | $(VENV)/bin/python
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
