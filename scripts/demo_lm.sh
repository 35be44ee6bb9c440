#!/usr/bin/env bash
# The language model demo: four variants of a small model are trained on the King James Bible for a few minutes, one
# table compares their perplexities, and the first one generates text.
#     scripts/demo_lm.sh PROGRAM
# DEMO_UPDATES: updates of each training run (default 2,400). The runs are kept in runs/demo-lm-DEMO_UPDATES, so an
# interrupted demo continues.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
updates=${DEMO_UPDATES:-2400}
corpus=data/demo-lm-text
folder=data/demo-lm

scripts/demo_lm_corpus.sh "$corpus"
if ! [ "$folder/data.ini" -nt "$corpus/complete" ]; then
    "$program" prepare --format text --train "$corpus/train.txt" --valid "$corpus/valid.txt" --test "$corpus/test.txt" \
        --source-lang en --escape false --bpe-merges 3000 --output "$folder"
fi
"$program" compare recipes/demo-lm.ini --norms layer,scale,batch,power --data.folder "$folder" \
    --train.updates "$updates" --compare.folder "runs/demo-lm-$updates"
echo
echo "Three samples of the LayerNorm model:"
"$program" generate "runs/demo-lm-$updates/layer-1" --prompt "And the LORD said unto" --temperature 0.8 --top-p 0.9 \
    --lines 1 --samples 3
