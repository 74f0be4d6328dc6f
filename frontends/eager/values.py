"""Values of small tensors that a model reads, computed on the host on demand, since fake tensors have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from irscope.frontends.eager.opensizes import OpenSizes
from irscope.frontends.eager.record import Op, Record, Tensor, tensors_in
from irscope.ir.dims import SymDim, product

_MOST_ELEMENTS = 1 << 22
"""In all tensors that are computed for one answer."""
_MOST_OPERATORS = 4_000
"""That are computed for one answer."""


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

    def know(self, tensor: Tensor, real: torch.Tensor) -> None:
        """Record the values of a tensor that existed before the run."""
        self._known.setdefault(tensor, real)

    def known(self, tensor: Tensor) -> torch.Tensor | None:
        """Values that need not be computed."""
        return self._known.get(tensor)

    def wrote(self, tensor: Tensor, number: int) -> None:
        """Note that an operator changed a tensor in place."""
        if tensor.storage is not None:
            self._writes.setdefault(tensor.storage.number, []).append(number)

    def of(self, tensor: Tensor) -> torch.Tensor | None:
        """The values of a tensor; None where they depend on unknown tensors, or on too large a computation."""
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
        """The backward slice to compute, in order; None where a value in it is unknown."""
        found: dict[int, Op] = {}
        pending, elements = [tensor], 0
        while pending:
            one = pending.pop()
            if one in self._known:
                continue
            elements += _elements(one)
            if one.made_by is None or one in self._hopeless or elements > _MOST_ELEMENTS or len(found) >= _MOST_OPERATORS:
                self.missing[one] = None
                break
            op = self._record.ops[one.made_by]
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
        """Whether an operator changed a tensor, through another view of its storage, after it was made and before it is read."""
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
        for result, real in zip(op.makes(), (part for part in _flat(made) if isinstance(part, torch.Tensor)), strict=False):
            self._known[result] = real
        return True

    def result(self, op: Op) -> Any:
        """The result of an operator that reads values, on the host; None where unknown."""
        self.missing = {}
        for operand in tensors_in((op.args, tuple(op.kwargs.values()))):
            if self._changed_between(operand, op.number) or self.of(operand) is None:
                self.missing.setdefault(operand)
                return None
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            return op.func(*self._real(op.args), **{key: self._real(value) for key, value in op.kwargs.items()})

    def is_of_open_size(self, op: Op) -> bool:
        """Whether what an operator reads was computed from tensors whose size is open, so that other sizes may have other values."""
        pending, seen = list(op.reads()), set[int]()
        while pending:
            one = pending.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            if any(isinstance(size, SymDim) for size in one.shape):
                return True
            if one.made_by is not None:
                maker = self._record.ops[one.made_by]
                if any(isinstance(item, SymDim) for item in _flat((maker.args, tuple(maker.kwargs.values())))):
                    return True
                pending.extend(maker.reads())
        return False

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


def _flat(item: Any) -> Sequence[Any]:
    if isinstance(item, tuple | list):
        return [part for one in item for part in _flat(one)]
    return [item]


def _elements(tensor: Tensor) -> int:
    count = product(tensor.shape)
    return count if isinstance(count, int) else 0
