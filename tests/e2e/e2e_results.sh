#!/usr/bin/env bash
# The tables of results/*.md agree with the archived logs of their runs (scripts/results_tables.py), and so do the figures
# in sentences that results/figures lists (scripts/results_figures.py). A page with another number is reported.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"
export NORMA

tables="$SOURCE/scripts/results_tables.py"
"$tables" --check >out 2>err || fail "--check: $(cat out err)"
# The archives contain no text of the corpora.
for archive in "$SOURCE"/results/logs/*.tar.xz; do
    n=$(tar --extract --xz --to-stdout --file "$archive" | grep -c '"samples"')
    [ "$n" = 0 ] || fail "$archive has $n samples of its corpus"
done
mkdir -p copy/scripts copy/results && cp "$tables" copy/scripts
cp -r "$SOURCE/results/logs" "$SOURCE"/results/*.md copy/results
cp -r "$SOURCE/recipes" copy
"$SOURCE/scripts/results_figures.py" --check >out 2>err || fail "figures in sentences: $(cat out err)"
cp "$SOURCE"/scripts/{results_figures,ledger_statistics}.py copy/scripts
printf '%s\n' '[ptb ptb-pn-table3]' "of BatchNorm is {100 * v('BN')['tid_mean_mean']:.1f} %" >copy/results/figures
copy/scripts/results_figures.py --check >out 2>err || fail "a figure in a sentence: $(cat out err)"
sed -i 's/of BatchNorm is [0-9.]* %/of BatchNorm is 9.9 %/' copy/results/ptb.md
copy/scripts/results_figures.py --check >out 2>err
[ $? = 1 ] || fail "a changed figure in a sentence was not found: $(cat out err)"
has out "give: of BatchNorm is 3.4 %"
sed -n '/^\[images ledger-resnet20 images-torch]/,/^$/p' "$SOURCE/results/figures" >copy/results/figures
copy/scripts/results_figures.py --check >out 2>err || fail "PyTorch's accuracy: $(cat out err)"
sed -i 's/interval of -2\.4/interval of -2.3/' copy/results/images.md
copy/scripts/results_figures.py --check >out 2>err
[ $? = 1 ] || fail "a changed interval was not found: $(cat out err)"
cp "$SOURCE/results/images.md" copy/results
cp "$SOURCE/results/ptb.md" copy/results
page=$(grep -l '^<!-- results: ' copy/results/*.md | head -n 1)
[ -n "$page" ] || fail "no page has a table of archived logs"
# The first number with two decimal places after the first marker.
awk '/^<!-- results: / { found = 1 } found == 1 && /^\| [^n]/ && sub(/[0-9]\.[0-9][0-9] /, "9.99 ") { found = 2 } { print }' \
    "$page" >changed && mv changed "$page"
copy/scripts/results_tables.py --check >out 2>err
[ $? = 1 ] || fail "a changed number was not found: $(cat out err)"
has out "differs from its logs"
copy/scripts/results_tables.py --write 2>err || fail "--write: $(cat err)"
cmp -s "$page" "$SOURCE/results/${page##*/}" || fail "--write does not restore the page"
echo "all tables agree with their logs"
