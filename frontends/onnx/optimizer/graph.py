"""The graph of a file as ONNX Runtime's transformers see it: nodes by number, edges by name, values of weights where they are asked for.

It is the file's graph and not irscope's: conditions of transformers are about operators, attributes and names as they stand in the file.
Nodes keep their number for life and new ones get the next, since ONNX Runtime's order of execution follows from these numbers.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeAlias

import numpy.typing as npt
import onnx

from irscope.budget import spend
from irscope.frontends.onnx.model import STANDARD, version_of
from irscope.frontends.onnx.types import AttrValue, decode
from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import LONG_NAMES, DType
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, tensor
from irscope.solvers.graphs import backwards

MICROSOFT = "com.microsoft"
MOST_READ = 1 << 22
"""Elements of the largest weight whose values are read."""

Array: TypeAlias = npt.NDArray[Any]
Size: TypeAlias = int | str | None
"""A size as ONNX Runtime knows it: a number, a name, or nothing."""


class Weight:
    """An initializer: the file's own, or one that a transformer made."""

    __slots__ = ("_array", "_read", "key", "proto", "type")

    def __init__(
        self,
        type_: TensorType,
        proto: onnx.TensorProto | None = None,
        array: Array | None = None,
        read: Callable[[onnx.TensorProto], Array | None] | None = None,
    ) -> None:
        self.type = type_
        self.proto = proto
        """The file's tensor; None for one that was made."""
        self._array = array
        self._read = read
        self.key: Hashable = None
        """Equal for weights that were made in the same way of the same; None where nobody says."""

    @property
    def identity(self) -> Hashable:
        """Return what is equal for weights that surely have the same values; None where that is not known."""
        return ("file", id(self.proto)) if self.proto is not None else self.key

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([dim for dim in self.type.shape or () if isinstance(dim, int)])

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def count(self) -> int:
        return prod(self.shape)

    def values(self, most: int = MOST_READ) -> Array | None:
        """Return the values; None where they are more than `most`, unknown, or of a type that numpy lacks."""
        if self._array is None and self.count <= most and self._read is not None and self.proto is not None:
            self._array = self._read(self.proto)
        return self._array


class OrtNode:
    """One node."""

    __slots__ = (
        "attrs", "bodies", "captured", "domain", "graph", "index", "inputs", "made_from", "name", "op", "outputs", "provider", "read",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        graph: OrtGraph,
        index: int,
        op: str,
        domain: str,
        version: int,
        name: str,
        inputs: list[str],
        outputs: list[str],
        attrs: dict[str, AttrValue],
        made_from: onnx.NodeProto | None = None,
    ) -> None:
        self.graph = graph
        self.index = index
        self.op = op
        self.domain = domain
        self.version = version
        """The version since which the operator is as it is here: its schema's since_version."""
        self.name = name
        self.inputs = inputs
        """Names; empty where an optional one is not given. Change them by `OrtGraph.set_input`."""
        self.outputs = outputs
        self.attrs = attrs
        self.made_from = made_from
        """The file's node; None for one that a transformer made."""
        self.read = dict(attrs) if made_from is not None else None
        """The attributes that the file's node has."""
        self.bodies: dict[str, OrtGraph] = {}
        self.captured: list[str] = []
        """Names that graphs inside it read from around it: ONNX Runtime's implicit inputs."""
        self.provider = ""
        """The execution provider it is assigned to, between levels 1 and 2."""

    def __repr__(self) -> str:
        return f"<{self.op} {self.index} {self.name!r} {self.inputs} -> {self.outputs}>"

    @property
    def is_standard(self) -> bool:
        return self.domain == STANDARD

    def input(self, place: int) -> str:
        """Return the name of an operand, empty where it is not given."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def has_input(self, place: int) -> bool:
        return bool(self.input(place))

    def attr(self, name: str, default: Any = None) -> Any:
        found = self.attrs.get(name)
        return default if found is None else found

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        found = self.attrs.get(name)
        return found if isinstance(found, tuple) else default  # type: ignore[return-value]

    def matches(self, op: str, versions: Sequence[int] | None = None, domain: str = STANDARD) -> bool:
        """graph_utils::IsSupportedOptypeVersionAndDomain: the operator, of one of these since_versions (None: any)."""
        return self.op == op and self.domain == domain and (versions is None or self.version in versions)


@functools.cache
def default_attributes(domain: str, op: str, version: int) -> Mapping[str, AttrValue]:
    """Return the attributes that a node has without saying so: ONNX Runtime writes them into every node."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return {}
    found = {name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value.name}
    return {name: decode(proto) for name, proto in found.items()}


@functools.cache
def since_version(domain: str, op: str, opset: int) -> int:
    """Return the version of an operator's schema that an operator set has; of contributed operators 1."""
    try:
        return int(
            onnx.defs.get_schema(op, min(opset, onnx.defs.onnx_opset_version()) if domain == STANDARD else opset, domain).since_version
        )
    except onnx.defs.SchemaError:
        return 1


class OrtGraph:
    """The main graph, or one inside a node."""

    def __init__(self, opsets: dict[str, int], outer: OrtGraph | None = None, owner: OrtNode | None = None) -> None:
        self.opsets = opsets
        """Version by domain, shared by all graphs of the model."""
        self.outer = outer
        self.owner = owner
        self.inputs: list[str] = []
        """Of the graph; those that have a value in the file are among them."""
        self.outputs: list[str] = []
        self.nodes: dict[int, OrtNode] = {}
        """By number, in the order of the numbers."""
        self.weights: dict[str, Weight] = {}
        self.types: dict[str, Type] = {}
        """Of all values whose types are known: of the file's as irscope infers them, of new ones as transformers say."""
        self.declared: set[str] = set()
        """Names whose types the file declares."""
        self.known: dict[str, tuple[Size, ...] | None] = {}
        """Shapes of values as ONNX Runtime knows them, which is less than their types tell."""
        self.shaped: set[str] = set()
        """New values that ONNX Runtime gives the shape of another, so that it knows names of sizes that it would not infer."""
        self.infer: Callable[[OrtGraph], None] | None = None
        """Brings them up to date, after every change."""
        self.constant_inputs = False
        """True where inputs that have a value are constants all the same: before IR version 4."""
        self._makers: dict[str, OrtNode] = {}
        self._readers: dict[str, dict[int, OrtNode]] = {}
        self._order: list[OrtNode] | None = None
        """Result of `order`, until an edge changes."""
        self.next_index = 0
        self._names: set[str] = set()
        self._node_names: set[str] = set()
        self._named: Counter[str] = Counter()
        """Number of nodes with each name: files may give one name to several."""
        self._generated = 0

    def __iter__(self) -> Iterator[OrtNode]:
        """Yield the nodes by number; the graph may change meanwhile."""
        return iter(list(self.nodes.values()))

    def maker(self, name: str) -> OrtNode | None:
        """Return the node of this graph that makes a value."""
        return self._makers.get(name) if name else None

    def readers(self, name: str) -> list[OrtNode]:
        """Return the nodes that read a value, each once, by number; also those inside whose graphs it is read."""
        found = self._readers.get(name)
        return [found[index] for index in sorted(found)] if found else []

    def edges(self, node: OrtNode) -> list[tuple[OrtNode, int, int]]:
        """Return a node's output edges: the node that reads, which result, as which operand. Names that graphs inside read count behind the
        operands. In the order in which ONNX Runtime keeps them."""
        found: list[tuple[OrtNode, int, int]] = []
        for result, name in enumerate(node.outputs):
            if name:
                for reader in self.readers(name):
                    found.extend((reader, result, place) for place, given in enumerate(reader.inputs) if given == name)
                    found.extend(
                        (reader, result, len(reader.inputs) + place) for place, given in enumerate(reader.captured) if given == name
                    )
        found.sort(key=lambda edge: (edge[0].index, edge[1], edge[2]))
        return found

    def edge_count(self, node: OrtNode) -> int:
        """Node::GetOutputEdgesCount."""
        return len(self.edges(node))

    def input_edges(self, node: OrtNode) -> list[tuple[OrtNode, int]]:
        """Return the nodes of this graph that make a node's operands, with the operand's place."""
        names = (*node.inputs, *node.captured)
        return [(made, place) for place, name in enumerate(names) if (made := self.maker(name)) is not None]

    def input_node(self, node: OrtNode, place: int) -> OrtNode | None:
        """graph_utils::GetInputNode."""
        return self.maker(node.input(place))

    def sole_reader(self, node: OrtNode) -> OrtNode | None:
        """Return the reader of a node with exactly one output edge (GetOutputEdgesCount() == 1); None for others."""
        edges = self.edges(node)
        return edges[0][0] if len(edges) == 1 else None

    def is_output(self, name: str) -> bool:
        return name in self.outputs

    def makes_output(self, node: OrtNode) -> bool:
        """Graph::NodeProducesGraphOutput."""
        return any(name in self.outputs for name in node.outputs if name)

    def weight(self, name: str) -> Weight | None:
        """Return an initializer of this graph or one around it, constant or not."""
        graph: OrtGraph | None = self
        while graph is not None and name:
            if name in graph.weights:
                return graph.weights[name]
            if name in graph._makers or name in graph.inputs:
                return None
            graph = graph.outer
        return None

    def constant(self, name: str) -> Weight | None:
        """graph_utils::GetConstantInitializer: an initializer that the caller cannot replace, also of a graph around this one."""
        graph: OrtGraph | None = self
        while graph is not None and name:
            if name in graph.weights:
                return None if name in graph.inputs and not graph.constant_inputs else graph.weights[name]
            if name in graph._makers or name in graph.inputs:
                return None
            graph = graph.outer
        return None

    def values(self, name: str, most: int = MOST_READ) -> Array | None:
        """Return the values of a constant initializer, where they can be read and are not too many."""
        found = self.constant(name)
        return found.values(most) if found is not None else None

    def scalar(self, name: str) -> float | int | None:
        """Return the one value of a constant initializer with a single element; None for others."""
        found = self.constant(name)
        if found is None or found.count != 1:
            return None
        array = found.values()
        return None if array is None else array.reshape(-1)[0].item()

    def type_of(self, name: str) -> Type:
        graph: OrtGraph | None = self
        while graph is not None and name:
            if name in graph.weights:
                return graph.weights[name].type
            if name in graph.types:
                return graph.types[name]
            graph = graph.outer
        return UNKNOWN_TYPE

    def dtype(self, name: str) -> DType:
        type_ = self.type_of(name)
        return type_.dtype if isinstance(type_, TensorType) else DType.UNKNOWN

    def shape(self, name: str) -> tuple[Size, ...] | None:
        """Return the shape as ONNX Runtime knows it; None where even the rank is unknown."""
        graph: OrtGraph | None = self
        while graph is not None and name not in graph.weights:
            if name in graph.known:
                return graph.known[name]
            graph = graph.outer
        return self.shape_of_type(name)

    def shape_of_type(self, name: str) -> tuple[Size, ...] | None:
        """Return the shape as irscope knows it."""
        type_ = self.type_of(name)
        if not isinstance(type_, TensorType) or type_.shape is None:
            return None
        return tuple([_size(dim) for dim in type_.shape])

    def static_shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape where it is all numbers."""
        shape = self.shape(name)
        if shape is None:
            return None
        sizes = tuple([dim for dim in shape if isinstance(dim, int)])
        return sizes if len(sizes) == len(shape) else None

    def opset(self, domain: str = STANDARD) -> int:
        return version_of(self.opsets, domain)

    def order(self) -> list[OrtNode]:
        """GraphViewer::GetNodesInTopologicalOrder: the default order of execution."""
        if self._order is None:
            nodes = list(self.nodes.values())
            spend(10 * len(nodes), "optimisations of the graph")
            place = {node.index: at for at, node in enumerate(nodes)}
            makers = [sorted({place[made.index] for made, _ in self.input_edges(node)}) for node in nodes]
            self._order = [nodes[at] for at in backwards(makers)]
        return list(self._order)

    def new_name(self, base: str) -> str:
        """Graph::GenerateNodeArgName."""
        name = base
        while not name or self._knows(name):
            name = f"{base}_token_{self._generated}"
            self._generated += 1
        self._names.add(name)
        return name

    def new_node_name(self, base: str) -> str:
        """Graph::GenerateNodeName: it counts together with the names of values."""
        name = base
        while name in self._node_names or self._named[name]:
            name = f"{base}_token_{self._generated}"
            self._generated += 1
        self._node_names.add(name)
        return name

    def _knows(self, name: str) -> bool:
        return name in self._names or name in self.weights or name in self._makers or name in self._readers or name in self.inputs

    def add_node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, AttrValue] | None = None,
        domain: str = STANDARD,
        name: str = "",
        provider: str = "",
    ) -> OrtNode:
        """A new node, with the next number; no other node may make its results (remove that one first)."""
        if domain not in self.opsets:
            self.opsets[domain] = 1
        version = since_version(domain, op, self.opset(domain))
        attrs = {**default_attributes(domain, op, version), **(attrs or {})}
        node = OrtNode(
            self,
            self.next_index,
            op,
            domain,
            version,
            name,
            list(inputs),
            list(outputs),
            attrs,
        )
        node.provider = provider
        self.enter(node)
        return node

    def enter(self, node: OrtNode) -> None:
        """Put a node in that was made for this graph, with the next number."""
        self.next_index = max(self.next_index, node.index + 1)
        self.nodes[node.index] = node
        self._named[node.name] += 1
        for name in node.outputs:
            if name:
                self._makers[name] = node
                self._names.add(name)
        self._read(node)

    def _read(self, node: OrtNode) -> None:
        self._order = None
        for name in (*node.inputs, *node.captured):
            if name:
                self._readers.setdefault(name, {})[node.index] = node

    def _forget(self, node: OrtNode) -> None:
        self._order = None
        for name in {*node.inputs, *node.captured}:
            if name:
                self._readers.get(name, {}).pop(node.index, None)

    def remove_node(self, node: OrtNode) -> None:
        """Take a node out. What read its results keeps their names: give these to another node, or change the readers first."""
        del self.nodes[node.index]
        self._named[node.name] -= 1
        self._forget(node)
        for name in node.outputs:
            if self._makers.get(name) is node:
                del self._makers[name]

    def set_inputs(self, node: OrtNode, inputs: Sequence[str]) -> None:
        self._forget(node)
        node.inputs = list(inputs)
        self._read(node)

    def set_input(self, node: OrtNode, place: int, name: str) -> None:
        inputs = list(node.inputs)
        inputs.extend([""] * (place + 1 - len(inputs)))
        inputs[place] = name
        self.set_inputs(node, inputs)

    def set_outputs(self, node: OrtNode, outputs: Sequence[str]) -> None:
        self._order = None
        for name in node.outputs:
            if self._makers.get(name) is node:
                del self._makers[name]
        node.outputs = list(outputs)
        for name in outputs:
            if name:
                self._makers[name] = node
                self._names.add(name)

    def replace_uses(self, old: str, new: str) -> None:
        """Make every node that reads `old` read `new`, graphs inside included; results of the graph keep their names."""
        for reader in self.readers(old):
            self.set_inputs(reader, [new if name == old else name for name in reader.inputs])
            if old in reader.captured:
                for body in reader.bodies.values():
                    body.rename_captured(old, new)
                self._forget(reader)
                reader.captured = list(dict.fromkeys(new if name == old else name for name in reader.captured))
                self._read(reader)

    def rename_captured(self, old: str, new: str) -> None:
        """Rename a captured value of an outer graph."""
        self.replace_uses(old, new)
        self.outputs = [new if name == old else name for name in self.outputs]

    def add_weight(self, name: str, array: Array | None, type_: TensorType | None = None) -> str:
        """Add an initializer of these values, or of this type where its values are not needed; returns its name."""
        if type_ is None:
            assert array is not None, "a weight has values or a type"
            type_ = tensor(dtype_of(array), array.shape)
        self.weights[name] = Weight(type_, array=array)
        self._names.add(name)
        return name

    def fuse(
        self,
        nodes: Sequence[OrtNode],
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, AttrValue] | None = None,
        domain: str = STANDARD,
        *,
        name: str = "",
        outputs: Sequence[str] | None = None,
    ) -> OrtNode:
        """graph_utils::FinalizeNodeFusion: a new node in place of several, with the names of the last one's results unless others are
        given."""
        made = list(nodes[-1].outputs if outputs is None else outputs)
        provider = nodes[0].provider
        for node in nodes:
            self.remove_node(node)
        return self.add_node(op, inputs, made, attrs, domain, name or nodes[0].name, provider)

    def can_remove(self, node: OrtNode) -> bool:
        """graph_utils::CanRemoveNode: only one result is used, none is the graph's, one operand comes from a node of this graph or there is
        only one, and graphs inside that read the result may read that operand by its name."""
        used = {result for _, result, _ in self.edges(node)}
        if self.makes_output(node) or len(used) > 1:
            return False
        new = self._sole_operand(node)
        return new is not None and self._can_rename(node, new)

    def _sole_operand(self, node: OrtNode) -> str | None:
        """Return what a node is replaced by: the one operand that another node makes, or the only one."""
        edges = self.input_edges(node)
        if len(edges) == 1 and edges[0][1] < len(node.inputs):
            return node.inputs[edges[0][1]]
        return node.inputs[0] if len(node.inputs) == 1 and not edges else None

    def _can_rename(self, node: OrtNode, new: str) -> bool:
        for reader, result, place in self.edges(node):
            if place >= len(reader.inputs) and any(body.has_own(new, node.outputs[result]) for body in reader.bodies.values()):
                return False
        return True

    def has_own(self, name: str, instead_of: str) -> bool:
        """Return whether the graph, or one inside that reads the other name, has a value of this name already."""
        if self._knows(name) or name in self.outputs:
            return True
        return any(body.has_own(name, instead_of) for node in self for body in node.bodies.values() if instead_of in node.captured)

    def drop(self, node: OrtNode) -> bool:
        """graph_utils::RemoveNode: what reads the node's one used result reads its operand instead."""
        new = self._sole_operand(node)
        if new is None:
            return False
        for _, result, _ in self.edges(node):
            self.replace_uses(node.outputs[result], new)
        self.remove_node(node)
        return True

    def replace_with_weight(self, node: OrtNode, weight: str) -> None:
        """Replace a node with a weight (graph_utils::ReplaceNodeWithInitializer)."""
        for _, result, _ in self.edges(node):
            self.replace_uses(node.outputs[result], weight)
        self.remove_node(node)

    def settle(self) -> None:
        """Do what Graph::Resolve does between transformers: collect the names that inner graphs read again, remove unread weights."""
        for node in self:
            for body in node.bodies.values():
                body.settle()
            if node.bodies:
                self._forget(node)
                node.captured = list(dict.fromkeys(name for body in node.bodies.values() for name in body.free_names()))
                self._read(node)
        for name in [name for name in self.weights if not self._readers.get(name) and name not in self.outputs]:
            if name not in self.inputs:
                del self.weights[name]
        if self.infer is not None:
            self.infer(self)

    def free_names(self) -> list[str]:
        """Return the names that the graph reads and does not have."""
        names = dict.fromkeys(name for node in self for name in (*node.inputs, *node.captured) if name)
        names.update(dict.fromkeys(self.outputs))
        return [name for name in names if name not in self._makers and name not in self.weights and name not in self.inputs]


def _size(dim: object) -> Size:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, SymDim) and dim.symbols() == (dim,):
        return None if dim.is_unknown else str(dim)
    return None


def dtype_of(array: Array) -> DType:
    return LONG_NAMES.get(array.dtype.name, DType.UNKNOWN if array.dtype.kind not in "OUS" else DType.STR)


CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"


@dataclass
class Session:
    """State of a session: what it runs on, and what was done."""

    provider: str = CPU
    block: int = 16
    """Channels of a block of the NCHWc layout: 16 with AVX-512, 8 with AVX2, 1 for none."""
    without: Set[str] = frozenset()
    """Transformers that the release does not have."""
    reordered: Sequence[str] = ()
    """Values reordered back from blocks, in the order in which one session happened to do that."""
    applied: list[tuple[int, str]] = field(default_factory=list)
    """Transformers that changed the graph: the level and the name, in order."""


Apply: TypeAlias = Callable[[OrtGraph, Session], bool]
"""Works on one graph and those inside its nodes, and tells whether anything changed."""
Rewrite: TypeAlias = Callable[[OrtGraph, OrtNode], bool]
"""Looks at one node, and tells whether anything changed."""


@immutable(slots=False)
class Rule:
    name: str
    ops: frozenset[str]
    rewrite: Rewrite


TRANSFORMERS: dict[str, Apply] = {}
RULES: dict[str, Rule] = {}


def transformer(*names: str) -> Callable[[Apply], Apply]:
    """Register what ONNX Runtime's transformers of these names do; the driver's ORDER says at which level and when."""

    def register(apply: Apply) -> Apply:
        for name in names:
            TRANSFORMERS[name] = apply
        return apply

    return register


def per_node(*names: str) -> Callable[[Rewrite], Rewrite]:
    """Register a transformer that goes through the nodes in topological order, into the graphs inside each first."""

    def register(rewrite: Rewrite) -> Rewrite:
        def apply(graph: OrtGraph, session: Session) -> bool:
            changed = False
            for node in graph.order():
                if graph.nodes.get(node.index) is not node:
                    continue
                for body in node.bodies.values():
                    changed |= apply(body, session)
                changed |= rewrite(graph, node)
            return changed

        transformer(*names)(apply)
        return rewrite

    return register


def rule(name: str, *ops: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rule of the rule-based transformers, for nodes of these operators."""

    def register(rewrite: Rewrite) -> Rewrite:
        RULES[name] = Rule(name, frozenset(ops), rewrite)
        return rewrite

    return register


ADD: Final = (7, 13, 14)
"""since_versions of Add, Sub, Mul and Div."""
POW: Final = (7, 12, 13, 15)
CAST: Final = (9, 13, 19, 21, 23, 24, 25)

HALF_OR_MORE: Final = frozenset({DType.F16, DType.F32, DType.F64})
FLOATS: Final = frozenset({DType.F16, DType.F32, DType.F64, DType.BF16})


def has_dtypes(graph: OrtGraph, node: OrtNode, allowed: Collection[DType], first: int | None = None) -> bool:
    """IsSupportedDataType: all operands, or the first few, are of these element types."""
    return all(graph.dtype(name) in allowed for name in node.inputs[:first] if name)


def is_scalar(graph: OrtGraph, name: str) -> bool:
    """optimizer_utils::IsScalar: no axes, or one of a single element."""
    return graph.shape(name) in ((), (1,))


def is_number(graph: OrtGraph, name: str, expected: float) -> bool:
    """optimizer_utils::IsInitializerWithExpectedValue, for a constant."""
    found = graph.scalar(name) if is_scalar(graph, name) else None
    if found is None:
        return False
    if graph.dtype(name).is_float:
        difference = abs(found - expected)
        return not math.isinf(difference) and difference <= 1e-8 + 1e-5 * abs(expected)
    return found == expected


def ends_in_one(graph: OrtGraph, node: OrtNode, count: int = 1) -> bool:
    """optimizer_utils::CheckOutputEdges: its results are not the graph's, and are read so many times."""
    return not graph.makes_output(node) and graph.edge_count(node) == count


def matching(
    graph: OrtGraph,
    node: OrtNode | None,
    op: str,
    versions: Sequence[int],
    test: Callable[[OrtGraph, OrtNode], bool] | None = None,
) -> OrtNode | None:
    """Return the node, if it is this operator in one of these versions and passes the test: a link of a chain that is fused."""
    if node is None or not node.matches(op, versions):
        return None
    return node if test is None or test(graph, node) else None


def reader_of(graph: OrtGraph, node: OrtNode) -> OrtNode | None:
    """Return the node at the first output edge."""
    edges = graph.edges(node)
    return edges[0][0] if edges else None


def readers_by_number(graph: OrtGraph, node: OrtNode) -> list[OrtNode]:
    """Return the nodes at the output edges, one for each edge."""
    return [reader for reader, _, _ in graph.edges(node)]


def first_child(graph: OrtGraph, node: OrtNode, op: str) -> OrtNode | None:
    """graph_utils::FirstChildByType."""
    return next((reader for reader in readers_by_number(graph, node) if reader.op == op), None)


def parents(graph: OrtGraph, node: OrtNode) -> list[OrtNode]:
    """Return the nodes at the input edges, by number: the order in which ONNX Runtime keeps them."""
    return sorted([made for made, _ in graph.input_edges(node)], key=lambda made: made.index)


def first_parent(graph: OrtGraph, node: OrtNode, op: str) -> OrtNode | None:
    """graph_utils::FirstParentByType."""
    return next((made for made in parents(graph, node) if made.op == op), None)


def other_operand(node: OrtNode, name: str) -> str:
    """Return the operand of a node with two that is not `name`."""
    return node.input(1) if node.input(0) == name else node.input(0)


def find_path(graph: OrtGraph, node: OrtNode, steps: Sequence[tuple[int, str, Collection[int]]]) -> list[OrtNode] | None:
    """graph_utils::FindPath towards the operands: for each step the operand's place, and the operator that makes it."""
    found: list[OrtNode] = []
    for place, op, versions in steps:
        made = graph.input_node(node, place)
        if made is None or made.op != op or made.version not in versions:
            return None
        found.append(made)
        node = made
    return found


def static_weight(graph: OrtGraph, name: str, rank: int, dtype: DType = DType.F32) -> Weight | None:
    """Return a constant initializer of an element type and rank."""
    found = graph.constant(name)
    return found if found is not None and found.type.dtype is dtype and len(found.shape) == rank else None
