#!/usr/bin/env python3
"""Converts a translation model of norma to CTranslate2, to compare decoders with the same weights.

    ct2_convert.py RUN/best.safetensors FOLDER [int8]

Pre- or post-norm models with LayerNorm, shared embeddings and fairseq's sinusoidal positions. Needs the
packages ctranslate2 and numpy.
"""
import json
import math
import struct
import sys

import numpy as np
from ctranslate2.specs import transformer_spec

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
POSITIONS = 1024


def read_model(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    meta = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"]).copy()
    return tensors, meta


def option(meta, key):
    for line in meta["config"].splitlines():
        words = line.split()
        if len(words) > 2 and words[0] == key:
            return words[2]
    sys.exit(f"ct2_convert.py: the model does not say its {key}")


def positions(width):
    half = width // 2
    rates = np.exp(-math.log(10000.0) * np.arange(half) / (half - 1))
    angles = (np.arange(POSITIONS) + 2)[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def set_norm(spec, tensors, name):
    spec.gamma = tensors[name + ".norm.weight"]
    spec.beta = tensors[name + ".norm.bias"]


def set_linear(spec, tensors, name):
    spec.weight = tensors[name + ".weight"]
    spec.bias = tensors[name + ".bias"]


def set_feed_forward(spec, tensors, name):
    set_norm(spec.layer_norm, tensors, name)
    set_linear(spec.linear_0, tensors, name + ".in")
    set_linear(spec.linear_1, tensors, name + ".out")


def set_self_attention(spec, tensors, name):
    set_norm(spec.layer_norm, tensors, name)
    set_linear(spec.linear[0], tensors, name + ".qkv")
    set_linear(spec.linear[1], tensors, name + ".out")


def set_cross_attention(spec, tensors, name):
    set_norm(spec.layer_norm, tensors, name)
    set_linear(spec.linear[0], tensors, name + ".q")
    set_linear(spec.linear[1], tensors, name + ".kv")
    set_linear(spec.linear[2], tensors, name + ".out")


def set_inputs(spec, embeddings, tensors):
    embeddings.weight = tensors["embed.weight"]
    spec.scale_embeddings = math.sqrt(tensors["embed.weight"].shape[1])
    spec.position_encodings.encodings = positions(tensors["embed.weight"].shape[1])


def words_of(text):
    return SPECIALS + [line.rsplit(" ", 1)[0] for line in text.splitlines()]


def convert(path):
    tensors, meta = read_model(path)
    pre_norm = option(meta, "norm_position") == "pre"
    layers = [int(option(meta, side)) for side in ("encoder_layers", "decoder_layers")]
    spec = transformer_spec.TransformerSpec.from_config(layers, int(option(meta, "heads")), pre_norm=pre_norm)
    set_inputs(spec.encoder, spec.encoder.embeddings[0], tensors)
    set_inputs(spec.decoder, spec.decoder.embeddings, tensors)
    spec.decoder.projection.weight = tensors["embed.weight"]
    for side, name in ((spec.encoder, "enc"), (spec.decoder, "dec")):
        if pre_norm:
            set_norm(side.layer_norm, tensors, name + ".final")
        for i, layer in enumerate(side.layer):
            set_self_attention(layer.self_attention, tensors, f"{name}.{i}.self")
            set_feed_forward(layer.ffn, tensors, f"{name}.{i}.ffn")
            if name == "dec":
                set_cross_attention(layer.attention, tensors, f"{name}.{i}.cross")
    spec.register_source_vocabulary(words_of(meta["dict.source.txt"]))
    spec.register_target_vocabulary(words_of(meta["dict.target.txt"]))
    spec.config.decoder_start_token = "</s>"
    spec.config.add_source_eos = True
    return spec


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    spec = convert(sys.argv[1])
    spec.validate()
    spec.optimize(quantization=sys.argv[3] if len(sys.argv) > 3 else None)
    spec.save(sys.argv[2])


main()
