"""Normalization layers of Norma as PyTorch modules.

    import norma.torch
    norm = norma.torch.PowerNorm(512, groups=8, warmup=4000)
    norma.torch.replace_norms(model, "power", groups=8, warmup=4000)

There is a class for every type of ``norma.norm_types()``, named after its title: ``LayerNorm``,
``PowerNorm``, ``RegularizedBatchNorm``, ...; ``dir(norma.torch)`` lists them. All are ``Norm`` with a fixed
type. float32 tensors on the CPU are normalized by the kernels of Norma, those of other devices and types by
plain PyTorch.
"""
from typing import List, Type

from .._norms import find_type
from . import _classes
from ._callback import Callback
from ._classes import *  # noqa: F401,F403
from ._models import padding, penalty, take_masks
from ._module import Norm
from ._replace import from_pretrained, replace_norms, synchronize
from ._tid import SiteTID, tid

__all__ = ["Callback", "Norm", "SiteTID", "from_pretrained", "padding", "penalty", "replace_norms",
           "synchronize", "take_masks", "tid", *_classes.__all__]


def __getattr__(name: str) -> Type[Norm]:
    """Other names of the classes, such as ``RBN``."""
    found = find_type(name) if name[:1].isupper() else None
    if found is not None:
        return _classes.by_type[found.name]
    raise AttributeError(f"module 'norma.torch' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(__all__)
