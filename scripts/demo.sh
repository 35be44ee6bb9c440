#!/usr/bin/env bash
# The demonstration: real German-English sentences become tokens, five variants of one Transformer train on them for
# a few minutes, and one table compares them.
#     scripts/demo.sh PROGRAM
# DEMO_SECONDS: at most so long trains each variant (default 150; as many train at once as there are cores for). The runs are kept in
# runs/demo-DEMO_SECONDS: interrupted, the demonstration goes on there.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
seconds=${DEMO_SECONDS:-150}
corpus=data/demo
folder=data/demo-de-en

scripts/demo_corpus.sh "$corpus"
if ! [ "$folder/data.ini" -nt "$corpus/complete" ]; then
    "$program" prepare --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" \
        --source-lang de --target-lang en --bpe-merges 4000 --output "$folder"
fi
"$program" compare recipes/demo.ini --norms layer,scale+fix,batch,power,rbn --data.folder "$folder" \
    --train.seconds "$seconds" --compare.folder "runs/demo-$seconds"
