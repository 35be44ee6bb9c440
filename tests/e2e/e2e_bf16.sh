#!/usr/bin/env bash
# Training with bf16 matrix multiplications: the log and the configuration record the precision; bitwise identical for any
# number of threads, and after stop and resume, which keeps the precision; inference in float and in bf16.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

prepare_pairs data
write_recipe small.ini data.folder=data data.max_length=40 model.preset=tiny model.width=32 model.ff=64 \
    model.heads=2 model.max_positions=64 model.norm=power train.updates=40 train.max_tokens=200 \
    train.log_every=10 train.validate_every=20 train.save_every=20 train.score=0 schedule.name=constant \
    schedule.lr=0.003 device.precision=bf16

weights() { # FOLDER: checksum of the model of the last checkpoint
    "$NORMA" average weights.safetensors "$1/last.safetensors" 2>err || fail "average: $(cat err)"
    tail -c 4000 weights.safetensors | cksum
}

"$NORMA" train small.ini --run.folder two --device.threads 2 2>err || fail "train: $(cat err)"
has err "bf16"
grep -q '^precision = bf16' two/config.ini || fail "the configuration does not record the precision: $(cat two/config.ini)"
grep -q 'bf16 and float32' two/log.jsonl || fail "the log does not record the precision: $(head -n 1 two/log.jsonl)"
"$NORMA" train small.ini --run.folder one --device.threads 1 2>err || fail "train: $(cat err)"
[ "$(weights one)" = "$(weights two)" ] || fail "one and two threads gave different weights"
"$NORMA" train small.ini --run.folder float --device.precision float 2>err || fail "train: $(cat err)"
[ "$(weights one)" != "$(weights float)" ] || fail "bf16 and float gave the same weights"

# ---- resume ----
"$NORMA" train small.ini --run.folder parts --train.updates 20 2>err || fail "train: $(cat err)"
"$NORMA" train small.ini --run.folder parts --resume --train.updates 40 2>err || fail "resume: $(cat err)"
[ "$(weights one)" = "$(weights parts)" ] || fail "a resumed run gave different weights"
code=0
"$NORMA" train small.ini --run.folder parts --resume --device.precision float 2>err || code=$?
[ "$code" = 2 ] || fail "another precision on resume gave exit code $code: $(cat err)"
has err "device.precision"
code=0
"$NORMA" train small.ini --run.folder bad --device.precision int8 2>err || code=$?
[ "$code" = 2 ] || fail "training in int8 gave exit code $code: $(cat err)"
has err "int8 is for inference only"

# ---- auto: the configuration records the precision of the machine, and a resumed run keeps its own ----
sed 's/^precision = bf16/precision = auto/' small.ini >auto.ini
has auto.ini 'precision = auto'
"$NORMA" train auto.ini --run.folder auto 2>err || fail "train: $(cat err)"
level=$(sed -n 's/.*, level \([a-z0-9_]*\),.*/\1/p' err)
case "$level $(grep -m 1 -o AuthenticAMD /proc/cpuinfo)" in
amx* | 'avx512_bf16 AuthenticAMD') machine=bf16 like=one ;;
*) machine=float like=float ;;
esac
has auto/config.ini "precision = $machine"
lacks auto/config.ini 'precision = auto'
[ "$(weights auto)" = "$(weights $like)" ] || fail "auto is not $machine at level $level"
"$NORMA" train auto.ini --run.folder base --device.isa base --train.updates 2 2>err || fail "train: $(cat err)"
has base/config.ini 'precision = float'
"$NORMA" train small.ini --run.folder rest --train.updates 20 2>err || fail "train: $(cat err)"
"$NORMA" train auto.ini --run.folder rest --resume --train.updates 30 2>err || fail "resume with auto: $(cat err)"
lacks err 'the recipe has changed'
"$NORMA" train auto.ini --run.folder rest --resume --device.precision auto --train.updates 40 2>err || fail "resume with auto: $(cat err)"
has rest/config.ini 'precision = bf16'
[ "$(weights one)" = "$(weights rest)" ] || fail "a run in bf16 was resumed in another precision"

# ---- runs of a comparison whose CPUs chose different precisions ----
compare() {
    "$NORMA" compare auto.ini --compare.folder compared --norms layer,rms --train.updates 2 --jobs 1 >out 2>err ||
        fail "compare: $(cat err)"
}
compare
lacks err 'was trained in'
sed -i 's/"precision":"float"/"precision":"other"/; s/"precision":"bf16"/"precision":"float"/; s/"precision":"other"/"precision":"bf16"/' \
    compared/rms-1/log.jsonl
compare
has err 'warning: compared/layer-1 was trained in '
has err 'compared/rms-1 in '

# ---- inference ----
for precision in float bf16 int8; do
    "$NORMA" translate one --device.precision $precision test.de >"out.$precision" 2>err || fail "$precision: $(cat err)"
    [ "$(wc -l <"out.$precision")" = 20 ] || fail "$precision: not 20 lines"
done
"$NORMA" translate one --device.precision bf16 --buffer 1 --device.threads 1 test.de >alone 2>err || fail "$(cat err)"
same alone out.bf16

# ---- without --device.precision, models compute as they were trained if this CPU is faster in bf16 ----
loss() { # FILE, arguments of perplexity
    "$NORMA" perplexity "${@:2}" --split valid --json >"$1" 2>err || fail "perplexity $*: $(cat err)"
}
loss loss.float one --device.precision float
loss loss.bf16 one --device.precision bf16
! cmp -s loss.float loss.bf16 || fail "losses in float and in bf16 are the same"
loss loss.default one
same loss.default "loss.$machine"
loss plain.float float --device.precision float
loss plain.default float
same plain.default plain.float
loss base.float one --device.isa base --device.precision float
loss base.default one --device.isa base
same base.default base.float
"$NORMA" translate one test.de >out.default 2>err || fail "$(cat err)"
same out.default "out.$machine"
