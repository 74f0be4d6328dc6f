"""Making recorded calls again with torch, on tensors that have sizes but no data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from irscope.frontends.torch_common.dtypes import NAMED_DTYPES
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.peers.base import Counted
from irscope.peers.recorded import Call, recording
from irscope.session import Model

_DTYPES: dict[DType, torch.dtype] = {
    dtype: getattr(torch, name) for name, dtype in reversed(NAMED_DTYPES.items()) if isinstance(getattr(torch, name, None), torch.dtype)
}


@contextmanager
def without_data() -> Iterator[None]:
    """Tensors made here have no data, and operators on them compute nothing."""
    with torch.no_grad(), FakeTensorMode():
        yield


def as_torch(value: object, device: str = "meta") -> Any:
    """An argument with tensors in place of their types."""
    if isinstance(value, TensorType):
        assert value.shape is not None
        return torch.empty([int(size) for size in value.shape if isinstance(size, int)], dtype=_DTYPES[value.dtype], device=device)
    if isinstance(value, DType):
        return _DTYPES[value]
    if isinstance(value, list):
        return [as_torch(item, device) for item in value]
    return value


def function_of(call: Call) -> Any:
    """The ATen operator of a call."""
    name, _, overload = call.operator.partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


def count_calls(model: Model, counter: Callable[[Call], float], unit: str) -> Counted:
    """The answer of a counter that takes one call at a time."""
    found = recording(Path(model.program.path), model.options.method, dict(model.options.bind))
    by_node: dict[str, float] = {}
    failed: dict[str, str] = {name: f"{target} is not called" for name, target in found.skipped.items()}
    for call in found.calls:
        label = call.names[0] if call.names else call.operator
        try:
            number = counter(call)
        except Exception as error:  # a call that the counter fails on is one that it does not count
            failed[label] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            continue
        if number:
            by_node[label] = by_node.get(label, 0) + number
    return Counted(sum(by_node.values()), unit, by_node, failed=failed)
