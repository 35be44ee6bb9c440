#!/usr/bin/env python3
"""Norms as modules of PyTorch, float32 on the CPU, in one process: norma.torch against torch.nn.LayerNorm and
against PowerNorm re-derived in plain PyTorch (python/tests/plain_power_norm.py). The modules are measured
alternately in every round; printed are medians in microseconds over the rounds, and the ratio to the module
of PyTorch.
    torch_modules.py [--rounds 15] [--threads 1] [--shapes 512x512,4096x512]
NORMA_LIBRARY: the library, unless the package is installed (build/python/libnorma.so)."""
import argparse
import statistics
import sys
import time
from pathlib import Path

root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "python"), str(root / "python" / "tests")]

import torch  # noqa: E402
from plain_power_norm import PlainPowerNorm  # noqa: E402

import norma.torch  # noqa: E402

GROUPS, WARMUP = 8, 2
SECONDS = 0.02  # of one measurement at least


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


def runs_of(module, rows, width):
    """Training pass (forward, then backward to input and parameters), forward in training mode, and
    inference."""
    x, up = torch.randn(rows, width, requires_grad=True), torch.randn(rows, width)
    wanted = [x, *module.parameters()]

    def both():
        torch.autograd.grad(module(x), wanted, up)

    def forward():
        module(x)

    def infer():
        with torch.inference_mode():
            module(x)
    return {"training": (both, True), "forward": (forward, True), "inference": (infer, False)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--shapes", default="512x512,4096x512,4096x1024")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    print(
        f"torch {torch.__version__}, {given.threads} threads, {given.rounds} rounds, medians in microseconds"
    )
    print(
        f"{'shape':>12} {'pass':>10} {'LayerNorm':>10} {'norma':>8} {'ratio':>6} {'PowerNorm':>10} "
        f"{'norma':>8} {'ratio':>6}"
    )
    for shape in given.shapes.split(","):
        rows, width = map(int, shape.split("x"))
        modules = [torch.nn.LayerNorm(width), norma.torch.LayerNorm(width),
                   PlainPowerNorm(width, GROUPS, WARMUP),
                   norma.torch.PowerNorm(width, groups=GROUPS, warmup=WARMUP)]
        runs = [runs_of(module, rows, width) for module in modules]
        for _ in range(WARMUP + 2):
            for run in runs:
                run["training"][0]()
        for name in runs[0]:
            times = [[] for _ in modules]
            for _ in range(given.rounds):
                for i, module in enumerate(modules):
                    run, training = runs[i][name]
                    module.train(training)
                    times[i].append(microseconds(run))
            t = [statistics.median(some) for some in times]
            print(
                f"{shape:>12} {name:>10} {t[0]:10.0f} {t[1]:8.0f} {t[0] / t[1]:6.2f} {t[2]:10.0f} "
                f"{t[3]:8.0f} "
                f"{t[2] / t[3]:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
