#!/usr/bin/env bash
# Everything that a GPU can tell about Norma, in about ten minutes; results are written after every part, so that a run that is
# cut off leaves them.
#     scripts/gpu.sh DIR [BUILD]      BUILD: a build folder with tests and benchmarks, default: build
# DIR/NN-PART.txt has the output of a part, DIR/gpu.tsv a line per part (name, exit code, seconds), DIR/*.json the measurements.
# First the bits and the tests, because a wrong result has no speed. BACKEND=emulated TINY=1 shows on a machine without a GPU that
# the script works. PYTHON: an interpreter with PyTorch for the same measurements.
# Exit code: 0 the hashes and tests are right, 1 one is not, 2 wrong arguments, 7 there is no GPU.
# Functions are called by bash -c, because timeout runs programs only.
# shellcheck disable=SC2317
set -uo pipefail
[ $# -ge 1 ] || {
    sed -n '4p' "$0" >&2
    exit 2
}
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
build=$(cd "${2:-$source/build}" && pwd) || exit 2
backend=${BACKEND:-cuda} tiny=${TINY:-} python=${PYTHON:-python3}
bad=0 number=0
: >"$out/gpu.tsv"
# Runs a part with a time limit. A part whose name ends in ! must succeed.
part() { # NAME SECONDS COMMAND...
    local name=${1%!} limit=$2 must=$1 begin=$SECONDS status file
    shift 2
    number=$((number + 1))
    file=$out/$(printf '%02d' $number)-$name.txt
    timeout "$limit" "$@" >"$file" 2>&1
    status=$?
    printf '%s\t%d\t%d\n' "$name" $status $((SECONDS - begin)) >>"$out/gpu.tsv"
    printf '%-20s exit code %3d, %4d s: %s\n' "$name" $status $((SECONDS - begin)) "$(tail -n 1 "$file")"
    sync -f "$out/gpu.tsv" 2>/dev/null
    [[ $must != *! || $status -eq 0 ]] || bad=1
    return $status
}
describe() {
    date -u +%FT%TZ
    git -C "$source" describe --always --dirty 2>/dev/null
    "$build/norma" --version
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.sm,power.limit --format=csv 2>&1
    lscpu | grep 'Model name'
}
describe >"$out/00-environment.txt" 2>&1
if [ "$backend" = cuda ] && ! nvidia-smi >/dev/null 2>&1 && [ -z "${STUB:-}" ]; then
    echo "no GPU: nvidia-smi fails; BACKEND=emulated TINY=1 runs the script without one" >&2
    exit 7
fi
export build backend DEVICE=$backend DEVICE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/norma
part instructions! 60 "$build/tests/device_instructions" "$backend"
part hashes! 120 "$build/tests/device_hashes" "$backend"
part bf16! 60 "$build/tests/test_bf16" 'test_device_*'
repeats=30
[ -z "$tiny" ] || repeats=2
part repeat! 120 "$build/tests/device_hashes" "$backend" --repeat "$repeats"
if command -v compute-sanitizer >/dev/null && [ "$backend" = cuda ]; then
    for tool in memcheck racecheck synccheck; do
        part "sanitizer-$tool!" 60 compute-sanitizer --tool $tool --error-exitcode 1 "$build/tests/device_hashes" "$backend"
    done
fi
bench() { # FILE ARGUMENTS...
    local file=$1
    shift
    "$build/norma-bench" --backend "$backend" --cache "$DEVICE_CACHE" --json "$out/$file.json" "$@"
}
export -f bench
export out
small=()
[ -z "$tiny" ] || small=(--quick --rows 16)
part norms 90 bash -c 'bench norms "$@"' _ --parts norms "${small[@]}" ${tiny:+--match layer}
part kernels 90 bash -c 'bench kernels "$@"' _ --parts kernels "${small[@]}" ${tiny:+--match add}
if [ "$backend" = cuda ]; then
    part kernels-own 60 bash -c 'bench kernels-own "$@"' _ --parts kernels --match linear --gemm own "${small[@]}"
fi
model=()
[ -z "$tiny" ] || model=(--quick --rows 16 --set train.max_tokens=128 --set model.width=16 --set model.ff=16 --set model.heads=2
    --set model.encoder_layers=1 --set model.decoder_layers=1)
for precision in float tf32 bf16; do
    [ $precision != tf32 ] || [ "$backend" = cuda ] || continue
    for norm in layer power rbn; do
        part "step-$precision-$norm" 60 bash -c 'bench "$@"' _ step-$precision-$norm --parts step --all --precision $precision \
            --set model.norm=$norm "${model[@]}"
    done
done
part decode 60 bash -c 'bench decode "$@"' _ --parts decode "${model[@]}"
if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    part torch-step 120 "$python" "$source/bench/peers/torch_gpu_step.py" --json "$out/torch.json"
else
    echo "PyTorch with a GPU is not installed: no measurements of it (PYTHON=...)" | tee "$out/torch-missing.txt"
fi
echo "results in $out; $([ $bad -eq 0 ] && echo 'hashes and tests are right' || echo 'A RESULT IS WRONG: see gpu.tsv')"
exit $bad
