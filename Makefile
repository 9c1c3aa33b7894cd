# One line a job; CONTRIBUTING.md explains each. PROMPT, MODEL, SECONDS and ARGS may be given: make run PROMPT="Hello".
MODEL ?= smollm2-135m
SECONDS ?= 3600
SEED ?= 1
STEPS ?= 100000
export PATH := $(PATH):$(HOME)/.cargo/bin
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
cd := cd $(dir $(abspath $(lastword $(MAKEFILE_LIST)))) &&

.PHONY: build run test bench sim fuzz tidy format setup clean

build:
	@$(cd) tools/setup build && tools/build release

run: build
	@$(cd) tools/run_model "$(MODEL)" $(if $(PROMPT),--prompt "$$PROMPT") $(ARGS)

test:
	@$(cd) tools/setup test && tools/run_tests $(ARGS)

bench: build
	@$(cd) bench/vs_llamacpp $(ARGS)

sim:
	@$(cd) tools/setup build && tools/build release sim && build/release/bin/sim --requests 1000000000 --seed $(SEED) --steps $(STEPS) $(ARGS)

fuzz:
	@$(cd) tools/setup test && tools/build asan && tools/fuzz $(SECONDS)

tidy:
	@$(cd) tools/tidy

format:
	@$(cd) git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

setup:
	@$(cd) tools/setup test

clean:
	@$(cd) rm -rf build .venv
