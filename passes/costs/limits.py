"""Bounds of inexact costs, the arithmetic class of a node, and sums over the iterations of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irscope.ir.dims import Dim, SymDim, bounds
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ir.types import TensorType, Type
from irscope.ops.cost import Cost
from irscope.ops.spec import Family, OpSpec
from irscope.passes.costs.entries import MEASURES, Arithmetic, Bounds, Certainty, Entry


def arithmetic_of(spec: OpSpec | None, operands: Sequence[Type | None], results: Sequence[Type]) -> Arithmetic:
    """What a node computes with: floats wherever an operand or result is one."""
    if spec is None:
        return Arithmetic.UNKNOWN
    if spec.family is Family.QUANTIZATION:
        return Arithmetic.QUANTISED
    dtypes = [type_.dtype for type_ in (*operands, *results) if isinstance(type_, TensorType)]
    if any(dtype.is_float or dtype.kind.value == "complex" for dtype in dtypes) or not dtypes:
        return Arithmetic.FLOAT
    if DType.UNKNOWN in dtypes:
        return Arithmetic.UNKNOWN
    small = spec.family in (Family.CONTRACTION, Family.CONVOLUTION)
    return Arithmetic.QUANTISED if small and any((dtype.bits or 64) <= 8 for dtype in dtypes) else Arithmetic.INTEGER


ANYTHING: Bounds = dict.fromkeys(MEASURES, (0, None))
"""The limits of a node of which nothing is known."""


def limits_of(value: Dim | None) -> tuple[Dim, Dim | None]:
    """The least and the most a number can be; what depends on data is limited by the bounds of its sizes."""
    if value is None:
        return 0, None
    if isinstance(value, SymDim) and value.is_unknown:
        low, high = bounds(value)
        return max(low or 0, 0), high
    return value, value


def shown_cost(limits: Bounds) -> Cost:
    """The upper limits where there are some, else what is there at least."""
    values = {measure: low if high is None else high for measure, (low, high) in limits.items() if measure != "flops"}
    for measure in ("read", "written"):
        if limits[measure][1] is None:
            values[measure] = 0
    return Cost(**values)


def within(node: Node, limits: Bounds, arithmetic: Arithmetic, reason: str) -> Entry:
    """A node whose cost lies between two limits."""
    if all(low is high or low == high for low, high in limits.values()):
        is_free = all(low == 0 for low, _ in limits.values())
        return Entry(node, Certainty.FREE if is_free else Certainty.EXACT, shown_cost(limits), arithmetic)
    certainty = Certainty.UNKNOWN if limits["flops"][1] is None else Certainty.BOUNDED
    return Entry(node, certainty, shown_cost(limits), arithmetic, 1, limits, reason)


def joint(entries: Iterable[Entry]) -> Arithmetic:
    """What nodes of which some run compute with."""
    kinds = {entry.arithmetic for entry in entries if entry.cost.flops != 0 or entry.bounds is not None}
    return kinds.pop() if len(kinds) == 1 else Arithmetic.UNKNOWN if kinds else Arithmetic.FLOAT


def summed(steps: Sequence[list[Entry]]) -> list[Entry]:
    """The entries of all steps of a loop, those of one node with one cost as one."""
    merged: dict[tuple[Node, Cost], Entry] = {}
    for step in steps:
        for entry in step:
            key = (entry.node, entry.cost)
            before = merged.get(key)
            if before is None:
                merged[key] = entry
            else:
                merged[key] = Entry(
                    entry.node, entry.certainty, entry.cost, entry.arithmetic, before.runs + entry.runs, entry.bounds, entry.reason
                )
    return list(merged.values())
