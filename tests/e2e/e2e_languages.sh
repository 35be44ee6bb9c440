#!/bin/bash
# Languages without spaces, from raw text to a score: learned and given SentencePiece models, in the data folder and
# in the model file, translations as text, BLEU with the tokenizer of the language, and TER.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Raw Japanese and English sentences, a phrase-by-phrase translation; valid and test have a character that train lacks.
make_text() { # PREFIX COUNT SEED EXTRA
    awk -v n="$2" -v seed="$3" -v name="$1" -v extra="$4" 'BEGIN {
        srand(seed)
        split("犬が 猫が 子供が 鳥が", who); split("dog cat child bird", who_en)
        split("庭で 東京で 学校で 家で", where); split("garden Tokyo school house", where_en)
        split("走る 眠る 歌う 遊ぶ", what); split("runs sleeps sings plays", what_en)
        for (i = 0; i < n; i++) {
            a = 1 + int(rand() * 4); b = 1 + int(rand() * 4); c = 1 + int(rand() * 4)
            more = i % 10 ? "" : extra
            print who[a] where[b] what[c] more "。" > (name ".ja")
            print "The " who_en[a] " " what_en[c] " in the " where_en[b] more "." > (name ".en")
        }
    }'
}
make_text train 400 1 ''
make_text valid 24 2 '喜'
make_text test 20 3 '♪'
common=(--train train --valid valid --test test --source-lang ja --target-lang en --tokenizer sentencepiece)

# --- learned: raw text, no unknown token, the same bytes again -------------------------------------------------------
accepts '0 unknown (0.000 %)' prepare "${common[@]}" --spm-vocab-size 400 --output data
has err 'SentencePiece model of'
[ ! -e data/sentencepiece.tmp ] || fail 'the folder for learning was not removed'
same data/valid.source.words valid.ja
same data/valid.target.words valid.en
cmp -s data/sentencepiece.source.model data/sentencepiece.target.model || fail 'a joint model differs between the sides'
accepts written prepare "${common[@]}" --spm-vocab-size 400 --output again --threads 1
for file in train.source.ids test.target.ids dict.source.txt sentencepiece.source.model; do
    cmp -s data/$file again/$file || fail "$file differs in a second run"
done

# The ids are the pieces that spm_encode writes.
spm_encode --model=data/sentencepiece.source.model <test.ja 2>/dev/null >pieces
od -An -v -t d4 -j 64 -w4 data/test.source.ids | awk 'NR == FNR { symbol[NR + 3] = $1; next }
    $1 == 2 { print line; line = ""; next } { line = line (line == "" ? "" : " ") symbol[$1 + 0] }' data/dict.source.txt - >got
same got pieces

# --- given, with BPE and a model for each side -------------------------------------------------------------------------
accepts written prepare "${common[@]}" --joint false --spm-type bpe --spm-vocab-size 350 --output bpe
! cmp -s bpe/sentencepiece.source.model bpe/sentencepiece.target.model || fail 'the sides have the same model'
accepts written prepare "${common[@]}" --joint false --spm-model bpe/sentencepiece.source.model \
    --spm-target-model bpe/sentencepiece.target.model --output given
cmp -s bpe/train.target.ids given/train.target.ids || fail 'ids of a given model differ'
cmp -s bpe/dict.target.txt given/dict.target.txt || fail 'the dictionary of a given model differs'
accepts written prepare --format text --train train.ja --valid valid.ja --tokenizer sentencepiece \
    --spm-model data/sentencepiece.source.model --output text
[ -s text/sentencepiece.model ] || fail 'no model in a folder of plain text'

# --- a model of a target without spaces keeps its full-width punctuation; others normalize it ------------------------------
reverse=(--train train --valid valid --source-lang en --target-lang ja --tokenizer sentencepiece --spm-vocab-size 400)
unchanged() { # FOLDER SIDE: the line after subword segmentation and back
    echo '犬が走る！（１）' | "$NORMA" subword --like "$1" --side "$2" | "$NORMA" subword --like "$1" --side "$2" --undo
}
accepts written prepare "${reverse[@]}" --output reverse
[ "$(unchanged reverse target)" = '犬が走る！（１）' ] || fail "Japanese target: $(unchanged reverse target)"
[ "$(unchanged data source)" = '犬が走る!(1)' ] || fail "Japanese source: $(unchanged data source)"
accepts written prepare "${reverse[@]}" --spm-normalization nmt_nfkc --output normalized
[ "$(unchanged normalized target)" = '犬が走る!(1)' ] || fail "nmt_nfkc: $(unchanged normalized target)"

# --- a model of a Persian target keeps the zero-width non-joiners within words ---------------------------------------------
for split in train valid; do
    cp $split.ja persian-$split.fa
    cp $split.en persian-$split.en
done
persian=(--train persian-train --valid persian-valid --source-lang en --tokenizer sentencepiece --spm-vocab-size 400)
joined() { # FOLDER
    printf 'می\u200cروم！\n' | "$NORMA" subword --like "$1" --side target | "$NORMA" subword --like "$1" --side target --undo
}
accepts written prepare "${persian[@]}" --target-lang fa --output persian
[ "$(joined persian)" = "$(printf 'می\u200cروم!')" ] || fail "Persian target: $(joined persian)"
accepts written prepare "${persian[@]}" --target-lang fa --spm-normalization nmt_nfkc --output spaces
[ "$(joined spaces)" = 'می روم!' ] || fail "Persian target with nmt_nfkc: $(joined spaces)"

# --- wrong use -----------------------------------------------------------------------------------------------------------
refuses 2 'SentencePiece splits into subwords itself' prepare "${common[@]}" --bpe-merges 100 --output x
refuses 2 'has no effect' prepare "${common[@]}" --spm-model data/sentencepiece.source.model --spm-type bpe --output x
refuses 2 'only that tokenizer has a model' prepare --train train --source-lang ja --target-lang en --tokenizer none \
    --spm-model data/sentencepiece.source.model --output x
refuses 4 'not a SentencePiece model' prepare "${common[@]}" --spm-model train.ja --output x
refuses 2 'need two dictionaries' prepare "${common[@]}" --spm-model bpe/sentencepiece.source.model \
    --spm-target-model bpe/sentencepiece.target.model --output x
refuses 2 '--spm-model' prepare --test test --source-lang ja --target-lang en --tokenizer sentencepiece \
    --dict-source data/dict.source.txt --output x
got=0
PATH=/nowhere "$NORMA" prepare "${common[@]}" --output x >out 2>err || got=$?
check_failure 7 'its Debian package is sentencepiece' 'prepare without spm_train'
got=0
"$NORMA" prepare "${common[@]}" --spm-vocab-size 40 --output x >out 2>err || got=$?
check_failure 5 'spm_train failed, prepare.spm_vocab_size is too small for the characters' 'prepare with too few pieces'
# The quoted end of its messages begins with a whole character.
mkdir bin
for shift in '' x xx; do
    printf '#!/bin/sh\nprintf "%s%%s" "%s"\nexit 1\n' "$shift" "$(printf '本%.0s' {1..200})" >bin/spm_train
    chmod +x bin/spm_train
    got=0
    PATH=$work/bin:$PATH "$NORMA" prepare "${common[@]}" --output x >out 2>err || got=$?
    check_failure 5 'spm_train failed: 本本' 'prepare with long messages of spm_train'
    iconv -f utf-8 -t utf-16 err >converted || fail "the message is not UTF-8: $(cat err)"
done
[ ! -e x ] || fail "failed preparations left files: $(ls -A x)"

# --- training: the score is that of the text ---------------------------------------------------------------------------
cat >train.ini <<'X'
[model]
preset = tiny
encoder_layers = 1
decoder_layers = 1
dropout = 0
[train]
max_tokens = 256
updates = 30
validate_every = 30
label_smoothing = 0
[optim]
name = adam
[schedule]
name = linear
lr = 0.01
warmup = 5
[decode]
beam = 1
X
"$NORMA" train train.ini --data.folder data --run.folder run >log 2>&1 || fail "training: $(tail -n 3 log)"
grep -q 'tok:13a' run/log.jsonl || fail "no signature of sacreBLEU in the log: $(grep -m 1 bleu run/log.jsonl)"
"$NORMA" translate run test.ja >hypothesis 2>err || fail "translate: $(cat err)"
[ "$(wc -l <hypothesis)" = 20 ] || fail 'not 20 translations'
! grep -q '▁\|<0x' hypothesis || fail "pieces in the translation: $(head -n 1 hypothesis)"
grep -q '^The' hypothesis || fail "no English text: $(head -n 1 hypothesis)"
accepts '▁' translate run test.ja --output-format subword
spm_decode --model=data/sentencepiece.target.model <out 2>/dev/null >decoded
same hypothesis decoded
"$NORMA" translate run pieces --input-format subword >from_pieces 2>err || fail "translate: $(cat err)"
same hypothesis from_pieces
# exported models contain the SentencePiece models
for format in '' --int8 --bf16; do
    # shellcheck disable=SC2086 # an empty format is no argument
    "$NORMA" export run $format -o exported.safetensors 2>err || fail "export $format: $(cat err)"
    "$NORMA" translate exported.safetensors test.ja >from_export 2>err || fail "translate after export $format: $(cat err)"
    [ -n "$format" ] || same hypothesis from_export
done
for tokenize in 13a intl zh char none; do
    accepts "tok:$tokenize" score bleu hypothesis --reference test.en --tokenize $tokenize
done
accepts 'tok:spm' score bleu hypothesis --reference test.en --tokenize spm --spm-model data/sentencepiece.target.model
accepts 'TER|nrefs:1|case:lc|tok:tercom' score ter hypothesis --reference test.en
refuses 2 'no effect on this metric' score chrf hypothesis --reference test.en --tokenize zh
refuses 2 'not of multi-bleu' score bleu hypothesis --reference test.en --tokenize zh --metric-variant multi-bleu
refuses 2 '--spm-model' score bleu hypothesis --reference test.en --tokenize spm

# To Japanese, characters are counted. A model file that was moved needs no data folder.
"$NORMA" prepare --train train --valid valid --source-lang en --target-lang ja --tokenizer sentencepiece \
    --spm-vocab-size 400 --output reverse 2>err || fail "prepare: $(cat err)"
"$NORMA" train train.ini --data.folder reverse --run.folder back >log 2>&1 || fail "training: $(tail -n 3 log)"
grep -q 'tok:char' back/log.jsonl || fail 'Japanese is not scored by characters'
mv back/last.safetensors alone.safetensors
rm -r reverse back
accepts '。' translate alone.safetensors test.en
# A phrase of a language without spaces is met within a line, and not inserted with a space.
perl -CSD -ne 'chomp; print substr($_, 2, 2), "\n"' out >phrases
"$NORMA" translate alone.safetensors test.en --constraints phrases --beam 8 >constrained 2>err || fail "constraints: $(cat err)"
[ "$(wc -l <constrained)" = 20 ] || fail 'not 20 translations with constraints'
! grep -q ' ' constrained || fail "a space in Japanese: $(grep -m 1 ' ' constrained)"
paste phrases constrained | perl -CSD -F'\t' -ane 'exit 1 if index($F[1], $F[0]) < 0' || fail "a phrase is missing: $(cat constrained)"
