#!/bin/bash
# Changed bits in models, training states and token files are refused, or have no effect on the result. Token files may
# change after training has opened them.
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

# Files that change while training reads them have no effect.
fresh data bad
rm -rf x
"$NORMA" train recipe.ini --run.folder x --data.folder bad --train.updates 300 --run.quiet >out 2>err &
process=$!
until [ -e x/last.safetensors ] || ! kill -0 $process 2>/dev/null; do sleep 0.01; done
truncate -s 0 bad/train.source.ids
flip bad/train.target.ids 70
truncate -s 70 bad/valid.source.off
got=0
wait $process || got=$?
process=
[ "$got" = 0 ] || fail "exit code $got after a change of the token files: $(head -c 300 err)"
"$NORMA" train recipe.ini --run.folder y --train.updates 300 --run.quiet >out 2>err
[ "$(weights x/last.safetensors)" = "$(weights y/last.safetensors)" ] || fail "another model after a change of the token files"
hostile_end
