#!/bin/bash
# norma convert: language models with RMSNorm and rotary position embeddings, which are the classes Llama, Mistral, Qwen3,
# OLMo 2 and Gemma 3 of transformers. Written and read again they have the same log probabilities; a structure that no class has, and a folder that
# Norma cannot compute, are named. tests/interchange compares with transformers.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

make_reversed_pairs 100 20 5
"$NORMA" prepare --format text --train train.en --valid valid.en --output text --tokenizer none --bpe-merges 0 2>/dev/null
write_recipe lm.ini run.task=lm data.folder=text model.width=32 model.ff=40 model.heads=4 model.layers=2 model.context=16 \
    train.updates=20 train.max_tokens=256 schedule.lr=0.005 schedule.warmup=2 device.threads=1
train() { # RUN [OPTION ...]
    "$NORMA" train lm.ini --run.folder "$1" --run.quiet "${@:2}" 2>/dev/null
}
log_probs() { # MODEL
    "$NORMA" perplexity "$1" "${text:-valid.en}" --tokens --each-line --threads 1 2>/dev/null
}
round_trip() { # RUN CLASS
    try convert "$1" --to huggingface -o "hf-$1"
    [ "$got" = 0 ] || fail "convert $1: $(cat err)"
    has "hf-$1/config.json" "$2\""
    try convert "hf-$1" --from huggingface -o "back-$1.safetensors"
    [ "$got" = 0 ] || fail "convert hf-$1: $(cat err)"
    paste <(log_probs "$1") <(log_probs "back-$1.safetensors") >both
    perl -ne 'my @n = /(-?\d+\.\d+(?:e-\d+)?)/g; my $half = @n / 2; $compared += $half;
        for my $i (0 .. $half - 1) { abs($n[$i] - $n[$half + $i]) < 1e-5 or die "$n[$i] and $n[$half + $i]\n" }
        END { $compared > 60 or die "$compared numbers\n" }' both || fail "hf-$1: other log probabilities"
    try convert "back-$1.safetensors" --to huggingface -o "again-$1"
    for file in config.json model.safetensors tokenizer.json generation_config.json; do
        same "hf-$1/$file" "again-$1/$file"
    done
}

train llama --model.preset llama --model.key_value_heads 2 --model.head_width 6
round_trip llama LlamaForCausalLM
has hf-llama/config.json '"num_key_value_heads": 2'
# The tokens that Norma never generates: the special ones and the padding of the dictionary.
padding=$(grep -o '"madeupword[0-9]*": *[0-9]*' hf-llama/tokenizer.json | sed 's/.*: *//' | paste -sd,)
[ "$padding" ] || fail 'the dictionary has no padding'
tr -d ' \n' <hf-llama/generation_config.json >generation
has generation "\"suppress_tokens\":[0,1,3,$padding]"
grep -q '"model.layers.1.self_attn.k_proj.weight":{"dtype":"F32","shape":\[12,32\]' hf-llama/model.safetensors ||
    fail "hf-llama: no keys of two heads of six features"
train biases --model.preset llama --model.bias true --model.norm rms --norm.rms.epsilon_inside true --norm.rms.epsilon 1e-3 \
    --model.rope_base 5000 --model.activation gelu-tanh
round_trip biases LlamaForCausalLM
has hf-biases/config.json '"mlp_bias": true'
has hf-biases/config.json '"rms_norm_eps": 0.001'
has hf-biases/config.json '"rope_theta": 5000.0'
has hf-biases/config.json '"hidden_act": "gelu_new"'
train qwen3 --model.preset qwen3 --model.key_value_heads 1
round_trip qwen3 Qwen3ForCausalLM
grep -q '"model.layers.0.self_attn.q_norm.weight":{"dtype":"F32","shape":\[8\]' hf-qwen3/model.safetensors ||
    fail "hf-qwen3: no norm of the queries of a head"
train frozen --model.preset qwen3 --model.bias true --model.freeze '*.ffn.*.bias'
round_trip frozen Qwen3ForCausalLM
has hf-frozen/config.json '"attention_bias": true'
train olmo2 --model.preset olmo2 --model.key_value_heads 2
round_trip olmo2 Olmo2ForCausalLM
grep -q '"model.layers.0.self_attn.k_norm.weight":{"dtype":"F32","shape":\[16\]' hf-olmo2/model.safetensors ||
    fail "hf-olmo2: no norm of all keys"
train mistral --model.preset llama --model.window 5 --model.key_value_heads 2
round_trip mistral MistralForCausalLM
has hf-mistral/config.json '"sliding_window": 5'
lacks hf-mistral/config.json layer_types
gemma=(--model.preset gemma3 --model.head_width 6 --model.window 4 --model.rope_base 500 --model.rope_scaling linear --model.rope_factor 2)
train gemma3 "${gemma[@]}" --model.layers 3 --model.global_every 2 --model.local_rope_base 20
round_trip gemma3 Gemma3ForCausalLM
has hf-gemma3/config.json '"query_pre_attn_scalar": 6'
has hf-gemma3/config.json '"tie_word_embeddings": true'
[ "$(tr -d ' \n' <hf-gemma3/config.json | grep -o '"layer_types":[^]]*')" = '"layer_types":["sliding_attention","full_attention","sliding_attention"' ] ||
    fail "hf-gemma3: layer_types"
grep -q lm_head hf-gemma3/model.safetensors && fail "hf-gemma3: the shared embeddings are there twice"
# Layers with the same angles, without a window, and with separate embeddings and output weights.
train same-angles "${gemma[@]}" --model.share_embeddings false --model.global_every 0 --model.local_rope_base 0
round_trip same-angles Gemma3ForCausalLM
train global --model.preset gemma3 --model.global_every 0 --model.local_rope_base 0 --model.window 0
round_trip global Gemma3ForCausalLM
has hf-global/config.json '"sliding_window": 16' # a number, as transformers needs it for the masks of both kinds of layers
# The window and both kinds of angles change the probabilities.
for change in 's/"sliding_window": 4/"sliding_window": 3/' 's/"rope_theta": 20.0/"rope_theta": 500.0/' 's/"factor": 2.0/"factor": 3.0/' \
    's/"full_attention"/"sliding_attention"/'; do
    rm -rf hf-changed && cp -r hf-gemma3 hf-changed
    if [[ "$change" = *full_attention* ]]; then change="/layer_types/,/]/$change"; fi
    sed -i "$change" hf-changed/config.json
    try convert hf-changed --from huggingface -o changed.safetensors
    [ "$got" = 0 ] || fail "convert hf-changed: $(cat err)"
    if cmp -s <(log_probs changed.safetensors | sed 's/changed/back-gemma3/g') <(log_probs back-gemma3.safetensors); then fail "no effect: $change"; fi
done
train scaled --model.preset llama --model.rope_scaling llama3 --model.rope_factor 5 --model.rope_low 0.5 --model.rope_high 3 \
    --model.rope_original 8 --model.first_input bos
round_trip scaled LlamaForCausalLM
has hf-scaled/config.json '"rope_type": "llama3"'
has hf-scaled/config.json '"rope_scaling"'
# The scaling and the first input change the probabilities, the first input also the texts.
texts=$("$NORMA" generate back-scaled.safetensors --prompt '' --samples 8 --tokens 12 --threads 1 2>&1) same_texts=''
for change in 's/"factor": 5.0/"factor": 1.0/' 's/"bos_token_id": [0-9]*/"bos_token_id": 2/'; do
    rm -rf hf-changed && cp -r hf-scaled hf-changed
    sed -i "$change" hf-changed/config.json
    try convert hf-changed --from huggingface -o changed.safetensors
    [ "$got" = 0 ] || fail "convert hf-changed: $(cat err)"
    changed_texts=$("$NORMA" generate changed.safetensors --prompt '' --samples 8 --tokens 12 --threads 1 2>&1)
    if [ "$changed_texts" = "$texts" ]; then same_texts="$same_texts $change"; fi
    if cmp -s <(log_probs changed.safetensors | sed 's/changed/back-scaled/g') <(log_probs back-scaled.safetensors); then fail "no effect: $change"; fi
done
# Every line is a text: it begins with the first input, not with the end of the line before.
tail -n 1 valid.en >last.en
same <(log_probs back-scaled.safetensors | tail -n 1 | sed 's/.*"log_prob"//') \
    <("$NORMA" perplexity back-scaled.safetensors last.en --tokens --each-line --threads 1 2>/dev/null | sed 's/.*"log_prob"//')
[[ "$same_texts" != *bos_token_id* ]] || fail "the same texts after another first input: $texts"
# Shared embeddings and ScaleNorm have counterparts: a second matrix, and a gain per feature.
train shared --model.preset llama --model.share_embeddings true --model.norm scale
round_trip shared LlamaForCausalLM

# ---- models that transformers wrote: its log probabilities ----
theirs=$SOURCE/tests/interchange/huggingface
for class in llama qwen3 olmo2 qwen2 llama3 mistral gemma3; do
    try convert "$theirs/$class" --from huggingface -o "$class.safetensors"
    [ "$got" = 0 ] || fail "convert $theirs/$class: $(cat err)"
    "$NORMA" perplexity "$class.safetensors" "$theirs/text.txt" --tokens --each-line --threads 1 2>/dev/null |
        sed 's/.*"log_probs":\[//; s/\].*//' | tr , '\n' >ours
    paste ours "$theirs/$class/scores" |
        awk '{ d = $1 - $2; if (d > 2e-5 || d < -2e-5) { print; bad = 1 } } END { exit bad || NR != 13 }' ||
        fail "$class: not the log probabilities of transformers"
done

# What is read can be written: the folder of each class, also with the biases of attention that some have as an option.
for ((i = 0; i < 8; i++)); do cat "$theirs/text.txt"; done >long.txt
biased() { # CLASS: hf-biased, the folder of the class with biases of attention
    rm -rf hf-biased && cp -r "$theirs/$1" hf-biased && chmod -R u+w hf-biased
    sed -i 's/"attention_bias": false/"attention_bias": true/' hf-biased/config.json
    has hf-biased/config.json '"attention_bias": true'
    perl -e 'local $/; open(my $in, "<:raw", $ARGV[0]); my $all = <$in>; my $n = unpack "Q<", $all;
        my ($head, $data) = (substr($all, 8, $n), substr($all, 8 + $n));
        my %rows = $head =~ /"(model[.]layers[.]\d+[.]self_attn[.][qkvo]_proj)[.]weight":\{[^}]*?"shape":\[(\d+)/g;
        for my $name (sort keys %rows) {
            my $at = length $data;
            $data .= pack "f<*", map { $_ % 7 / 10 - 0.3 } 1 .. $rows{$name};
            my $tensor = sprintf q("%s.bias":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}), $name, $rows{$name}, $at, length $data;
            $head =~ s/\}\s*$/,$tensor}/ }
        %rows or die; open(my $out, ">:raw", $ARGV[0]); print $out pack("Q<", length $head), $head, $data' hf-biased/model.safetensors
}
for class in llama qwen3 olmo2 qwen2 llama3 mistral gemma3; do
    text=long.txt round_trip "$class.safetensors" ForCausalLM
done
for class in qwen3 olmo2 gemma3; do
    biased $class
    try convert hf-biased --from huggingface -o "$class-biased.safetensors"
    [ "$got" = 0 ] || fail "convert $class with biases: $(cat err)"
    if cmp -s <(text=long.txt log_probs "$class.safetensors" | sed 's/.*log_prob//') \
        <(text=long.txt log_probs "$class-biased.safetensors" | sed 's/.*log_prob//'); then fail "$class: biases without effect"; fi
    text=long.txt round_trip "$class-biased.safetensors" ForCausalLM
    has "hf-$class-biased.safetensors/config.json" '"attention_bias": true'
done

# What config.json lacks has the default of its class, and rope_scaling replaces rope_parameters.
changed_log_probs() { # CLASS SED
    rm -rf hf-changed && cp -r "$theirs/$1" hf-changed && chmod -R u+w hf-changed
    sed -i "$2" hf-changed/config.json
    try convert hf-changed --from huggingface -o changed.safetensors
    [ "$got" = 0 ] || fail "convert $1, $2: $(cat err)"
    "$NORMA" perplexity changed.safetensors "$theirs/text.txt" --tokens --each-line --threads 1 2>/dev/null
}
same_changes() { # CLASS SED SED
    changed_log_probs "$1" "$2" >first.jsonl # one after the other: both use hf-changed
    changed_log_probs "$1" "$3" >second.jsonl
    same first.jsonl second.jsonl
}
same_changes olmo2 '/rms_norm_eps/d' 's/"rms_norm_eps": 0.001/"rms_norm_eps": 1e-05/'
same_changes mistral '/sliding_window/d' 's/"sliding_window": 4/"sliding_window": 4096/'
same_changes llama3 's/"rope_parameters": {/"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}, "rope_scaling": {/' ''

# A model in several files: each of them, and the index, must be right.
[ -e "$theirs/mistral/model-00002-of-00003.safetensors" ] || fail "mistral is not in several files"
parts() { # CODE TEXT COMMAND: a copy of mistral, changed by the command
    rm -rf hf-parts && cp -r "$theirs/mistral" hf-parts && chmod -R u+w hf-parts
    (cd hf-parts && eval "$3")
    refuses "$1" "$2" convert hf-parts --from huggingface -o no.safetensors
    [ ! -e no.safetensors ] || fail "a file in spite of an error: $2"
}
parts 3 "hf-parts/model-00002-of-" 'rm model-00002-of-*'
parts 4 "hf-parts/model-00002-of-" 'echo >model-00002-of-*'
parts 4 "is in two files" 'cp model-00001-of-* copy.safetensors; sed -i "s/model-00002-of-[0-9]*.safetensors/copy.safetensors/" model.safetensors.index.json'
parts 5 "has no tensor" 'sed -i "s/model-00002-of/model-00001-of/" model.safetensors.index.json'
parts 4 "'../x' is not the name of a file in this folder" 'sed -i "s/model-00002-of-[0-9]*.safetensors/..\/x/" model.safetensors.index.json'
parts 4 "'weight_map' names no files" 'echo "{}" >model.safetensors.index.json'
parts 4 "model.safetensors.index.json:2:" 'echo "[" >model.safetensors.index.json'

# A SentencePiece model: the input is text.
try convert "$theirs/pieces" --from huggingface -o pieces.safetensors
[ "$got" = 0 ] || fail "convert $theirs/pieces: $(cat err)"
head -c -1 "$theirs/pieces/text.txt" >unended.txt # the last newline is a token of the document
for text in "$theirs/pieces/text.txt line" "unended.txt file" "$theirs/pieces/text.txt file"; do
    "$NORMA" perplexity pieces.safetensors "${text% *}" --documents "${text##* }" --tokens --each-line --threads 1 2>/dev/null |
        sed 's/.*"log_prob":\([-0-9.e]*\).*/\1/'
done >ours
paste ours "$theirs/pieces/scores" | awk '{ d = $1 - $2; if (d > 2e-4 || d < -2e-4) { print; bad = 1 } } END { exit bad || NR != 10 }' ||
    fail "pieces: not the log probabilities of transformers: $(paste ours "$theirs/pieces/scores")"
[ "$("$NORMA" subword --like pieces.safetensors "$theirs/pieces/text.txt" | "$NORMA" subword --like pieces.safetensors --undo)" = "$(cat "$theirs/pieces/text.txt")" ] ||
    fail "pieces: another text"
"$NORMA" prepare --like pieces.safetensors --train "$theirs/pieces/text.txt" --output pieces-data 2>err
has err ' 0 unknown'
has err '1 documents read'
has pieces-data/data.ini 'documents = file'
# Newlines are generated as text; --lines counts them.
"$NORMA" generate pieces.safetensors --prompt '' --samples 60 --tokens 60 --temperature 4 --threads 1 2>/dev/null >all-lines
"$NORMA" generate pieces.safetensors --prompt '' --samples 60 --tokens 60 --temperature 4 --threads 1 --lines 1 2>/dev/null >first-lines
[ "$(wc -l <all-lines)" -gt 70 ] || fail "pieces: no newlines in $(wc -l <all-lines) lines of 60 texts"
[ "$(wc -l <first-lines)" -lt "$(wc -l <all-lines)" ] || fail "pieces: --lines has no effect"
rm -rf hf-few && cp -r "$theirs/pieces" hf-few && chmod -R u+w hf-few
sed -i 's/"vocab_size": 302/"vocab_size": 299/' hf-few/config.json
refuses 5 "has no tensor 'model.embed_tokens.weight' for the 299 tokens" convert hf-few --from huggingface -o no.safetensors
cp "$theirs/llama/"{config.json,model.safetensors} hf-few # of a smaller model
refuses 5 "tokenizer.model: has 300 pieces, but the model has 12 tokens" convert hf-few --from huggingface -o no.safetensors
head -c 900 "$theirs/pieces/tokenizer.model" >hf-few/tokenizer.model
refuses 4 "tokenizer.model: not a SentencePiece model" convert hf-few --from huggingface -o no.safetensors

# ---- a vocabulary without <s>, <pad> and <unk> ----
# Written again, it has the same tokens and log probabilities, also after further training. Unknown tokens are errors.
for class in llama3 olmo2; do
    omitted=bos,pad,unk size=12
    if [ "$class" = llama3 ]; then omitted=pad,unk size=13; fi
    try convert "$class.safetensors" --to huggingface -o "their-$class"
    [ "$got" = 0 ] || fail "convert $class.safetensors: $(cat err)"
    has "their-$class/data.ini" "omit_symbols = $omitted"
    has "their-$class/config.json" "\"vocab_size\": $size,"
    has "their-$class/config.json" '"pad_token_id": null' # the class OLMo 2 has a default
    if grep -rh 'pad_token\|<pad>\|"<unk>":' "their-$class"/*.json | grep -v '"pad_token_id": null' >symbols; then fail "their-$class: a symbol that it does not have"; fi
    try convert "their-$class" --from huggingface -o "their-$class.safetensors"
    same <("$NORMA" perplexity "$class.safetensors" "$theirs/text.txt" --tokens --each-line --threads 1 2>/dev/null) \
        <("$NORMA" perplexity "their-$class.safetensors" "$theirs/text.txt" --tokens --each-line --threads 1 2>/dev/null)
done
for i in $(seq 40); do echo "w$((i % 10)) w$((i % 7)) w$((i * i % 10)) w5"; done >their.train
"$NORMA" prepare --like their-olmo2.safetensors --train their.train --valid "$theirs/text.txt" --output their 2>/dev/null
"$NORMA" train lm.ini --tune their-olmo2.safetensors --data.folder their --run.folder tuned --run.quiet 2>/dev/null
log_prob() { "$NORMA" perplexity "$1" "$theirs/text.txt" --threads 1 | sed 's/.*nll //; s/ .*//'; }
awk -v a="$(log_prob tuned)" -v b="$(log_prob olmo2.safetensors)" 'BEGIN { exit !(a > 1 && a < b - 0.01) }' ||
    fail "not trained: $(log_prob tuned), before $(log_prob olmo2.safetensors)"
try convert tuned --to huggingface -o hf-tuned
[ "$got" = 0 ] || fail "convert tuned: $(cat err)"
has hf-tuned/config.json '"vocab_size": 12'
try convert hf-tuned --from huggingface -o back-tuned.safetensors
[ "$(log_prob tuned)" = "$(log_prob back-tuned.safetensors)" ] || fail "hf-tuned: other log probabilities"
"$NORMA" generate tuned --prompt 'w1 w2' --samples 50 --tokens 12 --temperature 3 --threads 1 2>/dev/null >sampled
if [ "$(wc -l <sampled)" -lt 50 ] || grep -q '<unk>' sampled; then fail "a sample has an omitted symbol"; fi
printf 'w1 w2\nw3 nothing w4\n' >unknown
refuses 5 "--prompt: the token 'nothing', which the dictionary lacks" generate tuned --prompt 'w1 nothing'
stops 1 5 "unknown:2: the token 'nothing', which the dictionary lacks, and the vocabulary has no <unk>" \
    generate tuned unknown --tokens 4
try generate tuned unknown --tokens 4 --on-invalid skip --temperature 0
[ "$(head -n 1 out)" = "$("$NORMA" generate tuned --prompt 'w1 w2' --tokens 4 --temperature 0 2>/dev/null | head -n 1)" ] ||
    fail "the prompt before a skipped one: $(cat out)"
has err "1 prompts are not valid text and were not continued (line 2)"
refuses 5 "unknown: token 5 of the text is unknown, which has no probability" perplexity tuned unknown
refuses 4 "the text has the token 'nothing', which the dictionary lacks" prepare --like tuned --train unknown --output no-data
[ ! -e no-data/data.ini ] || fail "a data folder in spite of an error"
refuses 2 "prepare.omit_symbols = pad,eos" prepare --format text --train their.train --output no-data --tokenizer none \
    --omit-symbols pad,eos
refuses 2 "only language models omit symbols" prepare --train their --valid their --source-lang train --target-lang valid \
    --output no-data --omit-symbols pad
refuses 2 "model.first_input = bos: the vocabulary has no <s>" train lm.ini --data.folder their --run.folder no-run \
    --model.first_input bos
refuses 7 "adaptive softmax does not support prepare.omit_symbols" train lm.ini --data.folder their --run.folder no-run \
    --model.adaptive true --model.cutoffs 4,8
# <pad> as the first input of a text is <s> in Norma, and not <pad> too.
rm -rf hf-pad && cp -r hf-llama hf-pad && rm hf-pad/data.ini
sed -i 's/"bos_token_id": 2/"bos_token_id": 1/' hf-pad/config.json
sed -i 's/"<s>"/"other"/' hf-pad/tokenizer.json
try convert hf-pad --from huggingface -o pad.safetensors
[ "$got" = 0 ] || fail "convert hf-pad: $(cat err)"
try convert pad.safetensors --to huggingface -o hf-pad-again
has hf-pad-again/data.ini "omit_symbols = pad"
same <(grep vocab_size hf-pad/config.json) <(grep vocab_size hf-pad-again/config.json)
sed -i '/omit_symbols/d' their-olmo2/data.ini
refuses 5 "the vocabulary lacks <s>, but prepare.omit_symbols" convert their-olmo2 --from huggingface -o no.safetensors

# ---- structures without a class ----
no_class() { # TEXT OPTION ...
    rm -rf none
    "$NORMA" train lm.ini --run.folder none --run.quiet --train.updates 3 --model.preset llama "${@:2}" 2>/dev/null
    refuses 7 "$1" convert none --to huggingface -o refused
    [ ! -e refused ] || fail "a conversion that failed left a folder: $1"
}
no_class "model.rope = interleaved" --model.rope interleaved
no_class "model.gated = false" --model.gated false
no_class "model.positions" --model.positions learned
no_class "model.residual" --model.residual layerscale
no_class "model.embedding_norm" --model.embedding_norm rms
no_class "model.v_norm" --model.v_norm head
no_class "model.qk_norm_after_rope = true" --model.qk_norm head --model.qk_norm_after_rope true
no_class "model.norm_position, model.qk_norm and model.window" --model.norm_position sandwich
no_class "model.norm_position, model.qk_norm and model.window" --model.norm_position pre --model.qk_norm full
no_class "model.norm_position, model.qk_norm and model.window" --model.qk_norm head --model.window 4
no_class "model.global_every: only the class Gemma 3" --model.window 4 --model.global_every 2
no_class "model.local_rope_base: only the class Gemma 3" --model.window 4 --model.local_rope_base 7
no_class "model.bias = true: Mistral, the class with a window in all layers, has no biases" --model.bias true --model.window 4
no_class "mlp.gate_proj.bias is not 0: the class has biases of attention only" --model.bias true --model.qk_norm head
no_class "model.output_bias = true" --model.output_bias true
no_class "lm.0.self.norm is layer: the classes with rotary position embeddings have RMSNorm only" --model.norm layer
no_class "lm.final.norm is dyt" --model.final_norm dyt
no_class "has epsilon 1e-12, other norms have 0.001" --model.qk_norm head --model.qk_norm_type scale \
    --norm.rms.epsilon_inside true --norm.rms.epsilon 1e-3

train window --model.preset gpt2 --model.window 4 --train.updates 3
refuses 7 "the class GPT-2 has no model.window" convert window --to huggingface -o refused
refuses 7 "CTranslate2's Transformer has no model.window" convert window --to ctranslate2 -o refused

# ---- damaged folders, and what the classes compute and Norma does not ----
bad() { # CODE TEXT SED [FOLDER]: config.json changed
    rm -rf hf-bad && cp -r "${4:-hf-llama}" hf-bad
    sed -i "$3" hf-bad/config.json
    ! cmp -s "${4:-hf-llama}/config.json" hf-bad/config.json || fail "nothing changed: $3"
    refuses "$1" "$2" convert hf-bad --from huggingface -o no.safetensors
    [ ! -e no.safetensors ] || fail "a file in spite of an error: $2"
}
bad 7 "'rope_type' is 'yarn', which Norma does not support" 's/"default"/"yarn"/'
bad 4 "no number 'factor' of the scaled 'rope_type'" 's/"default"/"llama3"/'
bad 4 "no number 'original_max_position_embeddings'" 's/"original_max_position_embeddings": 8/"other": 8/' hf-scaled
bad 2 "model.rope_low = 4 is not below model.rope_high = 3" 's/"low_freq_factor": 0.5/"low_freq_factor": 4/' hf-scaled
bad 2 "model.rope_factor" 's/"factor": 5.0/"factor": 0.5/' hf-scaled
bad 7 "'use_sliding_window' is true" 's/"mlp_bias": false/"use_sliding_window": true/'
bad 7 "'layer_types' has 'sliding_attention'" 's/"mlp_bias": false/"layer_types": ["full_attention", "sliding_attention"]/'
bad 7 "'layer_types' has ''" 's/"mlp_bias": false/"layer_types": [1]/'
bad 5 "'model.layers.0.mlp.gate_proj.bias'" 's/"mlp_bias": false/"mlp_bias": true/'
bad 5 "'model.layers.0.self_attn.q_proj.bias'" 's/"llama"/"qwen2"/'
bad 5 "'model.layers.0.self_attn.q_proj.bias'" 's/"attention_bias": false/"attention_bias": true/'
bad 7 "'layer_types' has 'sliding_attention', which Norma does not support in this class" \
    's/"mlp_bias": false/"layer_types": ["sliding_attention", "full_attention"]/'
bad 7 "layers with a sliding window must be all, or all but every N-th" '/layer_types/,/]/s/"sliding_attention"$/"full_attention"/' hf-gemma3
bad 4 "'sliding_window' is not a positive number" 's/"sliding_window": 4/"sliding_window": 0/' hf-gemma3
bad 4 "'sliding_window' is not a positive number" 's/"sliding_window": 5/"sliding_window": "5"/' hf-mistral
bad 7 "'query_pre_attn_scalar' 7 is not 'head_dim' 6" 's/"query_pre_attn_scalar": 6/"query_pre_attn_scalar": 7/' hf-gemma3
bad 7 "'final_logit_softcapping' is set" 's/"query_pre_attn_scalar": 6/"query_pre_attn_scalar": 6, "final_logit_softcapping": 30.0/' hf-gemma3
bad 7 "'use_bidirectional_attention' is true" 's/"query_pre_attn_scalar": 6/"query_pre_attn_scalar": 6, "use_bidirectional_attention": true/' hf-gemma3
bad 7 "has both 'rope_parameters' and 'rope_scaling'" 's/"query_pre_attn_scalar": 6/"query_pre_attn_scalar": 6, "rope_scaling": {"rope_type": "linear", "factor": 3.0}/' hf-gemma3
bad 4 "'sliding_window' is not a positive number" 's/"sliding_window": 4/"sliding_window": null/' hf-gemma3
bad 7 "'rope_type' of 'sliding_attention' is 'linear'" 's/"default"/"linear"/' hf-gemma3
bad 7 "hidden_act 'mish' is not supported" 's/"silu"/"mish"/'
bad 5 "the special token 16777216 is not below" 's/"bos_token_id": [0-9]*/"bos_token_id": 16777216/'
bad 7 "supported: marian, m2m_100, gpt2, llama, qwen2, qwen3, olmo2, mistral, gemma3_text" 's/"llama"/"mamba"/'
bad 7 "tensor 'model.layers.0.self_attn.q_norm.weight'" 's/"qwen3"/"llama"/' hf-qwen3
bad 5 "'model.layers.0.self_attn.q_norm.weight'" 's/"llama"/"qwen3"/'
bad 5 "model.layers.0.self_attn.k_proj.weight' is [12 x 32], expected [24 x 32]" 's/"num_key_value_heads": 2/"num_key_value_heads": 4/'
bad 2 "model.key_value_heads" 's/"num_key_value_heads": 2/"num_key_value_heads": 3/'
bad 2 "model.key_value_heads" 's/"num_key_value_heads": 2/"num_key_value_heads": -1/'
bad 2 "model.head_width" 's/"head_dim": 6/"head_dim": 99999999999/'
bad 2 "an even number of features per head" 's/"head_dim": 6/"head_dim": 5/'
bad 2 "norm.rms.epsilon" 's/"rms_norm_eps": 1e-12/"rms_norm_eps": -1/'
bad 2 "model.rope_base" 's/"rope_theta": 10000.0/"rope_theta": 0/'
# A value of another type is not a missing one, which has the default.
bad 2 "model.rope_base" 's/"rope_theta": 10000.0/"rope_theta": "500.0"/'
bad 2 "norm.rms.epsilon" 's/"rms_norm_eps": 1e-12/"rms_norm_eps": "1e-12"/'
bad 5 "'model.layers.0.self_attn.q_proj.bias'" 's/"attention_bias": false/"attention_bias": 1/'
bad 4 "'hidden_size' is not an integer" 's/"hidden_size": 32/"hidden_size": "32"/'
bad 4 "'num_attention_heads' is not an integer between 1 and 1024" 's/"num_attention_heads": 4/"num_attention_heads": 0/'
# Sizes that no tensor has are errors before memory for them is allocated.
bad 5 "has no tensor 'model.layers.999.mlp.up_proj.weight'" 's/"num_hidden_layers": 2/"num_hidden_layers": 1000/'
bad 5 "is [" 's/"intermediate_size": 40/"intermediate_size": 1048576/'
bad 5 "is [" 's/"hidden_size": 32/"hidden_size": 65536/'
bad 5 "is [" 's/"head_dim": 6/"head_dim": 65536/'
bad 5 "for the 16777216 tokens" 's/"vocab_size": [0-9]*/"vocab_size": 16777216/'
echo "e2e_convert_llama: passed"
