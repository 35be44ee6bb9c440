"""PN-V (Shen et al. 2020, Definition 1): divides by the quadratic mean of the batch, without subtracting the
mean.

h = x, or x scaled per row and group (option scaling):

    p           = mean(h^2)
    y           = weight h / sqrt(p + epsilon) + bias                        option clamp: / sqrt(max(p,
    epsilon)) running_var = decay running_var + (1 - decay) p

Inference: running_var replaces p.
"""
from torch import Tensor

from ._call import Call, Page, Result, affine, average, scaled_rows
from .batch import inverse_root


def train(x: Tensor, call: Call) -> Result:
    h = scaled_rows(x, call)
    square = call.rows.mean(h.square())
    return Result(affine(h * inverse_root(square, call.options), call.params),
                  {"running_var": average(call.state["running_var"], square, call.options["decay"])})


def infer(x: Tensor, call: Call) -> Tensor:
    return affine(scaled_rows(x, call) * inverse_root(call.state["running_var"], call.options), call.params)


page = Page("pnv", train=train, infer=infer)
