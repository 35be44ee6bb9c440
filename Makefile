# Thin: CMake builds, scripts/ do the rest. Each target first installs the Debian packages it misses, naming them.
#     make            build into build/              make demo      train and compare five variants, some ten minutes
#     make test       build, run the tests           make lint      formatting, include order, clang-tidy, cppcheck ...
#     make demo-lm    the same for language models   make bench     run the benchmarks [QUICK=1]
#     make format     reformat the sources
#     make install    [PREFIX=/usr/local] [DESTDIR=]
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
# Ninja for a new build folder where it is there; an old folder keeps its own.
GENERATOR = $(if $(wildcard $(BUILD)/CMakeCache.txt),,$(if $(shell command -v ninja),-G Ninja))
SOURCES   = $(shell git ls-files --cached --others --exclude-standard '*.[ch]' '*.inc')

.PHONY: all build test demo demo-lm bench format lint install clean
all: build

build:
	@scripts/packages.sh build
	@cmake -S . -B $(BUILD) $(GENERATOR) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DNORMA_TESTS=OFF)
	@cmake --build $(BUILD) -j $(JOBS)

test:
	@scripts/packages.sh build test
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_WERROR=ON -DNORMA_TESTS=ON -DNORMA_EXAMPLES=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@scripts/test.sh $(BUILD)

demo: build
	@scripts/packages.sh demo
	@scripts/demo.sh $(BUILD)/norma

demo-lm: build
	@scripts/packages.sh demo
	@scripts/demo_lm.sh $(BUILD)/norma

bench:
	@scripts/packages.sh build bench
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_BENCH=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-30000} $(BUILD)/norma-bench $(if $(QUICK),--quick) --json $(BUILD)/bench.json $(BENCH)
	@echo "and as JSON: $(BUILD)/bench.json"

format:
	@scripts/packages.sh lint
	@clang-format -i $(SOURCES)

lint:
	@scripts/packages.sh build test lint
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_TESTS=ON > /dev/null
	@scripts/lint.sh --deep

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)
