"""GroupNorm over the features of one token (Wu and He 2018): LayerNorm within each of G groups of d/G
features.

Per row and group; means over the d/G features of the group:

    mu = mean(x)
    s2 = mean((x - mu)^2)                 option unbiased: divisor d/G - 1
    y  = weight (x - mu) / sqrt(s2 + epsilon) + bias          weight, bias: per feature
"""
from torch import Tensor

from ._call import Call, Page, affine, grouped
from .layer import standardized


def normalize(x: Tensor, call: Call) -> Tensor:
    options = call.options
    parts = grouped(x, options["groups"] or call.groups)
    return affine(standardized(parts, options["epsilon"], options["unbiased"]).reshape(x.shape), call.params)


page = Page("group", token=normalize)
