"""The topological order in which ONNX Runtime runs the kernels of a graph, by the session's setting."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from irscope.memory.ordering.sorting import sorted_by
from irscope.passes.ort.kernels import Launch, Launches

ExecutionOrder: TypeAlias = Literal["default", "priority_based"]
"""Values of SessionOptions.execution_order that the packages on PyPI support."""
EXECUTION_ORDERS: Final[tuple[ExecutionOrder, ...]] = ("default", "priority_based")
REFUSED_ORDER: Final = "memory_efficient"
"""The setting that only builds with training support; others fail to create a session."""
_EARLY: Final = frozenset({"Shape", "Size"})
"""Kernels that the priority-based order runs before all other ready ones, since they free their operands."""


def execution_order(found: Launches, setting: ExecutionOrder = "default") -> list[Launch]:
    """Kernels as a session runs them that keeps the graph as it is."""
    makers = makers_of(found)
    places = _by_priority(found.launches, makers) if setting == "priority_based" else _backwards(makers)
    return [found.launches[place] for place in places]


def makers_of(found: Launches) -> list[list[int]]:
    """For each kernel, its predecessors: the kernels that define its operands."""
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
    """Reverse depth-first search from the kernels without readers, later nodes of the file first."""
    is_read = bytearray(len(makers))
    for needed in makers:
        for index in needed:
            is_read[index] = 1
    order: list[int] = []
    seen = bytearray(len(makers))
    # A negative number stands for a node whose predecessors have all been visited.
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
    """Always the ready kernel that comes first in the file, but kernels that only read shapes before all others."""
    return sorted_by([launch.name not in _EARLY for launch in launches], makers)
