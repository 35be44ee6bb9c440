#!/usr/bin/env bash
# e2e_emulated.sh with all modes, structures and `norma bench`.
export MODES="ref fenced emulated cuda"
# shellcheck source=tests/e2e/e2e_emulated.sh
. "${SOURCE:?}/tests/e2e/e2e_emulated.sh"
