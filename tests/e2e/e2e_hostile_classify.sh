#!/bin/bash
# Hostile tables, columns, labels and models of classification: one line with file and line number, and the exit code.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

printf 'good\ta fine film\nbad\ta dull film\ngood\tvery fine\nbad\tvery dull\n' >train.tsv
printf 'good\ta very fine film\nbad\tdull\n' >test.tsv
cat >recipe.ini <<'X'
[run]
task = classification
[data]
train = train.tsv
valid = test.tsv
[model]
preset = tiny
norm = batch
[train]
updates = 4
label_smoothing = 0
max_tokens = 64
[schedule]
warmup = 4
[device]
threads = 1
X
"$NORMA" train recipe.ini --run.folder run 2>err || { cat err >&2; exit 1; }

# ---- malformed tables

n=0
train() { # train CODE TEXT CONTENT(printf) NAME ARGUMENTS...
    local code=$1 text=$2 content=$3 name=$4
    shift 4
    printf "$content" >"$name"
    n=$((n + 1))
    refuses "$code" "$text" train recipe.ini --run.folder "run$n" --data.train "$name" "$@"
}
train 4 'bad.tsv: contains no text' '' bad.tsv
train 4 'bad.tsv: contains no text' '\n\n\r\n' bad.tsv
train 4 'bad.tsv: contains no text' 'label\ttext\n' bad.tsv
train 4 'there is nothing to learn' 'good\ta\ngood\tb\n' bad.tsv
train 4 'bad.tsv:2: 1 field, the first row has 2' 'good\ta\nbad\n' bad.tsv
train 4 'bad.tsv:3: 3 fields, the first row has 2' 'good\ta\n\nbad\tx\ty\n' bad.tsv
train 2 'bad.tsv:1: no column 2: the first row has 1 field' 'good\n' bad.tsv
train 4 'bad.tsv:2: not UTF-8: byte 0xff at position 3 of field 2' 'good\ta\nbad\tab\377\n' bad.tsv
train 4 'bad.tsv:1: field 2 contains a zero byte' 'good\ta\000b\nbad\tb\n' bad.tsv
train 4 'bad.tsv:2: the label is empty' 'good\ta\n\tb\n' bad.tsv
train 4 'bad.tsv:1: control character 0x1b in the label' '\033[2Jgood\ta\n' bad.tsv
train 4 'bad.csv:2: the quote that opens here is never closed' 'good,a\nbad,"b\n\n' bad.csv
train 4 'bad.csv:3: text after a closing quote' 'good,a\nbad,"b\nc"d\n' bad.csv
train 4 "bad.csv:1: a quote inside a field that does not start with one" 'good,a "film"\n' bad.csv
train 4 'bad.txt:1: the quote that opens here is never closed' 'good\t"a\n' bad.txt --data.quotes yes
train 2 'bad.csv:1: no column is named "stars"' 'label,text\ngood,a\n' bad.csv --data.label stars
train 2 'bad.csv:1: no column is named "stars", because the first row is not a header' 'label,text\ngood,a\n' bad.csv --data.label stars --data.header no
train 2 'bad.csv:1: no column is named "review"' 'label,text\ngood,a\n' bad.csv --data.text text,review
train 2 'no column of text is named' 'good,a\n' bad.csv --data.text ,
train 2 'lines have no labels' 'good\n' bad.txt --data.format lines
train 2 'data.valid_fraction leaves no text for training' 'good\ta\nbad\tb\n' bad.tsv --data.valid '' --data.valid_fraction 0.99 --data.valid_seed 1
awk 'BEGIN { for (i = 0; i < 5000; i++) print i "\ttext" }' >many.tsv
refuses 4 'many.tsv:4097: more than 4096 different labels' train recipe.ini --run.folder many --data.train many.tsv
{ printf 'a,"'; head -c 70000000 /dev/zero | tr '\0' x; } >huge.csv
refuses 4 'huge.csv:1: a row of more than 67108864 bytes; is a quote missing?' train recipe.ini --run.folder huge --data.train huge.csv
{ printf 'a,'; head -c 100000 /dev/zero | tr '\0' ,; } >wide.csv
refuses 4 'wide.csv:1: more than 65536 fields' train recipe.ini --run.folder wide --data.train wide.csv
rm huge.csv wide.csv

# ---- files and settings

refuses 2 'data.train is not set' train recipe.ini --run.folder none --data.train ''
refuses 3 'nowhere.tsv' train recipe.ini --run.folder none --data.train nowhere.tsv
refuses 3 'is a folder' train recipe.ini --run.folder none --data.train run
# The sections [size.N] measure the training data before they are read; a pipe can be read once.
{ cat recipe.ini; printf '[size.1000]\nmodel.width = 32\n'; } >sized.ini
refuses 2 'not a regular file, but it is read more than once' \
    train sized.ini --run.folder none --data.train <(cat train.tsv)
refuses 2 'data.language = de has no effect with data.tokenizer = basic_english' \
    train recipe.ini --run.folder none --data.tokenizer basic_english --data.language de
refuses 2 'column 2 is that of the label and of the text' train recipe.ini --run.folder none --data.label 2 --data.text 2
awk 'BEGIN { for (i = 0; i < 200; i++) print "text " i "\t" (i % 2 ? "good" : "bad") }' >swapped.tsv
refuses 4 'swapped.tsv: 200 different labels of 200 texts; is column 1 that of the label? Choose it with data.label' \
    train recipe.ini --run.folder none --data.train swapped.tsv
printf 'nice\ta\nugly\tb\n' >other.tsv
none='other.tsv: none of its labels occurs in the training data: it has nice, ugly, and the training data'
refuses 5 "$none" train recipe.ini --run.folder none --data.valid other.tsv
refuses 5 "$none" train recipe.ini --run.folder none --data.test other.tsv
refuses 5 "$none" classify run other.tsv --evaluate
awk 'BEGIN { print "good\ta"; for (i = 0; i < 5000; i++) print i "\ttext" }' >numbers.tsv
many='numbers.tsv:4098: more than 4096 labels that do not occur in the training data'
refuses 4 "$many" train recipe.ini --run.folder none --data.test numbers.tsv
refuses 4 "$many" classify run numbers.tsv --evaluate
printf 'no codes at all\n' >codes.bpe
refuses 4 'codes.bpe' train recipe.ini --run.folder none --data.codes codes.bpe
refuses 3 'nowhere.bpe' train recipe.ini --run.folder none --data.codes nowhere.bpe
refuses 2 'data.max_length = 512 is more than model.max_positions = 100' train recipe.ini --run.folder none --model.positions learned --model.max_positions 100
refuses 2 'model.width = 16 is not a multiple of model.heads = 3' train recipe.ini --run.folder none --model.heads 3
refuses 2 'no such task' train recipe.ini --run.folder none --run.task clasification
refuses 2 'outside' train recipe.ini --run.folder none --data.max_length 2
refuses 2 'recipe.ini: there is no profile small' train recipe.ini --profile small
{ cat recipe.ini; printf '[profile.small]\ntrain.epohcs = 3\n'; } >small.ini
refuses 2 'small.ini:18: unknown option train.epohcs; the most similar one is train.epochs' train small.ini --profile small
chatty=1
refuses 2 'no sequence has 1 to 2 tokens (max_length, max_tokens)' train recipe.ini --run.folder none --train.max_tokens 2
chatty=''

# ---- texts to classify

input=train.tsv accepts 'good' classify run
: >empty
input=empty try classify run
if [ "$got" != 0 ] || [ -s out ] || [ -s err ]; then fail "an empty input gives code $got: $(cat out err)"; fi
refuses 4 'no texts to evaluate' classify run empty --evaluate
printf 'fine\nab\377\n' >bytes.txt
stops 1 4 'bytes.txt:2: not UTF-8: byte 0xff at position 3 of field 1' classify run bytes.txt
{ printf 'good one\n' && cat bytes.txt && printf 'bad\0\n\nbad film\n'; } >mixed.txt
printf 'good one\nfine\n\n\n\nbad film\n' >valid.txt
"$NORMA" classify run valid.txt >whole
try classify run mixed.txt --on-invalid skip
[ "$got" = 0 ] && sed '3s/.*//; 4s/.*//' whole | cmp - out || fail "skipped lines: $(cat out err)"
has err 'norma: 2 of 6 lines are not UTF-8 or contain zero bytes and have no label (lines 3, 4)'
try classify run mixed.txt --on-invalid skip --probabilities
[ "$(awk -F '\t' '{ print NF }' out | sort -u | wc -l)" = 1 ] && [ -z "$(sed -n 4p out | tr -d '\t')" ] || fail "fields of skipped lines: $(cat out)"
try classify run mixed.txt --on-invalid skip --json --probabilities
[ "$(sed -n 3p out)" = '{"label":null,"truncated":false}' ] && [ "$(wc -l <out)" = 6 ] || fail "JSON of skipped lines: $(cat out)"
{ printf 'label\ttext\n' && sed '/^$/d; s/^/good\t/' mixed.txt; } >mixed.tsv
try classify run mixed.tsv --on-invalid skip
[ "$got" = 0 ] && sed 5d whole | sed '3s/.*//; 4s/.*//' | cmp - out ||
    fail "skipped rows: $(cat out err)"
has err 'norma: 2 of 5 rows are not UTF-8 or contain zero bytes and have no label (lines 4, 5)'
iconv -f utf-8 -t utf-16 test.tsv >utf16.tsv
refuses 4 'utf16.tsv: is UTF-16, not UTF-8: --encoding utf-16 is required' classify run utf16.tsv
# The first row of a table determines the columns.
printf 'good\tab\377\n' >first.tsv
refuses 4 'first.tsv:1: not UTF-8' classify run first.tsv --on-invalid skip
awk 'BEGIN { for (i = 0; i < 3; i++) { for (n = i == 1 ? 1 : 600; n; n--) printf i ? "bad " : "good "; print "" } }' >lengths.txt
accepts 'norma: 2 of 3 texts have more than 512 tokens and were truncated (lines 1, 3)' classify run lengths.txt
try classify run lengths.txt --json
[ "$(sed 's/.*,//' out | tr -d '\n')" = '"truncated":true}"truncated":false}"truncated":true}' ] || fail "JSON of truncated texts: $(cat out)"
refuses 2 'classify.on_invalid = skip has no effect' classify run mixed.txt --on-invalid skip --evaluate
printf 'fine\000\n' >bytes.txt
refuses 4 'bytes.txt:1: not text: contains a zero byte' classify run bytes.txt
head -c 70000000 /dev/zero | tr '\0' y >long.txt
refuses 4 'long.txt:1: a row of more than' classify run long.txt
head -c 3000000 /dev/zero | tr '\0' '.' >long.txt
accepts 'were truncated' classify run long.txt
rm long.txt
refuses 3 'nowhere.txt' classify run nowhere.txt
refuses 2 'lines have no labels' classify run test.tsv --evaluate --format lines
refuses 2 'other.tsv:1: no column 3' classify run other.tsv --evaluate --text 3
refuses 2 'classify: unexpected argument other.tsv; usage' classify run test.tsv other.tsv
refuses 2 'too few arguments' classify
if [ -c /dev/full ]; then
    got=0
    cases=$((cases + 1))
    "$NORMA" classify run test.tsv >/dev/full 2>err || got=$?
    check_failure 3 'standard output' 'classify to a full disk'
fi

# ---- models

refuses 3 'nowhere' classify nowhere
refuses 4 'train.tsv' classify train.tsv
model() { # model CODE TEXT PERL
    cp run/last.safetensors forged.safetensors
    forge forged.safetensors "$3"
    refuses "$1" "$2" classify forged.safetensors test.tsv
}
model 4 'has no labels.txt' 's/"labels.txt"/"lables.txt"/'
model 4 'has no dict.txt' 's/"dict.txt"/"dict.tx_"/'
model 4 'labels.txt: 1 labels' 's/bad\\ngood\\n/good\\n/'
model 4 'labels.txt:2: an empty or duplicate line' 's/bad\\ngood\\n/bad\\nbad\\n/'
model 4 'labels.txt:2: an empty or duplicate line' 's/bad\\ngood\\n/bad\\n\\ngood\\n/'
model 5 'output.weight' 's/bad\\ngood\\n/bad\\ngood\\nugly\\n/'
model 4 'dict.txt:1' 's/"dict.txt":"/"dict.txt":"x x x\\n/'
model 5 'embed.weight' 's/"dict.txt":"/"dict.txt":"zebra 7\\n/'
model 4 'task or configuration is missing' 's/"classification"/"classifiction"/'
model 2 'data.tokenizer = basic_' 's/tokenizer = basic_english/tokenizer = basic_/'
model 8 'not finite' '$data = "\xff" x length($data)'
model 8 'not finite' 'substr($data, 0, 4) = pack("f<", 9**9**9)'
model 8 'not finite' '$data = pack("f<", 1e38) x (length($data) / 4)'
cp test.tsv same.tsv
refuses 2 'same.tsv: input and output are the same file' classify run same.tsv --output same.tsv
cmp same.tsv test.tsv || fail "the input was overwritten"
cut -f 2 test.tsv >texts.txt
try classify run texts.txt --output labels
[ "$got" = 0 ] && [ "$(wc -l <labels)" = 2 ] || fail "--output: $(cat err labels)"
accepts 'good' classify run texts.txt
hostile_end
