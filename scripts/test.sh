#!/usr/bin/env bash
# Runs the tests of a build folder and ends with a line "N passed, N failed".
#     scripts/test.sh BUILD [CTEST-ARGUMENT...]
# A skipped test counts as neither and is named by ctest. Exit code: 0 when every test that ran passed and at least
# one ran, else 1.
set -uo pipefail
build=$1
shift
# Two tests at a time, so few threads each; waiting threads sleep, so that those of the other test can run.
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
# ctest may fail for another cause than a test: a broken build folder, no test at all.
if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then
    echo "no test failed, but ctest ended with $status after $passed tests" >&2
    failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
