#!/bin/bash
# Further training of a model: norma prepare --like prepares other text as that of the model, and norma train --tune starts with
# its structure and parameters.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Text of one kind, and of another one with words, characters and empty lines that the first lacks.
for i in $(seq 120); do
    echo "the cat number $i sits on the red mat and sees $((i % 7)) dogs"
done >first.train
for i in $(seq 20); do
    echo "the dog number $i sits on a blue mat"
done >first.valid
for i in $(seq 90); do
    printf 'a Zebra %d läuft; the end?\n' $((i * 3))
    [ $((i % 9)) != 0 ] || echo
done >second.train
printf 'a Zebra 5 läuft\n\nthe žebra 12 läuft, the end?\n' >second.valid
train() { # RUN OPTION...
    try train lm.ini --run.folder "$1" --run.quiet "${@:2}"
    [ "$got" = 0 ] || fail "train $*: $(cat err)"
}
nll() { # MODEL FILE
    "$NORMA" perplexity "$1" "$2" | sed 's/.*nll \([0-9]*\.[0-9]\{4\}\).*/\1/'
}
write_recipe lm.ini run.task=lm model.width=24 model.ff=32 model.heads=2 model.layers=2 model.context=16 \
    train.updates=30 train.max_tokens=256 schedule.lr=0.005 schedule.warmup=2 device.threads=1 device.precision=float

# --- the text of every kind of preparation -------------------------------------------------------------------------------
prepare_like() { # NAME OPTION...: both data folders; that of the second text like the first folder, and like its model
    local name=$1
    accepts written prepare --format text --train first.train --valid first.valid --output "$name" "${@:2}"
    accepts written prepare --like "$name" --train second.train --valid second.valid --output "$name-folder"
    train "run-$name" --data.folder "$name"
    accepts written prepare --like "run-$name" --train second.train --valid second.valid --output "$name-run" --threads 1
    same "$name/dict.txt" "$name-run/dict.txt"
    for file in dict.txt train.text.ids valid.text.ids valid.text.words; do
        same "$name-folder/$file" "$name-run/$file"
    done
    # The ids are those of the text as the model reads it.
    same <("$NORMA" perplexity "run-$name" second.valid | grep -o 'tokens [0-9]*') \
        <(echo "tokens $(($(stat -c %s "$name-run/valid.text.ids") / 4 - 16))") # a header of 64 bytes
}
prepare_like moses --bpe-merges 40 --lowercase true
same moses/codes.bpe moses-run/codes.bpe
has moses-run/valid.text.words zebra
prepare_like bytes --tokenizer byte_level --bpe-merges 40 --pretokenizer qwen2
lacks err ' 1 unknown'
prepare_like words --tokenizer none --bpe-merges 0 --special-ids tears
prepare_like rare --bpe-merges 60 --bpe-vocabulary-threshold 9
same rare/units.txt rare-run/units.txt
if command -v spm_train >/dev/null; then
    prepare_like pieces --tokenizer sentencepiece --spm-vocab-size 320
    same pieces/sentencepiece.model pieces-run/sentencepiece.model
fi
printf '[prepare]\nbpe_merges = 7\nlowercase = false\n' >settings.ini # --like comes before a file of settings
accepts written prepare settings.ini --like moses --train second.train --output filed
same moses-run/train.text.ids filed/train.text.ids
has filed/data.ini 'lowercase = true ; profile'
common=(prepare --train second.train --output no)
refuses 2 'prepare.bpe_merges cannot be combined with prepare.like' "${common[@]}" --like moses --bpe-merges 50
refuses 2 'prepare.tokenizer cannot be combined with prepare.like' "${common[@]}" --like moses --tokenizer none
refuses 3 'No such file' "${common[@]}" --like nothing
refuses 4 'not a safetensors file' "${common[@]}" --like second.train
mkdir empty
refuses 3 'is a folder' "${common[@]}" --like empty
# A test set only.
accepts written prepare --like run-moses --test second.valid --output tested
same moses-run/valid.text.ids tested/test.text.ids

# --- further training ----------------------------------------------------------------------------------------------------
# With a learning rate of almost 0 the model stays what it was, whatever structure the recipe has.
sed 's/width = 24/width = 40/; s/layers = 2/layers = 1\ndropout = 0.2/' lm.ini >other.ini
try train other.ini --tune run-moses --data.folder moses-run --run.folder same --train.updates 1 --schedule.lr 1e-30 --run.quiet
[ "$got" = 0 ] || fail "train --tune: $(cat err)"
has same/config.ini 'width = 24 ; tune'
has same/config.ini 'tune = run-moses ; command line'
grep -q '^dropout = 0.2 ; file' same/config.ini || fail 'the dropout rate is not that of the recipe'
[ "$(nll same second.valid)" = "$(nll run-moses second.valid)" ] || fail "another model: $(nll same second.valid)"
try train other.ini --tune run-moses --data.folder moses-run --run.folder tuned --model.dropout 0.3
[ "$got" = 0 ] || fail "train --tune: $(cat err)"
has err 'initialized from run-moses/best.safetensors: 28 of 28 tensors'
lacks err 'another dictionary'
try train other.ini --tune run-moses --data.folder words --run.folder foreign --train.updates 1
has err 'norma: warning: the data folder has another dictionary than the model; norma prepare --like run-moses writes one with that'
has tuned/config.ini 'dropout = 0.3 ; command line'
# The rates of the model, where neither the recipe nor the command line sets them.
train dropped --data.folder moses-run --model.dropout 0.35 --train.updates 1
try train lm.ini --tune dropped --data.folder moses-run --run.folder tuned-dropped --train.updates 1 --model.relu_dropout 0.05
[ "$got" = 0 ] || fail "tuning without rates: $(cat err)"
has tuned-dropped/config.ini 'dropout = 0.35 ; preset'
has tuned-dropped/config.ini 'relu_dropout = 0.05 ; command line'
awk -v a="$(nll tuned second.valid)" -v b="$(nll run-moses second.valid)" 'BEGIN { exit !(a < b - 1) }' ||
    fail "training did not help: $(nll tuned second.valid) after $(nll run-moses second.valid)"
# The options of the command come first; the run continues without the model.
train rms --tune run-moses --data.folder moses-run --model.norm rms
has rms/config.ini 'norm = rms ; command line'
mv run-moses away
try train other.ini --data.folder moses-run --run.folder tuned --train.updates 40 --resume=override --run.quiet
[ "$got" = 0 ] || fail "resume without the model: $(cat err)"
try train other.ini --tune run-moses --data.folder moses-run --run.folder tuned --train.updates 40 --resume=override --run.quiet
[ "$got" = 0 ] || fail "resume with --tune, without the model: $(cat err)"
lacks err 'recipe has changed'
refuses 2 'run.tune = moses: the run in tuned uses run-moses' train other.ini --tune moses --run.folder tuned --resume
refuses 3 'run-moses: No such file' train other.ini --tune run-moses --data.folder moses-run --run.folder no
mv away run-moses
write_recipe translate.ini run.task=translation model.preset=tiny
refuses 5 'a model of the task lm, but the recipe has the task translation' train translate.ini --tune run-moses --run.folder no

# The section [tune] of a recipe applies to further training only, in place of [size.N]; the model decides its structure.
{
    cat other.ini
    printf '[size.100000]\nmodel.preset = medium\nmodel.dropout = 0.4\ntrain.log_every = 3\n'
    printf '[tune]\nschedule.lr = 0.0003\nrun.tune_width = 32\nmodel.dropout = 0.15\nmodel.width = 80\n'
} >sections.ini
try train sections.ini --tune run-moses --data.folder moses-run --run.folder sections --train.updates 2
[ "$got" = 0 ] || fail "train with [tune]: $(cat err)"
has err 'further training of a model: the recipe sets run.tune_width = 32, model.width = 80, model.dropout = 0.15, schedule.lr = 0.0004'
has err 'tokens for training: the recipe sets train.log_every = 3'
has sections/config.ini 'lr = 0.0004 ; tune'
has sections/config.ini 'dropout = 0.15 ; tune'
has sections/config.ini 'width = 24 ; tune'
try train sections.ini --tune run-moses --data.folder moses-run --run.folder command --train.updates 1 --schedule.lr 0.01 --run.quiet
has command/config.ini 'lr = 0.01 ; command line'
printf '[tune]\nrun.tune_width = 8\n' | cat other.ini - >width.ini # the rate is not that of [tune]
try train width.ini --tune run-moses --data.folder moses-run --run.folder width --train.updates 1 --run.quiet
has width/config.ini 'lr = 0.005 ; file'
try train sections.ini --data.folder moses-run --run.folder untuned --train.updates 1 --run.quiet
[ "$got" = 0 ] || fail "train without --tune: $(cat err)"
has untuned/config.ini 'lr = 0.005 ; file'
has untuned/config.ini 'dropout = 0.4 ; size'
try train sections.ini --run.folder sections --resume=override --train.updates 3 # [tune] is not applied again
[ "$got" = 0 ] || fail "resume: $(cat err)"
lacks err 'recipe has changed'
has sections/config.ini 'lr = 0.0004 ; tune'
has sections/config.ini 'tune = run-moses ; command line'
printf '[tune]\nlr = 0.0004\n' | cat other.ini - >short.ini
refuses 2 'unknown option lr' train short.ini --tune run-moses --data.folder moses-run --run.folder no

# Without a recipe: that of the task of the model.
limits=(--train.updates 2 --train.seconds 0 --device.threads 1)
try train --tune run-moses --data.folder moses-run --run.folder default "${limits[@]}"
[ "$got" = 0 ] || fail "train without a recipe: $(cat err)"
has default/config.ini 'task = lm'
has default/config.ini 'width = 24 ; tune'
has err 'further training of a model: the recipe sets'
refuses 3 'nothing: No such file' train --tune nothing --data.folder moses-run --run.folder no
refuses 4 'not a safetensors file' train --tune second.train --data.folder moses-run --run.folder no

# Comparisons: one variant with the norms of the model, or other norms with its other parameters.
accepts written prepare --like run-moses --train second.train --valid second.valid --test first.valid --output split
common=(compare --tune run-moses --data.folder split --jobs 1 "${limits[@]}")
try "${common[@]}" --compare.folder rates --grid schedule.lr=0.001,0.01 --score-grid
[ "$got" = 0 ] || fail "compare --tune: $(cat err)"
has out 'tuned:schedule.lr=0.001'
has out 'tuned:schedule.lr=0.01'
grep -q 'schedule.lr=0.01, seed 1.* trained weights are identical' err && fail 'the learning rate has no effect'
has rates/tuned:schedule.lr=0.01-1/config.ini 'tune = run-moses ; command line'
try "${common[@]}" --compare.folder norms --norms own=recipe,rms,new=recipe:run.tune=
[ "$got" = 0 ] || fail "compare --tune --norms: $(cat err)"
has norms/own-1/config.ini 'norm = layer ; tune'
has norms/rms-1/config.ini 'norm = rms ; command line'
has norms/rms-1/config.ini 'width = 24 ; tune'
grep -q '^width = 24' norms/new-1/config.ini && fail 'run.tune= of a variant has no effect'
refuses 2 'own and layer have the same configuration' "${common[@]}" --compare.folder no --norms own=recipe,layer
refuses 3 'nothing: No such file' compare --tune nothing --data.folder moses-run --compare.folder no

# Translation, and a model of another toolkit.
make_reversed_pairs 100 20 4
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --bpe-merges 20 --joint false --output pairs 2>/dev/null
write_recipe mt.ini run.task=translation model.preset=tiny model.width=24 model.ff=32 model.share_embeddings=decoder train.updates=20 \
    train.max_tokens=256 train.score=false schedule.lr=0.005 schedule.warmup=4 device.threads=1
try train mt.ini --data.folder pairs --run.folder mt --run.quiet
make_reversed_pairs 80 10 9
accepts written prepare --like mt --train train --valid valid --output more # with the languages of the model
same pairs/dict.source.txt more/dict.source.txt
same pairs/dict.target.txt more/dict.target.txt
# The other direction needs one dictionary for both languages.
refuses 5 'mt has the languages in the other order, de to en, and a separate dictionary for each' \
    prepare --like mt --train train --valid valid --source-lang en --target-lang de --output swapped
"$NORMA" prepare --train train --source-lang de --target-lang en --bpe-merges 20 --output joint 2>/dev/null
accepts written prepare --like joint --train train --valid valid --source-lang en --target-lang de --output swapped
try train mt.ini --tune mt --data.folder more --run.folder mt-tuned --run.quiet
[ "$got" = 0 ] || fail "train --tune mt: $(cat err)"
input=valid.de try translate mt-tuned
[ "$got" = 0 ] && [ "$(wc -l <out)" = 10 ] || fail "translate mt-tuned: $(cat err)"
theirs=$SOURCE/tests/interchange/huggingface
"$NORMA" convert "$theirs/qwen3" --from huggingface -o qwen3.safetensors 2>/dev/null
for _ in 1 2 3 4 5 6; do cat "$theirs/text.txt"; done >tokens
accepts written prepare --like qwen3.safetensors --train tokens --valid "$theirs/text.txt" --output theirs
has err ' 0 unknown'
train qwen3 --tune qwen3.safetensors --data.folder theirs --train.max_tokens 64
awk -v a="$(nll qwen3 tokens)" -v b="$(nll qwen3.safetensors tokens)" 'BEGIN { exit !(a < b) }' ||
    fail "training did not help: $(nll qwen3 tokens) after $(nll qwen3.safetensors tokens)"
has qwen3/config.ini 'qk_norm = head ; tune'

# Tokens that must not be generated begin as rare ones: with label smoothing, a logit of -1e9 would be the loss.
"$NORMA" convert "$SOURCE/tests/interchange/ctranslate2" --from ctranslate2 -o ct2.safetensors 2>/dev/null
printf 'hund singt .\nkatze springt\n' >colors.de
printf 'dog sings .\ncat jumps\n' >colors.en
accepts written prepare --like ct2.safetensors --train colors --source-lang de --target-lang en --output colors
try train --tune ct2.safetensors --data.folder colors --run.folder ct2 --train.label_smoothing 0.1 --train.updates 1 --train.log_every 1 \
    --train.score false --run.quiet --device.threads 1
[ "$got" = 0 ] || fail "train --tune ct2: $(cat err)"
grep -q '"loss":[1-9]\?[0-9]\.' ct2/log.jsonl || fail "the first loss: $(grep -o '"loss":[^,]*' ct2/log.jsonl)"

# --- classifiers and taggers: new labels, and the words of both texts -------------------------------------------------------
for i in $(seq 60); do
    printf 'up\tGreat Zoo, fine day %d\ndown\tawful Fog and rain %d\n' $((i % 9)) $((i % 7))
done >weather.tsv
for i in $(seq 40); do
    printf 'good\tfine soup %d\nbad\tawful Soup\ndown\train again\n' $((i % 3))
done >soup.tsv
limits=(--train.epochs 2 --train.max_tokens 256 --device.threads 1 --run.quiet --data.valid_fraction 0.2)
try train classify --data.train weather.tsv --run.folder weather --data.tokenizer moses "${limits[@]}"
[ "$got" = 0 ] || fail "train a classifier: $(cat err)"
soup=(train --tune weather --data.train soup.tsv "${limits[@]}")
try "${soup[@]}" --run.folder soup
[ "$got" = 0 ] || fail "tune a classifier: $(cat err)"
dictionary() { strings -n 3 "$1/last.safetensors" | grep -o '"dict.txt":"[^"]*"' | sed 's/\\n/\n/g'; }
dictionary soup >entries
grep -q '^Zoo 0$' entries || fail "the dictionary of the tuned classifier lacks words of the model: $(cat entries)"
grep -q '^Soup [1-9]' entries || fail "the dictionary of the tuned classifier lacks new words: $(cat entries)"
has err '1 of 3 entries of output.weight'
has soup/config.ini 'tokenizer = moses ; tune'
has <("$NORMA" classify soup <<<'awful Fog' --probabilities) $'label\tbad\tdown\tgood'
try "${soup[@]}" --run.folder lower --data.tokenizer basic_english
[ "$got" = 0 ] && grep -qF 'tokenizer = basic_english ; command line' lower/config.ini || fail "a tokenizer of the command line: $(cat err)"
# The run continues without the model, and with the same dictionary; inspect reads it too.
cp -r soup straight
try "${soup[@]}" --run.folder straight --train.epochs 3 --resume=override
cp -r weather kept && rm -r weather
try "${soup[@]}" --run.folder soup --train.epochs 3 --resume=override
[ "$got" = 0 ] || fail "resume a tuned classifier without its model: $(cat err)"
same <(tail -c 4000 straight/last.safetensors) <(tail -c 4000 soup/last.safetensors)
accepts 'last layer: enc.' inspect soup --measure tid
for i in $(seq 30); do
    printf 'Ann\tS-PER\nsaw\tO\nRome\tS-LOC\n%d\tO\n\nvia\tO\nParis\tS-LOC\n.\tO\n\n' "$i"
done >first.tags
for i in $(seq 20); do
    printf 'Eva\tB-HUMAN\nMay\tI-HUMAN\nsaw\tO\nOslo\tB-LOC\n%d\tO\n\nno\tO\none\tO\n\n' "$i"
done >second.tags
try train tag --data.train first.tags --run.folder ner --data.scheme bmeso --data.lowercase false "${limits[@]}"
[ "$got" = 0 ] || fail "train a tagger: $(cat err)"
try train --tune ner --data.train second.tags --run.folder mine "${limits[@]}"
[ "$got" = 0 ] || fail "tune a tagger: $(cat err)"
has mine/config.ini 'scheme = bmeso ; tune'
has mine/config.ini 'lowercase = false ; tune'
has err '5 of 9 entries of output.weight' # O and those of LOC
strings -n 3 mine/last.safetensors | grep -o '"words.txt":"[^"]*"' | sed 's/\\n/\n/g' >entries
for word in Rome Oslo; do
    grep -qx "$word" entries || fail "the words of the tuned tagger lack $word: $(cat entries)"
done
has <("$NORMA" tag mine <<<'Eva saw Rome' --json) '"tags"'
echo "e2e_tune: passed"
