#!/usr/bin/env bash
# The demonstration of language modeling: four variants of a small model learn from the King James Bible for a few
# minutes, one table compares their perplexities, and the first writes on.
#     scripts/demo_lm.sh PROGRAM
# DEMO_SECONDS: at most so long trains each variant (default 120; as many train at once as there are cores for). The runs are kept in
# runs/demo-lm-DEMO_SECONDS: interrupted, the demonstration goes on there.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
seconds=${DEMO_SECONDS:-120}
corpus=data/demo-lm-text
folder=data/demo-lm

scripts/demo_lm_corpus.sh "$corpus"
if ! [ "$folder/data.ini" -nt "$corpus/complete" ]; then
    "$program" prepare --format text --train "$corpus/train.txt" --valid "$corpus/valid.txt" --test "$corpus/test.txt" \
        --source-lang en --escape false --bpe-merges 3000 --output "$folder"
fi
"$program" compare recipes/demo-lm.ini --norms layer,scale,batch,power --data.folder "$folder" \
    --train.seconds "$seconds" --compare.folder "runs/demo-lm-$seconds"
echo
echo "What the model with LayerNorm makes of it:"
"$program" generate "runs/demo-lm-$seconds/layer-1" --prompt "And the LORD said unto" --temperature 0.8 --top-p 0.9 \
    --lines 1 --samples 3
