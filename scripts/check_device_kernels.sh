#!/usr/bin/env bash
# Compiles the device kernels (src/core/backend/device) as CUDA C for GPUs of three generations, without a GPU.
#     scripts/check_device_kernels.sh SOURCE
# A kernel that needs a stack frame or spills registers is a failure, because both are in slow memory.
# Exit code: 0 all compile, 1 some do not, 77 nvcc is not installed (NVIDIA's CUDA toolkit), which is a failure with "cuda" in
# NORMA_PROMISED.
set -uo pipefail
cd "$1" || exit 1
command -v nvcc >/dev/null || {
    echo "skipped: nvcc of the CUDA toolkit is not installed"
    [[ " ${NORMA_PROMISED:-} " == *" cuda "* ]] && exit 1
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
printf '#include "%s"\n' backend/device/all.inc tests/device/instructions.{h,inc} >"$work/all.cu"
bad=0
for arch in sm_80 sm_90 sm_100; do
    if ! nvcc -x cu -cubin -arch=$arch -fmad=false -Xptxas -v -I. -Isrc/core -Iinclude -o "$work/all.cubin" "$work/all.cu" 2>"$work/log"; then
        grep -m 5 error "$work/log" >&2
        bad=1
        continue
    fi
    awk -v arch=$arch '/Function properties for/ { name = $NF }
        /[1-9][0-9]* bytes (stack|spill)/ { print arch ": " name ": " $0; bad++ }
        END { exit bad > 0 }' "$work/log" || bad=1
    echo "$arch: $(grep -c 'Compiling entry' "$work/log") kernels"
done
exit $bad
