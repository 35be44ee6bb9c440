"""Measurements and the penalty in the training loops of transformers and Lightning."""
from __future__ import annotations

import contextlib
import itertools
import sys
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Type
from collections import deque

import torch
from torch import Tensor, nn

from ._models import masks_at, norms_of, penalty, tokens_of
from ._module import Norm
from ._recognize import is_chosen
from ._tid import measuring

_Moments = Tuple[Tensor, Tensor]  # mean and variance of each feature over the tokens of a batch


def _discrepancy(batches: List[_Moments]) -> Tuple[float, float]:
    """TID of the mean and of the variance (Wang et al. 2022, equation 5) over the last batches of one
    site."""
    means, deviations = torch.stack([mean for mean, _ in batches]), torch.stack(
        [variance.sqrt() for _, variance in batches]
    )
    mean, sigma = means.mean(0), torch.stack([variance for _, variance in batches]).mean(0).sqrt()
    size = sigma.norm() + 1e-12
    return float(((means - mean).norm(dim=1) / size).mean()), float(
        ((deviations - sigma).norm(dim=1) / size).mean()
    )


def _spectrum(rows: Tensor) -> Tuple[float, float]:
    """Of the singular values of the centered rows, as shares of their sum: exp of the entropy, and the
    largest."""
    values = torch.linalg.svdvals(rows - rows.mean(0))
    shares = values / values.sum().clamp(min=1e-12)
    return float(torch.exp(-(shares * shares.clamp(min=1e-12).log()).sum())), float(shares.max())


def _uses_batches(model: nn.Module) -> bool:
    return any(one.type.uses_batch if isinstance(one, Norm) else
               isinstance(one, nn.modules.batchnorm._BatchNorm) for one in model.modules())


def _on(device: Any, batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    return {key: _on(device, one) for key, one in batch.items()} if hasattr(batch, "items") else batch


class _Silent:
    """Context manager: a LightningModule that does not log."""
    def __init__(self, module: Any) -> None:
        self.module = module

    def __enter__(self) -> None:
        vars(self.module).update(log=lambda *_, **__: None, log_dict=lambda *_, **__: None)

    def __exit__(self, *_: Any) -> None:
        del vars(self.module)["log"], vars(self.module)["log_dict"]


def _loss_of(output: Any) -> Optional[float]:
    """The loss of a model or a step; None: it returns none."""
    loss = output.get("loss") if isinstance(output, dict) else output
    return float(loss) if isinstance(loss, Tensor) and loss.numel() == 1 else None


class _Sites:
    """Observes the inputs of the norms of a model during training."""

    def __init__(self, model: nn.Module, batches: int) -> None:
        self.moments: Dict[str, Deque[_Moments]] = {}
        self.distance: Dict[str, float] = {}
        self.spectrum: Dict[str, Tuple[float, float]] = {}
        self.batches, self.wanted = batches, False
        sites = {name: module for name, module in model.named_modules()
                 if name and is_chosen(module, None, nn.BatchNorm1d)}
        self.open = contextlib.ExitStack()
        self.open.enter_context(masks_at(model, sites.values()))
        for name, module in sites.items():
            self.open.callback(module.register_forward_pre_hook(self._observer(name)).remove)

    def _observer(self, name: str) -> Callable[[nn.Module, Any], None]:
        def observe(module: nn.Module, inputs: Any) -> None:
            if (module.training and torch.is_grad_enabled() and self.wanted and inputs
                    and isinstance(inputs[0], Tensor)):
                with torch.no_grad():
                    self._measure(name, module, tokens_of(module, inputs[0].detach()).float())
        return observe

    def _measure(self, name: str, module: nn.Module, rows: Tensor) -> None:
        if len(rows) < 2:
            return
        mean, variance = rows.mean(0), rows.var(0, unbiased=False)
        self.moments.setdefault(name, deque(maxlen=self.batches)).append((mean, variance))
        running, spread = (module._buffers.get(one) for one in ("running_mean", "running_var"))
        if running is not None and spread is not None and running.shape == mean.shape:
            self.distance[name] = float((mean - running).norm() / (spread.clamp(min=0).sum().sqrt() + 1e-12))
        self.spectrum[name] = _spectrum(rows[:1024])

    def records(self) -> Dict[str, float]:
        """Means over the sites."""
        pairs = [_discrepancy(list(batches)) for batches in self.moments.values() if len(batches) > 1]
        found = {"tid_mean": [a for a, _ in pairs], "tid_variance": [b for _, b in pairs],
                 "distance": list(self.distance.values()),
                 "effective_rank": [rank for rank, _ in self.spectrum.values()],
                 "largest_singular_value": [largest for _, largest in self.spectrum.values()]}
        return {f"norma/{name}": sum(values) / len(values) for name, values in found.items() if values}

    def close(self) -> None:
        self.open.close()


class _Callback:
    """See ``Callback``."""

    def __init__(self, *, every: int = 1, batches: int = 8, penalty: str = "sum") -> None:
        super().__init__()
        if penalty not in ("sum", "mean", "none"):
            raise ValueError(f"penalty = {penalty!r}: expected 'sum', 'mean' or 'none'")
        self.every, self.batches, self.penalty = every, batches, penalty
        self._sites: Optional[_Sites] = None
        self._hooks: List[Any] = []
        self._step = 0

    # ---- transformers ----

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._open(model)
        if self.penalty != "none" and any(norm.type.has_penalty for norm in norms_of(model)):
            self._hooks.append(model.register_forward_hook(self._add_penalty, with_kwargs=True))

    def _add_penalty(self, model: nn.Module, args: Any, kwargs: Dict[str, Any], output: Any) -> None:
        loss = output.get("loss") if isinstance(output, dict) else None
        if not model.training:
            return
        if loss is None:
            raise ValueError(
                "the penalty of Regularized BatchNorm joins the loss that the model returns, and this model "
                "returned "
                "none: the Trainer has compute_loss_func or label smoothing; add norma.torch.penalty(model) "
                "there"
            )
        targets: Any = 1.0
        if self.penalty == "sum":  # the loss is a mean over tokens, the penalty belongs to their sum
            labels, given = kwargs.get("labels"), kwargs.get("num_items_in_batch")
            targets = given
            if targets is None:
                targets = (labels != -100).sum().clamp(min=1) if labels is not None else 1.0
        output["loss"] = loss + penalty(model).to(loss.dtype) / targets

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._next()

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, float]] = None,
               **kwargs: Any) -> None:
        if logs is None or self._sites is None:
            return
        records: Dict[str, float] = {}
        if "loss" in logs:
            records = self._sites.records()
        elif "eval_loss" in logs:
            records = self._gap(**kwargs)
        logs.update(records)
        if state.log_history:
            state.log_history[-1].update(records)

    def _gap(self, model: Any = None, eval_dataloader: Any = None, **kwargs: Any) -> Dict[str, float]:
        """The gap over the first batches of the validation data; empty without batch statistics."""
        if eval_dataloader is None or not _uses_batches(model):
            return {}
        gaps: List[float] = []
        for batch in itertools.islice(eval_dataloader, self.batches):
            batch = _on(next(model.parameters()).device, batch)
            with torch.no_grad():
                loss = _loss_of(model(**batch))
            with measuring(model):
                of_batch = _loss_of(model(**batch))
            if loss is not None and of_batch is not None:
                gaps.append(loss - of_batch)
        return {"norma/gap": sum(gaps) / len(gaps)} if gaps else {}

    def add_to(self, trainer: Any) -> None:
        """Adds the callback to a Trainer of transformers before those that report to loggers, which then
        receive the values."""
        trainer.add_callback(self)
        callbacks = trainer.callback_handler.callbacks
        callbacks.insert(0, callbacks.pop())

    # ---- Lightning ----

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self._open(module)

    def on_before_backward(self, trainer: Any, module: Any, loss: Tensor) -> None:
        if self.penalty != "none" and any(norm.type.has_penalty for norm in norms_of(module)):
            loss.add_(penalty(module).to(loss.dtype))

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        if self._sites is not None and self._sites.wanted:
            module.log_dict(self._sites.records())
        self._next()

    def on_validation_epoch_start(self, trainer: Any, module: Any) -> None:
        self._gaps: List[float] = []

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int,
                                *args: Any, **kwargs: Any) -> None:
        loss = _loss_of(outputs)
        if loss is None or len(self._gaps) >= self.batches or not _uses_batches(module):
            return
        with _Silent(module), measuring(module):
            of_batch = _loss_of(module.validation_step(batch, batch_idx, *args))
        if of_batch is not None:
            self._gaps.append(loss - of_batch)

    def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
        if self._gaps:
            module.log("norma/gap", sum(self._gaps) / len(self._gaps))

    # ---- both ----

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        if self._sites is not None:
            self._sites.close()
        for hook in self._hooks:
            hook.remove()
        self._sites, self._hooks = None, []

    def _open(self, model: nn.Module) -> None:
        self.on_train_end()
        self._step, self._sites = 0, _Sites(model, self.batches)
        self._sites.wanted = True

    def _next(self) -> None:
        self._step += 1
        if self._sites is not None:
            self._sites.wanted = self._step % self.every == 0


def _bases() -> Tuple[Type[Any], ...]:
    found: List[Type[Any]] = []
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        found.append(transformers.TrainerCallback)
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            found.append(sys.modules[name].Callback)
    return tuple(found)


def Callback(*, every: int = 1, batches: int = 8, penalty: str = "sum") -> Any:
    """A callback for the Trainer of transformers and for that of Lightning:

        trainer = Trainer(model, callbacks=[norma.torch.Callback()], ...)

    It logs, as means over the inputs of all norms, with every loss (transformers) or batch (Lightning):
    ``norma/tid_mean`` and ``norma/tid_variance``, the training-inference discrepancy over the last
    ``batches`` batches; ``norma/distance``, the distance between the means of the batch and the running
    means, relative to the running deviation; ``norma/effective_rank``, exp of the entropy of the singular
    values of the first 1,024 tokens; ``norma/largest_singular_value``, as a fraction of their sum. every:
    steps between measurements. With every validation, for norms with batch statistics: ``norma/gap``, the
    loss at inference minus the loss with batch statistics, over the first ``batches`` batches. In Lightning,
    ``validation_step`` must return the loss.

    penalty: how the penalty of Regularized BatchNorm joins the loss. "sum": as in the released code, where
    the loss is a sum over tokens, so that it is divided by the number of targets (transformers; Lightning
    adds it as it is); "mean": as it is; "none". ValueError: another word, or a model that returns no loss to
    join.
    """
    kind = type("Callback", (_Callback, *_bases()), {"__module__": "norma.torch"})
    return kind(every=every, batches=batches, penalty=penalty)
