#!/usr/bin/env bash
# Learns and applies BPE with fastBPE and norma alternately on the same text: user and wall time of each round in
# seconds, and medians.
#     bench/peers/compare_bpe.sh FASTBPE TEXT [MERGES [ROUNDS]]
# FASTBPE is the program of https://github.com/glample/fastBPE, also in PyPI's source package fastBPE, built by
#     g++ -std=c++11 -pthread -O3 fastBPE/main.cc -IfastBPE -o fast
# It uses one thread per available core to apply, so one thread is measured with taskset. TEXT should have single spaces between
# words: fastBPE keeps repeated spaces, norma and subword-nmt do not.
# BENCH is norma-bench-text.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fast=$(realpath "$1") text=$(realpath "$2") merges=${3:-10000} rounds=${4:-5}
bench=$(realpath "${BENCH:-$here/../../build/norma-bench-text}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# timed NAME COMMAND...: a line "NAME user wall" to the results
timed() {
    local name=$1
    shift
    TIMEFORMAT="$name %U %R"
    { time "$@" >out 2>err; } 2>>results || { cat err >&2 && exit 1; }
    tail -n 1 results
}

for ((round = 1; round <= rounds; round++)); do
    timed learn-fastbpe "$fast" learnbpe "$merges" "$text"
    cp out codes
    timed learn-norma "$bench" learn "$merges" "$text" codes.norma
    timed apply-fastbpe-1 taskset -c 0 "$fast" applybpe cut.fastbpe "$text" codes
    timed apply-norma-1 "$bench" apply codes "$text" cut.norma 1
    timed apply-fastbpe-2 taskset -c 0,1 "$fast" applybpe cut.fastbpe "$text" codes
    timed apply-norma-2 "$bench" apply codes "$text" cut.norma 2
    cmp cut.fastbpe cut.norma || echo "the outputs differ: are there double spaces in the text?"
done
echo "medians: user, wall"
for name in learn-fastbpe learn-norma apply-fastbpe-1 apply-norma-1 apply-fastbpe-2 apply-norma-2; do
    for column in 2 3; do
        awk -v name=$name -v column=$column '$1 == name { print $column }' results | sort -n |
            awk '{ v[NR] = $1 } END { printf "%s ", v[int((NR + 1) / 2)] }'
    done | sed "s/^/$name /"
    echo
done
