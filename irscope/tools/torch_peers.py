"""FLOP counters of PyTorch: they are given the ATen calls that a model is made of, one by one, without its data."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.program import Called
from irscope.ir.types import TensorType
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.session import Model, open_model
from irscope.tools.peers import CannotCount, Counted, labels_of

_DTYPES: dict[DType, torch.dtype] = {
    dtype: getattr(torch, name) for name, dtype in reversed(NAMED_DTYPES.items()) if isinstance(getattr(torch, name, None), torch.dtype)
}
_LEFT_OUT = frozenset({"device", "layout", "memory_format", "pin_memory", "non_blocking"})
"""Arguments that change neither sizes nor arithmetic; without them a call works on tensors of any device."""


@immutable(slots=False)
class Call:
    """One call of an ATen operator; tensors are their types."""

    function: Any
    """torch._ops.OpOverload."""
    args: tuple[object, ...]
    named: Mapping[str, object]


@contextmanager
def without_data() -> Iterator[None]:
    """Tensors made here have no data, and operators on them compute nothing."""
    with torch.no_grad(), FakeTensorMode():
        yield


def as_torch(value: object, device: str = "meta") -> Any:
    """Return an argument with tensors in place of their types."""
    if isinstance(value, TensorType):
        assert value.shape is not None
        return torch.empty([int(size) for size in value.shape if isinstance(size, int)], dtype=_DTYPES[value.dtype], device=device)
    if isinstance(value, DType):
        return _DTYPES[value]
    if isinstance(value, list):
        return [as_torch(item, device) for item in value]
    return value


def count_calls(model: Model, counter: Callable[[Call], float], unit: str) -> Counted:
    """Return the answer of a counter that takes one call at a time."""
    if not model.program.calls:
        model = open_model(Path(model.program.path), replace(model.options, keep_calls=True), settings=model.manager.settings)
    types, labels = model.manager.get(Shapes), labels_of(model.graph)
    by_node: dict[str, float] = {}
    failed: dict[str, str] = {}
    for node, called in model.program.calls.items():
        label = labels.get(node, node.name)
        function = _aten_operator(called.operator)
        if function is None:
            failed[label] = f"{called.operator} is not called"
            continue
        if not any("Tensor" in str(result.type) for result in function._schema.returns):
            continue  # it reads a value, which there is none of
        call = _call(function, called, types)
        try:
            number = counter(call)
        except Exception as error:  # a call that the counter fails on is one that it does not count
            failed[label] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            continue
        if number:
            by_node[label] = by_node.get(label, 0) + number
    return Counted(sum(by_node.values()), unit, by_node, failed=failed)


def _aten_operator(operator: str) -> Any:
    """Return the ATen operator of a name; None for those of others."""
    name, _, overload = operator.rpartition(".")
    return None if "::" in name else getattr(getattr(torch.ops.aten, name, None), overload, None)


def _call(function: Any, called: Called, types: Inferred) -> Call:
    """Return the call as somebody would write it: without what has its default at the end, and by name only what has to be."""
    args: list[object] = []
    named: dict[str, object] = {}
    wanted = 0
    for parameter in function._schema.arguments:
        if parameter.name in _LEFT_OUT:
            if parameter.name == "device" and not parameter.has_default_value():
                args.append(torch.device("cpu"))
            continue
        given = called.args.get(parameter.name)
        value = _operand_with_type(given, "Tensor" in str(parameter.type), types)
        if value is None and parameter.has_default_value():
            value = parameter.default_value
        is_default = parameter.has_default_value() and value == parameter.default_value
        if not parameter.kwarg_only:
            args.append(value)
            wanted = wanted if is_default else len(args)
        elif not is_default:
            named[parameter.name] = value
    return Call(function, tuple(args[:wanted]), named)


def _operand_with_type(given: object, is_tensor: bool, types: Inferred) -> object:
    """Return an argument with types for tensors and numbers for formulas; raises CannotCount where a size is open."""
    if isinstance(given, tuple | list):
        return [_operand_with_type(item, is_tensor, types) for item in given]
    if isinstance(given, SymDim):
        raise CannotCount(f"the size {given} is open; give it with --bind to compare")
    if not isinstance(given, Value):
        return given
    if not is_tensor:
        known = types.values.get(given)
        if known is None:
            raise CannotCount("a number in the graph depends on data, which this counter would need")
        return known.item() if known.size == 1 else known.tolist()
    type_ = types.type_of(given)
    if type_.shape is None or not type_.is_static:
        raise CannotCount(f"the size of {given.name or 'a tensor'} is open; give it with --bind or --input to compare")
    return type_


# PyTorch's own counter, `torch.utils.flop_counter`.


def count_torch(model: Model) -> Counted:
    """Return the FLOPs of each call, a multiply-add as 2."""

    def one(call: Call) -> float:
        with without_data():
            args = [as_torch(arg, "cpu") for arg in call.args]
            named = {key: as_torch(arg, "cpu") for key, arg in call.named.items()}
            with FlopCounterMode(display=False) as counter:
                call.function(*args, **named)
        return float(counter.get_total_flops())

    return count_calls(model, one, "FLOPs")


# fvcore's `FlopCountAnalysis`, which traces a module; here each call is a module of its own.


class _One(nn.Module):
    """A single call; its tensors are the module's inputs."""

    def __init__(self, function: Any, args: list[Any], named: dict[str, Any]) -> None:
        super().__init__()
        self._function, self._args, self._named = function, args, named

    def forward(self, *tensors: Tensor) -> Any:
        """Run the call with these tensors in place of its own."""
        given = iter(tensors)

        def filled(value: Any) -> Any:
            if isinstance(value, Tensor):
                return next(given)
            return [filled(item) for item in value] if isinstance(value, list) else value

        args = [filled(arg) for arg in self._args]
        return self._function(*args, **{key: filled(arg) for key, arg in self._named.items()})


def _zeros_on(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros(value.shape, dtype=value.dtype, device=device)
    return [_zeros_on(item, device) for item in value] if isinstance(value, list) else value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def count_fvcore(model: Model) -> Counted:
    """Multiply-adds of each call."""
    analysis = importlib.import_module("fvcore.nn").FlopCountAnalysis
    logging.getLogger("fvcore.nn.jit_analysis").setLevel(logging.CRITICAL)

    def on(device: str, call: Call) -> float:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = [_zeros_on(as_torch(arg), device) for arg in call.args]
            named = {key: _zeros_on(as_torch(arg), device) for key, arg in call.named.items()}
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
