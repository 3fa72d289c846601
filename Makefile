# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# `make test` and `make demo` need python3 (3.11 or newer, with venv), g++ and make; everything else comes from PyPI into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

SOURCES := $(shell find CMakeLists.txt pyproject.toml dialect passes runtime python -type f \
  -not -path '*/__pycache__/*' -not -name '*.md')
CXX_SOURCES := $(shell find dialect passes runtime python/bindings test -name '*.cpp' -o -name '*.h')

.PHONY: test demo zoo bench bench-runtime install lit test-runtime test-fuzz fuzz sanitize sanitize-lit test-python format lint clean
.DELETE_ON_ERROR:

# The packages of [build-system] go into .venv, so that a changed source file costs an incremental build.
$(VENV)/.build-tools: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q $$($(BIN)/python -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])")
	touch $@

$(VENV)/.installed: $(VENV)/.build-tools $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install -q --no-build-isolation '.[test]'
	touch $@

install: $(VENV)/.installed

test: lit test-runtime test-fuzz test-python

lit: install
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/lit -sv test

test-runtime: $(VENV)/.build-tools
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/runtime-tests -G Ninja -Wno-dev --log-level=WARNING \
	  -DPIPER_COMPILER=OFF -DPIPER_TESTS=ON -DPython3_EXECUTABLE="$(abspath $(BIN)/python)"
	PATH="$(abspath $(BIN)):$$PATH" ninja -C build/runtime-tests
	PATH="$(abspath $(BIN)):$$PATH" ctest --test-dir build/runtime-tests --output-on-failure -j $(JOBS)

# The fuzzers for some seconds, always with the same inputs.
test-fuzz: install test-runtime
	$(BIN)/python test/fuzz/make_plans.py build/fuzz/plans
	cd build/fuzz && ../runtime-tests/test/fuzz/PlanFuzzer -runs=5000 -seed=1 plans
	cd build/fuzz && "$(abspath $(BIN))/python" ../../test/fuzz/strategies.py -runs=2000 -seed=1

# Each fuzzer for FUZZ_SECONDS on one core, guided by coverage: that of plans where clang++ is installed, that of strategies
# with atheris.
FUZZ_SECONDS ?= 600
FUZZ_SEED ?= 1
CLANGXX ?= clang++
FUZZ_BUILD := $(if $(shell command -v $(CLANGXX)),build/libfuzzer,build/runtime-tests)
fuzz: install
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B $(FUZZ_BUILD) -G Ninja -Wno-dev --log-level=WARNING \
	  -DPIPER_COMPILER=OFF -DPIPER_TESTS=ON -DPython3_EXECUTABLE="$(abspath $(BIN)/python)" \
	  $(if $(filter %libfuzzer,$(FUZZ_BUILD)),-DPIPER_LIBFUZZER=ON -DCMAKE_CXX_COMPILER=$(CLANGXX))
	PATH="$(abspath $(BIN)):$$PATH" ninja -C $(FUZZ_BUILD) PlanFuzzer
	$(BIN)/python test/fuzz/make_plans.py build/fuzz/plans
	$(BIN)/python -m pip install -q 'atheris==3.0.0'
	mkdir -p build/fuzz/plans-found build/fuzz/strategies-found build/fuzz/reproducers
	cd build/fuzz && "$(abspath $(FUZZ_BUILD))/test/fuzz/PlanFuzzer" \
	  -max_total_time=$(FUZZ_SECONDS) -seed=$(FUZZ_SEED) plans-found plans
	cd build/fuzz && PIPER_REPRODUCER_DIR=reproducers "$(abspath $(BIN))/python" "$(abspath test/fuzz/guided_strategies.py)" \
	  -max_total_time=$(FUZZ_SECONDS) -seed=$(FUZZ_SEED) -rss_limit_mb=8192 strategies-found strategies

# AddressSanitizer with UndefinedBehaviorSanitizer, and ThreadSanitizer, over the runtime's tests.
sanitize: sanitize-address sanitize-thread
sanitize-%: $(VENV)/.build-tools
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/$@ -G Ninja -Wno-dev --log-level=WARNING \
	  -DPIPER_COMPILER=OFF -DPIPER_TESTS=ON -DPIPER_SANITIZE=$* -DPython3_EXECUTABLE="$(abspath $(BIN)/python)"
	PATH="$(abspath $(BIN)):$$PATH" ninja -C build/$@
	PATH="$(abspath $(BIN)):$$PATH" ctest --test-dir build/$@ --output-on-failure

# AddressSanitizer with UndefinedBehaviorSanitizer over the compiler's tests. Builds dialect/ and passes/ once more, with g++.
sanitize-lit: install
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/$@ -G Ninja -Wno-dev --log-level=WARNING \
	  -DPIPER_SANITIZE=address -DPIPER_CCACHE=OFF -DCMAKE_CXX_COMPILER=g++ -DPython3_EXECUTABLE="$(abspath $(BIN)/python)"
	PATH="$(abspath $(BIN)):$$PATH" ninja -C build/$@ piper-opt
	PATH="$(abspath build/$@/bin):$(abspath $(BIN)):$$PATH" $(BIN)/lit -sv test

test-python: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --durations=20 test/python

demo: install
	$(BIN)/python -m piper.examples.demo

# Public models against plain PyTorch; takes about an hour on two cores. Nothing of it is part of `make test`.
ZOO ?=
$(VENV)/.zoo-packages: $(VENV)/.installed
	$(BIN)/python -m pip install -q $$($(BIN)/python -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['zoo'])")
	touch $@

zoo: $(VENV)/.zoo-packages
	OMP_NUM_THREADS=1 $(BIN)/python test/zoo/run.py $(ZOO)

# Takes about half an hour on two cores; nothing else should run meanwhile.
bench: install bench-runtime
	$(BIN)/python test/bench/run.py

# What actions and collectives cost without a model: a minute.
bench-runtime: $(VENV)/.build-tools
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/runtime-tests -G Ninja -Wno-dev --log-level=WARNING \
	  -DPIPER_COMPILER=OFF -DPIPER_TESTS=ON -DPython3_EXECUTABLE="$(abspath $(BIN)/python)"
	PATH="$(abspath $(BIN)):$$PATH" ninja -C build/runtime-tests ExecutorBench CommunicatorBench
	build/runtime-tests/test/bench/runtime/ExecutorBench
	build/runtime-tests/test/bench/runtime/CommunicatorBench

$(VENV)/.lint-tools: $(VENV)/.build-tools
	$(BIN)/python -m pip install -q 'clang-format==23.1.5' 'ruff==0.17.6'
	touch $@

format: $(VENV)/.lint-tools
	$(BIN)/clang-format -i $(CXX_SOURCES)
	$(BIN)/ruff format python test
	$(BIN)/ruff check --fix python test

lint: $(VENV)/.lint-tools
	$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)
	$(BIN)/ruff format --check python test
	$(BIN)/ruff check python test

clean:
	rm -rf build $(VENV)
