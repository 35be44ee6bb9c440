# CMake builds; scripts/ do the rest. Each target first names and installs missing Debian packages (asking before sudo,
# unless YES=1 or CI is set).
#     make            build into build/              make demo      train and compare four variants, 4 to 7 minutes
#     make test       build, test [ALL=1: all tests] make lint      formatting, includes, language, clang-tidy, cppcheck ...
#     make demo-lm    the same for language models   make bench     run the benchmarks [QUICK=1]
#     make format     reformat the sources                       make bench-peers  compare with PyTorch and CTranslate2
#     make test-python  the tests of the Python package with Debian's NumPy and PyTorch
#     make test-python-oldest  the modules for PyTorch with version 2.1 of PyPI
#     make test-python-latest  the same and norma convert with the newest packages of PyPI
#     make docs       the documentation site of all pages and the Python package in build/docs
#     make test-interchange  norma convert against CTranslate2, transformers and Marian from PyPI
#     make test-peers  scores and subwords of other programs from PyPI, with their own test data (tests/peers)
#     make fault      fault injection: every command with every failing call [FAULTS_OPTIONS="--commands train"]
#     make soak       a training run that is killed KILLS=500 times and resumed each time
#     make test-slurm  norma compare --slurm with Slurm, which is started for the test (slurm-wlm, munge; as root)
#     make mutants    mutation tests: deliberate bugs that the tests must find [MUTANTS='--jobs 2 src/core/norm']
#     make coverage   lines of src/ that the tests run, by folder [TESTS='-R ^test_' for a part of the tests]
#     make fuzz       fuzz targets with Clang's sanitizers [SECONDS=60] each [TARGETS='model state']
#     make ledger  results/README.md from the archived runs
#     make install    [PREFIX=/usr/local] [DESTDIR=]
#     make dist       source archive of the last commit and its SHA-256 in $(BUILD)
BUILD  ?= build
PREFIX ?= /usr/local
WERROR ?= OFF
JOBS   ?= $(shell nproc)
WORKS  ?= train,lm,decode,norms
ROUNDS ?= 5
STEPS  ?= 8
PEERS  ?= $(BUILD)/peers
# Ninja for a new build folder if it is installed; an existing folder keeps its generator.
GENERATOR = $(if $(wildcard $(BUILD)/CMakeCache.txt),,$(if $(shell command -v ninja),-G Ninja))
SOURCES   = $(shell git ls-files --cached --others --exclude-standard '*.[ch]' '*.inc')

.PHONY: all build quiet-build test test-slurm fault soak mutants coverage fuzz test-python test-python-latest test-python-oldest docs test-interchange test-peers demo demo-lm ledger bench bench-peers format lint install dist clean
all: build

build:
	@scripts/packages.sh build
	@cmake -S . -B $(BUILD) $(GENERATOR) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DNORMA_TESTS=OFF)
	@cmake --build $(BUILD) -j $(JOBS)

# The program alone, without the output of the build.
quiet-build:
	@scripts/packages.sh build
	@echo "building in $(BUILD)"
	@mkdir -p $(BUILD)
	@{ cmake -S . -B $(BUILD) $(GENERATOR) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DNORMA_TESTS=OFF) && \
	    cmake --build $(BUILD) -j $(JOBS) --target norma_program; } > $(BUILD)/build.log 2>&1 || { tail -n 40 $(BUILD)/build.log >&2; exit 1; }

test-slurm: build
	@NORMA=$(BUILD)/norma SOURCE=. bash tests/slurm/real_slurm.sh

test:
	@scripts/packages.sh build test
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_WERROR=$(WERROR) -DNORMA_TESTS=ON -DNORMA_EXAMPLES=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@scripts/test.sh $(BUILD) $(if $(ALL),,-LE thorough)

test-python:
	@scripts/packages.sh build test python
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_TESTS=ON
	@cmake --build $(BUILD) -j $(JOBS) --target norma_python norma_program
	@scripts/test.sh $(BUILD) -R '^python$$'

# The newest packages of PyPI in a virtual environment of the build folder, and the wheel of this tree, whose program is used. The
# wheel is built in $(BUILD)-wheel. PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu installs PyTorch without CUDA.
# pymarian has no wheel for some versions of Python; the cases with Marian are then left out.
test-python-latest:
	@scripts/packages.sh build
	@[ -x $(BUILD)/latest-venv/bin/python ] || python3 -m venv $(BUILD)/latest-venv
	@$(BUILD)/latest-venv/bin/pip install -q --upgrade numpy torch transformers ctranslate2 sentencepiece pandas pytest mypy ruff \
	    accelerate peft lightning onnxruntime onnxscript datasets nbclient ipykernel \
	    torchao bitsandbytes optimum-quanto
	@$(BUILD)/latest-venv/bin/pip install -q --upgrade pymarian || echo 'without pymarian: it has no wheel for this Python'
	@$(BUILD)/latest-venv/bin/pip install -q --force-reinstall --no-deps -C build-dir=$(BUILD)-wheel .
	@$(BUILD)/latest-venv/bin/pip list 2>/dev/null | \
	    grep -iE '^(ctranslate2|mypy|norma|numpy|pandas|pymarian|sentencepiece|torch|transformers) '
	@$(BUILD)/latest-venv/bin/mypy --strict --cache-dir $(BUILD)/mypy-cache python/norma
	@$(BUILD)/latest-venv/bin/mypy --strict --cache-dir $(BUILD)/mypy-cache python/tests/typed_program.py
	@$(BUILD)/latest-venv/bin/ruff check --no-cache python
	@cd $(BUILD) && latest-venv/bin/python -m pytest -q -p no:cacheprovider $(CURDIR)/python/tests
	@rm -rf $(BUILD)/interchange
	@$(BUILD)/latest-venv/bin/python tests/interchange/check.py $(BUILD)/latest-venv/bin/norma $(BUILD)/interchange
	@$(BUILD)/latest-venv/bin/python tests/interchange/training.py $(BUILD)/latest-venv/bin/norma $(BUILD)/interchange/training
	@$(BUILD)/latest-venv/bin/python tests/interchange/images.py $(BUILD)/latest-venv/bin/norma $(BUILD)/interchange/images

# The oldest PyTorch for which the package is tested; needs Python 3.8 to 3.11.
test-python-oldest:
	@scripts/packages.sh build
	@cmake -S . -B $(BUILD) $(GENERATOR)
	@cmake --build $(BUILD) -j $(JOBS) --target norma_python norma_program
	@[ -x $(BUILD)/oldest-venv/bin/python ] || python3 -m venv $(BUILD)/oldest-venv
	@$(BUILD)/oldest-venv/bin/pip install -q 'torch==2.1.*' 'numpy<2' pytest
	@NORMA_LIBRARY=$(abspath $(BUILD))/python/libnorma.so NORMA=$(abspath $(BUILD))/norma SOURCE=$(CURDIR) \
	    PYTHON=$(BUILD)/oldest-venv/bin/python bash python/tests/run.sh

# Debian's python3-sphinx, python3-myst-parser, python3-numpy, python3-torch. Warnings are errors.
docs:
	@scripts/packages.sh build python docs
	@cmake -S . -B $(BUILD) $(GENERATOR)
	@cmake --build $(BUILD) -j $(JOBS) --target norma_python norma_program
	@NORMA_LIBRARY=$(abspath $(BUILD))/python/libnorma.so NORMA_PROGRAM=$(abspath $(BUILD))/norma PYTHONDONTWRITEBYTECODE=1 \
	    sphinx-build -q -W --keep-going -b html -c python/docs . $(BUILD)/docs
	@echo '<meta http-equiv="refresh" content="0; url=python/docs/site.html">' > $(BUILD)/docs/index.html
	@echo "$(BUILD)/docs/index.html"

test-interchange: quiet-build
	@python3 -m venv $(BUILD)/interchange-venv
	@$(BUILD)/interchange-venv/bin/pip install -q ctranslate2 transformers sentencepiece torch
	@$(BUILD)/interchange-venv/bin/pip install -q pymarian || echo 'without pymarian: it has no wheel for this Python'
	@rm -rf $(BUILD)/interchange
	@$(BUILD)/interchange-venv/bin/python tests/interchange/check.py $(BUILD)/norma $(BUILD)/interchange
	@$(BUILD)/interchange-venv/bin/python tests/interchange/training.py $(BUILD)/norma $(BUILD)/interchange/training
	@$(BUILD)/interchange-venv/bin/python tests/interchange/defaults.py $(BUILD)/norma $(BUILD)/interchange/defaults
	@$(BUILD)/interchange-venv/bin/python tests/interchange/images.py $(BUILD)/norma $(BUILD)/interchange/images

test-peers: quiet-build
	@python3 -m venv $(BUILD)/peers-venv
	@$(BUILD)/peers-venv/bin/pip install -q -r tests/peers/requirements.txt
	@$(BUILD)/peers-venv/bin/python tests/peers/peers.py $(BUILD)/norma $(BUILD)/peers

# results/README.md and the table of README.md, from the archived runs.
ledger:
	@scripts/ledger.py --write

demo: quiet-build
	@scripts/packages.sh demo
	@scripts/demo.sh $(BUILD)/norma

demo-lm: quiet-build
	@scripts/packages.sh demo
	@scripts/demo_lm.sh $(BUILD)/norma

bench:
	@scripts/packages.sh build bench
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_BENCH=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-1000} $(BUILD)/norma-bench $(if $(QUICK),--quick) --json $(BUILD)/bench.json $(BENCH)
	@echo "JSON: $(BUILD)/bench.json"

# Every fault of every command; the table of tries is $(BUILD)/fault-injection.md. A part: FAULTS_OPTIONS='--commands train'.
fault:
	@scripts/packages.sh build test
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_TESTS=ON
	@cmake --build $(BUILD) -j $(JOBS) --target norma_program fail_syscall fail_allocation
	@FAULTS=all NORMA=$(abspath $(BUILD))/norma SOURCE=$(CURDIR) BUILD=$(abspath $(BUILD)) nice bash tests/fault/run_faults.sh

# A run that is killed KILLS times, at random times and while it writes, ends with the weights of one that is not.
soak: build
	@KILLS=$(or $(KILLS),500) NORMA=$(abspath $(BUILD))/norma SOURCE=$(CURDIR) BUILD=$(abspath $(BUILD)) nice bash tests/e2e/e2e_kill.sh

mutants:
	@scripts/packages.sh build test
	@nice scripts/listed_mutants.py $(MUTANTS)

coverage:
	@scripts/packages.sh build test
	@nice scripts/coverage.sh $(TESTS)

SECONDS ?= 60
fuzz:
	@scripts/packages.sh build sanitize
	@nice scripts/fuzz.sh $(SECONDS) $(TARGETS)

format:
	@scripts/packages.sh lint
	@clang-format -i $(SOURCES)

# Norma and the current PyTorch and CTranslate2 from PyPI alternately, on an idle machine; one to two hours.
#     make bench-peers [QUICK=1] [WORKS=train,lm,decode,norms] [MATCH=GPT-2] [ROUNDS=5] [STEPS=8] [PEERS=FOLDER] [IMAGES=FOLDER]
# QUICK: small models, half an hour; MATCH: works whose name contains the text; PEERS: the virtual environment;
# IMAGES: train and test of CIFAR-10, a folder per class.
bench-peers:
	@scripts/packages.sh build bench
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_BENCH=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@[ -x $(PEERS)/bin/python ] || python3 -m venv $(PEERS)
	@$(PEERS)/bin/pip install --quiet --upgrade torch numpy pillow ctranslate2
	@NORMA=$(BUILD)/norma BENCH=$(BUILD)/norma-bench $(PEERS)/bin/python bench/peers/bench_peers.py \
	    --works $(WORKS) --match '$(MATCH)' --rounds $(ROUNDS) --steps $(STEPS) $(if $(QUICK),--quick) $(if $(IMAGES),--images '$(IMAGES)')
	@$(PEERS)/bin/python bench/peers/performance_page.py --write

lint:
	@scripts/packages.sh build test lint
	@cmake -S . -B $(BUILD) $(GENERATOR) -DNORMA_TESTS=ON > /dev/null
	@scripts/lint.sh --deep

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

dist:
	@mkdir -p $(BUILD)
	@version=$$(sed -nE 's/^project\(norma VERSION ([0-9.]+).*/\1/p' CMakeLists.txt) && name=norma-$$version && \
	    git archive --format=tar.gz --prefix=$$name/ -o $(BUILD)/$$name.tar.gz HEAD && \
	    cd $(BUILD) && sha256sum $$name.tar.gz > $$name.tar.gz.sha256 && echo "$(BUILD)/$$name.tar.gz"

clean:
	@rm -rf $(BUILD)
