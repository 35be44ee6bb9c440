#!/usr/bin/env python3
"""Training throughput and memory of a decoder-only Transformer in PyTorch (torch_models.py) on random tokens,
to compare with `norma train` on a language model of the same shape: LayerNorm before each sublayer, learned
positions, tied embeddings, no dropout, with which PyTorch would not use its fast attention.

    OMP_NUM_THREADS=2 python3 bench/peers/torch_lm_step.py --width 768 --ff 3072 --heads 12 --layers 12
    --words 50257 \\
        --length 1024 --tokens 2048 --steps 5 [--bf16] [--compile] [--rounds]

--rounds: see torch_rounds.py.
"""
import argparse
import time

import torch

import torch_models
import torch_rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("width", "ff", "heads", "layers", "words", "length", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = torch_models.LanguageModel(args.words, args.width, args.ff, args.heads, args.layers, 0.0,
                                       args.length).train()
    optimizer = torch_models.adam(model)
    call = torch.compile(model) if args.compile else model

    def step():
        """Target tokens and seconds of an update."""
        ids = torch.randint(args.words, (args.tokens // args.length, args.length + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            logits = call(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, args.words), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return ids.shape[0] * args.length, time.perf_counter() - start

    step()
    torch_rounds.run(args.rounds, lambda: [step() for _ in range(args.steps)])


if __name__ == "__main__":
    main()
