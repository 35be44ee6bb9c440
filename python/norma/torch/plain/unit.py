"""UnitNorm (Huang, Kümmerle and Zhang 2024): every row is scaled to the L2 norm d^(k/2).

Per row of d features:

    y = d^(k/2) x / max(|x|, epsilon)              |x|: L2 norm
"""
from torch import Tensor

from ._call import Call, Page
from .fix import clamped_length


def normalize(x: Tensor, call: Call) -> Tensor:
    length: float = x.shape[-1] ** (call.options["k"] / 2)
    return length * (x / clamped_length(x, call.options["epsilon"]))


page = Page("unit", token=normalize)
