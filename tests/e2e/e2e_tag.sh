#!/usr/bin/env bash
# Tagging: training on generated column files, the same run resumed, norma tag on columns and on text, its evaluation,
# schemes, word vectors, norma compare; and hostile inputs, each rejected with one line.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

export OMP_NUM_THREADS=1
# Names are recognizable by themselves and by their context: "Anna Ek lives in Rom .", with tags in the given scheme.
sentences() { # COUNT SEED iob1|bio
    awk -v n="$1" -v seed="$2" -v scheme="$3" 'BEGIN {
        srand(seed); p = split("Anna Bernd Clara David Emil", given); l = split("Rom Bonn Wien Oslo", place)
        first = scheme == "bio" ? "B" : "I"
        for (i = 0; i < n; i++) {
            print given[1 + int(rand() * p)] " X " first "-PER"
            if (rand() < 0.5) print given[1 + int(rand() * p)] "son X I-PER"
            print "lives X O"; print "in X O"
            print place[1 + int(rand() * l)] " X " first "-LOC"
            if (rand() < 0.3) { print "and X O"; print "1" i " X O" }
            print ". X O\n"
        }
    }'
}
sentences 200 1 iob1 >train.txt
sentences 30 2 bio >valid.txt
{ printf -- '-DOCSTART- X O\n\n'; sentences 30 3 bio; } >test.txt

cat >tiny.ini <<'X'
[run]
task = tagging
[data]
train = train.txt
valid = valid.txt
test = test.txt
[model]
preset = tiny
[train]
epochs = 6
clip_value = 5
best_by = score
log_every = 10
[optim]
name = sgd
[schedule]
name = linear
lr = 0.02
warmup_fraction = 0.01
[device]
threads = 1
X

# ---- training ----

refuses 2 'set schedule.warmup_fraction = 0 to give a number of updates' train tiny.ini --run.folder none --schedule.warmup 8
# After a warning about the data
chatty=yes refuses 2 'model.residual = deepnorm needs model.norm_position = post' train tiny.ini --run.folder none \
    --model.residual deepnorm --model.norm-position pre
chatty=yes refuses 2 'not a multiple of model.heads = 3' train tiny.ini --run.folder none --model.heads 3
# A pipe can be read once.
refuses 2 'not a regular file, but it is read more than once' train tiny.ini --run.folder none --data.train <(cat train.txt)
refuses 2 'not a regular file' train tiny.ini --run.folder none --data.valid <(cat valid.txt)
refuses 4 'column 3 of 3 is that of the tokens and of the tags' train tiny.ini --run.folder none --data.token_column 3
refuses 2 'column 1 of 3 is that of the tokens and of the tags' train tiny.ini --run.folder none --data.tag_column 1
sed 's/[BI]-[A-Z]*$/O/' train.txt >outside.txt
refuses 4 'outside.txt: every token has the tag O: there is nothing to learn' \
    train tiny.ini --run.folder none --data.train outside.txt
# The limit of the length is the smaller one of two options.
accepts 'sequences, empty or longer than train.max_tokens' train tiny.ini --run.folder few --train.max_tokens 6 --train.updates 1
has err 'longer than train.max_tokens and excluded from the loss'
accepts 'sequences, empty or longer than data.max_length' train tiny.ini --run.folder few2 --data.max_length 6 --train.updates 1
has err 'longer than data.max_length and excluded from the loss'
accepts 'F1 100.00' train tiny.ini --run.folder run
grep -q '"f1":' run/log.jsonl || fail "no f1 in the log: $(tail -n 1 run/log.jsonl)"
refuses 7 'confidence needs a model with a probability of each target' inspect run --measure confidence --batches 1
accepts 'gradient norm by layer' inspect run --batches 1 --gradient-batches 1
accepts 'done: 20 updates' train tiny.ini --run.folder half --train.updates 20 --schedule.updates 78
accepts 'done: 78 updates' train tiny.ini --run.folder half --resume --train.updates 78
# The tensors: the metadata contains train.updates of the resumed run.
tail -c 20000 run/last.safetensors >whole_tensors
tail -c 20000 half/last.safetensors >resumed_tensors
same whole_tensors resumed_tensors
# Files that were moved are the same data; with another training file even the sizes of the model differ.
mkdir moved && cp train.txt valid.txt moved
accepts 'done: 5 updates' train tiny.ini --run.folder part --train.updates 5 --schedule.updates 78
accepts 'done: 8 updates' train tiny.ini --run.folder part --resume --train.updates 8 --data.train moved/train.txt \
    --data.valid moved/valid.txt
head -n 100 train.txt >moved/train.txt
chatty=yes # the sentences of the short validation set occur in the training file
refuses 5 'the run was trained on other data' train tiny.ini --run.folder part --resume --train.updates 9
chatty=''

# Without a validation file a part of the training sentences is held out, the same with other options.
for lowercase in true false; do
    accepts 'done: 1 update,' train tiny.ini --run.folder held-$lowercase --train.updates 1 --data.valid '' \
        --data.valid_fraction 0.2 --data.lowercase $lowercase
    has err 'validation at update 1:'
    sed -n '/gold:/p' err >held-$lowercase.txt
    grep -q '"data_size":200,"size_unit":"sentences"' held-$lowercase/log.jsonl || fail "size: $(head -n 1 held-$lowercase/log.jsonl)"
done
same held-true.txt held-false.txt
[ -s held-true.txt ] || fail 'no held-out sentence was printed'
head -n 5 train.txt >short.txt
refuses 2 'short.txt: data.valid_fraction leaves no sentence for training: lower it' train tiny.ini --run.folder none \
    --data.train short.txt --data.valid '' --data.valid_fraction 0.99 --data.valid_seed 3
accepts 'done: 1 update,' train tag --run.folder of_recipe --data.train train.txt --train.updates 1 --model.preset tiny

# ---- inference ----

accepts 'precision 100.00  recall 100.00  F1 100.00' tag run test.txt --evaluate --scheme bio
cut -d ' ' -f 1-3 <out >kept
same kept test.txt
has out '-DOCSTART- X O O'
awk 'NF && $3 != $4 { bad = 1 } END { exit bad }' out || fail "tags differ from the right ones"
# Without a blank line after the line that starts a document, no sentence is lost, and the lines are kept.
sed '2d' test.txt >glued.txt
accepts 'precision 100.00  recall 100.00  F1 100.00' tag run glued.txt --evaluate
cut -d ' ' -f 1-3 <out >kept
same kept glued.txt
printf 'Anna Davidson lives in Wien .\n\nEmil lives in Rom\n' >text
input=text try tag run --scheme bioes
printf '%s\n' $'Anna\tB-PER' $'Davidson\tE-PER' $'lives\tO' $'in\tO' $'Wien\tS-LOC' $'.\tO' '' '' \
    $'Emil\tS-PER' $'lives\tO' $'in\tO' $'Rom\tS-LOC' '' >wanted
same out wanted
printf 'Anna Davidson lives\tin Wien .\n\t\nEmil\tlives in Rom\n' >text_tabs # tabs separate tokens of text, too
cp out wanted
input=text_tabs try tag run --scheme bioes --input-format text
same out wanted
input=text try tag run --scheme iob1 --output file
has file $'Davidson\tI-PER'
printf '%s\n' Anna lives in Rom . >words
input=words try tag run
has out $'Anna\tI-PER' # as in the training file
input=words accepts $'Anna\tB-PER' tag run - --scheme bio
printf 'Anna Emilson\tX\nlives\tX\n' >tabbed
accepts $'Anna Emilson\tX\t' tag run tabbed
: >empty
try tag run empty
[ "$got" = 0 ] && [ ! -s out ] || fail "an empty file: exit code $got"
# A sentence has the same tags separately and in a batch.
awk 'BEGIN { RS = ""; ORS = "\n\n" } { print > ("one." NR) }' valid.txt
for file in one.{1,2,3}; do "$NORMA" tag run "$file"; done >alone 2>err
cat one.{1,2,3} >three
try tag run three
same out alone
# A long sentence is tagged in pieces, completely.
for i in $(seq 600); do echo "w$i"; done >long
input=long accepts 'were tagged in pieces (line 1)' tag run
[ "$(wc -l <out)" = 601 ] || fail "a long sentence lost lines: $(wc -l <out)"
printf 'Anna X B-PER\nsees X O\nNile X B-RIVER\n' >unknown
accepts 'not among' tag run unknown --evaluate
has err '(2 gold spans,'
has err 'RIVER       0.00    0.00    0.00       1 '
try tag run unknown --evaluate --json
perl -MJSON::PP -0 -ne '$o = decode_json($_); $river = $o->{labels}[-1];
    exit !($o->{gold} == 2 && $o->{unknown_tags} == 1 && $river->{label} eq "RIVER" && $river->{gold} == 1 && $river->{f1} == 0)' out ||
    fail "tag --evaluate --json: $(cat out)"
try tag run test.txt --evaluate --json # lines that start a document are no sentences
has out '"sentences": 30,'
# Other encodings, such as that of CoNLL-2002; the output is UTF-8.
sed 's/Anna/Änna/' valid.txt >umlaut.txt
iconv -f utf-8 -t latin1 umlaut.txt >latin1.txt
iconv -f utf-8 -t utf-16 umlaut.txt >utf16.txt
"$NORMA" tag run umlaut.txt >wanted 2>err || fail "tag: $(cat err)"
try tag run latin1.txt --encoding latin1
same out wanted
try tag run utf16.txt --encoding utf-16
same out wanted
refuses 4 'utf16.txt: is UTF-16, not UTF-8: --encoding utf-16 is required' tag run utf16.txt
accepts 'done: 1 update,' train tiny.ini --run.folder umlaut --train.updates 1 --data.train umlaut.txt
accepts 'done: 1 update,' train tiny.ini --run.folder latin1 --train.updates 1 --data.train latin1.txt --data.valid latin1.txt \
    --data.encoding latin1 # the validation set is the training set
refuses 4 'utf16.txt: is UTF-16' train tiny.ini --run.folder none --data.train utf16.txt
# Sentences with invalid lines are left out; text has one sentence per line, which is empty then.
awk 'BEGIN { RS = ""; ORS = "\n\n" } NR <= 3' valid.txt >three
{ cat three && printf 'Anna X O\nb\377 X O\nc X O\n\n' && cat three; } >invalid.txt
{ "$NORMA" tag run three && "$NORMA" tag run three; } >wanted 2>err || fail "tag: $(cat err)"
try tag run invalid.txt --on-invalid skip
same out wanted
has err "norma: 1 of 7 sentences are not UTF-8 or contain zero bytes and were left out (line $(($(wc -l <three) + 2)))"
printf 'Emil lives in Rom .\nb\000 a\nAnna lives in Bonn .\n' >invalid.txt
printf 'Emil lives in Rom .\n\nAnna lives in Bonn .\n' >whole.txt # every line of text has an output
"$NORMA" tag run whole.txt --json >wanted 2>err || fail "tag: $(cat err)"
try tag run invalid.txt --json --on-invalid skip
same out wanted
has err 'were left out (line 2)'
has out '"line":2,"tokens":[]'
has out '"line":3,"tokens":["Anna"'
refuses 2 'tag.on_invalid = skip has no effect with tag.evaluate = true' tag run valid.txt --evaluate --on-invalid skip
# Tags of spaCy.
"$NORMA" tag run three --scheme bilou | cut -d ' ' -f 1,2,4 >bilou.txt 2>err || fail "tag: $(cat err)"
has bilou.txt ' U-LOC'
accepts 'precision 100.00  recall 100.00  F1 100.00' tag run bilou.txt --evaluate
accepts 'done: 1 update,' train tiny.ini --run.folder bilou --train.updates 1 --data.train bilou.txt --data.valid valid.txt

# ---- other data formats and models ----

accepts 'done: 2 updates' train tiny.ini --run.folder bm --train.updates 2 --data.scheme bmeso --model.norm_position pre \
    --model.norm power --model.bigram-dim 4 --model.char-dim 0 --data.order random
try tag bm valid.txt --scheme bmeso
printf '3 24\n' >vec
for word in anna rom quokka; do printf '%s%s\n' "$word" "$(printf ' 0.5%.0s' $(seq 24))" >>vec; done
accepts 'done: 1 update,' train tiny.ini --run.folder vectors --train.updates 1 --data.vectors vec
has err "norma: vec: 2 of $(awk 'NF { w = tolower($1); gsub(/[0-9]/, "0", w); print w }' train.txt | sort -u | wc -l) words of the training text have a vector"
"$NORMA" compare tiny.ini --compare.folder cmp --norms layer,batch --train.updates 4 >table 2>err || fail "compare: $(cat err)"
has table F1
accepts 'warning: 200 of 200 sentences of the validation set are also training sentences' train tiny.ini --run.folder repeated \
    --train.updates 1 --data.valid train.txt
lacks err 'do not occur in the training text'
sed 's/-[A-Z]*$/-OTHER/' valid.txt >foreign.txt
accepts ' of the validation set other than O do not occur in the training text; they count as missed' train tiny.ini \
    --run.folder foreign --train.updates 1 --data.valid foreign.txt
"$NORMA" compare tiny.ini --compare.folder cmp2 --norms layer,batch --seeds 2 --train.updates 12 >table 2>err || fail "compare: $(cat err)"
# precision and recall are those of a run, not of the table
grep -qxE 'F1: f1\|spans\|scheme:[a-z0-9]+\|unknown tags:[0-9]+' table || fail "signature of the table: $(grep '^F1:' table)"

# ---- hostile column files ----

chatty=yes
bad() { # CODE TEXT CONTENTS [OPTIONS...]
    local code=$1 text=$2 contents=$3
    shift 3
    # shellcheck disable=SC2059
    printf "$contents" >bad.txt
    refuses "$code" "$text" train tiny.ini --run.folder no --data.train bad.txt "$@"
}
bad 4 'bad.txt:2: 2 columns, the preceding lines have 3' 'a X O\nb X\n'
bad 4 'bad.txt:4: 4 columns, the preceding lines have 3' 'a X O\n\na X O\nb X O O\n'
bad 4 "bad.txt:2: 'Q-PER' is not a tag" 'a O\nb Q-PER\n'
bad 4 "bad.txt:2: 'B_PER' is not a tag" 'a O\nb B_PER\n'
bad 4 'bad.txt: every token has the tag NNP' 'a NNP\n'
bad 4 "bad.txt:2: 'NNP' is not a tag" 'a O\nb NNP\n' --data.file-scheme bio
bad 4 'bad.txt:2: tag I-PER is illegal in scheme bio after O' 'a O\nb I-PER\n' --data.file-scheme bio
bad 4 'bad.txt:1: tag I-PER is illegal in scheme bio at the beginning of a sentence' 'b I-PER\n' --data.file-scheme bio
bad 4 'bad.txt:1: tag B-PER is illegal in scheme bioes at the end of a sentence' 'b B-PER\n\na S-PER\n'
bad 4 'bad.txt:2: tag E-LOC is illegal in scheme bioes after B-PER' 'a B-PER\nb E-LOC\n'
bad 4 'bad.txt:2: not UTF-8: byte 0xff' 'a O\nb\xff O\n'
bad 4 'bad.txt:1: not text: contains a zero byte' 'a\000 O\n'
bad 4 'bad.txt:1: column 2 is empty' 'a\t\tO\n'
bad 4 'bad.txt: contains no sentence' ''
bad 4 'bad.txt: contains no sentence' '\n \n-DOCSTART- O\n\n'
bad 4 'bad.txt:1: 2 columns, but data.tag_column is 3' 'a O\n' --data.tag-column 3
awk 'BEGIN { for (i = 0; i < 70000; i++) print "a O" }' >endless
refuses 4 'endless:65537: a sentence of more than 65536 tokens' train tiny.ini --run.folder no --data.train endless
refuses 3 'absent: No such file' train tiny.ini --run.folder no --data.train absent
refuses 3 'is a folder' train tiny.ini --run.folder no --data.train .
refuses 2 'data.train is not set' train tiny.ini --run.folder no --data.train ''
refuses 2 'data.max_length' train tiny.ini --run.folder no --data.max-length 600
head -c 3000000 /dev/zero | tr '\0' 'a' >huge
bad 4 "bad.txt:1: 'aaaa" "x $(head -c 100000 huge)\n" --data.file-scheme bio
refuses 4 'huge:1' train tiny.ini --run.folder no --data.train huge
printf 'anna 1 2\nrom 1\n' >narrow
refuses 4 'narrow:2: 1 numbers, the preceding lines have 2' train tiny.ini --run.folder no --data.vectors narrow
printf 'anna 1 x\n' >letters
refuses 4 "letters:1: 'x' is not a finite number" train tiny.ini --run.folder no --data.vectors letters
printf 'anna 1 2\n' >two
refuses 5 'two: vectors have dimension 2, but model.word_dim is 24' train tiny.ini --run.folder no --data.vectors two
accepts 'done: 1 update,' train tiny.ini --run.folder repaired --train.updates 1 --data.repair --data.train valid.txt

# ---- hostile inputs and models of norma tag ----

chatty=
printf 'a X O\nb X\n' >bad.txt
refuses 4 'bad.txt:2: 2 columns' tag run bad.txt
printf 'a b\xff c\n' >bad.txt
refuses 4 'bad.txt:1: not UTF-8' tag run bad.txt
input=bad.txt refuses 4 'standard input:1: not UTF-8' tag run
{ cat test.txt && printf '\nb \xff O\n\n' && cat test.txt; } >bad.txt
"$NORMA" tag run test.txt >whole 2>err || fail "tag: $(cat err)"
stops "$(wc -l <whole)" 4 "bad.txt:$(($(wc -l <test.txt) + 2)): not UTF-8" tag run bad.txt
same whole out
printf 'a X what\n' >bad.txt
refuses 4 "bad.txt:1: 'what' is not a tag" tag run bad.txt --evaluate --input-format columns
refuses 2 'tag.evaluate needs columns' tag run text --evaluate
refuses 4 'valid.txt:1: the column of the tokens is that of the tags' tag run valid.txt --evaluate --token-column 3
: >empty
refuses 4 'empty: no sentences to evaluate' tag run empty --evaluate
refuses 4 'standard input: no sentences to evaluate' tag run --evaluate --json
try tag run empty
[ "$got" = 0 ] || fail "tag, no input: exit code $got: $(cat err)"
refuses 4 'fewer columns' tag run valid.txt --token-column 5
refuses 2 'tag.tag_column = 2 has no effect with tag.evaluate = false' tag run valid.txt --tag-column 2
refuses 2 'tag.token_column = 2 has no effect with tag.input_format = text' tag run text --input-format text --token-column 2
refuses 2 'unknown option tag.profile' tag run text --profile
refuses 3 'absent' tag run absent
refuses 2 'inspect.data: the data of run are files, not a folder' inspect run --data .
refuses 3 'absent' tag absent text
refuses 4 'not a safetensors file' tag text text
refuses 2 'tag.scheme' tag run text --scheme bile
if [ -w /dev/full ]; then refuses 3 '/dev/full' tag run test.txt --output /dev/full; fi
# Labels in the model file that do not match the model.
forge() { # FROM TO: of equal length
    LC_ALL=C sed "s/$1/$2/; s/\"xxh3\":/\"none\":/" run/last.safetensors >forged.safetensors
    cmp -s forged.safetensors run/last.safetensors && fail "nothing to forge: $1"
}
forge 'B-LOC\\n' 'Q-LOC\\n'
refuses 4 "'Q-LOC' is not a tag of the scheme bioes" tag forged.safetensors text
forge 'B-LOC\\n' 'B-PER\\n'
refuses 4 'an empty or duplicate line' tag forged.safetensors text
weights() { # BYTES REPEATED
    perl -0777 -e 'open(F, "<:raw", "run/last.safetensors"); $_ = <F>; s/"xxh3":/"none":/; my $n = 8 + unpack("Q<", $_);
        substr($_, $n) = $ARGV[0] x ((length($_) - $n) / 4); open(F, ">:raw", "forged.safetensors"); print F $_' "$1"
}
for value in "$(printf '\xff\xff\xff\x7f')" "$(printf '\x99\x76\x96\x7e')"; do # NaN, 1e38
    weights "$value"
    refuses 8 'not finite' tag forged.safetensors text
done
cp test.txt same.txt
refuses 2 'same.txt: input and output are the same file' tag run same.txt --output same.txt
cmp same.txt test.txt || fail "the input was overwritten"
head -c 2000 run/last.safetensors >forged.safetensors
refuses 4 'malformed' tag forged.safetensors text
hostile_end
