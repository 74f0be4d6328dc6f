"""Counters that replace functions of `torch` and `torch.nn.functional`: DeepSpeed's profiler and calflops.

A file calls ATen's operators, which these counters do not see, so each call is made through the public function of the same
name where there is one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from irscope.peers.base import Counted
from irscope.peers.calls import Call, as_torch, count_calls, without_data
from irscope.session import Model

Counts = list[list[tuple[Any, float]]]
_RENAMED = {
    "upsample_bilinear2d": "interpolate",
    "upsample_nearest2d": "interpolate",
    "silu_": "silu",
    "relu_": "relu",
    "add_": "add",
    "mul_": "mul",
    "mm": "matmul",
    "bmm": "matmul",
}
_ARGUMENTS: dict[str, Callable[[list[Any], dict[str, Any]], tuple[list[Any], dict[str, Any]]]] = {
    "layer_norm": lambda args, named: (args[:5], {}),
    "group_norm": lambda args, named: (args[:5], {}),
    "batch_norm": lambda args, named: ([args[0], args[3], args[4], args[1], args[2], *args[5:8]], {}),
    "softmax": lambda args, named: (args[:1], {"dim": args[1]}),
    "embedding": lambda args, named: ([args[1], args[0]], {}),
    "einsum": lambda args, named: ([args[0], *args[1]], {}),
    "interpolate": lambda args, named: (args[:1], {"size": args[1]} if args[1] is not None else {"scale_factor": args[-1]}),
}


def _public(name: str) -> Callable[..., Any] | None:
    """The function as the counter may have replaced it, so looked up at every call."""
    for module in (F, torch):
        found: Callable[..., Any] | None = getattr(module, name, None)
        if found is not None:
            return found
    return None


def _tuples(value: Any) -> Any:
    """Lists of numbers as tuples: only these are taken for sizes of several axes."""
    return tuple(value) if isinstance(value, list) and all(isinstance(item, int) for item in value) else value


def _make(call: Call) -> None:
    name = _RENAMED.get(call.name, call.name)
    args = [_tuples(as_torch(arg, "cpu")) for arg in call.args]
    named = {key: _tuples(as_torch(arg, "cpu")) for key, arg in call.named.items()}
    public = _public(name)
    if public is not None:
        arranged = _ARGUMENTS.get(name)
        given, options = arranged(args, named) if arranged is not None else (args, named)
        public(*given, **options)
    else:
        call.function(*args, **named)


def _count(model: Model, flops: Counts, patch: Callable[[], None], restore: Callable[[], None]) -> Counted:
    flops.append([])
    patch()
    try:

        def one(call: Call) -> float:
            before = len(flops[-1])
            with without_data():
                _make(call)
            return float(sum(number for _, number in flops[-1][before:]))

        return count_calls(model, one, "FLOPs")
    finally:
        restore()
        flops.pop()


def count_deepspeed(model: Model) -> Counted:
    """FLOPs of each call, a multiply-add as 2."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        profiler = importlib.import_module("deepspeed.profiling.flops_profiler.profiler")

    def patch() -> None:
        profiler._patch_functionals()
        profiler._patch_tensor_methods()

    def restore() -> None:
        profiler._reload_functionals()
        profiler._reload_tensor_methods()

    return _count(model, profiler.module_flop_count, patch, restore)


def count_calflops(model: Model) -> Counted:
    """FLOPs of each call, a multiply-add as 2."""
    operators = importlib.import_module("calflops.pytorch_ops")
    originals: dict[Any, Any] = {}
    flops: Counts = []
    macs: Counts = []
    places = [
        (module, name, getattr(module, name)) for module in (F, torch, torch.Tensor) for name in dir(module) if not name.startswith("__")
    ]

    def patch() -> None:
        operators._patch_functionals(originals, flops, macs)
        operators._patch_tensor_methods(originals, flops, macs)

    def restore() -> None:
        # calflops's own way back forgets some functions.
        for module, name, found in places:
            if getattr(module, name, None) is not found:
                setattr(module, name, found)

    return _count(model, flops, patch, restore)
