"""Partial RMSNorm, pRMSNorm (Zhang and Sennrich 2019, section 4): RMSNorm whose root mean square is that of
the first p of the d features.

Per row; p = floor(fraction d), at least 1:

    r = sqrt(mean of x^2 over the first p features)
    y = g x / (r + epsilon) + o                    g: parameter "scale"; o: parameter "offset" (option
    offset), otherwise 0
"""
from torch import Tensor

from ._call import Call, Page, safe_root


def normalize(x: Tensor, call: Call) -> Tensor:
    used = max(int(call.options["fraction"] * x.shape[-1]), 1)
    root = safe_root(x[:, :used].square().mean(-1, keepdim=True))
    y = call.params["scale"] * (x / (root + float(call.options["epsilon"])))
    return y + call.params["offset"] if call.options["offset"] else y


page = Page("prms", token=normalize)
