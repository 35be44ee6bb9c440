"""LayerNorm (Ba, Kiros and Hinton 2016).

Per row; means over the d features:

    mu = mean(x)
    s2 = mean((x - mu)^2)                 option unbiased: divisor d - 1
    y  = weight (x - mu) / sqrt(s2 + epsilon) + bias
"""
from torch import Tensor

from ._call import Call, Page, affine


def standardized(x: Tensor, epsilon: float, unbiased: bool = False) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over the last axis."""
    away = x - x.mean(-1, keepdim=True)
    divisor = max(x.shape[-1] - 1, 1) if unbiased else x.shape[-1]
    return away * (away.square().sum(-1, keepdim=True) / divisor + epsilon).rsqrt()


def normalize(x: Tensor, call: Call) -> Tensor:
    return affine(standardized(x, call.options["epsilon"], call.options["unbiased"]), call.params)


page = Page("layer", token=normalize)
