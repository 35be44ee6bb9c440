#!/bin/bash
# The JSON output of every command has the keys of the examples in docs/json.md, each of them, and no others.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

cat >keys.pl <<'END'
use strict;
use warnings;
use JSON::PP;
my %seen;
sub walk {
    my ($value, $path) = @_;
    if (ref $value eq "HASH") {
        for (keys %$value) {
            my $key = length $path ? "$path.$_" : $_;
            $seen{$key} = 1;
            walk($value->{$_}, $key);
        }
    } elsif (ref $value eq "ARRAY") {
        walk($_, $path . "[]") for @$value;
    }
}
my $text = join "", <STDIN>;
while ($text =~ s/^\s*(?=\S)//) { # incr_parse fails on bytes above 127 in Perl 5.34
    my ($object, $length) = JSON::PP->new->utf8->decode_prefix($text);
    substr($text, 0, $length) = "";
    walk($_, "") for ref $object eq "ARRAY" ? @$object : $object;
}
for (sort keys %seen) {
    s/^probabilities\.(good|bad)$/probabilities.CLASS/;
    s/(valid|test|runs\[\])\.(bleu|accuracy|perplexity)$/$1.METRIC/;
    print "$_\n";
}
END

# Collects the output of a command for the next comparison.
run() { # ARGUMENTS...
    try "$@"
    [ "$got" = 0 ] || fail "norma $*: exit code $got: $(tail -n 2 err)"
    cat out >>collected
}
documented() { # SECTION
    perl keys.pl <collected | sort -u >got.keys
    awk -v title="## $1" '/^## / { inside = $0 == title } /^```/ { block = /json/; next } inside && block' "$SOURCE/docs/json.md" |
        perl keys.pl | sort -u >expected.keys
    cases=$((cases + 1))
    [ -s expected.keys ] || fail "docs/json.md has no section $1"
    diff expected.keys got.keys >differences || fail "$1: documented (<) and written (>): $(grep '^[<>]' differences | tr '\n' ' ')"
    : >collected
}
: >collected

make_pairs train 120 1
make_pairs valid 20 2
make_sentences lm.txt 200 1
awk 'BEGIN { for (i = 0; i < 60; i++) print (i % 2 ? "good\tgreat fine film " : "bad\tawful weak film ") i % 7 }' >texts.tsv
cut -f 2 texts.tsv | head -n 5 >texts
head -n 3 valid.de >source
head -n 3 valid.en >target
paste -sd ' ' valid.de | awk '{ for (i = 0; i < 20; i++) printf "%s ", $0; print "" }' >long
accepts written prepare --train train --valid valid --test valid --source-lang de --target-lang en --bpe-merges 30 --output mt
accepts written prepare --format text --train lm.txt --valid lm.txt --test lm.txt --output lm
recipe() { # TASK DATA OPTIONS
    printf '[run]\ntask = %s\n[data]\n%s\n[model]\npreset = tiny\n%s\n[train]\nmax_tokens = 512\nupdates = 4\n' "$@"
}
recipe translation $'folder = mt' $'norm = batch\nwidth = 16\nff = 32' >mt.ini
recipe lm 'folder = lm' 'context = 8' | sed 's/^max_tokens.*/max_tokens = 64/' >lm.ini
awk 'BEGIN { for (i = 0; i < 80; i++) print "in\tO\n" (i % 2 ? "Paris\tB-LOC" : "Ann\tB-PER\nLee\tI-PER") "\nnow\tO\n" }' >columns
sed 's/\t.*//; s/Lee/Ünseen "x"/' columns | awk 'NF { line = line " " $0; next } { print substr(line, 2); line = "" }' | head -n 3 >untagged
recipe tagging $'train = columns\nvalid = columns' '' | sed 's/^updates.*/updates = 200/; s/^max_tokens.*/max_tokens = 64/; $a [optim]\nname = sgd\n[schedule]\nlr = 0.1' >t.ini
recipe classification $'train = texts.tsv\nvalid = texts.tsv' '' >c.ini
for task in mt lm c t; do
    accepts 'done: ' train $task.ini --run.folder run-$task --run.quiet
done
accepts 'done: 4 updates' train lm.ini --run.folder ahead --run.quiet --model.attention block-term --model.causal false

run translate run-mt source --json --alignment
documented translate
run rescore run-mt source target --json --alignment
documented rescore
run perplexity run-lm lm.txt --json --interval
run perplexity ahead lm.txt --json
documented perplexity
run perplexity run-mt --json
documented 'perplexity of a translation model'
perl -e 'print "x-" x 2000, "\n"' >word
try perplexity run-lm word --json
grep -q '"per_word":null' out || fail "the perplexity of one very long word: $(cat out)"
run perplexity run-lm lm.txt --tokens
documented 'perplexity --tokens'
run generate run-lm --prompt the --tokens 5 --json
documented generate
run classify run-c texts --json --probabilities
documented classify
run classify run-c texts.tsv --evaluate --json
documented 'classify --evaluate'
run tag run-t untagged --json
[ "$(wc -l <out)" = 3 ] || fail "tag --json: $(wc -l <out) lines for 3 sentences"
"$NORMA" tag run-t untagged --json --threads 2 | perl -MJSON::PP -ne '$o = decode_json($_); print "$o->{tokens}[$_]\t$o->{tags}[$_]\n" for 0 .. $#{$o->{tokens}}; print "\n"' |
    perl -CO -pe 1 >tagged
"$NORMA" tag run-t untagged | cmp - tagged || fail "tag --json: other tags than without"
grep -q '"spans":\[{"begin":1,"end":[23],"label":"' out || fail "tag --json: no span: $(head -n 1 out)"
documented tag
run tag run-t columns --evaluate --json
documented 'tag --evaluate'
run score bleu target --reference target --json --sentence
run score bleu valid.en --reference valid.en --json --bootstrap 20
run score bleu valid.en --reference valid.en --json --bootstrap 20 --against valid.en
documented score
run baseline mt.ini --json
run baseline c.ini --json
documented baseline
run inspect run-mt --json
accepts 'done: 4 updates' train mt.ini --run.folder power --run.quiet --model.encoder_norm power
run inspect power --json --advise
documented inspect
run compare mt.ini --norms 'layer,same=layer:train.log_every=7,none:train.divergence_factor=0.01' --folder compared --format json
run compare mt.ini --factorial 'norm=layer,rms; site=pre,post' --seeds 2 --margin 1 --folder effects --format json
documented compare
echo "$cases cases"
exit "$failures"
