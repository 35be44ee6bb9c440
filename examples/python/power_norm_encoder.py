"""Replaces LayerNorm by PowerNorm in a PyTorch encoder and compares them: loss, time of an update, TID.

    python power_norm_encoder.py [UPDATES]        (pip install norma[torch])

The task is made by the script: sequences of different lengths, padded, whose tokens are to be sorted.
"""
import sys
import time

import torch
from torch import nn

import norma.torch

TOKENS, WIDTH, HEADS, LONGEST, SENTENCES = 30, 64, 4, 16, 64


def batch(generator):
    """Tokens [SENTENCES, LONGEST], the same sorted, and the padding mask, true at padding."""
    tokens = torch.randint(TOKENS, (SENTENCES, LONGEST), generator=generator)
    lengths = torch.randint(4, LONGEST + 1, (SENTENCES, 1), generator=generator)
    padding = torch.arange(LONGEST) >= lengths
    target = tokens.masked_fill(padding, TOKENS).sort(1).values
    return tokens, target, padding


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.embed, self.position = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens, padding):
        x = self.embed(tokens) + self.position.weight
        with norma.torch.padding(self.encoder, padding):  # no effect while the norms are PyTorch's
            return self.output(self.encoder(x, src_key_padding_mask=padding))


def loss_of(model, tokens, target, padding):
    return nn.functional.cross_entropy(model(tokens, padding)[~padding], target[~padding])


def train(model, updates):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    start = time.perf_counter()
    for _ in range(updates):
        optimizer.zero_grad()
        loss_of(model, *batch(generator)).backward()
        optimizer.step()
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        test = [loss_of(model, *batch(torch.Generator().manual_seed(seed))).item()
                for seed in range(100, 110)]
    return sum(test) / len(test), seconds / updates


def main():
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    torch.manual_seed(0)
    model = Sorter()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    batches = [batch(torch.Generator().manual_seed(seed)) for seed in range(200, 220)]
    for norm in ("layer", "power"):
        if norm == "power":
            model.load_state_dict(start)
            norma.torch.replace_norms(model, "power", groups=HEADS, warmup=updates // 4)
        loss, seconds = train(model, updates)
        sites = norma.torch.tid(model, batches, groups=HEADS, padding_mask=lambda b: b[2],
                                forward=lambda model, b: model(b[0], b[2]))
        mean = sum(site.mean for site in sites) / len(sites)
        print(
            f"{norm:6} test loss {loss:.4f}  {1000 * seconds:.1f} ms per update  mean TID {100 * mean:.1f} %"
        )


if __name__ == "__main__":
    main()
