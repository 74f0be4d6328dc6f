"""One-line errors for what cannot be trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from irscope.errors import LoadError

_MOST = 240
_DATA, _RAISED = "IRS188", "IRS189"
"""Codes of a capture that depends on values, and of one that raises."""


def check_trainable(module: nn.Module) -> None:
    """Refuses a model that has nothing to train."""
    if not any(one.requires_grad for one in module.parameters()):
        count = sum(1 for _ in module.parameters())
        said = (
            f"none of the {count} parameters of {type(module).__name__} needs"
            if count
            else f"{type(module).__name__} has no parameters that need"
        )
        raise LoadError(
            f"{said} gradients, so there is nothing to train", code="IRS374", hint="requires_grad_(True) on what is to be trained"
        )


def check_loss(loss: Any) -> None:
    """Refuses a loss that has no gradient."""
    if not isinstance(loss, torch.Tensor):
        raise LoadError(f"the loss is {type(loss).__name__}, not a tensor", code="IRS375", hint="loss= is a function of the model's result")
    if loss.numel() != 1:
        shape = "x".join(map(str, loss.shape))
        raise LoadError(f"the loss is no scalar but a tensor of {shape}", code="IRS375", hint="reduce it, as with .mean()")
    if not loss.requires_grad:
        raise LoadError("the loss does not depend on any parameter that needs a gradient", code="IRS376")


@contextmanager
def explained() -> Iterator[None]:
    """What the model raises in a step becomes one line that says what about training it is."""
    try:
        yield
    except LoadError as error:
        cause = error.__cause__
        if error.code == _DATA:
            raise LoadError(error.message, code="IRS378", where=error.where, hint=error.hint) from cause
        if error.code != _RAISED or cause is None:
            raise
        text = " ".join(str(cause).split())
        if "inplace operation" in text or "in-place operation" in text:
            text = text.partition("; expected version")[0]
            raise LoadError(
                f"autograd refuses an operation in place: {_short(text)}",
                code="IRS377",
                where=error.where,
                hint="use the form that makes a new tensor",
            ) from cause
        said = f"the training step fails: {type(cause).__name__}: {_short(text)}"
        raise LoadError(said, code="IRS379", where=error.where, hint="try it once without irscope") from cause


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
