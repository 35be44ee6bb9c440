"""Translates with a model of Norma: n-best lists, confidence, alignment.

    python translate.py MODEL [FILE]        (MODEL: a run folder or a model file; FILE: lines of text, default
    standard input)

Writes for every line the best translations with their scores, the two least probable words of the best one,
and the word of the source text with the most attention.
"""
import sys

import norma


def show(line, found):
    print(f"\n{line}")
    if found.too_long:
        print("  not translated: more tokens than the model has positions")
    for rank, one in enumerate(found, 1):
        print(f"  {rank}. {one.text}  ({one.score:.2f})")
    words = line.split()
    for word in sorted(found[0].words if found else (), key=lambda word: word.score)[:2]:
        source = "" if word.source is None else f", from {words[word.source]!r}"
        print(f"     {word.text!r}: log probability {word.score:.2f}{source}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    file = open(sys.argv[2], encoding="utf-8") if len(sys.argv) > 2 else sys.stdin
    with file, norma.Translator(sys.argv[1], beam=4, nbest=2, alignment=True) as translator:
        print(f"{translator.option('model.norm')} norm, at most {translator.max_tokens} tokens")
        lines = [line.rstrip("\n") for line in file]
        for line, found in zip(lines, translator.stream_run(lines)):
            show(line, found)


if __name__ == "__main__":
    main()
