#!/usr/bin/env python3
"""Writes images of three classes to the current folder: noise, on the left with more red, green or blue.

    make_images.py TRAIN VALID        numbers of images

records/: CIFAR-10's binary records (data_batch_1.bin, test_batch.bin, batches.meta.txt)
png/train/CLASS, png/valid/CLASS: the same images as PNG files, written without a library"""
import pathlib
import struct
import sys
import zlib

CLASSES = ("red", "green", "blue")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rows):
    """32 x 32 RGB"""
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def noise():
    """Numbers from 0 to 99: drand48 with seed 5."""
    state = 5 << 16 | 0x330E
    while True:
        state = (0x5DEECE66D * state + 0xB) % 2**48
        yield state * 100 >> 48


def main():
    counts = [int(number) for number in sys.argv[1:3]] + [48, 24][len(sys.argv) - 1:]
    numbers = noise()
    pathlib.Path("records").mkdir(exist_ok=True)
    for split, count, records in zip(("train", "valid"), counts, ("data_batch_1.bin", "test_batch.bin")):
        folders = [pathlib.Path("png", split, name) for name in CLASSES]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        everything = b""
        for i in range(count):
            which = i % len(CLASSES)
            bright = [120 if c == which and x < 20 else 0 for x in range(32) for c in range(3)]
            rows = [bytes(value + next(numbers) for value in bright) for _ in range(32)]
            pixels = b"".join(rows)
            everything += bytes([which]) + pixels[0::3] + pixels[1::3] + pixels[2::3]
            (folders[which] / f"{i}.png").write_bytes(png(rows))
        pathlib.Path("records", records).write_bytes(everything)
    pathlib.Path("records/batches.meta.txt").write_text("".join(f"{name}\n" for name in CLASSES))


main()
