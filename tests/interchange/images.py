"""Training of ResNets with Norma against PyTorch: the same weights, batches and optimizer.

    images.py NORMA FOLDER

Norma trains small ResNets on images that the script writes to FOLDER, in float. PyTorch trains the same
models from Norma's initial weights, in double and in float. A batch contains all images, so that it is the
same batch in any order. Compares the losses before every update, and weights and running statistics after
the last one. Norma may differ from the results in double by ten times as much as PyTorch's float does.
Exit code 1: a difference.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

IMAGES, SIDE, CLASSES, UPDATES = 48, 16, 3, 30
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}
WIDTHS, BLOCKS = (4, 8, 16), (3, 3, 3)  # ResNet20 with a quarter of its channels
MODELS = {
    "resnet20": {"norm": "batch", "shortcut": "pad", "pre": False},
    "conv-shortcut": {"norm": "batch", "shortcut": "conv", "pre": False},
    "pre-activation": {"norm": "batch", "shortcut": "conv", "pre": True},
    "group": {"norm": "group2d", "shortcut": "pad", "pre": False},
}
failures = 0


def norma(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"norma {' '.join(arguments)}: {done.stderr}")


def write_records():
    """Records of CIFAR-10: noise with a brighter square whose place depends on the class. Validation images
    are others."""
    random.seed(3)
    images = []
    with open("batches.meta.txt", "w") as file:
        file.write("left\nmiddle\nright\n")
    for name in ("train.bin", "valid.bin"):
        with open(name, "wb") as file:
            for i in range(IMAGES):
                label = i % CLASSES
                begin = 8 * label
                pixels = [min(255, random.randrange(150) + 100 * (begin <= x < begin + 12 and c != label))
                          for c in range(3) for _ in range(32) for x in range(32)]
                file.write(bytes([label, *pixels]))
                if name == "train.bin":
                    images.append(pixels)
    pixels = torch.tensor(images, dtype=torch.float64).reshape(IMAGES, 3, 32, 32)
    scaled = torch.floor(F.avg_pool2d(pixels, 2) + 0.5)  # Norma rounds scaled images to bytes
    mean, deviation = scaled.mean((0, 2, 3), True), scaled.std((0, 2, 3), correction=0, keepdim=True)
    return (scaled - mean) / deviation, torch.arange(IMAGES) % CLASSES


class Block(nn.Module):
    def __init__(self, before, channels, stride, norm, shortcut, pre):
        super().__init__()
        self.pre, self.changes, self.stride = pre, stride > 1 or before != channels, stride
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(before if pre else channels), norm(channels)
        self.added = channels - before
        if self.changes and shortcut == "conv":
            self.shortcut = nn.Conv2d(before, channels, 1, stride, bias=False)
            self.shortcut_norm = nn.Identity() if pre else norm(channels)
        else:
            self.shortcut = None

    def side(self, x, u):
        if not self.changes:
            return x
        if self.shortcut is not None:
            return self.shortcut_norm(self.shortcut(u))
        return F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.added))

    def forward(self, x):
        if self.pre:
            u = F.relu(self.norm1(x))
            return self.side(x, u) + self.conv2(F.relu(self.norm2(self.conv1(u))))
        return F.relu(self.side(x, x) + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self, norm, shortcut, pre):
        super().__init__()
        make = nn.BatchNorm2d if norm == "batch" else lambda channels: nn.GroupNorm(1, channels)
        self.stem = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.stem_norm = None if pre else make(WIDTHS[0])
        self.final_norm = make(WIDTHS[-1]) if pre else None
        blocks, channels = [], WIDTHS[0]
        for stage, (width, n) in enumerate(zip(WIDTHS, BLOCKS)):
            for i in range(n):
                blocks.append(Block(channels, width, 2 if stage and not i else 1, make, shortcut, pre))
                channels = width
        self.blocks, self.output = nn.ModuleList(blocks), nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(self.stem_norm(x)) if self.stem_norm else x
        for block in self.blocks:
            x = block(x)
        x = F.relu(self.final_norm(x)) if self.final_norm else x
        return self.output(x.mean((2, 3)))


def tensors(model):
    """The parameters and running statistics by Norma's names."""
    def of_norm(name, norm):
        found = {f"res.{name}.norm.weight": norm.weight, f"res.{name}.norm.bias": norm.bias}
        if isinstance(norm, nn.BatchNorm2d):
            found |= {f"res.{name}.norm.running_mean": norm.running_mean,
                      f"res.{name}.norm.running_var": norm.running_var}
        return found

    found = {"res.stem.weight": model.stem.weight, "output.weight": model.output.weight,
             "output.bias": model.output.bias}
    if model.stem_norm:
        found |= of_norm("stem", model.stem_norm)
    if model.final_norm:
        found |= of_norm("final", model.final_norm)
    for i, block in enumerate(model.blocks):
        found |= {f"res.{i}.conv1.weight": block.conv1.weight, f"res.{i}.conv2.weight": block.conv2.weight}
        found |= of_norm(f"{i}.conv1", block.norm1) | of_norm(f"{i}.conv2", block.norm2)
        if block.shortcut is not None:
            found[f"res.{i}.shortcut.weight"] = block.shortcut.weight
            if not block.pre:
                found |= of_norm(f"{i}.shortcut", block.shortcut_norm)
    return found


def layout(stored, tensor):
    """A tensor of Norma, [out, row, column, in] or a vector, in the layout of PyTorch."""
    if tensor.dim() != 4:
        return stored.reshape(tensor.shape)
    out, channels, height, width = tensor.shape
    return stored.reshape(out, height, width, channels).permute(0, 3, 1, 2)


def check_names(name, stored, own):
    left = {key for key in stored if key not in own and not key.endswith(".iters")
            and not key.startswith(("labels", "standardization", "norma"))}
    if left or own.keys() - stored.keys():
        sys.exit(f"{name}: tensors without a counterpart: {sorted(left | (own.keys() - stored.keys()))}")


def train_torch(name, dtype, images, labels):
    """The losses before every update, and the tensors after the last one."""
    model = ResNet(**MODELS[name]).to(dtype)
    stored, own = load_file(f"{name}/checkpoints/00000000.safetensors"), tensors(model)
    check_names(name, stored, own)
    with torch.no_grad():
        for key, tensor in own.items():
            tensor.copy_(layout(stored[key].to(dtype), tensor))
    optimizer, losses = torch.optim.SGD(model.parameters(), **SGD), []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.to(dtype)), labels)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, {key: tensor.detach().double() for key, tensor in own.items()}


def train_norma(name):
    model = MODELS[name]
    settings = {"run.folder": name, "data.train": "train.bin", "data.valid": "valid.bin", "data.size": SIDE,
                "data.batch": IMAGES, "data.crop": 0, "data.mirror": "false", "model.widths": "4,8,16",
                "model.blocks": "3,3,3", "model.shortcut": model["shortcut"],
                "model.pre_activation": str(model["pre"]).lower(), "model.norm": model["norm"],
                "train.epochs": 0, "train.updates": UPDATES, "train.log_every": 1,
                "train.save_initial": "true", "train.label_smoothing": 0, "train.keep_last": 2,
                "optim.name": "sgd", "optim.momentum": SGD["momentum"],
                "optim.weight_decay": SGD["weight_decay"],
                "schedule.name": "constant", "schedule.lr": SGD["lr"], "schedule.warmup": 0,
                "schedule.warmup_fraction": 0, "device.threads": 1}
    if model["norm"] == "batch":
        settings["norm.batch.preset"] = "framework"
    norma("train", "image", "--run.quiet", *(f"--{key}={value}" for key, value in settings.items()))
    with open(f"{name}/log.jsonl") as file:
        records = [json.loads(line) for line in file]
    return [record["loss"] for record in records if record["type"] == "train"], load_file(
        f"{name}/last.safetensors")


def distance(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs))


def check(name, images, labels):
    global failures
    shutil.rmtree(name, ignore_errors=True)
    losses, stored = train_norma(name)
    double, exact = train_torch(name, torch.float64, images, labels)
    single, rounded = train_torch(name, torch.float32, images, labels)
    if len(losses) != UPDATES:
        sys.exit(f"{name}: {len(losses)} losses of {UPDATES} updates")
    pairs = [("losses", distance(losses, double), distance(single, double))]
    for key, tensor in exact.items():
        ours = layout(stored[key].double(), tensor)
        pairs.append((key, float((ours - tensor).abs().max()), float((rounded[key] - tensor).abs().max())))
    largest = max(pairs[1:], key=lambda pair: pair[1])
    bad = [pair for pair in pairs if not pair[1] <= 10 * max(pair[2], 1e-6)]
    failures += bool(bad)
    print(f"{name}: loss {double[0]:.4f} to {double[-1]:.4f}; "
          f"largest difference of the losses {pairs[0][1]:.1e} "
          f"(float of PyTorch {pairs[0][2]:.1e}), of tensors {largest[1]:.1e} at {largest[0]} "
          f"({max(pair[2] for pair in pairs[1:]):.1e})" + (f": DIFFERENT: {bad[:3]}" if bad else ""))


def main():
    images, labels = write_records()
    for name in MODELS:
        check(name, images, labels)
    print(f"{len(MODELS) - failures} passed, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    PROGRAM = os.path.abspath(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    os.chdir(sys.argv[2])
    torch.set_num_threads(1)
    sys.exit(main())
