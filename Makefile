# Thin: CMake builds, scripts/ does the rest. `make demo` and `make test` install the Debian packages they miss.
BUILD ?= build
# Ninja where it is there; an existing build folder keeps its own.
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)
JOBS ?= $(shell nproc)

.PHONY: all build configure demo test bench format lint install clean packages-build packages-test packages-demo packages-lint
all: packages-build build

packages-build packages-test packages-demo packages-lint:
	@scripts/packages.sh build $(filter-out build,$(@:packages-%=%))

configure:
	@cmake -S . -B $(BUILD) $(CONFIGURE)

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

test: CONFIGURE = -DNORMA_WERROR=ON -DNORMA_TESTS=ON -DNORMA_EXAMPLES=ON
test: packages-test
	@$(MAKE) --no-print-directory build CONFIGURE='$(CONFIGURE)'
	@scripts/test.sh $(BUILD)
