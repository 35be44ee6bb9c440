"""A re-derivation of PowerNorm in plain PyTorch from the equations: Shen et al. 2020, Algorithm 2, with the
warm-up, the group scaling and the backward divisor of the released code. For test_torch.py and
bench/peers/torch_modules.py."""
import torch
from torch import nn


class PlainPower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, weight, bias, module):
        p = h.square().mean(0)
        module.t += 1
        t, warmup = module.t, module.warmup
        z = h / torch.sqrt((p if t <= warmup else module.phi) + 1e-5)
        if t < warmup:
            module.phi = module.phi * (t - 1) / t + p / t
        module.phi = 0.9 * module.phi + 0.1 * p
        ctx.save_for_backward(z, p, weight)
        ctx.module = module
        return weight * z + bias

    @staticmethod
    def backward(ctx, dy):
        z, p, weight = ctx.saved_tensors
        a = dy * weight - 0.1 * ctx.module.e * z
        ctx.module.e = ctx.module.e + (a * z).mean(0)
        return a / torch.sqrt(p + 1e-5), (dy * z).sum(0), dy.sum(0), None


class PlainPowerNorm(nn.Module):
    def __init__(self, width, groups, warmup):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.groups, self.warmup, self.t = groups, warmup, 0
        self.phi, self.e = torch.ones(width), torch.zeros(width)
        self.eps = float("nan")  # no fused kernels of LayerNorm

    def forward(self, x):
        parts = x.reshape(-1, self.groups, x.shape[-1] // self.groups)
        h = (parts / torch.sqrt(parts.square().mean(-1, keepdim=True) + 1e-5)).reshape(-1, x.shape[-1])
        if self.training:
            y = PlainPower.apply(h, self.weight, self.bias, self)
        else:
            y = self.weight * h / torch.sqrt(self.phi + 1e-5) + self.bias
        return y.reshape(x.shape)
