"""Types of every value, inferred forward from the inputs, with the reason for each thing that stays unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Value
from irscope.ir.printer import value_names
from irscope.ir.program import Program
from irscope.ir.types import OptionalType, ScalarType, SequenceType, TensorType, Type
from irscope.passes.inference.engine import Inference, Inferred, Problem
from irscope.passes.inference.remedies import fill_in
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table

_COLUMNS = ("name:value", "dtype", "shape")


@dataclass(frozen=True)
class Shapes(Analysis[Inferred]):
    """Infer the type of every value, with reasons for what stays unknown."""

    name: ClassVar[str] = "shapes"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    def compute(self, graph: Graph, ctx: PassContext) -> Inferred:
        total = len(graph)
        found = Inference(ctx.program).run(lambda body: ctx.each(body, "inferring types", total) if body is graph else body)
        fill_in(found, ctx.program)
        for problem in found.problems:
            ctx.sink.add(_diagnostic(problem), about=problem.text)
        for name, count in found.foreign.items():
            message = f"operator {name} has no record: its results have the types the file declares"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS205", message, count=count), about=name)
        return found

    def report(self, result: Inferred, ctx: PassContext) -> Report:
        program = ctx.program
        names = _Names(program)
        graph = program.graph
        values = [output for body in program.bodies() for node in body for output in node.outputs]
        unknown = sum(not is_known(result.type_of(value)) for value in values)
        symbols = sorted({name for value in graph.inputs for name in symbols_of(value.type)})
        tables = (
            _types_table("inputs", graph.inputs, result, names),
            _types_table("outputs", graph.outputs, result, names),
            _types_table("values", values, result, names),
            _unknowns(values, result, names),
            Table.of(
                [(str(one.left), str(one.right), one.node, one.why) for one in result.assumptions],
                columns=["left:formula", "right:formula", "node", "why:text"],
                title="assumptions",
            ),
        )
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"values": len(values), "known": len(values) - unknown, "unknown": unknown, "symbols": ", ".join(symbols) or "none"},
            tables=tuple(table for table in tables if len(table) or table.title in ("inputs", "outputs", "values")),
            coverage=Coverage(len(values) - unknown, len(values), tuple(result.foreign)),
        )


class _Names:
    """The model's own names; values without one are numbered as in the text form."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._numbered: Mapping[Value | None, str] | None = None

    def __getitem__(self, value: Value) -> str:
        if value.name is not None:
            return value.name
        if self._numbered is None:
            self._numbered = value_names([self._program.graph, *self._program.functions.values()])
        return self._numbered[value]


def is_known(type_: Type) -> bool:
    """Whether element type and every size are known, be it as a formula of named symbols."""
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.dtype is DType.UNKNOWN:
            return False
        return not any(isinstance(dim, SymDim) and dim.is_unknown for dim in type_.shape)
    if isinstance(type_, SequenceType | OptionalType):
        return is_known(type_.element)
    return isinstance(type_, ScalarType)


def symbols_of(type_: Type) -> set[str]:
    """Names of the symbols in a type's sizes."""
    if type_.shape is None:
        return set()
    return {name for dim in type_.shape if isinstance(dim, SymDim) for name in dim.symbol_names()}


def dtype_cell(type_: Type) -> str | None:
    """A type's element type as reports show it."""
    if type_.dtype is not DType.UNKNOWN:
        return type_.dtype.text
    return None


def shape_cell(type_: Type) -> object:
    """A type's sizes as reports show them: integers, formulas, None for what is unknown."""
    if isinstance(type_, TensorType):
        if type_.shape is None:
            return None
        return tuple(
            None if isinstance(dim, SymDim) and dim.is_unknown else str(dim) if isinstance(dim, SymDim) else dim for dim in type_.shape
        )
    if isinstance(type_, ScalarType):
        return ()
    if isinstance(type_, SequenceType):
        return {"seq": {"dtype": dtype_cell(type_.element), "shape": shape_cell(type_.element)}}
    if isinstance(type_, OptionalType):
        return {"optional": {"dtype": dtype_cell(type_.element), "shape": shape_cell(type_.element)}}
    return None


def _types_table(title: str, values: Sequence[Value], result: Inferred, names: _Names) -> Table:
    rows = []
    for value in values:
        type_ = result.type_of(value)
        rows.append((names[value], dtype_cell(type_), shape_cell(type_)))
    return Table.of(rows, columns=_COLUMNS, title=title)


def _unknowns(values: list[Value], result: Inferred, names: _Names) -> Table:
    """First causes: each with the number of values it makes unknown and the first of them."""
    causes: dict[tuple[str, str, str], list[str]] = {}
    for value in values:
        type_ = result.type_of(value)
        reason = result.rank_reasons.get(value)
        if reason is not None:
            causes.setdefault((reason.node, reason.text, reason.fix), []).append(names[value])
        elif isinstance(type_, TensorType):
            for name in sorted(symbols_of(type_)):
                why = result.reasons.get(name)
                if why is not None:
                    causes.setdefault((why.node, why.text, why.fix), []).append(names[value])
    rows = [(hit[0], len(hit), node, text, fix) for (node, text, fix), hit in causes.items()]
    return Table.of(rows, columns=["first_value:value", "values:count", "node", "reason:text", "fix:text"], title="unknown")


def _diagnostic(problem: Problem) -> Diagnostic:
    node = problem.node
    location = str(node.loc) if node.loc else ""
    if problem.fault == "model":
        return Diagnostic(Severity.ERROR, "IRS201", problem.text, node.name, location)
    return Diagnostic(Severity.ERROR, "IRS202", f"the rule of {node.op} failed: {problem.text}", node.name, location)
