#!/bin/bash
# Byte-level BPE: text of any kind is kept exactly and has no unknown symbols, in language models and translation; its codes are
# exchanged with transformers as tokenizer.json, vocab.json and merges.txt.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# The validation text has characters, spaces and newlines that the training text lacks.
for i in $(seq 60); do
    printf 'The cat number %d sits on the red mat.\n\tif (cat == %d) { return dog; }\nDer Hund schläft.\n\n' "$i" $((i * 37))
done >train.txt
printf 'The  red  dog\tsits. \n\n  Привет, 你好 🙂!\n@@ a@@ b </s> <unk> &amp; \x01\x7f\n\xc2\xa0x\xe2\x80\xa8y\nIt'"'"'S 12345.\n' >valid.txt

prepare() { # FOLDER OPTION...
    accepts written prepare --format text --train train.txt --valid valid.txt --tokenizer byte_level --output "$@"
}
prepare data --bpe-merges 60
has err 'valid: 6 lines read'
has err ', 0 unknown (0.000 %)'
lacks err ' 1 unknown'
same valid.txt data/valid.text.words
[ "$(wc -l <data/dict.txt)" = $((256 + 60)) ] || fail "a dictionary of $(wc -l <data/dict.txt) lines"
[ "$(head -1 data/codes.bpe)" = '#version: 0.2 byte_level' ] || fail "codes: $(head -1 data/codes.bpe)"
filter() { # COMMAND OPTION... <TEXT
    "$NORMA" "$@" 2>/dev/null || fail "norma $*"
}
filter subword --like data valid.txt >subwords
filter subword --like data --undo subwords >text
same valid.txt text
grep -qE '^The Ġ Ġre' subwords || fail "not the subwords of the text: $(head -1 subwords)"
for rules in gpt2 llama3 qwen2; do
    filter tokenize --tokenizer byte_level --pretokenizer $rules valid.txt >"tokens.$rules"
    filter detokenize --tokenizer byte_level "tokens.$rules" >text
    same valid.txt text
done
has tokens.gpt2 "It ' S"
has tokens.gpt2 'Ġ12345'
has tokens.llama3 "It 'S Ġ 123 45 ."
has tokens.qwen2 'Ġ 1 2 3 4 5 .'
# Lower case comes before the bytes, because the characters that represent them have a case, too.
prepare lower --bpe-merges 60 --lowercase true
perl -CSD -pe '$_ = lc' valid.txt >lower.txt
same lower.txt lower/valid.text.words
filter subword --like lower valid.txt >lower.subwords
filter subword --like lower --undo lower.subwords >text
same lower.txt text
# Single bytes, and codes of another program, without the mark byte_level.
prepare bytes --bpe-merges 0
[ "$(wc -l <bytes/dict.txt)" = 260 ] || fail "single bytes: $(wc -l <bytes/dict.txt) lines"
sed 's/ byte_level//' data/codes.bpe >merges.txt
prepare given --codes merges.txt --threads 2
same data/valid.text.ids given/valid.text.ids
same data/codes.bpe given/codes.bpe
prepare sized --bpe-vocabulary 300
[ "$(wc -l <sized/dict.txt)" = 300 ] || fail "a vocabulary of 300: $(wc -l <sized/dict.txt) lines"

common=(prepare --format text --train train.txt --output no)
refuses 2 'every subword' "${common[@]}" --tokenizer byte_level --bpe-vocabulary-threshold 5
refuses 2 'every subword' "${common[@]}" --tokenizer byte_level --subword-sampling true
refuses 2 'only that tokenizer has rules' "${common[@]}" --pretokenizer qwen2
refuses 2 'none|moses|basic_english|sentencepiece|byte_level' "${common[@]}" --tokenizer bytes
refuses 4 'codes of byte-level BPE require the tokenizer byte_level' "${common[@]}" --codes data/codes.bpe
printf '#version: 0.2\nя a\n' >bad.codes
refuses 4 'does not represent a byte' "${common[@]}" --tokenizer byte_level --codes bad.codes
refuses 2 'without the tokenizer byte_level' tokenize --pretokenizer gpt2 valid.txt

# --- language models, to transformers and back ---------------------------------------------------------------------------
write_recipe lm.ini run.task=lm model.preset=llama model.width=32 model.ff=40 model.heads=4 model.layers=2 model.context=32 \
    train.updates=20 train.max_tokens=512 schedule.lr=0.005 schedule.warmup=2 device.threads=1
log_probs() { # MODEL
    "$NORMA" perplexity "$1" valid.txt --documents line --tokens --each-line --threads 1 2>/dev/null || fail "perplexity $1"
}
convert() { # FOLDER MODEL
    try convert "$1" --from huggingface -o "$2"
    [ "$got" = 0 ] || fail "convert $1: $(cat err)"
}
for rules in gpt2 llama3 qwen2; do
    lower=false
    [ $rules = llama3 ] || lower=true
    prepare text-$rules --bpe-merges 60 --pretokenizer $rules --lowercase $lower
    try train lm.ini --data.folder text-$rules --run.folder lm-$rules --run.quiet
    try convert lm-$rules --to huggingface -o hf-$rules
    [ "$got" = 0 ] || fail "convert lm-$rules: $(cat err)"
    has hf-$rules/tokenizer.json '"type": "ByteLevel"'
    has hf-$rules/tokenizer.json '"trim_offsets": true' # as in the published tokenizer.json of GPT-2
    rm -rf plain && cp -r hf-$rules plain && rm plain/data.ini plain/codes.bpe
    convert hf-$rules back.safetensors
    convert plain plain.safetensors
    log_probs lm-$rules >expected
    for model in back plain; do
        log_probs $model.safetensors | sed "s/$model.safetensors/lm-$rules/g" >got
        paste expected got | perl -ne 'my @n = /(-?\d+\.\d+(?:e-\d+)?)/g; my $half = @n / 2; $compared += $half;
            for my $i (0 .. $half - 1) { abs($n[$i] - $n[$half + $i]) < 1e-5 or die "$n[$i] and $n[$half + $i]\n" }
            END { $compared > 60 or die "$compared numbers\n" }' || fail "$rules, $model: other log probabilities"
    done
    same <("$NORMA" subword --like lm-$rules valid.txt) <("$NORMA" subword --like plain.safetensors valid.txt)
done
has hf-llama3/tokenizer.json '\\p{N}{1,3}|'
has hf-qwen2/tokenizer.json '"type": "NFC"'
has hf-qwen2/tokenizer.json '"type": "Lowercase"'
lacks hf-llama3/tokenizer.json '"type": "Lowercase"'

# The files of GPT-2 before tokenizer.json; tokens that are added to the vocabulary.
rm -rf old && cp -r plain old && rm old/tokenizer.json
perl -MJSON::PP -e 'local $/; my $t = decode_json(<>); my $vocab = $t->{model}{vocab};
    open my $v, ">", "old/vocab.json"; print $v encode_json($vocab);
    open my $m, ">:utf8", "old/merges.txt"; print $m "#version: 0.2\n", map { "@$_\n" } @{$t->{model}{merges}};
    open my $c, ">", "old/tokenizer_config.json"; print $c encode_json({tokenizer_class => "Qwen2TokenizerFast"});
    my ($first) = sort keys %$vocab; push @{$t->{added_tokens}}, {content => $first, id => $vocab->{$first} + 1}; # no effect
    push @{$t->{added_tokens}}, map +{content => $_, id => delete $vocab->{$_}}, grep { length > 1 } keys %$vocab;
    delete $vocab->{"</s>"}; $t->{model}{merges} = [map { "$_->[0] $_->[1]" } @{$t->{model}{merges}}];
    open my $j, ">", "plain/tokenizer.json"; print $j encode_json($t)' plain/tokenizer.json
convert old old.safetensors
convert plain added.safetensors
nll() { # MODEL: merges.txt does not say that the text is in lower case
    "$NORMA" perplexity "$1" lower.txt --documents line | sed 's/.*nll \([0-9]*\.[0-9]\{5\}\).*/\1/'
}
for model in old added; do
    same <(nll lm-qwen2) <(nll $model.safetensors)
done

# Words in the vocabulary that the merges do not produce.
rm -rf whole && cp -r hf-llama3 whole && rm whole/data.ini whole/codes.bpe
perl -MJSON::PP -0777 -i -ne 'my $t = decode_json($_); $#{$t->{model}{merges}} -= 50; $t->{model}{ignore_merges} = JSON::PP::true;
    print encode_json($t)' whole/tokenizer.json
convert whole whole.safetensors
printf ' return\nreturns returned return\n' >words.txt
filter subword --like lm-llama3 words.txt >expected
filter subword --like whole.safetensors words.txt >got
[ "$(head -n 1 expected)" = Ġreturn ] || fail "the word is split: $(cat expected)"
same <(head -n 1 expected) <(head -n 1 got)
if cmp -s expected got; then fail 'the merges were not removed'; fi
try convert whole.safetensors --to huggingface -o whole-again
[ "$got" = 0 ] || fail "convert whole.safetensors: $(cat err)"
has whole-again/tokenizer.json '"ignore_merges": true'
grep -qx Ġreturn whole-again/codes.bpe || fail 'the codes lack the word'
printf 'The cat\n' >cat.txt
prepare whole-codes --codes whole-again/codes.bpe --train cat.txt
grep -q '^Ġreturn ' whole-codes/dict.txt || fail 'the dictionary lacks the word'
accepts written prepare --like whole.safetensors --train words.txt --output whole-data
same whole-again/codes.bpe whole-data/codes.bpe

changed() { # CODE TEXT SED
    rm -rf bad && cp -r hf-llama3 bad && rm bad/data.ini bad/codes.bpe
    sed -i "$3" bad/tokenizer.json
    ! cmp -s hf-llama3/tokenizer.json bad/tokenizer.json || fail "nothing changed: $3"
    refuses "$1" "$2" convert bad --from huggingface -o no.safetensors
}
changed 7 "this 'pre_tokenizer' is not supported" 's/{1,3}/{1,4}/'
changed 7 "this 'pre_tokenizer' is not supported" 's/"Isolated"/"Removed"/'
changed 7 "this 'pre_tokenizer' is not supported" 's/"add_prefix_space": false/"add_prefix_space": true/'
changed 7 "this 'normalizer' is not supported" 's/"normalizer": null/"normalizer": {"type": "NFC"}/'
changed 7 "this 'normalizer' is not supported" 's/"normalizer": null/"normalizer": {"type": "Strip"}/'
changed 7 "this 'end_of_word_suffix' is not supported" 's/"end_of_word_suffix": null/"end_of_word_suffix": "<\/w>"/'
changed 7 'only byte-level BPE and tokenizers of the type WordLevel' 's/"type": "BPE"/"type": "Unigram"/'
changed 4 'a merge is not a pair of tokens' 's/"merges": \[/"merges": [7,/'
changed 4 'expected two symbols' 's/"merges": \[/"merges": ["a b c",/'
changed 4 'tokenizer.json:' 's/"merges": \[/"merges": [[/'
changed 4 "'madeup' has no index" 's/"vocab": {/"vocab": {"madeup": "x",/'
changed 5 'the index 99999' 's/"vocab": {/"vocab": {"madeup": 99999,/'
# A dictionary without all subwords.
prepare few --bpe-merges 60 --min-count 40
try train lm.ini --data.folder few --run.folder lm-few --run.quiet
refuses 7 'the dictionary lacks the subword' convert lm-few --to huggingface -o none
[ ! -e none ] || fail 'a folder in spite of an error'

# Generated text may have newlines, and a continuation of bytes that are no text is text.
try generate lm-gpt2 --prompt 'the cat' --tokens 200 --temperature 3 --seed 2
[ "$got" = 0 ] || fail "generate: $(cat err)"
iconv -f utf-8 -t utf-8 out >/dev/null || fail 'the generated text is not UTF-8'

# --- translation ---------------------------------------------------------------------------------------------------------
make_reversed_pairs 200 20 5
sed -i 's/$/ ä\t!/' train.de train.en valid.de valid.en
pairs=(--train train --valid valid --source-lang de --target-lang en --tokenizer byte_level)
accepts written prepare "${pairs[@]}" --bpe-merges 40 --output pairs
has err ' 0 unknown'
write_recipe mt.ini run.task=translation data.folder=pairs model.preset=tiny model.width=32 model.ff=64 train.updates=60 \
    train.max_tokens=512 train.validate_every=30 train.score=true schedule.lr=0.005 schedule.warmup=10 device.threads=1
try train mt.ini --run.folder mt --run.quiet
[ "$got" = 0 ] || fail "train mt.ini: $(cat err)"
has mt/log.jsonl '13a' # the score is that of text
{ cat valid.de && printf 'Новое слово 🙂\n\n'; } >hard.de
input=hard.de try translate mt
[ "$got" = 0 ] || fail "translate: $(cat err)"
[ "$(wc -l <out)" = "$(wc -l <hard.de)" ] || fail "$(wc -l <out) translations of $(wc -l <hard.de) lines"
lacks out 'Ġ'
has out $' ä\t!'
input=hard.de try translate mt --alignment --json
[ "$got" = 0 ] || fail "translate --alignment: $(cat err)"
sed 's/.*/house/' hard.de >phrases
input=hard.de refuses 7 'byte-level BPE' translate mt --constraints phrases
refuses 2 'not supported with byte-level BPE' train mt.ini --run.folder no --data.subword_dropout 0.1
for i in $(seq "$(wc -l <train.de)"); do echo '0-0'; done >links
accepts written prepare "${pairs[@]}" --bpe-merges 40 --alignments links --output linked
echo "e2e_byte_level: passed"
