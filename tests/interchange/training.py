"""Training with Norma against training with transformers and torch.optim: the same weights, batches and
optimizer.

    training.py NORMA FOLDER

Saves small models with random weights in FOLDER with transformers, reads them with norma convert, and trains
each for 25 updates on both sides: in Norma in float, in PyTorch in double. Compares the losses before every
update and, in transformers, the weights after the last one. Exit code 1: a difference.
"""

import json
import math
import os
import random
import subprocess
import sys

import torch
from safetensors.torch import load_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)
from transformers.utils import logging

SIZE, CONTEXT, STREAMS, UPDATES = 61, 12, 4, 25
ENDS = {"vocab_size": SIZE, "eos_token_id": SIZE - 1, "bos_token_id": SIZE - 1, "pad_token_id": None,
        "initializer_range": 0.15}
GPT2 = {**ENDS, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}
ROPE = {**ENDS, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT, "num_key_value_heads": 2}
FAMILIES = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2-untied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, tie_word_embeddings=False)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**ROPE)),
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(**ROPE, tie_word_embeddings=True)),
    "llama-biases": lambda: LlamaForCausalLM(LlamaConfig(**ROPE, attention_bias=True, mlp_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**ROPE, sliding_window=5)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**ROPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**ROPE, head_dim=8)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**ROPE, head_dim=8, query_pre_attn_scalar=8,
                                                         sliding_window=5,
                                                         sliding_window_pattern=2)),
}


class InDouble:
    """The module torch, in which bfloat16 is float64."""
    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


torch.optim._muon.torch = InDouble()
EMBEDDINGS = {"transformer.wte.weight", "model.embed_tokens.weight", "lm_head.weight"}
failures = 0


def norma(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"norma {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def make_model(name):
    """The folder and the Norma model NAME, with gains other than 1 and biases other than 0."""
    torch.manual_seed(7)
    model = FAMILIES[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(name)
    with open(f"{name}/vocab.json", "w") as file:
        json.dump({f"w{i}" if i < SIZE - 1 else "<|endoftext|>": i for i in range(SIZE)}, file)
    norma("convert", name, "--from", "huggingface", "-o", f"{name}.safetensors")
    norma("prepare", "--like", f"{name}.safetensors", "--train", "train.txt", "--valid", "valid.txt",
          "--output", f"{name}-data")


def write_texts():
    """One line whose tokens, with the end of the text, are the segments of all updates; a token depends on
    the one before it."""
    random.seed(5)
    ids = [0]
    while len(ids) < STREAMS * CONTEXT * UPDATES - 1:
        ids.append((3 * ids[-1] + random.choice([1, 2, 2, 5])) % (SIZE - 1))
    for name, tokens in (("train.txt", ids), ("valid.txt", ids[:40])):
        with open(name, "w") as file:
            file.write(" ".join(f"w{i}" for i in tokens) + "\n")
    return [*ids, SIZE - 1]


def batches(ids):
    length = len(ids) // STREAMS
    inputs, targets = torch.tensor([[SIZE - 1, *ids[:-1]], ids]).reshape(2, STREAMS, length)
    for u in range(UPDATES):
        at = slice(u * CONTEXT, (u + 1) * CONTEXT)
        yield inputs[:, at], targets[:, at]


def vocabulary_order(folder):
    """The ids of w0, w1, ... and of the end of a text in a folder of Norma, in which special tokens have the
    first ids."""
    with open(f"{folder}/tokenizer.json") as file:
        ids = json.load(file)["model"]["vocab"]
    return torch.tensor([*(ids[f"w{i}"] for i in range(SIZE - 1)), ids["</s>"]])


def is_hidden(name, parameter):
    return parameter.dim() == 2 and ".layers." in name


def optimizers(kind, model, lr, **settings):
    named = list(model.named_parameters())
    matrices, vectors = [p for _, p in named if p.dim() > 1], [p for _, p in named if p.dim() == 1]
    if kind == "adam":
        return [torch.optim.Adam(model.parameters(), lr=lr, **settings)]
    if kind == "sgd":
        return [torch.optim.SGD(model.parameters(), lr=lr, **settings)]
    if kind == "adamw":
        return [torch.optim.AdamW(model.parameters(), lr=lr, **settings)]
    if kind == "adamw-matrices":  # the groups of nanoGPT
        decay = settings.pop("weight_decay")
        return [torch.optim.AdamW([{"params": matrices, "weight_decay": decay},
                                   {"params": vectors, "weight_decay": 0.0}], lr=lr,
                                  **settings)]
    adamw = {key: settings.pop(key) for key in ("betas", "eps") if key in settings}
    decay = settings.get("weight_decay", 0.0)
    settings["weight_decay"] = decay
    return [torch.optim.Muon([p for n, p in named if is_hidden(n, p)], lr=lr, **settings),
            torch.optim.AdamW([p for n, p in named if not is_hidden(n, p)], lr=lr, weight_decay=decay,
                              **adamw)]


def constant(lr):
    return lambda _: lr


def nanogpt_rate(lr, warmup, decay_iters, least):
    """get_lr of nanoGPT's train.py, of iteration `it` from 0."""
    def rate(it):
        if it < warmup:
            return lr * (it + 1) / (warmup + 1)
        if it > decay_iters:
            return least
        return least + 0.5 * (1 + math.cos(math.pi * (it - warmup) / (decay_iters - warmup))) * (lr - least)
    return rate


def train_torch(name, ids, kind, lr, clip, rate, settings):
    torch.manual_seed(7)
    model = FAMILIES[name]().from_pretrained(name, dtype=torch.float64).train()
    steps, losses = optimizers(kind, model, lr, **settings), []
    for it, (inputs, targets) in enumerate(batches(ids)):
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.reshape(-1, SIZE), targets.reshape(-1))
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        for optimizer in steps:
            for group in optimizer.param_groups:
                group["lr"] = rate(it)
            optimizer.step()
    return model, losses


def compare(name, ids, kind, lr, options, *, settings=None, clip=0.0, rate=None, tolerance=1e-5, label=""):
    """options: of norma train; settings: of the optimizer in PyTorch."""
    global failures
    run = f"run-{name}-{label or kind}"
    schedule = [] if rate else ["--schedule.name", "constant"]
    norma("train", "plain.ini", "--tune", f"{name}.safetensors", "--data.folder", f"{name}-data",
          "--run.folder", run, "--run.quiet",
          "--train.updates", str(UPDATES), "--train.max_tokens", str(STREAMS * CONTEXT),
          "--train.label_smoothing", "0",
          "--train.score", "false", "--train.log_every", "1", "--train.max_grad_norm", str(clip),
          "--schedule.lr", str(lr), *schedule, *options)
    with open(f"{run}/log.jsonl") as file:
        ours = [line["loss"] for line in map(json.loads, file) if line["type"] == "train"]
    model, theirs = train_torch(name, ids, kind, lr, clip, rate or constant(lr), settings or {})
    norma("convert", run, "--to", "huggingface", "-o", f"{run}-hf")
    saved, weights = load_file(f"{run}-hf/model.safetensors"), dict(model.named_parameters())
    order = vocabulary_order(f"{run}-hf")
    for tensor in EMBEDDINGS & saved.keys():
        saved[tensor] = saved[tensor][order]
    loss = max(abs(a - b) for a, b in zip(ours, theirs)) if len(ours) == len(theirs) == UPDATES else math.inf
    same = set(saved) == set(weights)
    # The gradient of a key bias is 0 in exact arithmetic; Adam turns its rounding into steps that change no
    # output.
    keys = [n for n in weights if n in saved and not n.endswith(("c_attn.bias", "k_proj.bias"))]
    # Adam also turns the rounding of other tiny gradients into steps, so that single weights differ by more.
    weight = max((saved[n].double() - weights[n].detach()).square().mean().sqrt().item() for n in keys)
    passed = same and loss < tolerance and weight < 3 * tolerance
    failures += not passed
    print(
        f"{'ok    ' if passed else 'FAILED'} {name}, {label or kind}: loss {theirs[0]:.4f} to "
        f"{theirs[-1]:.4f}, largest difference "
        f"{loss:.1e} of {len(ours)} losses, root mean square of the weights "
        f"{weight:.1e}{'' if same else '; other tensors'}",
        flush=True,
    )


ADAM = ["--optim.name", "adam"]
ADAMW = ["--optim.name", "adamw"]


def check_family(name, ids):
    make_model(name)
    # Embeddings that are multiplied by sqrt(d) have larger gradients: at the rates of the other families,
    # weights that differ by 1e-8 have losses that differ by 0.3 after 25 updates, in PyTorch alone, too.
    lr, sgd = (5e-4, 0.005) if name == "gemma3" else (2e-3, 0.05)
    compare(name, ids, "adam", lr, [*ADAM, "--optim.beta2", "0.999"])
    compare(name, ids, "adam", lr, [*ADAM, "--optim.beta1", "0.8", "--optim.beta2", "0.95", "--optim.eps",
                                    "1e-6", "--optim.weight_decay",
                                    "0.05"],
            settings={"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.05}, label="adam with decay")
    compare(name, ids, "adamw", lr, [*ADAMW, "--optim.beta2", "0.999", "--optim.weight_decay", "0.1"],
            settings={"weight_decay": 0.1})
    compare(name, ids, "adamw-matrices", lr,
            [*ADAMW, "--optim.beta2", "0.95", "--optim.weight_decay", "0.3", "--optim.decayed_parameters",
             "matrices"], clip=0.5,
            settings={"betas": (0.9, 0.95), "weight_decay": 0.3})
    compare(name, ids, "sgd", sgd, ["--optim.name", "sgd", "--optim.momentum", "0"], label="sgd")
    compare(name, ids, "sgd", 0.4 * sgd, ["--optim.name", "sgd", "--optim.momentum", "0.9",
                                           "--optim.weight_decay", "0.05"], clip=1.0,
            settings={"momentum": 0.9, "weight_decay": 0.05}, label="sgd with momentum and decay")


def check_muon(name, ids):
    """PyTorch orthogonalizes in bfloat16; here in double, as the rest."""
    muon = ["--optim.name", "muon", "--optim.beta2", "0.999"]
    compare(name, ids, "muon", 0.01, muon, settings={"adjust_lr_fn": "match_rms_adamw"}, tolerance=1e-4)
    compare(name, ids, "muon", 0.01,
            [*muon, "--optim.muon_scale", "original", "--optim.muon_nesterov", "false",
             "--optim.muon_momentum", "0.8",
             "--optim.weight_decay", "0.1", "--optim.muon_steps", "4"],
            settings={"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.8, "weight_decay": 0.1,
                      "ns_steps": 4},
            tolerance=1e-4, label="muon as in the original code")


def check_nanogpt(name, ids):
    """train.py of nanoGPT: groups of AdamW, betas, clipping, and get_lr with warmup_iters = 5, lr_decay_iters
    = 25."""
    compare(name, ids, "adamw-matrices", 6e-3,
            [*ADAMW, "--optim.beta2", "0.95", "--optim.weight_decay", "0.1", "--optim.decayed_parameters",
             "matrices", "--schedule.name",
             "cosine", "--schedule.warmup", "6", "--schedule.updates", "26", "--schedule.final_fraction",
             "0.1"],
            settings={"betas": (0.9, 0.95), "weight_decay": 0.1}, clip=1.0,
            rate=nanogpt_rate(6e-3, 5, 25, 6e-4),
            label="recipe of nanoGPT")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    os.chdir(sys.argv[2])
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with open("plain.ini", "w") as recipe:  # without the settings of a recipe
        recipe.write("[run]\ntask = lm\n")
    IDS = write_texts()
    for family in FAMILIES:
        check_family(family, IDS)
        if not family.startswith("gpt2"):
            check_muon(family, IDS)
    for family in ("gpt2", "gpt2-untied", "llama-tied"):
        check_nanogpt(family, IDS)
    sys.exit(failures > 0)
