"""Replacing the normalization layers of a model."""
from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import threading
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Type, Union

import torch
from torch import Tensor, nn

from .._library import UsageError
from .._norms import norm_type
from ._models import norms_of, take_masks
from ._module import Norm
from ._recognize import Form, class_names, epsilon_of, form_of, is_chosen, shape_of

_SAME_NAME = {"scale": "weight", "weight": "scale"}  # of RMSNorm: in the published module, in PyTorch
_LOADING = threading.Lock()
# Progressive RepBN begins as the per-token norm
_STARTS_AS = {"token_weight": "weight", "token_bias": "bias"}


class _LayerNormReplacement(Norm, nn.LayerNorm):  # type: ignore[misc,override,unused-ignore]
    """For programs that look for the class, as the weight decay of transformers."""
    __constants__: List[str] = []

    def _get_name(self) -> str:  # in print(model)
        return "Norm"


if hasattr(nn, "RMSNorm"):
    class _RMSNormReplacement(Norm, nn.RMSNorm):  # type: ignore[misc,override,unused-ignore]
        """As _LayerNormReplacement."""
        __constants__: List[str] = []

        def _get_name(self) -> str:
            return "Norm"


def _class_for(old: nn.Module, keep_class: bool) -> Type[Norm]:
    if keep_class and isinstance(old, nn.LayerNorm):
        return _LayerNormReplacement
    if keep_class and hasattr(nn, "RMSNorm") and isinstance(old, nn.RMSNorm):
        return _RMSNormReplacement
    return Norm


def _width_of(name: str, module: nn.Module) -> int:
    shape = (module.width,) if isinstance(module, Norm) else shape_of(module)
    if not shape:
        raise UsageError(f"{name}: {module.__class__.__name__} has no weight, which would tell its width")
    if len(shape) != 1:
        raise UsageError(
            f"{name or 'the model'}: normalizes over the shape {tuple(shape)}, expected one axis"
        )
    return int(shape[0])


def replace_norms(model: nn.Module, type: str, *, groups: int = 1,
                  kinds: Union[Type[nn.Module], Iterable[Type[nn.Module]], None] = None,
                  where: Optional[Callable[[str, nn.Module], bool]] = None, keep_class: bool = True,
                  masks: bool = True,
                  **options: Any) -> List[str]:
    """Replaces the normalization layers of a model, in place, by ``Norm(type, width, groups=groups,
    **options)``.

    kinds: classes to replace. The default is LayerNorm and RMSNorm of PyTorch, every norm of Norma, and every
    class with RMSNorm or LayerNorm in its name and the structure of one (a vector ``weight``, perhaps
    ``bias``, one input), such as those of transformers. where: function of the name and the module that
    returns true for layers to replace; by default all are replaced. A layer that is shared by several modules
    remains shared. Returns the names of the replaced layers, in order.

    keep_class: where the old layer is a LayerNorm or RMSNorm of PyTorch, the new one is an instance of that
    class, too: the Trainer of transformers excludes parameters from the weight decay by that class, and so
    the groups of parameters stay equal. masks: the norms use the padding mask that the model's forward
    receives, see ``take_masks``.

    What is kept of a replaced layer:

    - its weight and bias if the new layer has them, with their names, ``requires_grad``, device and type, and
      its training mode. Where the formula is (1 + weight) z (Gemma), so it is in the new layer. If all
      parameters of the layer are frozen, so are those of the new one. A weight or bias that it lacks
      (``elementwise_affine=False``, ``bias=False``) keeps its initial value in the new layer: it is frozen;
    - ``eps`` of LayerNorm in ``layer``, and of RMSNorm in ``rms`` (``epsilon`` and ``epsilon_inside``),
      unless options give them. Elsewhere an ``eps`` that is not the default of its class is dropped with a
      warning, unless ``epsilon`` is given; the options of a norm of Norma are not kept.

    A model of transformers also gets ``model.config.norma``, which ``norma.torch.from_pretrained`` reads.

    UsageError: there is no layer to replace, a layer normalizes more than one axis, or an option belongs to
    another type.
    """
    type = norm_type(type).name
    if where is not None and not callable(where):
        raise UsageError(f"where = {where!r}: expected a function of the name and the module")
    chosen = None if kinds is None else (kinds,) if inspect.isclass(kinds) else tuple(kinds)
    found = [(name, module) for name, module in model.named_modules(remove_duplicate=False)
             if name and is_chosen(module, chosen) and (where is None or where(name, module))]
    if not found:
        raise UsageError(_nothing_found(model, chosen, where is not None))
    made: Dict[nn.Module, Norm] = {}
    dropped: List[Tuple[str, float]] = []
    for name, old in found:
        if old not in made:
            made[old] = _replacement(name, old, type, groups, options, keep_class, dropped)
    _warn_of_epsilon(dropped, type)
    for name, old in found:
        parent, _, key = name.rpartition(".")
        model.get_submodule(parent)._modules[key] = made[old]
    names = [name for name, _ in found]
    # decided when it was created, by its LayerNorms; its fused kernels compute LayerNorm
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(
            isinstance(one, Norm) for one in module.modules()
        ):
            module.use_nested_tensor = False
    if masks:
        take_masks(model)
    config: Any = getattr(model, "config", None)
    if hasattr(config, "to_json_string"):
        settings = {key: value for key, value in options.items() if key != "process_group"}
        before = getattr(config, "norma", None) or []
        config.norma = [*before, {"type": type, "groups": groups, "names": names, "keep_class": keep_class,
                                  "options": settings}]
    return names


def _nothing_found(model: nn.Module, chosen: Optional[Sequence[Type[nn.Module]]], filtered: bool) -> str:
    if is_chosen(model, chosen):
        return (f"the model is a {model.__class__.__name__} itself, and only layers within a model are "
                "replaced; create norma.torch.Norm(...)")
    if chosen is not None:
        return f"no layer of the classes {', '.join(kind.__name__ for kind in chosen)} in the model"
    others = class_names(list(model.modules()))
    return (
        "no layer of the classes LayerNorm, RMSNorm, Norm in the "
        f"model{' that where() selects' if filtered else ''}"
        + (f"; kinds=[...] replaces other classes: the model has {', '.join(others)}" if others else "")
    )


def _epsilon_options(name: str, old: nn.Module, form: Form, type: str, options: Dict[str, Any],
                     dropped: List[Tuple[str, float]]) -> Dict[str, Any]:
    """The options that keep eps of the layer; otherwise it is added to those that are dropped."""
    eps = None if isinstance(old, Norm) else epsilon_of(old)
    if eps is None or "epsilon" in options or "eps" in options:
        return {}
    if type == form.kind == "layer":
        return {"epsilon": eps}
    if type == form.kind == "rms" and "epsilon_inside" not in options:
        return {"epsilon": eps, "epsilon_inside": True}
    default = inspect.signature(old.__class__).parameters.get("eps")
    if getattr(old, "eps", eps) is not None and (default is None or eps != default.default):
        dropped.append((name, eps))
    return {}


def _warn_of_epsilon(dropped: Sequence[Tuple[str, float]], type: str) -> None:
    for eps in dict.fromkeys(value for _, value in dropped):
        names = [name for name, value in dropped if value == eps]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        warnings.warn(
            f"replace_norms: eps = {eps} of {names[0]}{more} is not kept; give epsilon for another one than "
            "the default of "
            f"'{type}'",
            stacklevel=3,
        )


def _keep(new: Norm, old: nn.Module, kind: str) -> None:
    """Copies parameters if the formula is known, and freezes those that the old layer has frozen or lacks."""
    own, lacking = old._parameters, {"layer": ("weight", "bias"), "rms": ("weight",)}.get(kind, ())
    learned = {key: param for key, param in own.items() if not isinstance(old, Norm) or key in old._learned}
    given = [param for param in learned.values() if param is not None]
    all_frozen = bool(given) and not any(param.requires_grad for param in given)
    for key, param in new.named_parameters():
        other = _SAME_NAME.get(key, key)
        name = other if key not in own and (other in own or key == "scale") else key
        start = _STARTS_AS.get(key, name) if not isinstance(old, Norm) else name
        kept = own.get(start)
        if kept is not None and kept.shape == param.shape and (kind or isinstance(old, Norm)):
            param.data.copy_(kept.data + new._offset if start != name and start == "weight" else kept.data)
        frozen = (kept is None or not kept.requires_grad if start in learned
                  else all_frozen or start in lacking)
        if frozen:
            param.requires_grad_(False)
        constant = start in old._constants if isinstance(old, Norm) else kept is None and start in lacking
        if constant and frozen and param.dim() == 1:
            new._constants = {**new._constants, key: 0.0 if "bias" in key else 1.0}


def _replacement(name: str, old: nn.Module, type: str, groups: int, options: Dict[str, Any], keep_class: bool,
                 dropped: List[Tuple[str, float]]) -> Norm:
    form = (
        Form("", 0.0) if isinstance(old, Norm) else form_of(old) if len(shape_of(old)) == 1 else Form("", 0.0)
    )
    first = next(iter(old.parameters()), None)
    dtype, device = (torch.float32, None) if first is None else (first.dtype, first.device)
    width = _width_of(name, old)
    options = {**options, **_epsilon_options(name, old, form, type, options, dropped)}
    try:
        new = _class_for(old, keep_class)(type, width, groups=groups, dtype=dtype, device=device, **options)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    gain = new._names[0][0] if new._names[0] else ""
    if (gain in ("scale", "weight") and new._parameters[gain] is not None and new._sizes[0] == width
            and isinstance(getattr(old, "weight", None), Tensor)):
        if gain == "scale":
            new._rename("scale", "weight")
        new._offset = old._offset if isinstance(old, Norm) else form.offset
    if not form.kind and not isinstance(old, Norm):
        warnings.warn(f"replace_norms: {name}, {old.__class__.__name__}: its formula is neither LayerNorm "
                      "nor RMSNorm; its weight is not kept", stacklevel=3)
    _keep(new, old, form.kind)
    if new._offset and "weight" not in old._parameters:
        new._offset = 0.0
    return new.train(old.training)


# ---- models of transformers ----

def from_pretrained(kind: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
    """A model of transformers that ``save_pretrained`` wrote after ``replace_norms``, with its norms of
    Norma:

        model = norma.torch.from_pretrained(AutoModelForCausalLM, "folder")

    kind: the class, whose ``from_pretrained`` is called with the other arguments; folder: a local one, or the
    name of a repository of the Hugging Face Hub. UsageError: it is neither, or its config.json has no norms
    of Norma.
    """
    try:
        if os.path.isdir(folder):
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                replaced = json.load(file).get("norma")
        else:
            from transformers import PretrainedConfig
            replaced = PretrainedConfig.get_config_dict(folder, **kwargs)[0].get("norma")
    except OSError as problem:
        raise UsageError(f"{folder}: no config.json; expected a folder of save_pretrained, or the name of a "
                         f"repository ({str(problem).splitlines()[0]})") from None
    if not replaced:
        raise UsageError(
            f"{folder}: config.json has no norms of Norma; use "
            f"{getattr(kind, '__name__', kind)}.from_pretrained"
        )
    with _replacing(replaced):
        model = kind.from_pretrained(folder, *args, **kwargs)
    for norm in norms_of(model):
        norm._create_constants(model.device)
    model.config.norma = replaced
    return model


def _is_named(names: Set[str], name: str, _: nn.Module) -> bool:
    return name in names


def _replace_again(model: nn.Module, replaced: Sequence[Dict[str, Any]]) -> None:
    for one in replaced:
        names = set(one["names"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of eps, which was said before
            replace_norms(model, one["type"], groups=one["groups"], keep_class=one["keep_class"],
                          where=functools.partial(_is_named, names), **one["options"])


@contextlib.contextmanager
def _replacing(replaced: Sequence[Dict[str, Any]]) -> Iterator[None]:
    """Models that transformers creates get their norms before it loads the weights, with all that it does to
    names and types."""
    from transformers import PreTrainedModel
    wanted = {name for one in replaced for name in one["names"]}
    original: Any = PreTrainedModel.post_init

    def post_init(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = {name for name, _ in self.named_modules(remove_duplicate=False)}
        if wanted <= found and not norms_of(self):
            _replace_again(self, replaced)
        return original(self, *args, **kwargs)
    with _LOADING:
        setattr(PreTrainedModel, "post_init", post_init)
        try:
            yield
        finally:
            setattr(PreTrainedModel, "post_init", original)


def synchronize(model: nn.Module, process_group: Any = None) -> nn.Module:
    """Batch statistics of all norms of Norma in ``model`` over the processes of a group (default: all), as
    ``torch.nn.SyncBatchNorm.convert_sync_batchnorm``; returns the model."""
    for norm in norms_of(model):
        norm.statistics, norm.process_group = "group", process_group
    return model
