#!/usr/bin/env bash
# Translations by CTranslate2 and by norma in turn, with the same weights and the same lines of BPE units.
#     bench/peers/compare_decode.sh RUN UNITS_FILE [ROUNDS [BEAM [LENGTH]]]
# LENGTH forces every translation to that many units. PYTHON is the interpreter that has ctranslate2, NORMA the program, TYPE
# float32 or int8. CTranslate2's time is without loading; norma's is that of the process less that of the process without a line.
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
rival=(--beam "$beam" --type "$type")
if [ -n "$length" ]; then
    search+=(--decode.max_length_a 0 --decode.max_length_b "$length" --decode.min_length "$length")
    rival+=(--length "$length")
fi
now() { date +%s.%N; }
ours() { # NAME [OPTION ...]: tokens, seconds
    local name=$1 start middle end
    shift
    start=$(now)
    "$norma" translate "$run" "${search[@]}" "$@" --input /dev/null --output "$scratch/none" 2>/dev/null
    middle=$(now)
    "$norma" translate "$run" "${search[@]}" "$@" --input "$units" --output "$scratch/ours" 2>/dev/null
    end=$(now)
    awk -v name="$name" -v load="$(echo "$middle - $start" | bc)" -v all="$(echo "$end - $middle" | bc)" \
        '{ n += NF + 1 } END { printf "%s: %d tokens, %.2f s, %.0f tokens/s\n", name, n, all - load, n / (all - load) }' "$scratch/ours"
}
theirs() { # NAME OPTION ...
    echo "$1: $("$python" "$here/ct2_decode.py" "$scratch/model" "$units" "$scratch/theirs" "${rival[@]}" "${@:2}")"
}
for ((round = 1; round <= rounds; round++)); do
    theirs "batches, two workers of one thread" --batch 32 --workers 2 --threads 1
    theirs "batches, one worker of two threads" --batch 32 --workers 1 --threads 2
    ours "norma, batches, two threads" --device.threads 2
    echo "lines that differ: $(diff "$scratch/theirs" "$scratch/ours" | grep -c '^<' || true) of $(wc -l <"$units")"
    theirs "one by one, one worker of one thread" --batch 1 --workers 1 --threads 1
    theirs "one by one, one worker of two threads" --batch 1 --workers 1 --threads 2
    theirs "one by one, two workers of one thread" --batch 1 --workers 2 --threads 1
    ours "norma, one by one, one thread" --device.threads 1 --decode.batch_tokens 1
    ours "norma, one by one, two threads" --device.threads 2 --decode.batch_tokens 1
done
