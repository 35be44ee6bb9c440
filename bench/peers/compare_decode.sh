#!/usr/bin/env bash
# Translates the same lines of BPE subwords with the same weights by CTranslate2 and norma alternately.
#     bench/peers/compare_decode.sh RUN SUBWORD_FILE [ROUNDS [BEAM [LENGTH]]]
# LENGTH forces the length of every translation, in subwords. PYTHON: an interpreter with ctranslate2; NORMA: the program; TYPE:
# float32 or int8. Loading time is not included; for norma it is the time of a run with empty input.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=$1 units=$2 rounds=${3:-5} beam=${4:-4} length=${5:-}
norma=${NORMA:-$here/../../build/norma} python=${PYTHON:-python3} type=${TYPE:-float32}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/model"
"$python" "$here/ct2_convert.py" "$run/best.safetensors" "$scratch/model"
search=(--decode.beam "$beam" --input-format subword --output-format subword)
[ "$type" = int8 ] && search+=(--device.precision int8)
baseline=(--beam "$beam" --type "$type")
if [ -n "$length" ]; then
    search+=(--decode.max_length_a 0 --decode.max_length_b "$length" --decode.min_length "$length")
    baseline+=(--length "$length")
fi
now() { date +%s.%N; }
run_norma() { # NAME [OPTION ...]: tokens, seconds
    local name=$1 start middle end
    shift
    start=$(now)
    "$norma" translate "$run" "${search[@]}" "$@" /dev/null --output "$scratch/none" 2>/dev/null
    middle=$(now)
    "$norma" translate "$run" "${search[@]}" "$@" "$units" --output "$scratch/norma" 2>/dev/null
    end=$(now)
    awk -v name="$name" -v load="$(echo "$middle - $start" | bc)" -v all="$(echo "$end - $middle" | bc)" \
        '{ n += NF + 1 } END { printf "%s: %d tokens, %.2f s, %.0f tokens/s\n", name, n, all - load, n / (all - load) }' "$scratch/norma"
}
theirs() { # NAME OPTION ...
    echo "$1: $("$python" "$here/ct2_decode.py" "$scratch/model" "$units" "$scratch/baseline" "${baseline[@]}" "${@:2}")"
}
for ((round = 1; round <= rounds; round++)); do
    theirs "batches, two workers of one thread" --batch 32 --workers 2 --threads 1
    theirs "batches, one worker of two threads" --batch 32 --workers 1 --threads 2
    run_norma "norma, batches, two threads" --device.threads 2
    echo "lines that differ: $(diff "$scratch/baseline" "$scratch/norma" | grep -c '^<' || true) of $(wc -l <"$units")"
    theirs "batch size 1, one worker of one thread" --batch 1 --workers 1 --threads 1
    theirs "batch size 1, one worker of two threads" --batch 1 --workers 1 --threads 2
    theirs "batch size 1, two workers of one thread" --batch 1 --workers 2 --threads 1
    run_norma "norma, batch size 1, one thread" --device.threads 1 --decode.batch_tokens 1
    run_norma "norma, batch size 1, two threads" --device.threads 2 --decode.batch_tokens 1
done
