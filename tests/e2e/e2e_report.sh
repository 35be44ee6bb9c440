#!/usr/bin/env bash
# norma report on run folders made here: what is in the page, that nothing in it is anybody's markup, broken logs, the
# pictures, the message where gnuplot is missing, TensorBoard's files.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/e2e/report_runs.sh
. "$here/report_runs.sh"
bad=0
fail() {
    echo "e2e_report: $*"
    bad=1
}
has() { # FILE TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not in $1"
}
lacks() { # FILE TEXT
    ! grep -qF -- "$2" "$1" || fail "'$2' is in $1"
}
refuses() { # CODE MESSAGE ARGUMENT...
    local want=$1 message=$2 code=0
    shift 2
    "$NORMA" report "$@" >out 2>err || code=$?
    [ "$code" = "$want" ] || fail "report $* gave exit code $code instead of $want: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "report $* said other than one line: $(cat err)"
    has err "$message"
}
make_runs

# ---- without gnuplot: what is missing and its package; the rest of the program does without ----
mkdir empty
code=0
PATH=$work/empty "$NORMA" report runs/layer-1 -o page.html 2>err || code=$?
[ "$code" = 7 ] || fail "without gnuplot the exit code is $code"
has err "gnuplot-nox"
[ -e page.html ] && fail "a page was left without its figures"

# ---- what is no run ----
refuses 2 "too few arguments"
refuses 3 "runs/nowhere/log.jsonl" runs/nowhere -o page.html
mkdir -p runs/odd/log.jsonl
refuses 3 "runs/odd/log.jsonl" runs/odd -o page.html
rm -r runs/odd

if ! command -v gnuplot >/dev/null; then
    [ "$bad" = 0 ] && echo "skipped: there is no gnuplot (Debian package gnuplot-nox) to draw figures with"
    exit $bad
fi
refuses 3 "no/folder/page.html" runs/layer-1 -o no/folder/page.html
echo '{}' >inspected.json
refuses 4 "inspected.json:1" runs/layer-1 -o page.html --inspected inspected.json
printf '[\n{"run":' >inspected.json
refuses 4 "inspected.json:" runs/layer-1 -o page.html --inspected inspected.json

# ---- what was measured and kept in a run ----
echo '[{"update":600,"spectrum":{"values":[1,0.4' >runs/layer-1/inspection.json
refuses 4 "runs/layer-1/inspection.json:" runs/layer-1 -o page.html
echo '[{"run":"elsewhere","update":600,"spectrum":{"largest":7,"values":[1,0.4,0.1]}}]' >runs/layer-1/inspection.json
"$NORMA" report runs/layer-1 -o page.html 2>err || fail "report of an inspected run: $(cat err)"
has page.html '<figure id="singular-values">'
rm runs/layer-1/inspection.json

# ---- a page of several runs ----
printf '[{"run":"runs/batch-1/","update":600,"condition":[{"stack":"enc","layer":0,"c50":3,"c80":9,"cmax":99}],"spectrum":{"largest":7,"values":[1,0.4,0.1]}}]' >inspected.json
"$NORMA" report runs/* -o page.html --inspected inspected.json 2>err || fail "report: $(cat err)"
for figure in valid-loss valid-loss-time train-loss score score-time perplexity running-gap distance-mean distance-variance \
    tid-mean tid-variance tid-score gradient-norm gain learned-g singular-values condition-50; do
    has page.html "<figure id=\"$figure\">"
done
lacks page.html '<figure id="penalty">' # all zero
has page.html "Penalty of the norms: recorded for norms with a penalty"
has page.html "power-1 has the lowest value, 2.455 at update 600"
has page.html "is behind power-1 from the start"
has page.html "a <mark>batch</mark> dog"
has page.html "Worse than layer-1. Over 3 runs TID and gap have a correlation of 1.00; so few points prove little."
has page.html "<td>0.030</td>"
has page.html "<h3>Validation BLEU against time</h3>"
has page.html "3 lines of log.jsonl cannot be read, the first is line 146."
has page.html "cut: the last line of log.jsonl has no end"
has page.html "<tr><th scope=\"row\">model.norm</th>"
lacks page.html "<tr><th scope=\"row\">run.folder</th>"

# ---- nobody's markup, no other place to load from ----
lacks page.html "<img"
lacks page.html "<b>Hund"
lacks page.html "<script>alert"
has page.html "&lt;img src=x onerror=alert(1)&gt;"
grep -oE '(src|href|url\()[=( "]*[^"# ]*' page.html | grep -vE "^xlink:href|^(src|href|url\()[=( ]*[\"']?$" | grep -E 'https?:|//' &&
    fail "the page names another place"
grep -oE 'https?://[^"'"'"' ]*' page.html | grep -vE '^http://www.w3.org/(2000/svg|1999/xlink)$' && fail "the page has an address"

# ---- the same runs, the same page; without the corpus' sentences ----
"$NORMA" report runs/* -o again.html --inspected inspected.json 2>err || fail "report again: $(cat err)"
cmp -s page.html again.html || fail "two pages of the same runs differ"
"$NORMA" report runs/* --no-samples -o bare.html 2>err || fail "report --no-samples: $(cat err)"
lacks bare.html "Hund"
lacks bare.html "id=\"samples\""
ls ./*.html.* >/dev/null 2>&1 && fail "files were left beside the page: $(ls)"

# ---- one run; one that has just begun; one that holds nothing of use ----
mkdir -p runs/new runs/noise
: >runs/new/log.jsonl
head -c 5000 /dev/urandom >runs/noise/log.jsonl
for run in layer-1 cut new noise; do
    "$NORMA" report "runs/$run" -o one.html 2>err || fail "report of $run alone: $(cat err)"
    has one.html "</html>"
done
has one.html "cannot be read"
"$NORMA" report runs/new -o one.html 2>err || fail "report of an empty log: $(cat err)"
has one.html "nothing has been logged yet"

# ---- pictures ----
"$NORMA" report runs/layer-1 runs/batch-1 --output= --png pictures 2>err || fail "report --png: $(cat err)"
[ "$(head -c 4 pictures/valid-loss.png | tail -c 3)" = PNG ] || fail "valid-loss.png is no PNG"
[ "$(find pictures -type f ! -name '*.png' | wc -l)" = 0 ] || fail "other files lie beside the pictures: $(ls pictures)"

# ---- event files for TensorBoard ----
if "$NORMA" report runs/batch-1 --output= --tensorboard events 2>err; then
    file=$(echo events/batch-1/events.out.tfevents.*.norma)
    [ -s "$file" ] || fail "no event file: $(ls -R events)"
    for tag in train/loss valid/bleu probe/gain/enc.1.ffn.norm/histogram samples/text brain.Event:2; do
        grep -qaF "$tag" "$file" || fail "$tag is not in the event file"
    done
    "$NORMA" report runs/batch-1 --output= --tensorboard events 2>err
    [ "$(find events -type f | wc -l)" = 1 ] || fail "the event file of the first time has stayed"
else
    has err "libprotobuf-c-dev"
fi
exit $bad
