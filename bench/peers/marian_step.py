#!/usr/bin/env python3
"""Training throughput and memory of Marian on the CPU (pymarian) on a data folder of norma, to compare with
`norma train`.

Pre-norm with a final LayerNorm, one embedding matrix for source, target and output, label smoothing, Adam;
two workers, each with a batch of half of --max-tokens target words, synchronized at every update. The
throughput is the one that Marian reports, in target words/s.

    python3 bench/peers/marian_step.py data/iwslt14-de-en --preset iwslt --max-tokens 4096 --steps 24
"""
import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile

from data_folder import PRESETS, read_side

WORKERS, EVERY = 2, 4


def write_text(folder, side, path):
    """Training text in units, out of ids and dictionary (docs/formats.md)."""
    with open(f"{folder}/dict.{side}.txt", encoding="utf-8") as file:
        words = ["<s>", "<pad>", "</s>", "<unk>"] + [line.rsplit(" ", 1)[0] for line in file]
    with open(path, "w", encoding="utf-8") as out:
        for ids in read_side(folder, side):
            out.write(" ".join(words[i] for i in ids[:-1]) + "\n")
    return words[4:]


def options(folder, args):
    width, ff, heads, layers, drop = PRESETS[args.preset]
    sides = [f"{folder}/source", f"{folder}/target"]
    words = dict.fromkeys(write_text(args.folder, "source", sides[0])
                          + write_text(args.folder, "target", sides[1]))
    with open(f"{folder}/words.yml", "w", encoding="utf-8") as out:
        for i, word in enumerate(["</s>", "<unk>", *words]):
            out.write(f"{json.dumps(word, ensure_ascii=False)}: {i}\n")
    return (
        f"--model {folder}/m.npz --train-sets {' '.join(sides)} --vocabs {folder}/words.yml "
        f"{folder}/words.yml "
        f"--type transformer --dim-emb {width} --transformer-dim-ffn {ff} --enc-depth {layers} --dec-depth "
        f"{layers} "
        f"--transformer-heads {heads} --transformer-preprocess n --transformer-postprocess da "
        "--transformer-postprocess-top n "
        f"--transformer-dropout {drop} --label-smoothing 0.1 --tied-embeddings-all --optimizer adam "
        "--learn-rate 0.0001 "
        f"--cpu-threads {WORKERS} --sync-sgd --mini-batch-words {args.max_tokens // WORKERS} --mini-batch "
        "1000 --maxi-batch 100 "
        f"--maxi-batch-sort trg -w 5000 --after-batches {args.steps} --disp-freq {EVERY}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--preset", choices=PRESETS, default="iwslt")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=24)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = "import sys, pymarian; pymarian.Trainer(sys.argv[1]).train()"
        run = subprocess.run(
            [sys.executable, "-c", program, options(folder, args)],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    speeds = [float(s.replace(",", "")) for s in re.findall(r"([\d.,]+) words/s", run.stderr)][1:]
    if not speeds:
        sys.exit(run.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"Marian: median {statistics.median(speeds):.0f} target tokens/s, peak {peak} MiB", flush=True)


if __name__ == "__main__":
    main()
