"""FixNorm (Nguyen and Chiang 2018): every row is scaled to L2 norm 1.

Per row:

    y = x / max(|x|, epsilon)                      |x|: L2 norm; where |x| <= epsilon, the divisor is a
    constant
"""
import torch
from torch import Tensor

from ._call import Call, Page


def clamped_length(x: Tensor, epsilon: float) -> Tensor:
    """max(|x|, epsilon) of every row, [rows, 1]; its gradient is 0 where |x| <= epsilon."""
    square = x.square().sum(-1, keepdim=True)
    below = square <= epsilon * epsilon
    root = torch.where(below, torch.ones_like(square), square).sqrt()
    return torch.where(below, torch.full_like(root, epsilon), root)


def normalize(x: Tensor, call: Call) -> Tensor:
    return x / clamped_length(x, call.options["epsilon"])


page = Page("fix", token=normalize)
