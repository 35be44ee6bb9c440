#!/usr/bin/env bash
# Checks that the shared library exports exactly the functions and tables that include/norma declares, with the
# version of its SONAME.
#     scripts/check_symbols.sh SOURCE LIBRARY [VERSION]
# VERSION: the version of the symbols, "NORMA_0"; without it they have none. Prints one line per difference. Exit code: 0
# none, 1 some.
set -euo pipefail
export LC_ALL=C
source=$1 library=$2 version=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Declarations outside types and functions: without comments, preprocessor lines and the contents of braces.
for header in "$source"/include/norma/*.h; do
    perl -0777 -ne '
        s{/\*.*?\*/}{}gs; s{^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n}{}gm; s{extern "C" \{}{}g;
        1 while s{\{[^{}]*\}}{;}g;
        for (split /;/) {
            next if /\b(typedef|static)\b/;
            s/__attribute__\s*\(\(.*?\)\)//gs;
            print "$1\n" if /\b(nm_\w+)\s*(\(|\[)/;
        }' "$header"
done | sort -u >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u >"$work/versioned"
sed 's/@.*//' "$work/versioned" >"$work/exported"

bad=0
while IFS= read -r name; do
    echo "exported, but not declared in include/norma: $name"
    bad=1
done < <(comm -13 "$work/declared" "$work/exported")
while IFS= read -r name; do
    echo "declared in include/norma, but not exported: $name"
    bad=1
done < <(comm -23 "$work/declared" "$work/exported")
if [ -n "$version" ]; then
    while IFS= read -r name; do
        echo "not of version $version: $name"
        bad=1
    done < <(grep -v "@@$version\$" "$work/versioned")
    expected=libnorma.so.${version#NORMA_}
    soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    [ "$soname" = "$expected" ] || { echo "the SONAME is '$soname', not $expected"; bad=1; }
fi
echo "$(wc -l <"$work/exported") symbols exported, $(wc -l <"$work/declared") declared"
exit $bad
