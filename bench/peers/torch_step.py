#!/usr/bin/env python3
"""Training throughput and memory of PyTorch on a data folder of norma, to compare with `norma train`.

--model module: nn.Transformer and Adam, as most scripts; --model written: a hand-written model with
scaled_dot_product_attention and fused Adam (torch_models.py). Both: pre-norm, LayerNorm, one embedding matrix
for source, target and output, label smoothing. Sentence pairs are sorted by length and padded, a batch has at
most --max-tokens tokens per side including padding, as in fairseq; the throughput counts target tokens
without padding, as in norma. --bf16: autocast to bfloat16; --compile: torch.compile with dynamic shapes,
whose compilation is not measured. --rounds: see torch_rounds.py.

    OMP_NUM_THREADS=2 python3 bench/peers/torch_step.py data/iwslt14-de-en --preset iwslt --max-tokens 4096
    --steps 8

"""
import argparse
import random
import time

import torch
from torch import nn

import torch_models
import torch_rounds
from data_folder import PRESETS, read_side

PAD = 1

def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([list(r) + [PAD] * (longest - len(r)) for r in rows])

def make_batches(pairs, max_tokens, steps):
    pairs = sorted(pairs, key=lambda p: (len(p[0]), len(p[1])))
    groups, group, longest = [], [], 0
    for pair in pairs:
        longer = max(longest, len(pair[0]), len(pair[1]))
        if group and longer * (len(group) + 1) > max_tokens:
            groups.append(group)
            group, longer = [], max(map(len, pair))
        group.append(pair)
        longest = longer
    random.Random(3).shuffle(groups)
    return [(padded([s for s, _ in g]), padded([t for _, t in g])) for g in groups[:steps]]

class ModuleModel(nn.Module):
    def __init__(self, words, width, ff, heads, layers, drop):
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(words, self.width, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=self.width**-0.5)
        self.core = nn.Transformer(
            self.width, heads, layers, layers, ff, drop, batch_first=True, norm_first=True
        )
        self.drop = nn.Dropout(drop)
        self.register_buffer("positions", torch_models.sinusoids(1024, width))

    def embedded(self, ids):
        return self.drop(self.embed(ids) * self.width**0.5 + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        gaps = source == PAD
        hidden = self.core(
            self.embedded(source), self.embedded(target), tgt_mask=causal,
            src_key_padding_mask=gaps, memory_key_padding_mask=gaps,
        )
        return hidden @ self.embed.weight.T

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--preset", choices=PRESETS, default="iwslt")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--model", choices=("module", "written"), default="module")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    sides = [read_side(args.folder, side) for side in ("source", "target")]
    words = max(max(map(max, side)) for side in sides) + 1
    width, ff, heads, layers, drop = PRESETS[args.preset]
    if args.model == "written":
        model = torch_models.Seq2Seq(words, width, ff, heads, layers, drop, PAD).train()
        optimizer = torch_models.adam(model)
    else:
        model = ModuleModel(words, width, ff, heads, layers, drop).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))
    call = torch.compile(model, dynamic=True) if args.compile else model
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1, reduction="sum")

    def step(source, target):
        """Target tokens and seconds of an update."""
        start = time.perf_counter()
        before = torch.cat([torch.full((len(target), 1), 2), target[:, :-1]], 1)
        tokens = int((target != PAD).sum())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            logits = call(source, before)
        loss = loss_of(logits.float().view(-1, words), target.view(-1)) / tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return tokens, time.perf_counter() - start

    warm = 3 if args.compile else 1
    batches = make_batches(list(zip(*sides)), args.max_tokens, args.steps + warm)
    for batch in batches[:warm]:
        step(*batch)
    torch_rounds.run(args.rounds, lambda: [step(*batch) for batch in batches[warm:]])

if __name__ == "__main__":
    main()
