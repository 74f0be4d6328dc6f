"""The kernels that ONNX Runtime launches for a graph, and the values that go between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.ops.registry import find_op
from irscope.ops.spec import OrtKernel
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import read_values

ABSENT = -1
_PLAIN = OrtKernel(())
"""A kernel with nothing special."""


@dataclass(slots=True, eq=False)
class Launch:
    """One kernel of the main graph."""

    node: Node
    """The node it stands for, the last of them where irscope has several."""
    name: str
    """The operator's name in the file."""
    kernel: OrtKernel
    inputs: list[int]
    """Numbers of values; ABSENT where an optional one is not given."""
    captured: list[int]
    """Values captured by subgraphs of the node."""
    outputs: list[int]


@dataclass(slots=True)
class Launches:
    """Kernels in the order of the file, and columns of values by number."""

    launches: list[Launch] = field(default_factory=list)
    values: list[Value | None] = field(default_factory=list)
    """None for intermediate values of a node that ONNX Runtime runs as several kernels."""
    sizes: list[Dim | None] = field(default_factory=list)
    """Bytes; 0 for what is not a tensor, None where it is unknown."""
    limits: dict[int, Dim] = field(default_factory=dict)
    """The symbolic size of values whose bytes are unknown, with its bounds where it has some."""
    likeness: list[object] = field(default_factory=list)
    """Equal where ONNX Runtime considers two tensors to be of the same size; None where it never does."""
    reusable: list[bool] = field(default_factory=list)
    """Whether the value may reuse the buffer of a dead one: tensors with at least one axis."""
    is_tensor: list[bool] = field(default_factory=list)
    traced: list[bool] = field(default_factory=list)
    """Whether the value has an offset in the memory pattern's block: tensors other than strings."""
    given: int = 0
    """The first so many values are inputs and weights: their memory is not the run's."""
    inputs: int = 0
    """Inputs among them; they come first."""
    returned: list[int] = field(default_factory=list)
    """Values that the model returns."""

    def add(self, value: Value | None, type_: Type) -> int:
        """A number for another value."""
        number = len(self.values)
        self.values.append(value)
        size, likeness, reusable = _facts(type_)
        self.sizes.append(size)
        if size is None and type_.nbytes is not None:
            self.limits[number] = type_.nbytes
        self.likeness.append(likeness)
        self.reusable.append(reusable)
        self.is_tensor.append(isinstance(type_, TensorType))
        self.traced.append(isinstance(type_, TensorType) and type_.dtype is not DType.STR)
        return number


def read_launches(graph: Graph, types: Inferred) -> Launches:
    """The kernels of a graph."""
    return _Reader(graph, types).read()


class _Reader:
    def __init__(self, graph: Graph, types: Inferred) -> None:
        self.graph = graph
        self.types = types
        self.found = Launches()
        self.numbers: dict[Value, int] = {}
        self.halved: list[Launch] = []

    def read(self) -> Launches:
        found, numbers = self.found, self.numbers
        for value in (*self.graph.inputs, *self.graph.weights):
            numbers[value] = found.add(value, self.types.type_of(value))
        found.given, found.inputs = len(numbers), len(self.graph.inputs)
        group: list[Node] = []
        for node in self.graph:
            group.append(node)
            if not _continues(node):
                self._launch(group)
                group = []
        found.launches.extend(self.halved)
        found.returned = [numbers[value] for value in self.graph.outputs if value in numbers]
        return found

    def _launch(self, group: list[Node]) -> None:
        found, numbers = self.found, self.numbers
        last = group[-1]
        name = _op_type(last.source)
        if len(group) == 1:
            inputs = [ABSENT if value is None else numbers.get(value, ABSENT) for value in last.inputs]
            made: Sequence[Value] = last.outputs
        else:
            inner = {value for node in group for value in node.outputs}
            read = [value for node in group for value in node.inputs if value not in inner]
            inputs = [ABSENT if value is None else numbers.get(value, ABSENT) for value in read]
            made = [value for node in group for value in node.outputs if value.name is not None] or last.outputs
        captured: list[int] = []
        if last.regions:
            own = sum(value is not None for value in last.inputs)
            captured = [numbers[value] for value in read_values(last)[own:] if value in numbers]
        outputs: list[int] = []
        for value in made:
            # An optional result that the file leaves out has no name and no buffer.
            if value.name is not None or len(made) == 1:
                numbers[value] = number = found.add(value, self.types.type_of(value))
                outputs.append(number)
        kernel = _kernel_facts(last.op, name)
        if kernel.halves and inputs and inputs[0] != ABSENT and outputs:
            # ONNX Runtime appends the nodes of a function after all others.
            between = found.add(None, self.types.type_of(made[0]))
            self.halved.append(Launch(last, name, _PLAIN, inputs, [], [between]))
            self.halved.append(Launch(last, name, _PLAIN, [inputs[0], between], [], outputs))
            return
        found.launches.append(Launch(last, name, kernel, inputs, captured, outputs))


def _continues(node: Node) -> bool:
    """Whether the next node belongs to the same node of the file: the results have no names, and all their uses are in that node."""
    following = node.next
    if following is None or not node.source or following.source != node.source:
        return False
    return all(
        output.name is None and output.users and all(isinstance(user, Node) and user.source == node.source for user in output.users)
        for output in node.outputs
    )


def kernel_of(node: Node) -> OrtKernel:
    """Memory behaviour of ONNX Runtime's kernel for a node."""
    return _kernel_facts(node.op, _op_type(node.source))


@lru_cache(maxsize=4096)
def _op_type(source: str) -> str:
    """The operator's name of "onnx::Conv@11"."""
    return source.rpartition("::")[2].partition("@")[0]


@lru_cache(maxsize=4096)
def _kernel_facts(op: str, name: str) -> OrtKernel:
    spec = find_op(op)
    for kernel in spec.ort if spec is not None else ():
        if name in kernel.names:
            return kernel
    return _PLAIN


def _facts(type_: Type) -> tuple[Dim | None, object, bool]:
    if not isinstance(type_, TensorType):
        return 0, None, False
    shape, size = type_.shape, type_.nbytes
    if isinstance(size, SymDim) and size.is_unknown:
        size = None
    if shape is None or type_.dtype is DType.STR:
        return size, None, False
    if any(isinstance(dim, SymDim) and dim.is_unknown for dim in shape):
        return size, None, False
    return size, (type_.dtype.bits, shape), bool(shape)
