"""RMSNorm (Zhang and Sennrich 2019, equation 4).

Per row; means over the d features, or over each group of features (option groups):

    y = g x / (sqrt(mean(x^2)) + epsilon)          g: parameter "scale" (option gain)
    y = g x / sqrt(mean(x^2) + epsilon)            option epsilon_inside, as in PyTorch
"""
from torch import Tensor

from ._call import Call, Page, grouped, safe_root


def normalize(x: Tensor, call: Call) -> Tensor:
    options, epsilon = call.options, float(call.options["epsilon"])
    parts = grouped(x, options["groups"])
    square = parts.square().mean(-1, keepdim=True)
    z = (
        parts * (square + epsilon).rsqrt()
        if options["epsilon_inside"]
        else parts / (safe_root(square) + epsilon)
    )
    y = z.reshape(x.shape)
    return call.params["scale"] * y if options["gain"] else y


page = Page("rms", token=normalize)
