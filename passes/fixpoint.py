"""Repeating transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.errors import PipelineError
from irscope.ir.graph import Graph
from irscope.passkit.base import Pass, PassContext, Transform
from irscope.passkit.pipeline import pipeline_text


@dataclass(frozen=True)
class Fixpoint(Transform):
    """Repeat transforms until none of them changes the graph."""

    name: ClassVar[str] = "fixpoint"

    body: tuple[Pass, ...]
    max: int = 10
    """Maximum number of rounds."""

    def __post_init__(self) -> None:
        wrong = [one.name for one in self.body if not isinstance(one, Transform)]
        if wrong:
            raise PipelineError(f"fixpoint repeats transforms, and {wrong[0]!r} is an analysis", code="IRS604")

    @property
    def text(self) -> str:
        return f"{super().text}({pipeline_text(self.body)})"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = False
        for _ in range(self.max):
            ctx.stat("rounds")
            if not any([ctx.apply(one) for one in self.body if isinstance(one, Transform)]):
                break
            changed = True
        return changed
