"""The order in which ONNX Runtime runs the kernels of a graph: it sorts them itself, in one of several ways."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from irscope.memory.ordering.sorting import sorted_by
from irscope.passes.ort.kernels import Launch, Launches

ExecutionOrder: TypeAlias = Literal["default", "priority_based"]
"""SessionOptions.execution_order, as far as the packages on PyPI have it."""
EXECUTION_ORDERS: Final[tuple[ExecutionOrder, ...]] = ("default", "priority_based")
REFUSED_ORDER: Final = "memory_efficient"
"""The setting that only builds with training have. Others make no session with it."""
_EARLY: Final = frozenset({"Shape", "Size"})
"""Kernels that the priority-based order runs before all others that could run: they let go of what they read."""


def execution_order(found: Launches, setting: ExecutionOrder = "default") -> list[Launch]:
    """Kernels as a session runs them that keeps the graph as it is."""
    makers = makers_of(found)
    places = _by_priority(found.launches, makers) if setting == "priority_based" else _backwards(makers)
    return [found.launches[place] for place in places]


def makers_of(found: Launches) -> list[list[int]]:
    """For each kernel, those that make what it reads."""
    maker = [-1] * len(found.values)
    for index, launch in enumerate(found.launches):
        for value in launch.outputs:
            maker[value] = index
    makers: list[list[int]] = []
    for launch in found.launches:
        needed = sorted({maker[value] for value in (*launch.inputs, *launch.captured) if value >= 0})
        if needed and needed[0] < 0:
            del needed[0]
        makers.append(needed)
    return makers


def _backwards(makers: list[list[int]]) -> list[int]:
    """Backwards and depth first from what nothing reads, later nodes of the file before earlier ones."""
    is_read = bytearray(len(makers))
    for needed in makers:
        for index in needed:
            is_read[index] = 1
    order: list[int] = []
    seen = bytearray(len(makers))
    # A negative number stands for a node whose makers have all been visited.
    pending = [index for index in range(len(makers)) if not is_read[index]]
    while pending:
        index = pending.pop()
        if index < 0:
            order.append(~index)
        elif not seen[index]:
            seen[index] = 1
            pending.append(~index)
            pending.extend(other for other in makers[index] if not seen[other])
    return order


def _by_priority(launches: list[Launch], makers: list[list[int]]) -> list[int]:
    """Always the kernel that comes first in the file of those that could run, but what reads only a shape before all else."""
    return sorted_by([launch.name not in _EARLY for launch in launches], makers)
