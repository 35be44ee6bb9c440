#!/bin/sh
# Writes the tables of normalizations to docs/norms.md, between the comments
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
# Norms with equal costs share a row.
"$program" costs | awk '
    /^\| `/ {
        cells = substr($0, length($2) + 4)
        if (!(cells in names)) order[++n] = cells
        names[cells] = names[cells] (cells in names && names[cells] != "" ? ", " : "") $2
        next
    }
    { print }
    END { for (i = 1; i <= n; i++) print "| " names[order[i]] " " order[i] }' >"$work/costs"
page=docs/norms.md
awk -v work="$work" '
    /^<!-- end of table -->$/ { inside = 0 }
    !inside { print }
    /^<!-- norm_tables [a-z]+ -->$/ {
        inside = 1
        while ((getline line < (work "/" $3)) > 0) print line
    }' "$source/$page" >"$work/page"
cmp -s "$work/page" "$source/$page" && exit
if [ "$check" ]; then
    echo "$page: the table of normalizations is not that of the descriptors; run scripts/norm_tables.sh" >&2
    exit 1
fi
cp "$work/page" "$source/$page"
