"""RepBN (Guo et al. 2024, section 3.2): BatchNorm plus a multiple of its input.

mu, s2 and the running statistics as in BatchNorm; alpha: a learned number, one for all features:

    y = weight (x - mu) / sqrt(s2 + epsilon) + bias + alpha x
"""
from torch import Tensor

from ._call import Call, Page, Result, affine
from .batch import inverse_root, moments, running


def train(x: Tensor, call: Call) -> Result:
    mean, variance = moments(x, call)
    y = affine((x - mean) * inverse_root(variance, call.options), call.params) + call.params["alpha"] * x
    return Result(y, running(mean, variance, call))


def infer(x: Tensor, call: Call) -> Tensor:
    z = (x - call.state["running_mean"]) * inverse_root(call.state["running_var"], call.options)
    return affine(z, call.params) + call.params["alpha"] * x


page = Page("repbn", train=train, infer=infer)
