"""Functions of all norms of a model: padding masks, the penalty."""
from __future__ import annotations

import contextlib
import inspect
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, nn

from ._module import Norm, check_tensor

# Names of arguments of forward, and whether the mask is true at padding.
_MASKS = {"attention_mask": False, "src_key_padding_mask": True, "key_padding_mask": True,
          "padding_mask": True}
_DECODER_MASKS = {"decoder_attention_mask": False, "tgt_key_padding_mask": True}


def norms_of(model: nn.Module) -> List[Norm]:
    """The norms of Norma in a model."""
    return [module for module in model.modules() if isinstance(module, Norm)]


@contextlib.contextmanager
def padding(model: nn.Module, padding_mask: Optional[Tensor]) -> Iterator[None]:
    """Context manager: every norm of Norma in ``model`` uses this padding mask:

        with norma.torch.padding(encoder, mask):
            y = encoder(x, src_key_padding_mask=mask)

    The mask has the shape of the norms' input without the last axis, and is true at padding. None: no mask.
    For an encoder and a decoder, nest two contexts.
    """
    if padding_mask is not None:
        check_tensor("norma.torch.padding", "padding_mask", padding_mask)
    changed = [(norm, norm._padding_mask) for norm in norms_of(model)]
    for norm, _ in changed:
        norm._padding_mask = padding_mask
    try:
        yield
    finally:
        for norm, before in changed:
            norm._padding_mask = before


def penalty(model: nn.Module) -> Tensor:
    """Sum of the penalties of the last forward pass over all norms of ``model``; a scalar with gradient.

    Regularized BatchNorm (Wang et al. 2022, equation 7) adds it to the loss, which in the released code is a
    sum over tokens:

        loss = cross_entropy_sum + norma.torch.penalty(model)
    """
    found = [norm.penalty for norm in norms_of(model)]
    return sum(found[1:], found[0]) if found else torch.zeros(())


# ---- masks that the model's forward receives ----

def _arguments(module: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    if not args:
        return kwargs
    try:
        return {**inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments}
    except TypeError:
        return kwargs


def _mask(arguments: Dict[str, Any], names: Dict[str, bool]) -> Optional[Tensor]:
    """The first padding mask [batch, length] among the arguments, true at padding."""
    for name, at_padding in names.items():
        given = arguments.get(name)
        if isinstance(given, Tensor) and given.dim() == 2:
            if given.is_floating_point():  # added to scores, unless it has ones
                return None
            return given.bool() if at_padding else ~given.bool()
    return None


def _decoder_of(model: nn.Module) -> Optional[nn.Module]:
    config = getattr(model, "config", None)
    find = getattr(model, "get_decoder", None)
    if getattr(config, "is_encoder_decoder", False) and callable(find):
        found = find()
        return found if isinstance(found, nn.Module) and found is not model else None
    return model.decoder if isinstance(model, nn.Transformer) else None


def _set_masks(model: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    arguments = _arguments(model, args, kwargs)
    mask, decoder = _mask(arguments, _MASKS), _decoder_of(model)
    inside = {id(norm) for norm in norms_of(decoder)} if decoder is not None else set()
    decoder_mask = _mask(arguments, _DECODER_MASKS)
    for norm in norms_of(model):
        norm._model_mask = decoder_mask if id(norm) in inside else mask


def _forget_masks(model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
    """Not before a backward pass, in which gradient checkpointing calls the norms again; the next call sets
    new masks."""
    if model.training and torch.is_grad_enabled():
        return
    for norm in norms_of(model):
        norm._model_mask = None


def take_masks(model: nn.Module) -> bool:
    """From now on the norms of Norma in ``model`` use the padding mask that its forward receives:
    ``attention_mask`` [batch, length] (0 at padding) or ``src_key_padding_mask`` (true at padding); in the
    decoder ``decoder_attention_mask`` or ``tgt_key_padding_mask``. ``replace_norms`` does this. Returns
    whether this version of PyTorch can (2.0 or later)."""
    if _set_masks in model._forward_pre_hooks.values():
        return True
    try:
        model.register_forward_pre_hook(_set_masks, with_kwargs=True)
        try:
            model.register_forward_hook(_forget_masks, with_kwargs=True, always_call=True)
        except TypeError:  # before PyTorch 2.1
            model.register_forward_hook(_forget_masks, with_kwargs=True)
    except TypeError:
        return False
    return True
