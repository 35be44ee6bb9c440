#!/usr/bin/env bash
# Compares the declarations of CUDA in src/core/backend/device/cuda_api.h with NVIDIA's headers, as C and by nvcc as C++.
#     scripts/check_cuda_api.sh SOURCE [CC]
# Exit code: 0 equal, 1 not, 77 the CUDA toolkit is not installed; with "cuda" in NORMA_PROMISED its absence is a failure.
set -uo pipefail
cd "$1" || exit 1
nvcc=$(command -v nvcc) || {
    echo "skipped: nvcc of the CUDA toolkit is not installed"
    [[ " ${NORMA_PROMISED:-} " == *" cuda "* ]] && exit 1
    exit 77
}
include=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
file=tests/device/check_cuda_api.c
"${2:-cc}" -std=gnu17 -fsyntax-only -Isrc/core -isystem "$include" $file || exit 1
nvcc -x cu -std=c++17 -Isrc/core -c -o /dev/null $file || exit 1
echo "cuda_api.h agrees with the headers in CUDA $(nvcc --version | grep -o 'release [0-9.]*' | cut -d' ' -f2)"
