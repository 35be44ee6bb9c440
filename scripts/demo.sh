#!/usr/bin/env bash
# The demo: real German-English sentences are tokenized, four variants of one small Transformer are trained on them, one table
# compares them, and a page shows their curves. The number of updates is fixed, so the scores are the same everywhere.
#     scripts/demo.sh PROGRAM
# DEMO_UPDATES: updates of each training run (default 500). The runs are kept in runs/demo-DEMO_UPDATES, so an interrupted
# demo continues.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
updates=${DEMO_UPDATES:-500}
corpus=data/demo
folder=data/demo-de-en

scripts/demo_corpus.sh "$corpus"
if ! [ "$folder/data.ini" -nt "$corpus/complete" ]; then
    "$program" prepare --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" \
        --source-lang de --target-lang en --ratio 1.5 --bpe-merges 4000 --output "$folder"
fi
"$program" compare recipes/demo.ini --norms layer,scale+fix,batch,power --data.folder "$folder" --jobs "$(nproc)" \
    --train.updates "$updates" --compare.folder "runs/demo-$updates"
"$program" report "runs/demo-$updates"/*-1 -o "runs/demo-$updates/report.html"
cat <<TEXT

Open runs/demo-$updates/report.html in your browser: curves, gradients, and what the instruments measured.
Next:
  $1 translate runs/demo-$updates/scale+fix-1 <data/demo/test.de | head
  $1 compare recipes/demo.ini --norms layer,power --seeds 3 --train.updates 10000 --data.folder $folder
TEXT
[ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || xdg-open "runs/demo-$updates/report.html" >/dev/null 2>&1 || true
