#!/usr/bin/env bash
# Baselines of all tasks: scores of data with a known answer, JSON, intervals, threads, and bad input.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"
recipes=$SOURCE/recipes

# ---- classification: the class depends on a bigram, so that no single word determines it ----
perl -e '
    srand 5;
    my @filler = qw(the a film plot was quite really its cast);
    for my $split (["train", 400], ["valid", 80], ["test", 80]) {
        open(my $out, ">", "$split->[0].tsv");
        for (1 .. $split->[1]) {
            my $negated = int(rand 2);
            my @w = map { $filler[int(rand @filler)] } 1 .. 2 + int(rand 5);
            splice @w, int(rand @w), 0, $negated ? "not good" : "good not";
            my $rare = $split->[0] eq "test" ? "unseen" : "seen";
            print $out $negated ? "bad" : "fine", "\t@w $rare.\n";
        }
        print $out "fine\t\n" if $split->[0] eq "test";
    }'
files=(--data.train train.tsv --data.valid valid.tsv --data.test test.tsv)
accepts "majority class" baseline "$recipes/classify.ini" "${files[@]}"
has out "always"
words=$(sed -n 's/^bag-of-words.*test accuracy \([0-9.]*\) .*/\1/p' out)
majority=$(sed -n 's/^majority.*test accuracy \([0-9.]*\) .*/\1/p' out)
awk "BEGIN { exit !(${words:-0} >= 95 && ${majority:-99} < 70) }" || fail "accuracies $words, $majority"
cp out first
accepts "" baseline "$recipes/classify.ini" "${files[@]}" --device.threads 3
same out first
accepts '"name": "bag-of-words"' baseline "$recipes/classify.ini" "${files[@]}" --json
has out '"task": "classification"'
[ "$(grep -c '"accuracy"' out)" = 4 ] || fail "not the scores of 2 baselines on 2 splits: $(cat out)"
accepts "C 2," baseline "$recipes/classify.ini" "${files[@]}" --regularization 2 --only bag-of-words --bootstrap 0
lacks out "majority"
lacks out "["
accepts ", 9 n-grams" baseline "$recipes/classify.ini" "${files[@]}" --max-features 9 --only bag-of-words
refuses 2 "available: majority, bag-of-words" baseline "$recipes/classify.ini" "${files[@]}" --only kneser-ney
accepts "test accuracy" baseline "$recipes/classify.ini" --data.train train.tsv --data.test test.tsv --data.valid-fraction 0 --only majority
lacks out "valid"
accepts '"test": {' baseline "$recipes/classify.ini" --data.train train.tsv --data.test test.tsv --data.valid-fraction 0 --only majority --json
lacks out "valid"
refuses 2 "baseline: too few arguments; usage: norma baseline RECIPE" baseline
refuses 3 "none.tsv" baseline "$recipes/classify.ini" --data.train none.tsv
refuses 2 "data.text = 1 has no effect with data.format = space" baseline "$recipes/classify.ini" --data.train train.tsv \
    --data.format space --data.text 1
refuses 2 "neither a validation nor a test set" baseline "$recipes/classify.ini" --data.train train.tsv --data.valid-fraction 0

# ---- tagging: the tag of "Washington" depends on the tag of the word before it ----
perl -e '
    srand 6;
    for my $split (["train", 200], ["valid", 40], ["test", 40]) {
        open(my $out, ">", "$split->[0].txt");
        for (1 .. $split->[1]) {
            print $out "They O\n" if int(rand 2);
            print $out int(rand 2) ? "in O\nWashington B-LOC\n" : "Mr B-TITLE\nWashington B-PER\n";
            print $out $split->[0] eq "test" ? "slept O\n" : "walked O\n", "\n";
        }
    }'
files=(--data.train train.txt --data.valid valid.txt --data.test test.txt)
accepts "hidden Markov model" baseline "$recipes/tag.ini" "${files[@]}"
has out "most frequent tag of the word"
chain=$(sed -n 's/^hidden.*test F1 \([0-9.]*\) .*/\1/p' out)
frequent=$(sed -n 's/^most.*test F1 \([0-9.]*\) .*/\1/p' out)
awk "BEGIN { exit !(${chain:-0} == 100 && ${frequent:-100} < 90) }" || fail "F1 $chain, $frequent"

# ---- tagging: the tag of a word that was not seen depends on its digits and capitals ----
perl -e '
    srand 7;
    sub word { join "", map { chr(97 + int rand 26) } 1 .. 7 }
    my %shapes = (D => sub { my $w = word; substr($w, 3, 1) = $digit++ % 10; $w }, X => sub { uc word },
        C => sub { ucfirst word }, M => sub { my $w = word; substr($w, 4, 1) = uc substr $w, 4, 1; $w }, S => \&word);
    for my $split (["train", 600], ["valid", 200], ["test", 200]) {
        open(my $out, ">", "$split->[0].shapes");
        for (1 .. $split->[1]) { my $s = (sort keys %shapes)[int rand 5]; print $out $shapes{$s}->(), " $s\n\n" }
    }'
accepts "most frequent tag" baseline "$recipes/tag.ini" --data.train train.shapes --data.valid valid.shapes --data.test test.shapes
awk '/^most/ { n++; ok = /test accuracy 100/ } END { exit !(n && ok) }' out || fail "tags of shapes: $(cat out)"

# ---- language modeling: every noun follows an article ----
make_sentences lm.train 400 1
make_sentences lm.valid 40 2
make_sentences lm.test 40 3
echo "zebra" >>lm.test
"$NORMA" prepare --format text --train lm.train --valid lm.valid --test lm.test --output lm --bpe-merges 0 2>err ||
    fail "prepare: $(cat err)"
printf '[run]\ntask = lm\n[data]\nfolder = lm\n[model]\ncontext = 16\n' >lm.ini
accepts "modified Kneser-Ney" baseline lm.ini
grams=$(sed -n 's/^n-grams.*test ppl \([0-9.]*\) .*/\1/p' out)
unigrams=$(sed -n 's/^unigrams.*test ppl \([0-9.]*\) .*/\1/p' out)
awk "BEGIN { exit !(${grams:-99} < 5 && ${unigrams:-0} > 8) }" || fail "perplexities $grams, $unigrams"
accepts "order 3" baseline lm.ini --order 3 --only kneser-ney
accepts "left out:" baseline lm.ini --data.incomplete drop --json

# ---- translation: the validation set is part of the training data ----
make_pairs train 300 1
head -n 20 train.de >valid.de && head -n 20 train.en >valid.en
make_pairs test 20 2
"$NORMA" prepare --train train --valid valid --test test --source-lang de --target-lang en --output pairs 2>err ||
    fail "prepare: $(cat err)"
printf '[data]\nfolder = pairs\n' >pairs.ini
accepts "test BLEU" baseline pairs.ini
bleu=$(sed -n 's/.*valid BLEU \([0-9.]*\) .*/\1/p' out) # other sentences may have the same words in another order
awk "BEGIN { exit !(${bleu:-0} > 60) }" || fail "BLEU $bleu of sentences of the training data"
exit "$failures"
