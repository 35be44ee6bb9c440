#!/bin/bash
# Models, training states and token files with changed bits are rejected, or the change has no effect on the result.
# Token files may change after training has opened them; the message names a model file that is truncated while it is read.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data
"$NORMA" train recipe.ini --run.folder base >out 2>err || { cat err >&2; exit 1; }
"$NORMA" translate base/last.safetensors test.xx --threads 1 >expected 2>err || { cat err >&2; exit 1; }

# flip FILE OFFSET: inverts one bit, whose number in the byte depends on the offset.
flip() {
    perl -e 'my ($path, $at) = @ARGV; open(my $f, "+<:raw", $path) or die; seek($f, $at, 0); read($f, my $byte, 1);
        seek($f, $at, 0); print $f chr(ord($byte) ^ 1 << $at % 8)' "$1" "$2"
}

# Whether the command failed; the message must name the file.
refused() { # FILE OFFSET
    [ "$got" != 0 ] || return 1
    [ "$got" = 4 ] || [ "$got" = 5 ] || fail "exit code $got after a flipped bit at $2 of $1: $(head -c 300 err)"
    grep -qF -- "$1" err || fail "$1 is not in the message: $(head -c 300 err)"
}

model=base/last.safetensors
size=$(stat -c %s $model) refusals=0
for ((at = 3; at < size; at += size / 40)); do
    cp $model m.safetensors
    flip m.safetensors "$at"
    try translate m.safetensors test.xx --threads 1
    if refused m.safetensors "$at"; then refusals=$((refusals + 1)); else same out expected; fi
done
[ $refusals -ge 35 ] || fail "only $refusals flipped bits of a model were refused"
cp $model m.safetensors
flip m.safetensors $((size - 5))
input=test.xx refuses 4 "m.safetensors: damaged file: tensor '" translate m.safetensors
refuses 4 "m.safetensors: damaged file: tensor '" average mean base/last.safetensors m.safetensors
refuses 4 "m.safetensors: damaged file: tensor '" export m.safetensors --int8 -o x.safetensors

# A damaged training state: the run continues from the checkpoint before it and ends with the same model.
"$NORMA" train recipe.ini --run.folder whole --train.updates 6 >out 2>err || { cat err >&2; exit 1; }
whole=$(weights whole/last.safetensors)
state=base/checkpoints/00000004.state.safetensors
size=$(stat -c %s $state) refusals=0
for ((at = 5; at < size; at += size / 12)); do
    fresh base run
    flip "run/${state#base/}" "$at"
    chatty=yes try train recipe.ini --run.folder run --resume --train.updates 6
    [ "$got" = 0 ] || fail "exit code $got after a flipped bit at $at of the state: $(head -c 300 err)"
    [ "$(weights run/last.safetensors)" = "$whole" ] || fail "another model after a flipped bit at $at of the state"
    if grep -q 'checkpoint 4 is damaged: .*00000004.state.safetensors: ' err; then
        refusals=$((refusals + 1))
        [ -e "run/checkpoints/00000004.state.safetensors.damaged" ] || fail "the damaged state was not kept"
    fi
done
[ $refusals -ge 10 ] || fail "only $refusals flipped bits of a state were refused"

base=$(weights $model)
for file in train.source.ids train.target.off valid.target.ids; do
    size=$(stat -c %s data/$file)
    for ((at = 2; at < size; at += size / 10)); do
        fresh data bad
        flip bad/$file "$at"
        rm -rf x
        chatty=yes try train recipe.ini --run.folder x --data.folder bad
        refused bad/${file%.*} "$at" || [ "$(weights x/last.safetensors)" = "$base" ] || fail "another model after a flip at $at of $file"
    done
done
fresh data bad
flip bad/train.source.ids 64
chatty=yes refuses 4 'bad/train.source.ids, bad/train.source.off: damaged files' train recipe.ini --run.folder x --data.folder bad

# The text files of a data folder, of translation and of language models; a folder of an earlier version has no checksums.
"$NORMA" prepare --format text --tokenizer none --bpe-merges 0 --train train.yy --output lm-data 2>err || fail "$(cat err)"
cat >lm.ini <<'X'
[run]
task = lm
[model]
preset = tiny
width = 16
context = 16
[train]
updates = 2
max_tokens = 64
[device]
threads = 1
X
damaged() { # DATA FILE RECIPE: every one of 12 flipped bits is noticed
    local size at
    size=$(stat -c %s "$1/$2")
    for ((at = 1; at < size; at += size / 12 + 1)); do
        fresh "$1" bad
        flip "bad/$2" "$at"
        rm -rf x
        try train "$3" --run.folder x --run.quiet --data.folder bad
        refused "bad" "$at" || fail "a flipped bit at $at of $2 is not noticed"
    done
}
for file in data.ini dict.source.txt dict.target.txt valid.target.words checksums.xxh128; do damaged data $file recipe.ini; done
for file in data.ini dict.txt checksums.xxh128; do damaged lm-data $file lm.ini; done
fresh data bad
sed -i '1s/ [0-9]*$/ 123456/' bad/dict.target.txt
chatty=yes refuses 4 'bad/dict.target.txt: damaged or changed since norma prepare wrote it' train recipe.ini --run.folder x --data.folder bad
refuses 4 'bad/dict.target.txt: damaged or changed' tokenize test.xx --like bad
rm bad/checksums.xxh128
"$NORMA" train recipe.ini --run.folder x --run.quiet --data.folder bad >out 2>err || fail "a folder without checksums: $(cat err)"
fresh data bad
rm bad/valid.target.words
refuses 4 'bad/valid.target.words: missing' train recipe.ini --run.folder x --run.quiet --data.folder bad

# Files that change while training reads them have no effect.
fresh data bad
rm -rf x
"$NORMA" train recipe.ini --run.folder x --data.folder bad --train.updates 300 --run.quiet >out 2>err &
process=$!
until [ -e x/last.safetensors ] || ! kill -0 $process 2>/dev/null; do sleep 0.01; done
truncate -s 0 bad/train.source.ids
flip bad/train.target.ids 70
truncate -s 70 bad/valid.source.off
rm bad/valid.source.words bad/valid.target.words
got=0
wait $process || got=$?
process=
[ "$got" = 0 ] || fail "exit code $got after a change of the token files: $(head -c 300 err)"
"$NORMA" train recipe.ini --run.folder y --train.updates 300 --run.quiet >out 2>err
[ "$(weights x/last.safetensors)" = "$(weights y/last.safetensors)" ] || fail "another model after a change of the token files"
[ "$(grep -c '"bleu":' x/log.jsonl)" -gt 1 ] || fail "not two scores after a change of the words: $(tail -n 3 x/log.jsonl)"

# A model file that is truncated while norma translate uses it.
cp $model m.safetensors
mkfifo lines
"$NORMA" translate m.safetensors --buffer 1 --threads 1 <lines >out 2>err &
process=$!
exec 3>lines
head -n 1 test.xx >&3
until [ -s out ] || ! kill -0 $process 2>/dev/null; do sleep 0.01; done
head -n 1 expected | same out -
truncate -s 0 m.safetensors
sed -n 2p test.xx >&3
exec 3>&-
got=0
wait $process || got=$?
process=
check_failure 3 "$work/m.safetensors: was truncated while it was read, or cannot be read" 'translate with a truncated model'
head -n 1 expected | same out -
hostile_end
