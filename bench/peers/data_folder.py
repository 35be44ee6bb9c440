"""Shared by the baseline programs: the presets of norma, and training data from a data folder
(docs/formats.md)."""
import array

PRESETS = {  # width, feed-forward, heads, layers of either side, dropout: norma's presets of the same names
    "tiny": (128, 512, 4, 2, 0.1),
    "small": (256, 1024, 4, 3, 0.3),
    "iwslt": (512, 1024, 4, 6, 0.3),
    "base": (512, 2048, 8, 6, 0.1),
}
HEADER = 64  # bytes


def read_numbers(path, kind):
    numbers = array.array(kind)
    with open(path, "rb") as file:
        numbers.frombytes(file.read()[HEADER:])
    return numbers


def read_side(folder, side, split="train"):
    """Sequences of token numbers, each with its end-of-sentence token."""
    offsets = read_numbers(f"{folder}/{split}.{side}.off", "Q")
    ids = read_numbers(f"{folder}/{split}.{side}.ids", "i")
    return [ids[a:b] for a, b in zip(offsets, offsets[1:])]
