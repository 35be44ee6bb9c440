#!/usr/bin/env bash
# norma train and norma compare on a generated corpus: run folder, log, interruption and resume, saved configuration, and
# the three formats of the table.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

prepare_pairs data

write_recipe small.ini data.folder=data data.max_length=40 model.preset=tiny model.width=32 model.ff=64 \
    model.heads=2 model.max_positions=64 model.dropout=0 model.embedding_dropout=0 train.updates=60 \
    train.max_tokens=200 train.log_every=10 train.validate_every=20 train.best_by=score \
    schedule.name=constant schedule.lr=0.003 decode.beam=2 device.threads=1

# ---- the run folder ----
"$NORMA" train small.ini 2>err || fail "train: $(cat err)"
has err "level"
has err "MiB for a step"
has err "validation at update 20"
has err "done: 60 updates, "
has err " target tokens; best at update"
grep -qE 'best at update [246]0: loss [0-9.]+, BLEU [0-9.]+ \(runs/small/best.safetensors\)' err || fail "no best checkpoint: $(tail -n 1 err)"
"$NORMA" train small.ini --run.folder percent --train.updates 10 --run.report_seconds 0.1 2>err || fail "train: $(cat err)"
has err '0 %  epoch 1 ('
for file in config.ini log.jsonl best.safetensors last.safetensors checkpoints/00000060.safetensors; do
    [ -s runs/small/"$file" ] || fail "runs/small/$file is missing"
done
[ "$(grep -c '"type":"train"' runs/small/log.jsonl)" = 6 ] || fail "the log has not 6 training lines"
[ "$(grep -c '"bleu"' runs/small/log.jsonl)" = 3 ] || fail "the log has not 3 scores"

# ---- dry run ----
"$NORMA" train small.ini --run.folder dry --dry-run --run.tensorboard true 2>err || fail "dry run: $(cat err)"
grep -qE '^dry run dry: 0\.0[0-9] M parameters, at most [0-9]+ MiB for a step$' err || fail "no size: $(cat err)"
has err 'nothing was trained or written'
lacks err 'done:'
[ ! -e dry ] || fail 'a dry run made a folder'
"$NORMA" train small.ini --dry-run 2>err || fail "dry run of a recipe that has been trained: $(cat err)"
refuses 2 'exclude each other' train small.ini --dry-run --resume
lacks err 'has no end'
accepts 'warning: the training has no end: set train.epochs' train small.ini --run.folder dry --dry-run --train.updates 0
accepts 'warning: the warm-up (4000 updates) does not end in the run (60 updates)' train small.ini --run.folder dry \
    --dry-run --schedule.name cosine
"$NORMA" train small.ini --run.folder dry --dry-run --schedule.name cosine --schedule.warmup 59 2>err || fail "dry run: $(cat err)"
lacks err 'does not end'

# ---- time by kernel ----
"$NORMA" train small.ini --run.folder profile --train.updates 10 --device.profile 2>err || fail "train: $(cat err)"
has err 'profile of 9 updates, ' # without the first one
# The shares of the kernels and of the time outside kernels add up to 100 %; GEMM kernels have a rate.
awk '/^profile of/ { table = 1; next } table && $1 != "kernel" && !/^all GEMM/ { for (i = 2; i <= NF; i++) if ($i == "%") sum += $(i - 1); n++ }
    END { exit !(n > 5 && sum > 98 && sum < 102) }' err || fail "the shares do not add up: $(cat err)"
grep -qE '^all GEMM kernels .* % +[0-9.]+ GFLOP/s$' err || fail "no rate of the GEMM kernels: $(cat err)"
grep -qE '^outside kernels +[0-9.]+ +[0-9.]+ %$' err || fail "no time outside the kernels: $(cat err)"

# ---- config.ini is a recipe of the same run ----
"$NORMA" train runs/small/config.ini --run.folder again 2>err || fail "train again: $(cat err)"
cmp -s <(tail -c 4000 runs/small/last.safetensors) <(tail -c 4000 again/last.safetensors) || fail "config.ini gave other weights"

# ---- Muon ----
"$NORMA" train small.ini --run.folder muon --optim.name muon 2>err || fail "train with Muon: $(cat err)"
grep -qE 'muon updates 32 matrices with 0\.0[0-9] M of 0\.0[0-9] M parameters, AdamW the others$' err || fail "no number of matrices: $(cat err)"
# The loss falls from the chance level at every validation.
sed -nE 's/.*"type":"valid".*"nll":([0-9.]+).*/\1/p' muon/log.jsonl | awk '{ if (NR > 1 && $1 >= last) exit 1; last = $1 } END { exit NR != 3 }' ||
    fail "the loss does not fall: $(grep '"type":"valid"' muon/log.jsonl)"
refuses 2 'optim.momentum = 0.8 has no effect with optim.name = muon' train small.ini --run.folder other --optim.name muon --optim.momentum 0.8
refuses 2 'norm.rbn.lambda has no effect: no norm of the model is of the type rbn' \
    train small.ini --run.folder other --norm.rbn.lambda 3
refuses 2 'optim.name' train small.ini --run.folder muon --optim.name adamw --resume

# ---- duration ----
for seconds in 2 20 100; do # the estimate needs a few updates, for which a busy machine may need longer
    [ $seconds = 2 ] && left='0:0[0-9]' || left='[01]:[0-9][0-9]'
    rm -rf duration
    "$NORMA" train small.ini --run.folder duration --train.updates 100000 --train.seconds $seconds --schedule.name cosine \
        --schedule.warmup 20 --run.report_seconds 0.1 2>err || fail "train: $(cat err)"
    grep -q 'training takes about' err && break
done
[ "$(grep -c "training takes about $left more on this machine" err)" = 1 ] || fail "no duration: $(cat err)"
grep -q '"schedule_position":' duration/log.jsonl || fail "the schedule does not follow the time"

# ---- interruption and resume ----
# Without job control bash ignores SIGINT in background processes.
{ cat small.ini && printf '[profile.narrow]\nmodel.ff = 32\n'; } >profiled.ini
perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- "$NORMA" train profiled.ini --profile narrow --run.folder "Jan's run" --train.updates 100000 2>err &
for ((i = 0; i < 200; i++)); do
    grep -q '"update":20,' "Jan's run/log.jsonl" 2>/dev/null && break
    sleep 0.1
done
kill -INT $!
wait $!
code=$?
[ "$code" = 9 ] || fail "Ctrl-C gave exit code $code: $(tail -n 3 err)"
# The printed command is one for the shell.
has err 'to continue: norma train --run.folder '
command=$(sed -n 's/^to continue: norma \(.*\)/\1/p' err)
eval "\"\$NORMA\" $command --train.updates 100000 --train.seconds 1" 2>err || fail "resume: $(cat err)"
has err "resumed at update"
lacks err "recipe has changed"
grep -q '^ff = 32 ; profile' "Jan's run/config.ini" || fail "the resumed run lost its profile"
"$NORMA" train small.ini --run.folder patient --comm.timeout 77 --train.updates 20 2>err || fail "train: $(cat err)"
"$NORMA" train --run.folder patient --resume --train.updates 30 2>err || fail "resume of a run with options [comm]: $(cat err)"
# The model files are those of an uninterrupted run: their configuration has no origins, which a resume changes.
"$NORMA" train small.ini --run.folder entire --train.updates 400 2>err || fail "train: $(cat err)"
perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- "$NORMA" train small.ini --run.folder stopped --train.updates 400 2>err &
process=$!
while kill -0 $process 2>/dev/null && ! grep -qs '"update":20,' stopped/log.jsonl; do sleep 0.01; done
kill -INT $process
got=0
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got after SIGINT: $(tail -n 3 err)"
"$NORMA" train --run.folder stopped --resume 2>err || fail "resume: $(cat err)"
for file in last best; do
    cmp -s {entire,stopped}/$file.safetensors || fail "$file.safetensors differs after a resume"
done
mkdir -p empty
refuses 2 'empty: there is no run to continue, and no recipe is named' train --run.folder empty --resume
refuses 2 'too few arguments' train --run.folder "Jan's run"
refuses 2 'too few arguments' train --resume

# ---- a resumed run uses its own configuration ----
value() { sed -n "s/^$2 = \([^ ]*\) ;.*/\1/p" "$1/config.ini" | head -n 1; } # FOLDER OPTION, of a name that one section has
"$NORMA" train small.ini --run.folder own --schedule.lr 0.007 --train.updates 20 2>err || fail "train: $(cat err)"
"$NORMA" train small.ini --run.folder own --resume --train.updates 30 2>err || fail "resume: $(cat err)"
[ "$(value own lr)" = 0.007 ] || fail "the resumed run has the recipe's learning rate: $(value own lr)"
grep -q '"update":30,.*"lr":0.007,' own/log.jsonl || fail "update 30 has another learning rate: $(cat own/log.jsonl)"
cp own/config.ini kept.ini
"$NORMA" train small.ini --run.folder own --resume --schedule.lr 0.01 2>err
code=$?
[ "$code" = 2 ] || fail "another learning rate gave exit code $code"
has err 'schedule.lr = 0.01: the run in own uses 0.007'
has err '--resume=override'
cmp -s kept.ini own/config.ini || fail "a refused resume changed config.ini"
"$NORMA" train small.ini --run.folder own --resume override --schedule.lr 0.01 --train.updates 40 2>err || fail "override: $(cat err)"
grep -q '"type":"resume","update":30,.*"schedule.lr":{"from":"0.007","to":"0.01"}' own/log.jsonl ||
    fail "the change is not in the log: $(grep resume own/log.jsonl)"
grep -q '"update":40,.*"lr":0.01,' own/log.jsonl || fail "update 40 has another learning rate"
[ "$(value own lr)" = 0.01 ] || fail "config.ini has not the new learning rate"
sed 's/^lr = .*/lr = 0.02/' small.ini >edited.ini
cp -r runs/small recipe_edited
"$NORMA" train edited.ini --run.folder recipe_edited --resume 2>err || fail "resume with an edited recipe: $(cat err)"
has err 'schedule.lr = 0.02 (the run uses 0.003)'
head -n 1 own/log.jsonl >first
has first '"host":"'
has first '"command":"norma train small.ini --run.folder own --schedule.lr 0.007 --train.updates 20"'
has first '"started":"20'
"$NORMA" train small.ini --run.folder "it's a run" --train.updates 1 2>err || fail "a folder with a quote: $(cat err)"
head -n 1 "it's a run/log.jsonl" >first
has first "--run.folder 'it'\\\\''s a run' --train.updates 1\""

# ---- data folders and run folders are not mixed; a run may be in a folder of the data folder ----
refuses 2 'data is a data folder of norma prepare' train small.ini --run.folder data
refuses 2 'data is a data folder of norma prepare' train small.ini --run.folder data --resume
[ ! -e data/checkpoints ] && [ ! -e data/config.ini ] || fail 'a refused run has written files'
cp -r runs/small kept
p=(prepare --train train --source-lang de --target-lang en --bpe-merges 30)
refuses 2 'runs/small is the folder of a run' "${p[@]}" --output runs/small
diff -r runs/small kept || fail 'a refused preparation has changed the folder of a run'
cp -r data mixed
"$NORMA" train small.ini --data.folder mixed --run.folder mixed/run --train.updates 5 2>err || fail "a run in a data folder: $(cat err)"
"$NORMA" train --run.folder mixed/run --resume --train.updates 10 2>err || fail "resume in a data folder: $(cat err)"
has err 'resumed at update 5'
"$NORMA" "${p[@]}" --output mixed 2>err || fail "a data folder with a run, prepared again: $(cat err)"
cp -r mixed/run/. mixed # the folder of both, as earlier versions made it
"$NORMA" train --run.folder mixed --resume --data.folder data --train.updates 15 2>err || fail "resume in a folder of both: $(cat err)"
has err 'resumed at update 10'
"$NORMA" "${p[@]}" --output mixed 2>err || fail "a folder of both, prepared again: $(cat err)"
rm -r kept mixed

# ---- a run is present if there is a log or a checkpoint; a log that is too short is not padded ----
cp -r runs/small nolog
rm nolog/log.jsonl
"$NORMA" train small.ini --run.folder nolog 2>err && fail "a fresh run started among the checkpoints of another"
has err 'already contains a run'
rm nolog/last.safetensors nolog/best.safetensors
"$NORMA" train small.ini --run.folder nolog 2>err && fail "a fresh run started among the checkpoints of another"
cp -r runs/small short
head -c 700 runs/small/log.jsonl >short/log.jsonl
"$NORMA" train small.ini --run.folder short --resume --train.updates 70 2>err || fail "resume with a short log: $(cat err)"
has err 'short/log.jsonl has 700 bytes'
grep -c '"update":70,' short/log.jsonl >/dev/null || fail "the log does not continue"
[ "$(tr -d '\0' <short/log.jsonl | wc -c)" = "$(wc -c <short/log.jsonl)" ] || fail "the log contains NUL bytes"
while IFS= read -r line; do
    case $line in '{"type":'*'}') ;; *) fail "no JSON object: $line" ;; esac
done <short/log.jsonl

# ---- log records and TensorBoard events ----
head -n 1 runs/small/log.jsonl >first
has first '"type":"start"'
[ "$(grep -c '"type":"samples"' runs/small/log.jsonl)" = 3 ] || fail "the log has not 3 lines of samples"
if "$NORMA" train small.ini --run.folder live --train.updates 20 --run.tensorboard 2>err; then
    for tag in train/loss valid/bleu samples/text; do
        grep -qaF $tag live/tensorboard/events.out.tfevents.*.norma || fail "$tag is not in the event file"
    done
else
    has err "libprotobuf-c-dev"
fi

# ---- several variants ----
"$NORMA" compare small.ini --norms layer,power,scale+fix --train.updates 20 --jobs 2 --format json >table.json 2>err ||
    fail "compare: $(cat err)"
[ "$(grep -c '"tid_variance"' table.json)" = 3 ] || fail "the JSON table has not three rows: $(cat table.json)"
has runs/small-compare/power-1/test.json '"against": "layer"'
[ "$(grep -c '"site"' runs/small-compare/layer-1/test.json)" -gt 3 ] || fail "test.json has no TID by site"
cp -r runs/small-compare kept
"$NORMA" compare small.ini --norms layer,power,scale+fix --train.updates 20 --format markdown >table.md 2>err ||
    fail "compare again: $(cat err)"
has table.md "| layer"
has table.md "TID var %"
cmp -s kept/power-1/log.jsonl runs/small-compare/power-1/log.jsonl || fail "finished runs were trained again"
"$NORMA" compare small.ini --norms layer,nonsense 2>err >/dev/null
code=$?
[ "$code" = 2 ] || fail "an unknown norm gave exit code $code"
has err "nonsense"

# ---- a run that is resumed at another CPU level ----
"$NORMA" train small.ini --run.folder level --train.updates 10 --device.isa base 2>err || fail "train: $(cat err)"
cp -r level same-level
"$NORMA" train small.ini --run.folder same-level --resume --train.updates 12 2>err || fail "resume: $(cat err)"
lacks err "CPU level"
"$NORMA" train small.ini --run.folder level --resume=override --device.backend ref --train.updates 12 2>err ||
    fail "resume: $(cat err)"
has err "warning: the checkpoint was computed at CPU level base, this session computes at ref"

# ---- avx2 and the levels above it train bitwise identical weights ----
tensors() { perl -e 'open F, "<:raw", $ARGV[0] or die; read F, my $n, 8; seek F, 8 + unpack("Q<", $n), 0; local $/; print <F>' "$1"; }
train_at() { # LEVEL OPTIONS...: the weights to weights-LEVEL
    rm -rf level
    "$NORMA" train small.ini --run.folder level --train.updates 8 --train.validate_every 8 --model.dropout 0.1 --run.quiet \
        --device.isa "$@" 2>err && tensors level/last.safetensors >"weights-$1" && [ -s "weights-$1" ]
}
mapfile -t norms < <("$BUILD"/examples/norm_tables types | sed -nE 's/^\| `([a-z]+)` .*/\1/p')
[ "${#norms[@]}" -ge 21 ] || fail "norm_tables: ${norms[*]}"
for options in "${norms[@]/#/--model.norm }" "--device.precision bf16"; do
    # shellcheck disable=SC2086
    if train_at avx2 $options; then
        train_at auto $options || fail "train $options: $(cat err)"
        cmp -s weights-avx2 weights-auto || fail "$options: weights differ between the level avx2 and the best level"
    else
        grep -q 'does not support level avx2' err || fail "train $options at avx2: $(cat err)"
        echo "not tested: $(cat err)"
        break
    fi
done

# ---- the average of two equal models ----
"$NORMA" average mean.safetensors runs/small/last.safetensors again/last.safetensors 2>err || fail "average: $(cat err)"
cmp -s <(tail -c 4000 mean.safetensors) <(tail -c 4000 again/last.safetensors) || fail "the average of two equal models differs from them"

# ---- the average of a run: the checkpoints that it has kept, without the initial one ----
accepts 'done: 12 updates' train small.ini --run.folder kept --train.updates 12 --train.save_every 2 --train.keep_last 4 --train.save_initial
[ -e kept/checkpoints/00000000.safetensors ] || fail "no initial checkpoint"
for last in 0 1 3 4; do
    "$NORMA" average run.safetensors kept --last $last 2>err || fail "average of a run: $(cat err)"
    mapfile -t files < <(find kept/checkpoints -name '*[1-9]*.safetensors' ! -name '*.state.*' | sort | tail -n $((last ? last : 4)))
    has err "run.safetensors: average of ${#files[@]} model"
    "$NORMA" average files.safetensors "${files[@]}" 2>err || fail "average of files: $(cat err)"
    cmp -s run.safetensors files.safetensors || fail "--last $last is not the average of ${files[*]}"
done
"$NORMA" average run.safetensors kept runs/small/last.safetensors kept --last 2 2>err || fail "average of runs: $(cat err)"
has err 'kept: checkpoints of updates 10, 12'
has err 'average of 5 models'
rm run.safetensors
refuses 5 'kept: 4 checkpoints, but --last is 5; train.keep_last' average run.safetensors kept --last 5
refuses 2 'average.last has no effect without a run folder' average run.safetensors runs/small/last.safetensors --last 2
# what cannot be read is not missing
mkdir unlisted && ln -s checkpoints unlisted/checkpoints && ln -s ring ring
refuses 3 'unlisted/checkpoints: Too many levels of symbolic links' average run.safetensors unlisted
refuses 3 'ring: Too many levels of symbolic links' average run.safetensors ring --last 2
refuses 3 'kept/checkpoints: is a folder, but no run with saved checkpoints' average run.safetensors kept kept/checkpoints
[ ! -e run.safetensors ] || fail 'an average that failed left a file'

# ---- a recipe that varies the encoder's norm: variants and --model.norm replace that norm ----
printf 'include = small.ini\n[model]\nnorm = layer\nencoder_norm = power\nencoder_final_norm = layer\n' >encoder.ini
"$NORMA" compare encoder.ini --norms layer,batch,rms --train.updates 5 --jobs 2 --format json >table.json 2>err ||
    fail "compare with encoder_norm: $(cat err)"
[ "$(grep '"weights"' table.json | sort -u | wc -l)" = 3 ] || fail "variants trained identical weights: $(cat table.json)"
lacks err identical
for norm in layer batch rms; do
    has runs/encoder-compare/$norm-1/config.ini "encoder_norm = $norm ; command line"
    has runs/encoder-compare/$norm-1/config.ini "norm = layer ; file"
done
"$NORMA" train encoder.ini --model.norm batch --run.folder replaced --train.updates 5 2>err || fail "train: $(cat err)"
has err "--model.norm batch replaces that one"
has replaced/config.ini "encoder_norm = batch ; command line"
has replaced/config.ini "norm = layer ; command line"
has replaced/config.ini "encoder_final_norm = layer ; file"
"$NORMA" train encoder.ini --model.norm batch --model.encoder_norm rbn --run.folder both --train.updates 2 2>err ||
    fail "train: $(cat err)"
lacks err replaces
has both/config.ini "encoder_norm = rbn ; command line"

# Settings without effect are reported after training at the latest.
"$NORMA" compare small.ini --norms layer,layer:decode.beam=3 --folder equal --train.updates 5 --jobs 2 --format json \
    >table.json 2>err || fail "compare: $(cat err)"
has err "warning: layer and layer:decode.beam=3, seed 1: the trained weights are identical"
has table.json '"same_weights_as": "layer"'

# ---- divergence: the message names a checkpoint only if there is one, and pre-norm only for other models ----
diverges() {
    "$NORMA" train small.ini --optim.name sgd --schedule.lr 100 --model.norm none "$@" >out 2>err
    local code=$?
    [ "$code" = 8 ] || fail "exit code $code instead of 8: train $*: $(cat err)"
}
diverges --run.folder diverged
lacks err "checkpoint"
lacks err "pre-norm"
diverges --run.folder diverged-saved --train.save_initial
has err "; the last checkpoint is kept; try a lower schedule.lr"
diverges --run.folder diverged-inside --model.norm_position inside
has err "train.max_grad_norm = 1 or pre-norm"
