"""AdaNorm (Xu et al. 2019, section 4): LayerNorm whose weight is a function of the normalized value, without
parameters.

Per row of d features:

    z = (x - mean(x)) / s
    y = C (1 - k z) z                              the factor C (1 - k z) has no gradient

    s = sqrt(variance over d - 1) + epsilon        variant official (released code)
    s = sqrt(variance over d + epsilon)            variant paper (the z of LayerNorm)
"""
from torch import Tensor

from ._call import Call, Page, safe_root
from .layer import standardized


def normalize(x: Tensor, call: Call) -> Tensor:
    options, c, k = call.options, float(call.options["c"]), float(call.options["k"])
    if options["variant"] == "paper":
        z = standardized(x, options["epsilon"])
    else:
        away = x - x.mean(-1, keepdim=True)
        variance = away.square().sum(-1, keepdim=True) / max(x.shape[-1] - 1, 1)
        z = away / (safe_root(variance) + options["epsilon"])
    return (c * (1 - k * z)).detach() * z


page = Page("ada", token=normalize)
