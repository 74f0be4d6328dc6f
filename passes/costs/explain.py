"""Where the cost of one node comes from: rule, formula, values of its symbols, and the source that made the node."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterator

from irscope.errors import UsageError
from irscope.ir.graph import Node
from irscope.ir.printer import value_names
from irscope.ir.program import Program
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op, runs_bodies
from irscope.ops.spec import Absent, OpCall, OpSpec
from irscope.passes.costs.count import Costs
from irscope.passes.costs.entries import MEASURES
from irscope.passes.costs.formula import Formulas, formulas_of
from irscope.passes.costs.tables import cell, share
from irscope.passes.inference.engine import Inferred
from irscope.passes.sizes import CONVENTION, plain
from irscope.report.report import Coverage, Report
from irscope.report.table import Table
from irscope.report.units import Kind

_BYTES = ("read", "written")


def explanation(name: str, costs: Costs, types: Inferred, program: Program, options: str) -> Report:
    """All nodes of that name, or the results they make; UsageError where there is none."""
    nodes = _named(name, program)
    if not nodes:
        near = difflib.get_close_matches(name, [node.name for node in _all_nodes(program)], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "the table of nodes of the flops pass lists the names"
        raise UsageError(f"there is no node {name!r}", code="IRS402", hint=hint)
    tables = [table for node in nodes for table in _tables(node, costs, types)]
    flops = [costs.by_node[node].flops for node in nodes if node in costs.by_node]
    return Report(
        pass_name="flops",
        options=options,
        summary={
            "flops": plain(sum(flops)) if len(flops) == len(nodes) else None,
            "of_total_flops": cell(costs.tally.value("flops"), costs.tally.limits("flops")),
        },
        units={"flops": Kind.FLOPS},
        tables=tuple(tables),
        coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
        notes=(CONVENTION,),
    )


def _all_nodes(program: Program) -> Iterator[Node]:
    for body in program.bodies():
        yield from body


def _named(name: str, program: Program) -> list[Node]:
    wanted = name.removeprefix("%")
    found = [node for node in _all_nodes(program) if any(output.name == wanted for output in node.outputs)]
    if found:
        return found
    names = value_names([program.graph, *program.functions.values()])
    return [node for node in _all_nodes(program) if any(names[output].removeprefix("%") == wanted for output in node.outputs)]


def _tables(node: Node, costs: Costs, types: Inferred) -> Iterator[Table]:
    spec = find_op(node.op)
    yield Table.of(list(_facts(node, spec, costs)), columns=["what:text", "answer:text"], title=f"node {node.name}")
    yield Table.of(list(_operands(node, spec, types)), columns=["operand:text", "value:value", "type:text"], title="operands and results")
    cost = costs.by_node.get(node)
    if cost is None:
        return
    found = _formulas(node, spec, types, cost)
    rows = [
        (measure, found.by_measure.get(measure, "") if found is not None else "", plain(getattr(cost, measure)), _unit(measure))
        for measure in MEASURES
        if getattr(cost, measure) not in (0, None)
    ]
    yield Table.of(rows, columns=["number:text", "formula:formula", "value:number", "unit:text"], title="cost of one run")
    if found is not None and found.sizes:
        sizes = [(symbol, plain(size)) for symbol, size in sorted(found.sizes.items())]
        yield Table.of(sizes, columns=["symbol:text", "stands_for:number"], title="values of the symbols")


def _unit(measure: str) -> str:
    return "bytes" if measure in _BYTES else "multiply-adds" if measure == "macs" else "FLOPs"


def _facts(node: Node, spec: OpSpec | None, costs: Costs) -> Iterator[tuple[str, str]]:
    yield "operator", node.op
    if spec is not None:
        yield "what it does", spec.summary
    if node.source:
        yield "in the file", node.source
    yield "rule", _rule(node, spec)
    attrs = ", ".join(f"{key}={value}" for key, value in node.attrs.items())
    if attrs:
        yield "attributes", attrs
    certainty = costs.certainty.get(node)
    yield "known", certainty.value if certainty is not None else "not counted: it is in a branch that does not run"
    if node in costs.reasons:
        yield "because", costs.reasons[node]
    entry = next((entry for entry in costs.entries if entry.node is node), None)
    if entry is not None:
        if entry.runs != 1:
            yield "runs", str(entry.runs)
        part = share(entry.cost.flops * entry.runs, costs.tally.value("flops"), entry.limits("flops"))
        if part is not None:
            yield "share of all known FLOPs" if not costs.tally.is_exact else "share of all FLOPs", f"{part:.2%}"
    yield "module", node.scope.path or "(model)"
    yield from _places(node)


def _places(node: Node) -> Iterator[tuple[str, str]]:
    loc = node.loc
    first = True
    while loc is not None:
        place = f"{loc.file}:{loc.line}" if loc.line else loc.file
        statement = f"  {loc.statement}" if loc.statement else ""
        yield "source" if first else "called from", f"{place}{statement}"
        first, loc = False, loc.caller


def _rule(node: Node, spec: OpSpec | None) -> str:
    if runs_bodies(node):
        return "the sum of what its regions cost, as often as they run"
    if spec is None:
        return f"irscope has no record of {node.op}"
    if isinstance(spec.cost, Absent):
        return "none: its cost is unknown"
    rule = inspect.unwrap(spec.cost)
    name = getattr(rule, "__qualname__", "").partition(".<locals>")[0].removeprefix("<lambda>")
    # A rule that a function made is described where it was made.
    maker = getattr(sys.modules.get(rule.__module__), name, rule) if name else rule
    text = " ".join((inspect.getdoc(rule) or inspect.getdoc(maker) or "").split())
    place = f"{rule.__module__.removeprefix('irscope.')}{'.' if name else ''}{name}"
    return f"{text} ({place})" if text else place


def _operands(node: Node, spec: OpSpec | None, types: Inferred) -> Iterator[tuple[str, str, str]]:
    params = spec.schema.operands if spec is not None else ()
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        param = params[min(index, len(params) - 1)].name if params else str(index)
        yield param, value.name or "", f"{types.type_of(value)} {value.role.value}"
    for value in node.outputs:
        yield "result", value.name or "", str(types.type_of(value))


def _formulas(node: Node, spec: OpSpec | None, types: Inferred, cost: Cost) -> Formulas | None:
    if spec is None or node.regions or isinstance(spec.cost, Absent):
        return None
    operands = [None if value is None else types.type_of(value) for value in node.inputs]
    known = [None if value is None else types.values.get(value) for value in node.inputs]
    results = [types.type_of(value) for value in node.outputs]
    return formulas_of(spec, OpCall(spec, operands, node.attrs, known, results), cost)
