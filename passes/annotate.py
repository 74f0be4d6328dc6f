"""Types written onto the graph, so that whoever reads a value's type sees the inferred one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Graph
from irscope.passes.shapes import Shapes
from irscope.passkit.base import PassContext, Transform


@dataclass(frozen=True)
class Annotate(Transform):
    """Write inferred types onto the values of the graph."""

    name: ClassVar[str] = "annotate"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = 0
        for value, type_ in ctx.get(Shapes).types.items():
            owner = value.graph
            if value.type is not type_ and owner is not None:
                owner.set_type(value, type_)
                changed += 1
        ctx.stat("types", changed)
        return changed > 0
