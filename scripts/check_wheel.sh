#!/usr/bin/env bash
# Installs a wheel with PyTorch in a new environment of each Python, and trains a norm there with the calls in
# C and through ctypes: scripts/check_wheel.sh WHEEL PYTHON...    (pip wheel . builds a wheel)
set -euo pipefail
wheel=$(realpath "$1")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/steps.py" << 'EOF'
import hashlib, sys, time
began = time.perf_counter()
import norma
seconds = time.perf_counter() - began
import torch
began = time.perf_counter()
import norma.torch
from norma.torch import _kernel
seconds += time.perf_counter() - began
norm, found = norma.torch.PowerNorm(16, groups=4, warmup=2), hashlib.sha256()
for step in range(4):
    x = torch.linspace(-1, 2, 7 * 16).reshape(7, 16).requires_grad_()
    y = norm.train(step < 3)(x)
    y.sin().sum().backward()
    for one in (y.detach(), x.grad, norm.weight.grad, norm.running_phi):
        found.update(one.numpy().tobytes())
print(found.hexdigest()[:16], _kernel.calls is not None)
version = sys.version.split()[0]
print(f"{version}: PyTorch {torch.__version__}, import in {1e3 * seconds:.0f} ms", file=sys.stderr)
EOF
for python in "$@"; do
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install -q "$wheel" numpy torch
    cd "$folder"
    with=$(venv/bin/python steps.py)
    rm venv/lib/python*/site-packages/norma/_calls.abi3.so
    without=$(venv/bin/python steps.py 2> /dev/null)
    if [ "$with" != "${without% *} True" ] || [ "${without#* }" != False ]; then
        echo "$python: with the calls in C $with, without them $without"
        exit 1
    fi
    venv/bin/norma --version
    rm -rf venv
done
