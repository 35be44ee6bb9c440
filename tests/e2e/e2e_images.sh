#!/usr/bin/env bash
# Images: training on records and on folders of PNG files, labels, evaluation, broken files, resume, threads, baselines.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# records/ and png/: images of three classes, of which the validation images are others.
python3 "$SOURCE/tests/support/make_images.py" 48 24

write_recipe images.ini run.task=image data.train=records data.valid=records data.size=16 data.batch=12 data.crop=1 \
    data.mirror=false model.preset=tiny model.norm=batch norm.batch.preset=framework train.epochs=8 train.log_every=4 \
    optim.name=sgd optim.weight_decay=1e-4 schedule.name=constant schedule.lr=0.1 schedule.warmup=0 device.threads=1

# ---- training on both sources gives the same model ----
"$NORMA" train images.ini --run.folder a 2>err || fail "train: $(cat err)"
has err "48 training images of 3 classes, scaled to 16 x 16"
has err "accuracy"
"$NORMA" train images.ini --run.folder b --data.train png/train --data.valid png/valid 2>err || fail "train png: $(cat err)"
"$NORMA" train images.ini --run.folder c --device.threads 3 2>err || fail "train threads: $(cat err)"
weights() { # RUN: hash of the tensors without metadata
    perl -MDigest::MD5 -e 'binmode STDIN; read STDIN, my $n, 8; read STDIN, my $h, unpack "Q<", $n;
        print Digest::MD5->new->addfile(*STDIN)->hexdigest, "\n"' <"$1/last.safetensors"
}
weights a >a.hash
weights c >c.hash
same a.hash c.hash # 1 and 3 threads

# ---- CPU levels: the same weights as with auto ----
levels=""
for level in avx2 avx512; do
    for model in tiny tiny-vit; do
        norm="batch"
        [ $model = tiny ] || norm=layer
        "$NORMA" train images.ini --run.folder "l-$level-$model" --model.preset $model --model.norm $norm --train.epochs 2 \
            --device.isa $level 2>err
        code=$?
        [ $code != 7 ] || continue 2 # this CPU does not have it
        [ $code = 0 ] || fail "level $level, $model: $(cat err)"
        [ -d "l-auto-$model" ] || "$NORMA" train images.ini --run.folder "l-auto-$model" --model.preset $model --model.norm $norm \
            --train.epochs 2 2>err || fail "level auto, $model: $(cat err)"
        weights "l-$level-$model" >level.hash
        weights "l-auto-$model" >auto.hash
        same auto.hash level.hash
    done
    levels="$levels $level"
done
[ "$(uname -m)" != x86_64 ] || [ -n "$levels" ] || fail "no CPU level was compared"

# ---- stop and resume ----
"$NORMA" train images.ini --run.folder d --train.epochs 3 2>err || fail "train: $(cat err)"
"$NORMA" train images.ini --run.folder d --train.epochs 8 --resume 2>err || fail "resume: $(cat err)"
weights d >d.hash
same a.hash d.hash

# ---- labels and evaluation ----
try classify a png/valid/red/0.png png/valid/green/1.png png/valid/blue/2.png --probabilities
[ $got = 0 ] || fail "classify: $(cat err)"
[ "$(wc -l <out)" = 4 ] || fail "classify: $(cat out)"
has out "label	red	green	blue"
try classify a records --evaluate
[ $got = 0 ] || fail "evaluate: $(cat err)"
has out "images 24"
accuracy=$(perl -ne 'print $1 if /^accuracy ([0-9.]+)/' out)
perl -e 'exit !(shift >= 80)' "$accuracy" || fail "accuracy $accuracy of classes that differ clearly"
try classify a records --evaluate --json
has out '"confusion"'
echo broken >png/valid/red/x.png
try classify b png/valid --evaluate
has err "1 files are not readable and left out; the first: png/valid/red/x.png"
refuses 4 "png/valid/red/x.png: neither a JPEG nor a PNG image" classify a png/valid/red/x.png
refuses 3 "absent.png" classify a absent.png
# Weights of the last class with which only its logit overflows
python3 - a/last.safetensors large.safetensors <<'X' || fail "no model with large weights"
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read().replace(b'"xxh3":', b'"none":'))
begin = 8 + struct.unpack("<Q", data[:8])[0]
weight = json.loads(data[8:begin])["output.weight"]
end, width = begin + weight["data_offsets"][1], weight["shape"][1]
data[end - 4 * width:end] = struct.pack("<f", 3e38) * width
open(sys.argv[2], "wb").write(data)
X
refuses 8 "the model's logits are not finite" classify large.safetensors png/valid/red/0.png
mkdir -p png/other/bird
cp png/valid/red/0.png png/other/bird
refuses 5 "no class bird" classify b png/other --evaluate
try baseline images.ini
[ $got = 0 ] || fail "baseline: $(cat err)"
has out "nearest class mean"
accuracy=$(perl -ne 'print $1 if /nearest class mean[^0-9]+([0-9.]+)/' out)
perl -e 'exit !(shift >= 80)' "$accuracy" || fail "nearest class mean: $accuracy of classes that differ clearly"
has out "logistic regression on pixels"

# ---- other models and arithmetic ----
"$NORMA" train images.ini --run.folder v --model.preset tiny-vit --model.norm layer --train.epochs 1 --model.pooling token 2>err ||
    fail "vit: $(cat err)"
"$NORMA" train images.ini --run.folder p --train.epochs 1 --model.pre_activation true --model.shortcut pad --model.norm group2d 2>err ||
    fail "pre-activation: $(cat err)"
"$NORMA" train images.ini --run.folder h --train.epochs 1 --device.precision bf16 2>err || fail "bf16: $(cat err)"
"$NORMA" train images.ini --run.folder s --train.epochs 1 --train.shards 2 --norm.statistics update 2>err || fail "shards: $(cat err)"
"$NORMA" train images.ini --run.folder k --train.epochs 1 --train.activation_checkpointing layer 2>err || fail "checkpointing: $(cat err)"
"$NORMA" train images.ini --run.folder i --train.epochs 1 --probe.every 4 2>err || fail "instruments: $(cat err)"
for instrument in residual_share massive distance; do
    has i/log.jsonl "\"update\":4,\"instrument\":\"$instrument\",\"site\":\"res.0.conv2.norm\""
done
try inspect a --json --batches 2 --gradient-batches 1
[ $got = 0 ] || fail "inspect: $(cat err)"
has out "res.0.conv1.norm"
try export a --output a.safetensors
[ $got = 0 ] || fail "export: $(cat err)"

# ---- wrong use ----
chatty=1
refuses 2 "data.train is not set" train images.ini --run.folder x --data.train= 
refuses 2 "does not divide images" train images.ini --run.folder x --model.preset tiny-vit --model.patch 5 --model.norm layer
refuses 2 "expected 1 to 8 channel numbers" train images.ini --run.folder x --model.widths 4,,8
refuses 4 "is a readable image" train images.ini --run.folder x --data.train png
refuses 3 "absent" train images.ini --run.folder x --data.train absent
head -c 5000 records/data_batch_1.bin >cut.bin
refuses 4 "no records of 3073 bytes" train images.ini --run.folder x --data.train cut.bin
