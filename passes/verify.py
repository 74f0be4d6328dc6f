"""The verifier as a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.diagnostics import Diagnostic
from irscope.ir.graph import Graph
from irscope.ir.verify import verify
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report


@dataclass(frozen=True)
class Verify(Analysis[tuple[Diagnostic, ...]]):
    """Check the graph against the rules of the IR."""

    name: ClassVar[str] = "verify"
    known_of_weights: ClassVar[tuple[str, ...]] = ("problems", "problem")

    def compute(self, graph: Graph, ctx: PassContext) -> tuple[Diagnostic, ...]:
        return tuple(verify(ctx.program))

    def report(self, result: tuple[Diagnostic, ...], ctx: PassContext) -> Report:
        return Report(self.name, self.text, {"nodes": ctx.program.node_count, "problems": len(result)}, diagnostics=result)
