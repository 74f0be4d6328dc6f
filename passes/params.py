"""Parameters and buffers: what they are and what they weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Role, Value
from irscope.ir.payload import Blob, FileRegion
from irscope.ir.program import Program
from irscope.ir.types import TensorType
from irscope.passes.sizes import plain
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table
from irscope.report.units import Kind


@dataclass
class ParameterTotals:
    """Sums over distinct storages; names that share one are tied."""

    count: Dim
    bytes: Dim
    buffer_bytes: Dim
    constant_bytes: Dim
    tied_bytes_saved: Dim
    weights: list[Value]
    tied_to: dict[Value, Value]
    unsized: list[Value]


@dataclass(frozen=True)
class Params(Analysis[ParameterTotals]):
    """List parameters and buffers with their sizes."""

    name: ClassVar[str] = "params"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    def compute(self, graph: Graph, ctx: PassContext) -> ParameterTotals:
        return count_parameters(ctx.program)

    def report(self, result: ParameterTotals, ctx: PassContext) -> Report:
        rows = []
        for weight in result.weights:
            type_ = weight.type
            tied = result.tied_to.get(weight)
            if isinstance(type_, TensorType):
                rows.append((weight.name, weight.role.value, type_.dtype.text, type_.shape, plain(type_.nbytes), tied.name if tied else ""))
        sized = len(result.weights) - len(result.unsized)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "count": plain(result.count),
                "bytes": plain(result.bytes),
                "buffer_bytes": plain(result.buffer_bytes),
                "constant_bytes": plain(result.constant_bytes),
                "tied_bytes_saved": plain(result.tied_bytes_saved),
            },
            units={"bytes": Kind.BYTES, "tied_bytes_saved": Kind.BYTES},
            tables=(
                Table.of(rows, columns=["name:value", "role:text", "dtype", "shape", "bytes:bytes", "tied_to:text"], title="parameters"),
            ),
            coverage=Coverage(sized, len(result.weights), tuple(weight.name or "?" for weight in result.unsized)),
        )


def count_parameters(program: Program) -> ParameterTotals:
    """Totals of a program's weights, each storage once."""
    storages: dict[str, Value] = {}
    totals = ParameterTotals(0, 0, 0, 0, 0, [], {}, [])
    for weight in program.weights():
        totals.weights.append(weight)
        type_ = weight.type
        numel = type_.numel if isinstance(type_, TensorType) else None
        size = type_.nbytes if isinstance(type_, TensorType) else None
        if numel is None or size is None:
            totals.unsized.append(weight)
            continue
        storage = _storage(program, weight)
        if storage and storage in storages:
            totals.tied_to[weight] = storages[storage]
            totals.tied_bytes_saved += size
            continue
        if storage:
            storages[storage] = weight
        if weight.role is Role.PARAMETER:
            totals.count += numel
            totals.bytes += size
        elif weight.role is Role.BUFFER:
            totals.buffer_bytes += size
        else:
            totals.constant_bytes += size
    return totals


def _storage(program: Program, weight: Value) -> str:
    graph = weight.graph
    data = graph.data.get(weight) if graph is not None else None
    if isinstance(data, FileRegion):
        return data.storage or f"{data.path}:{data.offset}"
    return data.storage if isinstance(data, Blob) else ""
