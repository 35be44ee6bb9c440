#!/usr/bin/env bash
# Line coverage of the tests: a build with GCC's --coverage, all tests, then a table by folder of src/.
#     scripts/coverage.sh [CTEST-ARGUMENT...]        e.g. -R '^test_' for the unit tests only
# $BUILD (default build-coverage) is the build folder; coverage.txt in it lists the lines that no test runs.
# Exit code: 0 if no test failed and src, src/app/cli and src/lab/report reach their minimum.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build-coverage}
generator=()
[ -e "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
mkdir -p "$build"
# Without this object, lines of processes that end with _exit() or execute another program would not be counted.
"${CC:-gcc}" -O1 -c scripts/coverage_exit.c -o "$build/coverage_exit.o" || exit 1
wrap="$(cd "$build" && pwd)/coverage_exit.o -Wl,--wrap=_exit,--wrap=execv,--wrap=execvp"
if ! { cmake -S . -B "$build" "${generator[@]}" -DCMAKE_C_COMPILER="${CC:-gcc}" -DCMAKE_BUILD_TYPE=Coverage \
    -DCMAKE_C_FLAGS_COVERAGE="-O1 --coverage" -DCMAKE_EXE_LINKER_FLAGS_COVERAGE="--coverage $wrap" \
    -DCMAKE_SHARED_LINKER_FLAGS_COVERAGE=--coverage -DCMAKE_MODULE_LINKER_FLAGS_COVERAGE=--coverage -DNORMA_TESTS=ON -DNORMA_EXAMPLES=ON -DNORMA_BENCH=OFF &&
    cmake --build "$build" -j "$(nproc)"; } >"$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log" >&2
    exit 1
fi
# Every user may write the counts: some cases run without root privileges.
find "$build" -name '*.gcda' -delete
find "$build" -name '*.gcno' | sed 's/gcno$/gcda/' | xargs -r -d '\n' sh -c 'touch "$@" && chmod 666 "$@"' _
# Where a test limits the size of files, counts cannot be written; the test expects one line of error, that of the program.
export GCOV_ERROR_FILE=/dev/null
scripts/test.sh "$build" "$@"
tests=$?
find "$build" -name '*.gcda' -empty -delete
scripts/coverage.py --minimum src=97 --minimum src/app/cli=95 --minimum src/lab/report=95 "$build" && exit "$tests"
