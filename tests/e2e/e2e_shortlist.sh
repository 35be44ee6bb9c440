#!/bin/bash
# norma shortlist and norma translate --shortlist: the table of a corpus of word-by-word translations, translations with it, and
# errors.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"
# shellcheck source=tests/e2e/corpora.sh
. "$SOURCE/tests/e2e/corpora.sh"

make_pairs train 200 1
make_pairs valid 8 2
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --tokenizer none \
    --bpe-merges 0 2>/dev/null
for side in de en; do sed 's/[[:alpha:]]/&x/g' valid.$side >foreign.$side; done
"$NORMA" prepare --train foreign --valid valid --source-lang de --target-lang en --output other --tokenizer none \
    --bpe-merges 0 2>/dev/null
write_recipe small.ini data.folder=data data.max_length=60 model.width=32 model.ff=64 model.heads=2 model.dropout=0 \
    model.embedding_dropout=0 model.encoder_layers=1 model.decoder_layers=1 model.max_positions=64 model.norm=rms \
    schedule.lr=0.005 schedule.warmup=50 train.updates=300 train.max_tokens=1000 train.score=false decode.beam=3 \
    decode.max_length_b=8 device.threads=1
"$NORMA" train small.ini --run.folder run --run.quiet 2>/dev/null

# ---- the table ----
"$NORMA" shortlist data --output list 2>summary
grep -q '^list: [0-9]* entries for [0-9]* source tokens, from 200 pairs; perplexity [0-9.]* per target token$' summary ||
    fail "summary: $(cat summary)"
for threads in 1 3; do
    "$NORMA" shortlist data --threads $threads 2>/dev/null | cmp - list || fail "the list depends on the threads"
done
[ "$(head -n 1 list)" = 'NULL languages:de:en 0' ] || fail "languages: $(head -n 1 list)"
cp list whole-list
sed 1d whole-list >list # the following checks are about the tokens
awk 'NF != 3 || $3 < 0.0001 || $3 > 1 || seen[$1 " " $2]++ { exit 1 }' list || fail "malformed: $(head -n 5 list)"
# the most probable translation of every word but punctuation is its translation in the corpus
paste -d ' ' train.de train.en | awk '{ for (i = 1; i <= NF / 2; i++) print $(i + NF / 2), $i }' | sort -u >dictionary
awk '!best[$2]++ { print $1, $2 }' list | grep -v '[.]' | sort -u | comm -23 - dictionary >wrong
[ ! -s wrong ] || fail "wrong translations: $(cat wrong)"
"$NORMA" shortlist data --best 1 2>/dev/null | sed 1d | cmp - <(awk '!best[$2]++' list) || fail "--best 1"
"$NORMA" shortlist data --min-probability 0.2 2>/dev/null | sed 1d | cmp - <(awk '$3 >= 0.2' list) || fail "--min-probability 0.2"
"$NORMA" shortlist data --max-pairs 20 2>summary >/dev/null
grep -q 'from 20 pairs' summary || fail "--max-pairs 20: $(cat summary)"
"$NORMA" shortlist data --iterations 1 2>/dev/null | sed 1d | cmp -s - list && fail "--iterations 1 has no effect"

# ---- translations: only tokens of the table, with any search; the same in any batches ----
{ cat valid.de && printf '\n' && echo "unbekannt $(head -n 1 train.de)"; } >in
"$NORMA" translate run in >exact
for options in '' '--beam 1' '--nbest 3' '--search tears' '--search sample' '--precision int8' '--precision bf16'; do
    # shellcheck disable=SC2086
    "$NORMA" translate run in $options --shortlist list --shortlist-best 1 --shortlist-frequent 0 --json >found
    perl -MJSON::PP -e 'open my $table, "<:encoding(UTF-8)", "list"; my (%best, %of);
        while (<$table>) { my ($target, $source) = split; push @{$of{$source}}, $target unless $best{$source}++ }
        while (<STDIN>) {
            my $line = decode_json($_);
            my %known = map { $_ => 1 } "</s>", "<unk>", map { @{$of{$_} || []} } split " ", $line->{source};
            for my $translation (@{$line->{translations}}) {
                exit 1 if grep { !$known{$_} } @{$translation->{tokens}};
            }
        }' <found || fail "$options: other tokens: $(cat found)"
done
"$NORMA" translate run in --shortlist list --json >found
"$NORMA" translate run in --shortlist list --json --buffer 1 --threads 3 | cmp - found || fail "depends on the batches"
gzip -c list >list.gz
"$NORMA" translate run in --shortlist list.gz --json | cmp - found || fail "compressed list"
# the list has all translations, so they are those of the model, and the probabilities are larger
"$NORMA" translate run in --shortlist list | cmp - exact || fail "other translations with a shortlist"
"$NORMA" translate run in --json >found.exact
paste found found.exact | perl -ne 'my @p = /"score":(-[0-9.e-]+)/g; $n += @p == 2 && $p[0] > $p[1] }{ exit($n != 9)' ||
    fail "probabilities do not have the sum 1 over the list: $(paste found found.exact)"
"$NORMA" translate run,run in --shortlist list | cmp - exact || fail "an ensemble with a shortlist"

# ---- prefixes and constraints ----
for ((i = 0; i < 10; i++)); do awk -v n=$((i + 1)) '{ for (j = 1; j <= NF; j++) if (++k == n) { print $j; exit } }' train.en; done >words
"$NORMA" translate run in --shortlist list --shortlist-best 1 --shortlist-frequent 0 --prefix words >found
paste -d '|' words found | awk -F '|' 'NR != 9 && index($2, $1) != 1 { exit 1 }' || fail "prefix: $(cat found)"
"$NORMA" translate run in --shortlist list --shortlist-best 1 --shortlist-frequent 0 --constraints words >found
paste -d '|' words found | awk -F '|' 'NR != 9 && !index($2, $1) { exit 1 }' || fail "constraints: $(cat found)"

# ---- languages: that of the other direction is an error, also with a joint dictionary ----
"$NORMA" translate run in --shortlist whole-list | cmp - exact || fail "other translations with the line of the languages"
for direction in 'de en' 'en de'; do
    read -r from to <<<"$direction"
    "$NORMA" prepare --train train --valid valid --source-lang "$from" --target-lang "$to" --output "joint-$from" --joint \
        --tokenizer none --bpe-merges 0 2>/dev/null
    "$NORMA" shortlist "joint-$from" --output "list-$from" 2>/dev/null
done
"$NORMA" train small.ini --data.folder joint-de --run.folder joint --train.updates 1 --run.quiet 2>/dev/null
try translate joint in --shortlist list-de
[ "$got" = 0 ] || fail "the shortlist of the data folder: $(cat err)"
refuses 5 'list-en: the shortlist is for the languages en:de, the model for de:en' translate joint in --shortlist list-en
sed 1d list-en >no-languages
try translate joint in --shortlist no-languages
[ "$got" = 0 ] || fail "a shortlist without languages: $(cat err)"

# ---- errors ----
refuses 2 'translate.shortlist_best has no effect without translate.shortlist' translate run in --shortlist-best 3
refuses 3 'none' translate run in --shortlist none
"$NORMA" shortlist other --output foreign 2>/dev/null
refuses 5 'foreign: the dictionaries of the model have the tokens of' translate run in --shortlist foreign --output never.txt
{ cat list && echo 'house haus'; } >bad
refuses 4 "bad:$(wc -l <bad): not a line TARGET SOURCE PROBABILITY" translate run in --shortlist bad --output never.txt
[ ! -e never.txt ] || fail "output after an error"
refuses 2 'usage' shortlist
refuses 3 'nowhere' shortlist nowhere
"$NORMA" prepare --format text --train train.de --output plain --tokenizer none --bpe-merges 0 2>/dev/null
refuses 5 'plain' shortlist plain
refuses 2 'run/best.safetensors' shortlist data --output run/best.safetensors
