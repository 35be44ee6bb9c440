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
make_library_runs || fail 'the models were not made'
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
printf 'bl\xffau\n' >broken
input=broken runs_example 4 translate run-translate
has err 'text 0: not UTF-8: byte 0xff at position 3'
[ "$(grep -cv '^ \*\|^/\*' "$SOURCE/examples/translate.c")" -le 40 ] || fail "the example has more than 40 lines"

# ---- classify ----
printf '%s\n' 'an unknown wörd' '' 'great' >>reviews.txt
"$NORMA" classify run-classify reviews.txt --probabilities |
    awk -F '\t' 'NR == 1 { for (i = 2; i <= NF; i++) at[$i] = i; next } { print $1 "\t" $at[$1] }' >expected
[ "$(cut -f1 expected | sort -u | wc -l)" = 2 ] || fail "one class only"
input=reviews.txt runs_example 0 classify run-classify
same expected out
runs_example 7 classify run-lm
has err 'the task of the model is lm, not classification'
input=broken runs_example 4 classify run-classify
has err 'text 0: not UTF-8: byte 0xff at position 3'

# ---- tag ----
printf '%s\n' 'Zoë lives in Ulm .' 'Anna' >>names.txt
"$NORMA" tag run-tag names.txt --input-format text --scheme bioes |
    awk 'BEGIN { n = 1 } !NF { n++; next } { mark = substr($2, 1, 1); label = substr($2, 3) }
        mark == "B" { span = $1 } mark == "I" || mark == "E" { span = span " " $1 } mark == "S" { span = $1 }
        mark == "S" || mark == "E" { print n "\t" label "\t" span }' >expected
[ "$(wc -l <expected)" -gt 100 ] || fail "few spans: $(head expected)"
grep -q '	PER	[A-Z][a-z]* Ek$' expected || fail "no span of two tokens: $(head expected)"
input=names.txt runs_example 0 tag run-tag
same expected out
runs_example 7 tag run-classify
has err 'the task of the model is classification, not tagging'

# ---- language model ----
head -n 20 lm.txt >lines
printf '%s\n' '' 'unknown wörds here' >>lines
input=lines runs_example 0 language_model run-lm
"$NORMA" perplexity run-lm lines --json >scores
perl -e 'open my $f, "<", "scores"; my ($ppl) = <$f> =~ /"perplexity": ?([0-9.]+)/; my ($found) = `cat out` =~ /perplexity ([0-9.]+)/;
    exit(abs($found / $ppl - 1) < 1e-4 ? 0 : 1)' || fail "perplexity: $(cat scores) $(cat out)"
"$NORMA" generate run-lm --prompt "$(head -n 1 lines)" --bare --tokens 12 --temperature 0.8 >expected
sed '1,/^perplexity/d' out | sed '/^$/d' >continuation
sed '/^$/d' expected | cmp - continuation || fail "continuation: $(cat continuation), not $(cat expected)"
"$NORMA" perplexity run-lm lines train.de --interval | sed -n 's/^\(.*: perplexity [0-9.]* \[.*\]\) .*/\1/p' >expected
runs_example 0 language_model run-lm lines train.de
same <(head -n 2 expected) out
runs_example 3 language_model run-lm nowhere
runs_example 7 language_model run-tag
has err 'the task of the model is tagging, not lm'

# ---- score ----
"$NORMA" translate run-translate valid.de --output hyp
tr 'ae' 'ea' <valid.en >other
for metric in bleu chrf ter; do
    input=/dev/null runs_example 0 score $metric hyp valid.en other
    "$NORMA" score $metric hyp --reference valid.en --against other >expected
    grep -E '^(BLEU|chrF|TER)' expected >lines.expected
    sed -n 's/^\(hyp\|other\): //p' out | cmp - lines.expected || fail "$metric: $(cat out), not $(cat expected)"
    difference=$(sed -n 's/^difference: \([-+0-9.]*\) .*p = \([0-9.]*\) .*/difference \1, p = \2/p' expected)
    has out "$difference"
done
runs_example 5 score bleu hyp train.en
has err '8 lines'
runs_example 2 score rouge hyp valid.en
has err 'unknown metric'

# ---- prepare: the folder of the program ----
runs_example 0 prepare train train valid valid source_lang de target_lang en output example-data joint true \
    tokenizer moses bpe_merges 40
has out 'valid: 8 of 8 lines'
for file in data/*; do
    # data.ini has the name of the folder.
    [[ $file = data/data.ini || $file = data/checksums.xxh128 ]] || same "$file" "example-$file"
done
sed 's/example-data/data/' example-data/data.ini | same data/data.ini -
runs_example 2 prepare train train output example-data bpe_merge 3
has err 'bpe_merge'

# ---- train: the tensors of the program's run; a run that was stopped continues ----
runs_example 0 train classify.ini run-example
"$NORMA" train classify.ini --run.folder run-again 2>again
has out "$(sed -n 's/^done: .*best at \(update [0-9]*: loss [0-9.]*\),.*/\1/p' again)"
[ "$(grep -c '^update ' out)" = 3 ] || fail "not three validations: $(cat out)"
same <(grep -o '"loss":[0-9.]*' run-classify/log.jsonl) <(grep -o '"loss":[0-9.]*' run-example/log.jsonl)
same <(tail -c 2000 run-classify/last.safetensors) <(tail -c 2000 run-example/last.safetensors)
runs_example 0 train classify.ini run-parts train.epochs 1
runs_example 0 train classify.ini run-parts train.epochs 3
has out '18 updates'
same <(tail -c 2000 run-classify/last.safetensors) <(tail -c 2000 run-parts/last.safetensors)
runs_example 2 train classify.ini run-other train.epoch 3
has err 'train.epoch'
runs_example 2 train classify.ini run-example model.heads 1
runs_example 3 train nowhere.ini run-other

# ---- compare: the table of the program; a comparison that was interrupted continues; SIGCHLD ----
awk -F '\t' 'NR % 5 == 0 { print $1 "\t" "the cast was " $2 " unheard" }' reviews.tsv >heldout.tsv
export NORMA
options=(norms 'layer,power' seeds 2 data.test heldout.tsv data.valid heldout.tsv tid_batches 2 samples false)
program_compare() { # FOLDER OPTIONS...
    "$NORMA" compare classify.ini --norms layer,power --seeds 2 --data.test heldout.tsv --data.valid heldout.tsv \
        --tid-batches 2 --no-samples --format markdown --folder "$@" 2>err
}
runs_example 0 compare classify.ini "${options[@]}" folder compared
[ "$(grep -c ', seed [12]: trained$' out)" = 4 ] || fail "not four runs: $(cat out)"
sed -n '/^|/,$p' out >table
program_compare compared >expected || fail "compare: $(cat err)"
[ ! -s err ] || fail "the program trained runs of the library again: $(cat err)"
same expected table
program_compare compared-by-program >expected || fail "compare: $(cat err)"
columns() { cut -d '|' -f 2-14 "$1" | sed -n '/^ *norm/,/^$/p'; } # without throughput and memory
same <(columns expected | cut -d '|' -f 1-9) <(columns table | cut -d '|' -f 1-9)
for run in layer-1 power-2; do
    same <(tail -c 2000 "compared/$run/best.safetensors") <(tail -c 2000 "compared-by-program/$run/best.safetensors")
done

"$BUILD/examples/compare" classify.ini "${options[@]}" folder stopped train.epochs 400 >out 2>err &
caller=$!
until [ -s stopped/layer-1/log.jsonl ]; do sleep 0.05; done
kill -INT "$caller"
got=0
wait "$caller" || got=$?
[ "$got" = 9 ] || fail "exit code $got after SIGINT: $(cat err)"
has err 'the same command continues the runs'
ls stopped/layer-1/checkpoints/*.safetensors >/dev/null || fail "no checkpoint: $(find stopped)"

(trap '' CHLD && exec "$BUILD/examples/compare" classify.ini "${options[@]}" folder ignored) >out 2>err && fail 'SIGCHLD is ignored'
has err 'SIGCHLD is ignored'
(trap '' CHLD && program_compare compared-by-program) >/dev/null || fail "norma compare with SIGCHLD ignored: $(cat err)"
NORMA=$PWD/no-program runs_example 3 compare classify.ini "${options[@]}" folder nowhere
has err '/no-program: No such file'
runs_example 2 compare classify.ini "${options[@]}" folder compared seed 3
has err 'compare.seed'
runs_example 2 compare classify.ini "${options[@]}" folder compared seeds
has err 'option seeds has no value'
runs_example 2 compare classify.ini norms layer results compared
has err 'results are opened without a recipe'
runs_example 3 compare nowhere.ini norms layer

# ---- a program whose locale has a decimal comma reads and writes numbers with a decimal point ----
mkdir locales
if ! grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt" && localedef -i de_DE -f UTF-8 locales/de_DE.UTF-8 2>/dev/null; then
    cat >shim.c <<'X'
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_locale(void)
{
    char text[8];
    if (!setlocale(LC_ALL, "de_DE.UTF-8") || snprintf(text, sizeof text, "%.1f", 0.5) != 3 || text[1] != ',')
        abort();
}
X
    "${CC:-cc}" -shared -fPIC -o shim.so shim.c || fail "the shim does not compile"
    local_runs() { # ARGUMENTS of runs_example, in that locale
        LOCPATH=$PWD/locales LD_PRELOAD=$PWD/shim.so runs_example "$@"
    }
    local_runs 0 train classify.ini run-local optim.weight_decay 0.015
    runs_example 0 train classify.ini run-point optim.weight_decay 0.015
    same run-local/config.ini run-point/config.ini
    numbers() { sed -E 's/"(seconds|tokens_per_second|load|other_cores|started|command)":("[^"]*"|[^,}]*)//g' "$1"; }
    same <(numbers run-local/log.jsonl) <(numbers run-point/log.jsonl)
    input=reviews.txt runs_example 0 classify run-local
    cut -f 1 out >expected
    input=reviews.txt local_runs 0 classify run-local
    same expected <(cut -f 1 out)
    local_runs 2 train classify.ini run-other optim.weight_decay 0,015
    has err 'optim.weight_decay = 0,015: expected a number'
    local_runs 2 train classify.ini run-other optim.weight_decay 1.5
    has err 'outside 0 .. 1'
    for metric in bleu chrf ter; do
        "$NORMA" score $metric hyp --reference valid.en | sed -n '1s/^hyp: //p' >expected
        input=/dev/null local_runs 0 score $metric hyp valid.en
        has out "$(cat expected)"
    done
    local_runs 0 compare classify.ini "${options[@]}" folder compared margin 0.5
    program_compare compared --margin 0.5 >expected || fail "compare: $(cat err)"
    same expected <(sed -n '/^|/,$p' out)
else
    echo "not tested: a locale with a decimal comma (sanitizers must be loaded first; or localedef cannot make de_DE)"
fi

echo "e2e_library: $cases checks"
