#!/usr/bin/env bash
# Checks that every header compiles standalone and when included twice: all as C, the public ones and a call of a kernel also
# as C++ if there is a C++ compiler. Comments of public headers have one error per line, as "NM_IO: the file cannot be read",
# and no "that of".
#     scripts/check_headers.sh SOURCE CC [FLAG...]
# Prints the compiler's messages for each failure. Exit code: 0 all compile, 1 some do not.
set -uo pipefail
source=$1
shift
compiler=("$@")
cd "$source" || exit 1
n_bad=0
includes=(-Iinclude -Isrc/core -Isrc/task -Isrc/lab -Isrc/app)

compiles() { # language, compiler and flags ...; the translation unit comes on stdin
    local language=$1
    shift
    "$@" -x "$language" -Wall -Wextra -Wshadow -Werror "${includes[@]}" -fsyntax-only - 2>&1 | head -n 5 >&2
}

check() { # header, language, compiler and flags ...
    local header=$1
    shift
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" | compiles "$@" || {
        echo "$header does not compile alone as ${1}" >&2
        n_bad=$((n_bad + 1))
    }
}

mapfile -t public < <(cd include && find norma -name '*.h' | LC_ALL=C sort)
# vector_LEVEL.h are parts of simd.h, which includes the one of its CPU level.
mapfile -t private < <(cd src && find ./*/ -name '*.h' ! -path '*/backend/cpu/vector_*' | sed 's#^\./[a-z]*/##' | LC_ALL=C sort)
for header in "${public[@]}" "${private[@]}"; do
    check "$header" c "${compiler[@]}" -std=c17 -D_GNU_SOURCE
done
statuses='NM_(USAGE|IO|FORMAT|MISMATCH|MEMORY|UNSUPPORTED|DIVERGED|INTERRUPTED|DEVICE)'
if grep -nE "^[ /]\\*+ .*$statuses.*[;.] $statuses: |[^ *] *$statuses( with [^:]*)?: .*\\*/$" include/norma/*.h >&2; then
    echo "an error of a function needs a line" >&2
    n_bad=$((n_bad + 1))
fi
if grep -niE '\b(that|those) of\b' include/norma/*.h >&2; then
    echo "name the noun instead of \"that of\"" >&2
    n_bad=$((n_bad + 1))
fi
# The C++ mode of the C compiler suffices, but a minimal system may lack it.
if echo 'int main() {}' | compiles c++ "${compiler[0]}" 2>/dev/null; then
    for header in "${public[@]}"; do
        check "$header" c++ "${compiler[0]}" -std=c++17
    done
    for standard in c++17 c++20; do
        printf '%s\n' '#include "norma/backend.h"' 'void erase(nm_backend *b, void *data);' \
            'void erase(nm_backend *b, void *data) { NM_CALL(b, zero, .bytes = 8, .data = data); }' |
            compiles c++ "${compiler[0]}" -std=$standard || {
            echo "NM_CALL does not compile as $standard" >&2
            n_bad=$((n_bad + 1))
        }
    done
else
    echo "${compiler[0]} has no C++ mode: the public headers were checked as C only"
fi
echo "${#public[@]} public and ${#private[@]} private headers, $n_bad bad"
[ "$n_bad" -eq 0 ]
