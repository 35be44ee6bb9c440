#!/bin/sh
# Writes the tables of normalizations to docs/norms.md and docs/formats.md, between the comments
# <!-- norm_tables TABLE --> and <!-- end of table -->. With --check: exit code 1 if a table differs.
#
#     scripts/norm_tables.sh [--check] [BUILD]
set -eu
check=
[ "${1:-}" != --check ] || { check=1; shift; }
source=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$source/build}/examples/norm_tables
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" types >"$work/types"
"$program" tensors >"$work/tensors"
"$program" costs >"$work/costs"
status=0
for file in docs/norms.md docs/formats.md; do
    awk -v work="$work" '
        /^<!-- end of table -->$/ { inside = 0 }
        !inside { print }
        /^<!-- norm_tables [a-z]+ -->$/ {
            inside = 1
            while ((getline line < (work "/" $3)) > 0) print line
        }' "$source/$file" >"$work/file"
    cmp -s "$work/file" "$source/$file" && continue
    if [ "$check" ]; then
        echo "$file: the table of normalizations is not that of the descriptors; run scripts/norm_tables.sh" >&2
        status=1
    else
        cp "$work/file" "$source/$file"
    fi
done
exit $status
