"""Batch Renormalization (Ioffe 2017, Algorithm 1).

Update n (counted from 0); h = x, or x scaled per row and group (option scaling); m, s: running values of mu
and sigma_B:

    mu      = mean(h)
    sigma_B = sqrt(mean((h - mu)^2) + epsilon)                eps_mode added: sqrt(mean((h - mu)^2)) + epsilon
    r       = clip(sigma_B / s, 1/rmax(n), rmax(n))           no gradient through r and d
    d       = clip((mu - m) / s, -dmax(n), dmax(n))
    y       = weight (r (h - mu) / sigma_B + d) + bias

    m       = decay m + (1 - decay) mu
    s       = decay s + (1 - decay) sigma_B

rmax rises linearly from 1 at n = ramp_start to r_max at r_ramp_end, dmax from 0 to d_max at d_ramp_end.
Inference: y = weight (h - m) / s + bias.
"""
import torch
from torch import Tensor

from ._call import Call, Page, Result, affine, average, safe_root, scaled_rows
from .batch import moments


def ramp(n: Tensor, start: int, end: int, first: float, last: float, like: Tensor) -> Tensor:
    """first until n = start, then linear, last from n = end on; of the type of like."""
    if end <= start:
        share = (n >= end).to(like.dtype)
    else:
        share = ((n - start).to(torch.float64 if like.dtype == torch.float64 else torch.float32)
                 / (end - start)).clamp(0, 1)
    return first + (last - first) * share.to(like.dtype)


def train(x: Tensor, call: Call) -> Result:
    options, state = call.options, call.state
    h = scaled_rows(x, call)
    mean, variance = moments(h, call)
    sigma = (
        safe_root(variance) + options["epsilon"]
        if options["eps_mode"] == "added"
        else (variance + options["epsilon"]).sqrt()
    )
    n, m, s = state["num_batches_tracked"], state["running_mean"], state["running_std"]
    r_max = ramp(n, options["ramp_start"], options["r_ramp_end"], 1, options["r_max"], h)
    d_max = ramp(n, options["ramp_start"], options["d_ramp_end"], 0, options["d_max"], h)
    r = torch.minimum(torch.maximum(sigma.detach() / s, 1 / r_max), r_max)
    d = torch.minimum(torch.maximum((mean.detach() - m) / s, -d_max), d_max)
    y = affine(r * ((h - mean) / sigma) + d, call.params)
    return Result(y, {"running_mean": average(m, mean, options["decay"]),
                      "running_std": average(s, sigma, options["decay"]),
                      "num_batches_tracked": n + 1})


def infer(x: Tensor, call: Call) -> Tensor:
    return affine((scaled_rows(x, call) - call.state["running_mean"]) / call.state["running_std"],
                  call.params)


page = Page("renorm", train=train, infer=infer)
