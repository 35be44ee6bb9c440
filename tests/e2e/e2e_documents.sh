#!/bin/bash
# Documents of several lines: their newlines are kept in training, scoring and generation; </s> ends a document.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Stories of two to four lines. Those of the validation set have empty lines, tabs, a line of one space and words that the
# training text lacks.
for i in $(seq 80); do
    printf 'Story %d\n  Once there was a cat.\n' "$i"
    [ $((i % 2)) = 0 ] || printf '\tIt had %d lives.\n' $((i % 9))
    printf 'The end.\n<|endoftext|>\n'
done >train.txt
printf '<|endoftext|>\nStory x\n\n  Einst gab es   zwei Katzen 🙂.\n \n\tEnde.\n<|endoftext|>\n<|endoftext|>\r\nOne line\n<|endoftext|>\n\n' >valid.txt
printf 'Story x\n\n  Einst gab es   zwei Katzen 🙂.\n \n\tEnde.' >first.txt

prepare() { # FOLDER OPTION...
    accepts written prepare --format text --train train.txt --valid valid.txt --tokenizer byte_level --bpe-merges 80 --output "$@"
}
stories=(--documents separated --document-separator '<|endoftext|>')
prepare stories "${stories[@]}"
has err 'train: 80 documents read, 80 kept'
sed -n '/^valid/,/tokens/p' err >stories.report
has err 'valid: 3 documents read, 3 kept'
has err ', 0 unknown (0.000 %)'
# The stored words are those of the whole document, newlines included.
[ "$(wc -l <stories/valid.text.words)" = 3 ] || fail "$(wc -l <stories/valid.text.words) documents"
"$NORMA" detokenize --tokenizer byte_level stories/valid.text.words >text 2>err || fail "detokenize: $(cat err)"
same <(tr '\n' ' ' <first.txt) <(head -n 1 text | tr -d '\n')
has stories/valid.text.words 'Ġx ĊĊĠ ĠEinst'
# The same documents as JSON lines and separated by empty lines.
perl -MJSON::PP -0777 -ne 'my $json = JSON::PP->new->latin1; print map { s/^\n|\n$//g; length ? $json->encode({text => $_}) . "\n" : "" }
    split /^<\|endoftext\|>\n/m' train.txt >train.jsonl
accepts written prepare --format text --train train.jsonl --tokenizer byte_level --bpe-merges 80 --documents file --output json
same stories/train.text.ids json/train.text.ids
same stories/codes.bpe json/codes.bpe
sed 's/^<|endoftext|>$//' train.txt >empty-lines.txt
accepts written prepare --format text --train empty-lines.txt --tokenizer byte_level --bpe-merges 80 --documents separated --threads 2 --output blank
same stories/train.text.ids blank/train.text.ids
# Without --documents, the newlines in JSON are spaces, and every line is a text.
accepts '80 lines read' prepare --format text --train train.jsonl --tokenizer byte_level --bpe-merges 80 --output joined
if cmp -s json/train.text.ids joined/train.text.ids; then fail 'newlines are kept without --documents'; fi
prepare whole --documents file
has err 'train: 1 documents read, 1 kept'
# Several sources, each of one document.
accepts '2 documents read' prepare --format text --train train.txt,valid.txt --tokenizer byte_level --documents file --output two
# Every tenth document is held out.
accepts '8 held out for validation' prepare --format text --train train.txt --valid-every 10 --tokenizer byte_level "${stories[@]}" --output held
[ "$(wc -l <held/valid.text.words)" = 8 ] || fail "$(wc -l <held/valid.text.words) documents are held out"

common=(prepare --format text --train train.txt --output no)
refuses 2 'only the tokenizers byte_level and sentencepiece keep newlines' "${common[@]}" --documents file
refuses 2 'only those documents have separators' "${common[@]}" --tokenizer byte_level --document-separator x
refuses 2 'newlines are among these characters' "${common[@]}" --tokenizer byte_level --documents file --remove-non-printing true
refuses 2 'it is defined for lines' "${common[@]}" --tokenizer byte_level --documents file --punctuation moses
refuses 2 'only plain text has documents' prepare --train train --source-lang de --target-lang en --tokenizer byte_level --documents file --output no
printf '<srcset><seg>a</seg></srcset>\n' >a.xml
refuses 2 'its sentences are lines' prepare --format text --train a.xml --tokenizer byte_level --documents file --output no
printf 'a\n\nb\nc\xff\n' >bad.txt
refuses 4 'bad.txt:4: not UTF-8: byte 0xff at position 2' prepare --format text --train bad.txt --tokenizer byte_level --documents separated --output no
printf 'a\n\nb\nc\0d\n' >bad.txt
refuses 4 'bad.txt:4: not text: byte 0x00 at position 2' prepare --format text --train bad.txt --tokenizer byte_level --documents file --output no
: >empty.txt
refuses 5 'left no' prepare --format text --train empty.txt --tokenizer byte_level --documents file --output no

# --- models --------------------------------------------------------------------------------------------------------------
write_recipe lm.ini run.task=lm model.preset=llama model.width=48 model.ff=64 model.heads=4 model.layers=2 model.context=48 data.folder=stories \
    train.updates=200 train.max_tokens=768 schedule.lr=0.005 schedule.warmup=10 device.threads=1
try train lm.ini --run.folder lm --run.quiet
[ "$got" = 0 ] || fail "train: $(cat err)"
# Scoring the text is scoring the stored ids: the same number of tokens, </s> once for each document.
stored=$(sed -n 's/.* \([0-9]*\) tokens, .*/\1/p' stories.report)
try perplexity lm valid.txt --json
[ "$got" = 0 ] || fail "perplexity: $(cat err)"
has out "\"tokens\":$((stored + 3)),"
try perplexity lm valid.txt --tokens --each-line
[ "$(wc -l <out)" = 3 ] || fail "$(wc -l <out) documents are scored"
has out '"text":"Story x\n\n  Einst'
has out '"x","Ċ'
[ "$(grep -o '</s>' out | wc -l)" = 3 ] || fail "not one </s> for each document"
# Another division of the same text: lines, the whole file, empty lines.
count() { # OPTION...
    "$NORMA" perplexity lm valid.txt --tokens --each-line --threads 1 "$@" | wc -l
}
[ "$(count --documents line)" = 11 ] || fail "$(count --documents line) lines"
[ "$(count --documents file)" = 1 ] || fail "$(count --documents file) files"
[ "$(count --documents separated)" = 2 ] || fail "$(count --documents separated) texts between empty lines"
refuses 2 'only those documents have separators' perplexity lm valid.txt --document-separator x

# Generated text has newlines and ends with its document, which is a story as in training.
try generate lm/last.safetensors --prompt 'Story 7' --tokens 400 --temperature 0.5 --seed 3
[ "$got" = 0 ] || fail "generate: $(cat err)"
same <(printf '  Once there was a cat.\nThe end.\n') <(grep -v lives out | tail -n +2)
# Prompts of several lines.
printf 'Story 7\n  Once there was a\n<|endoftext|>\nStory 8\n  Once\n' >prompts
input=prompts try generate lm/last.safetensors "${stories[@]}" --json --temperature 0
[ "$got" = 0 ] || fail "generate: $(cat err)"
[ "$(wc -l <out)" = 2 ] || fail "$(wc -l <out) continuations of two prompts"
has out '{"prompt":"Story 7\n  Once there was a","text":" cat.\n'
has out '{"prompt":"Story 8\n  Once","text":" there was a cat.\n'
[ "$(grep -c 'The end."}$' out)" = 2 ] || fail "not two ends: $(cat out)"
input=prompts try generate lm/last.safetensors "${stories[@]}" --bare --lines 1 --temperature 0
same <(printf ' cat.\n there was a cat.\n') out
# A text with --lines 1 ends with a newline, also if the token of the newline contains the space of the next line.
try generate lm/last.safetensors --prompt 'Story 7' --lines 1 --temperature 0
[ "$(wc -l <out)" = 1 ] || fail "$(wc -l <out) lines: $(cat out)"
try generate lm/last.safetensors --prompt 'Story 7' --lines 1 --temperature 0 --json
grep -q '\\n"}$' out || fail "more text after the newline: $(cat out)"
# A text ends with its document, also if others of the batch are longer.
printf 'Story\n<|endoftext|>\nStory 7\n  Once there was a cat.\nThe' >uneven
input=uneven try generate lm/last.safetensors "${stories[@]}" --json --temperature 0
has out '.\nThe","text":" end."}'
head -n 2 prompts >one
try generate lm/last.safetensors one --documents file --json --temperature 0
has out '{"prompt":"Story 7\n  Once there was a","text":" cat.\n'
try generate lm/last.safetensors one --json --temperature 0
[ "$(wc -l <out)" = 2 ] || fail "$(wc -l <out) continuations of two lines"
refuses 2 'only those prompts have separators' generate lm one --document-separator x
refuses 2 'not read from a file' generate lm --prompt x --documents file

# --- to transformers and back: an imported model reads a file as one document --------------------------------------------
try convert lm --to huggingface -o hf
[ "$got" = 0 ] || fail "convert: $(cat err)"
rm hf/data.ini hf/codes.bpe
try convert hf --from huggingface -o back.safetensors
[ "$got" = 0 ] || fail "convert back: $(cat err)"
nll() { # MODEL OPTION...
    "$NORMA" perplexity "$@" --threads 1 | sed 's/.*nll \([0-9]*\.[0-9]\{5\}\).*/\1/'
}
same <(nll lm valid.txt --documents file) <(nll back.safetensors valid.txt)
same <(nll lm valid.txt) <(nll back.safetensors valid.txt "${stories[@]}")
if cmp -s <(nll lm valid.txt) <(nll lm valid.txt --documents file); then fail 'the documents make no difference'; fi
# Data for training further has the documents of the model, unless it has others.
accepts '1 documents read' prepare --like back.safetensors --train train.txt --output like
accepts '80 documents read' prepare --like lm --train train.txt --output like
accepts '80 documents read' prepare --like back.safetensors --train train.txt "${stories[@]}" --output like
write_recipe plain.ini run.task=lm model.width=16 model.ff=32 model.heads=2 model.layers=1 model.context=16 train.updates=2 \
    train.max_tokens=64 device.threads=1
accepts written prepare --format text --train train.txt --output moses
try train plain.ini --data.folder moses --run.folder moses-lm --run.quiet
refuses 2 'perplexity.documents: only the tokenizers byte_level and sentencepiece keep newlines' perplexity moses-lm valid.txt --documents file
# SentencePiece models that keep newlines, and one that does not.
if command -v spm_train >/dev/null; then
    pieces=(prepare --format text --train train.txt --valid valid.txt --tokenizer sentencepiece --spm-vocab-size 420 "${stories[@]}")
    accepts '80 documents read' "${pieces[@]}" --spm-normalization identity --spm-byte-fallback --output pieces
    try train plain.ini --data.folder pieces --run.folder pieces-lm --run.quiet
    [ "$got" = 0 ] || fail "train: $(cat err)"
    "$NORMA" perplexity pieces-lm valid.txt --threads 1 >out
    lacks out 'unknown [1-9]'
    "$NORMA" generate pieces-lm --prompt '' --samples 30 --tokens 60 --temperature 3 --threads 1 2>/dev/null >drawn
    [ "$(wc -l <drawn)" -gt 32 ] || fail "no newlines in 30 texts of $(wc -l <drawn) lines"
    refuses 2 'the SentencePiece model does not keep newlines' "${pieces[@]}" --spm-normalization nmt_nfkc --output no
    accepts written prepare --format text --train train.txt --tokenizer sentencepiece --spm-vocab-size 320 --output lines
    try train plain.ini --data.folder lines --run.folder lines-lm --run.quiet
    refuses 2 'the SentencePiece model of the model does not keep newlines' perplexity lines-lm valid.txt --documents file
    # A continuation begins with the space that separates it from the prompt.
    sampling=(--prompt 'Story 7' --lines 1 --samples 100 --tokens 3 --temperature 3 --seed 4 --threads 1)
    "$NORMA" generate lines-lm "${sampling[@]}" 2>/dev/null >with-prompts
    "$NORMA" generate lines-lm "${sampling[@]}" --bare 2>/dev/null | sed 's/^/Story 7/' >continued
    grep -q '^Story 7 ' with-prompts || fail "no continuation begins with a word: $(cat with-prompts)"
    same with-prompts continued
    # Lines of pieces of fewer than five words are repeated in any text.
    { echo 'one long-headed-heading:' && seq -f 'line %g of five words' 30; } >short.train
    { echo 'one long-headed-heading:' && seq -f 'line %g of five words' 30 49; } >short.valid
    accepts 'valid: 21 lines read, 21 kept, 0 dropped; 1 also in train' prepare --format text --train short.train \
        --valid short.valid --tokenizer sentencepiece --spm-type char --output short
    accepts '; 2 also in train' prepare --format text --train short.train --valid short.valid --source-lang ja \
        --tokenizer sentencepiece --spm-type char --output short
fi
echo "e2e_documents: passed"
