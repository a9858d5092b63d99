# `make demo` and `make test` are all that a fresh machine needs; each installs what it needs into .venv, locked and hashed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(addprefix service/packages/,domain client core lab personalizer)
INCLUDED := -Iprotos -I$(VENV)/protos
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# It takes seconds where pip takes minutes, and looks where pip is told to.
INSTALL = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}" \
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python

FAST := $(addprefix tests/,domain learning preferences contracts rpc test_exports.py test_layers.py)

# Where this is set, each process that the tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo serve golden-store test test-slow test-fast test-stress test-stress-sample faults mutants mutants-sample bits bits-quick bench-quick check format lint types layers client client-check docs docs-check dashboards \
	dashboards-check protos protos-check protos-breaking protos-released protos-folder wheels site axe grafana typescript sbom image-check peers load bench lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: requirements/installer.lock | $(BIN)/python
	$(PIP) --require-hashes -r requirements/installer.lock
	@touch $@

$(VENV)/runtime.stamp: requirements/runtime.lock pyproject.toml $(PACKAGES:=/pyproject.toml) | $(BIN)/uv
	@echo 'Installing what requirements/runtime.lock lists'
	@$(INSTALL) --require-hashes -r requirements/runtime.lock
	@$(INSTALL) --no-deps --no-build-isolation $(patsubst %,--editable %,. $(PACKAGES))
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/runtime.stamp
	@echo 'Installing what requirements/dev.lock lists'
	@$(INSTALL) --require-hashes -r requirements/dev.lock
	@touch $@

demo: $(VENV)/runtime.stamp  ## Watch it learn in a simulated shop, in about half a minute
	$(BIN)/topk-bandit demo

serve: $(VENV)/runtime.stamp  ## Run the service on an embedded store until Ctrl-C
	$(BIN)/topk-bandit serve --log-format text

# Once, side by side; each process of the tests would else compile all of it by itself, the tests too.
$(VENV)/compiled.stamp: $(VENV)/dev.stamp $(wildcard $(shell git ls-files '*.py'))
	@$(BIN)/python -m compileall -q service
	@$(BIN)/python -m pytest --collect-only -q >/dev/null & \
	$(BIN)/python -c "from topk_bandit.learning.warm_up import warm_up, warm_up_rules; warm_up(); warm_up_rules()" & \
	$(BIN)/python -c "from topk_bandit.preferences.warm_up import warm_up; warm_up()"; wait
	@touch $@

# Six processes for two cores, and five for the slow tests: much of the time is waiting, and what else is busy takes less of
# six. A file's tests stay together, because they share servers, and files keep their order: those with few tests, which take
# longest, would else all come last.
IN_SIX = $(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder
IN_FIVE = $(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder
QUICK_TESTS = $(IN_SIX) -m "not slow and not processors"

test: $(VENV)/compiled.stamp  ## Run all tests but the slow ones, in some four minutes
	$(QUICK_TESTS) --durations=10 --durations-min=5

# Of TESTS, if that is given; more in STRESS: --seed, --minutes, --no-pauses.
test-stress: $(VENV)/compiled.stamp  ## Run them ROUNDS times beside BUSY loops a core, with processes stopped at random
	$(BIN)/python tools/stress.py $(ROUNDS:%=--rounds %) $(BUSY:%=--busy %) $(STRESS) -- $(QUICK_TESTS) $(TESTS)

test-stress-sample: $(VENV)/compiled.stamp
	$(BIN)/python tools/stress.py --sample --minutes 2 -- $(QUICK_TESTS)

# MINUTES=12 begins no test later than that; each commit has other files first.
test-slow: $(VENV)/compiled.stamp  ## Run the slow ones: services that are killed, starved and flooded, the laboratory, long lives of bandits
	$(IN_FIVE) -m "slow and not processors" --durations=30 --durations-min=5 $(MINUTES:%=--minutes % --order $$(git rev-parse HEAD))

# Without what runs services and waits for them, the laboratory, searches by hypothesis, and stores but memory and one Valkey.
test-fast: $(VENV)/compiled.stamp  ## Run what tells most in the least time
	$(IN_SIX) -m "not long_form and not processors and not slow" -k "not Redis and not Cluster" $(FAST)

bits: $(VENV)/dev.stamp  ## Test what is promised to the bit under every kind of processor that this one can stand for
	$(BIN)/python -m tests.bits

bits-quick: $(VENV)/dev.stamp  ## The same for the oldest kind alone; `make test` and `make test-slow` have run them for this one
	$(BIN)/python -m tests.bits --quick

# COUNT=200 SEED=1 draws some; ONLY=learning/search.py takes those with this text in their id.
mutants: $(VENV)/compiled.stamp  ## Change the core one small change at a time: the tests of its room have to notice; all of it takes a day
	$(BIN)/python tools/mutants.py $(COUNT:%=--count %) $(SEED:%=--seed %) $(ONLY:%=--only %)

# Of a complete module (tests/mutants.toml), and others after each commit.
mutants-sample: $(VENV)/compiled.stamp  ## Try a few mutants of one module, in half a minute
	$(BIN)/python tools/mutants.py --sample --count 6 --seed $$(git rev-parse HEAD)

faults: $(VENV)/dev.stamp  ## Test the long forms: more kills, rounds and examples than CI has time for
	LONG_TESTS=1 $(BIN)/python -m pytest -m long_form --timeout 1500

golden-store: $(VENV)/compiled.stamp  ## Have the last release's program write a store of every kind, in .venv/golden-store
	$(BIN)/python -m tests.faults.golden_store $(VENV)/golden-store

check: lint types layers client-check docs-check dashboards-check protos-check protos-breaking site axe grafana test test-slow mutants-sample test-stress-sample bits-quick typescript sbom  ## Run all that CI runs, but for the image

format: $(VENV)/dev.stamp  ## Format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/dev.stamp
	$(BIN)/mypy
	$(BIN)/mypy --no-explicit-package-bases examples tools
	MYPYPATH=loadtests $(BIN)/mypy loadtests
	MYPYPATH=.:service $(BIN)/mypy -m tests.simulation.__main__

layers: $(VENV)/dev.stamp
	$(BIN)/lint-imports

docs: $(VENV)/dev.stamp  ## Write docs/api from the docstrings
	$(BIN)/python tools/api_pages.py

docs-check: $(VENV)/dev.stamp
	$(BIN)/python tools/api_pages.py --check

$(VENV)/docs.stamp: requirements/docs.lock $(VENV)/dev.stamp
	@echo 'Installing what requirements/docs.lock lists'
	@$(INSTALL) --require-hashes -r requirements/docs.lock
	@touch $@

# From nothing each time, about half a minute: what is left of an older build would hide a page that is gone.
site: $(VENV)/docs.stamp  ## Write build/site: the documentation as a site, with all links checked
	@rm -rf build/site build/site-cache
	$(BIN)/sphinx-build --quiet --fail-on-warning --jobs 2 -c tools/site . build/site -d build/site-cache
	$(BIN)/python tools/site/check.py build/site

dashboards: $(VENV)/dev.stamp  ## Write Grafana's dashboards from tools/panels.py
	$(BIN)/python tools/dashboards.py

dashboards-check: $(VENV)/dev.stamp
	$(BIN)/python tools/dashboards.py --check

client: $(VENV)/dev.stamp  ## Generate the synchronous client from the asynchronous one
	$(BIN)/python tools/generate_client.py

client-check: $(VENV)/dev.stamp
	$(BIN)/python tools/generate_client.py --check

# A folder that has what our protos import too, for compilers of every language.
$(VENV)/protos.stamp: tools/proto_folder.py $(wildcard protos/*/*/*.proto) $(VENV)/dev.stamp
	$(BIN)/python tools/proto_folder.py $(VENV)/protos
	@touch $@

protos-folder: $(VENV)/dev.stamp  ## Write build/protos: our protos and what they import, to compile in any language
	$(BIN)/python tools/proto_folder.py build/protos

COMPILE_PROTOS = $(BIN)/python -m grpc_tools.protoc $(INCLUDED) --include_imports --include_source_info \
	-o $(VENV)/protos.binpb protos/topk_bandit/v1/*.proto

# An old compiler, in an environment of its own: what it generates runs with old runtimes, and with new ones.
$(VENV)/protoc.stamp: requirements/protoc.lock | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/protoc
	@$(INSTALL:$(BIN)/python=$(VENV)/protoc/bin/python) --require-hashes -r $<
	@touch $@

# GENERATE,FOLDER writes the code into a folder. Stubs have no comments, which the protos have: both are in the client's package.
PROTOC = $(VENV)/protoc/bin/python -W ignore -m grpc_tools.protoc
define GENERATE
	$(PROTOC) $(INCLUDED) --python_out=$(1) --pyi_out=$(1) --include_imports -o $(VENV)/bare.binpb protos/topk_bandit/v1/*.proto
	$(PROTOC) --descriptor_set_in=$(VENV)/bare.binpb --grpc_python_out=$(1) --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
		--mypy_grpc_out=$(1) $(patsubst protos/%,%,$(wildcard protos/topk_bandit/v1/*.proto))
endef

protos: $(VENV)/protos.stamp $(VENV)/protoc.stamp  ## Generate the code of the wire contract
	rm -f service/topk_bandit/v1/*_pb2*
	$(call GENERATE,service)
	$(COMPILE_PROTOS)
	$(BIN)/python tools/openapi.py $(VENV)/protos.binpb
	$(BIN)/python tools/wire_pages.py $(VENV)/protos.binpb

protos-check: $(VENV)/protos.stamp $(VENV)/protoc.stamp
	$(COMPILE_PROTOS)
	$(BIN)/python tools/openapi.py $(VENV)/protos.binpb --check
	$(BIN)/python tools/wire_pages.py $(VENV)/protos.binpb --check
	$(BIN)/buf lint $(VENV)/protos.binpb --path topk_bandit
	$(BIN)/buf format --diff --exit-code
	$(call GENERATE,$(VENV))
	@diff -r --exclude=__init__.py --exclude=__pycache__ --exclude=py.typed $(VENV)/topk_bandit/v1 service/topk_bandit/v1 \
		|| { echo "service/topk_bandit/v1 is out of date: run make protos"; exit 1; }

# The last release's protos, compiled. Whoever was made for them must be able to call this service, and the other way round.
RELEASED = $(wildcard protos/released-*.binpb)

protos-breaking: protos-check
	$(BIN)/buf breaking $(VENV)/protos.binpb --against $(RELEASED) --exclude-imports

protos-released: $(VENV)/protos.stamp  ## At a release: keep its protos, for later ones to be compared with
	$(COMPILE_PROTOS)
	rm -f $(RELEASED)
	$(BIN)/buf build $(VENV)/protos.binpb --path topk_bandit --exclude-source-info -o protos/released-$$($(BIN)/uv version --short).binpb

axe: tests/axe/node_modules/.package-lock.json  ## Fetch what the console's accessibility is checked with

grafana: tests/grafana/node_modules/.package-lock.json  ## Fetch Grafana's own types, with which the dashboards are checked

tests/%/node_modules/.package-lock.json: tests/%/package-lock.json
	npm --prefix tests/$* ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Its messages are generated in each build, so there is nothing to be out of date.
TYPESCRIPT := clients/typescript
MESSAGES := $(addprefix topk_bandit/v1/,recommender_service.proto features.proto rules.proto)

$(TYPESCRIPT)/node_modules/.package-lock.json: $(TYPESCRIPT)/package-lock.json
	@node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))' || { echo "Node 20 or newer is needed, with npm"; exit 1; }
	npm --prefix $(TYPESCRIPT) ci --ignore-scripts --no-audit --no-fund
	@touch $@

typescript: $(TYPESCRIPT)/node_modules/.package-lock.json $(VENV)/dev.stamp  ## Build the TypeScript client and test it, in Node and in Chromium
	@rm -rf $(TYPESCRIPT)/src/gen && mkdir $(TYPESCRIPT)/src/gen
	$(BIN)/python -m grpc_tools.protoc -Iprotos --plugin=$(TYPESCRIPT)/node_modules/.bin/protoc-gen-es \
		--es_out=$(TYPESCRIPT)/src/gen --es_opt=target=ts,json_types=true,import_extension=js $(MESSAGES)
	npm --prefix $(TYPESCRIPT) run build
	npm --prefix $(TYPESCRIPT) run types
	npm --prefix $(TYPESCRIPT) test

# For the Python of the image, whichever runs here: what it would import is read and never run. In the image is a list of what is in that very one.
IMAGE_PYTHON = $(shell sed -n 's/^ARG BASE=python:\([0-9.]*\).*/\1/p' deploy/Containerfile)
# What builds our package, which is in the lock and not in the image.
BUILDERS = $(shell sed -n 's/.*pip uninstall --yes \(.*\) pip .*/\1/p' deploy/Containerfile)

sbom: $(VENV)/dev.stamp  ## Write build/sbom.cdx.json: what the image installs, as CycloneDX
	@rm -rf build/sbom && $(BIN)/uv venv --quiet build/sbom
	$(BIN)/uv pip install --quiet --python build/sbom --python-version $(IMAGE_PYTHON) --python-platform x86_64-manylinux_2_28 \
		--require-hashes --only-binary :all: -r requirements/runtime.lock
	$(BIN)/uv pip uninstall --quiet --python build/sbom $(BUILDERS)
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json build/sbom
	@rm -rf build/sbom

# Of whoever may mount: elsewhere it says why it can't, and passes.
image-check: $(BIN)/python  ## Build the image without a registry, as root, and start it hardened: some 5 minutes, 3 GB of memory
	$(BIN)/python tools/image_check.py

# The peers are pinned in pyproject.toml but not hashed: a lock for all systems would hold the registry's torch, which for
# Linux brings gigabytes of CUDA. On Linux the group asks for the build without it, which is in an index of its own.
$(VENV)/peers.stamp: pyproject.toml $(VENV)/dev.stamp
	@$(BIN)/python -c 'import tomllib; groups = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]; \
		print(*groups["peers"], sep="\n")' > $(VENV)/peers.txt
	$(PIP) --retries 1 --timeout 30 --extra-index-url https://download.pytorch.org/whl/cpu -r $(VENV)/peers.txt
	@touch $@

peers: $(VENV)/peers.stamp  ## Install what benchmarks compare with, about 250 MB

load: $(VENV)/dev.stamp  ## Print how the service fares under load that does not wait for it, in three minutes
	$(BIN)/python loadtests/load.py

bench: $(VENV)/dev.stamp  ## Print what the service reaches on this machine, beside its targets
	@$(MAKE) --no-print-directory $(VENV)/peers.stamp || echo "The peers can't be installed; what they are compared in is left out."
	$(BIN)/python loadtests/bench.py

# What takes the service's own parts: such benchmarks break when these change.
QUICK := decision doors growth latency long-log many-bandits quality search-exhaustive

bench-quick: $(VENV)/dev.stamp  ## Show that the benchmarks of the service's own parts run; too few trials to judge by
	$(BIN)/python loadtests/bench.py --quick $(QUICK:%=--only %)

# Our own packages are in no lock.
OURS = $(patsubst service/packages/%,--no-emit-package topk-bandit-%,$(PACKAGES))
lock: $(VENV)/dev.stamp  ## Take in newer versions of all dependencies
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		pyproject.toml requirements/build.in $(OURS) -o requirements/runtime.lock
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		-c requirements/runtime.lock pyproject.toml requirements/build.in --group dev --extra experiments \
		--extra ratings --extra rivals --extra traces $(OURS) -o requirements/dev.lock
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		-c requirements/dev.lock --group docs -o requirements/docs.lock
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		-c requirements/dev.lock --group sbom -o requirements/sbom.lock
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		-c requirements/dev.lock requirements/installer.in -o requirements/installer.lock
	$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --python-version 3.11 \
		requirements/protoc.in -o requirements/protoc.lock

wheels: $(VENV)/runtime.stamp  ## Build a wheel of each package in dist
	@for folder in $(PACKAGES) .; do $(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist $$folder || exit 1; done
	@ls dist/*.whl

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist bench-results .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf $(addprefix $(TYPESCRIPT)/,node_modules dist src/gen LICENSE)
