"""Facts about a run without data: symbolic input sizes, and values of small tensors computed on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped, unused-ignore]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.value_ranges import bound_sympy

from irscope.errors import LoadError
from irscope.frontends.eager.record import Op, Record, Tensor, tensors_in
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.ir.bind import substitute_symbols
from irscope.ir.dims import Dim, SymDim, bind, product, symbol
from irscope.ir.dtypes import DType
from irscope.ir.program import Program

# -- symbolic sizes ----------------------------------------------------------------------------------------------------


Size: TypeAlias = "int | torch.SymInt"
_FAR = 1 << 62
_LEAST = 2
"""Lower bound that torch assumes for an open size: an axis of size 1 is broadcast, and may lie anywhere in memory."""


def recorded_size(size: Size) -> int:
    """Return the value of a size in the recorded run. Unlike int() this adds no guard."""
    if isinstance(size, int):
        return size
    hint: int = size.node.hint
    return hint


def is_open(size: object) -> bool:
    """Return whether a size, or another number computed by Python, is symbolic."""
    return isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool)


class SizeFixed(LoadError):
    """A symbolic size was specialised to a number."""

    def __init__(self, func: Any, message: str, hint: str = "") -> None:
        super().__init__(message, code="IRS673", hint=hint)
        self.func = func
        """The operator that specialised it; empty where Python code did."""


_COMPARISONS = {
    sympy.StrictLessThan: (False, 0),
    sympy.LessThan: (False, 1),
    sympy.StrictGreaterThan: (True, 0),
    sympy.GreaterThan: (True, 1),
}
"""By class of a comparison whether its larger side comes first, and what makes that side larger than the other where both may be equal."""


class OpenSizes:
    """torch's symbols under the user's names. `in_python` are operators whose C++ kernels would specialise a size, `filled` numbers that
    inputs of open size hold in each element, by the inputs' identity."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        axes: Mapping[int, Sequence[int | str]],
        in_python: frozenset[Any] = frozenset(),
        filled: Mapping[int, int] | None = None,
    ) -> None:
        self.in_python = in_python
        self.filled = filled or {}
        self.is_one_path = not in_python
        """True where nothing was seen that may make the run take another path at another size, except for guards of torch's."""
        # Data-dependent values are computed by `Values`, as without symbolic sizes; torch would create an unbacked symbol.
        self.shapes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self._axes = axes
        self._symbols = Symbols({})
        self._known: dict[Any, Dim] = {}
        self._names: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}
        self._hints = sizes
        if sizes:  # not before: torch._dynamo makes a folder for Inductor when it is imported, and a simulation says where that lies
            from torch._dynamo.source import ConstantSource
        for name, size in sizes.items():
            made = self.shapes.create_symbol(size, ConstantSource(name), DimDynamic.DYNAMIC, None)
            self._names[str(made)] = name
            self._sizes[name] = self.shapes.create_symintnode(made, hint=size, source=ConstantSource(name))

    def shape_of(self, real: torch.Tensor) -> tuple[Size, ...] | None:
        """Return the shape of an input with symbolic sizes; None where it has none."""
        axes = self._axes.get(id(real))
        return None if axes is None else tuple([self._sizes.get(size, size) if isinstance(size, str) else size for size in axes])

    def dim(self, size: Size) -> Dim:
        """Return a size as a formula."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        cached = self._known.get(expression)
        if cached is None:
            parsed = self._symbols.parse(sympy.srepr(expression))
            if parsed is None:
                raise LoadError(f"a size is {expression}, which is not a formula of whole numbers", code="IRS673")
            cached = self._known[expression] = parsed
        return cached

    def in_run(self, size: Dim) -> Dim:
        """Return the value of a formula in the recorded run."""
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
        program.conditions = self._conditions(made) if self.is_one_path else None

    def _conditions(self, made: Mapping[str, SymDim]) -> tuple[tuple[Dim, Dim], ...] | None:
        """Return the comparisons that torch made on this path, as pairs of a smaller and a larger number; None for other comparisons."""
        conditions: dict[tuple[Dim, Dim], None] = {}
        for guard in self.shapes.guards:
            if bound_sympy(guard.expr, self.shapes.var_to_range).is_singleton():
                continue  # the limits of the symbols say so
            turned, added = _COMPARISONS.get(type(guard.expr), (False, -1))
            if added < 0:
                return None
            sides = [self._symbols.parse(sympy.srepr(side)) for side in guard.expr.args]
            low, high = reversed(sides) if turned else sides
            if low is None or high is None:
                return None
            conditions[bind(low, made), bind(high, made) + added] = None
        return tuple(conditions)

    def _limits(self, variable: Any) -> tuple[int, int | None]:
        """Return the range of a size that the model's own guards allow; 1 is included, whatever torch assumes."""
        limits = self.shapes.var_to_range[variable]
        low, high = (int(limit) if limit.is_Integer and abs(limit) < _FAR else None for limit in (limits.lower, limits.upper))
        return 1 if low is None or low <= _LEAST else low, high


# -- values ------------------------------------------------------------------------------------------------------------


_MOST_ELEMENTS = 1 << 22
"""In all tensors that are computed for one answer."""
_MOST_OPERATORS = 4_000
"""That are computed for one answer."""
_MOST_LINKS = 32
"""Operators one after the other through which a number is followed that all elements have."""
_EXACT = frozenset({DType.BOOL, DType.I32, DType.I64})
_KEEP_ELEMENTS = frozenset(
    {"view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "permute", "transpose", "t", "clone", "contiguous"}
)
"""Operators whose results have the elements of their operand."""


class Values:
    """Computes the values of recorded tensors from those that are known."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._known: dict[Tensor, torch.Tensor] = {}
        self._writes: dict[int, list[int]] = {}
        """Operators that wrote to a storage, by its number."""
        self._hopeless: set[Tensor] = set()
        """Tensors whose values were requested and are unknown."""
        self.sizes: OpenSizes | None = None
        """Symbolic sizes; values are those of the recorded run."""
        self.missing: dict[Tensor, None] = {}
        """The unknown tensors that the last request depended on."""
        self._filled: dict[Tensor, int] = {}
        """Numbers that are in all elements of tensors of open size."""

    def know(self, tensor: Tensor, real: torch.Tensor) -> None:
        """Record the values of a tensor that existed before the run."""
        self._known.setdefault(tensor, real)
        if self.sizes is not None and id(real) in self.sizes.filled:
            self._filled[tensor] = self.sizes.filled[id(real)]

    def known(self, tensor: Tensor) -> torch.Tensor | None:
        """Return the values that need not be computed."""
        return self._known.get(tensor)

    def wrote(self, tensor: Tensor, number: int) -> None:
        """Note that an operator changed a tensor in place."""
        if tensor.storage is not None:
            self._writes.setdefault(tensor.storage.number, []).append(number)

    def of(self, tensor: Tensor) -> torch.Tensor | None:
        """Return the values of a tensor; None where they depend on unknown tensors, or on too large a computation."""
        self.missing = {}
        order = self._needed(tensor)
        if order is None:
            return None
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            for op in order:
                if not self._compute(op):
                    return None
        return self._known.get(tensor)

    def _needed(self, tensor: Tensor) -> list[Op] | None:
        """Return the backward slice to compute, in order; None where a value in it is unknown."""
        found: dict[int, Op] = {}
        pending, elements = [tensor], 0
        while pending:
            waiting = pending.pop()
            if waiting in self._known:
                continue
            elements += _known_elements(waiting)
            if waiting.made_by is None or waiting in self._hopeless or elements > _MOST_ELEMENTS or len(found) >= _MOST_OPERATORS:
                self.missing[waiting] = None
                break
            op = self._record.ops[waiting.made_by]
            if op.number in found:
                continue
            found[op.number] = op
            for operand in op.reads():
                if self._changed_between(operand, op.number):
                    self.missing[operand] = None
                pending.append(operand)
        if self.missing:
            self._hopeless.add(tensor)
        return None if self.missing else [found[number] for number in sorted(found)]

    def _changed_between(self, tensor: Tensor, number: int) -> bool:
        """Return whether an operator changed a tensor, through another view of its storage, after it was made and before it is read."""
        if tensor.storage is None:
            return True
        made = -1 if tensor.made_by is None else tensor.made_by
        return any(made < one < number for one in self._writes.get(tensor.storage.number, ()))

    def _compute(self, op: Op) -> bool:
        try:
            made = op.func(*self._real(op.args), **{key: self._real(value) for key, value in op.kwargs.items()})
        except (RuntimeError, TypeError, ValueError, IndexError):
            for one in op.makes():
                self.missing[one] = None
            return False
        for result, real in zip(op.makes(), (part for part in _leaves(made) if isinstance(part, torch.Tensor)), strict=False):
            self._known[result] = real
        return True

    def result(self, op: Op) -> Any:
        """Return the result of an operator that reads values, on the host; None where unknown."""
        self.missing = {}
        for operand in tensors_in((op.args, tuple(op.kwargs.values()))):
            if self._changed_between(operand, op.number) or self.of(operand) is None:
                self.missing.setdefault(operand)
                return None
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            return op.func(*self._real(op.args), **{key: self._real(value) for key, value in op.kwargs.items()})

    def is_of_open_size(self, op: Op) -> bool:
        """Return whether what an operator reads was computed from tensors whose size is open, so that other sizes may have other values."""
        pending, seen = list(op.reads()), set[int]()
        while pending:
            waiting = pending.pop()
            if waiting.number in seen:
                continue
            seen.add(waiting.number)
            if any(isinstance(size, SymDim) for size in waiting.shape):
                return True
            if waiting.made_by is not None:
                maker = self._record.ops[waiting.made_by]
                if any(isinstance(item, SymDim) for item in _leaves((maker.args, tuple(maker.kwargs.values())))):
                    return True
                pending.extend(maker.reads())
        return False

    def is_same_at_any_size(self, op: Op) -> bool:
        """Return whether what an operator reads is the same number whatever the open sizes are: a mask that masks nothing is known to."""
        reads = list(op.reads())
        return len(reads) == 1 and op.name == "is_nonzero" and isinstance(self._in_each(reads[0], op.number, _MOST_LINKS), int)

    def _in_each(self, tensor: Tensor, reader: int, links: int) -> Dim | None:
        """Return the number that each element of a tensor has when an operator reads it, a formula of the sizes, if it is seen."""
        if not links or self._changed_between(tensor, reader):
            return None
        if tensor.made_by is None:
            return self._filled.get(tensor)
        op = self._record.ops[tensor.made_by]
        found = [self._in_each(read, op.number, links - 1) for read in op.reads()]
        if op.namespace != "aten" or not found or found[0] is None:
            return None
        first, name = found[0], op.name
        if name in _KEEP_ELEMENTS and len(found) == 1:
            return first
        if name in ("to", "_to_copy") and isinstance(first, int) and tensor.dtype in _EXACT:
            return int(first != 0) if tensor.dtype is DType.BOOL else first
        if name in ("all", "any") and isinstance(first, int):  # no open size is 0
            return int(first != 0)
        if name == "sum" and len(op.args) == 1 and not op.kwargs and tensor.dtype is DType.I64:
            return first * product(next(op.reads()).shape)
        if name == "eq" and len(op.args) == 2:
            other = op.args[1] if len(found) == 1 else found[1]
            if isinstance(other, int | SymDim) and (first == other or (isinstance(first, int) and isinstance(other, int))):
                return int(first == other)
        return None

    def _real(self, item: Any) -> Any:
        if isinstance(item, SymDim):
            assert self.sizes is not None
            return self.sizes.in_run(item)
        if isinstance(item, Tensor):
            # An operator that works in place must not change what is known.
            return self._known[item].clone() if item in self._known else item
        if isinstance(item, tuple | list):
            return [self._real(part) for part in item] if isinstance(item, list) else tuple(self._real(part) for part in item)
        return torch.device("cpu") if isinstance(item, torch.device) else item


def _leaves(item: Any) -> Sequence[Any]:
    if isinstance(item, tuple | list):
        return [part for one in item for part in _leaves(one)]
    return [item]


def _known_elements(tensor: Tensor) -> int:
    count = product(tensor.shape)
    return count if isinstance(count, int) else 0
