#!/usr/bin/env bash
# Structures of layers: positions of the norms, residual connections, rotary embeddings, norms of queries and keys, gated units.
# Every structure is trained, and its model translates in all precisions, independently of threads, buffers, activation
# checkpointing, and of a stop and resume; models are exported and averaged; formats without these parts refuse them.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

prepare_pairs data
write_recipe small.ini data.folder=data data.max_length=40 model.preset=tiny model.width=32 model.ff=64 \
    model.heads=4 model.max_positions=64 train.updates=6 train.max_tokens=200 train.log_every=2 \
    train.validate_every=3 train.save_every=3 train.score=0 schedule.name=constant schedule.lr=0.003 \
    device.precision=float
head -n 12 valid.de >input
printf '\nhaus %s\n' "$(printf 'unbekannt %.0s' $(seq 30))" >>input # an empty line, a long one with unknown words

weights() { # FOLDER: checksum of the model of the last checkpoint
    "$NORMA" average weights.safetensors "$1/last.safetensors" 2>err || fail "average: $(cat err)"
    tail -c 3000 weights.safetensors | cksum
}

translate() { # MODEL OUTPUT OPTIONS...
    local model=$1 output=$2
    shift 2
    "$NORMA" translate "$model" input --decode.max_length_a 1 --decode.max_length_b 5 "$@" >"$output" 2>err ||
        fail "translate $model $*: $(cat err)"
    [ "$(wc -l <"$output")" = "$(wc -l <input)" ] || fail "translate $model $*: $(wc -l <"$output") lines"
}

n=0
while read -r -a options; do
    n=$((n + 1))
    run=run$n
    "$NORMA" train small.ini "${options[@]}" --run.folder $run --device.threads 1 2>err ||
        fail "train ${options[*]}: $(cat err)"
    "$NORMA" train small.ini "${options[@]}" --run.folder two --device.threads 2 --train.activation_checkpointing layer \
        2>err || fail "train ${options[*]}: $(cat err)"
    [ "$(weights $run)" = "$(weights two)" ] || fail "${options[*]}: threads or checkpointing changed the weights"
    "$NORMA" train small.ini "${options[@]}" --run.folder parts --train.updates 3 2>err ||
        fail "train ${options[*]}: $(cat err)"
    "$NORMA" train small.ini "${options[@]}" --run.folder parts --resume --train.updates 6 2>err || fail "resume ${options[*]}: $(cat err)"
    [ "$(weights $run)" = "$(weights parts)" ] || fail "${options[*]}: a resumed run gave other weights"
    translate $run one --device.threads 1
    translate $run buffer --device.threads 2 --buffer 1
    same one buffer
    "$NORMA" export $run -o folded --fold >out 2>&1 || fail "export ${options[*]}: $(cat out)"
    translate folded exported
    same one exported
    translate $run int8 --precision int8
    translate $run bf16 --precision bf16
    "$NORMA" inspect $run --batches 2 >out 2>err || fail "inspect ${options[*]}: $(cat err)"
    rm -rf two parts
done <<'EOF'
--model.norm_position sandwich --model.embedding_norm rms
--model.norm_position inside --model.residual skipinit
--model.norm_position mix --model.norm scale
--model.norm_position sub --model.init subln --model.residual layerscale
--model.norm_position post --model.residual deepnorm --model.init deepnorm
--model.norm_position post --model.residual resi-dual --model.dropout 0.2
--model.residual depth-scaled --model.gated true --model.activation silu --model.bias false
--model.residual rezero --model.norm none --model.init tfixup
--model.rope half --model.positions none --model.key_value_heads 2 --model.qk_norm head
--model.rope interleaved --model.qk_norm full --model.v_norm head --model.qk_norm_after_rope true
--model.head_width 6 --model.qk_norm head --model.qk_norm_type layer
--model.norm_position post --model.residual admin --model.init admin
--model.preset tfixup --model.width 16 --model.ff 32 --model.heads 2
EOF
[ $n = 13 ] || fail "$n structures"

# ---- formats without these parts ----
refuses 7 "CTranslate2's Transformer has no model.norm_position other than pre and post" convert run1 -o x --to ctranslate2
refuses 7 'has no model.residual other than plain' convert run5 -o x --to huggingface
refuses 7 'has no model.rope' convert run10 -o x --to ctranslate2

# ---- combinations and options without effect ----
refuses 2 'model.residual = deepnorm needs model.norm_position = post' train small.ini --model.residual deepnorm --run.folder x
refuses 2 'needs model.residual = admin' train small.ini --model.norm_position post --model.init admin --run.folder x
"$NORMA" train small.ini --model.norm_position post --model.residual deepnorm --train.updates 1 --run.folder warned 2>err ||
    fail "train: $(cat err)"
has err 'warning: model.residual = deepnorm without its initialization: deep models may not train; set model.init = deepnorm'
"$NORMA" train small.ini --model.norm_position post --model.residual deepnorm --model.init torchscale --train.updates 1 \
    --run.folder silent 2>err || fail "train: $(cat err)"
grep 'without its initialization' err && fail "a warning about the initialization of the released code"
refuses 2 'only mix has layers of both positions' train small.ini --model.post_layers 1 --run.folder x
refuses 2 'not a multiple of model.key_value_heads = 3' train small.ini --model.key_value_heads 3 --run.folder x

# ---- language models: the presets of known structures ----
make_sentence_splits
prepare_sentences text
for preset in gpt2 llama olmo2 qwen3 gemma3 deepnet; do
    "$NORMA" train lm --data.folder text --model.preset $preset --model.width 32 --model.ff 64 --model.heads 4 \
        --model.layers 2 --model.context 16 --train.updates 4 --train.validate_every 4 --train.max_tokens 128 \
        --run.folder lm-$preset 2>err || fail "train $preset: $(cat err)"
    "$NORMA" generate lm-$preset --tokens 8 --seed 3 <<<'the dog' >one 2>err || fail "generate $preset: $(cat err)"
    [ -s one ] || fail "generate $preset: no text"
    lacks lm-$preset/config.ini 'norm_position = pre ; file'
    "$NORMA" perplexity lm-$preset test.txt >out 2>err || fail "perplexity $preset: $(cat err)"
done
has lm-olmo2/config.ini 'norm_position = inside ; preset'
has lm-llama/config.ini 'norm = rms ; preset'

# ---- a recipe's settings are stronger than a preset ----
"$NORMA" train small.ini --model.preset small --train.updates 1 --run.folder x 2>err || fail "train: $(cat err)"
has err "the recipe's settings model.width = 32, model.ff = 64 replace those of model.preset = small"
echo "$cases checks, $failures failures"
