#!/usr/bin/env python3
"""Translation throughput of Marian on the CPU (pymarian), to compare with `norma translate`: trains the
architecture of a preset for --steps updates on a data folder of norma, then translates a file of BPE
subwords. Loading time is not included.

    python3 bench/peers/marian_decode.py data/multi30k-de-en test.units --preset small --max-tokens 2048
    --steps 300

The weights are trained by Marian, because norma does not write its format. Throughput counts output tokens,
so it does not depend on the length of the output. With --keep FOLDER the model is trained once and reused.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

from data_folder import PRESETS
from marian_step import options as training_options


def train(folder, args):
    program = "import sys, pymarian; pymarian.Trainer(sys.argv[1]).train()"
    arguments = training_options(folder, args) + " --save-freq 1000000u"
    subprocess.run([sys.executable, "-c", program, arguments], stderr=subprocess.DEVNULL, check=True)


def translate(folder, args, lines, batch, threads):
    import pymarian

    words = f"{folder}/words.yml"
    translator = pymarian.Translator(
        f"--models {folder}/m.npz --vocabs {words} {words} --beam-size {args.beam} --normalize 1 "
        f"--mini-batch {batch} "
        f"--maxi-batch 1000 --maxi-batch-sort src --cpu-threads {threads} --max-length-factor 2 -w 1000 "
        "--quiet"
    )
    translator.translate(lines[: batch * threads])  # first touch
    start = time.monotonic()
    out = translator.translate(lines)
    seconds = time.monotonic() - start
    tokens = sum(len(line.split()) + 1 for line in out)
    print(
        f"Marian, batches of {batch}, {threads} threads: {tokens} tokens, {seconds:.2f} s, "
        f"{tokens / seconds:.0f} tokens/s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("units")
    parser.add_argument("--preset", choices=PRESETS, default="small")
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--keep")
    args = parser.parse_args()
    with open(args.units, encoding="utf-8") as file:
        lines = file.read().splitlines()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or scratch
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(f"{folder}/m.npz"):
            train(folder, args)
        translate(folder, args, lines, 32, 2)
        translate(folder, args, lines, 1, 1)
        translate(folder, args, lines, 1, 2)


main()
