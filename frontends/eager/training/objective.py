"""The loss of what a model returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from irscope.errors import UsageError

Objective = Callable[[Any], Tensor]
LOSSES = ("auto", "cross-entropy", "mse", "mean", "sum")
_CLASSES = 2
"""Axes of the scores of a classifier: samples, classes."""


def objective_of(loss: str | Objective | None) -> Objective:
    """A function from the model's result to a number; a name stands for a usual one with targets of zero."""
    if loss is None:
        return Auto()
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UsageError(
                f"there is no loss {loss!r}", code="IRS373", hint=f"one of {', '.join(LOSSES)}, or a function of the model's result"
            )
        return Auto() if loss == "auto" else _BY_NAME[loss]
    if callable(loss):
        return loss
    raise UsageError("the loss must be a name or a function of the model's result", code="IRS373")


def own_loss(out: Any) -> Tensor | None:
    """The loss that a model computes itself."""
    if isinstance(out, Tensor):
        return out if out.ndim == 0 else None
    found = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    return found if isinstance(found, Tensor) else None


OWN: Final = "the model's own"


class Auto:
    """The model's own loss where it has one; cross entropy where it gives scores of classes for samples; else the mean."""

    def __init__(self) -> None:
        self.taken = ""
        """Which of them it was."""

    def __call__(self, out: Any) -> Tensor:
        found = own_loss(out)
        if found is not None:
            self.taken = OWN
            return found
        scores = _scores(out)
        self.taken = "cross-entropy" if scores.ndim == _CLASSES else "mean"
        return _cross_entropy(scores) if scores.ndim == _CLASSES else scores.mean()


def _scores(out: Any) -> Tensor:
    """The first tensor of numbers with a fraction."""
    for leaf in tree_leaves(out):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf
    raise UsageError(
        "the model returns no tensor that a loss could be made of",
        code="IRS375",
        hint="give loss=, a function of what the model returns",
    )


def _cross_entropy(out: Any) -> Tensor:
    scores = _scores(out)
    labels = torch.zeros((scores.shape[0], *scores.shape[2:]), dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, labels)


def _mse(out: Any) -> Tensor:
    scores = _scores(out)
    return functional.mse_loss(scores, torch.zeros_like(scores))


def _sum(out: Any) -> Tensor:
    return _scores(out).sum()


_BY_NAME: Final[dict[str, Objective]] = {"cross-entropy": _cross_entropy, "mse": _mse, "mean": lambda out: _scores(out).mean(), "sum": _sum}
