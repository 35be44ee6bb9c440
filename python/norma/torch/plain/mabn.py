"""Moving Average Batch Normalization (Yan et al. 2020), as in the standalone module of
github.com/megvii-model/MABN.

Update t (from 1); h = x, or x scaled per row and group (option scaling); L = window; W is the length of the
warm-up:

    p    = mean(h^2)
    v    = p                                   while t <= L or t < W
    v    = mean of the last L values of p      afterwards             buffer_x2
    rv   = moving average of v                                        running_var

    z    = h / sqrt(v + epsilon)
    r    = 1                                   while t <= max(r_hold, W)
    r    = clip(sqrt(v + epsilon) / sqrt(rv + epsilon), 1/r_limit, r_limit)     afterwards
    y    = weight r z + bias                   option center_weights: minus its mean over the features

Backward, q = weight r dy:

    g    = mean(q z)
    gbar = g                                   while t <= L or t < W
    gbar = mean of the last L values of g      afterwards             buffer_gz
    dh   = (q - z gbar) / sqrt(v + epsilon)

Running state: the buffers advance by one slot (t mod L), and rv = decay rv + (1 - decay) v.
Inference: y = weight h / sqrt(rv + epsilon) + bias. By design, the backward pass is not the exact gradient.
"""
from typing import Any

import torch
from torch import Tensor

from ._call import (
    Call,
    Number,
    Page,
    Result,
    affine,
    average,
    into_slot,
    joined_mean,
    scaled_rows,
    warmup,
    write,
)

class _MovingAverage(torch.autograd.Function):
    """y of h. scale: 1 / sqrt(v + epsilon); ring: buffer_gz, which backward changes; full: whether its mean
    is used."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, r: Tensor, ring: Tensor,
                t: Tensor,
                full: Tensor, rows: Number, group: Any) -> Tensor:
        ctx.save_for_backward(h, weight, scale, r, t, full)
        ctx.ring, ctx.rows, ctx.group = ring, rows, group
        return torch.addcmul(bias, weight * r, h * scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h, weight, scale, r, t, full = ctx.saved_tensors
        dy, z = grads[0], h * scale
        d_weight = r * (dy * z).sum(0)
        with torch.no_grad():
            g = joined_mean(weight * d_weight.detach(), ctx.rows, ctx.group)
            ring = into_slot(ctx.ring.to(h.dtype).reshape(-1, h.shape[1]), t, g)
            average_of_last = torch.where(full, ring.mean(0), g)
            write(ctx.ring, ring, ctx.rows)
        dh = (weight * r * dy - z * average_of_last) * scale
        return (dh, d_weight, dy.sum(0), *(None for _ in range(7)))


def centered(y: Tensor, call: Call) -> Tensor:
    return y - y.mean(-1, keepdim=True) if call.options["center_weights"] else y


def train(x: Tensor, call: Call) -> Result:
    options, epsilon, t = call.options, call.options["epsilon"], call.state["iters"] + 1
    h = scaled_rows(x, call)
    with torch.no_grad():
        square = call.rows.mean(h.square())
        ring = into_slot(call.state["buffer_x2"], t, square)
        full = (t > options["window"]) & (t >= warmup(options))
        v = torch.where(full, ring.mean(0), square)
        ratio = (
            ((v + epsilon) / (call.state["running_var"] + epsilon))
            .sqrt()
            .clamp(1 / options["r_limit"], options["r_limit"])
        )
        r = torch.where(t > max(options["r_hold"], warmup(options)), ratio, torch.ones_like(ratio))
    y: Tensor = _MovingAverage.apply(h, call.params["weight"], call.params["bias"], (v + epsilon).rsqrt(), r,
                                     call.buffers["buffer_gz"], t, full, call.rows.total, call.rows.group)
    return Result(centered(y, call), {"running_var": average(call.state["running_var"], v, options["decay"]),
                                      "buffer_x2": ring, "iters": t})


def infer(x: Tensor, call: Call) -> Tensor:
    z = scaled_rows(x, call) * (call.state["running_var"] + call.options["epsilon"]).rsqrt()
    return centered(affine(z, call.params), call)


page = Page("mabn", train=train, infer=infer, own_backward=True)
