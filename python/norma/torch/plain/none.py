"""No normalization: y = x."""
from torch import Tensor

from ._call import Call, Page


def normalize(x: Tensor, call: Call) -> Tensor:
    return x.clone()


page = Page("none", token=normalize)
