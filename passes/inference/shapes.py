"""Types of every value, inferred forward from the inputs, with the reason for each thing that stays unknown."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.bind import bind_option, bindable_elements, input_option, typed
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Role, Value
from irscope.ir.printer import value_names
from irscope.ir.program import Program
from irscope.ir.types import OptionalType, ScalarType, SequenceType, TensorType, Type
from irscope.ops.reals import Real
from irscope.ops.spec import Known
from irscope.ops.values import is_symbolic
from irscope.passes.inference.engine import Inference, Inferred, Problem, Reason
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


# ----------------------------------------------------------------------------------------------------
# The options of the command line that make something unknown known: use-def chains are followed back to the model's inputs.

_NUMBERS = (1, 0, 2, 8)
"""What is tried for the elements of inputs, of which nothing says what they stand for."""
SHAPES_HINT: Final = f"{typed('irscope run --passes shapes MODEL')} tells what their sizes depend on"


class DependsOnData(Exception):
    """Something that only running the model tells."""


def fill_in(found: Inferred, program: Program) -> None:
    """Write into every reason what makes it known; it stays empty where nothing on the command line does."""
    remedies = _Remedies(found, program)
    for reason in {id(one): one for one in (*found.reasons.values(), *found.rank_reasons.values())}.values():
        reason.fix = remedies.of(reason)


def size_hint(found: Inferred, values: Iterable[Value]) -> str:
    """What makes the sizes of values known, as a hint; the command that tells more where nothing on the command line does."""
    reasons: list[Reason] = []
    for value in values:
        type_ = found.type_of(value)
        if value in found.rank_reasons:
            reasons.append(found.rank_reasons[value])
        elif isinstance(type_, TensorType):
            names = {name for size in type_.shape or () if isinstance(size, SymDim) for name in size.names}
            reasons.extend(found.reasons[name] for name in sorted(names) if name in found.reasons)
    fixes = list(dict.fromkeys(reason.fix for reason in reasons if reason.fix))
    if fixes:
        return f"{typed(fixes[0])} gives {'it a size' if len(fixes) == 1 else 'the first of them a size'}"
    return SHAPES_HINT


def _unknown(found: Inferred, program: Program) -> int:
    """How many sizes of results are not known, one for a result whose rank is not."""
    types = [found.type_of(output) for body in program.bodies() for node in body for output in node.outputs]
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
    return sum(1 if shape is None else sum(isinstance(size, SymDim) and size.is_unknown for size in shape) for shape in shapes)


class _Remedies:
    """Searches of one model, each distinct one made once."""

    def __init__(self, found: Inferred, program: Program) -> None:
        self._found = found
        self._program = program
        self._elements = bindable_elements(program)
        self._element_names = {str(element) for found_ in self._elements.values() for element in found_}
        self._inputs = frozenset(program.graph.inputs)
        self._made: dict[tuple[tuple[Value, ...], tuple[Value, ...]], str] = {}
        self._tried: dict[frozenset[str], int | None] = {}

    def of(self, reason: Reason) -> str:
        key = reason.values, reason.sizes
        if key not in self._made:
            self._made[key] = self._search(reason) if reason.values or reason.sizes else ""
        return self._made[key]

    def _search(self, reason: Reason) -> str:
        """Breadth first over what the reason depends on: values of some tensors, sizes of others."""
        symbols: dict[str, SymDim] = {}
        untyped: dict[Value, None] = {}
        work = deque([*((value, True) for value in reason.values), *((value, False) for value in reason.sizes)])
        seen = set(work)
        try:
            while work:
                value, wants_values = work.popleft()
                for item in self._in_values(value, symbols) if wants_values else self._in_sizes(value, symbols, untyped):
                    if item not in seen:
                        seen.add(item)
                        work.append(item)
        except DependsOnData:
            return ""
        elements = frozenset(name for name in symbols if name in self._element_names and name not in self._program.symbols)
        number = self._number_for(elements)
        if number is None:
            return ""
        options = [*(input_option(value) for value in untyped), bind_option(symbols.values(), dict.fromkeys(elements, number))]
        return " ".join(filter(None, options))

    def _number_for(self, elements: frozenset[str]) -> int | None:
        """A number for elements of inputs with which more is known: an axis, a length and a flag may not all be the same."""
        if not elements:
            return 0
        if elements not in self._tried:
            self._tried[elements] = next((number for number in _NUMBERS if self._helps(elements, number)), None)
        return self._tried[elements]

    def _helps(self, elements: frozenset[str], number: int) -> bool:
        given = self._program.given
        self._program.given = {**given, **dict.fromkeys(elements, number)}
        try:
            other = Inference(self._program).run()
        finally:
            self._program.given = given
        return len(other.problems) <= len(self._found.problems) and _unknown(other, self._program) < _unknown(self._found, self._program)

    def _in_sizes(self, value: Value, symbols: dict[str, SymDim], untyped: dict[Value, None]) -> Iterator[tuple[Value, bool]]:
        """What the sizes of a value depend on; symbols that its small known values are made of count with them."""
        type_ = self._found.type_of(value)
        if type_.shape is not None:
            yield from self._in_symbols((size for size in type_.shape if isinstance(size, SymDim)), symbols)
        elif value in self._inputs and value.name is not None:
            untyped[value] = None
        elif (reason := self._found.rank_reasons.get(value)) is not None:
            yield from self._in_reason(reason)
        known = self._found.values.get(value)
        if known is not None and is_symbolic(known):
            yield from self._in_symbols(_formulas(known), symbols)

    def _in_values(self, value: Value, symbols: dict[str, SymDim]) -> Iterator[tuple[Value, bool]]:
        """What the elements of a value depend on."""
        known = self._found.values.get(value)
        if known is not None:
            yield from self._in_symbols(_formulas(known), symbols)
        elif value in self._elements:
            symbols.update((str(element), element) for element in self._elements[value])
        elif value.role is Role.TEMPORARY and value.node is not None and not value.node.regions:
            yield from ((operand, True) for operand in value.node.inputs if operand is not None)
        else:
            raise DependsOnData

    def _in_symbols(self, sizes: Iterable[SymDim], symbols: dict[str, SymDim]) -> Iterator[tuple[Value, bool]]:
        for size in sizes:
            for symbol in size.symbols():
                if not symbol.is_unknown:
                    symbols[str(symbol)] = symbol
                elif (reason := self._found.reasons.get(str(symbol))) is not None:
                    yield from self._in_reason(reason)
                else:
                    raise DependsOnData

    @staticmethod
    def _in_reason(reason: Reason) -> Iterator[tuple[Value, bool]]:
        if not reason.values and not reason.sizes:
            raise DependsOnData
        yield from ((value, True) for value in reason.values)
        yield from ((value, False) for value in reason.sizes)


def _formulas(known: Known) -> Iterator[SymDim]:
    """The formulas that small known values are made of."""
    for one in known.reshape(-1).tolist():
        if isinstance(one, SymDim):
            yield one
        elif isinstance(one, Real):
            yield from one.sizes
