"""Captured programs as JSON and back: what a model that was made costs to look at again, without making it again.

The text form of the IR is for people and lacks what a capture saw: lifetimes, statements, what was assumed, the steps of a training.
What has no form here (calls that were asked for, the live module of a step) is not kept. Reading builds values of known kinds alone.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, get_args

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError
from irscope.ir.dim_poly import Kind, from_terms, intern_atom, monomial
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Blob, FileRegion, Literal, Loc, Payload, Scope
from irscope.ir.program import Assumed, Life, LocalNames, Observed, PackedPart, Program, Runtime, Traits, observed_versions
from irscope.ir.types import (
    UNKNOWN_TYPE,
    MapType,
    OptionalType,
    ScalarType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    map_of,
    optional,
    scalar,
    sequence,
    tensor,
    tuple_of,
)
from irscope.ir.verify import check
from irscope.jsoncodec import Misfit
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.training import CATEGORIES, PHASES, Piece, Span, StepOp, Trace

Form: TypeAlias = Any
"""What JSON holds."""
_ROLES: Final = {role.value: role for role in Role}
_KINDS: Final = get_args(Kind)
_PLAIN: Final = (bool, int, float, str, type(None))


class NoForm(Exception):
    """A program has something that is not kept."""


# -- writing -----------------------------------------------------------------------------------------------------------


class _Writer:
    """Tables of what is shared, each thing once and before what refers to it."""

    def __init__(self) -> None:
        self.dims: list[Form] = []
        self.types: list[Form] = []
        self.scopes: list[Form] = []
        self.locs: list[Form] = []
        self._dim_numbers: dict[SymDim, int] = {}
        self._type_numbers: dict[Type, int] = {}
        self._scope_numbers: dict[int, int] = {}
        self._loc_numbers: dict[int, int] = {}
        self._values: dict[Value, int] = {}

    def dim(self, dim: Dim) -> Form:
        """A number as it is, a formula as its place in a list of one."""
        if not isinstance(dim, SymDim):
            return int(dim)
        number = self._dim_numbers.get(dim)
        if number is None:
            terms = [
                [coeff, [[a.kind, a.name, [self.dim(arg) for arg in a.args], a.lo, a.hi] for a in product.atoms]]
                for product, coeff in dim.terms
            ]
            number = self._dim_numbers[dim] = len(self.dims)
            self.dims.append(terms)
        return [number]

    def dims_of(self, sizes: tuple[Dim, ...] | None) -> Form:
        return None if sizes is None else [self.dim(size) for size in sizes]

    def type(self, type_: Type) -> int:
        number = self._type_numbers.get(type_)
        if number is None:
            form = self._type(type_)
            number = self._type_numbers[type_] = len(self.types)
            self.types.append(form)
        return number

    def _type(self, type_: Type) -> Form:
        match type_:
            case TensorType():
                layout = type_.layout if type_.layout is None or type_.layout == "sparse" else self.dims_of(type_.layout)
                return ["tensor", type_.dtype.text, self.dims_of(type_.shape), type_.device, layout]
            case ScalarType():
                return ["scalar", type_.dtype.text]
            case SequenceType():
                return ["sequence", self.type(type_.element)]
            case OptionalType():
                return ["optional", self.type(type_.element)]
            case TupleType():
                return ["tuple", *map(self.type, type_.elements)]
            case MapType():
                return ["map", type_.key.text, self.type(type_.value)]
        if type_ is UNKNOWN_TYPE:
            return ["unknown"]
        raise NoForm(f"a type {type_}")

    def tree(self, root: Scope) -> None:
        """A tree of scopes, parents before children, children in their order."""
        if id(root) in self._scope_numbers:
            return
        todo = [root]
        while todo:
            scope = todo.pop()
            parent = None if scope.parent is None else self._scope_numbers[id(scope.parent)]
            self._scope_numbers[id(scope)] = len(self.scopes)
            self.scopes.append([parent, scope.name, scope.cls, scope.call])
            todo.extend(reversed(scope.children))

    def scope(self, scope: Scope) -> int:
        root = scope
        while root.parent is not None:
            root = root.parent
        self.tree(root)
        number = self._scope_numbers.get(id(scope))
        if number is None:
            raise NoForm("a scope outside of its tree")
        return number

    def loc(self, loc: Loc | None) -> int | None:
        if loc is None:
            return None
        chain: list[Loc] = []
        at: Loc | None = loc
        while at is not None and id(at) not in self._loc_numbers:
            chain.append(at)
            at = at.caller
        for one in reversed(chain):
            caller = None if one.caller is None else self._loc_numbers[id(one.caller)]
            self._loc_numbers[id(one)] = len(self.locs)
            self.locs.append([one.file, one.line, one.function, one.statement, caller])
        return self._loc_numbers[id(loc)]

    def attr(self, attr: object) -> Form:
        if type(attr) in _PLAIN:
            return attr
        if type(attr) is tuple:
            return [self.attr(one) for one in attr]
        if isinstance(attr, SymDim):
            return {"dim": self.dim(attr)}
        if isinstance(attr, DType):
            return {"dtype": attr.text}
        if isinstance(attr, Type):
            return {"type": self.type(attr)}
        if type(attr) is complex:
            return {"complex": [attr.real, attr.imag]}
        raise NoForm(f"an attribute of {type(attr).__name__}")

    def value(self, value: Value | None) -> int | None:
        return None if value is None else self._values[value]

    def graph(self, graph: Graph) -> Form:
        for value in (*graph.inputs, *graph.weights):
            self._values[value] = len(self._values)
        form: dict[str, Form] = {
            "name": graph.name,
            "scope": self.scope(graph.scope),
            "inputs": [[self.type(value.type), value.name, value.role.value] for value in graph.inputs],
            "weights": [
                [self.type(value.type), value.name, value.role.value, _payload(graph.data.get(value)), graph.trainable.get(value)]
                for value in graph.weights
            ],
        }
        form["nodes"] = [self._node(node) for node in graph]
        form["outputs"] = [self.value(value) for value in graph.outputs]
        return form

    def _node(self, node: Node) -> Form:
        inputs = [self.value(value) for value in node.inputs]
        for value in node.outputs:
            self._values[value] = len(self._values)
        attrs = {name: self.attr(value) for name, value in node.attrs.items()}
        outputs = [[self.type(value.type), value.name] for value in node.outputs]
        place = (self.scope(node.scope), self.loc(node.loc), node.source)
        return [node.op, inputs, outputs, attrs, *place, [self.graph(region) for region in node.regions]]


def _trace_form(trace: Trace, writer: _Writer) -> Form:
    """The steps of a training, without the module that was trained."""
    if trace.measured:
        raise NoForm("a training with measured times")
    if trace.requests is not None:
        raise NoForm("a training that was compiled for a device")
    numbers = {id(piece): number for number, piece in enumerate(trace.pieces)}
    calls: list[Form] = []
    places: dict[int, int] = {}

    def call(made: OpCall | None) -> int | None:
        if made is None:
            return None
        number = places.get(id(made))
        if number is None:
            if any(value is not None for value in made.values):
                raise NoForm("an operator with known values")
            types = [None if one is None else writer.type(one) for one in made.types]
            attrs = {name: writer.attr(attr) for name, attr in made.attrs.items()}
            number = places[id(made)] = len(calls)
            calls.append([made.spec.name, types, attrs, [*map(writer.type, made.results)], made.source, sorted(made.parameters)])
        return number

    def among(pieces: Sequence[Piece]) -> list[int]:
        return [numbers[id(piece)] for piece in pieces]

    ops = [
        [
            *(op.name, op.source, call(op.call), op.phase, among(op.reads), among(op.writes)),
            [[result, numbers[id(piece)]] for result, piece in op.makes],
            *(writer.scope(op.scope), writer.loc(op.loc), op.sequence, op.autograd_node, op.is_random, op.is_view),
        ]
        for op in trace.ops
    ]
    return {
        "model": trace.model,
        "ops": ops,
        "calls": calls,
        "pieces": [[one.number, one.size, one.name, one.category, one.born, one.died, one.rank, one.on_device] for one in trace.pieces],
        "steps": [[one.name, one.first, one.end, one.deaths] for one in trace.steps],
        "resident": among(trace.resident),
        "deaths_in_all": trace.deaths_in_all,
        "optimizer": trace.optimizer,
        "settings": {name: writer.attr(value) for name, value in trace.settings.items()},
    }


def _payload(data: Payload | None) -> Form:
    match data:
        case None:
            return None
        case Literal():
            return ["literal", [[one.real, one.imag] if isinstance(one, complex) else one for one in data.values]]
        case FileRegion():
            return ["region", data.path, data.offset, data.length, data.storage]
        case Blob():
            return ["blob", base64.b64encode(data.data).decode(), data.storage]
    raise NoForm("values that are computed")


def written(program: Program, said: list[Diagnostic]) -> bytes:
    """A program, and what was said while it was made. Raises NoForm."""
    empty = Program(program.graph)
    for field in dataclasses.fields(Program):
        if field.name not in _WRITTEN and getattr(program, field.name) != getattr(empty, field.name):
            raise NoForm(f"it has {field.name}")
    trace = program.training
    if trace is not None and not isinstance(trace, Trace):
        raise NoForm("a training of another kind")
    if program.observed is not None and program.observed.requests is not None:
        raise NoForm("requests to the allocator")
    writer = _Writer()
    graph = writer.graph(program.graph)
    functions = {name: writer.graph(function) for name, function in program.functions.items()}
    watched = program.watched
    form = {
        "graph": graph,
        "functions": functions,
        "symbols": {name: writer.dim(symbol) for name, symbol in program.symbols.items()},
        "conditions": None
        if program.conditions is None
        else [[writer.dim(first), writer.dim(second)] for first, second in program.conditions],
        "plain": {name: getattr(program, name) for name in _MEMBERS},
        "origins": list(program.origins),
        "assumed": [[one.what, one.value, one.why, one.is_guess] for one in program.assumed],
        "packed": [[writer.value(value), part.scheme, part.of, part.parameters] for value, part in program.packed.items()],
        "traits": _traits_form(program.traits),
        "observed": None
        if watched is None
        else {
            "lives": [
                [writer.value(value), life.born, life.died, life.rank, writer.dim(life.size)] for value, life in watched.lives.items()
            ],
            "storages": [[writer.value(value), writer.value(first)] for value, first in watched.storages.items()],
        },
        "training": None if trace is None else _trace_form(trace, writer),
        "said": [[int(one.severity), one.code, one.message, one.node, one.location, one.hint, one.count] for one in said],
        "dims": writer.dims,
        "types": writer.types,
        "scopes": writer.scopes,
        "locs": writer.locs,
    }
    return json.dumps(form, separators=(",", ":")).encode("utf-8", "surrogatepass")


_MEMBERS: Final[Mapping[str, Callable[[object], bool]]] = {
    "format": lambda item: isinstance(item, str),
    "path": lambda item: isinstance(item, str),
    "given": lambda item: _is_table(item, int),
    "metadata": lambda item: _is_table(item, str),
    "has_graph": lambda item: isinstance(item, bool),
    "uncounted": lambda item: isinstance(item, str),
    "formulas_from": lambda item: _is_table(item, int),
    "examples": lambda item: _is_table(item, int),
    "short_names": lambda item: _is_table(item, str),
}
"""Fields of a program that JSON holds as they are, and what they have to be."""


_WRITTEN: Final = frozenset(
    {*_MEMBERS, "graph", "functions", "symbols", "conditions", "origins", "assumed", "packed", "traits", "observed", "training"}
)


def _is_table(item: object, kind: type) -> bool:
    return isinstance(item, dict) and all(isinstance(value, kind) for value in item.values())


def _traits_form(traits: Traits) -> Form:
    return [
        traits.runtime.value,
        traits.lifetimes,
        traits.local_names.value,
        traits.follows_strides,
        traits.is_exported,
        traits.is_session,
        traits.is_plan,
        traits.opens_inputs,
    ]


# -- reading -----------------------------------------------------------------------------------------------------------


class _Reader:
    """Tables as they were written; what refers to something that is not there raises."""

    def __init__(self, form: Form) -> None:
        self.dims: list[Dim] = []
        for terms in form["dims"]:
            self.dims.append(self._formula(terms))
        self.types: list[Type] = []
        for type_ in form["types"]:
            self.types.append(self._type(type_))
        self.scopes: list[Scope] = []
        for parent, name, cls, call in form["scopes"]:
            _wants(str, name, cls)
            _wants(int, call)
            above = None if parent is None else _at(self.scopes, parent)
            self.scopes.append(Scope(None, name, cls, call) if above is None else above.child(name, cls, call))
        self.locs: list[Loc] = []
        for file, line, function, statement, caller in form["locs"]:
            _wants(str, file, function, statement)
            _wants(int, line)
            self.locs.append(Loc(file, line, function, statement, None if caller is None else _at(self.locs, caller)))
        self.values: list[Value] = []

    def _formula(self, terms: Form) -> Dim:
        total: dict[Any, int] = {}
        for coeff, atoms in terms:
            _wants(int, coeff)
            product = []
            for kind, name, args, low, high in atoms:
                _wants(str, kind, name)
                if kind not in _KINDS:
                    raise Misfit("no operation")
                limits = (_maybe_int(low), _maybe_int(high))
                product.append(intern_atom(cast("Any", kind), name, tuple(map(self.dim, args)), limits))
            total[monomial(tuple(sorted(product, key=lambda atom: atom.rank)))] = coeff
        return from_terms(total)

    def dim(self, form: Form) -> Dim:
        if isinstance(form, list):
            (number,) = form
            return cast("Dim", _at(self.dims, number))
        _wants(int, form)
        return cast("int", form)

    def dims_of(self, form: Form) -> tuple[Dim, ...] | None:
        return None if form is None else tuple(map(self.dim, form))

    def _type(self, form: Form) -> Type:
        match form:
            case ["tensor", dtype, shape, str(device), layout]:
                return tensor(DTYPES_BY_TEXT[dtype], self.dims_of(shape), device, "sparse" if layout == "sparse" else self.dims_of(layout))
            case ["scalar", dtype]:
                return scalar(DTYPES_BY_TEXT[dtype])
            case ["sequence", element]:
                return sequence(_at(self.types, element))
            case ["optional", element]:
                return optional(_at(self.types, element))
            case ["tuple", *elements]:
                return tuple_of([_at(self.types, element) for element in elements])
            case ["map", key, value]:
                return map_of(DTYPES_BY_TEXT[key], _at(self.types, value))
            case ["unknown"]:
                return UNKNOWN_TYPE
        raise Misfit("no type")

    def attr(self, form: Form) -> Any:
        if isinstance(form, list):
            return tuple(map(self.attr, form))
        match form:
            case {"dim": dim}:
                return self.dim(dim)
            case {"dtype": dtype}:
                return DTYPES_BY_TEXT[dtype]
            case {"type": type_}:
                return _at(self.types, type_)
            case {"complex": [real, imag]}:
                return complex(real, imag)
            case dict():
                raise Misfit("no attribute")
        return form

    def fill(self, graph: Graph, form: Form) -> Graph:
        for type_, name, role in form["inputs"]:
            self.values.append(graph.add_input(_at(self.types, type_), _maybe_text(name), _ROLES[role]))
        for type_, name, role, data, trains in form["weights"]:
            value = graph.add_weight(_at(self.types, type_), _maybe_text(name), _ROLES[role], _payload_of(data))
            if trains is not None:
                _wants(bool, trains)
                graph.trainable[value] = trains
            self.values.append(value)
        for node in form["nodes"]:
            self._fill_node(graph, node)
        graph.set_outputs([_at(self.values, number) for number in form["outputs"]])
        return graph

    def _fill_node(self, graph: Graph, form: Form) -> None:
        op, inputs, outputs, attrs, scope, loc, source, regions = form
        _wants(str, op, source)
        _wants(dict, attrs)
        node = graph.append(
            op,
            [None if number is None else _at(self.values, number) for number in inputs],
            [_at(self.types, type_) for type_, _ in outputs],
            {name: self.attr(attr) for name, attr in attrs.items()},
            names=[_maybe_text(name) for _, name in outputs],
            scope=_at(self.scopes, scope),
            loc=None if loc is None else _at(self.locs, loc),
            source=source,
        )
        self.values.extend(node.outputs)
        for region in regions:
            _wants(str, region["name"])
            made = graph.add_region(node, region["name"])
            made.scope = _at(self.scopes, region["scope"])
            self.fill(made, region)

    def whole(self, form: Form) -> Graph:
        _wants(str, form["name"])
        return self.fill(Graph(form["name"], scope=_at(self.scopes, form["scope"])), form)

    def observed(self, form: Form, graph: Graph) -> Observed:
        lives: dict[Value, Life] = {}
        for value, born, died, rank, size in form["lives"]:
            _wants(int, born, rank)
            lives[_at(self.values, value)] = Life(born, _maybe_int(died), rank, self.dim(size))
        storages = {_at(self.values, value): _at(self.values, first) for value, first in form["storages"]}
        return Observed(graph, observed_versions(graph), lives, storages)

    def call(self, form: Form) -> OpCall:
        op, types, attrs, results, source, parameters = form
        _wants(str, op, source)
        _wants(int, *parameters)
        spec = find_op(op)
        if spec is None:
            raise Misfit("no operator")
        operands = [None if one is None else _at(self.types, one) for one in types]
        attributes = {name: self.attr(attr) for name, attr in attrs.items()}
        made = [_at(self.types, one) for one in results]
        return OpCall(spec, operands, attributes, (), made, source=source, parameters=frozenset(parameters))

    def trace(self, form: Form) -> Trace:
        pieces: list[Piece] = []
        count = len(form["ops"])
        for number, size, name, category, born, died, rank, on_device in form["pieces"]:
            _wants(int, number, size, rank)
            _wants(str, name)
            _wants(bool, on_device)
            if category not in CATEGORIES or size < 0:
                raise Misfit("no piece of memory")
            pieces.append(Piece(number, size, name, category, _place(born, count), _place(died, count), rank, on_device))

        def among(numbers: Form) -> tuple[Piece, ...]:
            return tuple([_at(pieces, number) for number in numbers])

        calls = [*map(self.call, form["calls"])]
        ops: list[StepOp] = []
        for name, source, call, phase, reads, writes, makes, scope, loc, number, autograd_node, is_random, is_view in form["ops"]:
            _wants(str, name, source, autograd_node)
            _wants(int, *(result for result, _ in makes))
            _wants(bool, is_random, is_view)
            if phase not in PHASES:
                raise Misfit("no phase")
            ops.append(
                StepOp(
                    number=len(ops),
                    name=name,
                    source=source,
                    call=None if call is None else _at(calls, call),
                    phase=phase,
                    reads=among(reads),
                    writes=among(writes),
                    makes=tuple([(result, _at(pieces, piece)) for result, piece in makes]),
                    scope=_at(self.scopes, scope),
                    loc=None if loc is None else _at(self.locs, loc),
                    sequence=_maybe_int(number),
                    autograd_node=autograd_node,
                    is_random=is_random,
                    is_view=is_view,
                )
            )
        steps: list[Span] = []
        for name, first, end, deaths in form["steps"]:
            _wants(str, name)
            _wants(int, first, end, deaths)
            if not 0 <= first <= end <= count:
                raise Misfit("no step")
            steps.append(Span(name, first, end, deaths))
        _wants(str, form["model"], form["optimizer"])
        _wants(int, form["deaths_in_all"])
        if not steps:
            raise Misfit("no steps")
        settings = {name: self.attr(value) for name, value in form["settings"].items()}
        resident = [*among(form["resident"])]
        return Trace(form["model"], ops, pieces, steps, resident, form["deaths_in_all"], form["optimizer"], settings)


def _place(item: object, count: int) -> int | None:
    """A number of operators that had begun."""
    if item is not None and not (type(item) is int and 0 <= item <= count):
        raise Misfit("it refers to what is not there")
    return item


def _at(table: list[Any], number: object) -> Any:
    if type(number) is not int or not 0 <= number < len(table):
        raise Misfit("it refers to what is not there")
    return table[number]


def _wants(kind: type, *items: object) -> None:
    for item in items:
        if type(item) is not kind:
            raise Misfit(f"{kind.__name__} is wanted")


def _maybe_text(item: object) -> str | None:
    if item is not None:
        _wants(str, item)
    return cast("str | None", item)


def _maybe_int(item: object) -> int | None:
    if item is not None:
        _wants(int, item)
    return cast("int | None", item)


def _payload_of(form: Form) -> Payload | None:
    match form:
        case None:
            return None
        case ["literal", list(values)]:
            return Literal(tuple([complex(*one) if isinstance(one, list) else one for one in values]))
        case ["region", str(path), int(offset), int(length), str(storage)]:
            return FileRegion(path, offset, length, storage)
        case ["blob", str(data), str(storage)]:
            return Blob(base64.b64decode(data, validate=True), storage)
    raise Misfit("no values")


def read_program(body: bytes) -> tuple[Program, list[Diagnostic]]:
    """The program that was written, and what was said while it was made. Raises Misfit where the text is not of that form."""
    try:
        return _program(json.loads(body))
    except Misfit:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError, IrscopeError) as error:
        raise Misfit(f"{type(error).__name__}: {error}") from error


def _program(form: Form) -> tuple[Program, list[Diagnostic]]:
    reader = _Reader(form)
    graph = reader.whole(form["graph"])
    program = Program(graph, {name: reader.whole(function) for name, function in form["functions"].items()})
    for name, symbol in form["symbols"].items():
        found = reader.dim(symbol)
        if not isinstance(found, SymDim):
            raise Misfit("no symbol")
        program.symbols[name] = found
    if form["conditions"] is not None:
        program.conditions = tuple([(reader.dim(first), reader.dim(second)) for first, second in form["conditions"]])
    for name, fits in _MEMBERS.items():
        if not fits(form["plain"][name]):
            raise Misfit(f"{name} is another thing")
        setattr(program, name, form["plain"][name])
    _wants(int, *form["origins"])
    program.origins = tuple(form["origins"])
    for what, value, why, is_guess in form["assumed"]:
        _wants(str, what, value, why)
        _wants(bool, is_guess)
        program.assumed.append(Assumed(what, value, why, is_guess))
    for value, scheme, of, parameters in form["packed"]:
        _wants(str, scheme, of)
        _wants(int, parameters)
        program.packed[_at(reader.values, value)] = PackedPart(scheme, of, parameters)
    runtime, lifetimes, local_names, *flags = form["traits"]
    _wants(bool, *flags)
    if lifetimes not in ("ssa", "eager", "ort", "xla"):
        raise Misfit("no lifetimes")
    program.traits = Traits(Runtime(runtime), lifetimes, LocalNames(local_names), *flags)
    if form["observed"] is not None:
        program.observed = reader.observed(form["observed"], graph)
    if form["training"] is not None:
        program.training = reader.trace(form["training"])
    said: list[Diagnostic] = []
    for severity, code, message, node, location, hint, count in form["said"]:
        _wants(str, code, message, node, location, hint)
        _wants(int, count)
        said.append(Diagnostic(Severity(severity), code, message, node, location, hint, count))
    check(program)
    return program, said
