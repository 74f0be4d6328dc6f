"""A graph as XLA's CPU compiler reads it: which values are others under other sizes, what reads each, and what an operator costs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import control_of, roles_of, spec_of
from irscope.ops.spec import Family, OpCall, OpSpec
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import read_values

COMPUTED: Final = 32
"""Bits of the floats that products are computed in, at least."""
FUSED: Final = frozenset(
    {Family.ELEMENTWISE, Family.COMPARISON, Family.VIEW, Family.MOVE, Family.INDEXING, Family.CREATION, Family.RANDOM, Family.REDUCTION}
)


class Values:
    """The values of one graph."""

    def __init__(self, graph: Graph, types: Inferred, around: Values | None = None) -> None:
        self.graph, self.types, self.around = graph, types, around
        self.parts: Callable[[Value], int] = (lambda value: 1) if around is None else around.parts
        """Into how many parts a value is cut, of which a device has one."""
        self.partial: dict[Node, frozenset[str]] = {} if around is None else around.partial
        self.gathered: dict[Node, dict[int, int]] = {} if around is None else around.gathered
        self.steps = list(graph)
        self.place = {node: step for step, node in enumerate(self.steps)}
        self.roots: dict[Value, Value] = {} if around is None else around.roots
        self.unsized: list[Value] = []
        self._sums: dict[Node, bool] = {}
        """Products of matrices, with whether they add something up."""
        self.operands: dict[Node, list[Value]] = {}
        """Operands that the compiler reads where those of the graph are others."""
        self.library: dict[Node, Node] = {}
        """Nodes that the library computes in one kernel, with the one that makes its result."""
        self._alias()
        self._reduce_as_it_lies()
        self.users = self._users()

    def is_product(self, node: Node | None) -> bool:
        """Return whether a node is a product of matrices that adds something up: others are multiplied element by element."""
        spec = None if node is None else spec_of(node)
        if node is None or spec is None or spec.family is not Family.CONTRACTION or len(node.inputs) < 2:
            return False
        if node not in self._sums:
            cost = self._cost(node, spec)
            self._sums[node] = cost is None or cost.macs != self.elements(node.outputs[0])
        return self._sums[node]

    def multiplies(self, node: Node) -> bool:
        return self.is_product(node) or is_convolution(node)

    def family(self, node: Node) -> Family | None:
        """Return the family of an operator as the compiler takes it."""
        spec = spec_of(node)
        is_elements = spec is not None and spec.family is Family.CONTRACTION and not self.is_product(node)
        return Family.ELEMENTWISE if is_elements else None if spec is None else spec.family

    def root(self, value: Value) -> Value:
        """Return the value whose buffer it is."""
        while (above := self.roots.get(value)) is not None:
            value = above
        return value

    def size(self, value: Value) -> int:
        """Bytes; 0 where they are not known, which is noted."""
        type_ = self.types.type_of(value)
        known = type_.nbytes if isinstance(type_, TensorType) else 0
        if not isinstance(known, int):
            self.unsized.append(value)
            return 0
        return -(-known // self.parts(value))

    def elements(self, value: Value) -> int:
        type_ = self.types.type_of(value)
        count = type_.numel if isinstance(type_, TensorType) else 1
        return count if isinstance(count, int) else 1 << 60

    def _alias(self) -> None:
        """Reshapes are the operand; so are axes that change places where only ones move, or where a product of matrices takes them so."""
        for node in self.steps:
            spec = spec_of(node)
            if spec is not None and node.outputs and node.inputs and node.inputs[0] is not None and self._is_same(node, spec):
                self.roots[node.outputs[0]] = node.inputs[0]
            elif control_of(node) is Control.LOOP and node.regions:
                region = node.regions[0]
                for output, state, argument, result in zip(
                    node.outputs, node.inputs[2:], region.inputs[2:], region.outputs[1:], strict=False
                ):
                    if result is argument and state is not None:
                        self.roots[output] = state
                        self.roots[argument] = state

    def _is_same(self, node: Node, spec: OpSpec) -> bool:
        if OpRole.RESHAPE in spec.roles or spec.name == "view.alias":
            return True
        first, made = self.types.type_of(node.inputs[0]), self.types.type_of(node.outputs[0])
        if OpRole.CONVERT in spec.roles:
            return first is made
        if OpRole.TRANSPOSE not in spec.roles or not isinstance(first, TensorType) or not first.shape:
            return False
        perm = node.attrs.get("perm")
        if not isinstance(perm, tuple) or {*perm} != {*range(len(first.shape))}:
            return False  # as only a damaged file has it
        moved = [axis for axis in perm if first.shape[axis] != 1]
        if moved == sorted(moved):
            return True
        makes = node.inputs[0].node if node.inputs[0] is not None else None
        batches = len(self._axes(makes, 0)[0]) if makes is not None and self.is_product(makes) else 0
        if makes is not None and batches and perm == (*range(batches), batches + 1, batches) and len(makes.outputs[0].users or ()) == 1:
            return True  # the product is made with its operands exchanged
        is_matrix = len(moved) == 2
        return is_matrix and (
            self.is_product(makes) or all(isinstance(user, Node) and self.is_product(user) for user in node.outputs[0].users or ())
        )

    def reads(self, node: Node) -> list[Value]:
        """Return the values that a node reads."""
        return self.operands.get(node) or read_values(node)

    def _reduce_as_it_lies(self) -> None:
        """Have a reduction read what only lies in another order, where its result is the same (AlgebraicSimplifier::HandleReduce)."""
        for node in self.steps:
            spec, value = spec_of(node), node.inputs[0] if node.inputs else None
            if spec is None or spec.family is not Family.REDUCTION or len(node.inputs) != 1 or value is None:
                continue
            axes = node.attrs.get("axes")
            while (made := value.node) is not None and made in self.place and OpRole.TRANSPOSE in roles_of(made):
                perm, below = made.attrs.get("perm"), made.inputs[0]
                if below is None or not isinstance(perm, tuple) or not isinstance(axes, tuple):
                    break
                left = [axis for place, axis in enumerate(perm) if place not in axes]
                if left != sorted(left, key=str) or self._axes_of(value) != self._axes_of(below):
                    break
                value, axes = below, tuple(perm[axis] for axis in axes if isinstance(axis, int) and axis < len(perm))
                self.operands[node] = [value]

    def _users(self) -> dict[Value, list[Node | None]]:
        """Return who reads each value: nodes of this graph, None for its results."""
        found: dict[Value, list[Node | None]] = {}
        for node in self.steps:
            for value in {self.root(one) for one in self.reads(node)}:
                if node.outputs and self.roots.get(node.outputs[0]) is not None and len(node.outputs) == 1 and not node.regions:
                    continue  # the same value under another shape
                found.setdefault(value, []).append(node)
        for value in self.graph.outputs:
            found.setdefault(self.root(value), []).append(None)
        return found

    def writes_over(self, node: Node, step: object) -> bool:
        """Return whether a node writes into what another one makes."""
        made = self.root(self.reads(node)[0]).node if OpRole.WRITE_PART in roles_of(node) else None
        return made is not None and made is step

    def takes(self, user: Node, value: Value) -> bool:
        """Return whether a node fuses the producer of its operand into its kernel."""
        spec = spec_of(user)
        if spec is not None and self.multiplies(user) and not user.regions:
            operands = [place for place, one in enumerate(user.inputs[:2]) if one is not None and self.root(one) is value]
            return bool(operands) and all(self.is_copied(user, place) for place in operands)
        if (
            spec is None
            or user.regions
            or self.family(user) not in FUSED
            or (spec.family is Family.INDEXING and OpRole.WRITE_PART in spec.roles)
        ):
            return False
        if user in self.library:
            return False
        return OpRole.WRITE_PART not in spec.roles or self.root(self.reads(user)[0]) is not value

    def _is_free(self, node: Node) -> bool:
        """Return whether a node makes something of constants alone, at no cost."""
        spec = spec_of(node)
        if spec is None or spec.family not in (Family.CREATION, Family.MOVE, Family.VIEW):
            return False
        return all(value is None or self.root(value).role is Role.CONSTANT or self._is_constant(self.root(value)) for value in node.inputs)

    def _is_constant(self, value: Value) -> bool:
        made = value.node
        return made is not None and made in self.place and self._is_free(made)

    def is_unary(self, node: Node) -> bool:
        """Return whether at most one operand has as many axes as the result, or all have no more elements (EffectivelyAtMostUnary)."""
        operands = {self.root(value) for value in node.inputs if value is not None}
        if sum(self.elements(value) for value in operands) <= self.elements(node.outputs[0]):
            return True
        own = self._axes_of(node.outputs[0])
        return sum(self._axes_of(value) >= own for value in operands if not self._is_repeated(value)) <= 1

    def _axes_of(self, value: Value) -> int:
        type_ = self.types.type_of(value)
        return sum(size != 1 for size in type_.shape or ()) if isinstance(type_, TensorType) else 0

    def _is_repeated(self, value: Value) -> bool:
        """Return whether a value is made of fewer numbers, or of none."""
        spec = spec_of(value.node) if value.node is not None else None
        if spec is None:
            return value.role is Role.CONSTANT and self.elements(value) == 1
        return OpRole.SPREAD in spec.roles or spec.family is Family.CREATION

    def breadth(self, value: Value) -> int:
        """Elements that have to be read for a value: of a repeated one those that are repeated."""
        node = value.node
        spec = spec_of(node) if node is not None else None
        if node is not None and spec is not None and node in self.place:
            if self._is_free(node):
                return 0
            if OpRole.SPREAD in spec.roles and node.inputs[0] is not None:
                return self.elements(node.inputs[0])
        return self.elements(value)

    def _cost(self, node: Node, spec: OpSpec) -> Cost | None:
        types = [None if value is None else self.types.type_of(value) for value in node.inputs]
        return spec.cost_of(OpCall(spec, types, node.attrs, (), [self.types.type_of(output) for output in node.outputs]))

    def is_dear(self, node: Node, spec: OpSpec) -> bool:
        cost, type_ = self._cost(node, spec), self.types.type_of(node.outputs[0])
        computes = cost is None or cost.flops != 0 or OpRole.CONVERT in spec.roles
        if isinstance(type_, TensorType) and type_.dtype is DType.BF16 and computes:
            return True  # what is computed in f32 is brought back, with a look at each element
        return cost is None or cost.transcendental != 0 or self._divides(node)

    def _divides(self, node: Node) -> bool:
        """Return whether floats are divided by what is no constant (InstructionFusion::IsExpensive), nor several numbers that are repeated,
        of which the compiler takes the reciprocals."""
        by = self.root(node.inputs[1]) if OpRole.DIVIDE in roles_of(node) and len(node.inputs) > 1 and node.inputs[1] else None
        type_ = self.types.type_of(node.outputs[0])
        if by is None or not isinstance(type_, TensorType) or not type_.dtype.is_float or self._is_constant(by):
            return False
        return by.node is None or OpRole.SPREAD not in roles_of(by.node) or self.breadth(by) == 1

    def is_copied(self, node: Node, place: int) -> bool:
        """Return whether a product has a copy of an operand, in another order or element type."""
        if not self.multiplies(node) or node.regions or place > 1:
            return False
        return bool(self._widened(node)) or self._is_turned(node, place)

    def _widened(self, node: Node) -> int:
        """Return the factor by which a product's operands grow when they are converted to f32; 0 where they are multiplied as they are."""
        type_ = self.types.type_of(node.inputs[0])
        bits = type_.dtype.bits if isinstance(type_, TensorType) and type_.dtype.is_float else None
        return COMPUTED // bits if bits is not None and bits < COMPUTED else 0

    def _is_turned(self, node: Node, place: int) -> bool:
        """Return whether a product wants an operand in another order."""
        order = self._turned(node, place)
        return order != tuple(range(len(order)))

    def _turned(self, node: Node, place: int) -> tuple[int, ...]:
        """Return the order in which a product wants an operand (DotDecomposer): batches, what is left, what is summed over on the
        left, batches, what is summed over, what is left on the right. Two matrices are taken as they are. So is a convolution's operand
        whose axes stand as batch, space, channels, its kernel as space, input, output channels."""
        type_ = self.types.type_of(node.inputs[place])
        rank = len(type_.shape or ()) if isinstance(type_, TensorType) else 0
        order = node.attrs.get("axes_w" if place else "axes_x")
        if isinstance(order, tuple) and rank > 2:
            first, second, *space = (axis for axis in order if isinstance(axis, int))
            return (*space, second, first) if place else (first, *space, second)
        batches, over = self._axes(node, place)
        other = self.types.type_of(node.inputs[1 - place])
        other_rank = len(other.shape or ()) if isinstance(other, TensorType) else 0
        if not over or (len(over) == 1 and batches == tuple(range(len(batches))) and max(rank, other_rank) <= len(batches) + 2):
            return tuple(range(rank))
        left = tuple(axis for axis in range(rank) if axis not in batches and axis not in over)
        return (*batches, *over, *left) if place else (*batches, *left, *over)

    def _axes(self, node: Node, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = [node.attrs.get(f"{what}_{'ab'[place]}") for what in ("batch", "over")]
        batches, over = (tuple(axis for axis in one if isinstance(axis, int)) if isinstance(one, tuple) else () for one in found)
        return batches, over

    def is_reshaped(self, value: Value | None) -> bool:
        """Return whether a value is another one under other sizes. A matrix whose axes change places is one that a product makes so."""
        types = () if value is None else map(self.types.type_of, (value, self.root(value)))
        shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
        return len(shapes) == 2 and shapes[0] != shapes[1] and (len(shapes[0] or ()) != 2 or shapes[0] != (shapes[1] or ())[::-1])

    def flattens(self, user: Node | None, value: Value) -> bool:
        """Return whether a product of matrices reads a value with more axes."""
        return user is not None and self.is_product(user) and self._axes_of(value) > len(self._axes(user, 0)[0]) + 2


def is_convolution(node: Node) -> bool:
    spec = spec_of(node)
    return spec is not None and spec.family is Family.CONVOLUTION
