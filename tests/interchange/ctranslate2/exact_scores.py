"""Writes the scores of this folder: CTranslate2's log probabilities in float32 for a copy of the model with
exactly dequantized int8 weights and positions that are not rounded to float16.

    exact_scores.py FOLDER SOURCE TARGET COPY >scores
"""
import math
import os
import shutil
import struct
import sys

import ctranslate2
import numpy as np

TYPES = [np.float32, np.int8, np.int16, np.int32, np.float16]
POSITIONS = "position_encodings/encodings"


def read(path):
    """Version, specification, revision; variables by name; aliases."""
    with open(path, "rb") as file:
        def number(kind):
            return struct.unpack("<" + kind, file.read(struct.calcsize("<" + kind)))[0]

        def text():
            return file.read(number("H"))[:-1].decode()

        head, variables = (number("I"), text(), number("I")), {}
        for _ in range(number("I")):
            name, rank = text(), number("B")
            shape = [number("I") for _ in range(rank)]
            dtype, size = TYPES[number("B")], number("I")
            variables[name] = np.frombuffer(file.read(size), dtype).reshape(shape)
        return head, variables, [(text(), text()) for _ in range(number("I"))]


def write(path, head, variables, aliases):
    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    with open(path, "wb") as file:
        file.write(struct.pack("<I", head[0]) + text(head[1]) + struct.pack("<II", head[2], len(variables)))
        for name, value in variables.items():
            file.write(text(name) + struct.pack("<B", value.ndim)
                       + struct.pack(f"<{value.ndim}I", *value.shape) +
                       struct.pack("<BI", TYPES.index(value.dtype), value.nbytes) + value.tobytes())
        file.write(struct.pack("<I", len(aliases)) + b"".join(text(a) + text(of) for a, of in aliases))


def sinusoids(rows, width):
    angles = np.arange(rows)[:, None] * np.exp(np.arange(width // 2) * -math.log(10000) / (width // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def exact(name, value, variables):
    scale = variables.get(name + "_scale")
    if scale is not None:
        value = value / scale.astype(np.float64).reshape(-1, *[1] * (value.ndim - 1))
    elif name.endswith(POSITIONS):
        value = sinusoids(*value.shape)
    return value.astype(np.float32) if value.dtype in (np.float16, np.float64) else value


def main(folder, source, target, copy):
    head, variables, aliases = read(os.path.join(folder, "model.bin"))
    shutil.copytree(folder, copy)
    kept = {name: exact(name, value, variables) for name,
            value in variables.items() if not name.endswith("_scale")}
    write(os.path.join(copy, "model.bin"), head, kept, [pair
                                                        for pair in aliases
                                                        if not pair[0].endswith("_scale")])
    sides = []
    for path in (source, target):
        with open(path, encoding="utf-8") as file:
            sides.append([line.split() for line in file])
    for score in ctranslate2.Translator(copy, compute_type="float32").score_batch(*sides):
        print(f"{sum(score.log_probs):.6f}")


main(*sys.argv[1:])
