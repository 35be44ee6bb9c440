#!/bin/bash
# Fault injection: one fault of every command and kind; FAULTS=all (make fault): all of them.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"
# shellcheck source=tests/e2e/library_models.sh
. "$SOURCE/tests/e2e/library_models.sh"

tools=${BUILD:?}/tests/fault
[ -x "$tools/fail_syscall" ] || { echo "fault injection is for x86-64 Linux"; exit 77; }
export OMP_NUM_THREADS=1
make_library_runs || fail 'the models were not made'
options=(--sample 1)
[ "${FAULTS:-}" != all ] || options=(--verbose --markdown "${FAULTS_TABLE:-$BUILD/fault-injection.md}")
options+=(--jobs "${JOBS:-$(nproc)}")
[ -e "$tools/libfail_allocation.so" ] || options+=(--kinds '^(?!allocation)')
# shellcheck disable=SC2086
python3 "$SOURCE/tests/fault/fault_matrix.py" --norma "$NORMA" --tools "$tools" "${options[@]}" ${FAULTS_OPTIONS:-}
