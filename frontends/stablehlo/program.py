"""The graph of a module: functions are put in place of their calls, regions become regions, operations those of irscope."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from irscope.budget import claim, spend
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.stablehlo.model import (
    Attribute,
    Dense,
    Function,
    Module,
    Number,
    Operation,
    Place,
    Region,
    bytes_per_element,
    is_floating,
    quoted,
    refuse,
    type_of,
)
from irscope.ir.dims import Dim, SymDim, symbol
from irscope.ir.dtypes import STRUCT_CODES, DType
from irscope.ir.graph import Attr, Graph, Names, Node, Role, Value
from irscope.ir.places import Blob, Literal, Loc, Scope
from irscope.ir.program import XLA, Program
from irscope.ir.types import UNKNOWN_TENSOR, TensorType, Type, tensor

_DEEPEST_CALLS: Final = 100
_SMALL: Final = 64
"""Elements up to which a constant's values stand in the graph: sizes are computed from such ones."""
_NOT_IN_NAMES: Final = re.compile(r"\W+")
_LONGEST_TEXT: Final = 200
_MOST_ITEMS: Final = 64
_WRAPPER: Final = re.compile(r"^(?:jit|pjit|jvp|vmap|transpose|remat|checkpoint|custom_jvp|custom_vjp|xla_call|pmap|shard_map)\((.*)\)$")
_FRAMES: Final = frozenset({"", "main", "<lambda>", "<unnamed wrapped function>", "closed_call", "core_call", "remat_call", "pjit", "jit"})


class Builder:
    """Makes the graph. Names of values are looked up in the region that is read, then around it."""

    def __init__(self, module: Module, sink: DiagnosticSink, where: str) -> None:
        self.module = module
        self.sink = sink
        self.where = where
        self.graph = Graph()
        self.symbols: dict[str, SymDim] = {}
        self.foreign: dict[str, int] = {}
        self.mesh: dict[str, int] = {axis: size for axes in module.meshes.values() for axis, size in axes.items()}
        self.cuts: dict[Value, tuple[tuple[str, ...], ...]] = {}
        """The cuts of arguments, results and values that the program constrains."""
        self._constants: dict[object, Value] = {}
        self._scopes: dict[tuple[Scope, str], Scope] = {}
        self._locs: dict[Place, Loc | None] = {}

    def program(self, name: str = "") -> Program:
        """Return the program of a function, of `main` where none is named."""
        function = self._entry(name)
        arguments: dict[str, Value] = {}
        body, names = function.body, Names()
        labels, sizes = self._said_inside(body)
        for index, (argument, text) in enumerate(zip(body.arguments, body.types, strict=True)):
            label = body.places[index].name if index < len(body.places) else ""
            label = names.unique(label or labels.get(argument, "") or argument.lstrip("%"))
            type_ = type_of(text) or UNKNOWN_TENSOR
            if type_.shape is not None and not type_.is_static:
                type_ = tensor(type_.dtype, [self._size(size, sizes, argument, axis, label) for axis, size in enumerate(type_.shape)])
            arguments[argument] = self.graph.add_input(type_, label)
        level = Level(self, self.graph, arguments, self.graph.scope, 0)
        self.graph.set_outputs(level.run(body))
        for name, count in sorted(self.foreign.items()):
            self.sink.warn("IRS170", f"the operation {name!r} is not known ({count}x); its cost is unknown", about=name)
        made = Program(self.graph, format="stablehlo", path=self.where, traits=XLA)
        made.symbols = dict(self.symbols)
        made.uncounted = "a program of JAX does not tell which of its arguments are parameters"
        made.aliased = _aliased(function, self.graph)
        self._share(function)
        made.mesh, made.cuts = self.mesh if self.cuts else {}, self.cuts
        made.metadata = {key: text for key, text in self._facts(function).items() if text}
        return made

    def _share(self, function: Function) -> None:
        """Note how arguments and results are cut. What is not understood is a warning, and counts as whole."""
        unread = 0
        for value, attributes in zip(
            (*self.graph.inputs, *self.graph.outputs), (*function.argument_attributes, *function.result_attributes), strict=False
        ):
            said = attributes.get("sdy.sharding", attributes.get("mhlo.sharding"))
            if said is not None:
                cut = _cut(str(said), self.mesh)
                unread += cut is None
                self.cuts[value] = cut or ()
        if unread:
            message = f"how {unread} arguments and results are sharded is not understood: they count as whole on each device"
            self.sink.warn("IRS171", message, hint="parts of an axis of the mesh are not read; name whole axes", about="sharding")

    def _said_inside(self, body: Region) -> tuple[dict[str, str], dict[tuple[str, int], str]]:
        """Return names of arguments and of open sizes: an export of shapes that are symbols says both in the function that `main` calls."""
        labels: dict[str, str] = {}
        sizes: dict[tuple[str, int], str] = {}
        asked: dict[str, tuple[str, int]] = {}
        for operation in body.operations:
            if operation.short == "get_dimension_size":
                axis = integers(operation.attributes.get("dimension", operation.attributes.get("dim")))
                asked[operation.results[0]] = (operation.operands[0], axis[0] if axis else 0)
            elif operation.short == "call" and (callee := self.module.functions.get(operation.callee)) is not None:
                for given, place, said in zip(operation.operands, callee.body.places, callee.argument_attributes, strict=False):
                    labels[given] = place.name
                    if given in asked and isinstance(size := said.get("jax.global_constant"), str):
                        sizes[asked[given]] = size
        return labels, sizes

    def _size(self, size: Dim, sizes: Mapping[tuple[str, int], str], argument: str, axis: int, label: str) -> Dim:
        """Return the symbol for an open size of an argument; sizes of one name are one symbol."""
        if not isinstance(size, SymDim):
            return size
        name = _NOT_IN_NAMES.sub("_", sizes.get((argument, axis), f"{label}_{axis}")).strip("_") or f"size_{axis}"
        name = name if name[0].isalpha() else f"n{name}"
        return self.symbols.setdefault(name, symbol(name))

    def _entry(self, name: str) -> Function:
        functions = self.module.functions
        found = functions.get(name or "main")
        if found is None and not name:
            public = [one for one in functions.values() if one.is_public]
            found = public[0] if len(public) == 1 else None
        if found is None:
            listed = ", ".join(quoted(one) for one in list(functions)[:5]) or "none"
            raise refuse(f"there is no function {quoted(name or 'main')}; there are {listed}", self.where)
        return found

    def _facts(self, function: Function) -> dict[str, str]:
        attributes = self.module.attributes
        devices = [attributes.get(f"mhlo.num_{what}", 1) for what in ("partitions", "replicas")]
        count = 1
        for number in devices:
            count *= number if isinstance(number, int) else 1
        donated = [str(index) for index, one in enumerate(function.argument_attributes) if _is_donated(one)]
        return {
            "producer": "StableHLO" + (f" {self.module.version}" if self.module.version else ""),
            "devices": str(count) if count > 1 else "",
            "donated": ", ".join(donated),
        }

    def scope_of(self, around: Scope, place: Place, drop_last: bool = True) -> Scope:
        """Return the scope that the name of an operation says: `jit(f)/jvp(Model)/Dense_0/dot_general` is `Model/Dense_0`."""
        key = (around, place.name if drop_last else f"{place.name}/")
        found = self._scopes.get(key)
        if found is None:
            parts = _parts(place.name)
            is_whole = bool(parts) and parts[0].startswith(("jit(", "pjit(", "pmap("))
            if is_whole:
                parts = parts[1:]
            found = self.graph.scope if is_whole else around
            for part in parts[:-1] if drop_last else parts:
                inner = _unwrapped(part)
                if inner not in _FRAMES and "->" not in inner:  # which an einsum writes
                    found = found.child(inner)
            self._scopes[key] = found
        return found

    def loc_of(self, place: Place) -> Loc | None:
        """Return the place in the source."""
        if not place.file:
            return None
        found = self._locs.get(place)
        if found is None:
            found = self._locs[place] = Loc(place.file, place.line)
        return found

    def constant(self, dense: Dense) -> Value:
        """Return the value of a constant; equal ones are one value."""
        type_ = type_of(dense.type)
        if type_ is None or not type_.is_static or type_.shape is None:
            raise refuse(f"a constant of type {quoted(dense.type)}", self.where)
        data = self._bytes_of(dense)
        key: object = (dense.type, dense.values, data, dense.resource) if data is None or len(data) <= _SMALL * 8 else id(dense)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.graph.add_weight(type_, None, Role.CONSTANT, self._payload(dense, type_, data))
        return found

    def _bytes_of(self, dense: Dense) -> bytes | None:
        if dense.resource:
            read = self.module.resources.get(dense.resource)
            return None if read is None else read()
        return dense.data

    def _payload(self, dense: Dense, type_: TensorType, data: bytes | None) -> Literal | Blob | None:
        count = type_.numel
        if not isinstance(count, int):
            return None
        if data is not None:
            if type_.dtype is DType.BOOL and len(data) == (count + 7) // 8 != count:
                data = bytes((data[at >> 3] >> (at & 7)) & 1 for at in range(count))
            width = bytes_per_element(type_.dtype)
            if len(data) < count * width and len(data) == width:
                claim(count * width, "constants")
                data = data * count
            if len(data) != count * width:
                raise refuse(f"a constant of {len(data)} bytes is said to be {type_}", self.where)
            numbers = unpacked(data, type_.dtype) if count <= _SMALL else None
            return Blob(data) if numbers is None else Literal(numbers)
        values = dense.values
        if not values:
            return Literal(()) if count == 0 else None
        if is_floating(type_.dtype) and all(isinstance(one, int) and not isinstance(one, bool) for one in values):
            values = tuple(_from_bits(int(one.real), type_.dtype) for one in values)
        if len(values) == 1 and count != 1:
            if count > _SMALL:
                return None
            values = values * count
        if len(values) != count:
            raise refuse(f"a constant of {len(values)} elements is said to be {type_}", self.where)
        return Literal(values)


class Level:
    """A body that is read into a graph: the function, a function that it calls, or a region."""

    def __init__(
        self, builder: Builder, graph: Graph, values: dict[str, Value], scope: Scope, depth: int, outer: Level | None = None
    ) -> None:
        self.builder = builder
        self.graph = graph
        self.values = values
        self.scope = scope
        self.depth = depth
        self.outer = outer
        self.loc: Loc | None = None if outer is None else outer.loc
        """Where the function around is called from, for operations without a place of their own."""

    def find(self, name: str) -> Value:
        """Return the value that a name stands for."""
        level: Level | None = self
        while level is not None:
            found = level.values.get(name)
            if found is not None:
                return found
            level = level.outer
        if "#" not in name:
            return self._first_of(name)
        if name.endswith("#0"):
            return self.find(name[:-2])
        raise refuse(f"nothing makes {quoted(name)}", self.builder.where)

    def _first_of(self, name: str) -> Value:
        level: Level | None = self
        while level is not None:
            if (found := level.values.get(f"{name}#0")) is not None:
                return found
            level = level.outer
        raise refuse(f"nothing makes {quoted(name)}", self.builder.where)

    def run(self, region: Region) -> list[Value]:
        """Read the operations; what the last one returns."""
        for operation in region.operations:
            spend(20, "operations")
            if operation.short == "return":
                return [self.find(name) for name in operation.operands]
            self.lower(operation)
        return []

    def lower(self, operation: Operation) -> None:
        """Read one operation."""
        rule = RULES.get(operation.short) if operation.name.partition(".")[0] in _DIALECTS else None
        use = Use(self, operation)
        try:
            made = rule(use) if rule is not None else None
            if made is None:
                made = foreign(use)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
            raise use.wrong("has operands or attributes that do not fit it") from error
        results = [made] if isinstance(made, Value) else list(made)
        if len(results) < len(operation.results):
            raise refuse(f"{operation.name} gives {len(results)} results, not {len(operation.results)}", self.builder.where)
        for name, value in zip(operation.results, results, strict=False):
            self.values[name] = value

    def inline(self, region: Region, given: Sequence[Value], scope: Scope, loc: Loc | None = None) -> list[Value]:
        """Put the operations of a body here, with these arguments."""
        if self.depth >= _DEEPEST_CALLS:
            raise refuse("functions call one another too deeply, or themselves", self.builder.where)
        if len(region.arguments) != len(given):
            raise refuse(f"a body takes {len(region.arguments)} values and is given {len(given)}", self.builder.where)
        inner = Level(self.builder, self.graph, dict(zip(region.arguments, given, strict=True)), scope, self.depth + 1, self)
        inner.loc = loc or self.loc
        return inner.run(region)

    def inside(self, graph: Graph, scope: Scope) -> Level:
        """Return a level for a region of a node."""
        return Level(self.builder, graph, {}, scope, self.depth + 1, self)


_DIALECTS: Final = frozenset({"builtin", "stablehlo", "chlo", "mhlo", "func", "call", "return", "sdy", "arith", "shape", "tensor"})


class Use:
    """One operation while it is lowered: its operands and attributes, and ways to add nodes."""

    def __init__(self, level: Level, operation: Operation) -> None:
        self.level = level
        self.builder = level.builder
        self.operation = operation
        self.attributes = operation.attributes

    @property
    def operands(self) -> list[Value]:
        return [self.level.find(name) for name in self.operation.operands]

    def operand(self, index: int) -> Value:
        """Return an operand that must be there."""
        names = self.operation.operands
        if index >= len(names):
            raise self.wrong(f"has {len(names)} operands")
        return self.level.find(names[index])

    def types(self) -> list[Type]:
        """Return the types of the results, as the file has them."""
        return [type_of(text) or UNKNOWN_TENSOR for text in self.operation.result_types]

    def type(self) -> TensorType:
        """Return the type of the only result."""
        types = self.types()
        if len(types) != 1 or not isinstance(types[0], TensorType):
            raise self.wrong("has not the result it should have")
        return types[0]

    def shape(self) -> tuple[Dim, ...] | None:
        """Return the sizes of the result where they are numbers."""
        type_ = self.type()
        return type_.shape if type_.is_static else None

    def numbers(self, *names: str) -> tuple[int, ...]:
        """Return a list of integers: of an attribute, or of an entry of a dictionary; empty where there is none."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None:
                return integers(value)
        return ()

    def number(self, *names: str, default: int = 0) -> int:
        found = self.numbers(*names)
        return found[0] if found else default

    def entries(self, *names: str) -> Mapping[str, Attribute]:
        """Return a dictionary: of dimension numbers. Bytecode has its entries among the attributes themselves."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, dict):
                return value
        return self.attributes

    def wrong(self, what: str) -> Exception:
        return refuse(f"{self.operation.name} {what}", self.builder.where)

    def add(
        self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Attr] | None = None, types: Sequence[Type] | None = None
    ) -> Node:
        """Add a node; its results have the types that the file gives."""
        operation = self.operation
        place = operation.place
        made = self.level.graph.append(
            op,
            inputs,
            self.types() if types is None else types,
            attrs or {},
            scope=self.builder.scope_of(self.level.scope, place),
            loc=self.builder.loc_of(place) or self.level.loc,
            source=f"{operation.name.replace('.', '::', 1)}",
        )
        return made

    def one(self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Attr] | None = None, type_: Type | None = None) -> Value:
        """Add a node with one result."""
        return self.add(op, inputs, attrs, None if type_ is None else (type_,)).outputs[0]

    def shared(self, value: Value, type_: Type | None, said: Attribute, own: frozenset[str] = frozenset()) -> Value:
        """Return what one device has of a value, or the whole of which each device has that. `said` is how it is cut, without what `own`
        axes of the mesh cut."""
        if type_ is not None and type_ is not value.type and isinstance(type_, TensorType):
            value = self.one("collective.part", [value], {"shape": type_.shape or ()}, type_)
        if (cut := _cut(str(said), self.builder.mesh, is_open=True)) is not None and value.node is not None:
            self.builder.cuts[value] = tuple(tuple(axis for axis in axes if axis not in own) for axes in cut)
        return value

    def sizes_or(self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Attr], shape_operand: Value | None = None) -> Value:
        """Add a node whose sizes are an attribute where they are numbers, else an operand."""
        shape = self.shape()
        if shape is not None:
            return self.one(op, inputs, {**attrs, "shape": shape})
        if shape_operand is None:
            return self.one(op, inputs, {**attrs, "shape": self.type().shape or ()})
        return self.one(op, [*inputs, shape_operand], attrs)


# Constants and attributes as numbers.


def unpacked(data: bytes, dtype: DType) -> tuple[Number, ...] | None:
    """Return the elements of packed data; None for types that Python has no numbers of."""
    if dtype is DType.BF16:
        return tuple(struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2))
    code = STRUCT_CODES.get(dtype)
    if code is None or len(data) % struct.calcsize(code):
        return None
    return tuple(one[0] for one in struct.iter_unpack(f"<{code}", data))


def _from_bits(bits: int, dtype: DType) -> float:
    """Return a float that the text spells by its bits (infinities, and what is no number) or as a whole number."""
    width = bytes_per_element(dtype)
    if dtype not in (DType.F16, DType.BF16, DType.F32, DType.F64) or not 0xFF < bits < 1 << (8 * width):
        return float(bits)
    found = unpacked(bits.to_bytes(width, "little"), dtype)
    return float(found[0].real) if found else float(bits)


def integers(value: Attribute) -> tuple[int, ...]:
    """Return the integers in an attribute, flat."""
    if isinstance(value, bool | int):
        return (int(value),)
    if isinstance(value, Dense):
        type_ = type_of(value.type)
        found = value.values
        if value.data is not None and type_ is not None:
            found = unpacked(value.data, type_.dtype) or ()
        count = type_.numel if type_ is not None and isinstance(type_.numel, int) else len(found)
        numbers = tuple(int(one.real) for one in found)
        return numbers * count if len(numbers) == 1 and count <= _MOST_ITEMS else numbers
    if isinstance(value, tuple):
        return tuple(number for item in value for number in integers(item))
    if isinstance(value, str):
        return tuple(int(number) for number in re.findall(r"-?\b\d+\b", value))
    return ()


def _aliased(function: Function, graph: Graph) -> tuple[tuple[int, int], ...]:
    """Return the arguments that a result takes the place of: as it is said, and donated ones with the first free result of their type."""
    said = [(index, one.get("tf.aliasing_output")) for index, one in enumerate(function.argument_attributes)]
    pairs = {index: result for index, result in said if isinstance(result, int)}
    taken = set(pairs.values())
    free: dict[Type, list[int]] = {}
    """The results of a type that are still free, the last first."""
    for place in range(len(graph.outputs) - 1, -1, -1):
        if place not in taken:
            free.setdefault(graph.outputs[place].type, []).append(place)
    for index, (one, value) in enumerate(zip(function.argument_attributes, graph.inputs, strict=False)):
        if one.get("jax.buffer_donor") and free.get(value.type):
            pairs[index] = free[value.type].pop()
    return tuple(pairs.items())


_AXES: Final = re.compile(r"\{([^{}]*)\}")
_TILES: Final = re.compile(r"devices=\[(\d{1,9}(?:,\d{1,9})*)\]")


def _cut(text: str, mesh: dict[str, int], is_open: bool = False) -> tuple[tuple[str, ...], ...] | None:
    """Return the axes of the mesh that cut each axis: `#sdy.sharding<@mesh, [{}, {"model"}]>`, or `{devices=[4,2]<=[8]}`, whose axes of the
    mesh have no names but their places; None for what is not understood. `is_open` takes what may be cut further as it is."""
    if text.startswith(("#sdy.sharding", "<@")):
        listed = text[text.find("[") : text.rfind("]") + 1]
        cut = tuple(tuple(re.findall(r'"([^"]*)"', one)) for one in _AXES.findall(listed))
        is_part = ":(" in listed  # of an axis of the mesh
        return None if is_part or ("?" in listed and not is_open) or not mesh.keys() >= {*chain(*cut)} else cut
    if "replicated" in text or "maximal" in text:
        return ()
    tiles = _TILES.search(text)
    if tiles is None:
        return None
    counts = [int(one) for one in tiles[1].split(",")]
    if "last_tile_dim" in text or "last_tile_dims" in text:
        counts.pop()
    mesh.update({f"axis{place}x{count}": count for place, count in enumerate(counts) if count > 1})
    return tuple((f"axis{place}x{count}",) if count > 1 else () for place, count in enumerate(counts))


def _is_donated(attributes: Mapping[str, Attribute]) -> bool:
    return "tf.aliasing_output" in attributes or "jax.buffer_donor" in attributes


def _parts(name: str) -> list[str]:
    """Pieces of a path, at slashes outside of parentheses."""
    if "/" not in name:
        return [name]
    if "(" not in name:
        return name.split("/")
    parts: list[str] = []
    depth = start = 0
    for at, sign in enumerate(name):
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif sign == "/" and depth == 0:
            parts.append(name[start:at])
            start = at + 1
    parts.append(name[start:])
    return parts


def _unwrapped(part: str) -> str:
    """Return what a transformation is of: `transpose(jvp(Dense_0))` is of Dense_0."""
    while (match := _WRAPPER.match(part)) is not None:
        part = match[1]
    return part.rstrip(":")


# What is not known stays under its own name.


def foreign(use: Use) -> Sequence[Value]:
    """Add the operation as it is, with the types that the file gives."""
    operation = use.operation
    name = _NOT_IN_NAMES.sub("_", operation.short)
    dialect = _NOT_IN_NAMES.sub("_", operation.name.rpartition(".")[0] or "mlir")
    label = f"{dialect}.{name}"
    if operation.short in ("custom_call", "composite") and operation.callee:
        label = f"{operation.short}.{_NOT_IN_NAMES.sub('_', operation.callee)[:_LONGEST_TEXT]}"
    use.builder.foreign[label] = use.builder.foreign.get(label, 0) + 1
    attrs: dict[str, Attr] = {}
    for key, value in operation.attributes.items():
        clean = _NOT_IN_NAMES.sub("_", key)
        if clean.isidentifier() and isinstance(value, bool | int | float | str) and len(str(value)) <= _LONGEST_TEXT:
            attrs[clean] = value
    return use.add(label, use.operands, attrs).outputs


Rule = Callable[[Use], "Value | Sequence[Value] | None"]
RULES: dict[str, Rule] = {}
"""Rules by the operation's name without its dialect; `operators` and `control` fill it."""
