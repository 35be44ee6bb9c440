"""PowerNorm (Shen et al. 2020, Definition 3 and Algorithm 2), by default as in the released code.

Update t (from 1) has n rows; h = x scaled per row and group (option scaling); W is the length of the warm-up:

    p   = mean(h^2)                            batch
    phi = running mean of p                    running_phi
    nu  = (1 - decay_backward) e               e: ema_gz

    z   = h / sqrt(p + epsilon)                while t <= W
    z   = h / sqrt(phi + epsilon)              afterwards; phi as it was before the update
    y   = weight z + bias

Backward, q = weight dy; D = p (backward_divisor = batch), or the value that the forward pass used (running):

    dh  = (q - nu z) / sqrt(D + epsilon)
    e   = e (1 - (1 - decay_backward) mean(z^2)) + weight mean(dy z)
    e   = min(max(e, -clip), clip)             only if clip > 0

Running state:

    phi = phi (t - 1)/t + p/t                  only while t < W, before the next line
    phi = decay_forward phi + (1 - decay_forward) p

Inference: y = weight h / sqrt(phi + epsilon) + bias. By design, the backward pass is not the exact gradient.
"""
from typing import Any

import torch
from torch import Tensor

from ._call import Call, Number, Page, Result, affine, average, joined_mean, scaled_rows, warmup, write


class _Power(torch.autograd.Function):
    """y of h. scale: 1 / sqrt(p or phi + epsilon); divisor: 1 / sqrt(D + epsilon); e: the buffer, which
    backward changes."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, divisor: Tensor,
                square: Tensor, e: Tensor,
                rows: Number, group: Any, fresh: float, clip: float) -> Tensor:
        ctx.save_for_backward(h, weight, scale, divisor, square)
        ctx.e, ctx.rows, ctx.group, ctx.fresh, ctx.clip = e, rows, group, fresh, clip
        return torch.addcmul(bias, weight, h * scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h, weight, scale, divisor, square = ctx.saved_tensors
        dy, z, e, fresh = grads[0], h * scale, ctx.e.detach().reshape(-1).to(h.dtype), ctx.fresh
        e = e.clone()
        dh = (weight * dy - fresh * e * z) * divisor
        d_weight = (dy * z).sum(0)
        with torch.no_grad():
            mean = joined_mean(d_weight.detach(), ctx.rows, ctx.group)
            new = e * (1 - fresh * square * scale * scale) + weight * mean
            write(ctx.e, new.clamp(-ctx.clip, ctx.clip) if ctx.clip > 0 else new, ctx.rows)
        return (dh, d_weight, dy.sum(0), *(None for _ in range(8)))


def train(x: Tensor, call: Call) -> Result:
    options, phi, t = call.options, call.state["running_phi"], call.state["iters"] + 1
    h = scaled_rows(x, call)
    with torch.no_grad():
        square = call.rows.mean(h.square())
        used = torch.where(t <= warmup(options), square, phi)
        scale = (used + options["epsilon"]).rsqrt()
        divisor = scale if options["backward_divisor"] == "running" else (square + options["epsilon"]).rsqrt()
        part = 1 / t.to(h.dtype)
        phi = torch.where(t < warmup(options), phi * (1 - part) + square * part, phi)
    y: Tensor = _Power.apply(h, call.params["weight"], call.params["bias"], scale, divisor, square,
                             call.buffers["ema_gz"],
                             call.rows.total, call.rows.group, 1 - options["decay_backward"], options["clip"])
    return Result(y, {"running_phi": average(phi, square, options["decay_forward"]), "iters": t})


def infer(x: Tensor, call: Call) -> Tensor:
    return affine(scaled_rows(x, call) * (call.state["running_phi"] + call.options["epsilon"]).rsqrt(),
                  call.params)


page = Page("power", train=train, infer=infer, own_backward=True)
