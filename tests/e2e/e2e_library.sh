#!/bin/bash
# The examples of the library with trained models: their output is that of the program.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"
# shellcheck source=tests/e2e/library_models.sh
. "$SOURCE/tests/e2e/library_models.sh"

# runs_example CODE NAME ARGUMENTS...: stdin from $input; the output is in out and err.
runs_example() {
    local code=$1 name=$2
    shift 2
    got=0
    cases=$((cases + 1))
    "${BUILD:?}/examples/$name" "$@" <"${input:-/dev/null}" >out 2>err || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $name $*: $(head -c 600 err)"
    [ "$code" != 0 ] || [ ! -s err ] || fail "$name writes to stderr: $(head -c 600 err)"
}

# ---- translate ----
make_translation_run
{
    cat train.de
    echo
    cat valid.de train.de train.de
    echo 'ein unbekanntes Wörtchen'
} >in
"$NORMA" translate run-translate in --beam 4 --output expected
input=in runs_example 0 translate run-translate
same expected out
input=in runs_example 0 translate run-translate/last.safetensors
input=/dev/null runs_example 0 translate run-translate
[ ! -s out ] || fail "output for no input"
runs_example 2 translate
has err 'path of the model is NULL'
runs_example 3 translate nowhere
has err nowhere
printf 'haus\nbl\xffau\n' >broken
input=broken runs_example 4 translate run-translate
has err 'text 1: not UTF-8: byte 0xff at position 3'
[ "$(grep -cv '^ \*\|^/\*' "$SOURCE/examples/translate.c")" -le 40 ] || fail "the example has more than 40 lines"

echo "e2e_library: $cases checks"
