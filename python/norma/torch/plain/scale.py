"""ScaleNorm (Nguyen and Salazar 2019, equation 5).

Per row:

    y = g x / max(|x|, epsilon)                    g: parameter "scale", one number; |x|: L2 norm
"""
from torch import Tensor

from ._call import Call, Page
from .fix import clamped_length


def normalize(x: Tensor, call: Call) -> Tensor:
    return call.params["scale"] * (x / clamped_length(x, call.options["epsilon"]))


page = Page("scale", token=normalize)
