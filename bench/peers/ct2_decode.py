#!/usr/bin/env python3
"""Translates lines of BPE subwords with CTranslate2 and prints the throughput without loading time.

    ct2_decode.py MODEL_FOLDER SUBWORD_FILE OUTPUT_FILE [--beam N] [--batch SENTENCES] [--workers N]
    [--threads N] [--type float32|int8]
                  [--length N]

Batches are made from lines sorted by length, as in norma. Needs the package ctranslate2.
"""
import argparse
import time

import ctranslate2


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("units")
    parser.add_argument("output")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--type", default="float32")
    parser.add_argument("--length", type=int, help="units of every translation")
    return parser.parse_args()


def main():
    given = options()
    translator = ctranslate2.Translator(given.model, device="cpu", inter_threads=given.workers,
                                        intra_threads=given.threads, compute_type=given.type)
    with open(given.units, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    search = dict(beam_size=given.beam, max_batch_size=given.batch, length_penalty=1,
                  max_decoding_length=given.length or 256, min_decoding_length=given.length or 1)
    translator.translate_batch(lines[: given.batch * given.workers], **search)  # first touch
    start = time.monotonic()
    found = translator.translate_batch(lines, **search)
    seconds = time.monotonic() - start
    hypotheses = [result.hypotheses[0] for result in found]
    with open(given.output, "w", encoding="utf-8") as file:
        file.writelines(" ".join(units) + "\n" for units in hypotheses)
    tokens = sum(len(units) + 1 for units in hypotheses)
    print(
        f"CTranslate2 {ctranslate2.__version__}: {tokens} tokens, {seconds:.2f} s, {tokens / seconds:.0f} "
        "tokens/s"
    )


main()
