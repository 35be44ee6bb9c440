"""Derf (Chen et al. 2025).

Per element; alpha and shift: learned numbers:

    y = weight erf(alpha x + shift) + bias
"""
from torch import Tensor

from ._call import Call, Page, affine


def normalize(x: Tensor, call: Call) -> Tensor:
    return affine((call.params["alpha"] * x + call.params["shift"]).erf(), call.params)


page = Page("derf", token=normalize)
