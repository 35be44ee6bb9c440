#!/usr/bin/env bash
# Language modeling on a generated text: prepare, train with both kinds of attention, perplexity and generate; an interruption
# and its continuation; the non-causal model; hostile inputs of each reader.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

export OMP_NUM_THREADS=1

make_sentences train.txt 900 1
make_sentences valid.txt 60 2
make_sentences test.txt 60 3
echo >>test.txt
words=(--format text --tokenizer none --bpe-merges 0 --threads 1)

# ---- prepare: every line has its EOS token, including the empty one ----
accepts '61 lines read, 61 kept' prepare "${words[@]}" --train train.txt --valid valid.txt --test test.txt --output data
for file in data.ini dict.txt train.text.ids train.text.off valid.text.words test.text.ids; do
    [ -s data/$file ] || fail "data/$file is missing"
done
[ "$(wc -l <data/test.text.words)" = 61 ] || fail "test.text.words does not have 61 lines"
accepts 'BPE merges: 12' prepare --format text --tokenizer none --bpe-merges 12 --threads 1 --train train.txt --output units
accepts 'written' prepare "${words[@]}" --train train.txt --dict-source data/dict.txt --output given
cmp -s given/dict.txt data/dict.txt || fail "a given dictionary is not the one written"

write_recipe lm.ini run.task=lm data.folder=data model.preset=tiny model.width=32 model.ff=64 model.heads=2 \
    model.context=8 train.updates=120 train.max_tokens=256 train.label_smoothing=0 train.max_grad_norm=0.25 \
    train.validate_every=40 train.score=false schedule.name=cosine-ma2019 schedule.lr=0.01 \
    schedule.warmup=10 device.threads=1

# Word dropout: only the input of training batches, with other words in each update.
for fraction in 0 0.3; do
    accepts 'done: 2 updates' train lm.ini --run.folder drop$fraction --data.word_dropout $fraction --train.updates 2 --schedule.lr 1e-30 \
        --train.log_every 1 --model.dropout 0
    sed -n 's/.*"type":"train".*"nll":\([0-9.]*\).*/\1/p' drop$fraction/log.jsonl >drop$fraction.train
    sed -n 's/.*"type":"valid".*"nll":\([0-9.]*\).*/\1/p' drop$fraction/log.jsonl >drop$fraction.valid
done
[ "$(wc -l <drop0.train)" = 2 ] && same drop0.valid drop0.3.valid
paste drop0.train drop0.3.train | awk '$1 == $2 { exit 1 }' || fail "word dropout has no effect: $(paste drop0.train drop0.3.train)"

# A batch has at least one segment.
accepts 'warning: train.max_tokens = 7 is less than model.context: a batch has one segment of 8 tokens' train lm.ini \
    --run.folder segment --train.updates 1 --train.max_tokens 7
accepts 'done: 1 update, 8 tokens' train lm.ini --run.folder segments --train.updates 1 --train.max_tokens 8
lacks err 'less than model.context'

value() { # FIELD of the last JSON line in out
    perl -ne 'print $1 if /"'"$1"'":([^,}]*)/' out | tail -n 1
}
below() { # A B
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }' || fail "$1 is not below $2: $3"
}
near() { # A B: to 1e-6
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= 1e-6 * b) }' || fail "$1 is not $2: $3"
}

# ---- train, perplexity, generate with both attentions ----
# 16 words and the end of line: chance-level loss ln 17; the grammar has about 3.6 choices per word.
for attention in softmax block-term; do
    accepts 'done: 120 updates' train lm.ini --run.folder $attention --model.attention $attention
    try perplexity $attention test.txt --json
    whole=$(value perplexity)
    below "$whole" 6 "perplexity with $attention"
    below 2 "$whole" "perplexity with $attention"
    [ "$(value tokens)" = "$(($(wc -w <test.txt) + 61))" ] || fail "$(value tokens) tokens were scored"
    for tokens in 8 50 5000; do
        try perplexity $attention test.txt --json --batch-tokens $tokens
        near "$(value perplexity)" "$whole" "batches of $tokens"
    done
    try perplexity $attention test.txt --json --context 8 --batch-tokens 40
    slid=$(value perplexity)
    try perplexity $attention test.txt --json --context 8
    near "$(value perplexity)" "$slid" "sliding windows in other batches"
    # The log probabilities of single tokens do not depend on batches, and their sum is that of the perplexity.
    try perplexity $attention test.txt --json
    nll=$(value nll)
    try perplexity $attention test.txt --tokens
    cp out tokens.json
    [ "$(wc -l <out)" = 61 ] || fail "$(wc -l <out) objects for 61 lines"
    near "$(perl -ne '$n += () = /[[,]-[0-9]/g; $s -= $1 if /"log_prob":(-[0-9.e-]+)/; END { printf "%.9f", $s / $n }' out)" "$nll" "log probabilities of tokens"
    for tokens in 8 50 5000; do
        try perplexity $attention test.txt --tokens --batch-tokens $tokens
        same out tokens.json
    done
    try perplexity $attention test.txt --tokens --each-line
    cp out lines.json
    tail -n +2 test.txt >rest.txt
    try perplexity $attention rest.txt --tokens --each-line --batch-tokens 20
    sed 's/rest.txt//; s/"line":[0-9]*//' out >rest.json
    tail -n +2 lines.json | sed 's/test.txt//; s/"line":[0-9]*//' >lines.rest
    same rest.json lines.rest
    cmp -s tokens.json lines.json && fail "earlier lines are no context"
    try perplexity $attention test.txt valid.txt
    grep -q '^all files: perplexity' out || fail "two files have no sum"
    grep -q 'skipped sequences' out && fail "nothing was skipped: $(cat out)"
    try perplexity $attention --json <test.txt
    printf 'the dog\n\nevery\n' >prompts
    try generate $attention prompts --tokens 30 --seed 5 --top-k 9
    cp out first
    for batch in 1 2; do
        try generate $attention prompts --tokens 30 --seed 5 --top-k 9 --batch $batch
        cmp -s out first || fail "other text in batches of $batch with $attention"
    done
    try generate $attention prompts --tokens 30 --seed 6 --top-k 9
    cmp -s out first && fail "the seed does not matter"
    try generate $attention --prompt 'the dog' --temperature 0 --lines 1
    grep -qE '^the dog (runs|sings|sleeps|falls)( and [a-z]+ [a-z]+ [a-z]+)*$' out || fail "not of the grammar: $(cat out)"
    # Nucleus sampling: with a small mass only the most probable token remains, with 1 all tokens.
    try generate $attention prompts --tokens 30 --temperature 0
    cp out first
    try generate $attention prompts --tokens 30 --seed 5 --temperature 3 --top-p 0.000001
    same out first
    try generate $attention prompts --tokens 30 --seed 5 --temperature 3 --top-p 0.999
    cmp -s out first && fail "top-p 0.999 is greedy"
    try generate $attention --prompt 'the dog' --temperature 0 --lines 1 --json
    grep -q '"prompt":"the dog"' out || fail "no JSON: $(cat out)"
    ! grep -q '"text":"the dog' out || fail "the text begins with the prompt: $(cat out)"
    # a prompt may contain what an INI file cannot hold
    for prompt in 'the dog ' ' the' 'the ;dog'; do
        try generate $attention --prompt "$prompt" --temperature 0 --lines 1 --json
        has out "\"prompt\":\"$prompt\""
    done
    try generate $attention --prompt $'the\ndog' --temperature 0 --lines 1 --json
    has out '"prompt":"the\ndog"'
done
untrained=$(perl -ne 'print "$1\n" if /"perplexity":([0-9.]+)/' softmax/log.jsonl | head -n 1)
below "$whole" "$untrained" "perplexity has not fallen"

# ---- prompts of another program ----
"$NORMA" generate softmax prompts --tokens 30 --seed 5 --lines 1 >lines
[ "$(wc -l <lines)" = "$(wc -l <prompts)" ] || fail "not a line for each prompt: $(cat lines)"
coproc answers { "$NORMA" generate softmax --tokens 30 --seed 5 --lines 1 --buffer 1; }
# shellcheck disable=SC2154 # coproc sets it
for i in 1 2 3; do
    sed -n "${i}p" prompts >&"${answers[1]}"
    IFS= read -t 60 -r answer <&"${answers[0]}" || fail "no answer to prompt $i before the next one"
    [ "$answer" = "$(sed -n "${i}p" lines)" ] || fail "prompt by prompt: $answer"
done
eval "exec ${answers[1]}>&-"
wait
refuses 2 'generate.buffer = 1 has no effect' generate softmax --prompt 'the dog' --buffer 1

# ---- BPE, learned positions, adaptive softmax; the loss of a word does not depend on the counting ----
accepts 'done: 20 updates' train lm.ini --run.folder bpe --data.folder units --train.updates 20 --train.validate-every 100 \
    --model.positions learned --model.adaptive true --model.cutoffs 8,12 --data.order shuffled
accepts 'per word' perplexity bpe test.txt
{ cat test.txt && echo 'hé 日本'; } >accents.txt
try perplexity bpe accents.txt --json
near "$(awk -v nll="$(value nll)" -v tokens="$(value tokens)" -v n="$(perl -CSD -0777 -ne 'print length' accents.txt)" \
    -v unknown="$(value unknown)" -v alphabet="$(value alphabet)" \
    'BEGIN { printf "%.9f", (nll * tokens + 2 * unknown * log(alphabet)) / log(2) / n }')" \
    "$(value bits_per_character)" "bits per character: an unknown character and an end are spelled"
[ "$(value unknown)" -ge 3 ] || fail "the accents are known"
[ "$(value alphabet)" = "$(perl -CSD -0777 -ne '$n{$_} = 1 for /\S/g; print 1 + keys %n' accents.txt)" ] || fail "alphabet: $(cat out)"
try perplexity bpe test.txt --json
nll=$(value nll)
try perplexity bpe test.txt --tokens
near "$(perl -ne '$n += () = /[[,]-[0-9]/g; $s -= $1 if /"log_prob":(-[0-9.e-]+)/; END { printf "%.9f", $s / $n }' out)" "$nll" "tokens with adaptive softmax"
try generate bpe --prompt '' --tokens 5
[ "$got" = 0 ] || fail "exit code $got without a prompt: $(cat err)"

# ---- a context above 1,024 tokens, in float and with bf16 matrix multiplications ----
for precision in float bf16; do
    accepts 'done: 3 updates' train lm.ini --run.folder long-$precision --model.context 1500 --train.max-tokens 1500 \
        --train.updates 3 --device.precision $precision
done
try perplexity long-float test.txt --json
whole=$(value perplexity)
try perplexity long-float test.txt --json --device.precision bf16
awk -v a="$(value perplexity)" -v b="$whole" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d > 0 && d < 0.01 * b) }' ||
    fail "the perplexity is $whole in float and $(value perplexity) in bf16"

# ---- interrupted and continued: bitwise identical ----
accepts 'done: 60 updates' train lm.ini --run.folder parts --train.updates 60 --schedule.updates 120
accepts 'done: 120 updates' train lm.ini --run.folder parts --resume --train.updates 120 --schedule.updates 120
cmp -s <(tail -c 20000 parts/last.safetensors) <(tail -c 20000 softmax/last.safetensors) || fail "a resumed run has other weights"

# ---- the non-causal model ----
accepts 'non-causal, not a perplexity: ' train lm.ini --run.folder ahead --model.attention block-term --model.causal false
accepts 'non-causal, not a perplexity: ' perplexity ahead test.txt
accepts '"non_causal_not_a_perplexity":' perplexity ahead test.txt --json
grep -q '"perplexity":[0-9]' ahead/log.jsonl && fail "the log has a perplexity for a non-causal model"
refuses 2 'complete segments only' perplexity ahead test.txt --context 4
refuses 7 'cannot generate text' generate ahead

# ---- hostile ----
refuses 3 'nothere.txt' prepare "${words[@]}" --train nothere.txt --output x
printf 'a b\nc \xff d\n' >broken.txt
refuses 4 'broken.txt:2: not UTF-8: byte 0xff at position 3' prepare "${words[@]}" --train broken.txt --output x
: >empty.txt
refuses 5 'empty.txt: the filters left no line for training' prepare "${words[@]}" --train empty.txt --output x
refuses 2 'no text given' prepare "${words[@]}" --output x
refuses 4 'broken.txt:2: not UTF-8' perplexity softmax broken.txt
refuses 4 'broken.txt' perplexity softmax broken.txt --tokens
stops 1 4 'broken.txt:2: not UTF-8' perplexity softmax broken.txt --tokens --each-line
refuses 2 'perplexity.each_line = true has no effect with perplexity.tokens = false' perplexity softmax test.txt --each-line
refuses 2 'perplexity.interval = true has no effect with perplexity.tokens = true' perplexity softmax test.txt --tokens --interval
refuses 2 'sample.min_p = 0.5 has no effect with sample.temperature = 0: greedy search' generate softmax test.txt --temperature 0 --min-p 0.5
refuses 2 'sample.top_p = 0.5 has no effect with sample.temperature = 0: greedy search' generate softmax test.txt --temperature 0 --top-p 0.5
refuses 2 'perplexity.split has no effect on a language model' perplexity softmax test.txt --split test
refuses 4 'empty.txt: no text to score' perplexity softmax empty.txt
refuses 4 'standard input: no text to score' perplexity softmax
printf 'a \0 b\n' >zero.txt
refuses 4 'zero.txt:1: not text: byte 0x00 at position 3' perplexity softmax zero.txt
refuses 3 'nothere.txt' perplexity softmax nothere.txt
refuses 2 'perplexity.context = 9 is more than model.context = 8' perplexity softmax test.txt --context 9
stops 1 4 'broken.txt:2' generate softmax broken.txt --lines 1
refuses 4 'zero.txt:1: not text: contains a zero byte' generate softmax zero.txt
{ echo the dog && head -c 1048577 /dev/zero | tr '\0' x; } >huge.txt
stops 1 4 'huge.txt:2: a prompt of 1048577 bytes, the limit is 1048576' generate softmax huge.txt --lines 1
{ printf 'the dog\n' && cat broken.txt huge.txt && printf '\nb\0\na bird\n'; } >mixed.txt
printf 'the dog\na b\n\nthe dog\n\n\na bird\n' >whole.txt # broken, huge and zero lines are 3, 5 and 6
"$NORMA" generate softmax whole.txt --lines 1 --samples 2 | sed '5,6s/.*//; 9,12s/.*//' >want
for buffer in 64 2; do
    try generate softmax mixed.txt --lines 1 --samples 2 --on-invalid skip --buffer $buffer
    same want out
    has err 'norma: 3 prompts are not valid text and were not continued (lines 3, 5, 6)'
done
try generate softmax mixed.txt --lines 1 --on-invalid skip --json
[ "$(sed -n 3p out)" = '{"prompt":null,"text":null}' ] && [ "$(wc -l <out)" = 7 ] || fail "JSON of skipped prompts: $(cat out)"
refuses 2 'exclude each other' generate softmax prompts --prompt x
cp prompts same
refuses 2 'same: input and output are the same file' generate softmax same --output same
cmp same prompts || fail "the input was overwritten"
refuses 2 'temperature' generate softmax --temperature -1
refuses 3 'nothere' generate nothere
head -c 3000 softmax/best.safetensors >short.safetensors
refuses 4 'short.safetensors' perplexity short.safetensors test.txt
chatty=1
cp -r data parallel && rm parallel/dict.txt
refuses 5 'prepare the folder with --format text' train lm.ini --run.folder x --data.folder parallel
refuses 3 'nothere' train lm.ini --run.folder x --data.folder nothere
refuses 2 'not a multiple of model.heads' train lm.ini --run.folder x --model.heads 3
refuses 2 'block-term only' train lm.ini --run.folder x --model.causal false
refuses 2 'at most 1024 tokens' train lm.ini --run.folder x --model.attention block-term --model.context 1500
refuses 2 'does not lie between' train lm.ini --run.folder x --model.adaptive true --model.cutoffs 5,5
refuses 2 'a comma-separated list of token ids' train lm.ini --run.folder x --model.adaptive true --model.cutoffs 5,x
refuses 2 'does not lie between' train lm.ini --run.folder x --model.adaptive true --model.cutoffs 20000,40000,200000
accepts 'done: 2 updates' train lm.ini --run.folder automatic --train.updates 2 --model.adaptive true
refuses 2 'has no' train lm.ini --run.folder x --train.max-tokens 200000
cp -r data forged && poke forged/train.text.ids 70 '\xff\x7f\xff\x7f'
refuses 5 'the dictionary has' train lm.ini --run.folder x --data.folder forged
cp -r data cut && head -c 100 data/train.text.ids >cut/train.text.ids
refuses 4 'which does not match its header' train lm.ini --run.folder x --data.folder cut
hostile_end

# Label smoothing of an adaptive softmax: the loss of the first update differs from the negative log-likelihood.
adaptive=(train lm.ini --model.adaptive true --model.cutoffs 8 --train.updates 2 --train.validate_every 2 --train.log_every 1)
accepts 'done: 2 updates' "${adaptive[@]}" --run.folder smoothed --train.label_smoothing 0.1
accepts 'done: 2 updates' "${adaptive[@]}" --run.folder unsmoothed
first_loss() { # FIELD RUN
    perl -ne 'print $1 if /"update":1,/ && /"'"$1"'":([0-9.]+)/' "$2/log.jsonl" | head -n 1
}
below "$(first_loss nll smoothed)" "$(first_loss loss smoothed)" 'the loss is not smoothed'
near "$(first_loss nll smoothed)" "$(first_loss nll unsmoothed)" 'the negative log-likelihood depends on the smoothing'
