"""Dynamic Tanh, DyT (Zhu et al. 2025, equation 1).

Per element; alpha: a learned number:

    y = weight tanh(alpha x) + bias
"""
from torch import Tensor

from ._call import Call, Page, affine


def normalize(x: Tensor, call: Call) -> Tensor:
    return affine((call.params["alpha"] * x).tanh(), call.params)


page = Page("dyt", token=normalize)
