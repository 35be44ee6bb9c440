#!/bin/bash
# norma convert: folders of CTranslate2 and Hugging Face. The files have the documented structure; a part of a model
# that the other toolkit does not support is named, and no file is written. tests/interchange runs the other toolkits.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

make_reversed_pairs 100 20 5
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
    --tokenizer none --bpe-merges 0 2>/dev/null
"$NORMA" prepare --format text --train train.en --valid valid.en --output text --tokenizer none --bpe-merges 0 2>/dev/null
write_recipe small.ini data.folder=data model.preset=tiny model.width=32 model.ff=64 model.heads=2 \
    model.encoder_layers=1 model.decoder_layers=1 model.dropout=0 train.updates=3 train.max_tokens=256 \
    train.score=false schedule.lr=0.005 schedule.warmup=2 device.threads=1
write_recipe lm.ini run.task=lm data.folder=text model.preset=tiny model.width=32 model.heads=2 \
    model.context=16 model.output_bias=false train.updates=3 train.max_tokens=256 schedule.lr=0.005 \
    schedule.warmup=2 device.threads=1
train() { # RUN RECIPE [OPTION ...]
    "$NORMA" train "$2" --run.folder "$1" --run.quiet "${@:3}" 2>/dev/null
}
train pre small.ini
train post small.ini --model.norm_position post
train folded small.ini --model.encoder_norm rbn
train mixed small.ini --model.norm layer --norm.at 'enc.0.ffn=rms'
train power small.ini --model.encoder_norm power
train text-model lm.ini
train short small.ini --decode.max_length_a 0 --decode.max_length_b 3 --decode.alpha 0.5 --decode.unknown false

# Sizes that no tensor has are errors before memory for them is allocated.
forged() { # TEXT FORMAT FOLDER [OPTION ...]
    refuses 5 "$1" convert "$3" --from "$2" "${@:4}" -o no.safetensors
}
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

# ---- Hugging Face folders are read: the same tensors and the same texts ----
same_model() { # MODEL MODEL: bitwise identical translations with scores
    "$NORMA" translate "$1" --threads 1 --nbest 2 --beam 2 <valid.de >first.txt
    "$NORMA" translate "$2" --threads 1 --nbest 2 --beam 2 <valid.de >second.txt
    same first.txt second.txt
}
for to in huggingface ctranslate2; do # search options
    try convert short --to $to -o "$to-short"
    try convert "$to-short" --from $to -o "$to-short.safetensors"
    "$NORMA" translate short --threads 1 --nbest 2 <valid.de >first.txt
    "$NORMA" translate "$to-short.safetensors" --threads 1 --nbest 2 <valid.de >second.txt
    same first.txt second.txt
done
tr -d ' \n' <huggingface-short/generation_config.json >generation # <pad> and <unk>
has generation '"suppress_tokens":[1,3]'
sed -i 's/^max_length_b = 3/max_length_b = x/' huggingface-short/decode.ini
refuses 2 "huggingface-short/decode.ini:" convert huggingface-short --from huggingface -o no.safetensors
# </s> is appended to a text.
perl -MJSON::PP -0777 -ne 'print JSON::PP->new->canonical->encode(decode_json($_)->{post_processor})' hf-pre/tokenizer.json >processor
has processor '{"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],"single":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],"special_tokens":{"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}},"type":"TemplateProcessing"}'
refuses 7 "enc.0.self.norm is power" convert power --to huggingface -o refused
[ ! -e refused ] || fail "a conversion that failed left a folder"
for run in pre post; do
    try convert hf-$run --from huggingface -o back-$run.safetensors
    [ "$got" = 0 ] || fail "convert hf-$run: $(cat err)"
    same_model $run back-$run.safetensors
    try convert back-$run.safetensors --to huggingface -o again-$run
    for file in config.json model.safetensors tokenizer.json generation_config.json; do
        cmp -s hf-$run/$file again-$run/$file || [ $file = config.json ] || fail "hf-$run/$file changes on the way back"
        cases=$((cases + 1))
    done
done
# <s> as the first input of the decoder has its own logit; no token of the model is excluded by a bias.
cp -r hf-pre hf-start && rm hf-start/data.ini hf-start/decode.ini
sed -i 's/"decoder_start_token_id": 2/"decoder_start_token_id": 0/' hf-start/config.json
try convert hf-start --from huggingface -o start.safetensors
[ "$got" = 0 ] || fail "convert hf-start: $(cat err)"
! grep -q '"output.bias"' start.safetensors || fail "start.safetensors has a bias that excludes <s>"
train silu small.ini --model.activation silu
try convert silu --to huggingface -o hf-silu
has hf-silu/config.json '"activation_function": "silu"'
try convert hf-silu --from huggingface -o back-silu.safetensors
same_model silu back-silu.safetensors
try convert hf-text --from huggingface -o back-text.safetensors
[ "$got" = 0 ] || fail "convert hf-text: $(cat err)"
"$NORMA" perplexity text-model valid.en --threads 1 2>/dev/null | sed 's/text-model//' >first.txt
"$NORMA" perplexity back-text.safetensors valid.en --threads 1 2>/dev/null | sed 's/back-text.safetensors//' >second.txt
same first.txt second.txt

# transformers stores one of two equal matrices.
train decoder-tied small.ini --model.share_embeddings decoder --model.norm_position post
try convert decoder-tied --to huggingface -o hf-decoder-tied
sed -i 's/lm_head.weight/model.shared.weight/; s/"xxh3"/"sums"/' hf-decoder-tied/model.safetensors
perl -pi -e 's/^(.{8})// and substr($_, 0, 0) = pack("Q<", unpack("Q<", $1) + 5) if $. == 1' hf-decoder-tied/model.safetensors
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' hf-decoder-tied/config.json
try convert hf-decoder-tied --from huggingface -o back-decoder-tied.safetensors
[ "$got" = 0 ] || fail "convert hf-decoder-tied: $(cat err)"
same_model decoder-tied back-decoder-tied.safetensors

# ---- fairseq: the names of M2M100 without their prefix, and dictionaries ----
train untied small.ini --model.share_embeddings none
try convert untied --to huggingface -o hf-untied
mkdir fairseq
cp data/dict.source.txt data/dict.target.txt data/data.ini fairseq
perl -e 'local $/; binmode STDIN; binmode STDOUT; my $file = <STDIN>; my $bytes = unpack("Q<", $file);
    my $header = substr($file, 8, $bytes);
    $header =~ s/model\.//g; $header =~ s/lm_head\.weight/decoder.output_projection.weight/; $header =~ s/"xxh3"/"sums"/;
    print pack("Q<", length $header), $header, substr($file, 8 + $bytes)' \
    <hf-untied/model.safetensors >fairseq/model.safetensors
try convert fairseq --from fairseq --heads 2 -o back-fairseq.safetensors
[ "$got" = 0 ] || fail "convert fairseq: $(cat err)"
same_model untied back-fairseq.safetensors
refuses 2 "do not determine the number of attention heads: --heads N" convert fairseq --from fairseq -o no.safetensors
refuses 2 "model.width = 32 is not a multiple of model.heads = 3" convert fairseq --from fairseq --heads 3 -o no.safetensors
refuses 2 "--heads has no effect" convert hf-pre --from huggingface --heads 2 -o no.safetensors
refuses 7 "the format fairseq can be read but not written" convert pre --to fairseq -o no
mkdir fairseq-bad # a feed-forward layer of many rows without columns needs no bytes
cp fairseq/dict.*.txt fairseq-bad
perl -e 'local $/; binmode STDIN; binmode STDOUT; my $file = <STDIN>; my $bytes = unpack("Q<", $file);
    my $header = substr($file, 8, $bytes);
    $header =~ s/("encoder.layers.0.)(fc1.weight":\{"dtype":"F32","shape":)\[64,32\],"data_offsets":\[(\d+),(\d+)\]\}/
        "$1$2\[1048576,0\],"."\"data_offsets\":\[$3,$3\]},\"encoder.version\":{\"dtype\":\"F32\",\"shape\":\[64,32\],\"data_offsets\":\[$3,$4\]}"/e or die;
    print pack("Q<", length $header), $header, substr($file, 8 + $bytes)' \
    <fairseq/model.safetensors >fairseq-bad/model.safetensors
forged "[1048576 x 0], expected [" fairseq fairseq-bad --heads 2
sed -i '$d' fairseq/dict.target.txt
refuses 5 "tensor 'decoder.embed_tokens.weight' is [" convert fairseq --from fairseq --heads 2 -o no.safetensors
rm fairseq/dict.target.txt
refuses 3 "fairseq/dict.target.txt" convert fairseq --from fairseq --heads 2 -o no.safetensors

# ---- CTranslate2 folders are read: the same weights, bitwise ----
try convert untied --to ctranslate2 -o ct2-untied
read_ctranslate2() { # MODEL, of which ct2-MODEL has been written
    try convert "ct2-$1" --from ctranslate2 -o "back-$1.safetensors"
    [ "$got" = 0 ] || fail "convert ct2-$1: $(cat err)"
    same_model "$1" "back-$1.safetensors"
    try convert "back-$1.safetensors" --to ctranslate2 -o ct2-again
    cmp -s "ct2-$1/model.bin" ct2-again/model.bin || fail "ct2-$1: other weights on the way back"
}
for run in pre post untied; do read_ctranslate2 $run; done
# int8 weights with scales of rows, the rest in float16, written by CTranslate2 4.8.5 from Marian's model; the scores are those of
# the exactly dequantized weights, so that the difference is that of sums in float
cp -r "$SOURCE"/tests/interchange/ctranslate2 quantized
try convert quantized --from ctranslate2 -o quantized.safetensors
[ "$got" = 0 ] || fail "convert quantized: $(cat err)"
"$NORMA" rescore quantized.safetensors "$SOURCE"/tests/interchange/marian/source.txt \
    "$SOURCE"/tests/interchange/marian/target.txt --rescore.input_format tokenized --threads 1 >ours
paste ours quantized/scores | awk '{ d = $1 - $2; if (d > 2e-5 || d < -2e-5) { print; bad = 1 } } END { exit bad || NR != 10 }' ||
    fail "quantized: not the log probabilities of CTranslate2"

read_ct2() { # CODE TEXT
    refuses "$1" "$2" convert ct2-bad --from ctranslate2 -o no.safetensors
    [ ! -e no.safetensors ] || fail "a file in spite of an error: $2"
}
change_ct2() { # FROM TO: of the same length, bytes in Perl's syntax
    rm -rf ct2-bad
    cp -r ct2-pre ct2-bad
    perl -0777 -pe 'BEGIN { ($from, $to) = (eval("\"$ARGV[0]\""), eval("\"$ARGV[1]\"")); splice @ARGV, 0, 2 } s/\Q$from\E/$to/g' \
        "$1" "$2" ct2-pre/model.bin >ct2-bad/model.bin
}
read_ct2_parts() {
    local bytes part
    bytes=$(stat -c %s ct2-pre/model.bin)
    for part in 0 3 4 9 30 60 300 $((bytes / 2)) $((bytes - 80)) $((bytes - 1)); do
        head -c "$part" ct2-pre/model.bin >ct2-bad/model.bin
        read_ct2 4 'ct2-bad/model.bin: '
    done
}
change_ct2 nothing nothing
read_ct2_parts
{ cat ct2-pre/model.bin; echo; } >ct2-bad/model.bin
read_ct2 4 'data after the end'
change_ct2 '\x06\0\0\0\x10' '\x05\0\0\0\x10'
read_ct2 7 "not version 6 of CTranslate2's binary format but 5"
change_ct2 TransformerSpec TransformerSpeck
read_ct2 4 'a name is malformed'
change_ct2 TransformerSpec WhisperrrrrSpec
read_ct2 7 'WhisperrrrrSpec in revision 7; supported: TransformerSpec in revision 7 and TransformerDecoderSpec in revision 8'
change_ct2 encoder/layer_0/ffn/linear_1/bias encoder/layer_0/ffn/linear_1/bean
read_ct2 7 "tensor 'encoder/layer_0/ffn/linear_1/bean' does not belong to any part of the model that Norma supports"
change_ct2 decoder/layer_0/attention/linear_1/weight decoder/layer_0/attention/linear_1/weighs
read_ct2 7 "tensor 'decoder/layer_0/attention/linear_1/weighs'"
change_ct2 encoder/layer_0/self_attention/linear_1/weight encoder/layer_0/self_attention/linear_0/weight
read_ct2 4 'a name occurs twice'
change_ct2 'encoder/num_heads\0\0\x02\x02\0\0\0\x02' 'encoder/num_heads\0\0\x02\x02\0\0\0\x04'
read_ct2 7 "'num_heads' is 4 in the encoder and 2 in the decoder"
change_ct2 'num_heads\0\0\x02\x02\0\0\0\x02' 'num_heads\0\0\x02\x02\0\0\0\x03'
read_ct2 2 'model.width = 32 is not a multiple of model.heads = 3'
change_ct2 'linear_0/weight\0\x02\x40\0\0\0\x20\0\0\0' 'linear_0/weight\0\x02\x20\0\0\0\x40\0\0\0'
read_ct2 5 'do not fit embeddings of width 32'
change_ct2 'linear_0/weight\0\x02\x40\0\0\0' 'linear_0/weight\0\x02\xff\xff\xff\xff'
read_ct2 4 'a variable is larger than the file'
change_ct2 'activation\0\0\x01\x01\0\0\0\0' 'activation\0\0\x01\x01\0\0\0\x07'
read_ct2 7 'activation 7 is not supported'
change_ct2 nothing nothing
sed -i 's/"add_source_bos": false/"add_source_bos": true/' ct2-bad/config.json
read_ct2 7 'ct2-bad/config.json: a source of Norma ends with the EOS token'
cp ct2-pre/config.json ct2-bad
sed -i 's/"katze"/"hund"/' ct2-bad/shared_vocabulary.json
read_ct2 4 'is not a text or occurs twice'
rm ct2-bad/shared_vocabulary.json
read_ct2 3 'ct2-bad/source_vocabulary.json'
refuses 7 "the RMSNorms of the encoder are affine maps" convert ct2-folded --from ctranslate2 -o no.safetensors

# ---- RMSNorm, with its epsilon inside and outside the root, pre- and post-norm; LayerNorm in one stack ----
train rms-pre small.ini --model.norm rms
train rms-post small.ini --model.norm rms --model.norm_position post --model.share_embeddings decoder
train rms-inside small.ini --model.norm rms --norm.rms.epsilon_inside true --norm.rms.epsilon 1e-5 --model.norm_position post
train rms-encoder small.ini --model.norm layer --model.encoder_norm rms
train rms-decoder small.ini --model.norm layer --model.decoder_norm rms --model.norm_position post --norm.layer.epsilon 1e-2
for run in rms-pre rms-post rms-inside rms-encoder rms-decoder; do
    try convert $run --to ctranslate2 -o ct2-$run
    read_ctranslate2 $run
done
# ScaleNorm becomes RMSNorm with the gain g/sqrt(d) in every feature.
train scale small.ini --model.norm scale
try convert scale --to ctranslate2 -o ct2-scale
try convert ct2-scale --from ctranslate2 -o back-scale.safetensors
"$NORMA" rescore scale valid.de valid.en --threads 1 >first.txt
"$NORMA" rescore back-scale.safetensors valid.de valid.en --threads 1 >second.txt
paste first.txt second.txt | awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) bad = 1 } END { exit bad || NR != 20 }' ||
    fail "ScaleNorm: other log probabilities: $(paste first.txt second.txt)"
try convert back-scale.safetensors --to ctranslate2 -o ct2-again
cmp -s ct2-scale/model.bin ct2-again/model.bin || fail "ct2-scale: other weights on the way back"

# ---- language models of CTranslate2: the same perplexity and weights ----
"$NORMA" prepare --format text --train train.en --valid valid.en --output text-fairseq --tokenizer none --bpe-merges 0 \
    --special-ids fairseq 2>/dev/null
lm() { # RUN [OPTION ...]
    train "$1" lm.ini --data.folder text-fairseq "${@:2}"
    try convert "$1" --to ctranslate2 -o "ct2-$1"
    try convert "ct2-$1" --from ctranslate2 -o "back-$1.safetensors"
    [ "$got" = 0 ] || fail "convert ct2-$1: $(cat err)"
    "$NORMA" perplexity "$1" valid.en --tokens --threads 1 >first.txt 2>/dev/null
    "$NORMA" perplexity "back-$1.safetensors" valid.en --tokens --threads 1 >second.txt 2>/dev/null
    same first.txt second.txt
    try convert "back-$1.safetensors" --to ctranslate2 -o ct2-again
    cmp -s "ct2-$1/model.bin" ct2-again/model.bin || fail "ct2-$1: other weights on the way back"
}
lm lm-sinusoid
lm lm-learned --model.positions learned --model.output_bias true --model.activation gelu-tanh
lm lm-none --model.positions none --model.share_embeddings false
# Embeddings of half the size with twice the factor are the same model; GPT-2 of CTranslate2 has the factor 1.
mkdir ct2-factor
cp ct2-lm-none/*.json ct2-factor
perl -0777 -pe 's{(decoder/scale_embeddings\0\0\0\x04\0\0\0)(.{4})}{$1 . pack("f<", 2 * unpack("f<", $2))}se or die "no factor";
    m{decoder/embeddings/weight\0\x02.{8}\0(.{4})}s or die "no embeddings";
    my ($at, $bytes) = ($+[0], unpack("V", $1));
    substr($_, $at, $bytes) = pack("f<*", map { $_ / 2 } unpack("f<*", substr($_, $at, $bytes)))' \
    ct2-lm-none/model.bin >ct2-factor/model.bin
try convert ct2-factor --from ctranslate2 -o back-factor.safetensors
[ "$got" = 0 ] || fail "convert ct2-factor: $(cat err)"
"$NORMA" perplexity lm-none valid.en --tokens --threads 1 >first.txt 2>/dev/null
"$NORMA" perplexity back-factor.safetensors valid.en --tokens --threads 1 >second.txt 2>/dev/null
same first.txt second.txt
lm lm-rms --model.norm rms --model.positions learned
lm lm-post --model.norm rms --model.norm_position post
change_lm() { # FROM TO: of the same length
    rm -rf ct2-bad
    cp -r ct2-lm-learned ct2-bad
    perl -0777 -pe 'BEGIN { ($from, $to) = (eval("\"$ARGV[0]\""), eval("\"$ARGV[1]\"")); splice @ARGV, 0, 2 } s/\Q$from\E/$to/g' \
        "$1" "$2" ct2-lm-learned/model.bin >ct2-bad/model.bin
}
change_lm nothing nothing
sed -i 's/"bos_token": "<\/s>"/"bos_token": "<s>"/' ct2-bad/config.json
read_ct2 7 "'bos_token' is not the EOS token"
change_lm decoder/layer_0/ffn/linear_1/bias decoder/layer_0/ffn/linear_1/bean
read_ct2 7 "tensor 'decoder/layer_0/ffn/linear_1/bean' does not belong to any part"
change_lm decoder/position_encodings/encodings decoder/position_encodings/encodinks
read_ct2 5 "no matrix 'decoder/embeddings/weight', 'decoder/layer_0/ffn/linear_0/weight' or 'decoder/position_encodings"
change_lm nothing nothing
rm ct2-bad/vocabulary.json
read_ct2 3 'ct2-bad/vocabulary.json'

# ---- damaged and foreign folders ----
changed() { # FILE SED: hf-bad is hf-pre with one file changed
    rm -rf hf-bad
    cp -r hf-pre hf-bad
    sed -i "$2" "hf-bad/$1"
}
read_bad() { # CODE TEXT
    refuses "$1" "$2" convert hf-bad --from huggingface -o no.safetensors
    [ ! -e no.safetensors ] || fail "a file in spite of an error: $2"
}
changed config.json 's/"relu"/"mish"/'
read_bad 7 "hf-bad/config.json: activation_function 'mish' is not supported"
changed config.json 's/"m2m_100"/"t5"/'
read_bad 7 "unsupported model_type 't5'; supported: marian, m2m_100, gpt2, llama"
changed config.json 's/"encoder_layers": 1/"encoder_layers": 0/'
read_bad 4 "'encoder_layers' is not an integer between 1 and 1000"
changed config.json 's/"encoder_layers": 1/"encoder_layers": 2/'
read_bad 5 "has no tensor 'model.encoder.layers.1.fc1.weight'"
changed config.json 's/"decoder_layers": 1/"decoder_layers": 1, "normalize_embedding": true/'
read_bad 7 "'normalize_embedding' is true, which Norma does not support"
changed config.json 's/"pad_token_id": 1/"pad_token_id": 4/'
read_bad 7 "hf-bad/config.json: 'pad_token_id' is 4: positions begin at pad_token_id + 1, and Norma supports 2 only"
changed generation_config.json 's/nothing//'
sed -i 's/"decoder_start_token_id": 2/"decoder_start_token_id": 9/' hf-bad/config.json
read_bad 7 "hf-bad/config.json: 'decoder_start_token_id' is not </s>, <pad> or <s>"
changed config.json 's/"share_encoder_decoder_embeddings": true/"share_encoder_decoder_embeddings": false/'
echo '{}' >hf-bad/target_vocab.json
read_bad 7 "hf-bad: separate vocabularies (target_vocab.json) are not supported"
changed config.json 's/"d_model": 32/"d_model": 64/'
read_bad 5 "is ["

# Sizes that no tensor has
changed config.json 's/"d_model": 32/"d_model": 65536/'
forged "tensor 'model.shared.weight' is [" huggingface hf-bad
changed config.json 's/coder_ffn_dim": 64/coder_ffn_dim": 1048576/g'
forged "fc1.weight' is [64 x 32], expected [1048576 x 32]" huggingface hf-bad
changed config.json 's/"encoder_layers": 1/"encoder_layers": 1000/'
forged "has no tensor 'model.encoder.layers.999.fc1.weight'" huggingface hf-bad
changed config.json 's/"vocab_size": [0-9]*/"vocab_size": 16777216/'
forged "'model.shared.weight' for the 16777216 tokens" huggingface hf-bad
changed config.json 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1048576/'
forged "1048576 positions of width 32 are more than the parameters" huggingface hf-bad
forged_gpt2() { # KEY VALUE TEXT
    rm -rf hf-bad && cp -r hf-text hf-bad
    sed -i "s/\"$1\": [0-9]*/\"$1\": $2/" hf-bad/config.json
    forged "$3" huggingface hf-bad
}
forged_gpt2 n_embd 65536 "wte.weight' is ["
forged_gpt2 n_inner 1048576 "mlp.c_fc.weight' is ["
forged_gpt2 n_layer 1000 "has no tensor 'transformer.h.999.mlp.c_fc.weight'"
forged_gpt2 n_positions 8192 "wpe.weight' is [16 x 32], expected [8192 x 32]"
forged_gpt2 vocab_size 16777216 "for the 16777216 tokens"
changed config.json 's/"decoder_ffn_dim": 64/"decoder_ffn_dim": 65/'
read_bad 7 "'encoder_ffn_dim' and 'decoder_ffn_dim' differ"
changed config.json 's/^}$//'
read_bad 4 "hf-bad/config.json:"
changed tokenizer.json 's/"WordLevel"/"Unigram"/'
read_bad 7 "tokenizers of the type WordLevel are supported"
changed tokenizer.json 's/"katze": [0-9]*/"katze": 4000/'
read_bad 5 "'katze' has the index 4000, but the model has"
changed tokenizer.json 's/"katze": [0-9]*/"katze": 5/'
read_bad 4 "have the same index"
changed model.safetensors 's/encoder_attn.k_proj.bias/encoder_attn.k_proj.bean/'
read_bad 4 "model.safetensors"
rm hf-bad/model.safetensors
touch hf-bad/pytorch_model.bin
read_bad 7 "pickle files are not supported"
refuses 3 "no-such-folder/config.json" convert no-such-folder --from huggingface -o no.safetensors
refuses 2 "one of --to FORMAT and --from FORMAT" convert pre --to huggingface --from huggingface -o no

# ---- what the other toolkits lack is named ----
refuses 7 "enc.0.self.norm is layer and enc.0.ffn.norm is rms: CTranslate2 has one epsilon" convert mixed --to ctranslate2 -o no
refuses 7 "enc.0.self.norm is power: with row scaling it is not affine" convert power --to ctranslate2 -o no
refuses 7 "enc.0.self.norm is rbn: the classes of transformers have LayerNorm and RMSNorm only" convert folded --to huggingface -o no
refuses 2 "unknown model format 'onnx'; available: ctranslate2, huggingface, fairseq (read only), marian (read only)" convert pre --to onnx -o no
refuses 2 "no output" convert pre --to huggingface
refuses 3 "missing" convert missing --to huggingface -o no
[ ! -e no ] || [ -z "$(ls no)" ] || fail "files in spite of a failure: $(ls no)"
echo "e2e_convert: passed"
