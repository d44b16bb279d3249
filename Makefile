# make demo    the main job, on 336,776 flights                make bench   logdb beside its peers
# make demo-spark   their delays, hour by hour, by Spark        make demo-cluster   three nodes, whose leader is killed under load
# make cluster DIR=nodes   three nodes on this machine, until Ctrl-C; without DIR in a scratch directory
# make quick   unit tests, while one edits                     make wheel   for glibc, musl, x86-64, aarch64 in dist/
# make test    what a contributor runs: 8 minutes              make fuzz    SECONDS=60 of random bytes against C; 1,000 kills
# make check   the tests that take longer, linters, types, sanitizers, a real Kafka
# make fresh   demo and unit tests in a Debian of its own, with the README's packages; as root
# make pythons   unit tests, README and quick contract programs on Python 3.13 (Debian trixie) and 3.14 (sid); as root
# make test-aarch64   the C core, the files and a cluster on an emulated Arm machine; as root
# make docs    the site, in build/site                         make fault   SECONDS=60 of faults at libc's calls; 50 kills on Spark
#                                                              DURATION=3600 SEED=7: so long of faults of a cluster
# make clean   forget everything that was built
#
# Needs Python 3.11 or newer with venv and headers (PYTHON=… chooses it), gcc and make.
# Everything else goes into .venv, once; a stamp there says what it was made from.

PYTHON   ?= python3
SECONDS  ?= 60
DURATION ?= $(SECONDS)
CONTRACT ?= ../shared/contract

# The tests start hundreds of processes: none compiles what another one has compiled.
unexport PYTHONDONTWRITEBYTECODE

BIN   := .venv/bin
# --no-compile: most of 12,000 modules are never imported; Python compiles the others once
INSTALL := @echo "installing into .venv, once; the C core is compiled" && $(BIN)/pip install --disable-pip-version-check --progress-bar off --no-compile
PARALLEL := -n auto --dist loadgroup
# Java's, JavaScript's and Go's programs on three brokers: the most telling ones, and the others
FOREIGN_ON_THREE := $(addprefix tests/integration/kafka/,test_connect.py test_java_tools.py test_javascript_and_go.py)
MORE_ON_THREE := $(addprefix tests/integration/kafka/,test_mirror_maker.py test_quick_start.py test_streams.py)
# What runs on a standalone cluster of Spark, too, whose machines share nothing: with --spark-machines; test_standalone.py reads there
ON_MACHINES := $(addprefix tests/integration/spark/,test_sinks.py test_streams.py)
# Killed at every second step by make check, at each by make fault
AT_EACH_STEP := $(addprefix tests/,examples/test_exactly_once_sqlite.py integration/iceberg/test_kills.py integration/test_how_to_kills.py)
# Files and kills on a disk: everything else is in memory
ON_DISK := $(addprefix tests/,crash/test_kill.py unit/segment unit/test_disk.py unit/test_io.py unit/log/test_preallocation.py unit/store/test_reserve.py)
# A Python of another version: tests/unit, the README's code and the quick contract programs
ON_A_PYTHON := make quick && .venv/bin/pytest tests/integration/test_readme.py && make contract PROGRAMS="api kafka_format delivery http_door"
PROGRAMS ?= api kafka_format kill delivery http_door kafka_clients leader_kill first_day connect spark
BUILT := pyproject.toml setup.py $(filter-out %/_core.c,$(wildcard src/logdb/_native/*.c src/logdb/_native/*.h src/logdb/_native/*.py))

.PHONY: demo demo-spark demo-cluster cluster quick test fresh pythons test-aarch64 check on-three on-machines lint sanitize contract docs bench fuzz fault wheel try-wheels clean
.DELETE_ON_ERROR:

demo: .venv/demo
	$(BIN)/python demo/flights.py

demo-spark: .venv/demo-spark
	$(BIN)/python demo/flights_spark.py

demo-cluster: .venv/demo-cluster
	$(BIN)/python demo/cluster.py

cluster: .venv/demo-cluster
	$(BIN)/python demo/cluster.py --serve $(addprefix --path ,$(DIR))

quick: .venv/dev
	tests/in_memory $(BIN)/pytest $(PARALLEL) --level quick tests/unit

test: .venv/dev
	tests/in_memory $(BIN)/pytest $(PARALLEL) --level test

fresh:
	tests/debian/run trixie 'make demo && make quick'

pythons:
	tests/debian/run trixie+curl '$(ON_A_PYTHON)'
	tests/debian/run sid+curl '$(ON_A_PYTHON)'

test-aarch64:
	tests/aarch64/run

check: .venv/dev
	$(MAKE) -j2 --output-sync lint sanitize contract
	tests/in_memory $(BIN)/pytest $(PARALLEL) --level check -m ''
	$(MAKE) on-three on-machines

on-three: .venv/dev
	tests/in_memory $(BIN)/pytest $(PARALLEL) --brokers 3
	tests/in_memory $(BIN)/pytest $(PARALLEL) --brokers 3 -m foreign $(FOREIGN_ON_THREE)
	$(BIN)/pytest $(ON_DISK)

on-machines: .venv/dev
	tests/in_memory $(BIN)/pytest --spark-machines -m '' -k url $(ON_MACHINES)

sanitize: .venv/dev
	$(MAKE) -C tests/fuzz sanitize hot SECONDS=10 PYTHON=$(CURDIR)/$(BIN)/python

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Programs against the public interface that are kept outside of this repository.
contract: .venv/dev
	@if [ -d $(CONTRACT) ]; then \
	    for program in $(PROGRAMS); do \
	        PYTHONDONTWRITEBYTECODE=1 $(BIN)/python $(CONTRACT)/$$program.py || exit 1; \
	    done; \
	else echo "contract programs: none at $(CONTRACT)"; fi

# NO_MKDOCS_2_WARNING: the theme's notice about its own successor
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site 8000"

bench: .venv/dev
	$(BIN)/python -m benches

fuzz: .venv/dev
	$(MAKE) -C tests/fuzz fuzz SECONDS=$(SECONDS)
	LOGDB_TEST_SCALE=50 $(BIN)/pytest -o faulthandler_timeout=0 tests/crash/test_exactly_once.py
	LOGDB_TEST_SCALE=20 $(BIN)/pytest -o faulthandler_timeout=0 -n auto tests/fuzz/test_openapi.py
	LOGDB_TEST_SCALE=100 $(BIN)/pytest -o faulthandler_timeout=0 -n auto tests/fuzz/test_kafka_frames.py

fault: .venv/dev
	LOGDB_STORM_SECONDS=$(DURATION) LOGDB_STORM_SEED=$(SEED) $(BIN)/pytest -s -o faulthandler_timeout=0 tests/integration/cluster/test_storm.py
	LOGDB_FAULT_SECONDS=$(SECONDS) $(BIN)/pytest -o faulthandler_timeout=0 -n auto --dist loadgroup tests/crash/test_faulty_libc.py
	LOGDB_TEST_SCALE=10 $(BIN)/pytest -o faulthandler_timeout=0 -n auto -m hypothesis tests/unit tests/compat
	LOGDB_TEST_SCALE=3 $(BIN)/pytest -o faulthandler_timeout=0 -n auto tests/property tests/crash
	LOGDB_TEST_SCALE=2 $(BIN)/pytest -o faulthandler_timeout=0 $(AT_EACH_STEP) tests/unit/store/check/test_repair.py tests/unit/store/check/test_verify.py
	LOGDB_TEST_SCALE=100 $(BIN)/pytest -o faulthandler_timeout=0 -n auto tests/property/test_quorum_simulation.py tests/property/test_replica_simulation.py
	LOGDB_TEST_SCALE=20 $(BIN)/pytest -o faulthandler_timeout=0 tests/integration/test_quorum.py
	LOGDB_TEST_SCALE=20 $(BIN)/pytest -o faulthandler_timeout=0 tests/integration/cluster/test_power_cuts.py tests/integration/cluster/test_membership_under_faults.py
	LOGDB_TEST_SCALE=17 $(BIN)/pytest -o faulthandler_timeout=0 --level fault -m ''
	LOGDB_TEST_SCALE=20 $(BIN)/pytest -o faulthandler_timeout=0 -m '' tests/integration/spark/test_sinks_kill.py
	LOGDB_TEST_SCALE=17 $(BIN)/pytest -o faulthandler_timeout=0 -m '' tests/integration/spark/test_cluster.py
	LOGDB_TEST_SCALE=17 $(BIN)/pytest -o faulthandler_timeout=0 tests/integration/connect/test_kills.py tests/integration/connect/test_connector_kills.py tests/integration/connect/databases/test_all_kills.py tests/integration/connect/databases/test_pipeline.py
	$(BIN)/pytest --brokers 3 -m foreign $(MORE_ON_THREE)
	$(MAKE) fresh pythons
	tests/debian/run trixie 'make test'
	$(MAKE) wheel try-wheels

# CPYTHON="3.11 3.13": these versions only; HEADERS=3.12=DIRECTORY: where the Python.h of a version is
wheel: .venv/wheels
	rm -rf dist
	$(BIN)/python packaging/wheels.py --cpython $(CPYTHON) --headers $(HEADERS)

try-wheels: .venv/wheels
	$(BIN)/python packaging/try_wheels.py --cpython $(CPYTHON)

clean:
	rm -rf .venv build dist *.egg-info src/logdb/_native/_core.c src/logdb/_native/*.so
	rm -rf .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .benchmarks
	find src http_api kafka_api replication connect spark_source iceberg tests benches demo examples packaging -name __pycache__ -prune -exec rm -rf {} +

# ---------------------------------------------------------------- the environment

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "logdb needs Python 3.11: make PYTHON=python3.11 …" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/demo: .venv/made $(BUILT) demo/requirements.txt
	$(INSTALL) -e '.[cli,codecs,arrow]' -r demo/requirements.txt
	touch $@

.venv/demo-spark: .venv/demo
	$(INSTALL) -e '.[spark]'
	touch $@

.venv/demo-cluster: .venv/demo
	$(INSTALL) -e '.[cluster]'
	touch $@

.venv/docs: .venv/made $(BUILT)
	$(INSTALL) -e '.[docs]'
	touch $@

.venv/wheels: .venv/made packaging/requirements.txt
	$(INSTALL) -r packaging/requirements.txt
	touch $@

.venv/dev: .venv/made $(BUILT) demo/requirements.txt
	$(INSTALL) -e '.[dev]' -r demo/requirements.txt
	touch $@
