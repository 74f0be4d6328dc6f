"""Hypothesis strategies for IR: anything the IR allows (`programs`), and small well-typed models (`tensor_programs`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from hypothesis import strategies as st

from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, dim_max, dim_min, floordiv, mod, symbol, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Role, Value
from irscope.ir.places import FileRegion, Literal, Loc, Payload, Scope
from irscope.ir.program import Program, Traits
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, map_of, optional, scalar, sequence, tensor, tuple_of

_texts = st.text(max_size=8) | st.sampled_from(
    ['a"b', "a\\b", "{x}", "(", "# no comment", "\x7f\x00\n", "\u202egnp", "%1", " = ", "]>", ","]
)
_plain_names = st.from_regex(r"\A[a-z][a-z0-9_.]{0,5}\Z")
_dtypes = st.sampled_from(list(DType))
_integers = st.integers(-(2**70), 2**70) | st.integers(-3, 5)
_scalars = st.booleans() | _integers | st.floats() | st.complex_numbers() | _texts

_words = st.just("") | _texts
_files = st.just("model.py") | _texts
_function_names = st.sampled_from(["", "forward", "Net.forward", "<module>", "<lambda>"]) | _texts
_scope_names = _plain_names | st.sampled_from(["0", "", "a/b", "a#1", "~", "~1", "=layer.0", "\u00e9"]) | _texts
_region_names = st.sampled_from(["then", "body"]) | _texts
_counts = st.sampled_from([0, 0, 1, 1, 2, 3])
_sources = st.sampled_from(["", "", "aten::add"]) | _texts
_file_regions = st.builds(FileRegion, _texts, st.integers(0, 2**50), st.integers(0, 2**40), _texts)
_roles = st.sampled_from([Role.PARAMETER, Role.BUFFER, Role.CONSTANT])

value_names = st.none() | _plain_names | st.sampled_from(["0", "12", "", "x:0", "a b", "a/b", "_", "conv1.weight"]) | _texts
operator_names = st.sampled_from(["math.add", "nn.conv", "view.reshape", "aten.foo", "return", "region", "input", "a:b-c"]) | _texts


# -- sizes and types ---------------------------------------------------------------------------------------------


SizeTable: TypeAlias = tuple[SymDim, ...]

SIZE_TABLES: tuple[SizeTable, ...] = (
    (),
    (symbol("batch"), symbol("seq", 1, 512), unknown("nonzero_3")),
    (symbol("batch", 1, 64), symbol("n.1", None, None), symbol("none", -3, 9), symbol("inf", 0), symbol("sparse"), unknown("k", 1, 2**40)),
    (symbol("true", 2), symbol("nan"), symbol("complex", None, 7), symbol("f32"), symbol("max"), unknown("none", None, 5)),
)
"""Sizes a program may use, among them all whose names other parts of the text form could mistake for something else."""


def _combined(parts: tuple[str, Dim, Dim]) -> Dim:
    mark, a, b = parts
    try:
        return {"+": a + b, "-": a - b, "*": a * b}[mark] if mark in "+-*" else _functions[mark](a, b)
    except UsageError:
        return a


_functions: dict[str, Callable[[Dim, Dim], Dim]] = {"//": floordiv, "%": mod, "max": dim_max, "min": dim_min}


@functools.cache
def dims(table: SizeTable) -> st.SearchStrategy[Dim]:
    """Sizes: numbers, symbols of the table, and formulas over both."""
    numbers: st.SearchStrategy[Dim] = st.integers(0, 7) | st.integers(0, 2**40)
    leaves = numbers | st.sampled_from(table) if table else numbers
    marks = st.sampled_from(["+", "-", "*", *_functions])
    return st.recursive(leaves, lambda inner: st.tuples(marks, inner, inner).map(_combined), max_leaves=4)


@functools.cache
def tensor_types(table: SizeTable) -> st.SearchStrategy[TensorType]:
    """Tensor types of any rank, layout and device."""
    sizes = dims(table).filter(lambda size: not isinstance(size, int) or size >= 0)
    shapes = st.none() | st.lists(sizes, max_size=4).map(tuple)
    strides = st.lists(dims(table), min_size=4, max_size=4).map(tuple)
    layouts = st.none() | st.just("sparse") | strides
    devices = st.sampled_from(["", "", "cpu", "cuda:0"]) | _texts
    return st.builds(_with_strides, _dtypes, shapes, devices, layouts)


def _with_strides(dtype: DType, shape: tuple[Dim, ...] | None, device: str, layout: tuple[Dim, ...] | str | None) -> TensorType:
    """Return the type with a stride for each axis, of those that were drawn."""
    return tensor(dtype, shape, device, layout[: len(shape)] if isinstance(layout, tuple) and shape is not None else layout)


@functools.cache
def types(table: SizeTable) -> st.SearchStrategy[Type]:
    """Every kind of type, nested."""
    leaves: st.SearchStrategy[Type] = tensor_types(table) | st.just(UNKNOWN_TYPE) | st.builds(scalar, _dtypes)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(sequence, inner)
            | st.builds(optional, inner)
            | st.lists(inner, max_size=3).map(tuple_of)
            | st.builds(map_of, _dtypes, inner)
        ),
        max_leaves=4,
    )


@functools.cache
def attr_values(table: SizeTable) -> st.SearchStrategy[Attr]:
    """Everything an attribute may hold."""
    leaves: st.SearchStrategy[Attr] = st.none() | _scalars | dims(table) | _dtypes | types(table)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=6)


@functools.cache
def attr_tables(table: SizeTable) -> st.SearchStrategy[dict[str, Attr]]:
    """All attributes of a node."""
    return st.dictionaries(_plain_names | _texts, attr_values(table), max_size=3)


# -- whole programs ----------------------------------------------------------------------------------------------


@st.composite
def locations(draw: st.DrawFn) -> Loc | None:
    """Nothing, or a place in the source with up to three callers."""
    loc: Loc | None = None
    for _ in range(draw(_counts)):
        loc = Loc(draw(_files), draw(st.integers(-1, 500)), draw(_function_names), draw(_words), loc)
    return loc


@dataclass
class _Level:
    """A graph being filled: its own names, and the names used anywhere below it."""

    graph: Graph
    own: set[str] = field(default_factory=set)
    below: set[str] = field(default_factory=set)
    values: list[Value] = field(default_factory=list)


class _Maker:
    """Fills graphs with nodes that only keep the rules of the IR: types and attributes mean nothing."""

    def __init__(self, draw: st.DrawFn, max_nodes: int, max_depth: int) -> None:
        self.draw = draw
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.table: SizeTable = draw(st.sampled_from(SIZE_TABLES))
        self.functions: dict[str, Graph] = {}
        self.levels: list[_Level] = []

    def body(self, graph: Graph) -> None:
        graph.scope.cls = self.draw(_words)
        self.scopes = [graph.scope]
        for _ in range(self.draw(st.integers(0, 4))):
            above = self.draw(st.sampled_from(self.scopes))
            self.scopes.append(above.child(self.draw(_scope_names), self.draw(_words), self.draw(st.integers(0, 2))))
        self.fill(graph)

    def name(self, level: _Level) -> str | None:
        name = self.draw(value_names)
        if name is None or name in level.below or any(name in other.own for other in self.levels):
            return None
        level.own.add(name)
        for other in self.levels[:-1]:
            other.below.add(name)
        return name

    def fill(self, graph: Graph) -> None:
        draw = self.draw
        level = _Level(graph)
        self.levels.append(level)
        for _ in range(draw(st.integers(0, 2))):
            level.values.append(graph.add_input(draw(types(self.table)), self.name(level)))
        for _ in range(draw(st.integers(0, 2))):
            self.weight(level)
        for _ in range(draw(st.integers(0, self.max_nodes if len(self.levels) == 1 else 2))):
            self.node(level)
        readable = self.readable()
        graph.set_outputs(draw(st.lists(st.sampled_from(readable), max_size=3)) if readable else ())
        self.levels.pop()

    def readable(self) -> list[Value]:
        return [value for level in self.levels for value in level.values]

    def weight(self, level: _Level) -> None:
        draw = self.draw
        type_: TensorType = draw(tensor_types(self.table))
        data: Payload | None = draw(st.none() | _file_regions)
        if draw(st.booleans()):
            values = tuple(draw(st.lists(_scalars, max_size=4)))
            type_, data = tensor(type_.dtype, (len(values),)), Literal(values)
        level.values.append(level.graph.add_weight(type_, self.name(level), draw(_roles), data))

    def node(self, level: _Level) -> None:
        draw = self.draw
        readable: list[Value | None] = [None, *self.readable()]
        inputs = draw(st.lists(st.sampled_from(readable), max_size=4))
        attrs = draw(attr_tables(self.table))
        attrs.pop("inplace", None)
        present = [index for index, value in enumerate(inputs) if value is not None]
        if present and draw(st.booleans()):
            attrs["inplace"] = draw(st.sampled_from(present))
        op = draw(operator_names)
        if op == "cf.call":
            op = "foreign"
        if self.functions and draw(st.booleans()):
            op, attrs["callee"] = "cf.call", draw(st.sampled_from(list(self.functions)))
        outputs = draw(st.lists(types(self.table), max_size=3))
        names = [self.name(level) for _ in outputs]
        source = draw(_sources)
        node = level.graph.append(op, inputs, outputs, attrs, names=names, scope=self.scope(), loc=draw(locations()), source=source)
        if len(self.levels) <= self.max_depth and draw(st.integers(0, 3)) == 0:
            for _ in range(draw(st.integers(1, 2))):
                self.fill(level.graph.add_region(node, draw(_region_names)))
        level.values.extend(node.outputs)

    def scope(self) -> Scope:
        scope: Scope = self.draw(st.sampled_from(self.scopes))
        return scope


@st.composite
def programs(draw: st.DrawFn, max_nodes: int = 5, max_depth: int = 2) -> Program:
    """Any program that keeps the rules of the IR: regions, functions, weights, odd names, symbolic sizes, locations."""
    maker = _Maker(draw, max_nodes, max_depth)
    for name in draw(st.lists(_plain_names | _texts, unique=True, max_size=2)):
        function = Graph(name)
        maker.body(function)
        maker.functions[name] = function
    graph = Graph(draw(st.just("main") | _texts))
    maker.body(graph)
    return Program(
        graph,
        maker.functions,
        {str(size): size for size in maker.table if draw(st.booleans())},
        draw(st.sampled_from(["irs", "onnx"]) | _texts),
        "",
        draw(st.dictionaries(_texts, st.integers(-5, 2**65), max_size=2)),
        draw(st.dictionaries(_texts, _texts, max_size=2)),
        traits=draw(st.builds(Traits)),
    )


# -- well-typed programs -----------------------------------------------------------------------------------------

SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (2, 3), (6,), (3, 2), (2, 1, 3), (2, 2, 2), (8,))


class _TensorMaker:
    """Fills graphs with operators that fit their operands: elementwise, in-place, views, branches."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0
        self.scopes: list[Scope] = []

    def make(self, max_nodes: int) -> Program:
        graph = Graph()
        self.scopes = [graph.scope, graph.scope.child("block", "Block"), graph.scope.child("block", "Block").child("act", "ReLU")]
        values = [graph.add_input(tensor(DType.F32, self.draw(st.sampled_from(SHAPES))), f"x{index}") for index in range(2)]
        values.append(graph.add_weight(tensor(DType.F32, self.draw(st.sampled_from(SHAPES))), "w"))
        condition = graph.add_input(tensor(DType.BOOL, ()), "flag")
        self.fill(graph, values, condition, self.draw(st.integers(1, max_nodes)), depth=0)
        outputs = self.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        graph.set_outputs(outputs)
        return Program(graph)

    def fill(self, graph: Graph, values: list[Value], condition: Value, nodes: int, depth: int) -> None:
        kinds = [self.elementwise, self.inplace, self.reshape, self.transpose, self.binary]
        for _ in range(nodes):
            if depth < 2 and self.draw(st.integers(0, 5)) == 0:
                values.append(self.branch(graph, values, condition, depth))
            else:
                values.append(self.draw(st.sampled_from(kinds))(graph, self.draw(st.sampled_from(values)), values))

    def result(self, graph: Graph, op: str, inputs: list[Value], shape: tuple[int, ...], attrs: dict[str, Attr] | None = None) -> Value:
        self.count += 1
        scope = self.draw(st.sampled_from(self.scopes))
        node = graph.append(op, inputs, [tensor(DType.F32, shape)], attrs, names=[f"v{self.count}"], scope=scope)
        return node.outputs[0]

    def elementwise(self, graph: Graph, x: Value, values: list[Value]) -> Value:
        return self.result(graph, self.draw(st.sampled_from(["math.neg", "math.exp", "math.abs"])), [x], shape_of(x))

    def inplace(self, graph: Graph, x: Value, values: list[Value]) -> Value:
        if x.role is not Role.TEMPORARY:
            return self.elementwise(graph, x, values)
        return self.result(graph, "math.neg", [x], shape_of(x), {"inplace": 0})

    def reshape(self, graph: Graph, x: Value, values: list[Value]) -> Value:
        fitting = [shape for shape in SHAPES if prod(shape) == prod(shape_of(x))]
        shape = self.draw(st.sampled_from(fitting or [shape_of(x)]))
        return self.result(graph, "view.reshape", [x], shape, {"shape": shape})

    def transpose(self, graph: Graph, x: Value, values: list[Value]) -> Value:
        shape = shape_of(x)
        if len(shape) < 2:
            return self.result(graph, "view.alias", [x], shape)
        return self.result(graph, "view.transpose", [x], (shape[1], shape[0], *shape[2:]), {"axis0": 0, "axis1": 1})

    def binary(self, graph: Graph, x: Value, values: list[Value]) -> Value:
        fitting = [value for value in values if value.type is x.type]
        return self.result(graph, "math.add", [x, self.draw(st.sampled_from(fitting))], shape_of(x))

    def branch(self, graph: Graph, values: list[Value], condition: Value, depth: int) -> Value:
        shape = shape_of(self.draw(st.sampled_from(values)))
        value = self.result(graph, "cf.if", [condition], shape)
        assert value.node is not None
        for name in ("then", "else"):
            region = graph.add_region(value.node, name)
            inner = list(values)
            self.fill(region, inner, condition, self.draw(st.integers(0, 3)), depth + 1)
            fitting = [candidate for candidate in inner if shape_of(candidate) == shape]
            region.set_outputs([self.draw(st.sampled_from(fitting))])
        return value


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of a tensor whose sizes are all numbers."""
    return tuple([size for size in value.type.shape if isinstance(size, int)])


@st.composite
def tensor_programs(draw: st.DrawFn, max_nodes: int = 12) -> Program:
    """A model of known operators whose types fit: views, in-place writes, branches and module calls in any mixture."""
    return _TensorMaker(draw).make(max_nodes)
