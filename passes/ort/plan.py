"""The kernels that ONNX Runtime launches, and which buffer each value gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache

from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.memory.caching.blocks import FreeList
from irscope.ops.registry import find_op
from irscope.ops.spec import OrtKernel
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import read_values

ABSENT = -1
PLAIN = OrtKernel(())
"""A kernel with nothing special."""


@mutable(slots=True, eq=False)
class Launch:
    """One kernel of the main graph."""

    node: Node
    """The node it stands for, the last of them where irscope has several."""
    name: str
    """The operator's name in the file."""
    kernel: OrtKernel
    inputs: list[int]
    """Numbers of values; ABSENT where an optional one is not given."""
    captured: Sequence[int]
    """Values captured by subgraphs of the node."""
    outputs: list[int]
    as_float: bool = False
    """True where it runs in single precision on casts of what the file has in half."""
    inner: tuple[Launches, ...] = ()
    """Kernels of the graph inside that runs, of both where it is not known which does."""
    kind: object = None
    """Identity of the kind of its node, and of that alone, as the inference tells kinds; None where there is none."""


@immutable
class _ValueFacts:
    """Facts of a value for the columns: they follow from its type and from what the session knows of that."""

    size: Dim | None
    limit: Dim | None
    likeness: object
    reusable: bool
    is_tensor: bool
    dtype: DType | None
    traced: bool

    @classmethod
    def of(cls, type_: Type, known: Type) -> _ValueFacts:
        is_tensor = isinstance(type_, TensorType)
        dtype = type_.dtype if is_tensor else None
        return cls(_bytes_of(type_), type_.nbytes, *_likeness(known), is_tensor, dtype, is_tensor and dtype is not DType.STR)


@mutable(slots=True)
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
    """True where the value may reuse the buffer of a dead one: tensors with at least one axis."""
    is_tensor: list[bool] = field(default_factory=list)
    dtypes: list[DType | None] = field(default_factory=list)
    """Element types; None for what is not a tensor."""
    traced: list[bool] = field(default_factory=list)
    """True where the value has an offset in the memory pattern's block: tensors other than strings."""
    given: int = 0
    """The first so many values are inputs and weights: their memory is not the run's."""
    inputs: int = 0
    """Inputs among them; they come first."""
    returned: list[int] = field(default_factory=list)
    """Values that the model returns."""
    between: dict[int, tuple[Type, Type]] = field(default_factory=dict)
    """Types of values that are none of the graph's, and those that the session knows."""
    constants: list[int] = field(default_factory=list)
    """Bytes of constants of functions, which are copied into the arena like small weights."""
    elsewhere: set[int] = field(default_factory=set)
    """Values that do not lie in the memory that is looked at, but in that of another device."""
    _facts: dict[tuple[Type, Type], _ValueFacts] = field(default_factory=dict, repr=False)

    def add(self, value: Value | None, type_: Type, known: Type) -> int:
        """Return a number for another value; `known` is its type as the session knows it."""
        number = len(self.values)
        self.values.append(value)
        facts = self._facts.get((type_, known))
        if facts is None:
            facts = self._facts[type_, known] = _ValueFacts.of(type_, known)
        if value is None:
            self.between[number] = type_, known
        self.sizes.append(facts.size)
        if facts.size is None and facts.limit is not None:
            self.limits[number] = facts.limit
        self.likeness.append(facts.likeness)
        self.reusable.append(facts.reusable)
        self.is_tensor.append(facts.is_tensor)
        self.dtypes.append(facts.dtype)
        self.traced.append(facts.traced)
        return number


def read_launches(graph: Graph, types: Inferred, known: Inferred) -> Launches:
    """Return the kernels of a graph; `known` are types as the session knows them."""
    return _Reader(graph, types, known).read()


class _Reader:
    def __init__(self, graph: Graph, types: Inferred, known: Inferred) -> None:
        self.graph = graph
        self.types = types
        self.known = known
        self.found = Launches()
        self.numbers: dict[Value, int] = {}

    def read(self) -> Launches:
        found, numbers = self.found, self.numbers
        for value in (*self.graph.inputs, *self.graph.weights, *_from_outside(self.graph)):
            numbers[value] = self._add(value)
        found.given, found.inputs = len(numbers), len(self.graph.inputs)
        group: list[Node] = []
        for node, kind in zip(self.graph, self.types.kinds_of(self.graph), strict=True):
            group.append(node)
            if not _continues(node):
                self._launch(group, kind)
                group = []
        found.returned = [numbers[value] for value in self.graph.outputs if value in numbers]
        return found

    def _add(self, value: Value) -> int:
        return self.found.add(value, self.types.type_of(value), self.known.type_of(value))

    def _launch(self, group: list[Node], kind: object) -> None:
        found, numbers = self.found, self.numbers
        last = group[-1]
        name = op_type(last.source)
        if len(group) == 1:
            inputs = [ABSENT if value is None else numbers.get(value, ABSENT) for value in last.inputs]
            made: Sequence[Value] = last.outputs
        else:
            inner = {value for node in group for value in node.outputs}
            read = [value for node in group for value in node.inputs if value not in inner]
            inputs = [ABSENT if value is None else numbers.get(value, ABSENT) for value in read]
            made = [value for node in group for value in node.outputs if value.name is not None] or last.outputs
        captured: Sequence[int] = ()
        if last.regions:
            own = sum(value is not None for value in last.inputs)
            captured = [numbers[value] for value in read_values(last)[own:] if value in numbers]
        outputs: list[int] = []
        for value in made:
            # An optional result that the file leaves out has no name and no buffer.
            if value.name is not None or len(made) == 1:
                numbers[value] = number = self._add(value)
                outputs.append(number)
        kernel = _kernel_facts(last.op, name)
        found.launches.append(Launch(last, name, kernel, inputs, captured, outputs, kind=kind if len(group) == 1 else None))


def _from_outside(graph: Graph) -> Iterator[Value]:
    """Yield the values that a graph inside a node reads from around it."""
    if graph.owner is None:
        return
    inside = {value for body in graph.graphs() for value in (*body.inputs, *body.weights)}
    inside.update(value for node in graph.walk() for value in node.outputs)
    read = [value for node in graph.walk() for value in node.inputs]
    yield from dict.fromkeys(value for value in (*read, *graph.outputs) if value is not None and value not in inside)


def _continues(node: Node) -> bool:
    """Return whether the next node belongs to the same node of the file: the results have no names, and all their uses are in that node."""
    following = node.next
    if following is None or not node.source or following.source != node.source:
        return False
    return all(
        output.name is None and output.users and all(isinstance(user, Node) and user.source == node.source for user in output.users)
        for output in node.outputs
    )


def ort_kernel_of(node: Node) -> OrtKernel:
    """Return the memory behaviour of ONNX Runtime's kernel for a node."""
    return _kernel_facts(node.op, op_type(node.source))


@lru_cache(maxsize=4096)
def op_type(source: str) -> str:
    """Return the operator's name of "onnx::Conv@11"."""
    return source.rpartition("::")[2].partition("@")[0]


@lru_cache(maxsize=4096)
def _kernel_facts(op: str, name: str) -> OrtKernel:
    spec = find_op(op)
    for kernel in spec.ort if spec is not None else ():
        if name in kernel.names:
            return kernel
    return PLAIN


def _bytes_of(type_: Type) -> Dim | None:
    if not isinstance(type_, TensorType):
        return 0
    size = type_.nbytes
    return None if isinstance(size, SymDim) and size.is_unknown else size


def _likeness(type_: Type) -> tuple[object, bool]:
    """Return the key that is equal for tensors of one size to the session, and whether the tensor may take the buffer of a dead one."""
    if not isinstance(type_, TensorType) or type_.shape is None or type_.dtype is DType.STR:
        return None, False
    if any(isinstance(dim, SymDim) and dim.is_unknown for dim in type_.shape):
        return None, False
    return (type_.dtype.bits, type_.shape), bool(type_.shape)


# The kernels that ONNX Runtime launches for a graph, and the values that go between them.

NEVER = -1


@mutable(slots=True)
class Buffers:
    """Columns by number of value, and by step."""

    owner: list[int]
    """The value whose buffer a value occupies: itself where it has its own."""
    source: list[int]
    """The value of which a value is a view: itself where it is none."""
    is_output: list[bool]
    """True where the buffer is returned to the caller; it is never reused and lives to the end."""
    born: list[int]
    """The step that allocates the buffer, NEVER for values without an allocation."""
    released: list[int]
    """The step after which the buffer is freed, NEVER for those that live until the run ends."""
    taken: list[tuple[int, ...]]
    """Buffers that each step allocates, in order."""
    dropped: list[tuple[int, ...]]
    """Buffers that each step frees."""


def plan_buffers(order: Sequence[Launch], found: Launches, reuse: bool = True) -> Buffers:
    """Go through the steps as ONNX Runtime's planner does."""
    planner = _Planner(order, found, reuse)
    for step, launch in enumerate(order):
        planner.place(step, launch)
        planner.settle(launch)
    return planner.release(order)


class _Planner:
    def __init__(self, order: Sequence[Launch], found: Launches, reuse: bool) -> None:
        count = len(found.values)
        self.found = found
        self.reuse = reuse
        self.owner = list(range(count))
        self.source = list(range(count))
        self.is_output = [False] * count
        self.uses = uses = [0] * count
        """Reference counts of buffers: outstanding uses and definitions of all values that share them; one more for what others own."""
        self.free: defaultdict[object, list[int]] = defaultdict(list)
        """Dead buffers by shape and type, the most recently freed last."""
        self.born = [NEVER] * count
        self.taken: defaultdict[int, list[int]] = defaultdict(list)
        for value in range(found.given):
            uses[value] = 1
        for launch in order:
            for value in (*launch.inputs, *launch.captured):
                if value >= 0:
                    uses[value] += 1
            for value in launch.outputs:
                uses[value] += 1
        for value in found.returned:
            uses[value] += 1
            self.is_output[value] = value >= found.given

    def place(self, step: int, launch: Launch) -> None:
        """Assign buffers to the results of a step."""
        for position, value in enumerate(launch.outputs):
            if not self.is_output[value]:
                source = self._source(launch, position, value)
                if source >= 0:
                    owner = self.owner[source]
                    self.owner[value] = owner
                    if position == 0 and launch.kernel.alias and source == launch.inputs[0]:
                        self.source[value] = self.source[source]
                    self.uses[owner] += self.uses[value]
                    continue
            self.born[value] = step
            self.taken[step].append(value)

    def _source(self, launch: Launch, position: int, value: int) -> int:
        """Return a value whose buffer the result reuses, or NEVER."""
        found = self.found
        kernel, inputs = launch.kernel, launch.inputs
        if position == 0 and inputs:
            if kernel.alias and inputs[0] >= 0:
                return inputs[0]
            for index in kernel.in_place:
                operand = inputs[index] if index < len(inputs) else NEVER
                likeness = found.likeness[value]
                if operand >= 0 and self.uses[self.owner[operand]] == 1 and likeness is not None and likeness == found.likeness[operand]:
                    return operand
        # A value without a use gets its own buffer.
        if self.reuse and found.reusable[value] and self.uses[value] > 1:
            dead = self.free.get(found.likeness[value])
            if dead:
                return dead.pop()
        return NEVER

    def settle(self, launch: Launch) -> None:
        """Decrement the reference counts of a step's operands and results; dead buffers become free for later results."""
        for value in (*launch.inputs, *launch.captured, *launch.outputs):
            if value >= 0:
                owner = self.owner[value]
                self.uses[owner] -= 1
                if not self.uses[owner]:
                    self.free[self.found.likeness[owner]].append(owner)

    def release(self, order: Sequence[Launch]) -> Buffers:
        """Return when each buffer is freed: after its last use. Buffers without a use stay until the run ends."""
        released = [NEVER] * len(self.owner)
        for step, launch in enumerate(order):
            for value in (*launch.inputs, *launch.captured):
                if value >= 0:
                    released[self.owner[value]] = step
        dropped: defaultdict[int, list[int]] = defaultdict(list)
        for value, step in enumerate(released):
            if step == NEVER:
                continue
            if self.born[value] == NEVER or self.is_output[value]:
                released[value] = NEVER
            else:
                dropped[step].append(value)
        taken, frees = ([tuple(by_step.get(step, ())) for step in range(len(order))] for by_step in (self.taken, dropped))
        return Buffers(self.owner, self.source, self.is_output, self.born, released, taken, frees)


# The memory pattern: the offset of each buffer in the one block that ONNX Runtime allocates from the second run on.

ALIGNMENT = 256


def pattern_bytes(buffers: Buffers, sizes: Sequence[int], traced: Sequence[bool]) -> int:
    """Return the size of the block: each buffer goes into the smallest sufficient gap between live ones or behind them, up to where the
    block reaches already (best fit), else behind the last (MemPatternPlanner::TraceAllocation)."""
    packing = _Packing()
    for taken, dropped in zip(buffers.taken, buffers.dropped, strict=True):
        for value in taken:
            if traced[value] and not buffers.is_output[value]:
                packing.take(value, aligned(sizes[value]))
        for value in dropped:
            packing.drop(value)
    return packing.height


def aligned(size: int) -> int:
    """Aligned bytes of a tensor in the block."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


class _Piece:
    """A buffer, or a gap between buffers."""

    __slots__ = ("address", "key", "next", "order", "prev", "size")

    def __init__(self, size: int, address: int, prev: _Piece | None, following: _Piece | None) -> None:
        self.size = size
        self.address = address
        self.order = 0
        self.key = 0
        self.prev = prev
        self.next = following
        if prev is not None:
            prev.next = self
        if following is not None:
            following.prev = self


class _Packing:
    """Buffers and gaps that tile the block up to the last live buffer; gaps also sorted by size."""

    def __init__(self) -> None:
        self.height = 0
        self.last: _Piece | None = None
        self.gaps: FreeList[_Piece] = FreeList()
        self.placed: dict[int, _Piece] = {}

    def take(self, value: int, size: int) -> None:
        if not size:
            return
        last = self.last
        end = 0 if last is None else last.address + last.size
        piece = self.gaps.take(size)
        if piece is not None and size <= self.height - end < piece.size:
            # What is free behind the last, up to where the block reaches already, is a gap like others.
            self.gaps.add(piece)
            piece = None
        if piece is None:
            piece = self.last = _Piece(size, end, last, None)
            self.height = max(self.height, piece.address + size)
        elif piece.size > size:
            self.gaps.add(_Piece(piece.size - size, piece.address + size, piece, piece.next))
            piece.size = size
        piece.key = 0
        self.placed[value] = piece

    def drop(self, value: int) -> None:
        piece = self.placed.pop(value, None)
        if piece is None:
            return
        for other in (piece.prev, piece.next):
            if other is not None and other.key:
                self.gaps.remove(other.key)
                piece.size += other.size
                piece.address = min(piece.address, other.address)
                self._unlink(other)
        if piece is self.last:
            self._unlink(piece)
        else:
            self.gaps.add(piece)

    def _unlink(self, piece: _Piece) -> None:
        if piece.prev is not None:
            piece.prev.next = piece.next
        if piece.next is not None:
            piece.next.prev = piece.prev
        else:
            self.last = piece.prev
