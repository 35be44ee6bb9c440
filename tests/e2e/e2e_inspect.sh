#!/usr/bin/env bash
# Instruments: [probe] during training; norma inspect on a run, its checkpoints and its files, as a table and as JSON; the
# advice; and the error messages.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

fails_with() { # CODE WHAT: checks the exit code of the last command and that it printed one line starting with norma:
    [ "$code" = "$1" ] || fail "$2 gave exit code $code: $(head -c 300 err)"
    if [ "$(wc -l <err)" != 1 ] || ! grep -q '^norma: ' err; then fail "$2 did not print one line: $(head -c 300 err)"; fi
}

make_pairs train 200 1
make_pairs valid 20 2
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --bpe-merges 30 --output data 2>err ||
    fail "prepare: $(cat err)"

write_recipe small.ini data.folder=data data.max_length=40 model.preset=tiny model.width=32 model.ff=64 \
    model.heads=2 model.max_positions=64 model.norm=batch model.norm_position=post train.updates=30 \
    train.max_tokens=200 train.log_every=5 train.validate_every=15 train.score=false schedule.warmup=5 \
    probe.every=10 device.threads=1

# ---- during training ----
"$NORMA" train small.ini 2>err || fail "train: $(cat err)"
log=runs/small/log.jsonl
for instrument in distance deviation gradient_parts gain gradient scale update_ratio effective_rate moments residual_share massive \
    attention_entropy; do
    has $log "{\"type\":\"probe\",\"update\":30,\"instrument\":\"$instrument\",\"site\":\""
done
grep '"type":"probe"' $log | grep -v '"update":[123]0,' && fail "an instrument recorded another update"
"$NORMA" train small.ini --run.folder some --probe.every 0 --probe.checkpoints --probe.instruments gain,penalty 2>err ||
    fail "train: $(cat err)"
[ "$(grep '"type":"probe"' some/log.jsonl | cut -d, -f2,3 | sort -u | tr '\n' ' ')" = \
    '"update":15,"instrument":"gain" "update":30,"instrument":"gain" ' ] || fail "expected only the gain instrument at the checkpoints"
cmp -s <(tail -c 4000 some/last.safetensors) <(tail -c 4000 runs/small/last.safetensors) ||
    fail "the choice of instruments changed the weights"
"$NORMA" train small.ini --run.folder none --probe.instruments ganz 2>err
code=$?
fails_with 2 "an unknown instrument"
has err "gain"
[ -e none ] && fail "the run started in spite of an unknown instrument"

UPDATES=60 "$SOURCE/scripts/probe_overhead.sh" "$NORMA" small.ini >out 2>err || fail "probe_overhead.sh: $(tail -n 2 err)"
has out "at every 100 updates: "

# ---- a checkpoint of update 0 is kept and does not change the run ----
"$NORMA" train small.ini --run.folder initial --train.save-initial --train.keep-last 1 2>err || fail "train: $(cat err)"
[ "$(cd initial/checkpoints && echo *.safetensors)" = "00000000.safetensors 00000000.state.safetensors 00000030.safetensors 00000030.state.safetensors" ] ||
    fail "not the checkpoints of update 0 and 30: $(ls initial/checkpoints)"
cmp -s <(tail -c 4000 initial/last.safetensors) <(tail -c 4000 runs/small/last.safetensors) ||
    fail "a checkpoint of update 0 changed the weights"
"$NORMA" inspect initial --checkpoints --measure tid --batches 4 --json >out 2>err || fail "inspect: $(cat err)"
[ "$(grep -o '"update": [0-9]*' out | tr '\n' ' ')" = '"update": 0 "update": 30 ' ] || fail "not updates 0 and 30: $(grep update out)"

# ---- the sites of TID's average ----
"$NORMA" inspect runs/small --measure tid --batches 4 --json >out 2>err || fail "inspect: $(cat err)"
[ "$(grep -A 6 '"site": "dec' out | grep -c '"averaged": true')" = 0 ] || fail "the average is over the decoder's LayerNorms"
[ "$(grep -A 6 '"site": "enc' out | grep -c '"averaged": true')" -ge 4 ] || fail "the average is not over the encoder's norms"
"$NORMA" inspect runs/small --measure tid --batches 4 --tid-sites decoder >out 2>err
code=$?
fails_with 2 "an unknown norm site"
has err "'decoder'"

# ---- after training ----
"$NORMA" inspect runs/small --advise --batches 4 --gradient-batches 2 >out 2>err || fail "inspect: $(cat err)"
[ -s err ] && fail "inspect printed: $(cat err)"
# Only the loss of the first update shows the initialization. The log begins with update 5.
has out 'SmallInit    unknown     the log has no record of the first update (train.log_every = 1)'
"$NORMA" train small.ini --run.folder first --train.updates 5 --train.log_every 1 2>err || fail "train: $(cat err)"
"$NORMA" inspect first --advise --measure tid --batches 2 >out.first 2>err || fail "inspect: $(cat err)"
grep -q 'SmallInit    .* the loss of the first update is ' out.first || fail "no verdict about the first loss: $(cat out.first)"
for text in 'TID, % (4 training batches)' 'last layer: enc.1.ffn.norm' 'singular values of embed.weight' 'C_80' \
    'Lemma 2 (2 batches)' 'gradient norm by layer' 'with label smoothing 0.10 the optimum is' 'RBN penalty' 'pre-norm'; do
    has out "$text"
done
# quantiles of the singular values by index, the largest of which is 1
grep -A 1 '^singular values of embed.weight' out | tail -n 1 >spectrum
grep -Eq '^  1: 1\.000( [0-9]+: 0\.[0-9]{3})+$' spectrum || fail "spectrum: $(cat spectrum)"
# a log or a folder of checkpoints that cannot be read is not missing
cp -r initial unread
ln -sf log.jsonl unread/log.jsonl
refuses 3 'unread/log.jsonl: Too many levels of symbolic links' inspect unread --advise --measure spectrum
rm -r unread/checkpoints
ln -s checkpoints unread/checkpoints
refuses 3 'unread/checkpoints: Too many levels of symbolic links' inspect unread --checkpoints --measure spectrum
"$NORMA" inspect runs/small some --json --checkpoints --measure tid,condition --batches 2 --advise >out 2>err ||
    fail "inspect --json: $(cat err)"
[ "$(grep -c '"model": ' out)" = 4 ] || fail "expected two checkpoints of two runs: $(grep '"model"' out)"
[ "$(grep -c '"verdict": ' out)" = 20 ] || fail "expected five remedies for each"
has out '"update": 15'
has out '"quadratic_mean": '
grep -q 'confidence\|lemma2' out && fail "more was measured than requested"
# The advice names the option that the recipe varies.
"$NORMA" train small.ini --run.folder encoder --model.norm layer --model.encoder_norm batch --train.updates 5 2>err || fail "train: $(cat err)"
for pair in 'runs/small model.norm' 'encoder model.encoder_norm'; do
    "$NORMA" inspect ${pair% *} --json --advise --measure tid --batches 2 >out 2>err || fail "inspect --advise: $(cat err)"
    for norm in rbn power; do has out "\"setting\": \"${pair#* } = $norm\""; done
done
"$NORMA" inspect runs/small/best.safetensors --measure spectrum >out 2>err || fail "inspect FILE: $(cat err)"
has out "the largest"
"$NORMA" inspect some --checkpoints --measure tid --batches 2 --save >out 2>err || fail "inspect --save: $(cat err)"
has out "average"
"$NORMA" inspect some --measure spectrum --save --json >out 2>err || fail "inspect --save again: $(cat err)"
[ "$(grep -c '"update": ' some/inspection.json)" = 2 ] || fail "expected one object per update: $(grep update some/inspection.json)"
[ "$(grep -c '"tid": ' some/inspection.json)$(grep -c '"spectrum": ' some/inspection.json)" = 21 ] ||
    fail "the second measurement was not merged with the first: $(grep -n '": {' some/inspection.json)"
echo 'no list' >some/inspection.json
"$NORMA" inspect some --measure spectrum --save >out 2>err
code=$?
fails_with 4 "--save over a file that is no list"
[ "$(cat some/inspection.json)" = 'no list' ] || fail "inspect --save replaced a file that it cannot read"
rm some/inspection.json
"$NORMA" inspect runs/small/best.safetensors --measure spectrum --save >out 2>err
code=$?
fails_with 2 "--save for a model file"
mv data moved
"$NORMA" inspect some --measure tid --batches 2 --data moved >out 2>err || fail "inspect --data: $(cat err)"
# A dictionary of the same size in another order: the ids of the data stand for other tokens. Counts may differ.
awk 'NR == 1 { first = $0; next } { print } NR == 2 { print first }' moved/dict.source.txt >other.dict
again=(--train train --valid valid --source-lang de --target-lang en --codes moved/codes.bpe)
"$NORMA" prepare "${again[@]}" --dict-source other.dict --output other 2>err || fail "prepare: $(cat err)"
"$NORMA" inspect some --measure tid --batches 2 --data other >out 2>err
code=$?
fails_with 5 "another dictionary"
has err 'the data has another dict.source.txt than the model (line 1: '
sed 's/ [0-9]*$/ 7/' moved/dict.source.txt >counts.dict
"$NORMA" prepare "${again[@]}" --dict-source counts.dict --output counts 2>err || fail "prepare: $(cat err)"
"$NORMA" inspect some --measure tid --batches 2 --data counts >out 2>err || fail "other counts: $(cat err)"
has out "average"

# ---- adaptive softmax: the probabilities are those of the loss ----
make_sentences train.txt 200 1
make_sentences valid.txt 60 2
"$NORMA" prepare --format text --tokenizer none --bpe-merges 0 --train train.txt --valid valid.txt --output words 2>err || fail "prepare: $(cat err)"
"$NORMA" train "$SOURCE/recipes/demo-lm.ini" --data.folder words --model.preset tiny --model.context 8 --model.width 32 --model.ff 64 \
    --model.adaptive true --model.cutoffs 6,10 --train.label-smoothing 0 --train.updates 20 --train.validate-every 20 \
    --run.folder adaptive --device.threads 1 2>err || fail "train an adaptive softmax: $(cat err)"
"$NORMA" inspect adaptive --measure confidence --batches 0 --json >out 2>err || fail "inspect an adaptive softmax: $(cat err)"
nll=$(sed -n 's/.*"type":"valid".*"nll":\([0-9.]*\).*/\1/p' adaptive/log.jsonl)
awk -v a="$nll" -v b="$(sed -n 's/ *"nll": \([0-9.]*\),*/\1/p' out)" 'BEGIN { d = a - b; exit !(a > 1 && d < 1e-5 && d > -1e-5) }' ||
    fail "nll $nll in the log, $(grep '"nll"' out) by inspect"

# ---- what cannot be measured ----
"$NORMA" inspect some --measure tid >out 2>err
code=$?
fails_with 3 "a data folder that is gone"
mv moved data
"$NORMA" inspect nowhere >out 2>err
code=$?
fails_with 3 "a run that is not there"
"$NORMA" inspect runs/small/best.safetensors --checkpoints >out 2>err
code=$?
fails_with 3 "checkpoints of a file"
"$NORMA" inspect runs/small --measure tid,heat >out 2>err
code=$?
fails_with 2 "an unknown measurement"
head -c 3000 runs/small/best.safetensors >broken.safetensors
"$NORMA" inspect broken.safetensors >out 2>err
code=$?
fails_with 4 "half a model file"
printf '{"type":"train","grad_norm":"x"}\n\xff\xfe{\n[1,2\n{"type":3}\n' >runs/small/log.jsonl
"$NORMA" inspect runs/small --measure tid --advise --batches 1 >out 2>err || fail "a broken log: $(cat err)"
has out "too few gradient norms"
"$NORMA" inspect runs/small --measure spectrum --gradient-batches 3 >out 2>err
code=$?
fails_with 2 "an option without effect"
grep -q 'inspect.gradient_batches = 3 has no effect' err || fail "an option without effect: $(cat err)"
"$NORMA" inspect runs/small --measure tid --batches 1 >/dev/full 2>err
code=$?
fails_with 3 "a full disk"
