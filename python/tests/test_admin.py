"""The initialization Admin (Liu et al. 2020), against a forward pass and its formula in NumPy."""
import json
import struct

import numpy as np
import pytest

from small_models import norma_program

WIDTH, HEADS = 8, 2
SETTINGS = {"model.width": WIDTH, "model.ff": 12, "model.heads": HEADS, "model.norm_position": "post",
            "model.residual": "admin", "model.init": "admin", "model.positions": "none",
            "model.dropout": 0.3, "model.embedding_dropout": 0.3, "model.norm": "layer", "train.updates": 1,
            "train.save_initial": "true", "train.keep_last": 2, "device.precision": "float",
            "device.threads": 1}


def read_tensors(path):
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return {name: np.frombuffer(data[8 + length + at["data_offsets"][0] : 8 + length + at["data_offsets"][1]],
                                np.float32).reshape(at["shape"]).astype(float)
            for name, at in header.items() if name != "__metadata__" and at["dtype"] == "F32"}


def read_ids(path):
    return np.frombuffer(path.read_bytes()[64:], np.int32)


def train(folder, recipe, **settings):
    words = [f"--{key}={value}" for key, value in {**SETTINGS, **settings}.items()]
    norma_program("train", recipe, "--data.folder", folder / "data", "--run.folder", folder / "run",
                  "--run.profile=", "--schedule.warmup", 0, *words)
    return read_tensors(folder / "run" / "checkpoints" / "00000000.safetensors")


def normalize(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def attend(q, k, v, causal):
    out = np.empty_like(q)
    for head in np.split(np.arange(WIDTH), HEADS):
        scores = q[:, head] @ k[:, head].T / np.sqrt(WIDTH // HEADS)
        if causal:
            scores[np.triu_indices(len(q), 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, head] = weights / weights.sum(1, keepdims=True) @ v[:, head]
    return out


def profile(tensors, stack, layers, x, memory=None, causal=False):
    """omega of each sublayer by the formula, and the output of the stack with omega = 1."""
    def linear(h, name):
        return h @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    omegas, total = {}, x.var()
    for layer in range(layers):
        for name in ("self", "cross", "ffn"):
            at = f"{stack}.{layer}.{name}"
            if name == "self":
                f = linear(attend(*np.split(linear(x, f"{at}.qkv"), 3, 1), causal), f"{at}.out")
            elif name == "ffn":
                f = linear(np.maximum(linear(x, f"{at}.in"), 0), f"{at}.out")
            elif memory is None:
                continue
            else:
                f = linear(attend(linear(x, f"{at}.q"), *np.split(linear(memory, f"{at}.kv"), 2, 1), False),
                           f"{at}.out")
            omegas[f"{at}.omega"] = np.sqrt(total) if omegas else 1.0
            total += f.var()
            x = normalize(x + f)
    return omegas, x


def check(tensors, omegas):
    assert sorted(omegas) == sorted(name for name in tensors if name.endswith(".omega"))
    for name, expected in omegas.items():
        assert tensors[name].shape == (WIDTH,)
        assert np.abs(tensors[name] - expected).max() < 1e-5 * expected, name
    assert len({round(float(expected), 6) for expected in omegas.values()}) > len(omegas) // 2


def test_language_model(tmp_path):
    (tmp_path / "train").write_text("a b c d e f g\n" * 12)  # all segments are this line
    (tmp_path / "valid").write_text("g f a b x\n")
    norma_program("prepare", "--format", "text", "--tokenizer", "none", "--bpe-merges", 0, "--train",
                  tmp_path / "train", "--valid", tmp_path / "valid", "--output", tmp_path / "data")
    tensors = train(tmp_path, "lm", **{"model.layers": 3, "model.context": 8, "train.max_tokens": 16,
                                       "model.embedding_scale": "none"})
    ids = read_ids(tmp_path / "data" / "train.text.ids")[:8]
    x = tensors["embed.weight"][np.roll(ids, 1)]
    check(tensors, profile(tensors, "lm", 3, x, causal=True)[0])


@pytest.mark.parametrize("layers", [1, 2])
def test_translation(tmp_path, layers):
    for split, source, target in (("train", "a b c", "x y z w"), ("valid", "c a", "z u")):
        (tmp_path / f"{split}.de").write_text(f"{source}\n" * 6)
        (tmp_path / f"{split}.en").write_text(f"{target}\n" * 6)
    norma_program("prepare", "--train", tmp_path / "train", "--valid", tmp_path / "valid", "--source-lang",
                  "de", "--target-lang", "en", "--tokenizer", "none", "--bpe-merges", 0, "--joint", "true",
                  "--output", tmp_path / "data")
    tensors = train(tmp_path, "translate", **{"model.encoder_layers": layers, "model.decoder_layers": layers,
                                              "model.fixnorm": "false", "train.score": "false"})
    source, target = (read_ids(tmp_path / "data" / f"train.{side}.ids") for side in ("source", "target"))
    table = tensors["embed.weight"] * np.sqrt(WIDTH)
    omegas, memory = profile(tensors, "enc", layers, table[source[:4]])
    check(tensors, omegas | profile(tensors, "dec", layers, table[np.roll(target[:5], 1)], memory, True)[0])
