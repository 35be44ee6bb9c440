#!/bin/sh
# Makes the data folders of results/queue from the published sets (docs/reproduce.md, "Data").
#
#     scripts/queue_data.sh iwslt14 TMP      data/iwslt14-4k: every 10th training pair, every 7th of the others
#     scripts/queue_data.sh iwslt14-40k TMP  data/iwslt14-40k: all 40,644 pairs, every 7th for validation, whole test
#     scripts/queue_data.sh en-vi FOLDER     data/iwslt15-en-vi: all pairs of train.*, tst2012.* and tst2013.*
#     scripts/queue_data.sh ptb FOLDER       data/ptb-5k: every 8th training line; validation and test whole
#
# TMP holds train.de, train.en, valid.*, test.* as fairseq's prepare-iwslt14.sh leaves them before BPE; FOLDER
# holds those of IWSLT15 (9,148 training pairs in the archived runs), or train.txt, valid.txt and test.txt of
# Mikolov's Penn Treebank. NORMA is the program, default build/norma.
set -eu
norma=${NORMA:-build/norma}
# Prepares the pairs of the work folder: number of merges, data folder.
prepare_pairs() {
    "$norma" prepare --train "$work/train" --valid "$work/valid" --test "$work/test" --source-lang de \
        --target-lang en --tokenizer none --max-length 0 --ratio 0 --bpe-merges "$1" --output "$2"
}
every() { awk -v n="$1" 'NR % n == 1' "$2"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "${1:-}" in
iwslt14)
    for side in de en; do
        every 10 "$2/train.$side" > "$work/train.$side"
        every 7 "$2/valid.$side" > "$work/valid.$side"
        every 7 "$2/test.$side" > "$work/test.$side"
    done
    prepare_pairs 2000 data/iwslt14-4k
    ;;
iwslt14-40k)
    for side in de en; do
        cp "$2/train.$side" "$2/test.$side" "$work"
        every 7 "$2/valid.$side" > "$work/valid.$side"
    done
    prepare_pairs 4000 data/iwslt14-40k
    ;;
en-vi)
    for side in en vi; do
        cp "$2/train.$side" "$2/tst2012.$side" "$2/tst2013.$side" "$work"
    done
    "$norma" prepare --train "$work/train" --valid "$work/tst2012" --test "$work/tst2013" --source-lang en \
        --target-lang vi --tokenizer none --special-ids tears --dict-multiple 0 --bpe-merges 3000 \
        --max-length 200 --ratio 0 --output data/iwslt15-en-vi
    ;;
ptb)
    every 8 "$2/train.txt" > "$work/train.txt"
    "$norma" prepare --format text --train "$work/train.txt" --valid "$2/valid.txt" --test "$2/test.txt" \
        --tokenizer none --bpe-merges 0 --output data/ptb-5k
    ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
