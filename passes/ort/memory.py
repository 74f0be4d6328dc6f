"""What ONNX Runtime's arena holds: before a session runs, and in its first and second run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.devices import find_device
from irscope.errors import UsageError
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Value, paused_gc
from irscope.ops.registry import runs_bodies
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.lives import inner_peaks
from irscope.passes.ort import OrtOptions, OrtPlan, plan_ort
from irscope.passes.ort.present import report
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report


@dataclass(frozen=True)
class OrtMemory(Analysis[OrtPlan]):
    """Predict the memory fields of ONNX Runtime's profile: bytes in use after every kernel, in the first and the second run."""

    name: ClassVar[str] = "ort-memory"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    order: Literal["ort", "file"] = "ort"
    """Order of kernels: ort as a session that loads the file runs them, file as the one that wrote it as optimized_model_filepath."""
    execution: Literal["default", "priority_based"] = "default"
    """How the session sorts kernels: its execution_order."""
    extension: Literal["next_power_of_two", "same_as_requested"] = "next_power_of_two"
    """How the arena grows: its arena_extend_strategy, kNextPowerOfTwo or kSameAsRequested."""
    pattern: bool = True
    """Whether the second run takes one block for all that it does not return: enable_mem_pattern."""
    reuse: bool = True
    """Whether results take over dead buffers of the same shape: enable_mem_reuse."""
    threads: int = 1
    """intra_op_num_threads; some kernels take working memory for each."""

    def compute(self, graph: Graph, ctx: PassContext) -> OrtPlan:
        if self.threads < 1:
            raise UsageError(f"a session cannot have {self.threads} threads", code="IRS321", hint="threads is at least 1")
        device = ctx.settings.device
        profile = find_device(device) if device else None
        in_file_order = self.order == "file" or ctx.program.traits.is_session
        options = OrtOptions(self.extension, self.pattern, self.reuse, in_file_order, self.execution, self.threads)
        with paused_gc():
            types = ctx.get(Shapes)
            plan = plan_ort(graph, types, options, bytes_inside(graph, ctx, types))
        plan.device = profile.name if profile is not None else "cpu"
        plan.level = ctx.program.metadata.get("ort_level", "")
        plan.on_cpu = profile is None or profile.kind == "cpu"
        return plan

    def report(self, result: OrtPlan, ctx: PassContext) -> Report:
        return report(self, result)


def bytes_inside(graph: Graph, ctx: PassContext, types: Inferred) -> dict[Node, Dim]:
    """Bytes that graphs inside nodes take."""
    if not any(map(runs_bodies, graph)):
        return {}
    unsized: list[Value] = []
    return inner_peaks(ctx.program, ctx.get(Alias()), types, unsized)
