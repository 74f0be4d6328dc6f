"""fvcore's `FlopCountAnalysis`, which traces a module; here each call is a module of its own.

The tracer cannot take every operator on tensors without data; those it fails on are traced once more on zeros.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from irscope.peers.base import Counted
from irscope.peers.calls import Call, as_torch, count_calls
from irscope.session import Model


class _One(nn.Module):
    """A single call; its tensors are the module's inputs."""

    def __init__(self, function: Any, args: list[Any], named: dict[str, Any]) -> None:
        super().__init__()
        self._function, self._args, self._named = function, args, named

    def forward(self, *tensors: Tensor) -> Any:
        """The call with these tensors in place of its own."""
        given = iter(tensors)

        def filled(value: Any) -> Any:
            if isinstance(value, Tensor):
                return next(given)
            return [filled(item) for item in value] if isinstance(value, list) else value

        args = [filled(arg) for arg in self._args]
        return self._function(*args, **{key: filled(arg) for key, arg in self._named.items()})


def _placed(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros(value.shape, dtype=value.dtype, device=device)
    return [_placed(item, device) for item in value] if isinstance(value, list) else value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def count(model: Model) -> Counted:
    """Multiply-adds of each call."""
    analysis = importlib.import_module("fvcore.nn").FlopCountAnalysis
    logging.getLogger("fvcore.nn.jit_analysis").setLevel(logging.CRITICAL)

    def on(device: str, call: Call) -> float:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = [_placed(as_torch(arg), device) for arg in call.args]
            named = {key: _placed(as_torch(arg), device) for key, arg in call.named.items()}
            inputs = tuple(_tensors([*args, *named.values()]))
            if not inputs:
                return 0
            found = analysis(_One(call.function, args, named), inputs)
            return float(found.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())

    def one(call: Call) -> float:
        try:
            return on("meta", call)
        except Exception:  # the tracer's own way to fail on a tensor without data
            return on("cpu", call)

    return count_calls(model, one, "multiply-adds")
