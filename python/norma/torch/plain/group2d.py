"""GroupNorm of images (Wu and He 2018) at a place without images, as in a module: a row is one token, and the
formula is that of GroupNorm over its features. Over all positions of an image, use ``torch.nn.GroupNorm``.

Per row and group; means over the d/G features of the group:

    y = weight (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) + bias
"""
from torch import Tensor

from ._call import Call, Page, affine, grouped
from .layer import standardized


def normalize(x: Tensor, call: Call) -> Tensor:
    parts = grouped(x, call.options["groups"])
    return affine(standardized(parts, call.options["epsilon"]).reshape(x.shape), call.params)


page = Page("group2d", token=normalize)
