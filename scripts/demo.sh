#!/usr/bin/env bash
# The demo: real German-English sentences are tokenized, five variants of one Transformer are trained on them for a few
# minutes, and one table compares them. The training runs have a fixed number of updates, so the scores are the same everywhere.
#     scripts/demo.sh PROGRAM
# DEMO_UPDATES: updates of each training run (default 1,500). The runs are kept in runs/demo-DEMO_UPDATES, so an interrupted
# demo continues.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
updates=${DEMO_UPDATES:-1500}
corpus=data/demo
folder=data/demo-de-en

scripts/demo_corpus.sh "$corpus"
if ! [ "$folder/data.ini" -nt "$corpus/complete" ]; then
    "$program" prepare --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" \
        --source-lang de --target-lang en --ratio 1.5 --bpe-merges 4000 --output "$folder"
fi
"$program" compare recipes/demo.ini --norms layer,scale+fix,batch,power,rbn --data.folder "$folder" \
    --train.updates "$updates" --compare.folder "runs/demo-$updates"
cat <<TEXT

Next steps:
  build/norma translate runs/demo-$updates/scale+fix-1 <data/demo/test.de | head
  build/norma report runs/demo-$updates/*-1 -o demo.html        # every figure on one page (needs gnuplot)
  build/norma compare recipes/demo.ini --norms layer,power --seeds 3 --train.updates 10000 --data.folder $folder
TEXT
