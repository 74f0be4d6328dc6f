"""Implementations of operators under fake tensors: composites are decomposed as in C++, data-dependent sizes are guessed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode

SILENT = frozenset({"prim", "profiler"})
"""Namespaces of metadata queries and profiler markers."""
MOST_FOUND = 256
"""The guess for data-dependent sizes, unless their upper bound is lower."""
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Inside(TorchDispatchMode):
    """A dispatch mode below the recorder, which does not see the decomposition of an operator."""

    def __init__(self, most_found: int = MOST_FOUND) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]  # torch's own
        self._most_found = most_found
        self.may_guess = False
        """Whether data-dependent sizes may be guessed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if is_composite(func):
            with self:
                return func._op_dk(COMPOSITE, *args, **(kwargs or {}))
        try:
            return func(*args, **(kwargs or {}))
        except DynamicOutputShapeException:
            rule = _RULES.get(func.name().partition(".")[0]) if self.may_guess else None
            if rule is None:
                raise
            return rule(self._most_found, *args, **(kwargs or {}))


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether an operator is a composite in C++."""
    if func.namespace in SILENT:
        return False
    found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)
    return found


def _nonzero(most: int, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((min(most, x.numel()), x.dim()), dtype=torch.int64)


def _masked_select(most: int, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.new_empty((min(most, torch.broadcast_shapes(x.shape, mask.shape).numel()),))


def _index(most: int, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Indexing with a mask, done as indexing with a list of positions."""
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            places.extend(x.new_empty((min(most, index.numel()),), dtype=torch.int64) for _ in range(index.dim()))
        else:
            places.append(index)
    found: torch.Tensor = torch.ops.aten.index.Tensor(x, places)
    return found


def _nms(most: int, boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    return boxes.new_empty((min(most, boxes.shape[0]),), dtype=torch.int64)


def _unique(
    most: int, x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    inverse = x.new_empty(x.shape if return_inverse else (0,), dtype=torch.int64)
    count = min(most, x.numel())
    return x.new_empty((count,)), inverse, x.new_empty((count if return_counts else 0,), dtype=torch.int64)


_RULES: dict[str, Callable[..., Any]] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::index": _index,
    "aten::_unique2": _unique,
    "torchvision::nms": _nms,
}
