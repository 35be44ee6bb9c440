#!/usr/bin/env bash
# norma generate: stop strings, which may cross the borders of tokens, with every kind of tokenizer, and the repetition penalty. The
# expected texts are those without stop strings, which a script cuts.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

export OMP_NUM_THREADS=1

for i in $(seq 90); do
    printf 'User: how are you, number %d?\nBot: I am well. The cat is blue.\n' $((i % 7))
    [ $((i % 3)) = 0 ] || printf 'Bot: "No!" said the dog, née Müller.\n'
    printf '###\n'
done >train.txt
grep -v '###' train.txt >lines.txt
printf 'User: how\nBot: "No\n\nBot: I am well. Naïve 日本\nThe cat and the\n' >prompts

models=()
model() { # NAME PREPARE-OPTION...
    models+=("$1")
    accepts written prepare --format text --threads 1 --output "data-$1" "${@:2}"
    accepts 'done: 200 updates' train lm.ini --run.folder "$1" --data.folder "data-$1"
}
write_recipe lm.ini run.task=lm model.width=32 model.ff=64 model.heads=2 model.layers=1 model.context=24 train.updates=200 \
    train.max_tokens=512 train.score=false schedule.lr=0.01 schedule.warmup=10 device.threads=1
model words --train lines.txt --tokenizer none --bpe-merges 0
model moses --train lines.txt --bpe-merges 60
model bytes --train train.txt --tokenizer byte_level --bpe-merges 80 --documents separated --document-separator '###'
if command -v spm_train >/dev/null; then
    model pieces --train lines.txt --tokenizer sentencepiece --spm-vocab-size 330
fi

# Reads the JSON lines of a run without stop strings; writes those with the stop strings of the arguments.
cut='use JSON::PP; my $json = JSON::PP->new->utf8->canonical; utf8::decode($_) for @ARGV;
    while (my $line = <STDIN>) {
        my $one = $json->decode($line);
        my $text = ($ENV{SPACE} && $one->{prompt} ne "" ? " " : "") . $one->{text}; # the space after the prompt
        my @at = sort { $a <=> $b } grep { $_ >= 0 } map { index($text, $_) } @ARGV;
        $text = substr($text, 0, $at[0]) if @at;
        $one->{text} = $text =~ s/^ //r if $ENV{SPACE};
        $one->{text} = $text if !$ENV{SPACE};
        print $json->encode($one), "\n";
    }'
sort_keys='use JSON::PP; my $json = JSON::PP->new->utf8->canonical; print $json->encode($json->decode($_)), "\n" while <STDIN>;'
sampling=(--samples 6 --tokens 40 --temperature 0.9 --top-p 0.97 --seed 3 --threads 1)
for model in "${models[@]}"; do
    case $model in words | moses) export SPACE=1 ;; *) export SPACE='' ;; esac
    "$NORMA" generate "$model" prompts "${sampling[@]}" --json >whole.json 2>err || fail "generate $model: $(cat err)"
    n_cut=0
    # Single characters, parts of words, several words, ends of lines; the last one does not occur.
    for stop in e 'at is b' 'l. The' 'u, n' $'\n' $'.\nBo' 'ü' 'née M' 'xyz%'; do
        "$NORMA" generate "$model" prompts "${sampling[@]}" --json --stop "$stop" >stopped.json 2>err ||
            fail "generate $model: $(cat err)"
        perl -e "$cut" "$stop" <whole.json >want.json
        perl -e "$sort_keys" <stopped.json >got.json
        same want.json got.json
        cmp -s whole.json stopped.json || n_cut=$((n_cut + 1))
    done
    [ $n_cut -ge 4 ] || fail "$model: only $n_cut stop strings occurred"
    # Several strings: the first occurrence of any of them. An empty one is none.
    for batch in 1 5; do
        "$NORMA" generate "$model" prompts "${sampling[@]}" --json --stop is --stop '' --stop 'we' --stop ' c' --batch $batch \
            >stopped.json 2>err || fail "generate $model: $(cat err)"
        same <(perl -e "$cut" is we ' c' <whole.json) <(perl -e "$sort_keys" <stopped.json)
    done
    # The text with its prompt ends at the same place, and the prompt may contain the string.
    "$NORMA" generate "$model" --prompt 'The cat' --temperature 0 --tokens 60 --bare --stop 'cat is' >bare 2>err || fail "$(cat err)"
    "$NORMA" generate "$model" --prompt 'The cat' --temperature 0 --tokens 60 --stop 'cat is' >with 2>err || fail "$(cat err)"
    lacks bare 'cat is'
    perl -0777 -e '($bare, $with) = map { open my $in, "<", $_; readline $in } @ARGV; $bare =~ s/^ //; $with =~ s/^The cat ?//; exit($bare ne $with)' \
        bare with || fail "$model: the text with the prompt is $(cat with), without $(cat bare)"
    # Generation ends with the string, not at the limit of the tokens.
    timeout 500 "$NORMA" generate "$model" --prompt 'User: how' --tokens 1000000000 --stop wel --threads 1 >endless 2>err ||
        fail "$model: generation does not end: $(cat err)"
    lacks endless wel
done

# The prompt determines whether a quotation mark opens or closes; the text without it is written otherwise, but ends there, too.
greedy=(generate moses --prompt 'Bot: "No' --temperature 0 --tokens 12)
"$NORMA" "${greedy[@]}" >out
has out 'Bot: "No!" said the dog'
for stop in ' said' 'said' '" s' '!" s'; do
    "$NORMA" "${greedy[@]}" --stop "$stop" >with
    "$NORMA" "${greedy[@]}" --stop "$stop" --bare >bare
    case $stop in
    ' said') same <(echo 'Bot: "No!"') with && same <(echo '! "') bare ;;
    said) same <(echo 'Bot: "No!" ') with && same <(echo '! "') bare ;;
    '" s') same <(echo 'Bot: "No!') with && same <(echo '! ') bare ;;
    *) same <(echo 'Bot: "No') with && same <(echo) bare ;;
    esac
done

# Other encodings of prompts and of text to score; the output is UTF-8.
grep -v 日本 prompts >umlauts
echo 'User: née Müller' >>umlauts
"$NORMA" generate words umlauts "${sampling[@]}" >plain
"$NORMA" perplexity words umlauts >plain-perplexity
"$NORMA" perplexity words umlauts --tokens >plain-tokens
for encoding in latin1 utf-16 utf-16le; do
    iconv -f utf-8 -t $encoding umlauts >other
    try generate words other "${sampling[@]}" --encoding $encoding
    same plain out
    try perplexity words other --encoding $encoding
    same <(sed 's/^umlauts//' plain-perplexity) <(sed 's/^other//' out)
    try perplexity words other --encoding $encoding --tokens
    same <(sed 's/umlauts/other/' plain-tokens) out
done
refuses 4 'other: is UTF-16, not UTF-8: --encoding utf-16le is required' generate words other
refuses 4 'other: is UTF-16, not UTF-8: --encoding utf-16le is required' perplexity words other
refuses 4 'other: is UTF-16, not UTF-8: --encoding utf-16le is required' perplexity words other --tokens
refuses 2 'generate.encoding = latin1 has no effect' generate words --prompt 'The cat' --encoding latin1

refuses 2 'sample.stop: not UTF-8: byte 0xff' generate words prompts --stop $'a\xff'
refuses 2 'option --stop needs a value' generate words prompts --stop

# The penalty: 1 changes nothing; a large one allows a token once, as long as there are others.
"$NORMA" generate words prompts "${sampling[@]}" --json >whole.json
"$NORMA" generate words prompts "${sampling[@]}" --json --repetition-penalty 1 >out
same whole.json out
"$NORMA" generate words --prompt 'The cat' --temperature 0 --tokens 16 --repetition-penalty 1000 >out
[ "$(tr ' ' '\n' <out | grep -v '^$' | sort | uniq -d | wc -l)" = 0 ] || fail "repeated words: $(cat out)"
"$NORMA" generate words --prompt 'The cat' --temperature 0 --tokens 40 >out
[ "$(tr ' ' '\n' <out | grep -v '^$' | sort | uniq -d | wc -l)" -gt 0 ] || fail "no repeated words without penalty: $(cat out)"
refuses 2 'sample.repetition_penalty = 0: outside 0.001 .. 1000' generate words prompts --repetition-penalty 0

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "stop strings with ${#models[@]} tokenizers, and the repetition penalty ($cases cases)"
