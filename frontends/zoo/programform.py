"""Captured programs on disk and back: the text form of the IR, and beside it what a capture saw.

What has no form here (calls that were asked for, the live module of a step) is not kept. Reading builds values of known kinds alone.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError
from irscope.ir.dims import Dim, SymDim, symbol, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import WEIGHT_ROLES, Graph, Value, runs
from irscope.ir.parser import AttrReader, PlaceReader, parse_program
from irscope.ir.places import Blob, FileRegion, Literal, Loc, Scope
from irscope.ir.printer import print_program, value_names
from irscope.ir.program import FACTS, Life, Observed, Program, mentions, observed_versions
from irscope.ir.spelling import TextProblem, TypeReader, attr_text, loc_text, name_text, quote, scope_text
from irscope.ir.types import Type
from irscope.ir.verify import check
from irscope.jsoncodec import Misfit
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.training import CATEGORIES, PHASES, Piece, Span, StepOp, Trace

Form: TypeAlias = Any
"""Any value that JSON can hold."""
_SPELLED: Final = (bool, int, float, str, complex, type(None), SymDim, DType, Type)


class NoForm(Exception):
    """A program has something that is not kept."""


def _values(program: Program) -> Iterator[Value]:
    """Yield all values in the order in which the text defines them."""
    for body in program.bodies():
        for run in runs(body):
            if run.opens:
                yield from (*run.graph.inputs, *run.graph.weights)
            for node in run.nodes:
                yield from node.outputs


def _tree(root: Scope) -> list[Scope]:
    """Return a tree of scopes, parents before children, children in their order."""
    scopes: list[Scope] = []
    todo = [root]
    while todo:
        scope = todo.pop()
        scopes.append(scope)
        todo.extend(reversed(scope.children))
    return scopes


def _names_lost(program: Program) -> Iterator[tuple[Value, str]]:
    """Yield the values whose name the text changes, as another one that they see has it too."""
    for value, text in value_names([*program.bodies()]).items():
        if value is not None and value.name is not None and text != name_text(value.name):
            yield value, value.name


def _blobs(program: Program) -> Iterator[tuple[Value, Blob]]:
    """Yield the bytes that came with the model, which are not part of the text."""
    for body in program.bodies():
        for value, data in body.data.items():
            if isinstance(data, Blob):
                yield value, data
            elif not isinstance(data, Literal | FileRegion):
                raise NoForm("values that are computed")


def _class_lines(tree: list[Scope]) -> list[str]:
    return [f"{scope_text(scope) or quote('')} {quote(scope.cls)}" for scope in tree]


class _Writer:
    """Numbers of values, scopes, places and of what is spelled as attributes are: types, sizes, settings."""

    def __init__(self, program: Program) -> None:
        self.spelled: dict[str, int] = {}
        self.locs: dict[str, int] = {}
        self.sizes: list[Any] = []
        self.values = {value: number for number, value in enumerate(_values(program))}
        self.trees: list[list[Scope]] = []
        self._scopes: dict[int, int] = {}
        self._tree_of(program.root)

    def spell(self, item: Any) -> int:
        for one in item if type(item) is tuple else (item,):
            if type(one) is not tuple and not isinstance(one, _SPELLED):
                raise NoForm(f"a {type(one).__name__}")
        number = self.spelled.setdefault(attr_text(item), len(self.spelled))
        if number == len(self.sizes):
            self.sizes.append(item)
        return number

    def _tree_of(self, root: Scope) -> None:
        self.trees.append(_tree(root))
        for scope in self.trees[-1]:
            self._scopes[id(scope)] = len(self._scopes)

    def scope(self, scope: Scope) -> int:
        if id(scope) not in self._scopes:
            root = scope
            while root.parent is not None:
                root = root.parent
            self._tree_of(root)
        return self._scopes[id(scope)]

    def loc(self, loc: Loc | None) -> int | None:
        return None if loc is None else self.locs.setdefault(loc_text(loc), len(self.locs))

    def bounds(self) -> Form:
        """Return the symbols in what is spelled, with their limits."""
        holder = Program(Graph("sizes"))
        holder.graph.append("sizes", (), (), {str(number): item for number, item in enumerate(self.sizes)})
        return {str(size): [size.lo, size.hi] for size in mentions(holder).symbols}


def written(program: Program, said: list[Diagnostic]) -> bytes:
    """Return a program, and what was said while it was made. Raises NoForm."""
    empty = Program(program.graph)
    for field in dataclasses.fields(Program):
        if field.name not in _WRITTEN and getattr(program, field.name) != getattr(empty, field.name):
            raise NoForm(f"it has {field.name}")
    if program.root.parent is not None:
        raise NoForm("a graph within a module")
    trace = program.training
    if trace is not None and not isinstance(trace, Trace):
        raise NoForm("a training of another kind")
    if program.observed is not None and program.observed.requests is not None:
        raise NoForm("requests to the allocator")
    writer, watched = _Writer(program), program.watched
    number, spell = writer.values.__getitem__, writer.spell
    first, _, rest = print_program(program).partition("\n")
    form = {
        "text": "\n".join([first, *(f"class {line}" for line in _class_lines(writer.trees[0])), rest]),
        "names": [[number(value), name] for value, name in _names_lost(program)],
        "blobs": [[number(value), base64.b64encode(data.data).decode(), data.storage] for value, data in _blobs(program)],
        "trains": [[number(value), trains] for body in program.bodies() for value, trains in body.trainable.items()],
        "conditions": None if program.conditions is None else [[spell(first), spell(second)] for first, second in program.conditions],
        "plain": {name: getattr(program, name) for name in _MEMBERS},
        "origins": list(program.origins),
        "observed": None
        if watched is None
        else {
            "lives": [[number(value), life.born, life.died, life.rank, spell(life.size)] for value, life in watched.lives.items()],
            "storages": [[number(value), number(first)] for value, first in watched.storages.items()],
        },
        "training": None if trace is None else _trace_form(trace, writer),
        "said": [[int(note.severity), note.code, note.message, note.node, note.location, note.hint, note.count] for note in said],
        "trees": [_class_lines(tree) for tree in writer.trees[1:]],
        "bounds": writer.bounds(),
        "spelled": list(writer.spelled),
        "locs": list(writer.locs),
    }
    return json.dumps(form, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _trace_form(trace: Trace, writer: _Writer) -> Form:
    """Return the steps of a training, without the module that was trained."""
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
            types = [None if one is None else writer.spell(one) for one in made.types]
            attrs = {name: writer.spell(attr) for name, attr in made.attrs.items()}
            number = places[id(made)] = len(calls)
            calls.append([made.spec.name, types, attrs, [*map(writer.spell, made.results)], made.source, sorted(made.parameters)])
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
        "steps": [[step.name, step.first, step.end, step.deaths] for step in trace.steps],
        "resident": among(trace.resident),
        "deaths_in_all": trace.deaths_in_all,
        "optimizer": trace.optimizer,
        "settings": {name: writer.spell(value) for name, value in trace.settings.items()},
    }


_MEMBERS: Final[Mapping[str, Callable[[object], bool]]] = {
    "path": lambda item: isinstance(item, str),
    "examples": lambda item: _is_table(item, int),
    "short_names": lambda item: _is_table(item, str),
}
"""Fields of a program that JSON holds as they are, and what they have to be."""


_WRITTEN: Final = frozenset(
    {
        *(*_MEMBERS, *FACTS, "graph", "functions", "symbols", "format", "given", "metadata", "conditions", "origins"),
        *("aliased", "assumed", "cuts", "packed", "traits", "observed", "training"),
    }
)
"""Fields that are kept."""


def _is_table(item: object, kind: type) -> bool:
    return isinstance(item, dict) and all(isinstance(value, kind) for value in item.values())


class _Reader:
    """Tables as they were written; what refers to something that is not there raises."""

    def __init__(self, form: Form, program: Program) -> None:
        sizes: dict[str, SymDim] = {}
        for name, (low, high) in form["bounds"].items():
            sizes[name] = (unknown if name[:1] == "?" else symbol)(name, _maybe_int(low), _maybe_int(high))
        spelled = AttrReader(TypeReader(sizes.__getitem__))
        self._spelled = [self._whole(spelled.value_at, text) for text in form["spelled"]]
        places = PlaceReader()
        self.locs: list[Loc] = [self._whole(places.loc_at, text) for text in form["locs"]]
        self.scopes = _tree(program.root)
        for lines in form["trees"]:
            places = PlaceReader()
            for line in lines:
                places.class_line(line, 0)
            self.scopes += _tree(places.root)
        self.values = [*_values(program)]

    @staticmethod
    def _whole(read: Callable[[str, int], tuple[Any, int]], text: str) -> Any:
        _wants(str, text)
        found, end = read(text, 0)
        if end != len(text):
            raise Misfit("more than was spelled")
        return found

    def spelled(self, number: Form) -> Any:
        return _at(self._spelled, number)

    def dim(self, number: Form) -> Dim:
        dim = self.spelled(number)
        if type(dim) is not int and not isinstance(dim, SymDim):
            raise Misfit("no size")
        return dim

    def type(self, number: Form) -> Type:
        found = self.spelled(number)
        if not isinstance(found, Type):
            raise Misfit("no type")
        return found

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
        operands = [None if one is None else self.type(one) for one in types]
        attributes = {name: self.spelled(attr) for name, attr in attrs.items()}
        made = [self.type(result) for result in results]
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
        settings = {name: self.spelled(value) for name, value in form["settings"].items()}
        resident = [*among(form["resident"])]
        return Trace(form["model"], ops, pieces, steps, resident, form["deaths_in_all"], form["optimizer"], settings)


def _place(item: object, count: int) -> int | None:
    """Return a number of operators that had begun, as it was stored."""
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


def _maybe_int(item: object) -> int | None:
    if item is not None:
        _wants(int, item)
    return cast("int | None", item)


def read_program(body: bytes) -> tuple[Program, list[Diagnostic]]:
    """Return the program that was written, and what was said while it was made. Raises Misfit where the text is not of that form."""
    try:
        return _program(json.loads(body))
    except Misfit:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError, IrscopeError, TextProblem) as error:
        raise Misfit(f"{type(error).__name__}: {error}") from error


def _weight_of(reader: _Reader, number: Form) -> Graph:
    """Return the graph that declares a weight."""
    value = _at(reader.values, number)
    if value.declared_in is None or value.role not in WEIGHT_ROLES:
        raise Misfit("no weight")
    return cast("Graph", value.declared_in)


def _program(form: Form) -> tuple[Program, list[Diagnostic]]:
    _wants(str, form["text"])
    program = parse_program(form["text"])
    reader = _Reader(form, program)
    for number, name in form["names"]:
        _wants(str, name)
        _at(reader.values, number).name = name
    for number, data, storage in form["blobs"]:
        _wants(str, storage)
        _weight_of(reader, number).data[_at(reader.values, number)] = Blob(base64.b64decode(data, validate=True), storage)
    for number, trains in form["trains"]:
        _wants(bool, trains)
        _weight_of(reader, number).trainable[_at(reader.values, number)] = trains
    if form["conditions"] is not None:
        program.conditions = tuple([(reader.dim(first), reader.dim(second)) for first, second in form["conditions"]])
    for name, fits in _MEMBERS.items():
        if not fits(form["plain"][name]):
            raise Misfit(f"{name} is another thing")
        setattr(program, name, form["plain"][name])
    _wants(int, *form["origins"])
    program.origins = tuple(form["origins"])
    if form["observed"] is not None:
        program.observed = reader.observed(form["observed"], program.graph)
    if form["training"] is not None:
        program.training = reader.trace(form["training"])
    said: list[Diagnostic] = []
    for severity, code, message, node, location, hint, count in form["said"]:
        _wants(str, code, message, node, location, hint)
        _wants(int, count)
        said.append(Diagnostic(Severity(severity), code, message, node, location, hint, count))
    check(program)
    return program, said
