"""Functions of all norms of a model: padding masks, the penalty."""
from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from .. import _torch_ops
from ._module import Norm, check_tensor, fit_mask

# Names of arguments of forward, and whether the mask is true at padding.
_MASKS = {"attention_mask": False, "src_key_padding_mask": True, "key_padding_mask": True,
          "padding_mask": True}
_DECODER_MASKS = {"decoder_attention_mask": False, "tgt_key_padding_mask": True}
_owners = itertools.count(1)


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

def _mask(arguments: Dict[str, Any], names: Dict[str, bool]) -> Optional[Tensor]:
    """The first padding mask [batch, length] among the arguments, true at padding."""
    for name, at_padding in names.items():
        given = arguments.get(name)
        if not isinstance(given, Tensor) or given.dim() != 2:
            continue
        if not given.is_floating_point():
            return given.bool() if at_padding else ~given.bool()
        if at_padding:  # added to scores
            return torch.isneginf(given)
        # 1 and 0; an attention mask that is added to scores has no positive value
        return (given == 0) & (given >= 0).all() & (given > 0).any()
    return None


def _decoder_of(model: nn.Module) -> Optional[nn.Module]:
    config = getattr(model, "config", None)
    find = getattr(model, "get_decoder", None)
    if getattr(config, "is_encoder_decoder", False) and callable(find):
        found = find()
        return found if isinstance(found, nn.Module) and found is not model else None
    return model.decoder if isinstance(model, nn.Transformer) else None


def _is_length_first(model: nn.Module) -> bool:
    """Whether it is one of PyTorch's Transformer modules with inputs [length, batch, width]."""
    kinds = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer,
             nn.TransformerDecoderLayer)
    return isinstance(model, kinds) and any(not one.batch_first for one in model.modules()
                                            if isinstance(one, nn.MultiheadAttention))


def _with_masks(model: nn.Module) -> List[Any]:
    """The modules that get masks: norms of Norma, and others while they are measured."""
    return [module for module in model.modules() if "_model_mask" in vars(module)]


class _Call(NamedTuple):
    """What is known of a module whose forward receives masks."""
    owner: int  #: unique
    names: Tuple[str, ...]  #: of the positional arguments
    length_first: bool


def _set_masks(call: _Call, model: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Without a mask, a module within another keeps the masks of the call of the other. So does a repeated
    forward pass of gradient checkpointing."""
    arguments = {**dict(zip(call.names, args)), **kwargs}
    mask, decoder = _mask(arguments, _MASKS), _decoder_of(model)
    decoder_mask = _mask(arguments, _DECODER_MASKS)
    if decoder is None and mask is None:
        mask = decoder_mask
    if call.length_first:
        mask, decoder_mask = (None if one is None else one.t() for one in (mask, decoder_mask))
    inside = {id(module) for module in decoder.modules()} if decoder is not None else set()
    repeated = not _torch_ops.is_building_graph() and _torch_ops.in_backward()
    for module in _with_masks(model):
        found = decoder_mask if id(module) in inside else mask
        if found is not None or module._mask_owner in (None, call.owner) and not repeated:
            module._model_mask, module._mask_owner = found, call.owner


def _drop_masks(call: _Call, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
    """Not before a backward pass, in which gradient checkpointing calls the norms again; the next call sets
    new masks."""
    kept = model.training and torch.is_grad_enabled()
    for module in _with_masks(model):
        if module._mask_owner == call.owner:
            module._mask_owner = None
            if not kept:
                module._model_mask = None


def _positional(module: nn.Module) -> Tuple[str, ...]:
    try:
        return tuple(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return ()


def _hook(model: nn.Module, module: nn.Module) -> Optional[List[Any]]:
    """Handles of the hooks of a module of the model; None: this version of PyTorch has none with keyword
    arguments."""
    names = _positional(module)
    if module is not model and (isinstance(module, Norm) or not _with_masks(module)
                                or {*_MASKS, *_DECODER_MASKS}.isdisjoint(names)):
        return []
    if any(getattr(one, "func", None) is _set_masks for one in module._forward_pre_hooks.values()):
        return []
    call = _Call(next(_owners), names, _is_length_first(module))
    set_masks, drop_masks = functools.partial(_set_masks, call), functools.partial(_drop_masks, call)
    try:
        handles = [module.register_forward_pre_hook(set_masks, with_kwargs=True)]
        try:
            handles.append(module.register_forward_hook(drop_masks, with_kwargs=True, always_call=True))
        except TypeError:  # before PyTorch 2.1
            handles.append(module.register_forward_hook(drop_masks, with_kwargs=True))
    except TypeError:
        return None
    return handles


def hook_masks(model: nn.Module) -> Optional[List[Any]]:
    """As ``take_masks``; returns the handles of the hooks that were added."""
    found = [_hook(model, module) for module in model.modules()]
    return None if None in found else [handle for handles in found for handle in handles or ()]


def take_masks(model: nn.Module) -> bool:
    """From now on the norms of Norma in ``model`` use the padding mask that its forward receives:
    ``attention_mask`` [batch, length] (0 at padding) or ``src_key_padding_mask`` (true at padding); in the
    decoder ``decoder_attention_mask`` or ``tgt_key_padding_mask``. The modules within the model whose forward
    has such an argument are included, so that the mask may also be made by the model's forward.
    ``replace_norms`` does this. Returns whether this version of PyTorch can (2.0 or later)."""
    return hook_masks(model) is not None


@contextlib.contextmanager
def masks_at(model: nn.Module, sites: Iterable[nn.Module]) -> Iterator[None]:
    """Context manager: ``_model_mask`` of these modules is the padding mask of the model's call, too."""
    others = [module for module in sites if "_model_mask" not in vars(module)]
    for module in others:
        vars(module).update(_model_mask=None, _mask_owner=None)
    handles = hook_masks(model)
    try:
        yield
    finally:
        for handle in handles or ():
            handle.remove()
        for module in others:
            del vars(module)["_model_mask"], vars(module)["_mask_owner"]


def tokens_of(module: Any, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
    """The rows of the input of a norm, [tokens, width], without padding: that of the mask, or of the model's
    call."""
    if isinstance(module, nn.BatchNorm1d) and x.dim() == 3:
        x = x.transpose(1, 2)
    if padding_mask is None and module._model_mask is not None:
        padding_mask = fit_mask(x, module._model_mask)
    return x.reshape(-1, x.shape[-1]) if padding_mask is None else x[~padding_mask]
