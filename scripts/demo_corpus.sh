#!/usr/bin/env bash
# Builds the corpus of the demo: German-English sentences from the help pages of LibreOffice (MPL-2.0), which Debian
# and Ubuntu provide as packages (5 MB). They are unpacked into the output folder, not installed.
#
#     scripts/demo_corpus.sh OUT [HELP]
#
# writes OUT/{train,valid,test}.{de,en}, links {train,valid,test}.{src,tgt} to them, and prints a checksum. HELP is a
# folder with the pages in de/ and en-US/; by default an installed LibreOffice help is used, otherwise the packages
# are downloaded through apt. A complete OUT is not rebuilt.
# Exit codes: 0 done, 2 wrong use or no pages available, 3 reading or writing failed.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
packages=(libreoffice-help-de libreoffice-help-en-us)
parts=(train valid test)

say() { echo "demo corpus: $*" >&2; }

has_pages() { [ -d "$1/de/text" ] && [ -d "$1/en-US/text" ]; }

# Downloads and unpacks the two packages into $1 and keeps only the pages.
fetch_pages() {
    "$here/packages.sh" --fetch "$1" "${packages[@]}" || return $?
    local file
    for file in "$1"/*.deb; do
        dpkg -x "$file" "$1" || return 3
    done
    rm -f "$1"/*.deb
}

checksum() {
    local part side
    for part in "${parts[@]}"; do
        for side in de en; do cat "$1/$part.$side"; done
    done | sha256sum | cut -c1-16
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: scripts/demo_corpus.sh OUT [HELP]" >&2
    exit 2
fi
out=$1
help=${2:-/usr/share/libreoffice/help}

if [ -f "$out/complete" ] && [ "$(cat "$out/complete")" = "$(checksum "$out" 2>/dev/null)" ]; then
    say "$out is complete, checksum $(cat "$out/complete")"
    exit 0
fi
if [ $# -eq 2 ] && ! has_pages "$help"; then
    say "$help does not contain help pages as de/text and en-US/text"
    exit 2
fi
mkdir -p "$out" || exit 3
work=$(mktemp -d "$out/work.XXXXXX") || exit 3
trap 'rm -rf "$work"' EXIT

if ! has_pages "$help"; then
    fetch_pages "$work"
    help=$work/usr/share/libreoffice/help
    if ! has_pages "$help"; then
        say "the packages ${packages[*]} do not contain help pages as de/text and en-US/text"
        exit 3
    fi
fi
python3 "$here/help_pairs.py" "$help/de" "$help/en-US" >"$work/pairs.tsv" || exit 3
python3 "$here/split_pairs.py" "$work" de en <"$work/pairs.tsv" || exit 3
for part in "${parts[@]}"; do
    mv "$work/$part.de" "$work/$part.en" "$out/"
    ln -sf "$part.de" "$out/$part.src"
    ln -sf "$part.en" "$out/$part.tgt"
done
checksum "$out" >"$out/complete"
say "wrote $out/{train,valid,test}.{de,en}, checksum $(cat "$out/complete")"
