"""Types of every value, inferred forward from the inputs, with the reason for each thing that stays unknown."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import ClassVar, Final

from irscope.diagnostics import Diagnostic, Severity, few
from irscope.errors import UsageError
from irscope.ir.bind import bind_option, bindable_elements, example_size, input_option, only_elements, type_binder, typed, unknown_option
from irscope.ir.dims import Dim, SymDim, bounds, equal, only_size
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.places import Literal
from irscope.ir.printer import value_names
from irscope.ir.program import Constraint, OnlySize, Program, Relation
from irscope.ir.types import UNKNOWN_TYPE, OptionalType, ScalarType, SequenceType, TensorType, Type
from irscope.ops.reals import Real
from irscope.ops.registry import default_registry, find_op
from irscope.ops.rules import free
from irscope.ops.spec import Family, Known
from irscope.ops.values import is_symbolic
from irscope.passes.inference.engine import Inference, Inferred, Problem, Reason, lacks_rank
from irscope.passkit.base import Analysis, PassContext
from irscope.passkit.registry import closest
from irscope.report.report import Coverage, Report
from irscope.report.table import Cells, Column, Table

GENERATED: Final = "inductor."
"""Begins the operators that a compiler made for one model alone."""
_COLUMNS = tuple(map(Column.parse, ("name:value", "dtype", "shape")))


@dataclass(frozen=True)
class Shapes(Analysis[Inferred]):
    """Infer the type of every value, with reasons for what stays unknown."""

    name: ClassVar[str] = "shapes"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    def compute(self, graph: Graph, ctx: PassContext) -> Inferred:
        total = len(graph)
        inferred = Inference(ctx.program).run(lambda body: ctx.each(body, "inferring types", total) if body is graph else body)
        fill_in(inferred, ctx.program)
        for name in ctx.program.given:
            if name.startswith("?") and name not in inferred.given:
                message = f"there is no unknown size {name} in this model as it is bound, so its number is not used"
                ctx.sink.add(Diagnostic(Severity.WARNING, "IRS625", message), about=name)
        for problem in inferred.problems:
            ctx.sink.add(_diagnostic(problem), about=problem.text)
        ctx.program.constraints = tuple(_constraints(inferred))
        ctx.program.only_sizes = _only_sizes(ctx.program.constraints)
        for name, count in inferred.foreign.items():
            if ctx.program.traits.is_plan and name.startswith(GENERATED):
                continue  # what a compiler generated has no record by nature; its costs are told as unknown
            ctx.sink.add(_without_record(name, count), about=name)
        return inferred

    def report(self, result: Inferred, ctx: PassContext) -> Report:
        program = ctx.program
        names = _Names(program)
        graph = program.graph
        values = [output for body in program.bodies() for node in body if node not in result.idle for output in node.outputs]
        known_types: dict[Type, bool] = {}
        unknown = [value for value in values if not _is_known_value(value, result, known_types)]
        symbols = sorted({name for value in graph.inputs for name in symbols_of(value.type)})
        tables = (
            _types_table("inputs", graph.inputs, result, names),
            _types_table("outputs", graph.outputs, result, names),
            _types_table("values", values, result, names),
            _unknowns([value for value in values if not known_types[result.type_of(value)]], result, names),
            _branches(result),
            Table.of(
                [(str(assumption.left), str(assumption.right), assumption.node, assumption.why) for assumption in result.assumptions],
                columns=["left:formula", "right:formula", "node", "why:text"],
                title="assumptions",
            ),
        )
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "values": len(values),
                "known": len(values) - len(unknown),
                "unknown": len(unknown),
                "symbols": ", ".join(symbols) or "none",
            },
            tables=tuple(table for table in tables if len(table) or table.title in ("inputs", "outputs", "values")),
            coverage=Coverage(len(values) - len(unknown), len(values), tuple(result.foreign)),
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


def _is_known_value(value: Value, result: Inferred, found: dict[Type, bool]) -> bool:
    """Return whether its type is known; of a list those of its elements, which need not be alike. `found` keeps what is said of types."""
    type_ = result.types.get(value, value.type)
    known = found.get(type_)
    if known is None:
        known = found[type_] = is_known(type_)
    if known:
        return True
    items = result.lists.get(value)
    return items is not None and all(is_known(item.type) for item in items)


def is_known(type_: Type) -> bool:
    """Return whether element type and every size are known, be it as a formula of named symbols."""
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.dtype is DType.UNKNOWN:
            return False
        return not any(isinstance(dim, SymDim) and dim.is_unknown for dim in type_.shape)
    if isinstance(type_, SequenceType | OptionalType):
        return is_known(type_.element)
    return isinstance(type_, ScalarType)


def symbols_of(type_: Type) -> set[str]:
    """Return the names of the symbols in a type's sizes."""
    if type_.shape is None:
        return set()
    return {name for dim in type_.shape if isinstance(dim, SymDim) for name in dim.symbol_names()}


def dtype_cell(type_: Type) -> str | None:
    """Return a type's element type as reports show it."""
    if type_.dtype is not DType.UNKNOWN:
        return type_.dtype.text
    return None


def shape_cell(type_: Type) -> object:
    """Return a type's sizes as reports show them: integers, formulas, None for what is unknown."""
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
    types = [result.types.get(value, value.type) for value in values]
    data = ([names[value] for value in values], Cells(types, dtype_cell), Cells(types, shape_cell))
    return Table(title, _COLUMNS, {column.key: cells for column, cells in zip(_COLUMNS, data, strict=True)})


def _unknowns(values: list[Value], result: Inferred, names: _Names) -> Table:
    """First causes: each with the number of values it makes unknown and the first of them. Those that one option settles are one."""
    causes: dict[str, tuple[Reason, list[str]]] = {}
    for value in values:
        if value.node in result.idle:
            continue
        type_ = result.type_of(value)
        reason = result.rank_reasons.get(value) if lacks_rank(type_) else None
        found = [reason] if reason is not None else []
        if reason is None:
            found = [result.reasons[name] for name in sorted(symbols_of(type_)) if name in result.reasons]
        for first in {id(one.first): one.first for one in found}.values():
            causes.setdefault(first.fix or f"{first.node}: {first.text}", (first, []))[1].append(names[value])
    rows = [(hit[0], len(hit), why.node, why.text, why.decided_by, why.fix) for why, hit in causes.values()]
    columns = ["first_value:value", "values:count", "node", "reason:text", "decided_by:text", "fix:text"]
    return Table.of(rows, columns=columns, title="unknown")


def _branches(result: Inferred) -> Table:
    """Return what nodes with a condition run, and why."""
    rows = []
    for node, branch in result.branches.items():
        if node in result.idle:
            continue
        left_out = [sum(1 for _ in region.walk()) for place, region in enumerate(node.regions) if branch.taken not in (None, place)]
        reason = branch.reason if branch.taken is None else None
        taken = "?" if branch.taken is None else _BRANCHES[branch.taken] if branch.taken < len(_BRANCHES) else str(branch.taken)
        rows.append(
            (node.name, taken, branch.why, sum(left_out), reason.first.decided_by if reason else "", reason.first.fix if reason else "")
        )
    columns = ["node", "taken", "why:text", "left_out:count", "decided_by:text", "fix:text"]
    return Table.of(rows, columns=columns, title="branches")


_BRANCHES = ("then", "else")


def contradictions(inferred: Inferred, program: Program) -> Iterator[Diagnostic]:
    """Yield what rules of operators say against a program: operands that do not fit, misspelt operators, wrongly stated types."""
    yield from program.misstated
    yield from map(_diagnostic, inferred.problems)
    yield from (one for one in starmap(_without_record, inferred.foreign.items()) if one.severity is Severity.ERROR)


def misstated(stated: Mapping[Value, Type], found: Inferred) -> Iterator[Diagnostic]:
    """Yield the results whose types contradict what the operator's rule infers. Types of operators without a record stand as stated."""
    for value, type_ in stated.items():
        inferred = found.types.get(value, type_)
        node = value.node
        if node is not None and find_op(node.op) is not None and _differ(type_, inferred):
            message = f"the text says that {value.name or 'a result'} of {node.op} is {type_}, and it is {inferred}"
            yield Diagnostic(Severity.ERROR, "IRS207", message, node.name, str(node.loc or ""))


def _differ(stated: Type, inferred: Type) -> bool:
    """Return whether no sizes make two types the same; what either leaves open does not differ."""
    if UNKNOWN_TYPE in (stated, inferred):
        return False
    if type(stated) is not type(inferred):
        return True
    if isinstance(stated, SequenceType | OptionalType) and isinstance(inferred, SequenceType | OptionalType):
        return _differ(stated.element, inferred.element)
    if DType.UNKNOWN not in (stated.dtype, inferred.dtype) and stated.dtype is not inferred.dtype:
        return True
    if stated.shape is None or inferred.shape is None:
        return False
    return len(stated.shape) != len(inferred.shape) or any(equal(a, b) is False for a, b in zip(stated.shape, inferred.shape, strict=True))


def _without_record(name: str, count: int) -> Diagnostic:
    """Return what is said of an operator that nobody has a record of: an error where irscope has others of its dialect."""
    dialect = name.partition(".")[0]
    known = [spec.name for spec in default_registry() if spec.name.partition(".")[0] == dialect]
    if not known:
        message = f"operator {name} has no record: its results have the types the file declares"
        return Diagnostic(Severity.WARNING, "IRS205", message, count=count)
    near = closest(name, known)
    hint = f"did you mean {near!r}?" if near else f"`irscope ops` lists those of {dialect}"
    return Diagnostic(Severity.ERROR, "IRS206", f"{dialect} has no operator {name}", hint=hint, count=count)


def _constraints(inferred: Inferred) -> Iterator[Constraint]:
    """Yield the constraints of operators that always run on sizes that a user may choose."""
    for assumption in (*inferred.assumptions, *inferred.fitting):
        is_open = any(isinstance(size, SymDim) and size.is_unknown for size in (assumption.left, assumption.right))
        if assumption.is_certain and assumption.relation is not Relation.AT_MOST and not is_open:
            yield Constraint(assumption.left, assumption.right, assumption.relation, f"{assumption.why} at {assumption.node}")


def _only_sizes(constraints: Iterable[Constraint]) -> dict[str, OnlySize]:
    """Symbols that equations of operators leave a single size; of several equations for a symbol the first, unless two contradict."""
    only: dict[str, OnlySize] = {}
    for constraint in constraints:
        solved = only_size(constraint.left, constraint.right) if constraint.relation is Relation.EQUAL else None
        if solved is None:
            continue
        name, size = solved
        before = only.get(name)
        if before is None or (before.size is not None and before.size != size):
            only[name] = OnlySize(size if before is None else None, str(constraint))
    return only


def _diagnostic(problem: Problem) -> Diagnostic:
    node = problem.node
    location = str(node.loc) if node.loc else ""
    if problem.fault == "model":
        return Diagnostic(Severity.ERROR, "IRS201", problem.text, node.name, location)
    return Diagnostic(Severity.ERROR, "IRS202", f"the rule of {node.op} failed: {problem.text}", node.name, location)


# The options of the command line that make something unknown known: use-def chains are followed back to the model's inputs.

_MOST_SIZES = 6
_SIZES = (64, 1, 2, 32, 128, 224, 256, 512, 576, 640, 1024, 1600, 16_000)
"""Candidates for sizes of inputs, where the usual ones contradict the model: images, windows, frames of audio."""
_BROADCASTS = frozenset({Family.ELEMENTWISE, Family.COMPARISON})
_SMALL_TO_LARGE = (2, 8, 16, 32, 64, 128, 224, 256, 320, 512, 576, 640, 1024, 1600, 4000, 16_000)
_MOST_TRIALS = 40
_MOST_STEPS = 100
_MOST_WORK = 300_000
"""Formulas that the searches of one model look at, some microseconds each; what is not settled by then has no fix."""
_LARGE = 20_000
"""Models of more nodes are not inferred again only to try a number."""
_NUMBERS = (1, 0, 2, 8)
"""Candidates for the elements of inputs whose meaning nothing states."""
SHAPES_HINT: Final = f"{typed('irscope run --passes shapes MODEL')} tells what their sizes depend on"


class DependsOnData(Exception):
    """Something that only running the model tells."""


def fill_in(inferred: Inferred, program: Program) -> None:
    """Write into every reason what makes it known, and what its first cause is; the fix stays empty where nothing on the command line
    makes it known."""
    remedies = _Remedies(inferred, program)
    undecided = [branch.reason for branch in inferred.branches.values() if branch.taken is None and branch.reason is not None]
    reasons = list({id(reason): reason for reason in (*inferred.reasons.values(), *inferred.rank_reasons.values(), *undecided)}.values())
    for reason in reasons:
        first = remedies.first(reason)
        reason.root = None if first is reason else first
    for reason in reasons:
        reason.fix, reason.decided_by = remedies.of(reason)
    elements = bindable_elements(program) if program.given and inferred.branches else {}
    for node, branch in inferred.branches.items():
        condition = node.inputs[0] if node.inputs else None
        given = _given_for(condition, program, elements) if elements and condition is not None and branch.taken is not None else ""
        if given:
            branch.why += f": {given}"


def _given_for(value: Value, program: Program, elements: Mapping[Value, list[SymDim]]) -> str:
    """Return the numbers given on the command line that a value is computed from, within some steps."""
    found: dict[str, int] = {}
    work, seen = deque([value]), {value}
    while work and len(seen) < _MOST_STEPS:
        at = work.popleft()
        names = [str(element) for element in elements.get(at, ())]
        found.update((name, program.given[name]) for name in names if name in program.given)
        for operand in at.node.inputs if at.node is not None and not at.node.regions else ():
            if operand is not None and operand not in seen:
                seen.add(operand)
                work.append(operand)
    return ", ".join(f"{name}={number}" for name, number in found.items())


def _broadcast_sizes(size: SymDim) -> tuple[Dim, ...]:
    """Return the sizes of which one is the larger: those of a maximum, else the size itself."""
    (mono, coeff), *rest = size.terms
    is_largest = not rest and coeff == 1 and len(mono.atoms) == 1 and mono.atoms[0].kind == "max"
    return mono.atoms[0].args if is_largest else (size,)


def symbol_names_of(size: Dim) -> tuple[str, ...]:
    """Return the names of a size's symbols."""
    return size.symbol_names() if isinstance(size, SymDim) else ()


def _trial(program: Program, numbers: Mapping[str, int], elements: Container[str] = ()) -> Inferred | None:
    """Return the inference with numbers for sizes and elements of inputs; None where one is outside its limits. The program is not
    changed."""
    binder, given = type_binder(numbers), program.given
    program.given = {**given, **{name: number for name, number in numbers.items() if name in elements}}
    try:
        trial = Inference(program)
        trial.found.types.update((value, binder(value.type)) for value in program.graph.inputs)
        return trial.run()
    except UsageError:
        return None
    finally:
        program.given = given


def sizes_that_run(
    program: Program, sizes: Mapping[str, int], growing: Collection[str], usual: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the sizes, with the usual ones where the model runs at those, else with larger ones for some of the symbols where the model
    contradicts itself at those: an image of one pixel, or audio of one sample. As they are where no size that is tried is better."""
    if not growing or len(program.graph) > _LARGE:
        return dict(sizes)
    best, fewest = dict(sizes), None
    if usual:
        # A size that others contradict, as a length that is one of them, is not guessed.
        tried = {**sizes, **usual}
        inferred = _trial(program, tried)
        sizes = tried if inferred is not None and not inferred.problems else sizes
    for size in (0, *_SMALL_TO_LARGE):
        tried = {
            name: max(number, min(size, bounds(program.symbols[name])[1] or size)) if name in growing else number
            for name, number in sizes.items()
        }
        inferred = _trial(program, tried)
        problems = len(inferred.problems) if inferred is not None else None
        if problems is not None and (fewest is None or problems < fewest):
            best, fewest = tried, problems
        if fewest == 0:
            break
    for name in growing:
        # What has nothing to do with the contradiction stays small.
        tried = {**best, name: sizes[name]}
        inferred = _trial(program, tried) if tried != best else None
        if inferred is not None and fewest is not None and len(inferred.problems) <= fewest:
            best = tried
    return best


def tied_sizes(program: Program) -> dict[str, Dim]:
    """Return formulas that symbols are broadcast with, by the symbol: the length of a mask is what a decoder keeps and what it is given.
    A symbol may also be 1 there, which no model is run at."""
    tied: dict[str, Dim] = {}
    for node in program.graph:
        spec = find_op(node.op)
        if spec is None or spec.family not in _BROADCASTS or not node.outputs:
            continue
        whole = node.outputs[0].type.shape or ()
        for operand in node.inputs:
            shape = operand.type.shape if operand is not None else None
            for mine, all_ in zip(reversed(shape or ()), reversed(whole), strict=False):
                if isinstance(all_, SymDim) and mine is not all_ and str(mine) in program.symbols and not all_.is_unknown:
                    others = [dim for dim in _broadcast_sizes(all_) if dim is not mine and str(mine) not in symbol_names_of(dim)]
                    if len(others) == 1:
                        tied.setdefault(str(mine), others[0])
    return {name: formula for name, formula in tied.items() if not any(name in tied for name in symbol_names_of(formula))}


def deciding_elements(inferred: Inferred, program: Program) -> dict[str, tuple[int, ...]]:
    """Return elements of inputs that decide which branches run, where that is open, with the numbers that they can be."""
    elements = bindable_elements(program)
    stems = {element: stem for stem, element in only_elements(program).items()}
    flags = {str(one) for value, each in elements.items() if value.type.dtype is DType.BOOL for one in each}
    deciding: dict[str, tuple[int, ...]] = {}
    for node, branch in inferred.branches.items():
        condition = node.inputs[0] if node.inputs else None
        known = inferred.values.get(condition) if condition is not None and branch.taken is None and node not in inferred.idle else None
        for formula in _formulas(known) if known is not None else ():
            deciding.update((stems.get(name, name), (1, 0)) for name in formula.symbol_names() if name in flags)
    return deciding


def size_hint(inferred: Inferred, values: Iterable[Value]) -> str:
    """Return what makes the sizes of values known, as a hint; the command that tells more where nothing on the command line does."""
    fixes = size_fixes(inferred, values)
    if fixes:
        return f"{typed(fixes[0])} gives {'it a size' if len(fixes) == 1 else 'the first of them a size'}"
    return SHAPES_HINT


def size_fixes(inferred: Inferred, values: Iterable[Value]) -> list[str]:
    """Return the options that make the sizes of values known."""
    reasons: list[Reason] = []
    for value in values:
        type_ = inferred.type_of(value)
        if value in inferred.rank_reasons:
            reasons.append(inferred.rank_reasons[value])
        elif isinstance(type_, TensorType):
            names = {name for size in type_.shape or () if isinstance(size, SymDim) for name in size.names}
            reasons.extend(inferred.reasons[name] for name in sorted(names) if name in inferred.reasons)
    return list(dict.fromkeys(reason.first.fix for reason in reasons if reason.first.fix))


def _unknown(inferred: Inferred, program: Program) -> int:
    """Return how many sizes of results are not known, one for a result whose rank is not, and how many branches are not decided."""
    nodes = [node for body in program.bodies() for node in body if node not in inferred.idle]
    types = [inferred.type_of(output) for node in nodes for output in node.outputs]
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
    open_sizes = sum(1 if shape is None else sum(isinstance(size, SymDim) and size.is_unknown for size in shape) for shape in shapes)
    return open_sizes + sum(branch.taken is None for node, branch in inferred.branches.items() if node not in inferred.idle)


class _Remedies:
    """Searches of one model, each distinct one made once."""

    def __init__(self, inferred: Inferred, program: Program) -> None:
        self._found = inferred
        self._program = program
        self._elements = bindable_elements(program)
        self._element_names = {str(element) for found_ in self._elements.values() for element in found_}
        self._inputs = frozenset(program.graph.inputs)
        self._made: dict[tuple[tuple[Value, ...], tuple[Value, ...]], tuple[str, str]] = {}
        self._tried: dict[frozenset[str], dict[str, int] | None] = {}
        self._trials = 0
        self._first: dict[int, Reason] = {}
        self._direct: dict[tuple[tuple[Value, ...], tuple[Value, ...]], dict[int, Reason]] = {}
        """Direct causes of reasons, by what decides them: elements of one tensor share theirs."""
        self._left = _MOST_WORK
        self._met: dict[int, Reason] = {}
        """Reasons that the search under way has come by."""
        self._data: dict[str, None] = {}
        """Inputs whose data the search under way has come to."""
        self._sizes: dict[int, list[SymDim]] = {}
        self._count: int | None = None

    def first(self, reason: Reason) -> Reason:
        """Return the cause that has none among the other reasons; of several the first."""
        seen: dict[int, Reason] = {}
        at = reason
        while id(at) not in self._first:
            if id(at) in seen:
                break
            seen[id(at)] = at
            further = [cause for cause in self._causes(at) if id(cause) not in seen]
            if not further:
                break
            at = further[0]
        last = self._first.get(id(at), at)
        for one in seen.values():
            self._first[id(one)] = last
        return last

    def _causes(self, reason: Reason) -> list[Reason]:
        """Return other reasons on which this one depends directly."""
        key = reason.values, reason.sizes
        if key not in self._direct:
            self._direct[key] = self._direct_causes(reason)
        return [one for one in self._direct[key].values() if one is not reason]

    def _direct_causes(self, reason: Reason) -> dict[int, Reason]:
        self._met = {}
        work = deque([*((value, True) for value in reason.values), *((value, False) for value in reason.sizes)])
        seen = set(work)
        symbols: dict[str, SymDim] = {}
        untyped: dict[Value, None] = {}
        while work and self._left > 0:
            value, wants_values = work.popleft()
            try:
                # What other reasons depend on is theirs.
                steps = list(
                    self._in_values(value, symbols, follow=False) if wants_values else self._in_sizes(value, symbols, untyped, False)
                )
            except DependsOnData:
                continue
            for item in steps:
                if item not in seen:
                    seen.add(item)
                    work.append(item)
        return self._met

    def of(self, reason: Reason) -> tuple[str, str]:
        """Return the options that make it known, and what of the inputs decides it."""
        key = reason.values, reason.sizes
        if key not in self._made:
            self._made[key] = self._search(reason) if (reason.values or reason.sizes) and self._left > 0 else ("", "")
        fix, decided_by = self._made[key]
        return fix or self._for_sizes(reason.first), decided_by

    def _for_sizes(self, reason: Reason) -> str:
        """Return numbers for the unknown sizes themselves, where nothing else decides them."""
        if not self._sizes:
            used = {
                size
                for body in self._program.bodies()
                for node in body
                if node not in self._found.idle
                for output in node.outputs
                for dim in self._found.type_of(output).shape or ()
                if isinstance(dim, SymDim) and dim.is_unknown
                for size in dim.symbols()
                if size.is_unknown
            }
            used.update(self._undecided())
            first: dict[int, list[SymDim]] = {}
            for size in sorted(used, key=lambda one: (len(str(one)), str(one))):
                why = self._found.reasons.get(str(size))
                if why is not None:
                    self._sizes.setdefault(id(why.first), []).append(size)
                    if why.root is None:
                        first.setdefault(id(why), []).append(size)
            # What follows from a size is settled with it.
            self._sizes.update(first)
        return unknown_option(self._sizes.get(id(reason), ())[:_MOST_SIZES])

    def _undecided(self) -> Iterator[SymDim]:
        """Conditions that depend on data, as sizes that are 0 or 1."""
        for node, branch in self._found.branches.items():
            condition = node.inputs[0] if node.inputs else None
            known = self._found.values.get(condition) if condition is not None and branch.taken is None else None
            for formula in _formulas(known) if known is not None else ():
                yield from (symbol for symbol in formula.symbols() if symbol.is_unknown)

    def _search(self, reason: Reason) -> tuple[str, str]:
        """Breadth first over what the reason depends on: values of some tensors, sizes of others."""
        symbols: dict[str, SymDim] = {}
        untyped: dict[Value, None] = {}
        self._data = {}
        work = deque([*((value, True) for value in reason.values), *((value, False) for value in reason.sizes)])
        seen = set(work)
        on_data = False
        while work and self._left > 0:
            value, wants_values = work.popleft()
            try:
                steps = list(self._in_values(value, symbols) if wants_values else self._in_sizes(value, symbols, untyped))
            except DependsOnData:
                on_data = True
                continue
            for item in steps:
                if item not in seen:
                    seen.add(item)
                    work.append(item)
        if self._left <= 0:
            return "", ""
        elements = frozenset(name for name in symbols if name in self._element_names and name not in self._program.symbols)
        if on_data:
            return "", ", ".join(f"values of {name}" for name in list(self._data)[:_MOST_SIZES])
        named = [*(f"the type of {value.name}" for value in untyped), *(name for name, symbol in symbols.items() if not symbol.is_unknown)]
        decided_by = few(named, _MOST_SIZES, "--passes 'shapes' --rows 0")
        chosen = self._numbers_for(elements, {name: one for name, one in symbols.items() if not one.is_unknown and name not in elements})
        if chosen is None:
            return "", decided_by
        options = [
            *(input_option(value) for value in untyped),
            bind_option(symbols.values(), {**(chosen or {}), **self._program.only_numbers}),
        ]
        return " ".join(filter(None, options)), decided_by

    def _numbers_for(self, elements: frozenset[str], sizes: Mapping[str, SymDim]) -> dict[str, int] | None:
        """Return numbers with which more is known and nothing contradicts: an axis, a length and a flag may not all be the same. Where
        sizes alone decide, the usual ones are named even if they do not help: another cause shows then."""
        key = elements | frozenset(sizes)
        if not key:
            return {}
        if key not in self._tried:
            compared = _compared_with(self._elements, elements)
            usual = {name: example_size(size) for name, size in sizes.items()}
            tries = [{**usual, **dict.fromkeys(elements, number)} for number in (*compared, *_NUMBERS)] if elements else [usual]
            known = next((numbers for numbers in tries if self._helps(numbers)), None)
            if known is None and sizes:
                fixed = dict.fromkeys(elements, next(iter(compared), 1))
                others = [{**{name: min(size, bounds(one)[1] or size) for name, one in sizes.items()}, **fixed} for size in _SIZES]
                known = next((numbers for numbers in others if self._helps(numbers)), None if elements else usual)
            self._tried[key] = known
        return self._tried[key]

    def _helps(self, numbers: Mapping[str, int]) -> bool:
        """Return whether with these numbers less is unknown, and nothing contradicts that did not before."""
        program = self._program
        if self._trials >= _MOST_TRIALS or len(program.graph) > _LARGE:
            return True
        self._trials += 1
        other = _trial(program, numbers, self._element_names)
        if other is None:
            return False
        if self._count is None:
            self._count = _unknown(self._found, program)
        return len(other.problems) <= len(self._found.problems) and _unknown(other, program) < self._count

    def _in_sizes(
        self, value: Value, symbols: dict[str, SymDim], untyped: dict[Value, None], follow: bool = True
    ) -> Iterator[tuple[Value, bool]]:
        """Yield what the sizes of a value depend on; symbols that its small known values are made of count with them."""
        type_ = self._found.type_of(value)
        if type_.shape is not None:
            yield from self._in_symbols((size for size in type_.shape if isinstance(size, SymDim)), symbols, follow)
        elif value in self._inputs and value.name is not None:
            untyped[value] = None
        elif (reason := self._found.rank_reasons.get(value)) is not None:
            yield from self._in_reason(reason, follow)
        known = self._found.values.get(value)
        if known is not None and is_symbolic(known):
            yield from self._in_symbols(_formulas(known), symbols, follow)

    def _in_values(self, value: Value, symbols: dict[str, SymDim], follow: bool = True) -> Iterator[tuple[Value, bool]]:
        """Yield what the elements of a value depend on."""
        known = self._found.values.get(value)
        node = value.node
        if known is not None:
            yield from self._in_symbols(_formulas(known), symbols, follow)
        elif value in self._elements:
            symbols.update((str(element), element) for element in self._elements[value])
        elif value.role is Role.TEMPORARY and node is not None and not node.regions and any(value is not None for value in node.inputs):
            yield from ((operand, not _reads_only_sizes(node)) for operand in node.inputs if operand is not None)
        elif node is not None and node.regions and value in self._found.rank_reasons:
            yield from self._in_reason(self._found.rank_reasons[value], follow)
        elif value.role is not Role.CONSTANT:
            if value in self._inputs and value.name is not None:
                self._data[value.name] = None
            raise DependsOnData

    def _in_symbols(self, sizes: Iterable[SymDim], symbols: dict[str, SymDim], follow: bool = True) -> Iterator[tuple[Value, bool]]:
        for size in sizes:
            self._left -= 1
            for symbol in size.symbols():
                if not symbol.is_unknown:
                    symbols[str(symbol)] = symbol
                elif (reason := self._found.reasons.get(str(symbol))) is not None:
                    yield from self._in_reason(reason, follow)
                else:
                    raise DependsOnData

    def _in_reason(self, reason: Reason, follow: bool = True) -> Iterator[tuple[Value, bool]]:
        self._met[id(reason)] = reason
        if not follow:
            return
        if not reason.values and not reason.sizes:
            raise DependsOnData
        yield from ((value, True) for value in reason.values)
        yield from ((value, False) for value in reason.sizes)


def _reads_only_sizes(node: Node) -> bool:
    """Return whether its results depend on sizes of operands alone, not on their elements."""
    spec = find_op(node.op)
    return spec is not None and spec.family is Family.CREATION and spec.cost is free and not spec.needs_values


def _compared_with(elements: Mapping[Value, list[SymDim]], wanted: frozenset[str]) -> list[int]:
    """Return the constants with which inputs are compared that have some of these elements, those of comparisons for equality."""
    numbers: dict[int, None] = {}
    for value, names in elements.items():
        if wanted.isdisjoint(map(str, names)):
            continue
        for user in value.users or ():
            spec = find_op(user.op) if isinstance(user, Node) else None
            if isinstance(user, Node) and spec is not None and spec.family is Family.COMPARISON:
                for other in user.inputs:
                    data = other.declared_in.data.get(other) if other is not None and other.declared_in is not None else None
                    if isinstance(data, Literal) and len(data.values) == 1 and isinstance(data.values[0], int):
                        numbers[int(data.values[0])] = None
    return list(numbers)


def _formulas(known: Known) -> Iterator[SymDim]:
    """Yield the formulas that small known values are made of."""
    for one in known.reshape(-1).tolist():
        if isinstance(one, SymDim):
            yield one
        elif isinstance(one, Real):
            yield from one.sizes
