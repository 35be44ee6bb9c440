#!/usr/bin/env python3
"""Cleans sentence pairs and divides them into train, valid and test.

    split_pairs.py OUT SOURCE_NAME TARGET_NAME < pairs.tsv

writes OUT/{train,valid,test}.SOURCE_NAME and .TARGET_NAME. The part of a pair depends on its source
sentence only: a hash of the normalized sentence (lower case, letters only, all numbers equal) gives a
number below 1000, of which the first 20 are valid and the next 30 test. A sentence is therefore in the same
part for any order or version of the input, together with sentences that differ in case, digits or
punctuation. One pair is kept per normalized source. Target sentences are not shared either: a training pair
is removed if its target is in valid or test, a validation pair if its target is in test."""
import collections
import re
import sys
import unicodedata

MIN_WORDS, MAX_WORDS, MAX_RATIO, MIN_LETTERS = 3, 40, 2, 0.6
VALID_SHARE, TEST_SHARE = 20, 30
PARTS = ("train", "valid", "test")
MARKS = re.compile(r"[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def folded(text):
    kinds = []  # letters stay, a number is 0, all else is a space
    for character in "".join(c.lower() for c in text):
        category = unicodedata.category(character)
        kinds.append("0" if category == "Nd" else character if category[0] == "L" else " ")
    return re.sub(" +", " ", re.sub("0+", "0", "".join(kinds))).strip(" ")


def hash_of(text):
    """FNV-1a over the UTF-8 bytes, folded to a number below 1000."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return (value ^ value >> 16) % 1000


def is_sentence(text):
    if re.search(r"[_=<>{}\\]|\(\)", text):  # program code
        return False
    words = MARKS.findall(text)
    n_letters = sum(unicodedata.category(c)[0] == "L" for c in text)
    return MIN_WORDS <= len(words) <= MAX_WORDS and n_letters >= MIN_LETTERS * sum(map(len, words))


def fits(source, target):
    """Short sentences may differ by two words at any ratio."""
    if not is_sentence(source) or not is_sentence(target):
        return False
    few, many = sorted(len(MARKS.findall(side)) for side in (source, target))
    return many <= MAX_RATIO * few or many <= few + 2


def part_of(key):
    value = hash_of(key)
    return "valid" if value < VALID_SHARE else "test" if value < VALID_SHARE + TEST_SHARE else "train"


def sides_of(line):
    """Source and target of a line; empty: it is not UTF-8 or has not two fields."""
    try:
        sides = line.decode().removesuffix("\n").split("\t")
    except UnicodeDecodeError:
        return []
    return sides if len(sides) == 2 else []


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: split_pairs.py OUT SOURCE_NAME TARGET_NAME < pairs.tsv")
    out, *names = sys.argv[1:]
    pairs, seen, targets = [], set(), collections.defaultdict(set)
    n_read = n_unfit = n_again = n_shared = 0
    for line in sys.stdin.buffer:
        n_read += 1
        sides = sides_of(line)
        if not sides or sides[0] == sides[1] or not fits(*sides):
            n_unfit += 1
            continue
        key, target_key = map(folded, sides)
        if key in seen:
            n_again += 1
            continue
        seen.add(key)
        part = part_of(key)
        pairs.append((part, sides, target_key))
        targets[part].add(target_key)
    lines = {part: [] for part in PARTS}
    for part, sides, target_key in pairs:
        if (part != "test" and target_key in targets["test"]) or (
                part == "train" and target_key in targets["valid"]):
            n_shared += 1
        else:
            lines[part].append(sides)
    for part in PARTS:
        for name, side in zip(names, range(2)):
            try:
                with open(f"{out}/{part}.{name}", "w", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{sides[side]}\n" for sides in lines[part])
            except OSError as error:
                sys.exit(f"split_pairs.py: cannot write {out}/{part}.{name}: {error.strerror}")
    print(f"read {n_read} pairs; left out {n_unfit} by length, ratio or content, {n_again} repeated, "
          f"{n_shared} with a target of another part", file=sys.stderr)
    counts = ", ".join(f"{part} {len(lines[part])}" for part in PARTS)
    print(f"{counts} pairs", file=sys.stderr)
    for part in PARTS:
        if not lines[part]:
            sys.exit(f"split_pairs.py: no pair is left for {part}")


main()
