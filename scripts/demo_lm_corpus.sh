#!/usr/bin/env bash
# Builds the corpus of the language model demo: the King James Bible (public domain), one verse per line, from Debian's
# and Ubuntu's packages bible-kjv-text and bible-kjv, which are unpacked into the output folder, not installed.
#
#     scripts/demo_lm_corpus.sh OUT [VERSES]
#
# writes OUT/{train,valid,test}.txt and prints a checksum. Of every 20 blocks of 30 verses one is validation and one
# test. VERSES is a file of verses with their references ("Ge1:1 In the beginning ..."), used instead of the
# packages. A complete OUT is not rebuilt.
# Exit codes: 0 done, 2 wrong use or no text available, 3 reading or writing failed.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "demo lm corpus: $*" >&2; }

checksum() {
    cat "$1"/{train,valid,test}.txt | sha256sum | cut -c1-16
}

# Downloads and unpacks the packages into $1; their program writes the verses to $1/verses.
fetch_verses() {
    "$here/packages.sh" --fetch "$1" bible-kjv-text bible-kjv || return $?
    local file
    for file in "$1"/*.deb; do
        dpkg -x "$file" "$1" || return 3
    done
    "$1/usr/bin/bible" -p "$1/usr/lib" -f Gen1:1-Rev22:21 >"$1/verses" || return 3
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: scripts/demo_lm_corpus.sh OUT [VERSES]" >&2
    exit 2
fi
out=$1
if [ -f "$out/complete" ] && [ "$(cat "$out/complete")" = "$(checksum "$out" 2>/dev/null)" ]; then
    say "$out is complete, checksum $(cat "$out/complete")"
    exit 0
fi
mkdir -p "$out" || exit 3
work=$(mktemp -d "$out/work.XXXXXX") || exit 3
trap 'rm -rf "$work"' EXIT
verses=${2:-$work/verses}
if [ $# -eq 1 ]; then
    fetch_verses "$work" || { say "no verses from the packages bible-kjv-text and bible-kjv"; exit 2; }
fi
# A reference, a space, the verse; notes in braces and headings in << >> are removed.
awk -v out="$work" '
    !/^[^ ]+[0-9]+:[0-9]+ / { bad++; next }
    {
        sub(/^[^ ]+ +/, ""); gsub(/\{[^}]*\}|<<[^>]*>>/, ""); gsub(/ +/, " "); sub(/^ /, ""); sub(/ $/, "")
        block = int(n / 30) % 20
        n = n + 1
        print > (out "/" (block == 18 ? "valid" : block == 19 ? "test" : "train") ".txt")
    }
    END { exit n < 1200 || bad > n / 100 }' "$verses" || { say "$verses does not contain the verses"; exit 2; }
mv "$work"/{train,valid,test}.txt "$out/"
checksum "$out" >"$out/complete"
say "wrote $out/{train,valid,test}.txt, $(cat "$out"/*.txt | wc -l) verses, checksum $(cat "$out/complete")"
