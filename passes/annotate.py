"""Types written onto the graph, so that passes read inferred types from values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Graph
from irscope.ir.types import Type, tensor
from irscope.passes.shapes import Shapes
from irscope.passkit.base import PassContext, Transform


@dataclass(frozen=True)
class Annotate(Transform):
    """Write inferred types onto the values of the graph."""

    name: ClassVar[str] = "annotate"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = 0
        for value, inferred in ctx.get(Shapes).types.items():
            owner = value.graph
            type_ = _with_layout(inferred, value.type)
            if value.type is not type_ and owner is not None:
                owner.set_type(value, type_)
                changed += 1
        ctx.stat("types", changed)
        return changed > 0


def _with_layout(inferred: Type, stated: Type) -> Type:
    """The inferred type with the strides that the file states for a tensor of this shape: no rule infers them."""
    if stated.layout is None or inferred.layout is not None or stated.shape != inferred.shape:
        return inferred
    return tensor(inferred.dtype, inferred.shape, inferred.device, stated.layout)
