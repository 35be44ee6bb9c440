"""Unified Normalization (Yang et al. 2022), as in github.com/hikvision-research/Unified-Normalization.

Update t (from 1); M = window_forward, B = window_backward, a = decay; W is the length of the warm-up:

    p    = mean(x^2)
    v    = p                                             while t <= M or t < W
    v    = geometric mean of the last M values of p      afterwards        buffer_x2
    rv   = moving average of v                                             running_var
    y    = weight x / sqrt(v + epsilon) + bias

Backward, z = x / sqrt(v + epsilon), q = weight r dy; r does not enter y:

    r    = 1                                             while t <= max(r_hold, W)
    r    = clip(sqrt(v + epsilon) / sqrt(rv + epsilon), 1/r_limit, r_limit)     afterwards; rv before the
    update g    = mean(q z)
    m    = g                                             while t <= B or t < W
    m    = mean of the last B values of g                afterwards        buffer_gz
    e    = a e + (1 - a) m                               before dx         ema_gz
    dx   = (q - e z) / sqrt(v + epsilon)
    dweight = sum(dy r z)

Running state: the buffers advance by one slot (t mod M, t mod B), and rv = a rv + (1 - a) v.

With outlier_filtration, a batch with t >= W is an outlier if in any feature the arithmetic mean of the last M
values of p exceeds their geometric mean by more than M times the unbiased variance of all M d numbers
sqrt(buffer_x2) before the update. Then v = p, r = 1, dx = (q - m z) / sqrt(v + epsilon) with m = g, and the
buffers receive rv and e instead of p and g. With M = 1 every batch is treated in this way, but buffer_x2
receives p.

Inference: y = weight x / sqrt(rv + epsilon) + bias. By design, the backward pass is not the exact gradient.
"""
from typing import Any

import torch
from torch import Tensor

from ._call import Call, Number, Page, Result, affine, average, into_slot, joined_mean, warmup, write


class _Unified(torch.autograd.Function):
    """y of x. scale: 1 / sqrt(v + epsilon); e, ring: ema_gz and buffer_gz, which backward changes; skipped:
    whether the batch stands for itself; full: whether the mean of the ring is used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, r: Tensor, e: Tensor,
                ring: Tensor, t: Tensor,
                full: Tensor, skipped: Tensor, rows: Number, group: Any, decay: float) -> Tensor:
        ctx.save_for_backward(x, weight, scale, r, t, full, skipped)
        ctx.e, ctx.ring, ctx.rows, ctx.group, ctx.decay = e, ring, rows, group, decay
        return torch.addcmul(bias, weight, x * scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, scale, r, t, full, skipped = ctx.saved_tensors
        dy, z, decay = grads[0], x * scale, ctx.decay
        d_weight = r * (dy * z).sum(0)
        with torch.no_grad():
            e = ctx.e.to(x.dtype).reshape(-1)
            g = joined_mean(weight * d_weight.detach(), ctx.rows, ctx.group)
            ring = ctx.ring.to(x.dtype).reshape(-1, x.shape[1])
            m = torch.where(full & ~skipped, into_slot(ring, t, g).mean(0), g)
            new = decay * e + (1 - decay) * m
            used = torch.where(skipped, m, new)
            ring = into_slot(ring, t, torch.where(skipped, e, g))
            write(ctx.e, new, ctx.rows)
            write(ctx.ring, ring, ctx.rows)
        dx = (weight * r * dy - used * z) * scale
        return (dx, d_weight, dy.sum(0), *(None for _ in range(10)))


def is_outlier(ring: Tensor, arithmetic: Tensor, geometric: Tensor) -> Tensor:
    """ring: buffer_x2 before the update."""
    window, roots = ring.shape[0], ring.sqrt()
    variance = (roots - roots.mean()).square().sum() / max(roots.numel() - 1, 1)
    return (arithmetic - geometric > window * variance).any()


def train(x: Tensor, call: Call) -> Result:
    options, epsilon, state = call.options, call.options["epsilon"], call.state
    t, window, rv = state["iters"] + 1, options["window_forward"], state["running_var"]
    with torch.no_grad():
        square = call.rows.mean(x.square())
        ring = into_slot(state["buffer_x2"], t, square)
        geometric = ring.pow(1 / window).prod(0)
        skipped = torch.full_like(t, window == 1, dtype=torch.bool)
        if options["outlier_filtration"] and window > 1:
            skipped = (t >= warmup(options)) & is_outlier(state["buffer_x2"], ring.mean(0), geometric)
            ring = torch.where(skipped, into_slot(ring, t, rv), ring)
        v = torch.where((t > window) & (t >= warmup(options)) & ~skipped, geometric, square)
        ratio = ((v + epsilon) / (rv + epsilon)).sqrt().clamp(1 / options["r_limit"], options["r_limit"])
        r = torch.where((t > max(options["r_hold"], warmup(options))) & ~skipped, ratio,
                        torch.ones_like(ratio))
        full = (t > options["window_backward"]) & (t >= warmup(options))
        counted = state["skip_counter"] + (skipped if window > 1
                                           else torch.zeros_like(skipped)).to(torch.int64)
    y: Tensor = _Unified.apply(x, call.params["weight"], call.params["bias"], (v + epsilon).rsqrt(), r,
                               call.buffers["ema_gz"],
                               call.buffers["buffer_gz"], t, full, skipped, call.rows.total, call.rows.group,
                               options["decay"])
    return Result(y, {"running_var": average(rv, v, options["decay"]), "buffer_x2": ring, "iters": t,
                      "skip_counter": counted})


def infer(x: Tensor, call: Call) -> Tensor:
    return affine(x * (call.state["running_var"] + call.options["epsilon"]).rsqrt(), call.params)


page = Page("un", train=train, infer=infer, own_backward=True)
