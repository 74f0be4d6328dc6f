"""What a session of ONNX Runtime knows of shapes before it runs.

It plans buffers by shapes that it infers from the file, and two tensors are of one size to it only where all their sizes are numbers, or
have one name. It follows elements of shapes through a few operators, and keeps no formula: half of `width` is unknown to it, and a size
that came with an input is a name at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from irscope.ir.dims import Dim, SymDim, symbol
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.spec import OpCall, OpSpec
from irscope.passes.inference.engine import Inference, Inferred
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
    ["AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv", "Resize", "Upsample"]
)
"""Operators that compute all sizes but those of batch and channels."""
MOST_AXES: Final = 64
_NAMELESS: Final = re.compile(r"_dim\d+$|^\?file\.\d+$")
"""What a size is called that has no name in the file."""


def known_types(program: Program, *, sizes_come_with_inputs: bool = True) -> Inferred:
    """The types of the main graph's values as a session knows them. Sizes that were bound are open to it if they come with the inputs."""
    return _Session(program, sizes_come_with_inputs).run()


class _Session(Inference):
    def __init__(self, program: Program, is_open: bool) -> None:
        super().__init__(program)
        self.keeps_answers = False
        self._names: dict[str, SymDim] = {}
        """What stands for each size that the file has a name for, by the text of the size."""
        self._kept: set[SymDim] = set()
        self._followed: set[Value | None] = set()
        """Values whose elements come from shapes, and are known."""
        for value in program.graph.inputs:
            declared = program.declared.get(value, value.type) if is_open else value.type
            self.found.types[value] = self._declared(declared)

    def run(self, nodes: Callable[[Graph], Iterable[Node]] = iter) -> Inferred:
        """Only the main graph."""
        self.graph(self.program.graph, nodes)
        return self.found

    def node(self, node: Node) -> None:
        super().node(node)
        for output in node.outputs:
            inferred = self.found.types[output]
            if isinstance(inferred, TensorType):
                self.found.types[output] = self._merged(inferred, self.program.declared.get(output))

    def _infer(self, node: Node, spec: OpSpec) -> list[Type]:
        name = op_type(node.source)
        inferred = super()._infer(node, spec)
        if name == "Reshape" and not self._knows_values(node):
            is_old = _version(node) < _RANKED_RESHAPE
            return [tensor(type_.dtype, None) if isinstance(type_, TensorType) and is_old else self._all_open(type_) for type_ in inferred]
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
        """Whether the elements of operand 1, the sizes, are known; or there is none, since they are attributes."""
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return True
        value = node.inputs[1]
        known = self.found.values.get(value)
        return (known is not None and known.dtype != object) or value.role in (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)

    def _computed_axes(self, name: str, node: Node) -> range | tuple[int, ...]:
        """Axes of results that schemas compute only from numbers."""
        if name in _SPATIAL:
            return range(2, MOST_AXES)
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
        super()._evaluate(node, spec, call, inferred)
        if name != "Constant":
            self._followed.update(node.outputs)

    def _is_followed(self, name: str, node: Node, inferred: list[Type]) -> bool:
        number = _version(node)
        if name in _ARITHMETIC:
            is_known = number >= _ARITHMETIC[name] or all(one.shape == () for one in inferred)
        else:
            is_known = name in _FOLLOWED and number >= _FOLLOWED[name] and not (name == "Cast" and inferred[0].shape == ())
        operands = node.inputs if name in _ARITHMETIC or name == "Concat" else node.inputs[:1]
        return is_known and all(value in self._followed for value in operands)

    def _simple(self, dim: Dim) -> Dim:
        """A size if it is a number or has a name, else an unknown one."""
        if not isinstance(dim, SymDim) or dim.is_unknown or dim in self._kept:
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
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = symbol(f"n{len(self._names)}")
            self._kept.add(found)
        return found

    def _merged(self, inferred: TensorType, declared: Type | None) -> Type:
        """A number goes before a name, and what the file says before what was inferred."""
        mine = None if inferred.shape is None else tuple(map(self._simple, inferred.shape))
        said = self._declared(declared).shape if isinstance(declared, TensorType) else None
        if mine is None or said is None or len(mine) != len(said):
            shape = said if mine is None else mine
        else:
            shape = tuple(one if isinstance(one, int) or _is_unknown(other) else other for one, other in zip(mine, said, strict=True))
        return tensor(inferred.dtype, shape, inferred.device)


def _version(node: Node) -> int:
    version = node.source.rpartition("@")[2]
    return int(version) if version.isdecimal() else 0


def _is_unknown(dim: Dim) -> bool:
    return isinstance(dim, SymDim) and dim.is_unknown
