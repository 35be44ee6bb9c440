#!/usr/bin/env bash
# Measures training steps of PyTorch and of norma alternately, on the same data folder: throughput and peak memory of
# each round.
#     bench/peers/compare_step.sh DATA_FOLDER PRESET MAX_TOKENS [ROUNDS [STEPS]]
# PRECISION=bf16: both in bf16, PyTorch with autocast. TORCH: further arguments of torch_step.py, such as "--model written".
# PYTHON: an interpreter with PyTorch; NORMA: the program; both use all cores. MARIAN: an interpreter with pymarian, to include
# Marian.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 preset=$2 max_tokens=$3 rounds=${4:-5} steps=${5:-8}
norma=${NORMA:-$here/../../build/norma} python=${PYTHON:-python3} precision=${PRECISION:-float}
read -ra torch <<<"${TORCH:-}"
[ "$precision" = float ] || torch+=("--$precision")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Training data only: with validation data a run would end with a validation. The list of checksums names that data.
mkdir "$scratch/data"
for file in "$folder"/*; do
    case $file in *valid* | */checksums.*) ;; *) ln -s "$(realpath "$file")" "$scratch/data/" ;; esac
done
printf '[data]\nfolder = %s\n[model]\npreset = %s\n[train]\nmax_tokens = %s\nupdates = %s\nlog_every = 1\n[optim]\nbeta2 = 0.98\n' \
    "$scratch/data" "$preset" "$max_tokens" "$steps" >"$scratch/recipe.ini"
# Target tokens/s of the updates after the first, whose batches have different numbers of target tokens.
speed() {
    sed -n 's/.*"tokens":\([0-9]*\),"tokens_per_second":\([0-9.]*\).*/\1 \2/p' "$1" |
        awk 'NR > 1 { tokens += $1 - before; seconds += ($1 - before) / $2 } { before = $1 } END { print tokens / seconds }'
}
peak() { awk '/VmHWM/ { print int($2 / 1024) }' "$1"; }
for ((round = 1; round <= rounds; round++)); do
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)} "$python" "$here/torch_step.py" "$folder" --preset "$preset" \
        --max-tokens "$max_tokens" --steps "$steps" "${torch[@]}"
    [ -z "${MARIAN:-}" ] || "$MARIAN" "$here/marian_step.py" "$folder" --preset "$preset" --max-tokens "$max_tokens"
    rm -rf "$scratch/run"
    "$norma" train "$scratch/recipe.ini" --run.folder "$scratch/run" --device.precision "$precision" --quiet 2>"$scratch/log" &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        cp "/proc/$pid/status" "$scratch/status" 2>/dev/null || true
        sleep 0.2
    done
    wait $pid || { cat "$scratch/log" >&2 && exit 1; }
    echo "norma: $(printf %.0f "$(speed "$scratch/run/log.jsonl")") target tokens/s, peak $(peak "$scratch/status") MiB"
done
