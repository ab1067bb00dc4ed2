# The one list of commands; .ci/run and the documentation name only these. `make help` prints it.

# Compiled modules are kept wherever they are made: a run starts hundreds of Pythons.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
EXTRAS := spark,jit,cli,test,dev
# Options for pytest: make test ARGS="-k reorder -x"; ARGS="-n 0" for one process (a debugger, live output)
ARGS ?=
# Two more than processors: tests of Spark and of sources wait much of their time.
SPREAD = -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
# The environment of the peers that need one of their own (bench/rivals/requirements.txt)
PEERS ?= $(CURDIR)/.venv-peers
DATA ?=
ROWS ?=

PAPER := fig8 fig9 fig10 fig11 fig12 fig13 fig14 chunks load idle order-cost head-of-line zipf

CORE := $(shell find ordstream/_core ordstream/include \
    -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.hpp' 2>/dev/null)
PIP := $(PY) -m pip --disable-pip-version-check --no-input
JAVA := JAVA_HOME="$$(tools/bootstrap.sh java-home)"; export JAVA_HOME;
# One build apart from the one in the tree: its folder goes before everything else on the path, and the suite
# checks that it is really the one being tested (tests/conftest.py).
BUILD_APART = ORDSTREAM_LAB=1 $(PY) setup.py -q build --build-base build/$(1) --build-lib build/$(1)/lib
USE_APART = PYTHONPATH="$(CURDIR)/build/$(1)/lib" ORDSTREAM_EXPECT_BUILD="$(CURDIR)/build/$(1)/lib"
CXX_OF_PYTHON = $$($(PY) -c 'import os, sysconfig as s; \
    print((os.environ.get("CXX") or s.get_config_var("CXX") or "c++").split()[0])')
RUNTIME = $$("$(CXX_OF_PYTHON)" -print-file-name=$(1))
# The sanitizers write to file descriptor 2, which pytest must therefore not capture.
# ThreadSanitizer before gcc 14 does not know the newest address space layouts.
FIXED_LAYOUT := $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

.DEFAULT_GOAL := help
# Targets run one after the other, but for those that a recipe starts together, of two processors.
ifndef TOGETHER
.NOTPARALLEL:
endif
TOGETHER_2 = $(MAKE) -s -j2 TOGETHER=1
.PHONY: help run run-stream develop java spark-classes spin servers test test-quick lint lint-types \
    lint-sources mutants kills debug tsan asan wheel clean distclean bench bench-tpcxbb bench-queries \
    bench-grouping bench-snapshots bench-stream bench-mixed bench-peers bench-paper bench-compare

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: java develop ## the main job in Spark on this machine [DATA=folder of real rows] [ROWS=generated rows]
	@$(JAVA) exec $(BIN)/ordstream demo $(if $(DATA),--data "$(DATA)") $(if $(ROWS),--rows $(ROWS))

run-stream: java develop ## the main job as a stream, killed in the middle and started again [DATA=] [ROWS=]
	@$(JAVA) exec $(BIN)/ordstream demo --stream $(if $(DATA),--data "$(DATA)") $(if $(ROWS),--rows $(ROWS))

# pip uses one processor, and the core needs but a few of the packages: it is built at the same time.
develop: $(VENV)/.build-packages ## make .venv, install the package editable with all extras, build the core
	@$(TOGETHER_2) $(VENV)/.packages $(VENV)/.core

$(VENV)/.build-packages: pyproject.toml setup.py tools/bootstrap.sh
	@tools/bootstrap.sh
	@echo "installing the packages (a few minutes the first time)"
	@$(PY) -c 'import tomllib as t; \
	    print(*t.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	    > $(VENV)/.build-requires
	@# wheel: an older pip tells of its absence
	@$(PIP) install -q --no-compile wheel -r $(VENV)/.build-requires
	@touch $@

# --no-compile: of 8,000 modules a run imports some; Python compiles these when it comes to them
$(VENV)/.packages: $(VENV)/.build-packages
	@ORDSTREAM_NO_CORE=1 $(PIP) install -q --no-compile --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.core: $(VENV)/.build-packages $(CORE)
	@$(PY) setup.py -q build_ext --inplace
	@touch $@

java:
	@tools/bootstrap.sh java

spark-classes: $(VENV)/.spark-classes

$(VENV)/.spark-classes: $(VENV)/.packages tests/spark_classes.py | $(VENV)/.core
	@$(JAVA) $(PY) tests/spark_classes.py
	@touch $@

spin:
	@tools/bootstrap.sh spin

servers:
	@tools/bootstrap.sh servers

test: java spin servers develop spark-classes ## the whole suite, with Spark [ARGS=pytest options]
	@$(JAVA) ORDSTREAM_REQUIRE="java$${ORDSTREAM_REQUIRE:+,$$ORDSTREAM_REQUIRE}" $(BIN)/pytest $(SPREAD) $(ARGS)

test-quick: develop ## the suite without what is slow, stresses or starts Spark [ARGS=pytest options]
	@$(BIN)/pytest $(SPREAD) -m "not slow and not stress and not spark" $(ARGS)

lint: develop ## ruff, mypy --strict, cython-lint, and no performance hint from Cython
	@$(TOGETHER_2) lint-types lint-sources
	@echo "lint: clean"

lint-types:
	@$(BIN)/mypy --strict -p ordstream

lint-sources:
	@$(BIN)/ruff check .
	@PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint ordstream
	@mkdir -p build
	@$(PY) setup.py translate > build/translate.log 2>&1 || { cat build/translate.log; exit 1; }
	@if grep -n -A 12 -i -e "performance hint" -e "^warning: ordstream" build/translate.log; then \
	    echo "Cython's log, see above, must be silent"; exit 1; fi

mutants: develop ## take lines out of the core one by one: tests must fail [ARGS=options of tools/mutants.py]
	@$(PY) tools/mutants.py $(ARGS)

kills: java develop ## kill processes around snapshots and epochs, compare output [ARGS="stream --kills 100"]
	@$(JAVA) $(PY) tools/kills.py $(or $(ARGS),node)

bench: develop ## the benchmarks, results verified first, saved under bench/results [ARGS=pytest options]
	@$(BIN)/pytest bench --timeout=1800 --benchmark-only --benchmark-autosave \
	    --benchmark-storage=file://bench/results $(ARGS)

bench-tpcxbb: java develop ## the five TPCx-BB queries at scale 1 on all engines [ARGS=of bench/tpcxbb.py]
	@$(JAVA) $(BIN)/python bench/tpcxbb.py $(ARGS)

bench-queries: java develop ## Q2 and Q4 against DuckDB, Polars, loops and Spark SQL [ARGS="--rounds 3"]
	@$(JAVA) PYTHONPATH="$(CURDIR)" $(PY) bench/queries.py --spark $(ARGS)

bench-paper: develop ## the ordered paper's figures and more, into bench-results/paper [ARGS="--seconds 5"]
	@for name in $(PAPER); do $(BIN)/ordstream bench $$name --out bench-results/paper $(ARGS) || exit 1; done

bench-peers: java develop $(PEERS)/.installed ## the peers that can be installed, together [ARGS="--jobs q4"]
	@$(JAVA) PYTHONPATH="$(CURDIR)" ORDSTREAM_PEERS="$(PEERS)" $(PY) bench/peers.py $(ARGS)

$(PEERS)/.installed: bench/rivals/requirements.txt
	@$(PY) -m venv "$(PEERS)"
	@grep -v '^#' bench/rivals/requirements.txt | while read -r peer; do \
	    "$(PEERS)/bin/python" -m pip --disable-pip-version-check --no-input install -q "$$peer" \
	    || echo "without $$peer"; done
	@touch $@

bench-grouping: java develop ## hash against DKG, even split against POSG in Spark [ARGS="--tuples 5000"]
	@$(JAVA) PYTHONPATH="$(CURDIR)" $(PY) bench/grouping.py $(ARGS)

bench-snapshots: develop ## export, files, restore; a stream with a snapshot every second [ARGS="--rounds 3"]
	@PYTHONPATH="$(CURDIR)" $(PY) bench/snapshots.py $(ARGS)

bench-stream: java develop ## a micro-batch beside the floor and Spark's own operators [ARGS="--batches 30"]
	@$(JAVA) PYTHONPATH="$(CURDIR)" $(PY) bench/stream_batches.py $(ARGS)

bench-mixed: java develop ## keys that move between micro-batches, against other ways [ARGS="--rounds 3"]
	@$(JAVA) PYTHONPATH="$(CURDIR)" $(PY) bench/mixed_stream.py $(ARGS)

bench-compare: develop ## compare the saved benchmark runs
	@$(BIN)/pytest-benchmark --storage=file://bench/results compare --group-by=name \
	    --columns=min,median,iqr,rounds

debug: develop ## build with bounds checks and leak counters, run the suite on that build, Spark left out
	@ORDSTREAM_DEBUG=1 $(call BUILD_APART,debug)
	@$(call USE_APART,debug) $(BIN)/pytest $(SPREAD) -m "not spark" $(ARGS)

tsan: develop ## build with ThreadSanitizer, run tests/stress on that build
	@ORDSTREAM_SANITIZE=thread $(call BUILD_APART,thread)
	@$(call USE_APART,thread) ORDSTREAM_SANITIZE=thread ORDSTREAM_CASES=all \
	    TSAN_OPTIONS="exitcode=66 halt_on_error=0 history_size=7 suppressions=$(CURDIR)/tools/tsan.supp" \
	    LD_PRELOAD="$(call RUNTIME,libtsan.so)" \
	    $(FIXED_LAYOUT) $(BIN)/pytest -p no:cacheprovider --capture=sys -v tests/stress -m "not spark" $(ARGS)

asan: develop ## build with AddressSanitizer and UndefinedBehaviorSanitizer, run stress and property tests
	@ORDSTREAM_SANITIZE=address $(call BUILD_APART,address)
	@$(call USE_APART,address) ORDSTREAM_SANITIZE=address ORDSTREAM_CASES=all PYTHONMALLOC=malloc \
	    ASAN_OPTIONS=detect_leaks=0:exitcode=77 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    LD_PRELOAD="$(call RUNTIME,libasan.so) $(call RUNTIME,libstdc++.so.6)" \
	    $(BIN)/pytest -p no:cacheprovider --capture=sys -v tests/stress tests/property -m "not spark" $(ARGS)

wheel: develop ## build a wheel, repair it, install it where there is no compiler, smoke-test it
	@rm -rf build/wheel && mkdir -p build/wheel/repaired
	@$(PY) -m build --outdir build/wheel .
	@if [ "$$(uname)" = Linux ]; then PATH="$(CURDIR)/$(BIN):$$PATH" \
	    $(BIN)/auditwheel repair -w build/wheel/repaired build/wheel/*.whl; \
	    else cp build/wheel/*.whl build/wheel/repaired; fi
	@$(PY) tools/check_wheel.py build/wheel/repaired/*.whl
	@$(PY) -m venv build/wheel/fresh
	@cd build/wheel && PATH="$(CURDIR)/build/wheel/fresh/bin" CC= CXX= \
	    fresh/bin/python -m pip --disable-pip-version-check --no-input install -q \
	    --only-binary :all: repaired/*.whl
	@cd build/wheel && PATH="$(CURDIR)/build/wheel/fresh/bin" \
	    fresh/bin/python -I "$(CURDIR)/tools/check_wheel.py" --no-compiler
	@echo "wheel: $$(ls build/wheel/repaired/*.whl)"

clean: ## remove what was built; .venv stays
	@rm -rf build dist ordstream.egg-info .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -f $(VENV)/.core
	@find ordstream \( -name '*.so' -o -name '*.pyd' -o -name '__pycache__' \) -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf $(VENV)
