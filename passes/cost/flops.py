"""Arithmetic and traffic of every node by its operator's cost rule. A multiply-add is 2 FLOPs."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, bind, exact_div, product, symbol
from irscope.ir.graph import Facet, Graph, Node
from irscope.ir.places import path_key
from irscope.ir.printer import value_names
from irscope.ir.program import Program
from irscope.ir.types import Type, tensor
from irscope.ops.attention import hidden_pairs
from irscope.ops.cost import FLOP_CLASSES, Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import find_op, plays, runs_bodies
from irscope.ops.spec import Absent, OpCall, OpSpec
from irscope.passes.cost.count import MEASURES, Arithmetic, Costs, NodeCosts, Sum, Tally
from irscope.passes.cost.tables import cell, certainties, modules_table, nodes_table, operators_table, share, top_table, unknown_table
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.patterns.walk import Attention, attentions, is_product
from irscope.passes.sizes import CONVENTION, at_least, dim_cell
from irscope.passkit.base import Analysis, PassContext
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind

_TOP = 10
_CAUSAL = "causal: masked are products of queries with later keys, which a kernel that knows the mask leaves out; needed is the rest"
_CLASSES = "classes: matmul (with convolutions), elementwise, transcendental (one for each exp, log, sqrt, ...), reduction, move (always 0)"


@dataclass(frozen=True)
class Flops(Analysis[Costs]):
    """Count the arithmetic and the bytes of every node."""

    name: ClassVar[str] = "flops"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 0
    """Rows of the table of nodes, largest first, and no other tables; 0 for everything in program order."""
    explain: str = ""
    """A node: its rule, formula, sizes and place instead of the tables."""

    def compute(self, graph: Graph, ctx: PassContext) -> Costs:
        return ctx.get(NodeCosts())

    def report(self, result: Costs, ctx: PassContext) -> Report:
        if self.explain:
            return explanation(self.explain, result, ctx.get(Shapes), ctx.program, self.text)
        bodies = (ctx.program.graph, *ctx.program.functions.values())
        masked = needless((node for body in bodies for node in body.walk()), result, ctx.get(Shapes))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=_flops_summary(result, masked),
            units={key: Kind.FLOPS for key in ("by_class", "by_arithmetic", "causal")} | {"macs": Kind.COUNT, "nodes": Kind.COUNT},
            tables=(
                *([unknown_table(result)] if result.unknown else []),
                *([operators_table(result), modules_table(result), top_table(result, _TOP)] if not self.top else []),
                nodes_table(result, masked, self.top),
            ),
            coverage=Coverage(result.counted - result.missing, result.counted, tuple(sorted(result.unknown))),
            notes=(CONVENTION, _CLASSES, *([_CAUSAL] if masked else [])),
            pictures=lambda: _bars(result),
        )


def _bars(result: Costs) -> list[Panel]:
    """Arithmetic by operator, and by the modules that the model consists of."""
    operators, modules = operators_table(result), modules_table(result)
    depths = [int(str(depth)) for depth in modules.cells("depth")]
    # What holds all others, level by level, is not part of the picture.
    level = next((depth for depth in range(max(depths, default=0) + 1) if depths.count(depth) > 1), 0)
    outer = [place for place, depth in enumerate(depths) if depth == level]
    cells, names = modules.cells("flops"), [str(name) for name in modules.cells("module")]
    column = Column("flops", Kind.FLOPS)
    found = [
        largest_bars("FLOPs by operator", [str(name) for name in operators.cells("operator")], [(column, operators.cells("flops"))]),
        largest_bars("FLOPs by module", [names[place] for place in outer], [(column, [cells[place] for place in outer])]),
    ]
    return [panel for panel in found if panel is not None and len(panel.names) > 1]


def _by_arithmetic(tally: Tally) -> dict[str, object]:
    """Return FLOPs by what computes them. What may be of any kind is among the limits of each, and a part of its own: the parts add up."""
    parts = {kind.value: cell(tally.flops_in(kind), tally.flops_limits(kind)) for kind in Arithmetic if kind is not Arithmetic.UNKNOWN}
    unknown = tally.flops_in(Arithmetic.UNKNOWN)
    return parts if unknown == 0 else {**parts, Arithmetic.UNKNOWN.value: unknown}


def _flops_summary(result: Costs, by_node: Mapping[Node, Dim]) -> dict[str, object]:
    tally = result.tally
    total = Sum()
    for entry in result.entries:
        if entry.node in by_node:
            total.add(by_node[entry.node], entry.runs)
    masked = total.value
    # What is masked depends on products and their masks; an unknown operator may contain further products.
    products = tally.limits("matmul")
    all_masked = products[0] == products[1]

    def shown(measure: str) -> object:
        return cell(tally.value(measure), tally.limits(measure))

    def needed(measure: str) -> object:
        low, high = tally.limits(measure)
        # An unknown operator may compute a mask for any of the products.
        least = low - masked if all_masked else low - products[0]
        return cell(tally.value(measure) - masked, (least, None if high is None else high - masked))

    return {
        "nodes": certainties(result.certainty.values()),
        "total_flops": shown("flops"),
        "macs": shown("macs"),
        "by_class": {name: shown(name) for name in FLOP_CLASSES},
        "by_arithmetic": _by_arithmetic(tally),
        "causal": {
            "masked": at_least(masked, all_masked),
            "matmul_counted": shown("matmul"),
            "matmul_needed": needed("matmul"),
        },
        "needed_flops": needed("flops"),
        "read_bytes": shown("read"),
        "written_bytes": shown("written"),
    }


# Products that a causal mask makes redundant where the mask is a tensor: pairs whose key is later than the query.


def needless(nodes: Iterable[Node], costs: Costs, types: Inferred) -> dict[Node, Dim]:
    """Return the FLOPs of matrix products on pairs that a mask throws away, by node.

    Those that operators tell of themselves (`Cost.masked`), and those of attention whose mask is made by comparing positions or
    cutting off a triangle. Only squares are judged: with more keys than queries a mask may begin anywhere.
    """
    found = {node: cost.masked for node, cost in costs.by_node.items() if cost.masked != 0 and not node.regions}
    for attention in attentions(nodes):
        if not attention.causal:
            continue
        for node in _products(attention):
            cost = costs.by_node.get(node)
            if cost is None or cost.masked != 0 or cost.matmul == 0:
                continue
            share = _flops_on_later_keys(node, attention, cost.matmul, types)
            if share is not None:
                found[node] = share
    return found


def _products(attention: Attention) -> list[Node]:
    """Return the nodes whose work is a number of FLOPs for each pair."""
    return [node for node in attention.nodes if attention.is_fused or is_product(node)]


def _flops_on_later_keys(node: Node, attention: Attention, flops: Dim, types: Inferred) -> Dim | None:
    """Return the part of a product's FLOPs on later keys; None where queries and keys are not known to be equally many."""
    pairs = _pairs(node, attention, types)
    if pairs is None or pairs[-1] != pairs[-2]:
        return None
    each = exact_div(flops, product(pairs) * 2)
    return None if each is None else each * product(pairs[:-2]) * hidden_pairs(pairs[-2], pairs[-1])


def _pairs(node: Node, attention: Attention, types: Inferred) -> tuple[Dim, ...] | None:
    """Return the sizes of the scores: whatever is in front, queries, keys."""
    if attention.is_fused:
        query, key = types.type_of(attention.query).shape, types.type_of(attention.key).shape
        if query is None or key is None or len(query) < 3 or len(key) < 3:
            return None
        return (*query[:-2], query[-2], key[-2])
    softmax = next(node for node in reversed(attention.nodes) if plays(node, OpRole.SOFTMAX, OpRole.NAMED_OPERATION, OpRole.DIVIDE))
    return types.type_of(softmax.outputs[0]).shape


# Where the cost of one node comes from: rule, formula, values of its symbols, and the source that made the node.

_BYTES = ("read", "written")


def explanation(name: str, costs: Costs, types: Inferred, program: Program, options: str) -> Report:
    """Return all nodes of that name, or the results they make; UsageError where there is none."""
    nodes = _nodes_named(name, program)
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
            "flops": dim_cell(sum(flops)) if len(flops) == len(nodes) else None,
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


def _nodes_named(name: str, program: Program) -> list[Node]:
    wanted = name.removeprefix("%")
    nodes = [node for node in _all_nodes(program) if any(output.name == wanted for output in node.outputs)]
    if nodes:
        return nodes
    names = value_names([program.graph, *program.functions.values()])
    nodes = [node for node in _all_nodes(program) if any(names[output].removeprefix("%") == wanted for output in node.outputs)]
    key = path_key(wanted)
    return nodes or [node for node in _all_nodes(program) if key in map(path_key, (node.name, *(one.name or "" for one in node.outputs)))]


def _tables(node: Node, costs: Costs, types: Inferred) -> Iterator[Table]:
    spec = find_op(node.op)
    yield Table.of(list(_facts(node, spec, costs)), columns=["what:text", "answer:text"], title=f"node {node.name}")
    yield Table.of(
        list(_operand_rows(node, spec, types)), columns=["operand:text", "value:value", "type:text"], title="operands and results"
    )
    cost = costs.by_node.get(node)
    if cost is None:
        return
    found = _formulas(node, spec, types, cost)
    rows = [
        (measure, found.by_measure.get(measure, "") if found is not None else "", dim_cell(getattr(cost, measure)), _unit(measure))
        for measure in MEASURES
        if getattr(cost, measure) not in (0, None)
    ]
    yield Table.of(rows, columns=["number:text", "formula:formula", "value:number", "unit:text"], title="cost of one run")
    if found is not None and found.sizes:
        sizes = [(symbol, dim_cell(size)) for symbol, size in sorted(found.sizes.items())]
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
    yield from _source_rows(node)


def _source_rows(node: Node) -> Iterator[tuple[str, str]]:
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


def _operand_rows(node: Node, spec: OpSpec | None, types: Inferred) -> Iterator[tuple[str, str, str]]:
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


# The formula of a cost rule, found by giving the rule symbols in place of sizes.


@immutable(slots=False)
class Formulas:
    """A rule in the sizes of its operands and results."""

    by_measure: dict[str, str]
    sizes: dict[str, Dim]
    """Meaning of each symbol in this node."""


def formulas_of(spec: OpSpec, call: OpCall, cost: Cost) -> Formulas | None:
    """Return the rule as formulas that give the very cost of this call; None where the rule cannot take symbols.

    A rule may ask whether a size is 1 or larger than another, so sizes of 1, then all but the sizes that several
    axes share, stay numbers where formulas in all sizes do not give the cost.
    """
    for keep_ones in (False, True):
        for tie in (False, True):
            formulas = _attempt(spec, call, cost, keep_ones, tie)
            if formulas is not None:
                return formulas
    return None


def _attempt(spec: OpSpec, call: OpCall, cost: Cost, keep_ones: bool, tie: bool) -> Formulas | None:
    values: dict[str, Dim] = {}
    by_size: dict[Dim, SymDim] = {}

    def symbolic(type_: Type | None, name: str) -> Type | None:
        if type_ is None or type_.shape is None:
            return type_
        shape: list[Dim] = []
        for axis, size in enumerate(type_.shape):
            if (keep_ones and size == 1) or size == 0:
                shape.append(size)
            elif tie and size in by_size:
                shape.append(by_size[size])
            else:
                made = symbol(f"{name}{axis}")
                assert isinstance(made, SymDim)
                values[str(made)] = size
                by_size.setdefault(size, made)
                shape.append(made)
        return tensor(type_.dtype, shape, type_.device)

    operands = [symbolic(type_, name) for type_, name in zip(call.types, _operand_names(spec, len(call.types)), strict=True)]
    results = [symbolic(type_, name) for type_, name in zip(call.results, _result_names(spec, len(call.results)), strict=True)]
    found = spec.cost_of(OpCall(spec, operands, call.attrs, call.values, [type_ for type_ in results if type_ is not None]))
    if found is None:
        return None
    by_measure: dict[str, str] = {}
    used: set[str] = set()
    for measure in MEASURES:
        formula = getattr(found, measure)
        exact = getattr(cost, measure)
        if formula is None or exact is None or _bound(formula, values) != exact:
            return None
        if formula != 0:
            by_measure[measure] = str(formula)
            used.update(formula.symbol_names() if isinstance(formula, SymDim) else ())
    return Formulas(by_measure, {name: size for name, size in values.items() if name in used})


def _bound(formula: Dim, values: dict[str, Dim]) -> Dim | None:
    try:
        return bind(formula, values)
    except UsageError:  # a size of the model may be 0, for which the formula is not meant
        return None


def _operand_names(spec: OpSpec, count: int) -> list[str]:
    """Return the names of operands; those of a list are numbered."""
    params = list(spec.schema.operands)
    return [params[i].name if i < len(params) - (bool(params) and params[-1].variadic) else f"{params[-1].name}_{i}_" for i in range(count)]


def _result_names(spec: OpSpec, count: int) -> Sequence[str]:
    taken = {param.name for param in spec.schema.operands}
    first = "y" if "y" not in taken else "result"
    return [first if i == 0 else f"{first}_{i}_" for i in range(count)]
