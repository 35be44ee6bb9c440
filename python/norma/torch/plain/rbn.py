"""Regularized BatchNorm (Wang et al. 2022, equation 7): BatchNorm with a penalty on the distance between
batch statistics and running statistics, which is added to the loss.

mu and sigma^2 are the statistics of the batch, m and s^2 the running statistics, after or before their update
with this batch (option reference), constants for the gradient. Sums are over features; sigma and s have no
epsilon:

    penalty  = lambda d_mean + nu d_variance

    penalty              d_mean                   d_variance
    diff2   (paper)      sum (mu - m)^2           sum (sigma - s)^2
    diff    (code)       sum (mu - m)^2           sum |sigma^2 - s^2|
    reldiff              sum ((mu - m)/s)^2       sum (1 - sigma/s)^2

With statistics = "group", each process adds the fraction (its rows) / n of the penalty.
"""
from torch import Tensor

from ._call import Call, Page, Result, affine, safe_root, scaled_rows
from .batch import infer, inverse_root, moments, running


def penalty(mean: Tensor, variance: Tensor, m: Tensor, s2: Tensor, call: Call) -> Tensor:
    options, kind = call.options, call.options["penalty"]
    away = (mean - m).square()
    if kind == "diff":
        spread = (variance - s2).abs()
    elif kind == "diff2":
        spread = (safe_root(variance) - s2.sqrt()).square()
    else:
        away, spread = away / s2, (1 - safe_root(variance) / s2.sqrt()).square()
    share = call.rows.own / call.rows.count  # of all processes
    total: Tensor = share * (options["lambda"] * away.sum() + options["nu"] * spread.sum())
    return total


def train(x: Tensor, call: Call) -> Result:
    h = scaled_rows(x, call)
    mean, variance = moments(h, call)
    state = running(mean, variance, call)
    reference = state if call.options["reference"] == "after" else call.state
    y = affine((h - mean) * inverse_root(variance, call.options), call.params)
    return Result(y, state, penalty(mean, variance, reference["running_mean"], reference["running_var"],
                                    call))


page = Page("rbn", train=train, infer=infer)
