#!/usr/bin/env bash
# Runs the tests of a build folder and ends with a line "N passed, N failed".
#     scripts/test.sh BUILD [CTEST-ARGUMENT...]
# A skipped test is not counted and is named by ctest. Exit code: 0 if at least one test ran and none failed, else 1.
set -uo pipefail
build=$1
shift
# Two tests run in parallel, with few threads each; waiting threads sleep, so that they do not block the other test.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

ctest --test-dir "$build" --output-on-failure --timeout "${TEST_TIMEOUT:-600}" -j2 "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
read -r passed failed < <(awk '
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
        if (/ Passed +[0-9.]+ sec *$/) passed++
        else if (!/\*\*\*Skipped /) failed++
    }
    END { print passed + 0, failed + 0 }' "$log")
# ctest can fail without a failed test: a broken build folder, or no test at all.
if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then
    echo "no test failed, but ctest ended with $status after $passed tests" >&2
    failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
