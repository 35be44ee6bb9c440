#!/usr/bin/env bash
# The backend `cuda` on the stub of NVIDIA's libraries (tests/support/cuda_stub.h): training gives the weights of `emulated` bit
# for bit, translation its text; missing libraries, GPUs and failures of the driver end in messages with their exit codes.
set -uo pipefail
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "e2e_cuda: $*"
    exit 1
}
stub=$BUILD/tests/cuda_stub
[ -e "$stub/libcuda.so.1" ] || fail "there is no stub in $stub"
export XDG_CACHE_HOME=$work/cache
awk 'BEGIN {
    srand(5)
    split("der ein jede", d); split("hund baum haus fluss vogel", n); split("läuft singt fällt steht", v)
    split("the a every", D); split("dog tree house river bird", N); split("runs sings falls stands", V)
    for (i = 0; i < 90; i++) {
        a = 1 + int(rand() * 3); b = 1 + int(rand() * 5); c = 1 + int(rand() * 4)
        print d[a], n[b], v[c], (i % 3 ? "satz" : "") > "t.de"
        print D[a], N[b], V[c], (i % 3 ? "sentence" : "") > "t.en"
    }
    print "ein fuchs läuft" > "new.de"
    print "" > "new.de"
    print "der hund singt satz" > "new.de"
}'
"$NORMA" prepare --train t --valid-every 20 --source-lang de --target-lang en --output d 2>err >/dev/null || fail "$(cat err)"
train() { # FOLDER OPTIONS
    local folder=$1
    shift
    "$NORMA" train demo --data.folder d --train.updates 2 --train.max_tokens 64 --train.log_every 1 --train.score false \
        --model.width 16 --model.ff 32 --model.heads 2 --model.encoder-layers 1 --model.decoder-layers 1 \
        --run.folder "$folder" "$@" >out 2>err
}
# The tensors of a model, without the metadata, which names the backend
tensors() { # FILE
    local header
    header=$(od -A n -t u8 -N 8 "$1" | tr -d ' ')
    tail -c +$((9 + header)) "$1" | sha256sum
}
model_of() {
    ls "$1/last.safetensors"
}
export LD_LIBRARY_PATH=$stub
for norm in layer power; do
    train e-$norm --device.backend emulated --model.norm $norm || fail "emulated: $(tail -n 3 err)"
    train c-$norm --device.backend cuda --device.gemm own --model.norm $norm || fail "cuda: $(tail -n 3 err)"
    [ -n "$(model_of c-$norm)" ] || fail "no checkpoint: $(find c-$norm)"
    [ "$(tensors "$(model_of e-$norm)")" = "$(tensors "$(model_of c-$norm)")" ] || fail "$norm: the weights differ from emulated"
    [ $norm = layer ] || [ "$(tensors "$(model_of c-$norm)")" != "$(tensors "$(model_of c-layer)")" ] || fail "$norm has the weights of layer"
done
ls cache/norma/kernels-sm_90-nvrtc13.0-*.bin >/dev/null || fail "compiled kernels are not kept: $(find cache)"
# cuBLASLt, whose stub gives bitwise identical results
train c-blas --device.backend cuda --model.norm layer || fail "cuBLASLt: $(tail -n 3 err)"
[ "$(tensors "$(model_of c-blas)")" = "$(tensors "$(model_of c-layer)")" ] || fail "cuBLASLt: the weights differ"
for precision in bf16 tf32; do
    train c-$precision --device.backend cuda --device.precision $precision || fail "$precision: $(tail -n 3 err)"
done
grep -q 'cuda' c-blas/config.ini || fail "the backend is not in config.ini"
"$NORMA" translate "$(model_of c-layer)" --device.backend emulated --device.threads 2 <new.de >e.en 2>err || fail "$(cat err)"
"$NORMA" translate "$(model_of c-layer)" --device.backend cuda --device.gemm own --device.threads 2 <new.de >c.en 2>err || fail "$(cat err)"
cmp e.en c.en || fail "translations differ"
[ "$(wc -l <c.en)" = 3 ] || fail "translation: $(cat c.en)"

refused() { # CODE TEXT OPTIONS...
    local code=$1 text=$2
    shift 2
    train x "$@" && fail "$text: accepted"
    code_seen=$?
    rm -rf x
    grep -qF -- "$text" err || fail "\"$text\" is not in: $(cat err)"
    [ $code_seen = "$code" ] || fail "$text: exit code $code_seen, expected $code"
}
refused 2 'this machine has 1 GPU' --device.backend cuda --device.ordinal 1
refused 2 'only the backend cuda' --device.backend cpu --device.ordinal 1
refused 2 'tf32 needs device.backend = cuda' --device.precision tf32
NORMA_STUB_GPUS=0 refused 7 'the driver found no GPU' --device.backend cuda
NORMA_STUB_ARCH=75 refused 7 'compute capability 7.5; 8.0 or higher is needed' --device.backend cuda
NORMA_STUB_MIB=40 refused 6 'MiB are free' --device.backend cuda
NORMA_STUB=cuLaunchKernel:100:700 refused 10 'CUDA_ERROR_ILLEGAL_ADDRESS' --device.backend cuda
NORMA_STUB=execute:300:700 refused 10 'the last kernel was' --device.backend cuda
NORMA_STUB=nvrtcCompileProgram:1:6 refused 7 'the kernels do not compile: norma.cu(2): error: e' --device.backend cuda --device.cache none
# An empty file ends the search for a library, also where the system has the real one.
mkdir partial
: >partial/libcuda.so.1
for version in so.13 so.12 so; do
    : >partial/libnvrtc.$version
    : >partial/libcublasLt.$version
done
export LD_LIBRARY_PATH=$PWD/partial
refused 7 'libcuda.so.1 cannot be loaded: it is part of' --device.backend cuda
ln -sf "$stub/libcuda.so.1" partial/
refused 7 'libnvrtc.so.13 cannot be loaded: pip install nvidia-cuda-nvrtc' --device.backend cuda
ln -sf "$stub/libnvrtc.so.13" partial/
refused 7 'libcublasLt.so.13 cannot be loaded: pip install nvidia-cublas' --device.backend cuda
train own --device.backend cuda --device.gemm own || fail "own GEMM needs cuBLAS: $(cat err)"
# What scripts/gpu.sh runs on a GPU first
export LD_LIBRARY_PATH=$stub
"$BUILD/tests/device_instructions" cuda >out 2>&1 || fail "instructions: $(cat out)"
DEVICE=cuda "$BUILD/tests/test_bf16" 'test_device_*' >out 2>&1 || fail "bf16: $(cat out)"
grep -q '2 test(s) run' out || fail "tests of bf16 on devices: $(cat out)"
echo "e2e_cuda: two norms, translation, refusals, instructions, bf16"
