#!/bin/bash
# Corpora in the forms in which they are published: archives with IWSLT's and WMT's layout, SGML and XML, tables and JSON lines
# with both languages, a validation set from every N-th pair, and a BPE vocabulary by size.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

make_pairs train 460 1
make_pairs test 40 2
same_data() { # FOLDER FOLDER FILE...
    local a=$1 b=$2 file
    shift 2
    for file; do cmp -s "$a/$file" "$b/$file" || fail "$b/$file differs from $a/$file"; done
    cases=$((cases + 1))
}
train=(train.source.ids train.target.ids dict.source.txt dict.target.txt codes.bpe)
valid=(valid.source.ids valid.target.ids valid.source.words valid.target.words)
test=(test.source.ids test.target.ids test.source.words test.target.words)

# --- IWSLT14: train.tags between metadata, segments of XML, every 23rd pair ----------------------------------------------
segments() { # FILE: from standard input
    sed 's/&/\&amp;/g; s/</\&lt;/g' | awk 'BEGIN { print "<?xml version=\"1.0\"?>\n<mteval><refset>\n<doc docid=\"1\">\n<title>not a segment</title>" }
        { printf NR % 3 ? "<seg id=\"%d\"> %s </seg>\n" : "<seg id=\"%d\">\n%s</seg>\n", NR, $0 } END { print "</doc></refset></mteval>" }' >"$1"
}
mkdir de-en
awk 'NR % 23 == 5' train.de | head -n 1 >title
for side in de en; do
    echo "it’s R&D, 3 < 4" >>test.$side
    awk -v side=$side 'NR % 100 == 1 { print "<url>http://talk</url>\n<keywords>a</keywords>\n<speaker>B</speaker>\n<talkid>" NR "</talkid>" }
        NR % 100 == 2 { print "<title>" $0 "</title>"; next } NR % 100 == 3 { print "<description>TED: " $0 "</description>"; next }
        NR == 9 && side == "en" { print "<translator href=\"x\">C</translator>" } { print }' train.$side >de-en/train.tags.de-en.$side
    awk 'NR % 100 == 3 { $0 = "TED: " $0 } { print }' train.$side >plain.$side
    split -d -n l/5 test.$side part.
    i=0
    for name in TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012; do
        head -n $((8 * (i + 1) + (i == 4))) test.$side | tail -n +$((8 * i + 1)) | segments de-en/IWSLT14.$name.de-en.$side.xml
        i=$((i + 1))
    done
done
tar czf de-en.tgz de-en
sed 's/^decode_entities = .*//' "$SOURCE/recipes/data/iwslt14-de-en.ini" >decoded.ini
try prepare data/iwslt14-de-en --folder . --output iwslt
if [ "$got" = 7 ]; then # libarchive is not installed
    has err 'libarchive13'
    sed -i 's,de-en.tgz/,,g' decoded.ini
    archive=''
else
    has err 'held out for validation'
    has iwslt/test.source.words 'r &amp; amp ; d'
    archive=de-en.tgz/
    mkdir elsewhere && cp de-en.tgz elsewhere
    accepts 'held out for validation' prepare data/iwslt14-de-en --folder elsewhere --output other
    same_data iwslt other "${train[@]}" "${valid[@]}" "${test[@]}"
    refuses 3 'the most similar name is de-en/train.tags.de-en.' prepare data/iwslt14-de-en --folder . --train de-en.tgz/de-en/train.tag --output x
    head -c 3000 de-en.tgz >cut.tgz
    refuses 4 'truncated' prepare data/iwslt14-de-en --folder . --train cut.tgz/de-en/train.tags.de-en --output x
    refuses 4 'not an archive' prepare data/iwslt14-de-en --folder . --train train.de/de-en/train.tags.de-en --output x
    refuses 3 '/proc/self/mem: Input/output error' prepare --train /proc/self/mem/train --source-lang de --target-lang en --output x
fi
accepts '440 kept, 20 held out for validation, 0 dropped' prepare decoded.ini --ratio 9 --output got
# the same, split manually
for side in de en; do
    sed -i "s/’/'/g" plain.$side test.$side
    awk 'NR % 23 != 0' plain.$side >hand.$side
    awk 'NR % 23 == 0' plain.$side >held.$side
done
accepts written prepare --train hand --valid held --test test --source-lang de --target-lang en --lowercase --bpe-merges 10000 --output wanted
same_data wanted got "${train[@]}" "${valid[@]}" "${test[@]}"
accepts written prepare decoded.ini --ratio 9 --threads 1 --output one
same_data got one "${train[@]}" "${valid[@]}" "${test[@]}" train.source.off valid.target.off
refuses 2 'it needs --train and no --valid' prepare --train hand --valid held --valid-every 5 --source-lang de --target-lang en --output x
refuses 2 'leaves nothing' prepare --train hand --valid-every 1 --source-lang de --target-lang en --output x
refuses 2 'prepare.valid_every = 1000000 holds out nothing of ' prepare --train hand --valid-every 1000000 --source-lang de --target-lang en \
    --output x
# Plain text: every third block of 20 lines.
awk 'int((NR - 1) / 20) % 3 != 2' hand.de >text.train
awk 'int((NR - 1) / 20) % 3 == 2' hand.de >text.valid
accepts written prepare --format text --train text.train --valid text.valid --bpe-merges 50 --output wanted-text
accepts written prepare --format text --train hand.de --valid-every 3 --bpe-merges 50 --output got-text
has err "$(wc -l <text.valid) held out for validation"
same_data wanted-text got-text train.text.ids train.text.off valid.text.ids valid.text.words
head -n 39 hand.de >short.txt
refuses 2 'holds out nothing of 1 documents of training text; name another text' prepare --format text --train hand.de \
    --tokenizer byte_level --documents file --valid-every 3 --output x
refuses 2 'holds out nothing of 39 lines (in blocks of 20)' prepare --format text --train short.txt --valid-every 3 --output x
echo '<seg id="1">no end' >open.de.xml
cp open.de.xml open.en.xml
refuses 4 'open.de.xml:1: <seg> without </seg>' prepare --train open --source-lang de --target-lang en --output x
echo '<doc/>' >none.de.xml
cp none.de.xml none.en.xml
refuses 4 'has no <seg>' prepare --train none --source-lang de --target-lang en --output x
{ cat "$work"/de-en/IWSLT14.TED.dev2010.de-en.de.xml; echo '<seg id="9">one more</seg>'; } >more.xml
refuses 5 'more.xml has 9 sentences' prepare --train more.xml:${archive}de-en/IWSLT14.TED.dev2010.de-en.en.xml --source-lang de --target-lang en --output x

# --- WMT14: several archives, SGML, punctuation, vocabulary by size --------------------------------------------------------
if [ "$archive" ]; then
    mkdir -p training dev test-full
    for side in de en; do
        sed -n '1,200p' train.$side | sed 's/^/„ /; s/$/\xc2\xa0!\xe2\x80\x8b/' >training/europarl-v7.de-en.$side
        sed -n '201,300p' train.$side >commoncrawl.de-en.$side
        sed -n '301,$p' train.$side >training/news-commentary-v12.de-en.$side
        cp test.$side dev/newstest2013.$side
    done
    segments test-full/newstest2014-deen-src.en.sgm <test.en
    segments test-full/newstest2014-deen-ref.de.sgm <test.de
    tar czf training-parallel-europarl-v7.tgz training/europarl*
    tar czf training-parallel-commoncrawl.tgz ./commoncrawl.de-en.*
    tar czf training-parallel-nc-v12.tgz training/news*
    tar czf dev.tgz dev
    tar czf test-full.tgz test-full
    accepts written prepare data/wmt14-en-de --folder . --ratio 9 --bpe-vocabulary 60 --output wmt
    has err 'train: 460 pairs read, 460 kept'
    # the definition of subword-nmt: characters within words, characters at the end of words, and merges
    characters=$(cat training/*.?? commoncrawl.de-en.?? | "$NORMA" normalize --form printable | "$NORMA" normalize --form punctuation --language de |
        "$NORMA" tokenize --aggressive --language de | tr ' ' '\n' | sed '/^$/d' |
        perl -CS -lne 'my @c = split //; $n{"$_ "} = 1 for pop @c; $n{$_} = 1 for @c; END { print scalar keys %n }')
    for size in 60 70; do
        accepts "BPE merges: $((size - characters))" prepare data/wmt14-en-de --folder . --ratio 9 --bpe-vocabulary $size --output wmt
    done
    printf '„ Haus\xc2\xa0!\xe2\x80\x8b\n' >line
    "$NORMA" tokenize --like wmt --side target line >got.line
    echo '&quot; Haus !' >wanted.line
    same wanted.line got.line
    refuses 5 'already has more characters' prepare data/wmt14-en-de --folder . --bpe-vocabulary 9 --output x
    refuses 2 'bpe_vocabulary determines' prepare data/wmt14-en-de --folder . --bpe-merges 10 --output x
fi

# --- tables -----------------------------------------------------------------------------------------------------------------
common=(--source-lang de --target-lang en --bpe-merges 50)
accepts written prepare --train train "${common[@]}" --output plain
awk 'NR == FNR { de[FNR] = $0; next } { print de[FNR] "\t" $0 "\tattribution" }' train.de train.en >pairs.tsv
{ printf 'id\tEN\tde\n' && awk -F '\t' '{ print NR "\t" $2 "\t" $1 }' pairs.tsv; } >named.tsv
{ echo 'source text,target,score' && awk -F '\t' '{ gsub(/"/, "\"\"", $1); print "\"" $1 "\"," "\"" $2 "\",0.5" }' pairs.tsv; } >pairs.csv
awk -F '\t' '{ gsub(/[\\"]/, "\\\\&", $1); gsub(/[\\"]/, "\\\\&", $2); print "{\"id\": " NR ", \"translation\": {\"en\": \"" $2 "\", \"de\": \"" $1 "\"}}" }' pairs.tsv >pairs.jsonl
gzip -k pairs.jsonl
cp pairs.tsv pairs.txt
for arguments in pairs.tsv named.tsv 'pairs.csv --source-field source_text --target-field target' pairs.jsonl pairs.jsonl.gz \
    'pairs.jsonl --source-field translation.de --target-field translation.en' 'pairs.txt --input-format tsv' \
    'pairs.tsv --source-field 1 --target-field 2' 'train.de:train.en' 'train.{lang}'; do
    sed -i 's/^source text,/source_text,/' pairs.csv
    # shellcheck disable=SC2086
    accepts written prepare --train $arguments "${common[@]}" --output table
    same_data plain table "${train[@]}"
done
head -n 100 train.de >a.de && head -n 100 train.en >a.en
# ---- which columns are read ----
accepts 'pairs.tsv: source from column 1, target from column 2 of 3, without a header' \
    prepare --train pairs.tsv "${common[@]}" --output table
accepts 'named.tsv: source from column 3 (de), target from column 2 (EN) of 3, with a header' \
    prepare --train named.tsv "${common[@]}" --output table

# ---- pairs of the validation set that are in the training text ----
for i in $(seq 12); do echo "das Haus $i" >&3 && echo "the house $i" >&4; done 3>new.de 4>new.en
{ cat train.de && sed -n 1,3p new.de && sed -n 4p new.de; } >more.de
{ cat train.en && sed -n 1,3p new.en && sed -n 5p new.en; } >more.en # the fourth pair has another target
accepts 'valid: 12 pairs read, 12 kept, 0 dropped; 3 also in train' prepare --train more --valid new --test new "${common[@]}" --output x
has err 'test: 12 pairs read, 12 kept, 0 dropped; 3 also in train'
has err 'warning: 3 of 12 pairs of valid also occur in the training text'
accepts 'valid: 12 pairs read' prepare --train train --valid new "${common[@]}" --output x
lacks err 'also'
cat new.de new.de >twice.de && cat new.en new.en >twice.en
accepts 'valid: 4 pairs read, 4 kept, 0 dropped; 4 also in train' prepare --train twice --valid-every 5 "${common[@]}" --output x

# Plain text: lines of five words or more.
seq -f 'line %g of five words' 100 >lines.train
seq 100 >>lines.train
{ seq -f 'line %g of five words' 95 104; seq 10; } >lines.valid
accepts 'valid: 20 lines read, 20 kept, 0 dropped; 6 also in train' prepare --format text --train lines.train --valid lines.valid --bpe-merges 0 --output x
has err 'warning: 6 of 20 lines of valid also occur in the training text: scores on them do not show how the model predicts new text'
seq -f 'line %g of five words' 99 200 >lines.valid
accepts '; 2 also in train' prepare --format text --train lines.train --valid lines.valid --bpe-merges 0 --output x
lacks err 'also occur'

tail -n +101 pairs.tsv >b.tsv
accepts written prepare --train a,b.tsv "${common[@]}" --output table
same_data plain table "${train[@]}"
refuses 2 'no column "german"; the first row has 3: id, EN, de' prepare --train named.tsv --source-field german "${common[@]}" --output x
refuses 4 'the object has: id, translation (--source-field' prepare --train pairs.jsonl --source-field german "${common[@]}" --output x
refuses 4 'one column' prepare --train train.de --input-format tsv "${common[@]}" --output x
mkdir corpus
refuses 3 'corpus is a folder; the names of its files begin with a prefix, such as corpus/train' prepare --train corpus "${common[@]}" --output x
refuses 2 'pairs.tsv: column 2 is that of the source and of the target' prepare --train pairs.tsv --source-field 2 --target-field 2 \
    "${common[@]}" --output x
refuses 3 'name its format (--input-format' prepare --train pairs.txt "${common[@]}" --output x
refuses 2 'only a table' prepare --train train --source-field de "${common[@]}" --output x
printf '{"de": "a", "en": "b"}\n\n{"de": "a" "en"}\n' >bad.jsonl
printf '{"de":"a","en":7}\n' >odd.jsonl
refuses 4 'odd.jsonl:1: the value of field "en" is a number, not a text' prepare --train odd.jsonl "${common[@]}" --output x
refuses 4 'bad.jsonl:3: not a JSON object on one line' prepare --train bad.jsonl "${common[@]}" --output x
printf 'a\tb\nc\n' >short.tsv
refuses 4 'short.tsv:2: 1 field, the first row has 2' prepare --train short.tsv "${common[@]}" --output x
# A comma in a text without quotes: the second field is not the translation.
printf 'de,en\nHaus,house\nJa, das Haus,"Yes, the house"\n' >unquoted.csv
refuses 4 'unquoted.csv:3: 3 fields, the first row has 2' prepare --train unquoted.csv "${common[@]}" --output x
# Malformed rows and objects of the training text can be skipped, except the first, which shows the columns.
hint='; --on-invalid skip drops such training text'
refuses 4 "short.tsv:2: 1 field, the first row has 2$hint" prepare --train short.tsv "${common[@]}" --output x
cp pairs.tsv dirty.tsv
printf 'one field\nfour\tfields\tare\there\nb\xff\ta\tfields\n' >>dirty.tsv
head -n 3 pairs.tsv >>dirty.tsv
{ cat pairs.tsv; head -n 3 pairs.tsv; } >clean.tsv
accepts written prepare --train clean.tsv "${common[@]}" --output clean
accepts '3 dropped: 3 invalid' prepare --train dirty.tsv --on-invalid skip "${common[@]}" --output dirty
same_data clean dirty "${train[@]}"
sed '/field$/d; /four/d' dirty.tsv >latin.tsv
refuses 4 "latin.tsv:$(($(wc -l <pairs.tsv) + 1)): not UTF-8: byte 0xff at position 2 of field 1$hint" prepare --train latin.tsv \
    "${common[@]}" --output x
refuses 4 'dirty.tsv:461: 1 field, the first row has 3' prepare --train clean.tsv --valid dirty.tsv --on-invalid skip "${common[@]}" --output x
awk -F '\t' '{ gsub(/[\\"]/, "\\\\&"); print "{\"de\": \"" $1 "\", \"en\": \"" $2 "\"}" }' clean.tsv >clean.jsonl
{ cat clean.jsonl; printf '{"de": "a\n\n{"de": "a"}\n{"de": "a", "en": 7}\n'; } >dirty.jsonl
accepts written prepare --train clean.jsonl "${common[@]}" --output clean
accepts '3 dropped: 3 invalid' prepare --train dirty.jsonl --on-invalid skip "${common[@]}" --output dirty
same_data clean dirty "${train[@]}"
refuses 4 'odd.jsonl:1: the value of field "en" is a number' prepare --train odd.jsonl --on-invalid skip "${common[@]}" --output x
awk -F '\t' '{ gsub(/[\\"]/, "\\\\&", $2); print "{\"text\": \"" $2 "\"}" }' pairs.tsv >text.jsonl
accepts written prepare --format text --train train.en --bpe-merges 50 --output lm
accepts written prepare --format text --train text.jsonl --bpe-merges 50 --output lm2
same_data lm lm2 train.text.ids dict.txt
# --- filters ------------------------------------------------------------------------------------------------------------------
printf '“a” – b\n' >line
"$NORMA" normalize --form punctuation line >got.line
printf '"a" - b\n' >wanted.line
same wanted.line got.line
printf 'a\tb\xe2\x80\x8bc\n' | "$NORMA" normalize --form printable >got.line
printf 'a b c\n' >wanted.line
same wanted.line got.line
echo "e2e_published_corpora: $cases checks"
