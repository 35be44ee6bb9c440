#!/usr/bin/env bash
# Checks that two builds of the program, by different compilers or for different processors, compute bitwise identical
# results.
#     scripts/same_results.sh PROGRAM OTHER         each may be a command, such as "qemu-aarch64-static -L ROOT build-arm64/norma"
# Small models are trained by both (PROGRAM writes the data), on the backend ref, at the CPU level base, and at the best level of
# each in float and bf16; neither may be base. The models of PROGRAM translate, classify and score text in float, int8 and bf16.
# Ends with "N passed, N failed".
set -uo pipefail
[ $# -eq 2 ] || { echo "usage: scripts/same_results.sh PROGRAM OTHER" >&2; exit 2; }
SOURCE=$(cd "$(dirname "$0")/.." && pwd)
programs=("$1" "$2")
for i in 0 1; do # paths, as the commands run in another folder
    words=()
    for word in ${programs[i]}; do
        [ -e "$word" ] && word=$(realpath "$word")
        words+=("$word")
    done
    programs[i]=${words[*]}
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive NORMA=${programs[0]} SOURCE
# shellcheck source=tests/e2e/corpora.sh
. "$SOURCE/tests/e2e/corpora.sh"
# shellcheck source=tests/e2e/library_models.sh
. "$SOURCE/tests/e2e/library_models.sh"
make_library_runs >log 2>&1 || { cat log >&2; exit 1; }
head -n 8 train.de >in.de
passed=0 failed=0

same() { # name, then each program runs the rest and writes to standard output
    local name=$1 i
    shift
    for i in 0 1; do
        # shellcheck disable=SC2086 # a command of several words
        (PROGRAM=$i && export PROGRAM && "$@" ${programs[i]}) >"out.$i" 2>"err.$i" || echo "failed: $(tail -n 1 "err.$i")" >>"out.$i"
    done
    if cmp -s out.0 out.1 && [ -s out.0 ] && ! grep -q '^failed: ' out.0; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name: results differ" >&2
        grep -h '^failed: ' out.0 out.1 >&2
    fi
}

# The bytes after the header of a safetensors file, which contains the CPU level.
tensors() { perl -e 'open F, "<:raw", $ARGV[0] or die; read F, my $n, 8; seek F, 8 + unpack("Q<", $n), 0; local $/; print <F>' "$1" | sha256sum; }

train() { # norm, options of the device as one word, program ...
    local norm=$1 device=$2
    shift 2
    rm -rf "trained-$PROGRAM"
    # shellcheck disable=SC2086
    "$@" train translate.ini --run.folder "trained-$PROGRAM" --run.quiet --train.updates 6 --model.norm "$norm" $device >&2 || return 1
    tensors "trained-$PROGRAM/last.safetensors"
}
infer() { # command, options of the device as one word, arguments; the program is the last words
    local command=$1 device=$2 model=$3 text=$4
    shift 4
    # shellcheck disable=SC2086
    if [ "$command" = classify ]; then "$@" "$command" "$model" "$text" $device; else "$@" "$command" "$model" "$text" $device --json; fi
}

for device in "--device.backend ref" "--device.isa base" "--device.isa auto" "--device.isa auto --device.precision bf16"; do
    for norm in layer batch power rbn mabn renorm seed progressive un; do
        same "training with $norm, $device" train $norm "$device"
    done
done
for device in "--device.backend ref" "--device.isa "{base,auto}{," --device.precision int8"," --device.precision bf16"}; do
    same "translate $device" infer translate "$device" run-translate in.de
    same "perplexity $device" infer perplexity "$device" run-lm lm.txt
    same "classify $device" infer classify "$device" run-classify reviews.txt
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
