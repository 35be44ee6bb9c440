#!/bin/bash
# norma prepare: contents of the folder, identical for any number of threads; filters and counts; a message of one
# line, the documented exit code and no incomplete folder for bad input. Also the command line that all commands
# share.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

prepare() {
    local ratio=(--ratio 1.5)
    [[ " $* " != *" --train  "* ]] || ratio=() # a filter without training text is an error
    "$NORMA" prepare --source-lang de --target-lang en "${ratio[@]}" "$@" >out 2>err || fail "exit code $?: $*: $(cat err)"
    [ ! -s out ] || fail "results on stdout: $*"
}

says() {
    grep -qxF -- "$1" err || fail "'$1' is not a line of: $(cat err)"
}

# The ids of a file, one sequence a line.
ids() {
    od -An -v -t d4 -j 64 -w4 "$1" | tr -d ' ' | awk '{ printf "%s%s", $1, $1 == 2 ? "\n" : " " }'
}

# --- the whole way, words as units -------------------------------------------------------------------------------
printf '%s\n' 'das Haus ist alt' 'das Auto' '' 'eins zwei drei vier' 'ein Haus' >train.de
printf '%s\n' 'the house is old' 'the car' 'lost' 'one two' 'a  house ' >train.en
printf '%s\n' 'das Haus' '' 'mein Haus </s>' >valid.de
printf '%s\n' 'the house' 'x' 'my House' >valid.en
prepare --train train --valid valid --output words --tokenizer none --lowercase --bpe-merges 0 --joint false
says 'train: 5 pairs read, 3 kept, 2 dropped: 1 empty, 1 length ratio'
says 'valid: 3 pairs read, 3 kept, 0 dropped'
says '  source: 5 words, 5 tokens, 2 unknown (40.000 %)'
same words/dict.source.txt - <<'X'
das 2
haus 2
alt 1
auto 1
ein 1
ist 1
madeupword0000 0
madeupword0001 0
madeupword0002 0
madeupword0003 0
madeupword0004 0
madeupword0005 0
X
head -n 3 words/dict.target.txt >dict
same dict - <<'X'
house 2
the 2
a 1
X
ids words/train.source.ids >got
same got - <<'X'
4 5 9 6 2
4 7 2
8 5 2
X
ids words/valid.source.ids >got
same got - <<'X'
4 5 2
2
3 5 3 2
X
same words/valid.target.words - <<'X'
the house
x
my house
X
printf '%s\n' words/* >got
sed 's|^|words/|' >wanted <<'X'
checksums.xxh128
data.ini
dict.source.txt
dict.target.txt
train.source.ids
train.source.off
train.target.ids
train.target.off
valid.source.ids
valid.source.off
valid.source.words
valid.target.ids
valid.target.off
valid.target.words
X
diff got wanted || fail 'other files than expected'
grep -qx 'lowercase = true ; command line' words/data.ini || fail "data.ini: $(cat words/data.ini)"

# --- BPE, the other order of special symbols, a recipe, given codes and dictionaries ------------------------------
for i in $(seq 700); do
    printf 'ab abc abcd x%d, "w%d"\n' $((i % 37)) $((i * i % 101)) >>long.de
    printf 'Abe aber %d. &c\n' $((i % 29)) >>long.en
done
prepare --train long --valid valid --test valid --output bpe --bpe-merges 60 --threads 1
[ "$(head -n 1 bpe/codes.bpe)" = '#version: 0.2' ] || fail 'codes.bpe has no version line'
[ "$(wc -l <bpe/codes.bpe)" = 61 ] || fail "codes.bpe has $(wc -l <bpe/codes.bpe) lines"
cmp bpe/dict.source.txt bpe/dict.target.txt
head -n 1 long.de >one.de
head -n 1 long.en >one.en
for threads in 2 3; do
    prepare --train long --valid valid --test valid --output bpe$threads --bpe-merges 60 --threads=$threads
    diff -r -x data.ini -x checksums.xxh128 bpe bpe$threads || fail "$threads threads give another folder"
done
prepare bpe/data.ini --output again
diff -r -x data.ini -x checksums.xxh128 bpe again || fail 'data.ini does not repeat the run'
prepare --train "" --test long --codes bpe/codes.bpe --dict-source bpe/dict.source.txt --output given
cmp given/test.source.ids bpe/train.source.ids
prepare --train long --output tears --tokenizer none --bpe-merges 0 --special-ids tears --dict-multiple 0
[ "$(od -An -t d4 -j 64 -w4 tears/train.source.ids | grep -cx ' *2')" = 700 ] || fail 'not one </s> a line'
prepare --train long --output threshold --bpe-merges 60 --bpe-vocabulary-threshold 30
cmp -s threshold/train.source.ids bpe/train.source.ids && fail 'the vocabulary threshold changes nothing'
for side in source target; do # counted on their own side, though the dictionary is joint
    [ "$(awk '{ print $2 }' threshold/units.$side.txt | sort -n | head -1)" -ge 30 ] || fail "$side: a rare unit may be written"
done
cmp -s threshold/units.source.txt threshold/units.target.txt && fail 'both sides have the same units'
prepare --train long --output threshold --bpe-merges 60
[ ! -e threshold/units.source.txt ] || fail 'units of an earlier threshold are left'
prepare --train one --output bpe --bpe-merges 1 # a folder used again keeps nothing of before
[ ! -e bpe/valid.source.ids ] && [ ! -e bpe/test.target.words ] || fail 'files of an earlier run are left'

# --- filters and odd lines ----------------------------------------------------------------------------------------
head -c 1100000 /dev/zero | tr '\0' y >huge.de
printf '\nkurz\r\nlang lang lang\n' >>huge.de
printf 'huge\nshort\nlong long long\n' >huge.en
prepare --train huge --output odd --max-length 2
says 'train: 3 pairs read, 1 kept, 2 dropped: 2 too long'
head -c 3000000 /dev/zero | tr '\0' y >wide.de
printf '\n' >>wide.de
printf 'wide\n' >wide.en
prepare --train huge --valid wide --output odd
says 'valid: 1 pairs read, 1 kept, 0 dropped'
prepare --train huge --output odd --min-length 3
says 'train: 3 pairs read, 1 kept, 2 dropped: 1 too short, 1 too long'
printf 'gut\nschl\377echt\n' >bad.de
printf 'good\nbad\n' >bad.en
prepare --train bad --output odd --on-invalid skip
says 'train: 2 pairs read, 1 kept, 1 dropped: 1 invalid'

# --- many blocks of lines -----------------------------------------------------------------------------------------
# More lines than a block has, words that only the validation text has, a line longer than a block.
seq 20000 | awk '{ printf "w%d, \303\244%d. o-%d\n", $1 % 977, $1 * $1 % 3001, $1 % 13 }' >many.de
seq 20000 | awk '{ printf "it'"'"'s (%d) <v%d> %d,%d\n", $1 % 1013, $1 * 7 % 2003, $1 % 7, $1 % 11 }' >many.en
{
    seq 9000 | awk '{ printf "neu%d w%d\n", $1, $1 % 977 }'
    head -c 3000000 /dev/zero | sed 's/\x00/\xc3\xa4 /g'
    printf '\nend'
} >news.de
seq 9001 | sed 's/$/ new/' >news.en
printf 'end' >>news.en
for threads in 1 2 3; do
    prepare --train many --valid news --output many$threads --ratio 0 --bpe-merges 300 --threads $threads
done
says 'train: 20000 pairs read, 20000 kept, 0 dropped'
says 'valid: 9002 pairs read, 9002 kept, 0 dropped'
for threads in 2 3; do
    diff -r -x data.ini -x checksums.xxh128 many1 many$threads || fail "$threads threads give another folder of many blocks"
done
# The same words through given codes, as a separate text: the ids of valid do not depend on the preceding text.
prepare --train "" --test news --codes many1/codes.bpe --dict-source many1/dict.source.txt --output news
cmp news/test.source.ids many1/valid.source.ids
cmp news/test.target.words many1/valid.target.words
# CRLF line endings, and a missing one at the end of the file, have no effect.
for side in de en; do
    sed 's/$/\r/' many.$side >crlf.$side
    head -c -1 many.$side >open.$side
done
for text in crlf open; do
    prepare --train $text --valid news --output $text --ratio 0 --bpe-merges 300 --threads 2
    diff -r -x data.ini -x checksums.xxh128 many1 $text || fail "$text gives another folder"
done
# The message names the first bad line, independent of block limits and of the number of threads.
sed '17000s/o/\xe2\x82/; 19000s/o/\xff/' many.de >later.de
cp many.en later.en
head -n 18000 many.en >short.en
cp later.de short.de
for threads in 1 2 3; do
    for text in later short; do
        refuses 4 "$text.de:17000: not UTF-8: byte 0xe2 at position" prepare --source-lang de --target-lang en \
            --output no --train $text --threads $threads
    done
    refuses 5 'short.de has 20000 lines but short.en has 18000' prepare --source-lang de --target-lang en \
        --output no --train short --threads $threads --on-invalid skip
done
prepare --train later --output odd --ratio 0 --on-invalid skip --threads 3
says 'train: 20000 pairs read, 19998 kept, 2 dropped: 2 invalid'

# --- refusals -----------------------------------------------------------------------------------------------------
p=(prepare --source-lang de --target-lang en --output no)
refuses 4 'bad.de:2: not UTF-8: byte 0xff at position 5; --encoding names another encoding; --on-invalid skip drops such training text' \
    "${p[@]}" --train bad
refuses 4 'bad.de:2: not UTF-8' "${p[@]}" --train huge --valid bad --on-invalid skip
! grep -q "training text" err || fail "advice that does not apply to validation text: $(cat err)"
printf 'a\0b\n' >nul.de
printf 'a b\n' >nul.en
refuses 4 'nul.de:1: not text: byte 0x00 at position 2' "${p[@]}" --train nul
printf 'a\nb\nc\n' >uneven.de
printf 'a\nb\n' >uneven.en
refuses 5 'uneven.de has 3 lines but uneven.en has 2' "${p[@]}" --train uneven
: >empty.de
: >empty.en
refuses 5 'empty: the filters left no pair of lines' "${p[@]}" --train empty
prepare --train huge --valid empty --output odd
says 'valid: 0 pairs read, 0 kept, 0 dropped'
refuses 3 'missing.de: No such file' "${p[@]}" --train missing
refuses 3 'long.en.de: No such file, but long.en exists: both files are named by their prefix, long' "${p[@]}" --train long.en
echo x >zipped.en
printf '\037\213\010\000more' >zipped.de
refuses 4 'zipped.de:1: reading failed: the compressed data is damaged' "${p[@]}" --train zipped
printf '\3757zXZ\000more' >zipped.de
refuses 4 'zipped.de:1: reading failed: the compressed data is damaged' "${p[@]}" --train zipped
mkdir folder.de
refuses 3 'folder.de: is a folder' "${p[@]}" --train folder
[ ! -e no ] || fail 'a failure did not remove its folder'
refuses 3 'wide.en: not a folder' "${p[@]}" --train huge --output wide.en
refuses 3 '/proc/no' "${p[@]}" --train huge --output /proc/no
refuses 5 'differ, but --joint requires one dictionary' "${p[@]}" --train long --dict-source words/dict.source.txt \
    --dict-target words/dict.target.txt
refuses 4 'bad.de' "${p[@]}" --train long --codes bad.de
refuses 2 'codes' "${p[@]}" --test long --dict-source words/dict.source.txt
refuses 2 'dictionaries are required' "${p[@]}" --test long
refuses 2 'two different languages' prepare --train long --output no
refuses 2 'no output folder' prepare --train long --source-lang de --target-lang en
refuses 2 'no text given' "${p[@]}"
refuses 2 'prepare.max_length is below prepare.min_length' "${p[@]}" --train long --min-length 5 --max-length 4
refuses 2 'prepare.ratio = 0.5: expected 0 or at least 1' "${p[@]}" --train long --ratio 0.5
# A full disk, simulated by a limit on the size of files.
for blocks in 1 12 24; do
    got=0
    (trap '' XFSZ && ulimit -f $blocks && "$NORMA" "${p[@]}" --train long 2>err) || got=$?
    [ "$got" = 3 ] && grep -q 'writing failed' err || fail "limit $blocks: exit code $got: $(cat err)"
    [ ! -e no ] || fail "limit $blocks: left $(ls no)"
done
# Token files, which are larger than the word numbers, fail before the files of the validation set are opened.
awk 'BEGIN { srand(1); for (i = 0; i < 4000; i++) print "abcdefghij" substr("klmnop", 1 + int(rand() * 6)) }' >many.de
cp many.de many.en
got=0
(trap '' XFSZ && ulimit -f 100 && "$NORMA" "${p[@]}" --train many --valid long --bpe-merges 1 2>err) || got=$?
[ "$got" = 3 ] && grep -q 'no/train.source.ids: writing failed: File too large' err ||
    fail "token files on a full disk: exit code $got: $(cat err)"
cp -r words kept # a failure in a used folder leaves what was there
refuses 4 'bad.de:2' "${p[@]}" --train bad --output words
diff -r words kept || fail 'a failure changed the folder'
# --- length ratio and byte order marks -----------------------------------------------------------------------------
# The default keeps pairs that differ up to 9 times. Lengths of a language without spaces are in characters.
printf '%s\n' 'eins' 'das ist gut' 'ja' 'nein' >ratio.de
printf '%s\n' 'one two three four five six seven eight nine' 'that is good' '1 2 3 4 5 6 7 8 9 10' 'no' >ratio.en
ratio() { "$NORMA" prepare --train ratio --tokenizer none --bpe-merges 0 --output ratio "$@" 2>err || fail "$(cat err)"; }
ratio --source-lang de --target-lang en
says 'train: 4 pairs read, 3 kept, 1 dropped: 1 length ratio'
says 'norma: warning: 25.0 % of the training pairs were dropped, most of them as "length ratio"; the option --prepare.ratio changes this filter'
says '  line 3: ja | 1 2 3 4 5 6 7 8 9 10'
ratio --source-lang de --target-lang en --ratio 0
says 'train: 4 pairs read, 4 kept, 0 dropped'
grep -q 'warning' err && fail 'a warning without dropped pairs'

# Text that is tokenized already, and raw text with a few entities.
for i in $(seq 200); do
    echo "die Katze $i ist hier, sagt sie's"
done >raw.de
sed 's/die Katze/the cat/' raw.de >raw.en
"$NORMA" tokenize raw.de --language de >tokenized.de
"$NORMA" tokenize raw.en >tokenized.en
"$NORMA" prepare --train tokenized --source-lang de --target-lang en --output bpe --tokenizer none --bpe-merges 9 2>err
for language in de en; do
    "$NORMA" subword --like bpe tokenized.$language --format tokenized | sed 's/&/_/g' >marked.$language
done
sed "1,2s/.*/a \&quot;b\&quot;/" raw.de >entities.de
cp raw.en entities.en
warning='training pairs contain &apos;, &quot; or "@@ ", as text that is tokenized already'
for name in tokenized marked; do
    prepare --train "$name" --valid-every 10 --output "$name"
    says "norma: warning: 200 of 200 $warning: it needs --tokenizer none, or norma detokenize first"
    prepare --train "$name" --tokenizer none --output "$name"
    lacks err warning
done
prepare --train entities --output entities
lacks err warning
printf '%s\n' '我们昨天在公园里看见了一只很大的黑狗。' '谢谢' >ratio.zh
printf '%s\n' 'We saw a very big black dog in the park yesterday .' 'Thank you very much indeed' >ratio.en
ratio --source-lang zh --target-lang en
says 'train: 2 pairs read, 2 kept, 0 dropped'
cp ratio.zh ratio.xx
ratio --source-lang xx --target-lang en
says 'train: 2 pairs read, 1 kept, 1 dropped: 1 length ratio'
# The Moses tokenizer and a language without spaces, unless the text contains them.
warning='norma: warning: source: "zh" is written without spaces, at which the Moses tokenizer splits words'
prepare_zh() { "$NORMA" prepare --train "$1" --target-lang en --bpe-merges 9 --output zh "${@:2}" 2>err || fail "$(cat err)"; }
prepare_zh ratio --source-lang zh
says "$warning: use --tokenizer sentencepiece, or none for text that is segmented already"
prepare_zh ratio --source-lang zh --tokenizer none
lacks err 'without spaces'
sed 's/./& /g' ratio.zh >spaced.zh
cp ratio.en spaced.en
prepare_zh spaced --source-lang zh
lacks err 'without spaces'
prepare_zh ratio --source-lang xx --ratio 0
lacks err 'without spaces'

# A dictionary of other tokens; one in the format of OpenNMT.
prepare --train raw --output subwords --bpe-merges 9
printf 'katze 3\n' >other.txt
prepare --train raw --output zh --bpe-merges 9 --dict-source other.txt --dict-target subwords/dict.target.txt --joint false
says 'norma: warning: source: 100.0 % of the training tokens are unknown: the dictionary must be that of the tokenizer and of the BPE codes or SentencePiece model'
lacks err 'warning: target'
tr ' ' '\t' <subwords/dict.source.txt >tabs.txt
prepare --train raw --output zh --bpe-merges 9 --dict-source tabs.txt --dict-target tabs.txt
same zh/dict.source.txt subwords/dict.source.txt
rm -r zh spaced.* subwords other.txt tabs.txt
printf '\xEF\xBB\xBFdas Haus\nein Haus\n' >mark.de
printf 'the house\na house\n' >mark.en
prepare --train mark --output mark --tokenizer none --bpe-merges 0 --joint false --dict-multiple 0
printf '%s\n' 'Haus 2' 'das 1' 'ein 1' >wanted
same mark/dict.source.txt wanted
rm -r ratio ratio.* mark mark.*

# A second process that writes to the same folder is rejected, and the folder does not change.
exec 7>>words/.lock
flock 7
echo $$ >words/.lock
refuses 3 "words: is being written by process $$;" "${p[@]}" --train train --output words
exec 7>&-
rm words/.lock
diff -r words kept || fail 'a refused preparation changed the folder'

# --- the command line ---------------------------------------------------------------------------------------------
refuses 2 'unknown command prepar; the most similar one is prepare' prepar
refuses 2 'the most similar one is prepare.source_lang' prepare --sorce-lang de
refuses 2 'unknown option -t' prepare -t 2
refuses 2 'option --train needs a value' prepare --train
refuses 2 'option --train needs a value' prepare --train --lowercase
refuses 2 'expected true or false' prepare --lowercase=maybe
refuses 2 'expected one of none|moses' prepare --prepare.tokenizer words
refuses 2 'prepare: unexpected argument two; usage' prepare one two
refuses 2 'too few arguments' average only
refuses 3 'missing.safetensors' average out.safetensors missing.safetensors
[ ! -e out.safetensors ] || fail 'a failed average left a file'
got=0
"$NORMA" >out 2>err || got=$?
[ "$got" = 2 ] && [ ! -s out ] && grep -q '^usage: norma' err || fail 'no usage without a command'
"$NORMA" prepare --help >help 2>err && "$NORMA" help prepare | cmp - help || fail 'two different help texts'
grep -q -- '--bpe-merges' help && [ ! -s err ] || fail 'help lacks options'
# A setting of a recipe without effect is a warning, before the report.
printf '[prepare]\ntokenizer = none\nspm_vocab_size = 100\n' >settings.ini
try prepare settings.ini --train huge --source-lang de --target-lang en --bpe-merges 0 --output settings
[ "$got" = 0 ] || fail "prepare with a setting without effect: exit code $got: $(cat err)"
head -n 1 err >first
has first 'norma: warning: prepare.spm_vocab_size = 100 has no effect here: only a SentencePiece model that is learned has it'

"$NORMA" --version >out || fail 'version'
grep -qx 'norma [0-9.]*' out || fail "version: $(cat out)"
for command in $("$NORMA" help --list); do
    "$NORMA" "$command" --manual >page || fail "no manual page of $command"
    head -n 1 page >first
    grep -q '^\.TH NORMA\\-[A-Z]* 1 ' first || fail "manual page of $command: $(head -n 1 page)"
done
if [ -w /dev/full ]; then
    got=0
    "$NORMA" help >/dev/full 2>err || got=$?
    [ "$got" = 3 ] && grep -q 'standard output: writing failed' err || fail "a full disk ends with $got"
fi
