# The commands of the project. Each first installs what it needs and does not find (scripts/setup).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help demo program test test-arm test-mpi sanitize stress soak large refits faults golden gallery surface docs model fuzz lint types format wheel test-torch test-two-torches test-vllm test-install sdist release \
	bench-ragged bench-overhead bench-plan \
	bench-redistribute bench-shm bench-peers bench-engines bench-large bench-jax bench-backend bench-before bench-hosts bench-hosts-simulated bench-lists bench-refit frames bench-dtensor bench-gpu bench-ipc \
	torch-suite clean library everything

PYTHON := .venv/bin/python
TORCH ?= $(shell sed -n 's/^torch==//p' requirements.txt)
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
OTHER_TORCH ?= 2.15.0
BUILD := build/release
CPP_FILES = $(shell find bench cli cmake examples include page python src tests -name '*.h' -o -name '*.cpp')

export PYTHONPATH := $(CURDIR)/$(BUILD)/python
export CCACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ccache
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

demo: library  ## build the library and show what it does
	@$(PYTHON) examples/demo.py

program:  ## build build/program/bin/shardway alone, which needs no torch and no Python
	@scripts/setup program
	@cmake --preset no-torch -B build/program -DSHARDWAY_TESTS=OFF >/dev/null
	@echo "== building the program" && cmake --build build/program --target shardway_program

# C++ and Python tests side by side: both wait as often as they work. What ctest prints comes at the end.
test: everything  ## build all; run the C++ and Python tests, the examples among them
	@echo "== C++ tests and Python tests, examples among them"
	@ctest --test-dir $(BUILD) --output-on-failure -j 1 >build/ctest.log 2>&1 & cpp=$$!; failed=; \
	  $(PYTHON) -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder tests || failed=yes; \
	  wait $$cpp || failed=yes; grep -v -E "^ *Start +[0-9]+:|   Passed +[0-9.]+ sec *$$" build/ctest.log; test -z "$$failed"

# A thread of qemu 7.2 may hold the lock of GLib's slices while the program forks: the child waits for it for ever.
# With G_SLICE=always-malloc GLib uses malloc, whose locks survive a fork.
test-arm:  ## cross-compile what needs no torch for 64-bit Arm and run its tests under qemu
	@scripts/setup arm
	@cmake --preset arm >/dev/null
	@echo "== building for Arm" && cmake --build build/arm
	@echo "== tests under qemu" && G_SLICE=always-malloc ctest --test-dir build/arm --output-on-failure -j 2

test-mpi: library  ## C++ programs under mpirun of Open MPI and MPICH on network namespaces: all of them, make test runs a part
	@scripts/setup test
	@SHARDWAY_MPI_WHOLE=1 $(PYTHON) -m pytest -q tests/mpi

torch-suite: library  ## PyTorch's own tests of backends, on ours, a sample on two hosts, and its op database on DTensors
	@scripts/setup test
	@$(PYTHON) -m tests.torch_suite
	@$(PYTHON) -m pytest -q tests/torch_suite/op_database.py

# Without torch: its own libraries are not instrumented. Ranks are threads under the thread sanitizer, which sees no race
# between processes; it must find the planted one.
sanitize:  ## tests of what needs no torch under the sanitizers: addresses and undefined behaviour, then threads
	@scripts/setup test
	@cmake --preset asan -B build/asan-no-torch -DSHARDWAY_TORCH=OFF -DCMAKE_CXX_FLAGS=-O1 >/dev/null
	@echo "== building for addresses and undefined behaviour" && cmake --build build/asan-no-torch
	@ctest --test-dir build/asan-no-torch --output-on-failure -j 2
	@cmake --preset tsan -B build/tsan-no-torch -DSHARDWAY_TORCH=OFF -DCMAKE_CXX_FLAGS=-O1 >/dev/null
	@echo "== building for threads" && cmake --build build/tsan-no-torch --target shm_test terms_test planted_race
	@ctest --test-dir build/tsan-no-torch --output-on-failure -j 2 -R "^shm|^terms" -E "^shm.(Copy|Reduce)"

stress: library  ## half an hour of everything at once, every value checked; nothing may crash, hang or grow
	@scripts/setup test
	@$(PYTHON) -m tests.stress $(STRESS)

soak: library  ## an hour of worlds that come and go, ranks killed, stopped, forked and poor in them; zeros are expected
	@scripts/setup test
	@TORCH_CPP_LOG_LEVEL=ERROR $(PYTHON) -m tests.soak --json build/soak/soak.json $(SOAK)

large: library  ## calls of more than 2^31 elements and bytes; takes 12 GiB of memory
	@scripts/setup test
	@SHARDWAY_LARGE=1 $(PYTHON) -m pytest -q tests/python/test_large_counts.py

refits: library  ## 210 random models into poisoned views; trainer and generator killed at ten moments and started again
	@scripts/setup test
	@SHARDWAY_REFITS=70 $(PYTHON) -m pytest -q tests/python/test_link_losses.py \
	  tests/python/test_link.py::test_random_models_lie_in_poisoned_views_as_one_process_would_put_them

faults: library  ## every call with every fault at every moment: who is told what, how soon, and what is left
	@scripts/setup test
	@$(PYTHON) -m tests.faults $(FAULTS)

golden:  ## write the outputs that tests/cli compares with anew, and the list of public names; read the diff
	@scripts/setup test
	@scripts/configure -DSHARDWAY_TESTS=ON
	@cmake --build $(BUILD) --target cli_test shardway_package
	@SHARDWAY_WRITE_GOLDEN=1 $(BUILD)/tests/cli_test --gtest_brief=1 --gtest_filter='*Transcript*'
	@SHARDWAY_WRITE_GOLDEN=1 $(PYTHON) -m pytest -q tests/docs/test_public_names.py -k list

gallery: library  ## ten plans and what they teach: build/gallery/index.html, docs/gallery
	@scripts/setup test
	@PYTHONPATH=$(CURDIR):$(PYTHONPATH) $(PYTHON) -m docs.gallery.build

surface: library  ## make every call of docs/surface.md and write what came of it
	@scripts/setup test
	@PYTHONPATH=$(CURDIR):$(PYTHONPATH) $(PYTHON) -m tests.support.surface

docs: library  ## the documentation site with the references of Python and C++: build/docs/site/index.html; a warning is an error
	@scripts/setup docs
	@$(PYTHON) -m sphinx -b html -W --keep-going -q -d build/docs/doctrees docs build/docs/site
	@doxygen docs/Doxyfile

model:  ## check the protocol of shared memory with Spin, and that it finds the planted faults; two minutes
	@scripts/setup model
	@scripts/check-model

fuzz:  ## a minute of any bytes for the parsers of the program, of files and of what ranks send one another
	@scripts/setup fuzz
	@scripts/fuzz 60

lint:  ## check format, types, names and common mistakes
	@scripts/setup lint
	@echo "== rooms, names and folders" && scripts/check-tree
	@echo "== clang-format" && clang-format-16 --dry-run -Werror $(CPP_FILES)
	@echo "== ruff" && $(PYTHON) -m ruff check --quiet . && $(PYTHON) -m ruff format --check --quiet .
	@echo "== mypy" && $(PYTHON) -m mypy
	@echo "== clang-tidy" && scripts/tidy $(filter-out bench/mpi/% bench/oneccl/% tests/consumer/% tests/mpi/%,$(filter %.cpp,$(CPP_FILES)))

types:  ## pyright on a program that uses every public name; not in make lint, as it has to be fetched
	@scripts/setup build
	@$(PYTHON) -m venv build/types && build/types/bin/pip install --quiet -r requirements-types.txt
	@build/types/bin/pyright --project tests/docs/pyrightconfig.json --pythonpath $(PYTHON)

format:  ## bring the sources into their format
	@scripts/setup lint
	@clang-format-16 -i $(CPP_FILES)
	@$(PYTHON) -m ruff check --quiet --fix . && $(PYTHON) -m ruff format --quiet .

wheel:  ## make dist/torch-$(TORCH)/shardway-*.whl in a fresh environment; TORCH=2.15.0, or TORCH=installed
	@scripts/setup wheel
	@scripts/wheel $(TORCH)

test-torch: wheel  ## install that wheel and run the Python tests that need no other build, beside that torch
	@scripts/test-wheel $(TORCH)

test-two-torches: library  ## a link between a job on the torch of requirements.txt and one on OTHER_TORCH=2.15.0
	@scripts/setup wheel
	@scripts/wheel $(OTHER_TORCH)
	@scripts/setup test
	@scripts/test-two-torches $(OTHER_TORCH)

test-vllm: library  ## vLLM in an environment of its own takes its weights from a link; some GiB, not in CI
	@scripts/setup test
	@scripts/test-vllm

test-install:  ## install as README says, beside TORCH in a fresh environment, and run its first example
	@scripts/setup build
	@scripts/test-install $(TORCH)

sdist:  ## make dist/shardway-*.tar.gz, with the headers that it is compiled with
	@scripts/setup build
	@scripts/sdist

release:  ## make and check what a release holds: the sdist, and a wheel for each torch; uploads nothing
	@scripts/setup wheel
	@scripts/release $(TORCHES)

bench-ragged: library  ## compare the ragged collectives with pad-gather-mask
	@scripts/setup test
	@$(PYTHON) -m bench.ragged

bench-overhead: library  ## what a call costs besides communication
	@scripts/setup test
	@scripts/configure -DSHARDWAY_BENCH=ON
	@cmake --build $(BUILD) --target shm_ranks
	@$(PYTHON) -m bench.overhead

bench-plan: library  ## compare the planner with DTensor's
	@scripts/setup test
	@scripts/configure -DSHARDWAY_BENCH=ON
	@cmake --build $(BUILD) --target large_mesh
	@$(PYTHON) -m bench.plan

bench-redistribute: library  ## compare redistribute with DTensor's and a plain copy
	@scripts/setup test
	@$(PYTHON) -m bench.redistribute

bench-shm: library  ## compare shared memory with the newest MPIs, gloo and a plain copy
	@scripts/setup peers
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the programs of ranks" && cmake --build $(BUILD) --target bench_ranks
	@$(PYTHON) -m bench.shm

bench-peers: library  ## compare shared memory with the newest MPIs at every size, on an idle host and beside busy processes
	@scripts/setup peers
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the programs of ranks" && cmake --build $(BUILD) --target bench_ranks
	@$(PYTHON) -m bench.peers --beside 0 2 4 $(PEERS)

bench-engines: library  ## compare calls from Python with the ones that inference engines have for CPU ranks of a host
	@scripts/setup engines
	@$(PYTHON) -m bench.engines $(ENGINES)

bench-large: library  ## compare large calls with bare pulls, with given, steady and fresh outputs
	@scripts/setup bench
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the programs of ranks" && cmake --build $(BUILD) --target bench_ranks
	@$(PYTHON) -m bench.large

bench-jax: library  ## compare redistribute on 8 ranks with JAX on 8 CPU devices
	@scripts/setup jax
	@$(PYTHON) -m bench.jax_reshard

bench-backend: library  ## compare torch.distributed on the backend "shardway" with gloo, and in C++ with the newest MPIs
	@scripts/setup peers
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the programs of ranks" && cmake --build $(BUILD) --target bench_ranks
	@$(PYTHON) -m bench.backend

bench-before: library  ## compare this tree with another commit, call by call: make bench-before COMMIT=...
	@scripts/setup bench
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the programs of ranks" && cmake --build $(BUILD) --target bench_ranks
	@$(PYTHON) -m bench.before $(COMMIT) $(BEFORE)

bench-hosts: library  ## compare collectives between hosts with a flat exchange, gloo's own, Open MPI's and pad-gather-mask
	@scripts/setup bench
	@scripts/configure -DSHARDWAY_BENCH=ON
	@echo "== building the ranks of Open MPI" && cmake --build $(BUILD) --target bench_openmpi
	@$(PYTHON) -m bench.hosts $(HOSTS)

bench-hosts-simulated: library  ## bytes, messages and time between up to 512 hosts, by the plans that would run
	@scripts/setup test
	@scripts/configure -DSHARDWAY_BENCH=ON
	@cmake --build $(BUILD) --target hosts_simulated
	@$(PYTHON) -m bench.hosts_simulated

bench-lists: library  ## compare a list of tensors in one call with one by one and a plain copy
	@scripts/setup test
	@$(PYTHON) -m bench.lists

bench-refit: library  ## compare a link between two jobs with gather and broadcast, messages, files in memory and a plain copy
	@scripts/setup test
	@$(PYTHON) -m bench.refit $(REFIT)

frames:  ## how many of our functions a call goes through, and those of another commit: make frames COMMIT=...
	@scripts/setup build
	@$(PYTHON) -m bench.frames $(COMMIT)

bench-dtensor: library  ## compare DTensor inside and outside of use_for_dtensor
	@scripts/setup test
	@$(PYTHON) -m bench.dtensor

bench-gpu: library  ## local work and host time of a gather on a GPU, against pad-gather-mask; needs a GPU
	@scripts/setup test
	@$(PYTHON) -m bench.gpu

bench-ipc: library  ## collectives of ranks that share a GPU, against NCCL, torch's sharing and a plain copy; needs a GPU
	@scripts/setup test
	@$(PYTHON) -m bench.ipc

clean:  ## remove what was built; .venv stays
	rm -rf build dist

library:
	@scripts/setup build
	@scripts/configure
	@echo "== building the library and the program" && cmake --build $(BUILD) --target shardway_package

everything:
	@scripts/setup test
	@scripts/configure -DSHARDWAY_TESTS=ON
	@echo "== building the library and the tests" && cmake --build $(BUILD)
