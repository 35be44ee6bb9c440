#!/usr/bin/env bash
# Seed inputs of the fuzz targets: files that Norma writes for small made-up corpora.
#     NORMA=PROGRAM tests/fuzz/seeds.sh FOLDER          writes FOLDER/TARGET/*
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$1
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive
# shellcheck source=tests/e2e/corpora.sh
. "$root/tests/e2e/corpora.sh"
# shellcheck source=tests/e2e/library_models.sh
. "$root/tests/e2e/library_models.sh"
make_library_runs >log 2>&1 || { cat log >&2; exit 1; }

put() { # target, name: standard input is the seed
    mkdir -p "$out/$1" && cat >"$out/$1/$2"
}
two_bytes() { printf '%b' "\\x$(printf %02x $(($1 & 255)))\\x$(printf %02x $(($1 >> 8)))"; }

for kind in translate lm tag classify; do
    run=run-$kind
    best=$run/best.safetensors
    [ -e "$best" ] || best=$run/last.safetensors
    put model $kind <"$best"
    put safetensors $kind-state <"$(echo "$run"/checkpoints/*.state.safetensors | cut -d' ' -f1)"
    put options $kind <"$run/config.ini"
    { printf '\100'; cat "$run/log.jsonl"; printf '\0'; cat "$run/config.ini"; } | put log $kind
done
"$NORMA" export run-translate --int8 --output int8.safetensors >/dev/null 2>&1 && put model int8 <int8.safetensors
for recipe in "$root"/recipes/*.ini; do
    put options "$(basename "$recipe" .ini)" <"$recipe"
done

lines=$(mktemp -p .)
head -n 20 reviews.tsv >"$lines"
{ printf '\2\1'; cat "$lines"; } | put labeled tsv
{ printf '\4\1'; tr '\t' ' ' <"$lines"; } | put labeled space
{ printf '\5\1'; sed 's/^/__label__/' "$lines" | tr '\t' ' '; } | put labeled fasttext
{ printf '\6\25'; sed 's/\(.*\)\t\(.*\)/{"label": "\1", "text": "\2"}/' "$lines"; } | put labeled json
{ printf '\3\1'; sed 's/\(.*\)\t\(.*\)/\1,"\2"/' "$lines"; } | put labeled csv
head -n 40 tags.txt | put columns names
{ printf '\0'; cat "$lines"; } | put delimited reviews
awk 'BEGIN { srand(3); split("a the 3 ä w1 Anna film", w); print "7 4"
    for (i = 1; i <= 7; i++) print w[i], rand(), -rand(), rand() * 1e-3, i }' | put word_vectors word2vec
tail -n +2 "$out/word_vectors/word2vec" | put word_vectors glove

{ printf '\16'; "$NORMA" shortlist data 2>/dev/null | head -n 60; } | put shortlist table

{ cat data/codes.bpe; printf '\0'; head -n 1 train.de; } | put bpe learned
{ printf '\0'; cat lm-data/dict.txt; } | put vocab text
two_bytes "$(stat -c %s data/valid.source.ids)" | cat - data/valid.source.ids data/valid.source.off | put corpus valid
for form in 0 2 3 36 38 107 190 255; do
    printf '%b\\x00\\x0a' "\\x$(printf %02x $form)" | cat - <(head -n 6 train.de) <(printf '\0') <(head -n 6 train.en) \
        <(printf '\0') <(head -n 3 valid.de) <(printf '\0') <(head -n 3 valid.en) | put prepare form-$form
done
for program in gzip xz zstd; do
    command -v $program >/dev/null && { printf '\0'; head -n 20 train.de | $program -c; } | put text_input $program
done
{ printf '\3'; head -n 5 train.de | iconv -t utf-16; } | put text_input utf-16
{ printf '\4'; printf '日本語 テキスト\n' | iconv -t shift_jis; } | put text_input shift_jis
if command -v spm_train >/dev/null; then
    for type in unigram bpe char; do
        "$NORMA" prepare --train train --source-lang de --target-lang en --output spm-$type --tokenizer sentencepiece \
            --spm-type $type --spm-vocab-size 120 --joint >/dev/null 2>&1 || continue
        line=$(head -n 1 train.de | cut -c1-100)
        { printf '%b' "\\x$(printf %02x "$(printf %s "$line" | wc -c)")"
            cat "$(find spm-$type -name 'sentencepiece*.model' | sort | head -n 1)"; printf %s "$line"; } |
            put sentencepiece $type
    done
fi
for form in post pre; do
    put npz $form <"$root/tests/interchange/marian/$form.npz"
    put marian $form <"$root/tests/interchange/marian/$form.npz"
done
put ctranslate2 quantized <"$root/tests/interchange/ctranslate2/model.bin"
"$NORMA" convert run-translate --to ctranslate2 -o ct2 >/dev/null 2>&1 && put ctranslate2 norma <ct2/model.bin
"$NORMA" prepare --format text --train train.en --tokenizer byte_level --bpe-merges 40 --output bytes >/dev/null 2>&1
{ cat bytes/codes.bpe; printf '\0'; head -n 1 train.de; } | put bpe byte_level
for rules in gpt2 llama3 qwen2; do
    "$NORMA" prepare --format text --train train.en --tokenizer byte_level --pretokenizer $rules --bpe-merges 40 \
        --output bytes-$rules >/dev/null 2>&1
    "$NORMA" train lm --data.folder bytes-$rules --run.folder run-$rules --model.preset llama --model.width 16 --model.ff 16 \
        --model.heads 2 --model.layers 1 --model.context 16 --train.updates 1 --device.threads 1 >/dev/null 2>&1
    "$NORMA" convert run-$rules --to huggingface -o hf-$rules >/dev/null 2>&1 && put tokenizer $rules <hf-$rules/tokenizer.json
done
put yaml vocabulary <"$root/tests/interchange/marian/source.yml"
# A folder as one file: the other files become metadata.
with_metadata() { # FOLDER
    perl -MJSON::PP -e 'my ($folder) = @ARGV; local $/; my %texts;
        my $read = sub { open my $in, "<:raw", "$folder/$_[0]" or return undef; return <$in> };
        my $data = $read->("model.safetensors"); my $n = unpack "Q<", $data; my $header = decode_json(substr $data, 8, $n);
        for (qw(config.json vocab.json tokenizer.json merges.txt data.ini)) { my $text = $read->($_); $texts{$_} = $text if defined $text }
        $header->{__metadata__} = \%texts; my $text = JSON::PP->new->ascii->canonical->encode($header);
        binmode STDOUT; print pack("Q<", length $text), $text, substr $data, 8 + $n' "$1"
}
for class in llama llama3 gemma3 olmo2 qwen2 qwen3; do
    with_metadata "$root/tests/interchange/huggingface/$class" | put huggingface $class
done
"$NORMA" train lm.ini --model.output_bias false --run.folder run-class-lm >/dev/null 2>&1
"$NORMA" train translate.ini --model.norm_position post --run.folder run-class-post >/dev/null 2>&1
ln -s run-translate run-class-pre
for class in lm post pre; do # GPT2LMHeadModel, MarianMTModel, M2M100ForConditionalGeneration
    "$NORMA" convert run-class-$class --to huggingface -o hf-class-$class >/dev/null 2>log || { cat log >&2; exit 1; }
    with_metadata hf-class-$class | put huggingface class-$class
done
with_metadata hf-gpt2 | put huggingface byte_level
for form in 0 1 2 3 4 5; do
    { printf '%b' "\\x0$form"; printf '<url>http://a</url>\n<title>A title</title>\n<doc docid="1">\n<seg id="1"> a &amp; b\n'
        head -n 3 train.en; printf '</seg><seg id="2">c &#39;d&#x27; </seg>\n</doc>\n'; } | put markup form-$form
done
{ printf '\5\6'; printf '0-0 1-2 2-1 4-5'; } | put alignments pharaoh
for i in 0 17 33 99; do
    { printf '%b' "\\x$(printf %02x $i)"; head -n 1 train.en; printf '\0'; sed -n 2p train.en; printf '\0'; sed -n 3p train.en; } |
        tr -d '\n' | put metric line-$i
done
for type in $(seq 0 12); do # type, width, groups, site, updates of the plan, warm-up, rows, updates, exponent, settings
    printf '%b' "\\x$(printf %02x "$type")\\x0f\\x03\\x00\\x04\\x01\\x06\\x03\\x26\\x00" | cat - <(head -c 80 train.de) | put norm type-"$type"
done
for kernel in $(seq 0 3 100); do
    printf '%b' "\\x$(printf %02x "$kernel")\\x02\\x00\\x06\\x21\\x03\\x05" | put kernel kernel-"$kernel"
done
