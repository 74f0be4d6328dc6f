"""The kernels that ONNX Runtime launches, which buffer each value gets, and what two runs of a session take from the arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.memory.arena import BfcArena, Chunk, likeness_of
from irscope.memory.caching.blocks import FreeList
from irscope.memory.caching.device import OutOfMemory
from irscope.ops.registry import find_op
from irscope.ops.spec import KernelPacking, OrtKernel
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import read_values

ABSENT = -1
_CONDITION = 1
"""Bytes of the condition that a Loop starts with."""
_COUNTER = 8
"""Bytes of the number of its step."""
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


def kernel_of(node: Node) -> OrtKernel:
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


# ----------------------------------------------------------------------------------------------------
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


# ----------------------------------------------------------------------------------------------------
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


# ----------------------------------------------------------------------------------------------------
# Two runs of a session through the arena: bytes after each kernel, and the peaks.


@immutable
class OrtUsage:
    """Bytes as ONNX Runtime's profile counts them."""

    requested: int
    """In use, as asked for: mem_bytes_requested_in_use. As a peak, the most after any kernel."""
    allocated: int
    """In use, as chunks of the arena: mem_bytes_in_use. As a peak, mem_in_use_peak, which includes temporary memory of kernels."""
    reserved: int
    """Held by the arena: mem_arena_held."""


@immutable
class OrtRun:
    """One run."""

    peak: OrtUsage
    requested: list[int] = field(repr=False)
    """mem_bytes_requested_in_use after each kernel."""
    allocated: list[int] = field(repr=False)
    """mem_bytes_in_use after each kernel."""
    peak_step: int
    """The step after which most bytes are in use, as asked for."""
    highest: list[int] = field(repr=False)
    """Peak bytes in use while each kernel runs, as chunks of the arena, its temporary memory included."""
    block: int = 0
    """Bytes of the block that holds what is not returned; 0 where there is none, or no room for it."""


@immutable
class OrtFigures:
    """Memory of a session before it runs, and in its first and second run."""

    before: OrtUsage
    cold: OrtRun
    warm: OrtRun
    pattern: int
    """Bytes of the memory-pattern block of the second run, for all values but the outputs; 0 without a pattern."""
    takes: Sequence[int] = field(default=(), repr=False)
    """Temporary memory of each kernel, in bytes."""


@mutable(slots=True)
class Inner:
    """A graph inside a node. Its results are those of the node, and have their memory before it runs where the session knows their
    shapes (IfImpl::AllocateOutputTensors in core/providers/cpu/controlflow/if.cc), else when their kernels run."""

    buffers: Buffers
    sizes: Sequence[int]
    traced: Sequence[bool]
    takes: Sequence[int]
    early: Container[int]
    inner: Mapping[int, Inner]
    late: Mapping[int, int] = field(default_factory=dict)
    """Results that get their memory when their kernels run: each with the number that it has around the node."""
    has_pattern: bool = True
    """True where its runs take one block for all that they do not return, from the second on."""
    has_run: bool = False
    """True where its pattern is known, so that it takes one block."""
    block: int | None = None
    """Bytes of that block, once they were counted."""
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Temporary memory of kernels that ask for it in several pieces, one after another."""
    steps: LoopSteps | ScanSteps | None = None
    """How often a Loop or a Scan runs it; None for what runs once, as the branch of an If."""


@immutable
class LoopSteps:
    """The steps of a Loop's body, whose results are the condition, states and slices."""

    trips: int
    results: Sequence[int]
    """Results of the node, by their numbers around it."""
    slices: frozenset[int]
    """Results of the body that are kept to the end of the last step, by number."""
    shared: frozenset[int]
    """Results of the body that have the memory of what it is given."""
    keeps_condition: bool
    """True where each step hands on the condition that it is given."""
    skipped: Sequence[int] = ()
    """Bytes of slices of steps that are left out of the simulation."""


@immutable
class ScanSteps:
    """The steps of a Scan's body, which writes slices into the results of the node."""

    trips: int
    states: Sequence[int]
    """Bytes of states between steps: two of each, that steps write in turn, the last one into the result."""


@immutable
class Session:
    """Memory of a session besides its buffers."""

    copied: Sequence[int]
    """Bytes of weights that are copied into the arena before the first run, and stay."""
    packed: Sequence[tuple[Hashable, KernelPacking]]
    """Weights that kernels pack then, in the order of the file, with a key: of equal ones only the first is kept."""
    takes: Sequence[int]
    """Temporary memory of each kernel, in bytes."""
    early: Container[int]
    """Kernels that take it before their results."""
    inner: Mapping[int, Inner]
    """Graphs that kernels run, by step."""
    arena: BfcArena
    """A fresh one."""
    pattern: bool
    dropped: Sequence[int] = ()
    """Bytes of weights that are copied likewise, and go when all their readers have packed them."""
    loaded: Sequence[int] = ()
    """Bytes of weights that lie in the arena, in the order in which they are loaded."""
    brought: Sequence[int] = ()
    """Bytes of inputs that each run copies into it, for as long as it takes."""
    carried: Sequence[int] = ()
    """Bytes of results that each run copies into it at its end."""
    block: int | None = None
    """Bytes of the block of the second run, where they are known already."""
    shrinks: bool = False
    """True where each run gives back what is free in the end: memory.enable_memory_arena_shrinkage."""
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Temporary memory of kernels that ask for it in several pieces."""


def simulate(
    buffers: Buffers,
    sizes: Sequence[int],
    traced: Sequence[bool],
    session: Session,
    peaks: dict[tuple[object, ...], OrtFigures] | None = None,
) -> OrtFigures:
    """Pack weights, then run twice; the peaks of the first run are also those of packing. `sizes` are bytes of values; those that `traced`
    marks have an offset in the second run's block. With `peaks` nothing but the peaks is found, once for arenas that are alike after
    loading: those that were found before are there."""
    arena = session.arena
    arena.load(session.loaded)
    for size in session.copied:
        arena.reserve(size)
    dropped = [arena.reserve(size) for size in session.dropped]
    kept: set[Hashable] = set()
    for key, packed in session.packed:
        chunk = arena.reserve(packed.nbytes) if packed.reserved else arena.malloc(packed.nbytes)
        arena.free(arena.malloc(packed.meanwhile))
        if key in kept and packed.shared:
            # A kernel packs before the session can find that it has the same already.
            arena.free(chunk)
        kept.add(key)
    _give_back(arena, dropped)
    before = _usage(arena)
    likeness = () if peaks is None else likeness_of(arena)
    if peaks is not None and likeness in peaks:
        return peaks[likeness]
    run = _simulated_run if peaks is None else _simulated_peaks
    all_alone = [True] * len(sizes)
    cold = run(session, buffers, sizes, all_alone, 0)
    arena.reset_peaks()
    block = (pattern_bytes(buffers, sizes, traced) if session.block is None else session.block) if session.pattern else 0
    alone = all_alone
    if block:
        alone = [is_output or not in_block for is_output, in_block in zip(buffers.is_output, traced, strict=True)]
    warm = run(session, buffers, sizes, alone, block)
    figures = OrtFigures(before, cold, warm, warm.block, session.takes)
    if peaks is not None:
        peaks[likeness] = figures
    return figures


def _simulated_peaks(session: Session, buffers: Buffers, sizes: Sequence[int], alone: Sequence[bool], block: int) -> OrtRun:
    """Return the peaks of one run without graphs inside kernels, as `_simulated_run` finds them."""
    arena, takes = session.arena, session.takes
    malloc, free = arena.malloc, arena.free
    around = [malloc(size) for size in session.brought]
    try:
        around.append(malloc(block))
    except OutOfMemory:
        alone, block = [True] * len(sizes), 0
    chunks: dict[int, Chunk] = {}
    most = arena.requested
    for step, (taken, dropped, own) in enumerate(zip(buffers.taken, buffers.dropped, takes, strict=True)):
        for value in taken:
            if sizes[value] and alone[value] and (chunk := malloc(sizes[value])) is not None:
                chunks[value] = chunk
        if own:
            _give_back(arena, _working(arena, session, step))
        if taken and arena.requested > most:
            most = arena.requested
        for value in dropped:
            if value in chunks:
                free(chunks.pop(value))
    around += [malloc(size) for size in session.carried]
    counters = arena.counters()
    for left in (*chunks.values(), *around):
        free(left)
    if session.shrinks:
        arena.shrink()
    return OrtRun(OrtUsage(most, counters.in_use_peak, counters.held_peak), [], [], 0, [], block)


def _simulated_run(session: Session, buffers: Buffers, sizes: Sequence[int], alone: Sequence[bool], block: int) -> OrtRun:
    """Return one run; only values that `alone` marks take memory from the arena, the others have theirs in the block."""
    arena = session.arena
    around = [arena.malloc(size) for size in session.brought]
    try:
        around.append(arena.malloc(block))
    except OutOfMemory:
        # The session then gives every tensor a chunk of its own, as in its first run.
        alone, block = [True] * len(sizes), 0
    chunks: dict[int, Chunk | None] = {}
    requested: list[int] = []
    allocated: list[int] = []
    highest: list[int] = []
    inside: dict[int, int] = {}
    malloc, free = arena.malloc, arena.free

    def give(value: int) -> None:
        if alone[value]:
            chunks[value] = malloc(sizes[value])

    for step, taken in enumerate(buffers.taken):
        own = _working(arena, session, step) if step in session.early else []
        body = session.inner.get(step)
        for value in _early(taken, body):
            give(value)
        own = own or _working(arena, session, step)
        most = arena.in_use
        if body is not None:
            inside[step], most = _run_inner(arena, body, session.pattern, give)
        highest.append(most)
        _give_back(arena, own)
        requested.append(arena.requested)
        allocated.append(arena.in_use)
        for value in buffers.dropped[step]:
            free(chunks.pop(value, None))
    around += [arena.malloc(size) for size in session.carried]
    counters = arena.counters()
    for left in (*chunks.values(), *around):
        free(left)
    if session.shrinks:
        arena.shrink()
    heights = [max(after, inside.get(step, 0)) for step, after in enumerate(requested)] if inside else requested
    most = max(heights, default=arena.requested)
    peak = OrtUsage(most, counters.in_use_peak, counters.held_peak)
    return OrtRun(peak, requested, allocated, heights.index(most) if heights else 0, highest, block)


def _working(arena: BfcArena, frame: Session | Inner, step: int) -> list[Chunk | None]:
    """Take the temporary memory of a kernel, piece by piece."""
    pieces = frame.pieces.get(step)
    if pieces is None:
        pieces = (frame.takes[step],) if frame.takes[step] else ()
    return [arena.malloc(size) for size in pieces]


def _give_back(arena: BfcArena, chunks: Sequence[Chunk | None]) -> None:
    for chunk in chunks:
        arena.free(chunk)


def _early(taken: Sequence[int], body: Inner | None) -> Sequence[int]:
    """Return the buffers of a node that are there before a graph inside it runs."""
    late = () if body is None else set(body.steps.results if isinstance(body.steps, LoopSteps) else body.late.values())
    return [value for value in taken if value not in late] if late else taken


def _run_inner(arena: BfcArena, graph: Inner, pattern: bool, give: Callable[[int], None]) -> tuple[int, int]:
    """Run a graph inside a node: the most bytes requested after any of its kernels, and the most in use. `give` takes the memory of a
    result of the node, by its number around it."""
    if isinstance(graph.steps, LoopSteps):
        return _repeat_body(arena, graph, graph.steps, pattern, give)
    steps = graph.steps or ScanSteps(1, ())
    states = [arena.malloc(size) for size in steps.states]
    requested, highest = arena.requested, arena.in_use
    for _ in range(steps.trips):
        within, most, _ = _run_body(arena, graph, pattern, give)
        # The first step has given results their memory whose shapes the session does not know.
        give = _no_more
        requested, highest = max(requested, within), max(highest, most)
    _give_back(arena, states)
    return requested, highest


def _no_more(_value: int) -> None:
    """Give a result of a node no memory: it has it."""


def _repeat_body(arena: BfcArena, graph: Inner, steps: LoopSteps, pattern: bool, give: Callable[[int], None]) -> tuple[int, int]:
    """Run the body of a Loop step by step (LoopImpl::Execute in core/providers/cpu/controlflow/loop.cc). A step begins when the results
    of the last but one are gone; after the last one everything is copied into the results of the node."""
    states: list[Chunk | None] = [arena.malloc(_CONDITION)]
    kept: list[Chunk | None] = [arena.malloc(_COUNTER)]
    if steps.keeps_condition:
        kept, states = kept + states, []
    before: list[Chunk | None] = []
    requested, highest = arena.requested, arena.in_use
    for trip in range(steps.trips):
        if trip == steps.trips - 1:
            kept += map(arena.malloc, steps.skipped)
        _give_back(arena, before)
        within, most, made = _run_body(arena, graph, pattern, give)
        requested, highest = max(requested, within), max(highest, most)
        before, states = states, [chunk for number, chunk in made.items() if number not in steps.slices]
        kept += [chunk for number, chunk in made.items() if number in steps.slices]
    for around in steps.results:
        give(around)
    highest = max(highest, arena.in_use)
    _give_back(arena, (*before, *states, *kept))
    return requested, highest


def _run_body(arena: BfcArena, graph: Inner, pattern: bool, give: Callable[[int], None]) -> tuple[int, int, dict[int, Chunk | None]]:
    """Run a graph inside a node once, as `_run_inner`, and return also what a step of a Loop hands on."""
    buffers, sizes = graph.buffers, graph.sizes
    block = _inner_block(graph) if pattern and graph.has_pattern and graph.has_run else 0
    graph.has_run = True
    around = arena.malloc(block)
    chunks: dict[int, Chunk | None] = {}
    handed_on: dict[int, Chunk | None] = {}
    requested, highest = arena.requested, arena.in_use

    def take(value: int) -> None:
        if buffers.is_output[value] and isinstance(graph.steps, LoopSteps):
            if value not in graph.steps.shared:
                handed_on[value] = arena.malloc(sizes[value])
        elif value in graph.late:
            give(graph.late[value])
        elif not buffers.is_output[value] and not (block and graph.traced[value]):
            chunks[value] = arena.malloc(sizes[value])

    for step, taken in enumerate(buffers.taken):
        own = _working(arena, graph, step) if step in graph.early else []
        body = graph.inner.get(step)
        for value in _early(taken, body):
            take(value)
        own = own or _working(arena, graph, step)
        most = arena.in_use
        if body is not None:
            within, most = _run_inner(arena, body, pattern, take)
            requested = max(requested, within)
        highest = max(highest, most)
        _give_back(arena, own)
        requested = max(requested, arena.requested)
        for value in buffers.dropped[step]:
            arena.free(chunks.pop(value, None))
    for chunk in (around, *chunks.values()):
        arena.free(chunk)
    return requested, highest, handed_on


def _inner_block(graph: Inner) -> int:
    """Return the bytes of the block that a further run of a graph inside a node takes, counted once."""
    if graph.block is None:
        graph.block = pattern_bytes(graph.buffers, graph.sizes, graph.traced)
    return graph.block


def _usage(arena: BfcArena) -> OrtUsage:
    return OrtUsage(arena.requested, arena.in_use, arena.held)
