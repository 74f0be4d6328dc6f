"""One node of the file while it is lowered: operands, checked attributes, and ways to add nodes to the graph.

`Lowering` is what a rule may ask of the graph around a node. Rules and the reader of graphs both stand on it, and neither needs the
other's module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from irscope.errors import LoadError
from irscope.frontends.onnx.model import Model
from irscope.frontends.onnx.protos import GraphProto, TensorProto, TypeProto
from irscope.frontends.onnx.tensors import Constant, is_literal
from irscope.frontends.onnx.types import DTYPES, AttrValue, pack_field
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Node, Role, Value
from irscope.ir.places import Blob, Literal, Loc, Scope
from irscope.ir.types import UNKNOWN_TENSOR, Type, tensor

Operand = Value | None


class Mismatch(Exception):
    """The node does not have the form that its operator asks for; it is kept as a foreign one."""


def mark(value: Operand, role: Role) -> None:
    """Say what a weight is, from the way in which an operator uses it."""
    if value is not None and value.node is None and value.role in (Role.PARAMETER, Role.CONSTANT):
        value.role = role


class Lowering(Protocol):
    """One level of names while it is lowered: the main graph, a region, or the body of a function that is inlined."""

    model: Model
    graph: Graph
    outer: Lowering | None
    """The level whose names are seen here too."""
    values: dict[str, Operand]
    """Operands by their names at this level."""
    declared: dict[str, TypeProto]
    """Types that the file gives for results."""
    arguments: Mapping[str, AttrValue] | None
    """Attributes of the call that is inlined; None outside of functions."""
    constants: dict[str, Value] | None
    """Constants of a function, shared by all its calls; None outside of functions."""
    prefix: str
    """Prefix of the names of this level."""

    def find(self, name: str) -> Operand:
        """Return the value that a name stands for here; raises LoadError where there is none."""
        ...

    def knows(self, name: str) -> bool:
        """Return whether a name stands for something here or around here."""
        ...

    def shown_name(self, name: str) -> str:
        """Return what a name of this level is called in the program, if nothing else has that name."""
        ...

    def new_name(self, name: str) -> str | None:
        """Return a unique name for a value of this level; None for one without a name."""
        ...

    def declared_type(self, name: str, undeclared: Type = UNKNOWN_TENSOR) -> Type:
        """Return the type that the file gives for a result; the `shapes` pass trusts only those of foreign operators."""
        ...

    def lower_region(self, owner: Node, name: str, proto: GraphProto, count: int | None = None) -> Graph:
        """Lower a graph attribute as a region; `count` is the number of its arguments."""
        ...


class Call:
    """A use of an ONNX operator."""

    __slots__ = ("attrs", "body", "domain", "inputs", "loc", "name", "op_type", "outputs", "scope", "source", "version")

    def __init__(
        self,
        body: Lowering,
        domain: str,
        op_type: str,
        version: int,
        name: str,
        inputs: list[Operand],
        outputs: list[str],
        attrs: dict[str, AttrValue],
        scope: Scope,
        loc: Loc | None,
        source: str,
    ) -> None:
        self.body = body
        self.domain = domain
        self.op_type = op_type
        self.version = version
        """Version of the operator set that the graph imports."""
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        """Names of the results as in the file; empty for results that are not used."""
        self.attrs = attrs
        self.scope = scope
        self.loc = loc
        self.source = source

    def operand(self, index: int) -> Operand:
        """Return an operand, None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def needed(self, index: int) -> Value:
        """Return an operand that must be there."""
        found = self.operand(index)
        if found is None:
            raise Mismatch(f"operand {index + 1} is absent")
        return found

    def operands(self, *indices: int) -> list[Operand]:
        """Return the operands in another order; absent ones at the end are left out."""
        chosen = [self.operand(index) for index in indices]
        while chosen and chosen[-1] is None:
            chosen.pop()
        return chosen

    def has(self, name: str) -> bool:
        return self.attrs.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute; without a default it must be there."""
        value = self.attrs.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int):
            raise Mismatch(f"attribute {name} is {'absent' if value is None else 'no integer'}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def number(self, name: str, default: float | None = None) -> float:
        value = self.attrs.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, float):
            raise Mismatch(f"attribute {name} is {'absent' if value is None else 'no float'}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.attrs.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise Mismatch(f"attribute {name} is {'absent' if value is None else 'no string'}")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of integers, None where it is absent."""
        value = self.attrs.get(name)
        if value is None:
            return None
        integers = tuple([item for item in value if isinstance(item, int)]) if isinstance(value, tuple) else None
        if integers is None or integers != value:
            raise Mismatch(f"attribute {name} is not a list of integers")
        return integers

    def numbers(self, name: str) -> tuple[float, ...] | None:
        value = self.attrs.get(name)
        if value is None:
            return None
        numbers = tuple([item for item in value if isinstance(item, float | int)]) if isinstance(value, tuple) else None
        if numbers is None or numbers != value:
            raise Mismatch(f"attribute {name} is not a list of floats")
        return numbers

    def texts(self, name: str) -> tuple[str, ...] | None:
        value = self.attrs.get(name)
        if value is None:
            return None
        texts = tuple([item for item in value if isinstance(item, str)]) if isinstance(value, tuple) else None
        if texts is None or texts != value:
            raise Mismatch(f"attribute {name} is not a list of strings")
        return texts

    def dtype(self, name: str, default: DType | None = None) -> DType | None:
        """Return an attribute that holds the number of an element type."""
        value = self.attrs.get(name)
        if value is None:
            return default
        found = DTYPES.get(value) if isinstance(value, int) else None
        if found is None:
            raise Mismatch(f"attribute {name} is not an element type")
        return found if found is not DType.UNKNOWN else default

    @property
    def depends_on_caller(self) -> bool:
        """Return whether an attribute is one that the call of the function around it gives."""
        arguments = self.body.arguments or {}
        return any(value is given for value in self.attrs.values() for given in arguments.values())

    def tensor_attr(self, name: str) -> TensorProto | None:
        value = self.attrs.get(name)
        if value is not None and not isinstance(value, TensorProto):
            raise Mismatch(f"attribute {name} is not a tensor")
        return value

    def graph_attr(self, name: str) -> GraphProto:
        value = self.attrs.get(name)
        if not isinstance(value, GraphProto):
            raise Mismatch(f"attribute {name} is {'absent' if value is None else 'no graph'}")
        return value

    def emit(self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None) -> Node:
        """Add the node that makes all results of this call."""
        node = self.node(op, inputs, attrs)
        self.bind(node)
        return node

    def node(
        self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None, *, undeclared: Type = UNKNOWN_TENSOR
    ) -> Node:
        """Like `emit`, but the results cannot be used before `bind`: for nodes with regions.

        `undeclared` is the type of results that the file says nothing about.
        """
        body = self.body
        outputs = self.outputs
        if len(outputs) == 1:
            name = outputs[0]
            types: list[Type] = [body.declared_type(name, undeclared)]
            names = [body.new_name(name)]
        else:
            types = [body.declared_type(name, undeclared) for name in outputs]
            names = [body.new_name(name) for name in outputs]
        return body.graph.append(op, inputs, types, attrs, names=names, scope=self.scope, loc=self.loc, source=self.source)

    def bind(self, node: Node) -> None:
        """Let the names of the results stand for those of a node."""
        values = self.body.values
        for name, value in zip(self.outputs, node.outputs, strict=False):
            if name:
                values[name] = value

    def bind_to(self, *results: Operand) -> None:
        """Let the names of the results stand for values that exist already."""
        for name, value in zip(self.outputs, results, strict=False):
            if name and value is not None:
                if value.name is None:
                    self.body.graph.rename(value, self.body.new_name(name))
                self.body.values[name] = value

    def value(self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None) -> Value:
        """Add a node with one result that has no name in the file."""
        made = self.body.graph.append(op, inputs, (UNKNOWN_TENSOR,), attrs, scope=self.scope, loc=self.loc, source=self.source)
        return made.outputs[0]

    def several(self, op: str, inputs: Sequence[Operand], count: int, attrs: Mapping[str, Attr] | None = None) -> tuple[Value, ...]:
        """Add a node with several results that have no names in the file."""
        types = (UNKNOWN_TENSOR,) * count
        return self.body.graph.append(op, inputs, types, attrs, scope=self.scope, loc=self.loc, source=self.source).outputs

    def last(self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None) -> Value:
        """Add a node that makes only the first result of this call."""
        name = self.outputs[0] if self.outputs else ""
        body = self.body
        names = (body.new_name(name),)
        types = (body.declared_type(name),)
        made = body.graph.append(op, inputs, types, attrs, names=names, scope=self.scope, loc=self.loc, source=self.source).outputs[0]
        if name:
            body.values[name] = made
        return made

    def mark(self, role: Role, *indices: int) -> None:
        """Say what weights are, from the way in which the operator uses them."""
        for index in indices:
            mark(self.operand(index), role)

    def attribute_weights(self, roles: Mapping[str, Role], shapes: Mapping[str, tuple[int, ...]] | None = None) -> list[Value]:
        """Return the numbers that the file keeps in attributes of a node, as weights called "NODE.ATTRIBUTE".

        The node takes them as its last operands, so that they count wherever weights do. `shapes` are those of flat lists.
        """
        values: list[Value] = []
        for name, role in roles.items():
            constant = self._stored(name, (shapes or {}).get(name))
            if constant is not None:
                values.append(self._declared(name, role, constant))
        return values

    def opaque_weight(self, name: str) -> Value:
        """Opaque weights: their number and size are unknown."""
        return self._declared(name, Role.PARAMETER, Constant(UNKNOWN_TENSOR, None))

    def _declared(self, name: str, role: Role, constant: Constant) -> Value:
        body = self.body
        owner = next((output for output in self.outputs if output), "") or self.name
        shared = body.constants if not self.depends_on_caller else None
        key = f"{owner}.{name}"
        if shared is not None and key in shared:
            return shared[key]
        made = body.model.add_weight(constant, f"{body.shown_name(self.name or owner)}.{name}")
        made.role = role
        if shared is not None:
            shared[key] = made
        return made

    def _stored(self, name: str, shape: tuple[int, ...] | None) -> Constant | None:
        """Return the numbers in an attribute; None where there are none."""
        value = self.attrs.get(name)
        if isinstance(value, TensorProto):
            try:
                return self.body.model.tensors.read(value, f"{self.name}.{name}")
            except LoadError:
                return Constant(UNKNOWN_TENSOR, None)
        if not isinstance(value, tuple) or not value:
            return None
        numbers = [item for item in value if isinstance(item, int | float)]
        if len(numbers) < len(value):
            return None
        dtype = DType.F32 if any(isinstance(item, float) for item in numbers) else DType.I64
        data = Literal(tuple(numbers)) if is_literal(dtype, len(numbers)) else Blob(pack_field(numbers, dtype))
        return Constant(tensor(dtype, shape or (len(numbers),)), data)
