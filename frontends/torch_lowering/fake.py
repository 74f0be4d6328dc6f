"""Types of operators that irscope has no record of, asked of torch's fake tensors: only with --use-torch, and said each time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.frontends.torch_lowering.signatures import Argument
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.types import Type, tensor

# A dispatcher operator with tensors among its operands only computes; these would open files.
_REFUSED = frozenset({"from_file", "save", "load", "_load_for_executorch"})
_NAMES = {dtype: name for name, dtype in reversed(NAMED_DTYPES.items()) if not name.startswith("q")}


class FakeTypes:
    """Asks torch, which is imported with the first question."""

    def __init__(self, sink: DiagnosticSink) -> None:
        self._sink = sink
        self._torch: Any = None
        self._mode: Any = None
        self.is_usable = importlib.util.find_spec("torch") is not None

    def ask(self, namespace: str, name: str, args: Sequence[Argument], named: Mapping[str, Argument]) -> list[Type] | None:
        """Return the types of an operator's results; None where torch does not know the operator, or cannot tell."""
        if not self.is_usable or namespace != "aten" or name in _REFUSED or not _has_tensor(args):
            return None
        self._start()
        operator = self._operator(name)
        if operator is None:
            return None
        try:
            with self._mode:
                found = operator(*(self._real(arg) for arg in args), **{key: self._real(arg) for key, arg in named.items()})
        except Exception:  # whatever torch raises, it does not know the types
            return None
        results = [_type_of_fake(item) for item in (found if isinstance(found, list | tuple) else (found,))]
        if not all(type_ is not None for type_ in results):
            return None
        op = f"{namespace}.{name}"
        self._sink.warn("IRS173", f"the types of {op} come from torch {self._torch.__version__}, not from irscope", node=op, about=op)
        return [type_ for type_ in results if type_ is not None]

    def _start(self) -> None:
        if self._torch is None:
            import torch
            from torch._subclasses.fake_tensor import FakeTensorMode

            self._torch, self._mode = torch, FakeTensorMode(allow_fallback_kernels=False)

    def _operator(self, name: str) -> Callable[..., Any] | None:
        """Return the operator where torch's dispatcher has it; what only TorchScript's interpreter has might do anything."""
        operator = getattr(self._torch.ops.aten, name, None)
        if operator is None:
            return None
        overloads = [f"aten::{name}" + ("" if key == "default" else f".{key}") for key in operator.overloads()]
        has_schema = self._torch._C._dispatch_has_kernel
        return operator if overloads and all(has_schema(full) for full in overloads) else None

    def _real(self, arg: Argument) -> Any:
        if isinstance(arg, Value):
            type_ = arg.type
            if type_.shape is None or any(isinstance(size, SymDim) for size in type_.shape):
                raise ValueError("not a tensor of known size")
            return self._torch.empty(type_.shape, dtype=self._dtype(type_.dtype))
        if isinstance(arg, DType):
            return self._dtype(arg)
        if isinstance(arg, SymDim):
            raise ValueError("not a known size")
        if isinstance(arg, list | tuple):
            return [self._real(part) for part in arg]
        return arg

    def _dtype(self, dtype: DType) -> Any:
        return getattr(self._torch, _NAMES[dtype])


def _has_tensor(args: Sequence[Argument]) -> bool:
    return any(isinstance(arg, Value) or (isinstance(arg, list | tuple) and _has_tensor(arg)) for arg in args)


def _type_of_fake(item: Any) -> Type | None:
    dtype = NAMED_DTYPES.get(str(getattr(item, "dtype", "")).removeprefix("torch."))
    if dtype is None:
        return None
    return tensor(dtype, [int(size) for size in item.shape])
