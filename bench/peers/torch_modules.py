#!/usr/bin/env python3
"""Norms as modules of PyTorch, float32 on the CPU, in one process, as a table of speedups: norma.torch
against torch.nn.LayerNorm and against the module of PyTorch or of the paper's authors (PowerNorm, Regularized
BatchNorm: re-derived here and in python/tests/plain_power_norm.py), eager and with torch.compile.

    torch_modules.py [--rounds 9] [--threads 1] [--shapes 1x64,32x256,512x512,4096x512] [--norms layer,power]
                     [--ways eager,compiled] [--times] [--priority 50]

The modules are measured alternately in every round, each for at least 5 ms; the medians over the rounds are
compared. A speedup of 2: Norma's module takes half the time. --times: microseconds instead. --priority: of
the real-time scheduler during the measurements, on the first core (SCHED_FIFO, needs root).
NORMA_LIBRARY: the library, unless the package is installed (build/python/libnorma.so)."""
import argparse
import gc
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

root = Path(__file__).resolve().parents[2]
if "NORMA_LIBRARY" in os.environ:
    sys.path[:0] = [str(root / "python")]
sys.path[:0] = [str(root / "python" / "tests")]

import torch  # noqa: E402
from plain_power_norm import PlainPowerNorm  # noqa: E402
from torch import nn  # noqa: E402

import norma.torch  # noqa: E402

GROUPS, WARMUP = 8, 2
SECONDS = 0.005  # of one measurement at least


class PlainRBN(nn.Module):
    """Regularized BatchNorm with the statistics and the penalty of the released code, written from the
    equations: Wang et al. 2022, equation 7."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.penalty = torch.zeros(())

    def forward(self, x):
        if not self.training:
            return self.weight * (x - self.mean) * (self.variance.clamp(min=1e-5)).rsqrt() + self.bias
        mean = x.mean(0)
        variance = (x - mean).square().mean(0)
        with torch.no_grad():
            self.mean.mul_(0.95).add_(mean, alpha=0.05)
            self.variance.mul_(0.95).add_(variance, alpha=0.05)
        self.penalty = (0.1 * (mean - self.mean).square().sum()
                        + 0.01 * (variance - self.variance).abs().sum())
        return self.weight * (x - mean) * variance.clamp(min=1e-5).rsqrt() + self.bias


# type -> the module that it is compared with
PEERS = {
    "layer": nn.LayerNorm,
    "rms": getattr(nn, "RMSNorm", None),
    "batch": nn.BatchNorm1d,
    "power": lambda width: PlainPowerNorm(width, GROUPS, WARMUP),
    "rbn": PlainRBN,
}
NAMES = {"layer": "nn.LayerNorm", "rms": "nn.RMSNorm", "batch": "nn.BatchNorm1d", "power": "re-derived",
         "rbn": "re-derived"}


def own(type, width):
    options = {"power": {"groups": GROUPS, "warmup": WARMUP}}.get(type, {})
    return norma.torch.Norm(type, width, **options)


def microseconds(run):
    """Of one call, over as many calls as a measurement needs."""
    n = 1
    while True:
        begin = time.perf_counter()
        for _ in range(n):
            run()
        seconds = time.perf_counter() - begin
        if seconds >= SECONDS:
            return 1e6 * seconds / n
        n = max(2 * n, int(1.2 * n * SECONDS / max(seconds, 1e-9)))


def passes(module, call, rows, width):
    """name -> (a pass, whether the module is in training mode). Training: forward, then backward to the input
    and the parameters."""
    x, up = torch.randn(rows, width, requires_grad=True), torch.randn(rows, width)
    wanted = [x, *module.parameters()]

    def train():
        torch.autograd.grad(call(x), wanted, up)

    def infer():
        with torch.no_grad():
            call(x)
    return {"inference": (infer, False), "training": (train, True)}


def measure(modules, rows, width, rounds, priority):
    """pass -> the medians of the modules (module, call), in microseconds."""
    runs = [passes(module, call, rows, width) for module, call in modules]
    for name in reversed(list(runs[0])):  # compiles, and ends the warm-up of PowerNorm
        for (module, _), run in zip(modules, runs):
            module.train(run[name][1])
            for _ in range(WARMUP + 2):
                run[name][0]()
    found = {}
    gc.disable()
    cores = os.sched_getaffinity(0)
    if priority:
        os.sched_setaffinity(0, {min(cores)})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    for name in runs[0]:
        times = [[] for _ in modules]
        for (module, _), run in zip(modules, runs):
            module.train(run[name][1])
            run[name][0]()
        for _ in range(rounds):
            for some, run in zip(times, runs):
                some.append(microseconds(run[name][0]))
        found[name] = [statistics.median(some) for some in times]
    if priority:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, cores)
    gc.enable()
    return found


def compiled(module):
    """Norma's module without its kernels, which the compiler could not fuse."""
    if isinstance(module, norma.torch.Norm):
        module.kernel = False
    return torch.compile(module)


def table(given):
    """(norm, shape, pass, way, microseconds of LayerNorm, of the other module, and of Norma's)"""
    for type in given.norms.split(","):
        for shape in given.shapes.split(","):
            rows, width = map(int, shape.split("x"))
            if rows == 1 and type not in ("layer", "rms"):  # no statistics of a batch
                continue
            for way in given.ways.split(","):
                torch._dynamo.reset()
                modules = [nn.LayerNorm(width), PEERS[type](width), own(type, width)]
                calls = [compiled(module) if way == "compiled" else module for module in modules]
                found = measure(list(zip(modules, calls)), rows, width, given.rounds, given.priority)
                for name, times in found.items():
                    yield type, shape, name, way, times


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--shapes", default="1x64,32x256,512x512,4096x512")
    arguments.add_argument("--norms", default=",".join(PEERS))
    arguments.add_argument("--ways", default="eager,compiled")
    arguments.add_argument("--times", action="store_true")
    arguments.add_argument("--priority", type=int, default=0)
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, {given.threads} threads, {given.rounds} rounds")
    print("| norm, other module | shape | pass | | nn.LayerNorm | other |")
    print("|---|---|---|---|--:|--:|")
    for type, shape, name, way, (*others, mine) in table(given):
        cells = [f"{one:.1f} : {mine:.1f}" if given.times else f"{one / mine:.2f}" for one in others]
        print(f"| {type}, {NAMES[type]} | {shape} | {name} | {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
