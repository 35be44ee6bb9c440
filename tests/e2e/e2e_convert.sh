#!/bin/bash
# norma convert: folders of CTranslate2 and Hugging Face. The files have the documented structure; a part of a model that the
# other program lacks is named, and no file is written. tests/interchange runs the other programs.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

awk 'BEGIN {
    srand(5)
    split("haus baum hund katze rot blau", from); split("house tree dog cat red blue", to)
    for (i = 0; i < 120; i++) {
        a = b = ""
        for (j = 0; j < 1 + i % 3; j++) {
            k = 1 + int(rand() * 6)
            a = a from[k] " "; b = to[k] " " b
        }
        name = i < 100 ? "train" : "valid"
        print a "." >(name ".de"); print b "." >(name ".en")
    }
}'
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
    --tokenizer none --bpe-merges 0 2>/dev/null
"$NORMA" prepare --format text --train train.en --valid valid.en --output text --tokenizer none --bpe-merges 0 2>/dev/null
cat >small.ini <<'X2'
[data]
folder = data
[model]
preset = tiny
width = 32
ff = 64
heads = 2
encoder_layers = 1
decoder_layers = 1
dropout = 0
[train]
updates = 3
max_tokens = 256
score = false
[schedule]
lr = 0.005
warmup = 2
[device]
threads = 1
X2
cat >lm.ini <<'X2'
[run]
task = lm
[data]
folder = text
[model]
preset = tiny
width = 32
heads = 2
context = 16
output_bias = false
[train]
updates = 3
max_tokens = 256
[schedule]
lr = 0.005
warmup = 2
[device]
threads = 1
X2
train() { # RUN RECIPE [OPTION ...]
    "$NORMA" train "$2" --run.folder "$1" --run.quiet "${@:3}" 2>/dev/null
}
train pre small.ini
train post small.ini --model.norm_position post
train folded small.ini --model.encoder_norm rbn
train mixed small.ini --model.norm layer --norm.at 'enc.0.ffn=rms'
train power small.ini --model.encoder_norm power
train text-model lm.ini

# ---- CTranslate2: version 6, the name of the specification with its length, its revision ----
for run in pre post folded; do
    try convert $run --to ctranslate2 -o ct2-$run
    [ "$got" = 0 ] || fail "convert $run: $(cat err)"
    head -c 26 ct2-$run/model.bin | od -An -tx1 | tr -d ' \n' >bytes
    printf '%s' 0600000010005472616e73666f726d65725370656300070000 >expected
    head -c 50 bytes >first
    same first expected
    has ct2-$run/config.json '"decoder_start_token": "</s>"'
    has ct2-$run/shared_vocabulary.json '"katze"'
done
has ct2-pre/config.json '"layer_norm_epsilon": 1e-5'
grep -q 'decoder/layer_0/attention/linear_2/weight' ct2-pre/model.bin || fail "no cross-attention"
grep -q 'encoder/layer_0/ffn/layer_norm/beta' ct2-pre/model.bin || fail "LayerNorm without beta"
# an affine norm is an RMSNorm without beta, and its shift is in the bias of its reader
! grep -q 'encoder/layer_0/ffn/layer_norm/beta' ct2-folded/model.bin || fail "RMSNorm with beta"
cases=$((cases + 3))
try convert text-model --to ctranslate2 -o ct2-text
has ct2-text/config.json '"bos_token": "</s>"'
grep -q TransformerDecoderSpec ct2-text/model.bin || fail "ct2-text is no language model"

# ---- Hugging Face ----
try convert pre --to huggingface -o hf-pre
has hf-pre/config.json '"M2M100ForConditionalGeneration"'
has hf-pre/tokenizer.json '"WordLevel"'
has hf-pre/generation_config.json '"decoder_start_token_id": 2'
grep -q '"model.decoder.layers.0.encoder_attn.k_proj.weight"' hf-pre/model.safetensors || fail "no keys in hf-pre"
try convert post --to huggingface -o hf-post
has hf-post/config.json '"MarianMTModel"'
grep -q '"final_logits_bias":{"dtype":"F32","shape":\[1,' hf-post/model.safetensors || fail "no bias in hf-post"
try convert text-model --to huggingface -o hf-text
has hf-text/config.json '"GPT2LMHeadModel"'
grep -q '"transformer.h.0.attn.c_attn.weight":{"dtype":"F32","shape":\[32,96\]' hf-text/model.safetensors ||
    fail "c_attn is not transposed"

# ---- what the other programs lack is named ----
refuses 7 "enc.0.self.norm is layer and enc.0.ffn.norm is rms: CTranslate2 has one epsilon" convert mixed --to ctranslate2 -o no
refuses 7 "enc.0.self.norm is power: with row scaling it is not affine" convert power --to ctranslate2 -o no
refuses 7 "enc.0.self.norm is rbn: the class has LayerNorm" convert folded --to huggingface -o no
refuses 2 "models are not converted to 'onnx'; the formats are: ctranslate2, huggingface" convert pre --to onnx -o no
refuses 2 "no output" convert pre --to huggingface
refuses 3 "missing" convert missing --to huggingface -o no
[ ! -e no ] || [ -z "$(ls no)" ] || fail "files in spite of a failure: $(ls no)"
echo "e2e_convert: passed"
