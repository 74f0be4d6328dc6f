"""Symbolic input sizes: the module runs at one size, and the recording holds formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped, unused-ignore]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from irscope.errors import LoadError
from irscope.frontends.torch_common.expressions import Symbols
from irscope.ir.bind import substitute_symbols
from irscope.ir.dims import Dim, SymDim, bind, symbol
from irscope.ir.program import Program

Size: TypeAlias = "int | torch.SymInt"
_FAR = 1 << 62
_LEAST = 2
"""What torch takes an open size to be at least: one of 1 is spread over others, and its axis may lie anywhere in memory."""


def number(size: Size) -> int:
    """The value of a size in the recorded run. Unlike int() this adds no guard."""
    if isinstance(size, int):
        return size
    found: int = size.node.hint
    return found


def is_open(size: object) -> bool:
    """Whether a size, or another number computed by Python, is symbolic."""
    return isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool)


class SizeFixed(LoadError):
    """A symbolic size was specialised to a number."""

    def __init__(self, func: Any, message: str, hint: str = "") -> None:
        super().__init__(message, code="IRS673", hint=hint)
        self.func = func
        """The operator that specialised it; empty where Python code did."""


class OpenSizes:
    """torch's symbols under the user's names. `in_python` are operators whose C++ kernels would specialise a size."""

    def __init__(self, sizes: Mapping[str, int], axes: Mapping[int, Sequence[int | str]], in_python: frozenset[Any] = frozenset()) -> None:
        self.in_python = in_python
        # Data-dependent values are computed by `Values`, as without symbolic sizes; torch would create an unbacked symbol.
        self.shapes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self._axes = axes
        self._symbols = Symbols({})
        self._known: dict[Any, Dim] = {}
        self._names: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}
        self._hints = sizes
        for name, size in sizes.items():
            made = self.shapes.create_symbol(size, ConstantSource(name), DimDynamic.DYNAMIC, None)
            self._names[str(made)] = name
            self._sizes[name] = self.shapes.create_symintnode(made, hint=size, source=ConstantSource(name))

    def shape_of(self, real: torch.Tensor) -> tuple[Size, ...] | None:
        """The shape of an input with symbolic sizes; None where it has none."""
        axes = self._axes.get(id(real))
        return None if axes is None else tuple([self._sizes.get(size, size) if isinstance(size, str) else size for size in axes])

    def dim(self, size: Size) -> Dim:
        """A size as a formula."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        found = self._known.get(expression)
        if found is None:
            parsed = self._symbols.parse(sympy.srepr(expression))
            if parsed is None:
                raise LoadError(f"a size is {expression}, which is no formula of whole numbers", code="IRS673")
            found = self._known[expression] = parsed
        return found

    def in_run(self, size: Dim) -> Dim:
        """The value of a formula in the recorded run."""
        return bind(size, {own: self._hints[name] for own, name in self._names.items()})

    @contextmanager
    def kept_open(self, func: Any) -> Iterator[None]:
        """Check that an operator specialises no size. Raises SizeFixed where it does, or where it fails on symbolic sizes."""
        self._check("")
        try:
            with enable_python_dispatcher() if func in self.in_python else nullcontext():
                yield
        except (DataDependentOutputException, DynamicOutputShapeException, LoadError):
            raise
        except Exception as error:  # kernels say it in many ways
            raise SizeFixed(func, f"{func} does not run with an open size: {error}") from error
        self._check(func)

    def _check(self, func: Any) -> None:
        for name, size in self._sizes.items():
            fixed = self.shapes.replacements.get(size.node._expr)
            if fixed is not None:
                hint = f"--bind {name}={fixed}" if fixed.is_Integer else ""
                raise SizeFixed(func, f"the model fixes {name} at {fixed}", hint)

    def settle(self, program: Program) -> None:
        """Name the symbols of a program, with the limits within which the run takes the same path."""
        self._check("")
        made: dict[str, SymDim] = {}
        for own, name in self._names.items():
            made[own] = symbol(name, *self._limits(self._sizes[name].node._expr))
            program.symbols[own] = self._symbols.get(own)
            if made[own].bounds[0] == 1:
                program.formulas_from[own] = _LEAST
        substitute_symbols(program, made)

    def _limits(self, variable: Any) -> tuple[int, int | None]:
        """The range of a size that the model's own guards allow; 1 is included, whatever torch assumes."""
        limits = self.shapes.var_to_range[variable]
        low, high = (int(limit) if limit.is_Integer and abs(limit) < _FAR else None for limit in (limits.lower, limits.upper))
        return 1 if low is None or low <= _LEAST else low, high
