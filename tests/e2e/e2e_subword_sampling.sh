#!/bin/bash
# Segmentations of the training text that are sampled anew for each epoch: BPE-dropout and SentencePiece sampling.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

make_pairs train 300 1
make_pairs valid 30 2
common=(--train train --valid valid --source-lang de --target-lang en)
cat >tiny.ini <<'END'
[run]
task = translation
[model]
preset = tiny
width = 16
ff = 32
[train]
max_tokens = 256
epochs = 3
validate_every = 1000
score = false
END

# --- BPE: the dictionary has every subword that can be sampled ------------------------------------------------------------
accepts written prepare "${common[@]}" --bpe-merges 60 --output plain
accepts written prepare "${common[@]}" --bpe-merges 60 --subword-sampling true --output bpe
[ "$(wc -l <plain/dict.source.txt)" -lt "$(wc -l <bpe/dict.source.txt)" ] || fail 'the dictionary has no more subwords'
for merged in $(sed 1d bpe/codes.bpe | tr -d ' ' | grep -v '</w>'); do
    grep -qF "$merged@@ " bpe/dict.source.txt || fail "$merged@@ is not in the dictionary"
done
norma() { "$NORMA" subword --like "$1" --side source --format tokenized train.de; }
norma plain >a
norma bpe >b
same a b

refuses 2 '--subword-sampling true' train tiny.ini --data.folder plain --data.subword_dropout 0.1
refuses 2 'unigram' train tiny.ini --data.folder bpe --data.subword_sampling 0.1
refuses 2 'no subword sampling' train tiny.ini --data.folder bpe --data.subword_nbest 5
refuses 2 'mask_words' train tiny.ini --data.folder bpe --data.subword_dropout 0.1 --data.mask_words true
refuses 2 'min_count' prepare "${common[@]}" --subword-sampling true --min-count 5 --output no

# The sampled segmentation does not depend on threads and interruptions, and differs from that of training without
# dropout.
run() { # FOLDER OPTION...
    local folder=$1
    shift
    try train tiny.ini --run.folder "$folder" --data.folder bpe --run.quiet "$@"
    [ "$got" = 0 ] || fail "train $*: $(cat err)"
}
values() { # FOLDER: the log without values that differ between runs
    sed -n 's/.*"type":"train","update":\([0-9]*\).*"loss":\([0-9.]*\).*"tokens":\([0-9]*\).*/\1 \2 \3/p' "$1/log.jsonl"
}
dropped=(--data.subword_dropout 0.2 --train.log_every 1)
run none --train.log_every 1
run one "${dropped[@]}" --device.threads 1
run two "${dropped[@]}" --device.threads 2
values one >a
values two >b
same a b
values none >b
! cmp -s a b || fail 'BPE-dropout changes nothing'
[ "$(awk 'END { print $3 }' a)" -gt "$(awk 'END { print $3 }' b)" ] || fail 'BPE-dropout does not make longer sequences'
run stopped "${dropped[@]}" --train.updates 17 --train.save_every 17
run stopped --resume --train.updates 0
values stopped >b
same a b

# --- SentencePiece ----------------------------------------------------------------------------------------------------------
if command -v spm_train >/dev/null; then
    accepts written prepare "${common[@]}" --tokenizer sentencepiece --spm-vocab-size 330 --output unigram
    accepts written prepare "${common[@]}" --tokenizer sentencepiece --spm-type bpe --spm-vocab-size 330 --output merges
    for how in 'unigram --data.subword_sampling 0.2' 'unigram --data.subword_sampling 0.2 --data.subword_nbest 8' \
        'merges --data.subword_dropout 0.2'; do
        read -r -a words <<<"$how"
        for threads in 1 2; do
            rm -rf run$threads
            try train tiny.ini --run.folder run$threads --data.folder "${words[@]}" --train.log_every 1 --device.threads $threads
            [ "$got" = 0 ] || fail "train $how: $(cat err)"
            values run$threads >spm$threads
        done
        same spm1 spm2
    done
    refuses 2 'type bpe' train tiny.ini --data.folder unigram --data.subword_dropout 0.1
fi

# --- language models ----------------------------------------------------------------------------------------------------------
make_sentences lm.txt 300 1
accepts written prepare --format text --train lm.txt --valid lm.txt --bpe-merges 30 --subword-sampling true --output lm
sed 's/translation/lm/; s/^preset.*/context = 16/' tiny.ini >lm.ini
for threads in 1 2; do
    try train lm.ini --run.folder lm$threads --data.folder lm --data.subword_dropout 0.2 --train.log_every 1 --device.threads $threads
    [ "$got" = 0 ] || fail "train lm: $(cat err)"
    values lm$threads >lm.$threads
done
same lm.1 lm.2
echo "$cases cases"
