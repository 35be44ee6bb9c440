"""Which modules of a model are normalization layers over the features of a token, and which formula they
have.

Every model of transformers has its own class, such as ``LlamaRMSNorm`` or ``T5LayerNorm``. They are
recognized by their name and structure: a vector ``weight``, perhaps a vector ``bias``, one input. A call with
two tokens shows whether they normalize tokens, not channels of images, and finds the formula.
"""
from __future__ import annotations

import inspect
import re
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Type

import torch
from torch import Tensor, nn

from ._module import Norm

_NAMED = re.compile("rms_?norm|layer_?norm", re.IGNORECASE)
_EPSILONS = "eps", "variance_epsilon", "epsilon", "norm_eps", "layer_norm_eps", "rms_norm_eps"
_OTHER_DEVICE = re.compile("cuda|triton|driver|kernel|device|cpu", re.IGNORECASE)
TOKEN_NORMS: Tuple[Type[nn.Module], ...] = tuple(kind for kind in (nn.LayerNorm, getattr(nn, "RMSNorm", None))
                                                 if kind)


class Form(NamedTuple):
    """The formula of a layer: y = (weight + offset) z + bias."""
    kind: str  #: "layer", "rms", or "" (unknown)
    offset: float


def epsilon_of(module: nn.Module) -> Optional[float]:
    """eps of a layer of PyTorch or transformers; None: it has none."""
    found = next((getattr(module, name) for name in _EPSILONS if getattr(module, name, None) is not None),
                 None)
    if found is None and isinstance(module, TOKEN_NORMS[1:]):  # eps of RMSNorm may be None
        found = torch.finfo(next((param.dtype for param in module.parameters()), torch.float32)).eps
    return None if found is None else float(found)


def shape_of(module: nn.Module) -> Tuple[int, ...]:
    """The shape that a layer normalizes; (): unknown."""
    shape: Any = getattr(module, "normalized_shape", None)
    weight = getattr(module, "weight", None)
    if shape is None and isinstance(weight, Tensor):
        shape = weight.shape
    return (
        tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),) if isinstance(shape, int) else ()
    )


def _has_one_input(module: nn.Module) -> bool:
    try:
        given = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return False
    return len([one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]) == 1


def _two_tokens(module: nn.Module, width: int) -> Tensor:
    weight = getattr(module, "weight", None)
    device, dtype = (weight.device, weight.dtype) if isinstance(weight, Tensor) else ("cpu", torch.float32)
    x = torch.arange(2 * width, device=device, dtype=torch.float32).reshape(2, width) * 1.7
    return (x.sin() + 0.4).to(dtype)


def _normalizes_tokens(module: nn.Module) -> bool:
    """Whether a call keeps the shape of [tokens, width], and a token does not depend on others. True if the
    call needs a kernel of another device."""
    shape = shape_of(module)
    if len(shape) != 1 or any(param.is_meta for param in module.parameters()):
        return True
    x = _two_tokens(module, shape[0])
    with torch.no_grad():
        try:
            y, first = module(x), module(x[:1])
        except Exception as problem:
            return _OTHER_DEVICE.search(str(problem)) is not None
    return (isinstance(y, Tensor) and isinstance(first, Tensor) and y.shape == x.shape
            and first.shape == x[:1].shape
            and torch.allclose(y[:1].float(), first.float(), rtol=1e-2, atol=1e-3, equal_nan=True))


def is_token_norm(module: nn.Module) -> bool:
    """Whether it normalizes each token by its features, and can be replaced."""
    # ConvNeXt: over channels of images
    if getattr(module, "data_format", "channels_last") != "channels_last":
        return False
    if isinstance(module, TOKEN_NORMS):
        return type(module).forward in [kind.forward for kind in TOKEN_NORMS] or _normalizes_tokens(module)
    params = dict(module.named_parameters())
    vectors = [param.shape for param in params.values()]
    return (_NAMED.search(type(module).__name__) is not None and not list(module.children())
            and set(params) <= {"weight", "bias"}
            and all(len(shape) == 1 and shape == vectors[0] for shape in vectors)
            and len(shape_of(module)) == 1
            and _has_one_input(module)
            and _normalizes_tokens(module))


def is_chosen(module: nn.Module, kinds: Optional[Sequence[Type[nn.Module]]],
              *others: Type[nn.Module]) -> bool:
    """Whether a module is one of ``kinds``; by default every token norm, every norm of Norma, and
    ``others``."""
    return (
        isinstance(module, tuple(kinds))
        if kinds is not None
        else isinstance(module, (Norm, *others)) or is_token_norm(module)
    )


def _formula(kind: str, x: Tensor, epsilon: float) -> Tensor:
    away = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    return away * (away.square().mean(-1, keepdim=True) + epsilon).rsqrt()


def form_of(module: nn.Module) -> Form:
    """The formula of a token norm."""
    if type(module) in TOKEN_NORMS:
        return Form("layer" if isinstance(module, nn.LayerNorm) else "rms", 0.0)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    width, dtype = shape_of(module)[0], torch.float32 if weight is None else weight.dtype
    device = torch.device("cpu") if weight is None else weight.device
    name = type(module).__name__.lower()
    guess = Form("rms" if "rms" in name or "t5" in name else "layer", 1.0 if "gemma" in name else 0.0)
    if device.type == "meta" or width < 2:
        return guess
    given = _two_tokens(module, width)
    x = given.float()
    with torch.no_grad():
        try:
            y: Tensor = module(given).float()
        except Exception:  # a kernel that is not available on this device, another shape: known by name only
            return guess
        for form in (Form(kind, offset) for kind in ("layer", "rms") for offset in (0.0, 1.0)):
            gain = 1.0 if weight is None else weight.float() + form.offset
            expected = gain * _formula(form.kind, x, epsilon_of(module)
                                       or 1e-6) + (0.0 if bias is None else bias.float())
            if torch.allclose(y, expected, rtol=2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-3,
                              atol=1e-3):
                return form
    return Form("", 0.0)


def class_names(modules: Sequence[nn.Module]) -> List[str]:
    """Names of the classes in a message."""
    return sorted({type(module).__name__ for module in modules if "norm" in type(module).__name__.lower()})
