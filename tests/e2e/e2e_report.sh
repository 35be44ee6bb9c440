#!/usr/bin/env bash
# norma report on generated run folders: contents of the page, escaping, damaged logs, PNG files, the message without
# gnuplot, TensorBoard event files.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# shellcheck source=tests/e2e/report_runs.sh
. "$SOURCE/tests/e2e/report_runs.sh"
make_runs

# ---- without gnuplot: the message names the package ----
mkdir empty
code=0
PATH=$work/empty "$NORMA" report runs/layer-1 -o '' --svg pictures 2>err || code=$?
[ "$code" = 7 ] || fail "without gnuplot the exit code is $code"
has err "gnuplot-nox"
PATH=$work/empty "$NORMA" report runs/layer-1 -o page.html 2>err || fail "the page needs gnuplot: $(cat err)"
rm -rf page.html pictures

# ---- not a run ----
refuses 2 "too few arguments" report
refuses 3 "runs/nowhere/log.jsonl" report runs/nowhere runs/nothing -o page.html
mkdir -p empty/deeper
refuses 3 "empty/log.jsonl: No such file or directory; expected the folder of a run, a comparison or a study" \
    report empty -o page.html
accepts 'page.html: 6 runs' report runs -o page.html
rm -r empty page.html
mkdir runs/empty
accepts 'norma: warning: runs/empty has no log.jsonl and is left out' report runs/empty runs/layer-1 -o '' --tensorboard events
[ "$(find events -name '*tfevents*' | wc -l)" = 1 ] || fail "not the events of one run: $(find events)"
rm -r runs/empty events
refuses 2 "report: nothing to write" report runs/layer-1 -o ''
refuses 2 "report.png_width = 600 has no effect" report runs/layer-1 --png-width 600
refuses 3 "runs/nowhere/log.jsonl" report runs/nowhere -o page.html
refuses 2 "the name of a run folder is empty" report runs/layer-1 '' -o page.html
mkdir -p runs/odd/log.jsonl
refuses 3 "runs/odd/log.jsonl" report runs/odd -o page.html
rm -r runs/odd

if ! command -v gnuplot >/dev/null; then
    [ "$failures" = 0 ] || exit 1
    echo "skipped: there is no gnuplot (Debian package gnuplot-nox) to draw figures with"
    exit 77
fi
refuses 3 "no/folder/page.html" report runs/layer-1 -o no/folder/page.html
echo '{}' >inspected.json
refuses 4 "inspected.json:1" report runs/layer-1 -o page.html --inspected inspected.json
printf '[\n{"run":' >inspected.json
refuses 4 "inspected.json:" report runs/layer-1 -o page.html --inspected inspected.json

# ---- measurements stored in a run ----
echo '[{"update":600,"spectrum":{"values":[1,0.4' >runs/layer-1/inspection.json
refuses 4 "runs/layer-1/inspection.json:" report runs/layer-1 -o page.html
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
has page.html "Penalties: RBN, guided alignment: recorded for norms with a penalty"
has page.html "power-1 has the highest validation BLEU, 30; next is layer-1 with 29."
has page.html "a <mark>batch</mark> dog"
has page.html '">p (Holm)<'
has page.html '<td data-value="0.09">0.090</td>'
lacks page.html "p (uncorrected)"
has page.html '<tr><th scope="row">parameters</th><td>1,234,567</td></tr>'
has page.html '<tr><th scope="row">size of the training data</th><td>28,461 sentence pairs</td></tr>'
has page.html '<tr><th scope="row">data folder</th><td>data/corpus</td></tr>'
has page.html '<tr><th scope="row">host</th><td>&lt;b&gt;box&lt;/b&gt;</td></tr>'
has page.html '<tr><th scope="row">started (UTC)</th><td>2026-03-01T10:00:00Z</td></tr>'
has page.html '<a href="#training">What was trained</a>'
"$NORMA" report runs/{layer,batch,power,rbn}-1 -o tested.html 2>err || fail "report of tested runs: $(cat err)"
has tested.html "power has the highest test BLEU, 26.5 (20 to 30); next is layer with 25.5 (20 to 30). Intervals are 95 %. No difference between power and layer is shown (p = 0.09, Holm)."
has page.html "BLEU: <code>nrefs:1</code>."
has page.html "<h3>Validation BLEU against time</h3>"
has page.html "3 lines of log.jsonl cannot be read, the first is line 146."
has page.html "cut: the last line of log.jsonl is incomplete"
has page.html "<tr><th scope=\"row\">model.norm</th>"
lacks page.html "<tr><th scope=\"row\">run.folder</th>"

# ---- escaped text, no external resources ----
lacks page.html "<img"
lacks page.html "<b>Hund"
lacks page.html "<script>alert"
has page.html "&lt;img src=x onerror=alert(1)&gt;"
grep -oE '(src|href|url\()[=( "]*[^"# ]*' page.html | grep -vE "^xlink:href|^(src|href|url\()[=( ]*[\"']?$" | grep -E 'https?:|//' &&
    fail "the page loads an external resource"
urls() { grep -oE 'https?://[^"'"'"' ]*' "$1" | sort -u; } # the comments of uPlot have some
[ -z "$(comm -23 <(urls page.html) <(urls "$SOURCE/third_party/uPlot/uPlot.iife.js"))" ] || fail "the page contains a URL"

# ---- identical pages from identical runs; without samples ----
"$NORMA" report runs/* -o again.html --inspected inspected.json 2>err || fail "report again: $(cat err)"
cmp -s page.html again.html || fail "two pages of the same runs differ"
"$NORMA" report runs/* --no-samples -o bare.html 2>err || fail "report --no-samples: $(cat err)"
lacks bare.html "Hund"
lacks bare.html "id=\"samples\""
ls ./*.html.* >/dev/null 2>&1 && fail "temporary files were left: $(ls)"

# ---- one run; an empty log; a log of random bytes ----
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

# ---- names: short and unique ----
mkdir -p long/a long/b
cp -r runs/layer-1 'long/a/rbn:norm.rbn.lambda=0.1:norm.rbn.nu=1-1'
cp -r runs/layer-1 'long/a/rbn:norm.rbn.lambda=1:norm.rbn.nu=1-1'
cp -r runs/layer-1 long/b/layer-1
"$NORMA" report long/*/* -o one.html 2>err || fail "report of long names: $(cat err)"
has one.html "<title>Norma: rbn lambda=0.1 nu=1, rbn lambda=1 nu=1, layer</title>"
cp -r long/b/layer-1 long/a/
"$NORMA" report long/a/layer-1/ long/b/layer-1 -o one.html 2>err || fail "report of equal names: $(cat err)"
has one.html "<title>Norma: a/layer, b/layer</title>"
for project in one two; do
    mkdir -p "$project/runs/r-compare" && cp -r runs/layer-1 "$project/runs/r-compare"
done
"$NORMA" report {one,two}/runs/r-compare/layer-1 -o one.html 2>err || fail "report of two projects: $(cat err)"
has one.html "<title>Norma: one/runs/r-compare/layer, two/runs/r-compare/layer</title>"
"$NORMA" report runs/layer-1 runs/layer-1 -o one.html 2>err || fail "report of one run twice: $(cat err)"
has one.html "layer-1 (2)"

# ---- PNG files ----
"$NORMA" report runs/layer-1 runs/batch-1 --output= --png pictures 2>err || fail "report --png: $(cat err)"
[ "$(head -c 4 pictures/valid-loss.png | tail -c 3)" = PNG ] || fail "valid-loss.png is no PNG"
[ "$(find pictures -type f ! -name '*.png' | wc -l)" = 0 ] || fail "other files were left in pictures: $(ls pictures)"

"$NORMA" report runs/layer-1 --output= --svg pictures 2>err || fail "report --svg: $(cat err)"
has pictures/valid-loss.svg "</svg>"

# ---- logarithmic axes: multiples of 1, 2 or 5 below a decade, 1, 2 and 5 of each decade, or powers of ten ----
ticks() { # "EXPECTED" VALUE...: labels of the y axis of a figure with these values
    mkdir -p axis && cp runs/layer-1/config.ini axis
    printf '{"type":"start","update":0}\n' >axis/log.jsonl
    for value in "${@:2}"; do
        echo "{\"type\":\"train\",\"update\":$((update += 10)),\"loss\":3,\"backward_state\":$value}" >>axis/log.jsonl
    done
    "$NORMA" report axis --output= --svg axis 2>err || fail "report of an axis: $(cat err)"
    found=$(grep -A1 'text-anchor="end"' axis/backward-state.svg | sed -n 's,.*<text>\(.*\)</text>.*,\1,p' | tr '\n' ' ')
    [ "$found" = "$1 " ] || fail "the y axis of ${*:2} has the labels $found"
}
update=0
ticks '22 24 26 28 30' 30 24 21
ticks '0.1 0.15 0.2 0.25 0.3 0.35' 0.1 0.35 0.2
ticks '20 50 100 200' 200 90 21
ticks '10 100 1000 10000 100000' 100000 900 11

# Bytes 17 to 20 of a PNG are its width.
width() { od -An -tu1 -j16 -N4 "$1" | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }'; }
[ "$(width pictures/valid-loss.png)" = 1536 ] || fail "a picture is $(width pictures/valid-loss.png) wide"
"$NORMA" report runs/layer-1 --output= --png small --png-width 600 2>err || fail "report --png-width: $(cat err)"
[ "$(width small/valid-loss.png)" = 600 ] || fail "a small picture is $(width small/valid-loss.png) wide"

# ---- grids: names of groups and settings contain markup and gnuplot's quotes ----
make_grid_runs
for run in grid/rbn*; do mv "$run" "grid/x'\`touch pwned\`<b>\"\\${run#grid/rbn}"; done
"$NORMA" report grid/* -o grid.html --png grid-pictures 2>err || fail "report of a grid: $(cat err)"
"$NORMA" report grid/* -o again.html 2>err || fail "report of a grid again: $(cat err)"
cmp -s grid.html again.html || fail "two pages of the same grid differ"
for figure in setting-score setting-heat-map setting-parallel; do
    has grid.html "<figure id=\"$figure\">"
    [ -s grid-pictures/$figure.png ] || fail "there is no picture of $figure"
done
has grid.html "x&#39;\`touch pwned\`&lt;b&gt;&quot;\\ max_tokens=64"
lacks grid.html "<b>"
[ -z "$(find . -name pwned)" ] || fail "a name was executed"

# ---- validation without a score (train.score = false): the test score has another name, and the highest is the best ----
mkdir unscored
cp -r runs/layer-1 runs/batch-1 unscored
sed -i 's/"bleu":[0-9.]*,"signature":"nrefs:1",//' unscored/*/log.jsonl
sed -i 's/"score":"bleu"/"score":"bleu","title":"BLEU","lower_is_better":false/' unscored/*/test.json
"$NORMA" report unscored/* -o unscored.html 2>err || fail "report of runs without validation scores: $(cat err)"
has unscored.html '>test BLEU</button>'
has unscored.html '>validation perplexity</button>'
has unscored.html 'data-value="25.5" class="best">'
has unscored.html 'Test BLEU'
lacks unscored.html 'est perplexity'

# ---- scores on different test sets ----
lacks unscored.html 'because the test sets differ'
sed -i 's/"score":"bleu"/"score":"bleu","segments":200/' unscored/*/test.json
sed -i 's/"segments":200/"segments":150/' unscored/layer-1/test.json
"$NORMA" report unscored/* -o unscored.html 2>err || fail "report of different test sets: $(cat err)"
has unscored.html 'because the test sets differ: they have 150 to 200 segments'

# ---- event files for TensorBoard ----
if "$NORMA" report runs/batch-1 --output= --tensorboard events 2>err; then
    file=$(echo events/batch-1/events.out.tfevents.*.norma)
    [ -s "$file" ] || fail "no event file: $(ls -R events)"
    for tag in train/loss valid/bleu probe/gain/enc.1.ffn.norm/histogram samples/text brain.Event:2; do
        grep -qaF "$tag" "$file" || fail "$tag is not in the event file"
    done
    "$NORMA" report runs/batch-1 --output= --tensorboard events 2>err
    [ "$(find events -type f | wc -l)" = 1 ] || fail "the first event file was not removed"
else
    has err "libprotobuf-c-dev"
fi
