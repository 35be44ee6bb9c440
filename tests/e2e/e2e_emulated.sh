#!/usr/bin/env bash
# The backend `emulated`, without a kernel of another backend: a tiny training run of every task has the losses of `ref` within
# float tolerance, and its models translate, tag and generate as on `ref`. The backend `cuda` on the stub of NVIDIA's libraries
# (tests/support/cuda_stub.h) has the losses and translations of `emulated`.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

export LD_LIBRARY_PATH=${BUILD:?}/tests/cuda_stub XDG_CACHE_HOME=$PWD/cache
make_pairs train 60 1
make_pairs valid 6 2
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --bpe-merges 20 --output pairs 2>err ||
    fail "prepare: $(cat err)"
make_sentences train.txt 60 1
make_sentences valid.txt 6 2
"$NORMA" prepare --format text --tokenizer none --bpe-merges 12 --threads 1 --train train.txt --valid valid.txt --output text \
    2>err || fail "prepare: $(cat err)"
columns() { # SENTENCES SEED
    awk -v n="$1" -v seed="$2" 'BEGIN {
        srand(seed); split("Anna Bernd Clara Ek", given); split("Rom Bonn Wien", place)
        for (i = 0; i < n; i++) {
            print given[1 + int(rand() * 4)] " X B-PER"
            for (j = 0; j < i % 3; j++) print "often X O"
            print "lives X O\nin X O\n" place[1 + int(rand() * 3)] " X B-LOC\n. X O\n"
        }
    }'
}
columns 30 1 >train.columns
columns 6 2 >valid.columns
reviews() { # COUNT SEED
    awk -v n="$1" -v seed="$2" 'BEGIN {
        srand(seed); split("good bad", label); split("great awful", word)
        for (i = 0; i < n; i++) { k = 1 + int(rand() * 2); print label[k] "\tthe film was " (i % 3 ? "really " : "") word[k] " ." }
    }'
}
reviews 40 1 >train.tsv
reviews 8 2 >valid.tsv
perl -e '
    srand 5; mkdir "images";
    for my $name ("data_batch_1", "test_batch") {
        open(my $out, ">:raw", "images/$name.bin");
        for my $i (0 .. 11) { print $out chr($i % 3), map { chr(int(rand 100) + ($_ / 1024 % 3 == $i % 3 ? 120 : 0)) } 0 .. 3071; }
    }
    open(my $names, ">", "images/batches.meta.txt"); print $names "red\ngreen\nblue\n";'

sizes=(--model.width 32 --model.ff 48 --model.heads 4 --train.updates 3 --train.log_every 1 --train.score false
    --schedule.name constant --schedule.lr 0.005)
translation=(translate --data.folder pairs --train.max_tokens 48 --model.encoder-layers 1 --model.decoder-layers 1 "${sizes[@]}")
lm=(lm --data.folder text --train.max_tokens 48 --model.layers 1 "${sizes[@]}")
tag=(tag --data.train train.columns --data.valid valid.columns --model.preset tiny --train.max_tokens 60 --train.updates 3
    --train.log_every 1)
classify=(classify --data.train train.tsv --data.valid valid.tsv --data.batch 12 --model.preset tiny --train.updates 3
    --train.log_every 1)
image=(image --data.train images --data.valid images --data.size 8 --data.batch 6 --data.crop 1 --model.preset tiny
    --train.updates 3 --train.log_every 1)

compared=0
compare() { # NAME ARGUMENTS...: the same run on all backends
    local name=$1 backend
    shift
    for backend in ref emulated cuda; do
        [ $backend = cuda ] && set -- "$@" --device.gemm own --device.precision float # which recipes leave to the device
        "$NORMA" train "$@" --device.backend $backend --run.folder "$name.$backend" >out 2>err ||
            fail "$name on $backend: $(tail -n 3 err)"
        perl -ne 'print "$1\n" if /"type":"train".*"(?:loss|nll)":([-0-9.e+]*)/' "$name.$backend/log.jsonl" >"$name.$backend.losses"
        lacks err 'kernels of ref'
    done
    [ "$(wc -l <"$name.ref.losses")" = 3 ] || fail "$name: no losses: $(head -c 300 "$name.ref/log.jsonl")"
    paste "$name.ref.losses" "$name.emulated.losses" | awk -v name="$name" '
        { difference = $1 - $2; if (difference < 0) difference = -difference
          if (!(difference <= 2e-5 * $1)) { print name ": " $0; bad++ } }
        END { exit bad > 0 || NR != 3 }' || fail "$name: the losses differ"
    same "$name.emulated.losses" "$name.cuda.losses"
    [ "$(sort -u "$name.ref.losses" | wc -l)" = 3 ] || fail "$name: the loss does not change"
    compared=$((compared + 1))
}
for norm in layer power rbn dyt; do
    compare $norm "${translation[@]}" --model.norm $norm
done
compare lm "${lm[@]}" --model.context 12
compare window "${lm[@]}" --model.context 12 --model.rope half --model.window 4
compare term "${lm[@]}" --model.context 4 --model.attention block-term
compare tag "${tag[@]}"
compare classify "${classify[@]}"
compare image "${image[@]}"
compare batch "${image[@]}" --model.norm batch

# ---- inference ----
head -n 4 valid.de >input
for precision in float int8; do
    for backend in ref emulated cuda; do
        gemm=()
        [ $backend = cuda ] && gemm=(--gemm own)
        "$NORMA" translate layer.ref input --backend $backend "${gemm[@]}" --precision $precision --beam 2 >$precision.$backend 2>err ||
            fail "translate on $backend in $precision: $(cat err)"
    done
    same $precision.ref $precision.emulated
    same $precision.ref $precision.cuda
    [ "$(wc -l <$precision.ref)" = 4 ] || fail "translate in $precision: $(wc -l <$precision.ref) lines"
done
echo "e2e_emulated: $compared runs on three backends"
