# What each target does: README.md and CONTRIBUTING.md. Every target installs what it needs into .venv first.
# PYTHON and VENV name another interpreter and its environment: make check PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin

NODES  ?= 3
DIR    ?= ./data
PORT   ?= 9092
SEEDS  ?= 1000

# Hundreds of processes of the tests import the same modules: Python compiles them once, even where it may not otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up check test generate format bench interop sim chaos exactly-once tiered compose testcontainers kubernetes streams share-work spark-cluster franz-go librdkafka migration quotas fuzz wheel compiled-checkout test-compiled test-compiled-short docs docs-check clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# The stamps make installation happen once, and again whenever pyproject.toml changes.
$(BIN)/.installed: pyproject.toml
	@test -x $(BIN)/python || { python=$(or $(PYTHON),$$(./best_python.sh)) && "$$python" -m venv $(VENV); }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ottla needs Python 3.11 or newer (set PYTHON=)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q broker protocol storage  # or every start would, where Python may not write bytecode
	@touch $@

$(BIN)/.installed-test: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,test]'
	@touch $@

$(BIN)/.installed-docs: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(BIN)/.installed-containers: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[containers]'
	@touch $@

up: $(BIN)/.installed  ## start a local cluster in the foreground (NODES=3 DIR=./data PORT=9092)
	@exec $(BIN)/ottla cluster --nodes $(NODES) --dir $(DIR) --port $(PORT)

check: $(BIN)/.installed-test  ## format, lint, strict types, import contracts, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m 'not integration and not interop and not slow'

test: $(BIN)/.installed-test  ## the whole suite
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Tests of the modules in [tool.ottla.compile]. TESTS=tests runs the whole suite.
TESTS ?= tests/broker/api tests/broker/fetch tests/broker/metrics tests/broker/net tests/broker/replication tests/broker/runtime/loop \
	tests/broker/runtime/partitions tests/broker/runtime/replication tests/broker/test_build_form.py tests/protocol tests/storage/*.py \
	tests/integration/test_node.py

# Tests run in a copy of the checkout, since extension modules beside the sources would hide later changes.
COMPILED := build/compiled
test-compiled: compiled-checkout  ## the tests of the hot modules against the compiled build (TESTS=tests: all)
	cd $(COMPILED)/checkout && PYTHONPATH=$(CURDIR)/$(COMPILED)/checkout \
		$(CURDIR)/$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(TESTS)

# A copy of the checkout with the extension module in it: an extension beside the sources would hide later changes of them.
compiled-checkout: $(BIN)/.installed-test
	rm -rf $(COMPILED) && mkdir -p $(COMPILED)/dist $(COMPILED)/checkout/build
	OTTLA_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(COMPILED)/dist .
	git ls-files -z --cached --others --exclude-standard \
		| xargs -0 cp --parents --preserve=timestamps --target-directory=$(COMPILED)/checkout
	ln -s $(CURDIR)/$(VENV) $(COMPILED)/checkout/.venv
	$(BIN)/python -m zipfile -e $(COMPILED)/dist/ottla-*.whl $(COMPILED)/checkout

# For every submission (`.ci/run`): the C compiler does not optimise, and the tests are those of the request path and of coordinators.
SHORT := tests/broker/test_build_form.py tests/broker/api/records/test_fetch.py tests/broker/api/records/test_produce.py \
	tests/broker/fetch tests/broker/net/test_connection*.py tests/broker/net/test_deferred_writes.py tests/storage/test_log.py \
	tests/storage/test_files.py tests/storage/test_segment.py tests/storage/test_straight_append.py tests/storage/test_validation.py \
	tests/integration/test_node.py tests/broker/runtime/coordinators tests/broker/transactions tests/broker/groups/test_join.py \
	tests/broker/groups/test_offsets.py tests/broker/groups/consumer/test_update.py tests/broker/replication tests/broker/runtime/replication
test-compiled-short: $(BIN)/.installed-test  ## a short form of test-compiled, for CI
	@if [ "$$(./wheel_form.sh $(BIN)/python)" = 0 ]; then echo "the compiled form is not tested"; \
		else $(MAKE) --no-print-directory test-compiled OTTLA_COMPILE_LEVEL=0 TESTS="$(SHORT)"; fi

generate: $(BIN)/.installed  ## regenerate protocol/messages from schemas/
	$(BIN)/python -m protocol.generate

format: $(BIN)/.installed-test  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

interop: $(BIN)/.installed-test  ## Apache Kafka's tools, Java client and admin answers against us (Java 17, Maven)
	$(BIN)/python -m tests.interop

# The form that `make wheel` builds here is measured.
bench: $(BIN)/.installed-test  ## benchmarks against Apache Kafka: build/bench/report.md (90 minutes; ARGS=--quick: ten; Java 17, Maven, Go; OTTLA_COMPILE=0: pure Python)
	@mkdir -p build/bench; if [ "$$(./wheel_form.sh $(BIN)/python)" = 0 ]; then $(BIN)/python -m tests.benchmarks $(ARGS); \
		else $(MAKE) --no-print-directory compiled-checkout && ln -s $(CURDIR)/build/bench $(COMPILED)/checkout/build/bench \
			&& cd $(COMPILED)/checkout \
			&& PYTHONPATH=$(CURDIR)/$(COMPILED)/checkout $(CURDIR)/$(BIN)/python -m tests.benchmarks $(ARGS); fi

sim: $(BIN)/.installed-test  ## simulate quorums, brokers, tiers and clusters on bad disks, clocks, networks and stores (SEEDS=1000 PLANE=all), or replay (SEED=n)
	$(BIN)/python -m tests.simulation --plane $(or $(PLANE),all) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

chaos: $(BIN)/.installed-test  ## kill, pause and partition three brokers under load, and check every record (MINUTES=10, ARGS=...)
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(ARGS)

screenshots: $(BIN)/.installed-test  ## draw the pictures of the console in docs/images (Chromium)
	$(BIN)/python -m tests.integration.console.screenshots

exactly-once: $(BIN)/.installed-test  ## copy a topic in transactions while brokers, coordinators and clients are killed (RECORDS=1000000, ARGS=...)
	$(BIN)/python -m tests.exactly_once --records $(or $(RECORDS),1000000) $(ARGS)

streams: $(BIN)/.installed-test  ## count words with Kafka Streams while its instances and nodes are killed (LINES=50000, KILLS=8, ARGS=...; Java 17, Maven)
	$(BIN)/python -m tests.exactly_once.word_count --nodes --lines $(or $(LINES),50000) --kills $(or $(KILLS),8) $(ARGS)

share-work: $(BIN)/.installed-test  ## acknowledge records with Java share consumers that are killed, like nodes (RECORDS=100000, KILLS=10, ARGS=...; Java 17, Maven)
	$(BIN)/python -m tests.exactly_once.share_work --nodes --records $(or $(RECORDS),100000) --kills $(or $(KILLS),10) $(ARGS)

tiered: $(BIN)/.installed-test  ## tier gigabytes to a real S3 server that fails and vanishes, and read all back (GB=2, ARGS=...; Go, Java)
	$(BIN)/python -m tests.tiered_show --gigabytes $(or $(GB),2) $(ARGS)

compose: $(BIN)/.installed-test  ## build the images and run docker-compose.yml for real (root, docker.io and mmdebstrap, Go; minutes)
	OTTLA_COMPOSE=1 $(BIN)/python -m pytest -q tests/integration/test_compose.py

testcontainers: $(BIN)/.installed-test $(BIN)/.installed-containers  ## Testcontainers of Python and Java, and compose files for apache/kafka, with our image (as `make compose`; Java 17, Maven)
	OTTLA_COMPOSE=1 $(BIN)/python -m pytest -q -rs tests/integration/test_image.py

kubernetes: $(BIN)/.installed-test $(BIN)/.installed-containers  ## check docs/kubernetes against Kubernetes' schemas
	$(BIN)/python -m pytest -q -rs tests/docs/test_kubernetes.py

spark-cluster: $(BIN)/.installed-test  ## run the pipeline on a Spark cluster of processes, its executors killed (Java 17, Go)
	OTTLA_SPARK_CLUSTER=1 $(BIN)/python -m pytest -q tests/interop/test_spark_cluster.py

franz-go: $(BIN)/.installed-test  ## franz-go's own integration tests against three nodes (RECORDS=100000; Go; minutes)
	OTTLA_FRANZ_GO=1 KGO_TEST_RECORDS=$(or $(RECORDS),100000) $(BIN)/python -m pytest -q -s tests/interop/test_franz_go.py

librdkafka: $(BIN)/.installed-test  ## librdkafka's own integration tests against three brokers (npm, C and C++ compilers; a quarter of an hour)
	OTTLA_LIBRDKAFKA=1 $(BIN)/python -m pytest -q -s tests/interop/test_librdkafka_suite.py

migration: $(BIN)/.installed-test  ## move a live group of librdkafka and Java consumers to the protocol "consumer" and back (Java 17, Maven; minutes)
	OTTLA_MIGRATION_SHOW=1 $(BIN)/python -m pytest -q -s tests/integration/test_migration_show.py

quotas: $(BIN)/.installed-test  ## measure a quota of 1 MB/s on three nodes, and the latency of another client (minutes)
	OTTLA_QUOTA_SHOW=1 $(BIN)/python -m pytest -q -s tests/integration/test_quota_show.py

fuzz: $(BIN)/.installed-test  ## one million mutated request frames against the codec, one million steps of logins
	$(BIN)/python -m tests.protocol.fuzz_requests --frames 1000000
	$(BIN)/python -m tests.broker.sasl.fuzz_logins --steps 1000000

wheel: $(BIN)/.installed  ## build a wheel of this commit: dist/ottla-*.whl, compiled where a C compiler is (OTTLA_COMPILE=0: pure Python)
	@rm -rf dist build/lib* build/bdist.*  # files of an earlier build would be packed as well
	@form=$$(./wheel_form.sh $(BIN)/python) && OTTLA_COMPILE=$$form \
		$(BIN)/python -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir dist .
	@ls dist/ottla-*.whl

docs: $(BIN)/.installed-docs  ## build the documentation as a site: build/site
	$(BIN)/python -m mkdocs build --strict

docs-check: $(BIN)/.installed-test  ## run every command block of README.md and docs/ on a clean Debian (PAGES=words; root, mmdebstrap; ports 9092 to 9113 free; minutes)
	$(BIN)/python -m tests.docs.clean_machine $(PAGES)

clean:  ## remove what can be rebuilt
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
