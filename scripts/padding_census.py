#!/usr/bin/env python3
"""How much padding the batches of other programs have, where Norma has none.

    scripts/padding_census.py tagging|classification FILE [--batch 16] [--order shuffled|length] [--max-length
    512]

tagging: columns with an empty line after each sentence (-DOCSTART- lines are skipped). classification: a
label, a tab and a text per line, whose length is counted in words. A batch has --batch sequences in random
order, or sorted by length, and is padded to its longest one. Prints, for the fraction f of padded rows of a
batch, its mean and standard deviation over the batches of one epoch, the fraction of batches without padding,
and the mean and the coefficient of variation of 1 - f, by which padding with the mean scales the variance of
a batch. Segments of language models are full and have none. Exit code: 0, 2 wrong use.
"""

import argparse
import random

import ledger_statistics as st


def sentence_lengths(path):
    lengths, length = [], 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("-DOCSTART-"):
                length += 1
            elif length:
                lengths.append(length)
                length = 0
    return lengths + [length] if length else lengths


def text_lengths(path, longest):
    with open(path, encoding="utf-8") as file:
        return [min(longest, len(line.partition("\t")[2].split()) + 2) for line in file if line.strip()]


def padding(lengths, batch, order, seed=1):
    """The fraction of padded rows of each batch of an epoch."""
    lengths = list(lengths)
    random.Random(seed).shuffle(lengths)
    if order == "length":
        lengths.sort()
    batches = [lengths[i : i + batch] for i in range(0, len(lengths), batch)]
    return [1 - sum(b) / (len(b) * max(b)) for b in batches]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=("tagging", "classification"))
    parser.add_argument("file")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--order", choices=("shuffled", "length"), default="shuffled")
    parser.add_argument("--max-length", type=int, default=512)
    options = parser.parse_args()
    if options.task == "tagging":
        lengths = sentence_lengths(options.file)
    else:
        lengths = text_lengths(options.file, options.max_length)
    fractions = padding(lengths, options.batch, options.order)
    kept = [1 - f for f in fractions]
    full = sum(1 for f in fractions if f == 0) / len(fractions)
    print(
        f"{len(fractions)} batches: padding {st.mean(fractions):.1%}, sd "
        f"{st.variance(fractions) ** 0.5:.1%}, "
        f"none in {full:.1%}; 1 - f {st.mean(kept):.3f}, varies by "
        f"{st.variance(kept) ** 0.5 / st.mean(kept):.1%}"
    )


if __name__ == "__main__":
    main()
