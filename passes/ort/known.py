"""What a session of ONNX Runtime knows of shapes before it runs.

It plans buffers by shapes that it infers from the file, and two tensors are of one size to it only where all their sizes are numbers, or
have one name. It follows elements of shapes through a few operators, and keeps no formula: half of `width` is unknown to it, and a size
that came with an input is a name at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple, TypeAlias

from irscope.ir.dims import Dim, SymDim, symbol, unknown
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Literal
from irscope.ir.program import Program, Relation
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.spec import Known, OpCall, OpSpec, RuleError, WatchedValues
from irscope.ops.values import static_shape
from irscope.passes.inference.engine import DecidedBy, Inference, Inferred, is_plain
from irscope.passes.lifetimes.lives import read_values
from irscope.passes.ort.plan import op_type

_ARITHMETIC: Final = {"Add": 14, "Sub": 14, "Mul": 14, "Div": 1 << 31}
"""Arithmetic whose results' elements a session knows: of vectors from the version on whose schema in onnx propagates data, of scalars
always (core/graph/data_propagation)."""
_FOLLOWED: Final = {"Cast": 13, "Concat": 13, "Gather": 1, "Squeeze": 1, "Unsqueeze": 1}
"""Other operators of which it knows them, since which version. Only elements that come from a Shape are followed, never those of weights:
what is put together from both is unknown."""
_RANKED_RESHAPE: Final = 14
"""The version of Reshape from which on the number of sizes tells that of axes where the sizes are unknown."""
_SPATIAL: Final = frozenset(
    [
        *(
            "AveragePool",
            "Conv",
            "ConvInteger",
            "ConvTranspose",
            "FusedConv",
            "LpPool",
            "MaxPool",
            "NhwcConv",
            "NhwcFusedConv",
            "NhwcMaxPool",
        ),
        *("QLinearAveragePool", "QLinearConv"),
    ]
)
"""Operators that compute all sizes but those of batch and channels."""
_SCALED: Final = frozenset(["Resize", "Tile", "Upsample"])
"""Operators that compute all sizes, also where a factor is 1."""
_WITHOUT_SHAPES: Final = "ai.onnx.ml::"
"""The domain whose schemas infer element types, and no shapes."""
MOST_AXES: Final = 64
_LOOKING: Final = frozenset(["Reshape", "Slice"])
"""Operators whose elements are looked at here, not by their rules alone."""
_NAMELESS: Final = re.compile(r"_dim\d+$|^\?file\.\d+$")
"""Pattern of sizes that have no name in the file."""


def known_types(program: Program, *, sizes_come_with_inputs: bool = True, types: Inferred | None = None) -> Inferred:
    """Return the types of the main graph's values as a session knows them. Sizes that were bound are open to it if they come with the
    inputs. Small constants are not read again where `types` are what was inferred before."""
    return _Session(program, sizes_come_with_inputs, types).run()


_Sizes: TypeAlias = tuple[Dim, ...]
"""A shape in which a negative number stands for a size of which nothing is known: -1 for the first one, -2 for the next."""


class _Result(NamedTuple):
    """Inferred result of a node, with unknown sizes by their places."""

    type: Type
    state: int
    sizes: _Sizes | None
    """Its shape, where that has unknown sizes."""
    known: Known | None


class _Template(NamedTuple):
    """Inferred results of a node."""

    results: tuple[_Result, ...]
    made: int
    """Unknown sizes that its operands do not have."""
    is_followed: bool
    """True where the elements of all results come from shapes, and are known."""
    known: WatchedValues
    """Elements of the operands, which a key may tell apart by identity, so that they must stay."""


_ANY: Final = unknown("any", 0, None)
"""Stands for every unknown size in the types that are found: which of them are equal is a matter of the inference."""


class _Session(Inference):
    """Unknown sizes differ from node to node, of a deep model there are very many: a value has them as numbers below zero, and only where
    rules are asked as symbols."""

    def __init__(self, program: Program, is_open: bool, types: Inferred | None = None) -> None:
        super().__init__(program)
        self._read_before = types
        self._opened: dict[Dim, int] = {}
        """Sizes that nothing is known of, by the symbol that rules see."""
        self._symbols: dict[int, Dim] = {}
        self._made = 0
        """Number of these symbols."""
        self._sizes: dict[Value, _Sizes] = {}
        """Shapes with unknown sizes."""
        self._states: dict[Value, int] = {}
        """Further parts of a value's key."""
        self._state_numbers: dict[tuple[Type, bool, Role], int] = {}
        self._templates: dict[Hashable, _Template] = {}
        self._names: dict[str, SymDim] = {}
        """Symbol of each size that the file has a name for, by the text of the size."""
        self._kept: set[SymDim] = set()
        self._followed: set[Value | None] = set()
        """Values whose elements come from shapes, and are known."""
        for value in program.graph.inputs:
            declared = program.declared.get(value, value.type) if is_open else value.type
            self.found.types[value] = self._declared(declared)
            self._fold(value)

    def run(self, nodes: Callable[[Graph], Iterable[Node]] = iter) -> Inferred:
        """Only the main graph."""
        self.graph(self.program.graph, nodes)
        return self.found

    def _know_weights(self, graph: Graph) -> None:
        if self._read_before is None:
            super()._know_weights(graph)
            return
        before = self._read_before.values
        for weight in graph.weights:
            known = before.get(weight)
            if known is not None and isinstance(graph.data.get(weight), Literal):
                self.found.values[weight] = known

    def _found(self, node: Node, types: list[Type]) -> None:
        super()._found(node, types)
        for output in node.outputs:
            inferred = self.found.types[output]
            if isinstance(inferred, TensorType):
                self.found.types[output] = self._merged(inferred, self.program.declared.get(output))

    # -- nodes that are like others ----------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        if self.depth or is_plain(node):
            super().node(node)
            return
        read = [value for value in read_values(node) if value in self._sizes]
        self._spell_out(read)
        super().node(node)
        for value in (*read, *node.outputs):
            self._fold(value)

    def _like_another(self, node: Node) -> None:
        """Do as in any inference, but that unknown sizes are told apart by their places, and elements only where rules look at them."""
        if not is_plain(node):
            self.node(node)
            return
        places: dict[Dim, int] = {}
        key = self._key_by_places(node, places)
        template = self._templates.get(key)
        values = self.found.values
        if template is None:
            known = [None if value is None else values.get(value) for value in node.inputs]
            closer = None if key is None else (key, *map(id, known))
            template = self._templates.get(closer)
            if template is None:
                self._first(node, key, closer, places)
                return
        types, states = self.found.types, self._states
        sizes = [*places]
        for _ in range(template.made):
            self._made += 1
            sizes.append(~self._made)
        for output, (type_, state, shape, elements) in zip(node.outputs, template.results, strict=True):
            types[output], states[output] = type_, state
            if shape is not None:
                self._sizes[output] = tuple([sizes[~dim] if dim.__class__ is int and dim < 0 else dim for dim in shape])
            if elements is not None:
                values[output] = elements
        if template.is_followed:
            self._followed.update(node.outputs)

    def _first(self, node: Node, key: Hashable, closer: Hashable, places: dict[Dim, int]) -> None:
        """Infer a node, and keep what was found for those like it."""
        read = [value for value in node.inputs if value in self._sizes]
        self._spell_out(read)
        remarks, noted = self._remarks, len(self.sizes)
        super().node(node)
        for value in (*read, *node.outputs):
            assert value is not None
            self._fold(value)
        if key is None or remarks != self._remarks or noted != len(self.sizes):
            return
        before, results = len(places), []
        for output in node.outputs:
            sizes = self._sizes.get(output)
            pattern = None if sizes is None else _pattern(sizes, places)
            results.append(_Result(self.found.types[output], self._states[output], pattern, self.found.values.get(output)))
        is_followed = all(value in self._followed for value in node.outputs)
        looks = self._looked.is_looked_at or op_type(node.source) in _LOOKING
        self._templates[closer if looks else key] = _Template(tuple(results), len(places) - before, is_followed, self._looked)

    def _key_by_places(self, node: Node, places: dict[Dim, int]) -> Hashable:
        """Return the key that determines the results of a node, apart from elements; None where that cannot be a key. Notes the places of
        unknown sizes."""
        attrs = self._attrs.get(id(node.attrs), 0)
        if attrs == 0:
            attrs = self._attrs_number(node.attrs)
        if attrs is None:
            return None
        key: list[Hashable] = [node.op, node.source, len(self.sizes), attrs]
        states, sizes = self._states, self._sizes
        for value in node.inputs:
            if value is None:
                key.append(None)
                continue
            state = states.get(value)
            key.append(self._state(value) if state is None else state)
            shape = sizes.get(value)
            if shape is not None:
                key.append(_pattern(shape, places))
        declared = self.program.declared
        key.extend([declared.get(output) for output in node.outputs])
        return tuple(key)

    def _state(self, value: Value) -> int:
        """Return a number for what a key tells of a value, its unknown sizes and its elements aside."""
        kind = self.found.type_of(value), value in self._followed, value.role
        number = self._states[value] = self._state_numbers.setdefault(kind, len(self._state_numbers))
        return number

    def _fold(self, value: Value) -> None:
        """Put numbers in the place of symbols for unknown sizes."""
        type_ = self.found.types.get(value)
        if isinstance(type_, TensorType) and type_.shape is not None and any(dim in self._opened for dim in type_.shape):
            self._sizes[value] = tuple([self._opened.get(dim, dim) for dim in type_.shape])
            shape = tuple([_ANY if dim in self._opened else dim for dim in type_.shape])
            self.found.types[value] = tensor(type_.dtype, shape, type_.device)
        self._state(value)

    def _spell_out(self, values: Iterable[Value | None]) -> None:
        """Give values types with a symbol for each unknown size, as rules want them."""
        for value in values:
            type_ = self.found.type_of(value)
            if value is not None and isinstance(type_, TensorType):
                shape = tuple([self._symbol(dim) if isinstance(dim, int) and dim < 0 else dim for dim in self._sizes[value]])
                self.found.types[value] = tensor(type_.dtype, shape, type_.device)

    def _symbol(self, number: int) -> Dim:
        found = self._symbols.get(number)
        if found is None:
            found = self._symbols[number] = unknown(f"u{~number}", 0, None)
            self._opened[found] = number
        return found

    # -- what rules ask ----------------------------------------------------------------------------------------

    def fresh(self, reason: str, decided_by: DecidedBy, lo: int | None, hi: int | None) -> Dim:
        """Return a new unknown size: a session has no reasons, and numbers that a user gave such sizes are not its own."""
        if lo is not None and hi is not None and lo > hi:
            raise RuleError(f"{reason}, and would have to be at least {lo} and at most {hi}")
        self._made += 1
        number = ~self._made
        made = self._symbols[number] = unknown(f"u{self._made}", lo, hi)
        self._opened[made] = number
        return made

    def assume(self, left: Dim, right: Dim, why: str, relation: Relation = Relation.EQUAL) -> None:
        """Ignore assumptions: they change no type."""

    # -- operators ---------------------------------------------------------------------------------------------

    def _infer(self, node: Node, spec: OpSpec) -> list[Type]:
        name = op_type(node.source)
        if name == "Reshape" and not self._knows_values(node):
            target = static_shape(self.found.type_of(node.inputs[1]))
            given = self.found.type_of(node.inputs[0])
            if target is not None and len(target) == 1 and isinstance(given, TensorType) and opset_of(node) >= _RANKED_RESHAPE:
                # Nothing but the number of axes is known: no symbols for sizes that are asked for.
                return [tensor(given.dtype, tuple([self._open() for _ in range(target[0])]))]
        inferred = super()._infer(node, spec)
        if node.source.startswith(_WITHOUT_SHAPES):
            return [tensor(type_.dtype, None) if isinstance(type_, TensorType) else type_ for type_ in inferred]
        if name == "Reshape" and not self._knows_values(node):
            is_old = opset_of(node) < _RANKED_RESHAPE
            return [tensor(type_.dtype, None) if isinstance(type_, TensorType) and is_old else self._all_open(type_) for type_ in inferred]
        left = self._axis_left_open(node) if name == "Reshape" else None
        if left is not None:
            return [self._without(type_, (left,)) for type_ in inferred]
        inferred = [self._without(type_, self._computed_axes(name, node)) for type_ in inferred]
        return [self._sliced(node, type_) for type_ in inferred] if name == "Slice" else inferred

    def _sliced(self, node: Node, type_: Type) -> Type:
        """Sizes that a Slice cuts are known where they were numbers, and where all its operands are."""
        given = [self.found.values.get(value) for value in node.inputs[1:] if value is not None]
        numbers = [known for known in given if known is not None and known.dtype != object]
        whole = self.found.type_of(node.inputs[0]).shape
        if len(numbers) < len(given) or not isinstance(type_, TensorType) or type_.shape is None or whole is None:
            return self._all_open(type_)
        axes = [int(axis) % len(whole) for axis in numbers[2].flat] if len(numbers) > 2 else range(len(numbers[0]) if numbers else 0)
        cut = {axis for axis in axes if isinstance(whole[axis], SymDim)}
        return tensor(type_.dtype, tuple(self._open() if axis in cut else dim for axis, dim in enumerate(type_.shape)), type_.device)

    def _knows_values(self, node: Node) -> bool:
        """Return whether the elements of operand 1, the sizes, are known, or there is no such operand, since they are attributes."""
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return True
        value = node.inputs[1]
        known = self.found.values.get(value)
        return (known is not None and known.dtype != object) or value.role in (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)

    def _axis_left_open(self, node: Node) -> int | None:
        """Return the axis of which a Reshape asks what is left (-1), where that is not a number: the schema divides numbers, so that a name
        does not cancel. Sizes that it copies (0) do."""
        known = self.found.values.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
        asked = [] if known is None or known.dtype == object else known.ravel().tolist()
        if -1 not in asked:
            return None
        given = self.found.type_of(node.inputs[0]).shape or ()
        copied = {axis for axis, size in enumerate(asked) if size == 0}
        is_open = any(isinstance(dim, SymDim) and axis not in copied for axis, dim in enumerate(given))
        return asked.index(-1) if is_open else None

    def _computed_axes(self, name: str, node: Node) -> range | tuple[int, ...]:
        """Return the axes of results that schemas compute only from numbers."""
        if name in _SCALED:
            return range(MOST_AXES)
        if name in _SPATIAL:
            return range(1 if node.attrs.get("channels_last") else 2, MOST_AXES)
        axis = node.attrs.get("axis", node.attrs.get("dim"))
        if name in ("Concat", "Split") and isinstance(axis, int):
            return (axis,)
        return ()

    def _without(self, type_: Type, axes: Iterable[int]) -> Type:
        if not isinstance(type_, TensorType) or type_.shape is None or type_.is_static:
            return type_
        rank = len(type_.shape)
        computed = {axis % rank for axis in axes if -rank <= axis < rank}
        shape = (self._open() if place in computed and isinstance(dim, SymDim) else dim for place, dim in enumerate(type_.shape))
        return tensor(type_.dtype, tuple(shape), type_.device)

    def _all_open(self, type_: Type) -> Type:
        if not isinstance(type_, TensorType) or type_.shape is None:
            return type_
        return tensor(type_.dtype, tuple(self._open() for _ in type_.shape), type_.device)

    def _evaluate(self, node: Node, spec: OpSpec, call: OpCall, inferred: list[Type]) -> None:
        name = op_type(node.source)
        if name == "Shape":
            type_ = call.types[0]
            if type_ is None or type_.shape is None or any(isinstance(dim, SymDim) for dim in type_.shape):
                return
        elif name != "Constant" and not self._is_followed(name, node, inferred):
            return
        self._looked.is_looked_at = True  # the key does not tell which of them are known
        super()._evaluate(node, spec, call, inferred)
        if name != "Constant":
            self._followed.update(node.outputs)

    def _is_followed(self, name: str, node: Node, inferred: list[Type]) -> bool:
        number = opset_of(node)
        if name in _ARITHMETIC:
            is_known = number >= _ARITHMETIC[name] or all(one.shape == () for one in inferred)
        else:
            is_known = name in _FOLLOWED and number >= _FOLLOWED[name] and not (name == "Cast" and inferred[0].shape == ())
        operands = node.inputs if name in _ARITHMETIC or name == "Concat" else node.inputs[:1]
        return is_known and all(value in self._followed for value in operands)

    def _simple(self, dim: Dim) -> Dim:
        """Return a size if it is a number or has a name, else an unknown one: a session keeps no formula of those either."""
        if not isinstance(dim, SymDim) or dim in self._opened or dim in self._kept:
            return dim
        return self._open()

    def _open(self) -> Dim:
        return self.fresh("a session knows only numbers and names of sizes", "", 0, None)

    def _declared(self, type_: Type) -> Type:
        if not isinstance(type_, TensorType) or type_.shape is None or type_.is_static:
            return type_
        return tensor(type_.dtype, tuple(map(self._named, type_.shape)), type_.device)

    def _named(self, dim: Dim) -> Dim:
        if not isinstance(dim, SymDim):
            return dim
        text = str(dim)
        if _NAMELESS.search(text):
            return self._open()
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = symbol(f"n{len(self._names)}")
            self._kept.add(name)
        return name

    def _merged(self, inferred: TensorType, declared: Type | None) -> Type:
        """Return the merged type: a number goes before a name, and what the file says before what was inferred."""
        mine = None if inferred.shape is None else tuple(map(self._simple, inferred.shape))
        said = self._declared(declared).shape if isinstance(declared, TensorType) else None
        if mine is None or said is None or len(mine) != len(said):
            shape = said if mine is None else mine
        else:
            shape = tuple(one if isinstance(one, int) or _is_unknown(other) else other for one, other in zip(mine, said, strict=True))
        return tensor(inferred.dtype, shape, inferred.device)


def _pattern(sizes: _Sizes, places: dict[Dim, int]) -> _Sizes:
    """Return a shape with unknown sizes by their places: -1 for the first that was met, -2 for the next."""
    return tuple([places.setdefault(dim, ~len(places)) if dim.__class__ is int and dim < 0 else dim for dim in sizes])


def opset_of(node: Node) -> int:
    """Return the version of an ONNX operator; 0 for one without."""
    version = node.source.rpartition("@")[2]
    return int(version) if version.isdecimal() else 0


def _is_unknown(dim: Dim) -> bool:
    return isinstance(dim, SymDim) and dim.is_unknown
