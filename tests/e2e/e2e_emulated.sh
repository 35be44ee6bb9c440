#!/usr/bin/env bash
# Every command that runs a model, in the modes that find what would fail on a GPU: the backend `emulated`, without a kernel of
# another backend; `ref` in fenced mode (tests/support/fenced_program.c); and `cuda` on the stub of NVIDIA's libraries
# (tests/support/cuda_stub.h), with device addresses that are no host addresses and calls that are executed when the host waits. A
# tiny training run of every task has the losses of `ref`, on the GPU's kernels within float tolerance, and all outputs are equal.
# e2e_modes.sh runs all four; this script alone leaves out the stub, and structures with separate kernels.
set -uo pipefail
modes=${MODES:-ref fenced emulated}
has_mode() { [[ " $modes " = *" $1 "* ]]; }
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

export LD_LIBRARY_PATH=${BUILD:?}/tests/cuda_stub XDG_CACHE_HOME=$PWD/cache
make_pairs train 60 1
make_pairs valid 4 2
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
classify=(classify --data.train train.tsv --data.valid valid.tsv --data.batch 8 --model.preset tiny --train.updates 3
    --train.log_every 1)
image=(image --data.train images --data.valid images --data.size 8 --data.batch 6 --data.crop 1 --model.preset tiny
    --train.updates 3 --train.log_every 1)

norma_on() { # MODE ARGUMENTS...
    local program=$NORMA
    [ "$1" = fenced ] && program=$BUILD/norma-fenced
    "$program" "${@:2}"
}

compared=0
compare() { # NAME ARGUMENTS...: the same run on all backends
    local name=$1 backend
    shift
    for backend in $modes; do
        [ "$backend" = cuda ] && set -- "$@" --device.gemm own --device.precision float # which recipes leave to the device
        norma_on "$backend" train "$@" --device.backend "${backend/fenced/ref}" --run.folder "$name.$backend" >out 2>err ||
            fail "$name on $backend: $(tail -n 3 err)"
        perl -ne 'print "$1\n" if /"type":"train".*"(?:loss|nll)":([-0-9.e+]*)/' "$name.$backend/log.jsonl" >"$name.$backend.losses"
    done
    [ "$(wc -l <"$name.ref.losses")" = 3 ] || fail "$name: no losses: $(head -c 300 "$name.ref/log.jsonl")"
    paste "$name.ref.losses" "$name.emulated.losses" | awk -v name="$name" '
        { difference = $1 - $2; if (difference < 0) difference = -difference
          if (!(difference <= 2e-5 * $1)) { print name ": " $0; bad++ } }
        END { exit bad > 0 || NR != 3 }' || fail "$name: the losses differ"
    has_mode cuda && same "$name.emulated.losses" "$name.cuda.losses"
    same "$name.ref.losses" "$name.fenced.losses"
    has "$name.fenced/log.jsonl" 'fenced memory'
    [ "$(sort -u "$name.ref.losses" | wc -l)" = 3 ] || fail "$name: the loss does not change"
    compared=$((compared + 1))
}
for norm in layer power rbn; do
    compare $norm "${translation[@]}" --model.norm $norm
done
compare lm "${lm[@]}" --model.context 12
compare tag "${tag[@]}"
compare classify "${classify[@]}"
compare image "${image[@]}"
if has_mode cuda; then
    compare dyt "${translation[@]}" --model.norm dyt
    compare window "${lm[@]}" --model.context 12 --model.rope half --model.window 4
    compare term "${lm[@]}" --model.context 4 --model.attention block-term
    compare batch "${image[@]}" --model.norm batch
fi

# ---- inference ----
head -n 2 valid.de >input
inferred=0
# Numbers with five significant digits: the sums of the GPU's kernels have another order.
rounded() { perl -pe 's/-?[0-9]+\.[0-9]+(e[-+]?[0-9]+)?/sprintf("%.5g", $&)/ge' "$1"; }
infer() { # NAME ARGUMENTS...: the same output on all backends
    local name=$1 backend gemm
    shift
    for backend in $modes; do
        gemm=()
        [ "$backend" = cuda ] && gemm=(--gemm own)
        norma_on "$backend" "$@" --backend "${backend/fenced/ref}" "${gemm[@]}" >"$name.$backend.out" 2>err ||
            fail "$name on $backend: $(cat err)"
    done
    [ -s "$name.ref.out" ] || fail "$name: no output"
    same "$name.ref.out" "$name.fenced.out"
    has_mode cuda && same "$name.emulated.out" "$name.cuda.out"
    same <(rounded "$name.ref.out") <(rounded "$name.emulated.out")
    inferred=$((inferred + 1))
}
for precision in float int8; do
    infer $precision translate layer.ref input --precision $precision --beam 2
    [ "$(wc -l <$precision.ref.out)" = 2 ] || fail "translate in $precision: $(wc -l <$precision.ref.out) lines"
done
infer ensemble translate layer.ref,power.ref input --precision float --beam 3
infer alignment translate layer.ref input --precision float --alignment
infer samples translate layer.ref input --precision float --search sample
infer generate generate lm.ref --prompt 'a' --samples 3 --tokens 12 --precision float
infer perplexity perplexity lm.ref valid.txt --precision float
infer tag tag tag.ref valid.columns --precision float
infer classify classify classify.ref valid.tsv --precision float
infer image classify image.ref images --evaluate --precision float
head -n 2 valid.en >targets
infer rescore rescore layer.ref input targets --precision float
infer aligned rescore layer.ref input targets --precision float --alignment
infer pairs perplexity layer.ref --precision float
for backend in $modes; do
    norma_on "$backend" inspect rbn.ref --batches 2 --gradient-batches 1 --backend "${backend/fenced/ref}" >"inspect.$backend" 2>err ||
        fail "inspect on $backend: $(cat err)"
    # The last checkpoint is computed again, from the seed, on the backend of the run.
    norma_on "$backend" verify "power.$backend" --start >"verify.$backend" 2>err || fail "verify on $backend: $(cat err)"
    has "verify.$backend" 'updates 1 to 3 from the seed: equal'
done
[ -s inspect.ref ] || fail "inspect prints nothing"
same inspect.ref inspect.fenced
[ "$(wc -l <inspect.ref)" = "$(wc -l <inspect.emulated)" ] || fail "inspect prints less on emulated: $(cat inspect.emulated)"
has_mode cuda && same inspect.emulated inspect.cuda
if has_mode cuda && [ -x "$BUILD/norma-bench" ]; then
    for backend in emulated cuda; do
        "$BUILD/norma-bench" --backend $backend --gemm own --parts step --quick --threads 1 --rows 16 --json $backend.json \
            --set model.preset=tiny --set model.width=16 --set model.ff=16 --set model.heads=2 --set train.max_tokens=48 \
            >out 2>err || fail "bench on $backend: $(cat err)"
        grep -E '"(calls|waits)"' $backend.json | sort >$backend.counts
    done
    has emulated.counts '"waits": 1'
    same emulated.counts cuda.counts
    # All parts, in less than a minute of one core.
    (ulimit -t 60 && exec "$NORMA" bench --device.backend emulated --threads 1 --quick --all --json all.json) >out 2>err ||
        fail "bench --quick: $(cat err)"
    [ "$(grep -c '"preset": "base"' all.json)" = 5 ] || fail "not one step and four decodings: $(cat out)"
    has all.json '"copy"'
    has all.json '"kernel": "dot"'
    has all.json '"norm": "un"'
fi

# ---- the option device.fallback of earlier versions ----
refuses 2 'unknown option device.fallback: no backend lacks a kernel any more' translate layer.ref input --device.fallback ref
sed -i '/^\[device\]/a fallback = ref' layer.ref/config.ini
"$NORMA" translate layer.ref input --backend ref --precision float --beam 2 >old 2>err || fail "an old run: $(cat err)"
same float.ref.out old

echo "e2e_emulated: $compared runs and $inferred outputs: $modes"
