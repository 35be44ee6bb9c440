#!/bin/bash
# norma translate with a small model: one output line per input line for any batches; n-best, ensembles; and one line with the
# documented exit code for bad input.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# ---- a corpus of word-by-word translations ----
from=(haus baum hund katze rot blau grün läuft springt singt)
to=(house tree dog cat red blue green runs jumps sings)
make_text() { # PREFIX SENTENCES SEED
    local a b i j k seed=$3
    for ((i = 0; i < $2; i++)); do
        a='' b=''
        for ((j = 0; j < 2 + i % 4; j++)); do
            seed=$(((seed * 1103515245 + 12345) % 2147483648))
            k=$((seed / 65536 % 10))
            a+="${from[k]} " b+="${to[k]} "
        done
        echo "$a." >&3
        echo "$b." >&4
    done 3>"$1.de" 4>"$1.en"
}
make_text train 200 1
make_text valid 8 2
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
    --tokenizer moses --bpe-merges 40 2>/dev/null
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output other --joint \
    --tokenizer none --bpe-merges 10 2>/dev/null
write_recipe small.ini data.folder=data data.max_length=60 model.width=16 model.ff=32 model.heads=2 \
    model.encoder_layers=1 model.decoder_layers=1 model.max_positions=64 model.norm=power train.updates=12 \
    train.max_tokens=200 train.score=false decode.beam=3 decode.max_length_b=8 device.threads=1
"$NORMA" train small.ini --run.folder run --run.quiet 2>/dev/null
"$NORMA" train small.ini --run.folder second --run.quiet --train.seed 2 2>/dev/null
"$NORMA" train small.ini --run.folder foreign --run.quiet --data.folder other --train.updates 1 2>/dev/null

# ---- perplexity of the splits of the data folder, as at the validation ----
logged=$(perl -ne 'print "$1\n" if /"type":"valid".*"best":true/ and /"perplexity":([0-9.]+)/' run/log.jsonl | tail -n 1)
"$NORMA" perplexity run --split valid --json >scores 2>err || fail "perplexity: $(cat err)"
perl -ne 'BEGIN { $logged = shift } /"perplexity":([0-9.]+).*"smoothed_perplexity":([0-9.]+)/ or exit 1;
    exit(abs($1 / $logged - 1) < 1e-5 && $2 > 1 ? 0 : 1)' "$logged" scores || fail "perplexity is not $logged: $(cat scores)"
"$NORMA" perplexity run >scores 2>err || fail "perplexity: $(cat err)"
[ "$(cut -d: -f1 scores | xargs)" = "train valid" ] || fail "not the splits that the folder has: $(cat scores)"
mv data moved
"$NORMA" perplexity run --split valid --data moved >scores 2>err || fail "perplexity of moved data: $(cat err)"
mv moved data
refuses 2 'no test data' perplexity run --split test
refuses 2 'splits of its data folder' perplexity run train.en
refuses 2 'run: --tokens is for language models; norma rescore scores translations' perplexity run --tokens
refuses 2 'perplexity.interval has no effect on a translation model' perplexity run --split valid --interval

# ---- lines in, lines out ----
printf '%s\n' 'haus rot blau.' '' 'Der hund springt.' 'katze' 'grün läuft, baum singt rot blau haus.' '   ' \
    'unbekanntes Wörtchen' >in
"$NORMA" translate run <in >lines 2>err
[ ! -s err ] || fail "output on stderr: $(cat err)"
[ "$(wc -l <lines)" = 7 ] || fail "7 lines in, $(wc -l <lines) out"
for line in 2 6; do
    [ -z "$(sed -n ${line}p lines)" ] || fail "an empty line got a translation: $(sed -n ${line}p lines)"
done
[ -n "$(sed -n 1p lines)" ] || fail "no translation"
if grep -q '@@\|</s>\|<pad>' lines; then fail "units in the text: $(cat lines)"; fi

# ---- batches, order, threads and file names change nothing ----
"$NORMA" translate run/best.safetensors --batch-tokens 1 in --output again
cmp lines again || fail "another batch size, another translation"
try translate run in --output 'again ;b.en'
[ "$got" = 0 ] || fail "a file name with a semicolon: $(cat err)"
same lines 'again ;b.en'
accepts BLEU score bleu lines --reference 'again ;b.en'
tac in | "$NORMA" translate run --threads 2 --batch-tokens 9 | tac >again
cmp lines again || fail "another order, another translation"
printf '%s' "$(cat in)" | "$NORMA" translate run >again # the last line without an end
cmp lines again || fail "a missing newline changed something"
sed 's/$/\r/' in | "$NORMA" translate run >again
cmp lines again || fail "carriage returns changed something"

# ---- formats ----
"$NORMA" translate run <valid.de --output-format tokenized >prepared
"$NORMA" translate run <data/valid.source.words --input-format tokenized --output-format tokenized >again
cmp prepared again || fail "prepared words are translated differently"
"$NORMA" translate run <valid.de --output-format subword | sed 's/@@ //g; s/@@$//' >again
cmp prepared again || fail "subwords and words differ"

# ---- n-best ----
"$NORMA" translate run --nbest 3 --beam 4 <in >best
"$NORMA" translate run --nbest 1 --beam 4 <in >first
awk -F ' \\|\\|\\| ' 'BEGIN { last = -1 }
{
    if (NF != 3) bad = "not three fields"
    if ($1 == last && $3 + 0 > score + 0) bad = "not best first"
    if ($1 != last && $1 != last + 1) bad = "numbers jump"
    if ($1 != last) print $2
    last = $1; score = $3; n[$1]++
}
END {
    if (n[0] != 3 || n[1] != 1) bad = "wrong count"
    if (bad) { print bad >"/dev/stderr"; exit 1 }
}' best >again || fail "n-best: $(cat best)"
cmp first again || fail "the first of the n best is not the translation"
refuses 2 'decode.nbest = 4' translate run --nbest 4 --beam 2

# ---- ensembles ----
"$NORMA" translate run,run <in >again
cmp lines again || fail "twice the same model is another model"
"$NORMA" translate run,second <in >mixed
[ "$(wc -l <mixed)" = 7 ] || fail "the ensemble lost lines"
refuses 5 'models 1 and 2 have different' translate run,foreign

# ---- lines that are too long are not translated, and counted ----
{
    head -n 1 in
    printf 'haus %.0s' {1..100}
    echo
    head -c 2000000 /dev/zero | tr '\0' x
    echo
    head -n 1 in
} >long
"$NORMA" translate run <long >again 2>err
[ "$(sed -n '1p' again)" = "$(sed -n '1p' lines)" ] || fail "the line before a long one changed"
[ "$(sed -n '4p' again)" = "$(sed -n '1p' lines)" ] || fail "the line after a long one changed"
[ -z "$(sed -n '2p;3p' again)" ] || fail "a line too long was translated"
grep -q '^norma: 2 of 4 lines have more than 64 tokens and were not translated (lines 2, 3)$' err || fail "long lines were not counted: $(cat err)"

{
    printf 'haus\n%.0s' {1..5}
    for ((i = 0; i < 7; i++)); do sed -n 2p long; done
} >longer
"$NORMA" translate run longer --buffer 2 2>err >again || fail "many long lines: $(cat err)"
grep -q '^norma: 7 of 12 lines .* (lines 6, 7, 8, 9 and 3 more)$' err || fail "many long lines: $(cat err)"
sed -n 2p long | "$NORMA" translate run 2>err >again || fail "a long line: $(cat err)"
grep -q '(line 1)$' err || fail "a long line: $(cat err)"

# ---- line-by-line use by another program ----
coproc answers { "$NORMA" translate run --buffer 1; }
# shellcheck disable=SC2154 # coproc sets it
for i in 1 2; do
    sed -n "${i}p" in >&"${answers[1]}"
    IFS= read -t 60 -r answer <&"${answers[0]}" || fail "no answer to line $i before the next one"
    [ "$answer" = "$(sed -n "${i}p" lines)" ] || fail "line by line: $answer"
done
eval "exec ${answers[1]}>&-"
wait

# ---- JSON: the same translations, scores of tokens that add up to the score, one answer for each line ----
cat >check.pl <<'X'
use JSON::PP;
my ($plain, $penalty) = @ARGV;
open(my $in, "<", $plain);
while (my $line = <STDIN>) {
    my $o = decode_json($line);
    chomp(my $text = <$in>);
    my @found = @{$o->{translations}};
    utf8::encode(my $best = @found ? $found[0]{text} : "");
    die "line $o->{line}, not $n\n" if $o->{line} != $n++;
    die "line $n: '$best' instead of '$text'\n" if $best ne $text;
    for (@found) {
        my $sum = 0;
        $sum += $_ for @{$_->{token_scores}};
        die "line $n: tokens\n" if @{$_->{tokens}} != @{$_->{token_scores}} || !@{$_->{tokens}};
        die "line $n: score $_->{score}, sum $sum\n" if abs($sum - $_->{score}) > 1e-5 * (1 + abs $sum);
    }
    die "line $n: order\n" if grep { $found[$_]{score} > $found[$_ - 1]{score} } 1 .. $#found;
}
print "$n\n";
X
{
    head -n 5 in
    echo
    sed -n '6,8p' in
} >some
"$NORMA" translate run some --beam 3 --nbest 2 --alpha 0 --json >json 2>err || fail "json: $(cat err)"
"$NORMA" translate run some --beam 3 --alpha 0 >plain
[ "$(perl check.pl plain <json 2>&1)" = "$(wc -l <some)" ] || fail "JSON: $(perl check.pl plain <json 2>&1): $(head -n 2 json)"
[ "$(sed -n 6p json)" = '{"line":5,"source":"","too_long":false,"translations":[]}' ] || fail "an empty line: $(sed -n 6p json)"
"$NORMA" translate run some --beam 3 --nbest 2 --alpha 0 --json --buffer 1 | cmp -s - json || fail "JSON line by line differs"
"$NORMA" translate run long --json >json 2>err || fail "JSON of a long line: $(cat err)"
sed -n 2p json >too_long
grep -q '"too_long":true,"translations":\[\]' too_long || fail "JSON of a long line: $(cat too_long)"

# ---- scores of given pairs: those of the search ----
"$NORMA" translate run some --beam 3 --input-format subword --output-format subword --json >json
perl -MJSON::PP -ne '$o = decode_json($_); $t = $o->{translations}[0]; $t = undef if $t && $t->{tokens}[-1] ne "</s>";
    print join(" ", map { sprintf "%.17g", $_ } @{$t->{token_scores}}), "\n"' json >want
[ "$(grep -c . want)" -ge 4 ] || fail "too few translations end: $(cat json)"
"$NORMA" translate run some --beam 3 --input-format subword --output-format subword >found
"$NORMA" rescore run some found --input-format subword >scores 2>err || fail "rescore: $(cat err)"
[ "$(wc -l <scores)" = "$(wc -l <some)" ] && [ -z "$(sed -n 6p scores)" ] || fail "rescore: $(cat scores)"
"$NORMA" rescore run - found --input-format subword --json --buffer 2 <some >pairs || fail "rescore with JSON"
perl -MJSON::PP -e 'open my $w, "<", "want"; open my $p, "<", "pairs";
    while (<$p>) {
        my ($o, $sum) = (decode_json($_), 0);
        chomp(my $want = <$w>);
        $sum += $_ for @{$o->{token_scores}};
        die "line $o->{line}: $sum\n" if defined $o->{log_prob} && $sum != $o->{log_prob};
        my $got = join(" ", map { sprintf "%.17g", $_ } @{$o->{token_scores}});
        die "line $o->{line}: $got\n$want\n" if $want ne "" && $got ne $want;
    }' || fail "given translations have other scores than in the search"
perl -MJSON::PP -ne '$p = decode_json($_)->{log_prob}; print defined $p ? sprintf("%.6f\n", $p) : "\n"' pairs |
    cmp - scores || fail "rescore: text and JSON differ"
grep -q '"line":5,"source":"","target":"","too_long":false,"log_prob":null}' pairs || fail "an empty pair: $(sed -n 6p pairs)"
"$NORMA" rescore run,second some found --input-format subword | cmp -s - scores && fail "an ensemble has the scores of one model"
"$NORMA" rescore run train.de train.en | awk '{ sum += $1 } END { exit(sum < 0 && NR == 200 ? 0 : 1) }' || fail "rescore of raw text"
head -n 3 some >three
refuses 5 'three ends after line 3, some does not' rescore run some three --buffer 2 --output scores
refuses 5 'three ends after line 3, some does not' rescore run three some --output scores
refuses 2 'two files are needed' rescore run some
refuses 2 'cannot be read twice' rescore run - -
refuses 2 'cannot be read twice' translate run --prefix -
refuses 2 'cannot be read twice' translate run some --prefix - --constraints -
"$NORMA" rescore run long long >scores 2>err || fail "rescore of long pairs: $(cat err)"
grep -q '^norma: 2 of 4 pairs have a side of more than 64 tokens and were not scored (lines 2, 3)$' err || fail "long pairs were not counted: $(cat err)"
[ "$(grep -c . scores)" = 2 ] && [ -z "$(sed -n '2p;3p' scores)" ] || fail "scores of long pairs: $(cat scores)"

# ---- word alignments: translations in reversed order ----
reversed() { awk '{ for (i = NF - 1; i > 0; i--) printf "%s ", $i; print $NF }'; }
make_text more 2000 1
mkdir turned
for name in more valid; do
    cp $name.de turned/
    reversed <$name.en >turned/$name.en
done
"$NORMA" prepare --train turned/more --valid turned/valid --source-lang de --target-lang en --output turned/data --joint \
    --tokenizer moses --bpe-merges 30 2>/dev/null
"$NORMA" train small.ini --run.folder turned/run --run.quiet --data.folder turned/data --model.width 32 --model.norm layer \
    --model.dropout 0 --model.embedding_dropout 0 --schedule.lr 0.005 --schedule.warmup 50 --train.updates 400 \
    --train.max_tokens 1000 2>/dev/null
sed -i 's/ \.$/./' turned/valid.de
"$NORMA" translate turned/run turned/valid.de --alignment >aligned
"$NORMA" translate turned/run turned/valid.de --alignment --json >json
perl -MJSON::PP -e 'open my $plain, "<", "aligned";
    while (<STDIN>) {
        my $o = decode_json($_);
        my $t = $o->{translations}[0];
        my @source = split " ", $o->{source};
        my (@links, $text, $sum);
        for (@{$t->{words}}) {
            push @links, "$_->{source}-" . @links if defined $_->{source};
            $right += $_->{source} == @source - @links;
            $text .= ($text ne "" ? " " : "") . substr($t->{text}, $_->{begin}, $_->{end} - $_->{begin});
            $sum += $_->{score};
            $n++;
        }
        die "words $text, text $t->{text}\n" if $text ne $t->{text};
        die "scores of words\n" if abs($sum + $t->{token_scores}[-1] - eval(join "+", @{$t->{token_scores}})) > 1e-6;
        utf8::encode(my $line = "$t->{text} ||| @links\n");
        die "$line, not $want" if $line ne ($want = <$plain>);
    }
    die "$right of $n links are right\n" if $n < 20 || $right < 0.7 * $n' <json || fail "alignments: $(cat aligned)"
cut -d '|' -f 1 aligned | sed 's/ $//' >targets
"$NORMA" rescore turned/run turned/valid.de targets --alignment | sed 's/.*|||//' >again
sed 's/.*|||//' aligned | cmp - again || fail "alignments of given translations differ"
"$NORMA" translate turned/run turned/valid.de --nbest 2 --alignment >aligned 2>err || fail "n-best: $(cat err)"
head -n 1 aligned >first
grep -q '^0 ||| .* ||| -[0-9.]* ||| [0-9]*-0' first || fail "n-best with alignments: $(cat first)"
printf '\nrot haus\n' | "$NORMA" translate turned/run --nbest 2 --alignment >fields
[ "$(awk -F ' [|][|][|]' '{ print NF }' fields | sort -u)" = 4 ] || fail "an empty line has other fields: $(cat fields)"
refuses 2 'alignment_layer has no effect' translate run in --alignment-layer 1
refuses 2 'the decoder has 1 layers with 2 heads' translate run in --alignment --alignment-head 3

# ---- constraints: single words, phrases of several words and subwords, several phrases, none ----
printf '%s\n' 'haus rot .' 'katze läuft grün .' 'hund .' '' 'baum singt blau rot .' >five
printf '%s\n' 'blue' $'green tree\tred house dog' '' 'cat' $'jumps\tsings\tjumps cat' >phrases
contains() { # TRANSLATIONS: each of N lines for a line of `five` has the phrases
    perl -ne 'BEGIN { open $phrases, "<", "phrases"; @all = <$phrases>; chomp @all; @sources = (1, 1, 1, 0, 1) }
        chomp; ($line, $text) = /^(\d+) \|\|\| (.*?) \|\|\| / ? ($1, $2) : ($. - 1, $_);
        for (split /\t/, $sources[$line] ? $all[$line] : "") { $missing++ if " $text " !~ /[ .]\Q$_\E[ .]/ }
        END { exit($missing || !$. ? 1 : 0) }' "$1"
}
for options in '--beam 1' '--beam 3' '--beam 8 --threads 2 --buffer 2'; do
    # shellcheck disable=SC2086
    "$NORMA" translate run five --constraints phrases $options >forced || fail "constraints: $options"
    contains forced || fail "constraints, $options: $(cat forced)"
done
"$NORMA" translate run five --constraints phrases --beam 8 | cmp - forced || fail "constraints depend on the batches"
"$NORMA" translate run five --beam 8 --constraints phrases | sed -n 3p >third
"$NORMA" translate run five --beam 8 | sed -n 3p | cmp - third || fail "a line without constraints changes"
"$NORMA" translate run,second five --constraints phrases --nbest 3 >forced
contains forced || fail "n-best of an ensemble with constraints: $(cat forced)"
printf '%s\n' 'dog' 'runs' '' '' 'red' >begin
"$NORMA" translate run five --constraints phrases --prefix begin >forced
contains forced && [ "$(grep -c '^dog\|^runs\|^red' forced)" = 3 ] || fail "prefix and constraints: $(cat forced)"
"$NORMA" translate run five --constraints phrases --json >json
perl -MJSON::PP -ne '$t = decode_json($_)->{translations}[0]; utf8::encode($t->{text}) if $t; print $t ? "$t->{text}\n" : "\n"' json >forced
contains forced || fail "JSON with constraints: $(cat json)"
refuses 2 'constraints need decode.search = fairseq' translate run five --constraints phrases --search tears
refuses 2 'constraints need decode.search = fairseq' translate run five --constraints phrases --diverse-groups 3
refuses 5 'phrases ends after line 5, in does not' translate run in --constraints phrases
printf '%s\n' '' 'Ж' '' '' '' >bad
refuses 5 'bad:2: constraint "Ж": the model cannot produce all of it' translate run five --constraints bad
refuses 5 'bad:2: constraint "Ж": ' translate run five --constraints bad --buffer 1 --output never.txt
perl -e 'print join("\t", ("dog") x 65), "\n" x 5' >bad
refuses 2 'bad:1: a translation has 65 constraints; at most 64 are possible' translate run five --constraints bad

# ---- samples, diverse beam search, prefixes ----
"$NORMA" translate run in --search sample --nbest 4 --seed 3 >samples
tac in | "$NORMA" translate run --search sample --nbest 4 --seed 3 --threads 2 --buffer 2 --json >json
perl -MJSON::PP -e 'for (reverse <STDIN>) {
    my $found = decode_json($_)->{translations};
    my @lines = map { sprintf "%d ||| %s ||| %.6f\n", $n, $_->{text}, $_->{score} } @$found;
    @lines = ("$n |||  ||| 0\n") if !@lines;
    utf8::encode($_), print for @lines;
    $n += 1 }' <json | sed 's/^ |||/0 |||/' >again
cmp <(cut -d '|' -f 4- samples) <(cut -d '|' -f 4- again) || fail "samples depend on order or threads"
"$NORMA" translate run in --search sample --nbest 4 --seed 4 | cmp -s - samples && fail "samples do not depend on the seed"
"$NORMA" translate run in --search sample --temperature 3 --nbest 4 --min-length 4 --output-format subword |
    awk -F ' \\|\\|\\| ' '$2 != "" { print split($2, words, " ") }' | sort -nu >lengths
[ "$(head -n 1 lengths)" = 4 ] || fail "samples with --min-length 4 have these lengths: $(tr '\n' ' ' <lengths)"
refuses 2 'decode.beam = 4 has no effect with decode.search = sample' translate run in --search sample --beam 4
refuses 2 'decode.seed = 3 has no effect with decode.temperature = 0' translate run in --search sample --temperature 0 --seed 3
refuses 2 'decode.top_k = 3 has no effect with decode.temperature = 0' translate run in --search sample --temperature 0 --top-k 3
refuses 2 'decode.min_length = 9 is more than the maximum length' translate run in --min-length 9 --max-length-a 0 --max-length-b 8
"$NORMA" translate run in --nbest 4 --beam 4 --diverse-groups 4 --diverse-strength 5 >diverse
cmp -s diverse best && fail "groups change nothing"
printf '%s\n' cat '' 'house red' sings '' '' tree >prefixes
"$NORMA" translate turned/run in --prefix prefixes --buffer 2 >found
paste -d '|' prefixes found | awk -F '|' 'NR != 6 && index($2, $1) != 1 { exit 1 }' || fail "prefixes: $(cat found)"
"$NORMA" translate turned/run in | sed -n '2p;5p' | cmp - <(sed -n '2p;5p' found) || fail "an empty prefix changes a translation"
refuses 5 'three ends after line 3, in does not' translate run in --prefix three --output never.txt
refuses 2 'only sampling has a temperature' translate run in --temperature 2
refuses 2 'not a multiple of decode.diverse_groups' translate run in --beam 3 --diverse-groups 2

# ---- decode.unknown: no <unk> in translations of a model that outputs it; a prefix may contain it ----
cp train.de rare.de
perl -pe 's/\b(dog|cat)\b/"$1" . $n++/ge' train.en >rare.en
"$NORMA" prepare --train rare --valid valid --source-lang de --target-lang en --output rare --tokenizer none \
    --bpe-merges 0 --min-count 2 2>/dev/null
for unknown in true false; do
    "$NORMA" train small.ini --run.folder rare-$unknown --run.quiet --data.folder rare --model.width 32 --model.norm layer \
        --model.dropout 0 --model.embedding_dropout 0 --schedule.lr 0.005 --schedule.warmup 50 --train.updates 400 \
        --train.max_tokens 1000 --train.score true --decode.unknown $unknown 2>log
    grep -o 'BLEU.*' log >bleu-$unknown
done
cmp -s bleu-true bleu-false && fail "decode.unknown does not change the score: $(cat bleu-true)"
"$NORMA" translate rare-true valid.de >found
grep -q '<unk>' found || fail "the model does not output <unk>: $(cat found)"
for options in '' '--beam 1' '--nbest 3 --threads 2' '--search sample --nbest 3' '--search tears' '--precision int8' \
    '--beam 4 --diverse-groups 2 --nbest 4'; do
    for model in rare-true rare-true,rare-false; do
        # shellcheck disable=SC2086
        "$NORMA" translate $model valid.de --unknown false $options >found || fail "--unknown false $options"
        ! grep -q '<unk>' found || fail "$model $options: <unk> in the output: $(cat found)"
    done
done
"$NORMA" translate rare-false valid.de >found
"$NORMA" translate rare-true valid.de --unknown false | cmp - found || fail "the option of the model has no effect"
"$NORMA" translate rare-false valid.de --alpha 0 --nbest 1 --json |
    perl -MJSON::PP -ne 'printf "%.6f\n", decode_json($_)->{translations}[0]{score}' >scores
"$NORMA" translate rare-false valid.de --alpha 0 | "$NORMA" rescore rare-true valid.de - | cmp - scores ||
    fail "decode.unknown changes the scores of translations"
for ((i = 0; i < 8; i++)); do echo Unbekanntes; done >unknown
"$NORMA" translate rare-false valid.de --prefix unknown >found
[ "$(grep -c '^<unk> ' found)" = 8 ] && ! grep -q '<unk>.*<unk>' found || fail "a prefix with <unk>: $(cat found)"
refuses 5 'unknown:1: constraint "Unbekanntes": ' translate rare-false valid.de --constraints unknown

# ---- an invalid line: those before it are translated, or it is skipped ----
{
    sed -n 1,4p valid.de
    printf 'bl\xffau\nrot\0\n'
    sed -n 5,8p valid.de
} >invalid
"$NORMA" translate run valid.de >whole
for options in '' '--buffer 3' '--buffer 4'; do
    # shellcheck disable=SC2086
    stops 4 4 'invalid:5: not UTF-8: byte 0xff at position 3' translate run invalid $options
    sed -n 1,4p whole | cmp - out || fail "the preceding lines: $(cat out)"
    # shellcheck disable=SC2086
    try translate run invalid --on-invalid skip $options
    { [ "$got" = 0 ] && sed '4a\\n' whole | cmp - out; } || fail "skipped lines: $(cat out err)"
    has err 'norma: 2 of 10 lines are not UTF-8 or contain zero bytes and were not translated (lines 5, 6)'
done
try translate run invalid --on-invalid skip --json
[ "$(sed -n 6p out)" = '{"line":5,"source":"","too_long":false,"translations":[]}' ] || fail "JSON of a skipped line: $(sed -n 6p out)"
for ((i = 0; i < 10; i++)); do echo hou; done >prefixes
sed -i '3s/$/\xff/' prefixes
stops 2 4 'prefixes:3: not UTF-8' translate run invalid --prefix prefixes
stops 2 4 'prefixes:3: not UTF-8' translate run invalid --prefix prefixes --on-invalid skip
printf '%s\n' '' dog | tee phrases >ended
printf '\xff\n' >>phrases
stops 2 4 'phrases:3: not UTF-8' translate run invalid --constraints phrases --beam 8
refuses 5 'ended ends after line 2, invalid does not' translate run invalid --constraints ended

# ---- bad input ----
printf 'haus\nbl\xffau\n' >broken
input=broken stops 1 4 'standard input:2' translate run
refuses 4 'broken:2' translate run broken --output never.txt
printf 'ha\0us\n' >zero
stops 1 4 'broken:2' rescore run three broken
stops 1 4 'broken:2' rescore run broken three
refuses 4 'zero:1: not text: byte 0x00 at position 3' translate run zero
refuses 2 'usage: norma translate' translate
refuses 3 'nowhere' translate nowhere
refuses 3 'nowhere' translate run nowhere
refuses 2 'decode.beam' translate run --beam 0
refuses 2 'unknown option' translate run --beams 2
refuses 2 'unknown option translate.no_beam' translate run --no-beam
head -c 3000 run/best.safetensors >cut.safetensors
input=in refuses 4 'cut.safetensors' translate cut.safetensors

# ---- the output file is complete or absent, and never the input ----
cp in source
ln source linked
ln -s source symbolic
for output in source ./source linked symbolic; do
    refuses 2 'input and output are the same file' translate run source --output $output
    input=source refuses 2 'input and output are the same file' translate run --output $output
    cmp source in || fail "the input was overwritten"
done
cp run/best.safetensors other.safetensors
refuses 2 'translate: other.safetensors is a model, which would be overwritten: choose another file' \
    translate other.safetensors source --output other.safetensors
refuses 2 'translate: ./other.safetensors is a model, which would be overwritten: choose another file' \
    translate run,other.safetensors source --output ./other.safetensors
refuses 2 'translate: run/best.safetensors is the model of a run, which would be overwritten: choose another file' \
    translate run source --output run/best.safetensors
cmp other.safetensors run/best.safetensors || fail "the output replaced the model"
echo earlier >out.txt
refuses 4 'broken:2' translate run broken --buffer 1 --output out.txt
[ "$(cat out.txt)" = earlier ] || fail "a failure changed the output file: $(cat out.txt)"
refuses 4 'broken:2' translate run broken --buffer 1 --output never.txt
[ -z "$(find . -name 'never*' -o -name 'out.txt?*')" ] || fail "a failure leaves files: $(ls)"
"$NORMA" translate run source --output out.txt
cmp out.txt lines || fail "the output file differs"
mkfifo pipe
cat pipe >piped &
"$NORMA" translate run source --output pipe
wait $!
cmp piped lines || fail "the output to a pipe differs"
: >empty
"$NORMA" translate run <empty >again
[ ! -s again ] || fail "output for no input"
if [ -w /dev/full ]; then
    refuses 3 'No space left' translate run in --output /dev/full
fi

# ---- other encodings of the input; the output is UTF-8 ----
printf '%s\n' 'haus grün .' '' 'grün läuft' 'a' >umlauts
printf '%s\n' 'house' '' 'grün' '' >begin-utf8
"$NORMA" translate run umlauts --prefix begin-utf8 >plain-utf8
"$NORMA" rescore run umlauts begin-utf8 >scores-utf8
for encoding in latin1 utf-16 utf-16be; do
    iconv -f utf-8 -t $encoding umlauts >other-umlauts
    iconv -f utf-8 -t $encoding begin-utf8 >other-begin
    try translate run other-umlauts --prefix other-begin --encoding $encoding
    same plain-utf8 out
    try rescore run other-umlauts other-begin --encoding $encoding
    same scores-utf8 out
done
input=other-umlauts try translate run --encoding utf-16be --json
has out '"source":"haus grün ."'
refuses 4 'other-umlauts: is UTF-16, not UTF-8: --encoding utf-16be is required' translate run other-umlauts
refuses 4 'other-begin: is UTF-16, not UTF-8: --encoding utf-16be is required' translate run umlauts --prefix other-begin
input=other-umlauts refuses 4 'standard input: is UTF-16, not UTF-8: --encoding utf-16be is required' translate run
refuses 4 'other-umlauts: is UTF-16, not UTF-8' rescore run other-umlauts begin-utf8
refuses 2 'unknown encoding "klingon"' translate run umlauts --encoding klingon
refuses 4 'umlauts:1: reading failed: bytes that are not valid in the given encoding' translate run umlauts --encoding ascii
# The recognition of UTF-16 does not wait for more than a line.
coproc answers { "$NORMA" translate run --buffer 1 --threads 1; }
# shellcheck disable=SC2154 # coproc sets it
for line in '' a b; do
    echo "$line" >&"${answers[1]}"
    IFS= read -r -t 60 answer <&"${answers[0]}" || fail "no translation of the line '$line'"
done
[ -n "$answer" ] || fail "an empty translation"
eval "exec ${answers[1]}>&-"
# shellcheck disable=SC2154 # coproc sets it
wait "$answers_PID"

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "e2e_translate: passed"
