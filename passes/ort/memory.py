"""What ONNX Runtime's arena holds: before a session runs, and in its first and second run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from irscope.amounts import Bytes
from irscope.devices import find_device
from irscope.devices.catalogue import target_of
from irscope.devices.releases import ort_release
from irscope.errors import UsageError
from irscope.ir.bind import type_binder
from irscope.ir.dims import Dim, bind
from irscope.ir.graph import Facet, Graph, Node, Value, paused_gc
from irscope.ir.types import Type
from irscope.memory.arena import FIRST_REGION, MOST_DEAD
from irscope.ops.registry import has_bodies
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.lives import inner_peaks
from irscope.passes.ort import OrtFigures, OrtOptions, OrtPlan, plan_ort
from irscope.passes.ort.cuda import CudaArena, CudaOptions, Laid, lay_out, plan_cuda
from irscope.passes.ort.cuda_session import CudaSession
from irscope.passes.ort.known import known_types
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
    sizes: Literal["inputs", "session"] = "inputs"
    """Where bound sizes come from: inputs as the session learns them when it runs, so that it plans without them, session as it knows
    them when it is made (add_free_dimension_override)."""
    threads: int = 1
    """intra_op_num_threads; some kernels take working memory for each."""

    limit: Bytes = 0
    """gpu_mem_limit of the CUDA provider: the most that its arena may take; 0 for what the device has."""
    first_chunk: Bytes = FIRST_REGION
    """initial_chunk_size_bytes of the arena on the GPU."""
    dead: Bytes = MOST_DEAD
    """max_dead_bytes_per_chunk of that arena."""
    weights: Literal["arena", "outside"] = "arena"
    """Where weights lie on the GPU; outside as with session.use_device_allocator_for_initializers."""
    shrink: bool = False
    """Whether each run gives free regions back: memory.enable_memory_arena_shrinkage for the GPU."""

    def compute(self, graph: Graph, ctx: PassContext) -> OrtPlan:
        if self.threads < 1:
            raise UsageError(f"a session cannot have {self.threads} threads", code="IRS321", hint="threads is at least 1")
        device = ctx.settings.device
        profile = find_device(device) if device else None
        options = self.options(ctx)
        on_cpu = profile is None or profile.kind == "cpu"
        with paused_gc():
            types = ctx.get(Shapes)
            inside = bytes_inside(graph, ctx, types)
            plan: OrtPlan | None = None
            if profile is not None and profile.capability is not None:
                laid = ctx.get(_OnGpu(self.order, self.execution, self.reuse, self.sizes))
                if laid is not None:
                    plan = plan_cuda(graph, types, laid, options, self.on_gpu, target_of(ctx.settings), inside)
                on_cpu = plan is None
            plan = plan or plan_ort(graph, types, known_types(ctx.program, sizes_come_with_inputs=self.sizes == "inputs"), options, inside)
            plan.stays = on_cpu and profile is not None and profile.capability is not None
        plan.device = profile.name if profile is not None else "cpu"
        plan.release = ort_release(ctx.settings.ort)
        plan.level = ctx.program.metadata.get("ort_level", "")
        plan.learns_sizes = self.sizes == "inputs" and any(not ctx.program.declared.get(one, one.type).is_static for one in graph.inputs)
        plan.on_cpu = on_cpu
        return plan

    def options(self, ctx: PassContext) -> OrtOptions:
        """Return the options of the session."""
        in_file_order = self.order == "file" or ctx.program.traits.is_session
        return OrtOptions(self.extension, self.pattern, self.reuse, in_file_order, self.execution, self.threads, ctx.program.path)

    @property
    def on_gpu(self) -> CudaOptions:
        """Return the options of its provider for GPUs."""
        return CudaOptions(self.limit or None, self.first_chunk, self.dead, self.weights == "outside", self.shrink)

    def report(self, result: OrtPlan, ctx: PassContext) -> Report:
        return report(self, result)


@dataclass(frozen=True)
class _OnGpu(Analysis["Laid | None"]):
    """Place kernels on a GPU and assign their buffers, which no option of the arena changes."""

    name: ClassVar[str] = "ort-on-gpu"
    reads: ClassVar[tuple[Facet, ...]] = OrtMemory.reads

    order: Literal["ort", "file"] = "ort"
    execution: Literal["default", "priority_based"] = "default"
    reuse: bool = True
    sizes: Literal["inputs", "session"] = "inputs"

    def compute(self, graph: Graph, ctx: PassContext) -> Laid | None:
        types = ctx.get(Shapes)
        known = known_types(ctx.program, sizes_come_with_inputs=self.sizes == "inputs", types=types)
        return lay_out(graph, types, known, OrtMemory(order=self.order, execution=self.execution, reuse=self.reuse).options(ctx))


def session_at(ctx: PassContext, wanted: OrtMemory, sizes: Mapping[str, int]) -> tuple[CudaSession, OrtFigures] | None:
    """Return a session on a GPU at sizes of symbols, without an analysis of its own: order, places and buffers are the same for all of
    them. None where nothing of it runs there, or a size is unknown whatever is bound."""
    plan = ctx.get(wanted)
    laid = ctx.get(_OnGpu(wanted.order, wanted.execution, wanted.reuse, wanted.sizes))
    if laid is None or plan.cuda is None:
        return None
    numbers = {size: bind(size, sizes) for size in {*plan.found.sizes, *plan.inside.values()} if size is not None}
    given = [None if size is None else numbers[size] for size in plan.found.sizes]
    arena = CudaArena(ctx.program.graph, laid, wanted.options(ctx), wanted.on_gpu, target_of(ctx.settings))
    found = arena.at(_AtSizes(ctx.get(Shapes), sizes), given, {node: numbers[size] for node, size in plan.inside.items()})
    if found is None:
        return None
    session = replace(plan.cuda)
    found.fill_in(session)
    return session, found.figures


class _AtSizes(Inferred):
    """Types with numbers in the place of symbols."""

    def __init__(self, types: Inferred, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._open = types
        self._bound = type_binder(sizes)

    def type_of(self, value: Value | None) -> Type:
        return self._bound(self._open.type_of(value))


def bytes_inside(graph: Graph, ctx: PassContext, types: Inferred) -> dict[Node, Dim]:
    """Return the bytes that graphs inside nodes take."""
    if not has_bodies(graph):
        return {}
    unsized: list[Value] = []
    return inner_peaks(ctx.program, ctx.get(Alias()), types, unsized)
