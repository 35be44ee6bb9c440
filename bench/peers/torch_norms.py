#!/usr/bin/env python3
"""PyTorch norms as standalone layers, float32 on the CPU: median microseconds of forward and of backward
after a forward, one line each: NAME ROWS WIDTH FORWARD BACKWARD. RMSNorm and ScaleNorm are the PyTorch
expressions of the papers. Threads: OMP_NUM_THREADS.
    torch_norms.py [POWERNORM_FILE]
POWERNORM_FILE: the PowerNorm authors' mask_powernorm.py, measured after its warm-up on tensors [time, batch
of 64, width]."""
import importlib.util
import statistics
import sys
import time

import torch

REPEATS = 21


class RMS(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Scale(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.g = torch.nn.Parameter(torch.tensor(width**0.5))

    def forward(self, x):
        return self.g / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-5) * x


def median(run, prepare=lambda: None):
    times = []
    for _ in range(REPEATS + 3):
        made = prepare()
        begin = time.perf_counter()
        run(made)
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times[3:])


def power_norm(path, width):
    spec = importlib.util.spec_from_file_location("mask_powernorm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MaskPowerNorm(width, warmup_iters=1)


def measure(name, layer, rows, width, batch=None):
    shape = (rows // batch, batch, width) if batch else (rows, width)
    x = torch.rand(shape, requires_grad=True)
    up = torch.rand(shape)
    wanted = [x, *layer.parameters()]
    forward = median(lambda _: layer(x))
    backward = median(lambda y: torch.autograd.grad(y, wanted, up), lambda: layer(x))
    print(f"{name} {rows} {width} {forward:.1f} {backward:.1f}", flush=True)


for shape in ((4096, 512), (4096, 1024), (16384, 512)):
    measure("layer", torch.nn.LayerNorm(shape[1]), *shape)
    measure("rms", RMS(shape[1]), *shape)
    measure("scale", Scale(shape[1]), *shape)
    measure("batch", torch.nn.BatchNorm1d(shape[1]), *shape)
    if len(sys.argv) > 1:
        measure("power", power_norm(sys.argv[1], shape[1]), *shape, batch=64)
