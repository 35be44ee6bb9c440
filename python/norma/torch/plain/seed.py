"""SeeDNorm (Cai et al. 2025): RMSNorm whose weight depends on the row.

Per row of d features; gamma: parameter "weight"; beta is not a bias:

    t = tanh(<x, beta>)
    y = (t alpha + gamma) x / sqrt(mean(x^2) + epsilon)
"""
from torch import Tensor

from ._call import Call, Page


def normalize(x: Tensor, call: Call) -> Tensor:
    params, epsilon = call.params, float(call.options["epsilon"])
    gate = (x * params["beta"]).sum(-1, keepdim=True).tanh()
    z = x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return (gate * params["alpha"] + params["weight"]) * z


page = Page("seed", token=normalize)
