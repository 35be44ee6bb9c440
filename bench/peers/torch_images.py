#!/usr/bin/env python3
"""ResNet20 in PyTorch with the settings of the recipe pn/figure2-resnet20 and its profile small: training
curve and throughput, to compare with `norma train pn/figure2-resnet20 --run.profile small`.

    OMP_NUM_THREADS=1 python3 bench/peers/torch_images.py --train data/cifar10/train \\
        --valid data/cifar10/test [--per-class 400] [--epochs 15] [--seed 1] [--channels-last]
        [--steps 5 --rounds]

The network of tests/interchange/images.py, which has Norma's losses and gradients, with Norma's
initialization. Crops from 4 pixels of padding, mirror images, batches of 128, SGD with momentum 0.9, weight
decay 1e-4, a cosine from 0.1 after a warm-up of 5 % of the updates. --steps N measures N updates instead;
--rounds: see torch_rounds.py.
"""
import argparse
import math
import os
import sys
import time

import numpy
import torch
from PIL import Image
from torch.nn import functional as F

import torch_rounds

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/interchange"))
import images as interchange  # noqa: E402

BATCH, PADDING, RATE, WARM_UP = 128, 4, 0.1, 0.05


def read(folder, per_class):
    """Pixels [images, 3, 32, 32] from 0 to 1, and classes."""
    pixels, labels = [], []
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(f"{folder}/{name}"))[:per_class]:
            pixels.append(numpy.asarray(Image.open(f"{folder}/{name}/{file}").convert("RGB")))
            labels.append(label)
    return torch.tensor(numpy.stack(pixels)).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels)


def augmented(batch):
    """Shifted by up to PADDING pixels, mirrored or not, as in data.crop and data.mirror."""
    n, _, height, width = batch.shape
    padded = F.pad(batch, (PADDING,) * 4)
    down, right = torch.randint(2 * PADDING + 1, (2, n)).tolist()
    rows = [padded[i, :, down[i]:down[i] + height, right[i]:right[i] + width] for i in range(n)]
    mirrored = torch.rand(n) < 0.5
    return torch.stack([row.flip(2) if flip else row for row, flip in zip(rows, mirrored.tolist())])


def resnet20(classes):
    """Weights of convolutions have the variance 2 / inputs (He et al. 2015)."""
    interchange.WIDTHS, interchange.BLOCKS, interchange.CLASSES = (16, 32, 64), (3, 3, 3), classes
    model = interchange.ResNet("batch", "pad", False)
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.normal_(module.weight, std=math.sqrt(2 / module.weight[0].numel()))
    return model


def rate_at(update, updates):
    """The rate of update 1, 2, ...: up to RATE in a line, then a cosine to 0."""
    warm_up = WARM_UP * updates
    if update < warm_up:
        return RATE * update / warm_up
    return RATE * (1 + math.cos(math.pi * (update - warm_up) / (updates - warm_up))) / 2


class Training:
    def __init__(self, args, images, labels):
        torch.manual_seed(args.seed)
        self.images, self.labels, self.order, self.update = images, labels, [], 0
        self.form = torch.channels_last if args.channels_last else torch.contiguous_format
        self.model = resnet20(int(labels.max()) + 1).to(memory_format=self.form).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), RATE, momentum=0.9, weight_decay=1e-4)
        self.updates = args.epochs * math.ceil(len(labels) / BATCH)

    def step(self):
        """Images and seconds of an update."""
        start = time.perf_counter()
        if not len(self.order):
            self.order = torch.randperm(len(self.labels))
        now, self.order = self.order[:BATCH], self.order[BATCH:]
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.update + 1, self.updates)
        batch = augmented(self.images[now]).contiguous(memory_format=self.form)
        loss = F.cross_entropy(self.model(batch), self.labels[now])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update += 1
        return len(now), time.perf_counter() - start

    def validate(self, images, labels):
        """Mean loss and accuracy in percent."""
        self.model.eval()
        with torch.no_grad():
            logits = torch.cat([self.model(part) for part in images.split(BATCH)])
        self.model.train()
        right = (logits.argmax(1) == labels).float().mean().item()
        return F.cross_entropy(logits, labels).item(), 100 * right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--valid", required=True)
    for name, value in (("per-class", 400), ("epochs", 15), ("seed", 1), ("steps", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--rounds", action="store_true")
    args = parser.parse_args()
    images, labels = read(args.train, args.per_class)
    mean, deviation = images.mean((0, 2, 3), True), images.std((0, 2, 3), correction=0, keepdim=True)
    training = Training(args, (images - mean) / deviation, labels)
    if args.steps:
        training.step()
        torch_rounds.run(args.rounds, lambda: [training.step() for _ in range(args.steps)])
        return
    others, classes = read(args.valid, args.per_class)
    others = (others - mean) / deviation
    while training.update < training.updates:
        training.step()
        if not len(training.order):
            loss, accuracy = training.validate(others, classes)
            print(f"update {training.update}: loss {loss:.4f}, accuracy {accuracy:.2f}", flush=True)


if __name__ == "__main__":
    main()
