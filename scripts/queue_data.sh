#!/bin/sh
# Makes the data folders of results/queue from the published sets (docs/reproduce.md, "Data").
#
#     scripts/queue_data.sh iwslt14 TMP      data/iwslt14-4k: every 10th training pair, every 7th of the others
#     scripts/queue_data.sh iwslt14-40k TMP  data/iwslt14-40k: all 40,644 pairs, every 7th for validation, whole test
#     scripts/queue_data.sh en-vi FOLDER     data/iwslt15-en-vi: all pairs of train.*, tst2012.* and tst2013.*
#     scripts/queue_data.sh ptb FOLDER       data/ptb-5k: every 8th training line; validation and test whole
#     scripts/queue_data.sh tears-NAME FOLDER  data/tears-NAME: 10,000 pairs for table 3 of Transformers without
#                                        Tears; NAME: iwslt14 (FOLDER is TMP), ddtp, lohelp (de-en), bible (es-en)
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
# The same for Transformers without Tears: source, target, tokenizer, data folder.
prepare_tears() {
    "$norma" prepare --train "$work/train" --valid "$work/valid" --test "$work/test" --source-lang "$1" \
        --target-lang "$2" --tokenizer "$3" --special-ids tears --dict-multiple 0 --bpe-merges 3000 \
        --max-length 200 --ratio 0 --output "$4"
}
# Every N-th line of a folder's sets, into the work folder: folder, source, target, N of train, valid, test.
sample() {
    for side in "$2" "$3"; do
        every "$4" "$1/train.$side" > "$work/train.$side"
        every "$5" "$1/valid.$side" > "$work/valid.$side"
        every "$6" "$1/test.$side" > "$work/test.$side"
    done
}
every() { awk -v n="$1" '(NR - 1) % n == 0' "$2"; }
# A set with English as the target: name, folder, source, tokenizer, N of train, valid, test.
tears() {
    sample "$2" "$3" en "$5" "$6" "$7"
    prepare_tears "$3" en "$4" "data/tears-$1"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "${1:-}" in
iwslt14)
    sample "$2" de en 10 7 7
    prepare_pairs 2000 data/iwslt14-4k
    ;;
iwslt14-40k)
    sample "$2" de en 1 7 1
    prepare_pairs 4000 data/iwslt14-40k
    ;;
en-vi)
    for side in en vi; do
        cp "$2/train.$side" "$work"
        cp "$2/tst2012.$side" "$work/valid.$side"
        cp "$2/tst2013.$side" "$work/test.$side"
    done
    prepare_tears en vi none data/iwslt15-en-vi
    ;;
tears-iwslt14) tears iwslt14 "$2" de none 4 7 7 ;;
tears-bible) tears bible "$2" es moses 3 1 1 ;;
tears-ddtp) tears ddtp "$2" de moses 4 2 2 ;;
tears-lohelp) tears lohelp "$2" de moses 3 2 2 ;;
ptb)
    every 8 "$2/train.txt" > "$work/train.txt"
    "$norma" prepare --format text --train "$work/train.txt" --valid "$2/valid.txt" --test "$2/test.txt" \
        --tokenizer none --bpe-merges 0 --output data/ptb-5k
    ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
