#!/bin/bash
# Text files that are compressed or in other encodings, and the filters tokenize, detokenize, subword and normalize.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

make_pairs train 300 1
make_pairs valid 20 2
common=(--source-lang de --target-lang en --bpe-merges 50)
accepts written prepare --train train --valid valid "${common[@]}" --output plain

# --- compressed: recognized by content, also after concatenation -----------------------------------------------------
same_ids() { # FOLDER
    cases=$((cases + 1))
    cmp -s plain/train.source.ids "$1/train.source.ids" || fail "$1 has other ids"
    cmp -s plain/train.target.ids "$1/train.target.ids" || fail "$1 has other ids"
}
for program in gzip xz zstd; do
    command -v $program >/dev/null || continue
    mkdir $program
    case $program in gzip) end=gz ;; xz) end=xz ;; *) end=zst ;; esac
    { head -n 100 train.de | $program -c && tail -n +101 train.de | $program -c; } >$program/train.de.$end
    $program -c <train.en >$program/train.en
    accepts written prepare --train $program/train "${common[@]}" --output ids_$program
    same_ids ids_$program
    head -c 700 $program/train.de.$end >$program/cut.de
    cp train.en $program/cut.en
    refuses 4 'the compressed data is damaged or truncated' prepare --train $program/cut "${common[@]}" --output x
done
# Compressed standard input; a pipe whose first bytes arrive one at a time, and agree with those of a compressed file.
"$NORMA" tokenize <valid.en >expected
for program in gzip xz zstd; do
    command -v $program >/dev/null || continue
    $program -c <valid.en | "$NORMA" tokenize >got 2>err || fail "$program from a pipe: $(cat err)"
    same got expected
done
{ printf P; sleep 0.1; printf K; sleep 0.1; printf ' (a\n'; cat valid.en; } | "$NORMA" tokenize --escape false >got
[ "$(head -n 1 got)" = 'PK ( a' ] || fail "the first line of a pipe: $(head -n 1 got)"
[ "$(wc -l <got)" = "$(($(wc -l <valid.en) + 1))" ] || fail "lines of a pipe are missing: $(wc -l <got)"
printf P | "$NORMA" tokenize >got
[ "$(cat got)" = P ] || fail "one byte: $(cat got)"
got=0
printf 'BZh9' | "$NORMA" tokenize >out 2>err || got=$?
check_failure 4 'standard input: compressed by bzip2' tokenize

# Zero bytes pad gzip files to whole blocks, also between members and over more than one read (64 KiB); xz allows multiples
# of four. Other bytes after the end are damage.
{ head -n 100 train.de | gzip -c && head -c 1000 /dev/zero && tail -n +101 train.de | gzip -c && head -c 200000 /dev/zero; } >padded.de
gzip -c <train.en >padded.en
accepts written prepare --train padded "${common[@]}" --output ids_padded
same_ids ids_padded
{ cat padded.de && printf 'x'; } >cut.de
{ cat padded.de && printf '\037'; } >half.de # the first byte of a member
cp padded.en cut.en && cp padded.en half.en
refuses 4 'the compressed data is damaged or truncated' prepare --train cut "${common[@]}" --output x
refuses 4 'the compressed data is damaged or truncated' prepare --train half "${common[@]}" --output x
if command -v xz >/dev/null; then
    { head -n 100 train.de | xz -c && head -c 8 /dev/zero && tail -n +101 train.de | xz -c && head -c 4 /dev/zero; } >padded.de
    accepts written prepare --train padded "${common[@]}" --output ids_padded
    same_ids ids_padded
fi
# The cause is kept when the text is also converted. An error after the first bytes of a frame.
if command -v zstd >/dev/null; then
    printf '\050\265\057\375\000\156\073\100\000\000\100' >damaged.zst
    refuses 4 'the compressed data is damaged or truncated' tokenize damaged.zst --encoding latin1
fi
printf 'BZh91AY' >packed.de
refuses 4 'unpack it first' prepare --train packed "${common[@]}" --output x
: >empty.de
: >empty.en
refuses 5 'no pair' prepare --train empty "${common[@]}" --output x
gzip -c valid.en >reference.gz
accepts '= 100.0 100.0/100.0/100.0/100.0 (BP = 1.000' score bleu valid.en --reference reference.gz

# --- encodings -----------------------------------------------------------------------------------------------------------
for encoding in latin1 utf-16; do
    for side in de en; do
        sed 's/grün/gruen/g' train.$side | iconv -f utf-8 -t $encoding >other.$side
        sed 's/grün/gruen/g' train.$side >same.$side
    done
    accepts written prepare --train same "${common[@]}" --output plain
    accepts written prepare --train other "${common[@]}" --encoding $encoding --output ids_other
    same_ids ids_other
done
iconv -f utf-8 -t latin1 train.de >latin.de
cp train.en latin.en
refuses 4 'not UTF-8' prepare --train latin "${common[@]}" --output x
has err '--encoding'
refuses 4 'not valid in the given encoding' prepare --train train "${common[@]}" --encoding ascii --output x
refuses 2 'unknown encoding "klingon"' prepare --train train "${common[@]}" --encoding klingon --output x

# The encoding of the training text does not silently decode a validation text that is UTF-8.
cp train.de utf.de && cp train.en utf.en
for split in valid test; do
    refuses 2 "utf.de: is UTF-8, but the encoding latin1 of the training text would decode it: add --$split-encoding utf-8" \
        prepare --train latin --$split utf "${common[@]}" --encoding latin1 --output x
    accepts written prepare --train latin --$split utf "${common[@]}" --encoding latin1 --$split-encoding utf-8 --output own
done
gzip -c utf.de >packed.de.gz
refuses 2 'packed.de.gz: is UTF-8' prepare --format text --train latin.de --valid packed.de.gz --encoding latin1 --output x
accepts written prepare --train latin --valid latin "${common[@]}" --encoding latin1 --output x
sed 's/[^ -~]//g' utf.de >ascii.de
accepts written prepare --format text --train latin.de --valid ascii.de --encoding latin1 --output x
# A text of another encoding that is decoded all the same has many unknown tokens.
accepts written prepare --train latin --valid utf "${common[@]}" --encoding latin1 --valid-encoding latin1 --bpe-merges 0 --output x
has err 'encoding (--valid-encoding), language or tokenization'
# Validation text with many more unknown words than the training text: both rates are named.
{ for ((i = 0; i < 49; i++)); do echo 'a b'; done && echo 'c d'; } >common.txt
for ((i = 0; i < 2; i++)); do echo 'a b a b a x y z v w'; done >other.txt
accepts 'valid: 50.0 % of the tokens are unknown, 2.0 % of the training text' prepare --format text \
    --train common.txt --valid other.txt --tokenizer none --bpe-merges 0 --min-count 2 --output rates

# UTF-16 without the option: with and without a byte order mark, in every format, and where only a later character shows it.
for encoding in utf-16 utf-16le utf-16be; do
    for side in de en; do iconv -f utf-8 -t $encoding train.$side >wide.$side; done
    paste train.de train.en | iconv -f utf-8 -t $encoding | gzip >wide.tsv.gz
    name="is UTF-16, not UTF-8: --encoding $encoding is required"
    refuses 4 "wide.de: $name" prepare --train wide "${common[@]}" --on-invalid skip --output x
    refuses 4 "wide.en: $name" prepare --train train.de:wide.en "${common[@]}" --output x
    refuses 4 "wide.tsv.gz: $name" prepare --train wide.tsv.gz "${common[@]}" --output x
    input=wide.de refuses 4 "standard input: $name" prepare --format text --train - --output x
    refuses 4 "wide.de: $name" prepare --format text --train wide.de --tokenizer byte_level --documents file --output x
    accepts written prepare --train wide.tsv.gz "${common[@]}" --encoding $encoding --output x
done
printf '中文 abc\n' | iconv -f utf-8 -t utf-16le >wide.txt
refuses 4 'wide.txt:1: not text: byte 0x00 at position 6; --encoding names another encoding, such as utf-16' \
    prepare --format text --train wide.txt --output x
refuses 5 'no line for training (2 read: 2 invalid)' prepare --format text --train wide.txt --on-invalid skip --output x
for start in a ab abc 'ÿ'; do # no UTF-16
    printf %s "$start" >start.txt
    accepts '1 lines read, 1 kept' prepare --format text --train start.txt --output x
done

# --- line ends: a file whose lines end in "\r" only is one line ------------------------------------------------------------
for side in de en; do tr '\n' '\r' <train.$side >mac.$side; done
paste train.de train.en | tr '\n' '\r' >mac.tsv
tr '\t' , <mac.tsv >mac.csv
message='a single line that contains carriage returns: lines must end in \n or \r\n'
refuses 4 "mac.de: $message" prepare --train mac "${common[@]}" --output x
refuses 4 "mac.de: $message" prepare --train mac.de:train.en "${common[@]}" --output x
refuses 4 "mac.en: $message" prepare --train train.de:mac.en "${common[@]}" --output x
refuses 4 "mac.de: $message" prepare --train train --valid mac "${common[@]}" --output x
refuses 4 "mac.tsv: $message" prepare --train mac.tsv "${common[@]}" --output x
refuses 4 "mac.csv: $message" prepare --train mac.csv "${common[@]}" --output x
refuses 4 "mac.de: $message" prepare --format text --train mac.de --output x
printf '"a\rb",c\n' >quoted.csv
accepts '1 pairs read, 1 kept' prepare --train quoted.csv "${common[@]}" --output x
for side in de en; do printf '<seg>a\rb c</seg>\n' >stray.$side.sgm; done
accepts '1 pairs read, 1 kept' prepare --train stray "${common[@]}" --output x
sed '1s/ /\r/' train.de >stray.de
accepts "$(wc -l <train.de) pairs read" prepare --train stray.de:train.en "${common[@]}" --output x

# --- filters: what prepare does -------------------------------------------------------------------------------------------
accepts written prepare --train train --valid valid "${common[@]}" --lowercase --output plain
"$NORMA" tokenize --like plain <valid.de >got
same got plain/valid.source.words
"$NORMA" tokenize --like plain --side target valid.en >got
same got plain/valid.target.words
"$NORMA" subword --like plain <valid.de >subwords
"$NORMA" subword --like plain --format tokenized plain/valid.source.words >got
same got subwords
od -An -v -t d4 -j 64 -w4 plain/valid.source.ids | awk 'NR == FNR { symbol[NR + 3] = $1; next }
    $1 == 2 { print line; line = ""; next } { line = line (line == "" ? "" : " ") ($1 == 3 ? "?" : symbol[$1 + 0]) }' \
    plain/dict.source.txt - >ids
same ids subwords
"$NORMA" subword --like plain --undo subwords >got
"$NORMA" detokenize --like plain plain/valid.source.words >wanted
same got wanted
tr '[:upper:]' '[:lower:]' <valid.de | sed 's/ \.$/./' >wanted
same got wanted
cp wanted wanted_text
"$NORMA" tokenize --like plain --undo plain/valid.source.words >got
same got wanted
"$NORMA" subword --codes plain/codes.bpe --lowercase --language de valid.de >got
same got subwords
printf 'ﬁ ＡＢ\xcc\x81 ½\n' >forms
"$NORMA" normalize forms >got
echo 'fi AB́ 1⁄2' >wanted
same got wanted
"$NORMA" normalize --form nfc forms >got
printf 'ﬁ ＡＢ\xcc\x81 ½\n' >wanted
same got wanted
printf 'caf\351\n' >latin1
"$NORMA" normalize --encoding latin1 latin1 >got
echo café >wanted
same got wanted
refuses 2 'normalization cannot be undone' normalize --undo forms
# With --like, the steps of the data folder only: here lowercasing, without a Unicode normal form.
"$NORMA" normalize --like plain forms >got
printf 'ﬁ ａｂ\xcc\x81 ½\n' >wanted
same got wanted
# Options without effect.
refuses 2 'detokenize has no --undo' detokenize --undo forms
refuses 2 'text.form has no effect with --like' normalize --like plain --form nfc forms
refuses 2 'text.tokenizer has no effect: normalize does not tokenize' normalize --tokenizer moses forms
refuses 2 'text.language has no effect without --form punctuation' normalize --language de forms
refuses 2 'text.language has no effect with this tokenizer' tokenize --tokenizer none --language de forms
refuses 2 'text.lowercase has no effect: tokens are joined as they are' detokenize --lowercase forms
refuses 2 'text.lowercase has no effect: tokens are joined as they are' subword --undo --lowercase forms
refuses 2 'text.escape has no effect: nothing is tokenized' detokenize --escape false forms
refuses 2 'text.aggressive has no effect: nothing is tokenized' normalize --aggressive forms
refuses 2 'text.aggressive has no effect without the tokenizer moses' tokenize --tokenizer none --aggressive forms
refuses 2 'text.tokenizer has no effect with a SentencePiece model' tokenize --tokenizer moses --spm_model missing.model forms
refuses 3 'missing.model' tokenize --tokenizer sentencepiece --spm_model missing.model forms
refuses 2 'text.format has no effect: only subword uses it' tokenize --format tokenized forms
refuses 2 'text.form has no effect: only normalize uses it' tokenize --form nfc forms
"$NORMA" tokenize --undo --language de plain/valid.source.words >got
same got wanted_text
refuses 2 'cannot be combined with --like' tokenize --like plain --lowercase forms
refuses 2 'only subword applies BPE' tokenize --codes plain/codes.bpe forms
refuses 3 'nowhere' tokenize --like nowhere forms
printf 'a\0b\n' >zero
refuses 2 'text.side has no effect without --like' subword --side target --tokenizer none /dev/null
refuses 4 'zero:1: not text: byte 0x00' subword --codes plain/codes.bpe zero
refuses 2 'no subwords given: --like' subword zero
accepts 'ＡＢ' subword --undo forms
