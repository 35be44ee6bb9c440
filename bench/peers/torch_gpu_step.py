#!/usr/bin/env python3
"""Norms and training steps of PyTorch on a GPU, to compare with `norma bench` (scripts/gpu.sh).

The model is that of torch_models.py (scaled_dot_product_attention, fused Adam) with the sizes of the presets,
on synthetic pairs with the lengths of `norma bench`, sorted and padded; the throughput counts target tokens
without padding. All times are medians after a warm-up, and wait for the GPU. The file is written after every
measurement.

    python3 bench/peers/torch_gpu_step.py --json torch.json
"""
import argparse
import json
import math
import random
import statistics
import time

import torch
from torch import nn

import torch_models
from data_folder import PRESETS

WORDS, PAD = 8004, 1

def median_time(function, wait, least=5, budget=0.3):
    function()
    wait()
    times, begin = [], time.perf_counter()
    while len(times) < least or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)

def padded(lengths, device):
    rows = torch.randint(4, WORDS, (len(lengths), max(lengths)), device=device)
    for row, length in enumerate(lengths):
        rows[row, length:] = PAD
    return rows

def batches(max_tokens, n, device):
    draw = random.Random(7)
    lengths = sorted(min(max(round(20 * math.exp(0.5 * draw.gauss(0, 1))), 2), 120) + 1 for _ in range(4000))
    groups, group = [], []
    for length in lengths:
        if group and length * (len(group) + 1) > max_tokens:
            groups.append(group)
            group = []
        group.append(length)
    draw.shuffle(groups)
    return [(padded(g, device), padded(g, device)) for g in groups[:n]]

def measure_norms(device, wait, rows):
    for width in (512, 1024):
        x = torch.randn(rows, width, device=device, requires_grad=True)
        norm, dy = nn.LayerNorm(width, device=device), torch.randn(rows, width, device=device)
        forward = median_time(lambda: norm(x), wait)
        y = norm(x)
        inputs = (x, *norm.parameters())
        backward = median_time(lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True), wait)
        yield {"norm": "layer", "shape": [rows, width], "forward": 1e6 * forward, "backward": 1e6 * backward}

def measure_steps(device, wait, preset, max_tokens, bf16, compiled, steps):
    torch.manual_seed(1)
    width, ff, heads, layers, drop = PRESETS[preset]
    model = torch_models.Seq2Seq(WORDS, width, ff, heads, layers, drop, PAD).to(device).train()
    optimizer = torch_models.adam(model)
    call = torch.compile(model, dynamic=True) if compiled else model
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1, reduction="sum")
    rates, warm = [], 5 if compiled else 2
    for number, (source, target) in enumerate(batches(max_tokens, steps + warm, device)):
        wait()
        start = time.perf_counter()
        before = torch.cat([torch.full((len(target), 1), 2, device=device), target[:, :-1]], 1)
        tokens = (target != PAD).sum()
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16, enabled=bf16):
            logits = call(source, before)
        loss = loss_of(logits.float().view(-1, WORDS), target.view(-1)) / tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wait()
        if number >= warm:
            rates.append(int(tokens) / (time.perf_counter() - start))
    return {"preset": preset, "max_tokens": max_tokens, "bf16": bf16, "compiled": compiled,
            "tokens_per_second": statistics.median(rates), "steps": len(rates)}

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="to see that the script works, without a GPU")
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    wait = torch.cuda.synchronize if cuda else lambda: None
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if cuda else args.device,
              "norms": [], "steps": []}

    def keep(part, one):
        result[part].append(one)
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        print(json.dumps(one), flush=True)

    for one in measure_norms(args.device, wait, 64 if args.tiny else 16384):
        keep("norms", one)
    cases = [("small", 256)] if args.tiny else [(p, t) for p in ("small", "iwslt", "base") if p in PRESETS
                                                for t in (4096, 16384)]
    for compiled in (False,) if args.tiny else (False, True):
        for bf16 in (False, True):
            for preset, tokens in cases:
                keep("steps", measure_steps(args.device, wait, preset, tokens, bf16, compiled,
                                            2 if args.tiny else 12))

if __name__ == "__main__":
    main()
