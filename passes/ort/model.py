"""Lifetimes and figures of a graph under ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import field
from itertools import chain
from typing import Final, Literal, TypeAlias

from irscope.devices.releases import NEWEST_ORT, OrtRelease, ort_release
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim, bounds
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import TensorType, Type, tensor
from irscope.memory.arena import BfcArena, Strategy
from irscope.ops.ort import CHOICE, FUNCTIONS, OF_LISTS, FunctionStep, function_of, runs_halves
from irscope.ops.registry import spec_of
from irscope.ops.spec import Family, KernelPacking, OpCall
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import OUTPUT, UNLIMITED, LiveRange, Tenant, is_unknown
from irscope.passes.ort.cuda_session import CudaSession
from irscope.passes.ort.known import opset_of
from irscope.passes.ort.plan import (
    ABSENT,
    NEVER,
    PLAIN,
    Buffers,
    Launch,
    Launches,
    op_type,
    ort_kernel_of,
    pattern_bytes,
    plan_buffers,
    read_launches,
)
from irscope.passes.ort.simulated import Inner, LoopSteps, OrtFigures, ScanSteps, Session, simulate
from irscope.solvers.graphs import backwards, sorted_by
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_tensor

LARGEST_COPIED = 127
"""Bytes of the largest weight that a session copies into the arena."""
_WEIGHTS = frozenset({Role.PARAMETER, Role.BUFFER, Role.CONSTANT})
KEPT = "the run: nothing reads it"
_IF: Final = "If"
_LOOP: Final = "Loop"
_SCAN: Final = "Scan"
_IDENTITY: Final = "Identity"
_EXTRACTOR: Final = "ArrayFeatureExtractor"
"""The one operator of ai.onnx.ml that has its values as an operand, not as an attribute."""
_SETTLED: Final = 3
"""Steps of a loop after which each further one takes what the one before took."""
_MOST_KERNELS: Final = 1 << 14
"""Kernels that are simulated for a Loop; further steps only keep their slices."""


@immutable
class OrtOptions:
    """Options of the session."""

    strategy: Strategy = "next_power_of_two"
    pattern: bool = True
    """enable_mem_pattern: from the second run on, one block holds all that is not returned."""
    reuse: bool = True
    """enable_mem_reuse: results take over dead buffers of the same shape."""
    file_order: bool = False
    """Kernels run in the order of the file, as in the session that wrote the file as its optimised model."""
    execution: ExecutionOrder = "default"
    """execution_order: how the session sorts kernels."""
    threads: int = 1
    """intra_op_num_threads: some kernels have a working buffer per thread."""
    path: str = ""
    """The model's file, in which weights that may have the same contents are looked at."""


@mutable(slots=True)
class OrtPlan:
    """ONNX Runtime's execution of a graph: order, buffers and figures."""

    order: list[Launch]
    found: Launches
    buffers: Buffers
    ranges: list[LiveRange]
    """Buffers that the run allocates, in order of birth; each lives from its first tensor to the last that reuses it."""
    unsized: list[Value]
    figures: OrtFigures | None
    """None where a size is a formula or unknown."""
    limits: tuple[OrtFigures, OrtFigures | None] | None = None
    """Where sizes are unknown, the figures with the least and the most that each can be; the latter None where one has no limit."""
    device: str = "cpu"
    """Name of the device that was asked for."""
    release: OrtRelease = field(default_factory=lambda: ort_release(NEWEST_ORT))
    """The release of ONNX Runtime that it is for."""
    level: str = ""
    """The optimisations of the session whose graph it is, and how they are known; empty for a file as written."""
    on_cpu: bool = True
    """True where the kernels are those of the CPU provider: only their packed weights and temporary memory are known."""
    stays: bool = False
    """True where a GPU was asked for but has a form of no kernel: then all of them run on the CPU."""
    learns_sizes: bool = False
    """True where the session learns sizes only from its inputs, and plans without them."""
    inside: Mapping[Node, Dim] = field(default_factory=dict)
    """Peak bytes of subgraphs inside nodes."""
    unsized_ranges: list[LiveRange] = field(default_factory=list)
    """Buffers of unknown size."""
    cuda: CudaSession | None = None
    """For a session on a GPU: `figures` are those of its arena, and this is what it has besides."""

    @property
    def is_known(self) -> bool:
        """Return whether there are rules for what the kernels of the device do."""
        return self.on_cpu or self.cuda is not None

    @property
    def symbols(self) -> list[SymDim]:
        """Named symbols that sizes depend on."""
        found = {symbol: None for size in self.found.sizes if isinstance(size, SymDim) for symbol in size.symbols()}
        return [symbol for symbol in found if not symbol.is_unknown]

    @property
    def steps(self) -> list[Node]:
        """Return the node of each kernel, in the order in which they run."""
        return [launch.node for launch in self.order]


def plan_ort(graph: Graph, types: Inferred, known: Inferred, options: OrtOptions, inside: Mapping[Node, Dim] | None = None) -> OrtPlan:
    """Order, buffers and two simulated runs. `known` are types as the session knows them, `inside` bytes that graphs inside nodes take."""
    return plan_launches(graph, launches_of(graph, types, known, is_session=options.file_order), types, options, inside)


def launches_of(graph: Graph, types: Inferred, known: Inferred, *, is_session: bool = False) -> Launches:
    """Return the kernels of a graph as a session keeps them; one that is a session's already has its DequantizeLinear."""
    found = read_launches(graph, types, known)
    if not is_session:
        found = with_own_dequantized(found, types, known)
    found = without_double_casts(with_half_casts(with_functions(found, types, known), types, known))
    for launch in found.launches:
        if launch.name == _IF:
            branch = types.branches.get(launch.node)
            regions = launch.node.regions if branch is None or branch.taken is None else (launch.node.regions[branch.taken],)
            launch.inner = tuple(launches_of(region, types, known, is_session=is_session) for region in regions)
        elif launch.name in (_LOOP, _SCAN):
            launch.inner = tuple(launches_of(region, types, known, is_session=is_session) for region in launch.node.regions)
    return found


def plan_launches(graph: Graph, found: Launches, types: Inferred, options: OrtOptions, inside: Mapping[Node, Dim] | None = None) -> OrtPlan:
    """Return the same for kernels in an order that may differ from the graph's."""
    order = _order_of(found, options)
    buffers = plan_buffers(order, found, options.reuse)
    unsized = [value for value, size in zip(found.values, found.sizes, strict=True) if size is None and value is not None and value.node]
    ranges, unsized_ranges = ranges_of(order, found, buffers)
    figures, least, most = (_figures(graph, order, found, buffers, types, options, inside or {}, end) for end in (None, 0, 1))
    limits = None if figures is not None or least is None else (least, most)
    return OrtPlan(order, found, buffers, ranges, unsized, figures, limits=limits, inside=inside or {}, unsized_ranges=unsized_ranges)


def _order_of(found: Launches, options: OrtOptions) -> list[Launch]:
    """Return the kernels of a graph, or of one inside a node, as the session runs them."""
    return found.launches if options.file_order else execution_order(found, options.execution)


def ranges_of(order: list[Launch], found: Launches, buffers: Buffers) -> tuple[list[LiveRange], list[LiveRange]]:
    """Return the buffers as live ranges: those of known, and those of unknown size."""
    every = _ranges(order, found, buffers)
    unknown = [one for one in every if one.size.__class__ is not int and is_unknown(one.size)]
    if not unknown:
        return every, unknown
    return [one for one in every if not is_unknown(one.size)], unknown


def _ranges(order: list[Launch], found: Launches, buffers: Buffers) -> list[LiveRange]:
    by_owner: dict[int, LiveRange] = {}
    for step, taken in enumerate(buffers.taken):
        for number in taken:
            if found.is_tensor[number] and number not in found.elsewhere:
                value = found.values[number] or order[step].node.outputs[0]
                known = found.sizes[number]
                size = found.limits.get(number, UNLIMITED) if known is None else known
                by_owner[number] = _range(value, size, step, number, order, buffers)
    _note_uses(by_owner, order, found, buffers)
    return list(by_owner.values())


def _note_uses(by_owner: Mapping[int, LiveRange], order: list[Launch], found: Launches, buffers: Buffers) -> None:
    """Say of each buffer which steps read it, and which tensors occupy it in turn."""
    owners, sources, values = buffers.owner, buffers.source, found.values
    last_use: dict[int, int] = {}
    """The last use of a value or of a view of it."""
    used: dict[int, tuple[list[int], list[Value]]] = {number: ([], []) for number in by_owner}
    made: dict[int, list[tuple[int, int]]] = {number: [] for number in by_owner}
    for step, read in enumerate(chain(map(_reads, order), [found.returned])):
        for number in read:
            if number >= found.given and (uses := used.get(owners[number])) is not None:
                uses[0].append(step)
                uses[1].append(values[number] or by_owner[owners[number]].value)
                last_use[sources[number]] = step
    for step, launch in enumerate(order):
        for number in launch.outputs:
            if sources[number] == number and (tensors := made.get(owners[number])) is not None:
                tensors.append((number, step))
    for number, one in by_owner.items():
        steps, read_values = used[number]
        one.used_at = tuple(steps)
        one.used = tuple(read_values) if any(value is not one.value for value in read_values) else ()
        one.tenants = tuple([_tenant(one, tensor, step, order, found, last_use.get(tensor)) for tensor, step in made[number]])


def _reads(launch: Launch) -> Iterable[int]:
    """Return the values that a kernel reads, each once."""
    inputs, captured = launch.inputs, launch.captured
    return inputs if len(inputs) < 2 and not captured else dict.fromkeys((*inputs, *captured))


def _tenant(one: LiveRange, number: int, born: int, order: list[Launch], found: Launches, dies: int | None) -> Tenant:
    value = found.values[number] or order[born].node.outputs[0]
    if dies is None:
        # It has no use: it lives until its buffer is freed or reused.
        return Tenant(value, born, one.dies, one.held_by)
    return Tenant(value, born, dies, order[dies].node.name if dies < len(order) else OUTPUT)


def _range(value: Value, size: Dim, born: int, number: int, order: list[Launch], buffers: Buffers) -> LiveRange:
    if buffers.is_output[number]:
        return LiveRange(value, size, born, len(order), OUTPUT, len(order))
    dies = buffers.released[number]
    if dies == NEVER:
        return LiveRange(value, size, born, len(order) - 1, KEPT, born)
    return LiveRange(value, size, born, dies, order[dies].node.name, dies)


def _figures(
    graph: Graph,
    order: list[Launch],
    found: Launches,
    buffers: Buffers,
    types: Inferred,
    options: OrtOptions,
    inside: Mapping[Node, Dim],
    end: Literal[0, 1] | None = None,
) -> OrtFigures | None:
    """Return two simulated runs, with unknown sizes at an end of their limits where one is named; None where a size has none."""
    sizes = _sizes(found, end)
    if sizes is None:
        return None
    if end is not None and all(isinstance(size, int) for size in (*found.sizes[found.given :], *inside.values())):
        return None
    widened = {launch.node for launch in order if launch.as_float}
    packings = list(packings_of(graph, types, widened))
    dropped = _dropped_weights(packings)
    frame = _frame(order, found, buffers, sizes, types, options, inside, end, dropped)
    if frame is None:
        return None
    weights = [weight for body in graph.graphs() for weight in body.weights]
    session = Session(
        small_weights(weight for weight in weights if weight not in dropped) + found.constants,
        packed_weights(packings, options.path),
        frame.takes,
        frame.early,
        frame.inner,
        BfcArena(options.strategy),
        options.pattern,
        small_weights(weight for weight in weights if weight in dropped),
        pieces=frame.pieces,
    )
    return simulate(buffers, frame.sizes, found.traced, session)


def _sizes(found: Launches, end: Literal[0, 1] | None) -> list[int] | None:
    """Return the bytes of values that kernels make; None where there is no number."""
    sizes = [_at_end(found.limits.get(number, UNLIMITED) if size is None else size, end) for number, size in enumerate(found.sizes)]
    known = [size for size in sizes[found.given :] if size is not None]
    return known if len(known) == len(sizes) - found.given else None


def _frame(
    order: list[Launch],
    found: Launches,
    buffers: Buffers,
    sizes: list[int],
    types: Inferred,
    options: OrtOptions,
    inside: Mapping[Node, Dim],
    end: Literal[0, 1] | None,
    dropped: Set[Value],
) -> Inner | None:
    """Return the frame of the kernels of a graph and of those inside it; None where a size is unknown."""
    takes: list[int] = []
    inner: dict[int, Inner] = {}
    pieces: dict[int, tuple[int, ...]] = {}
    for step, launch in enumerate(order):
        body = None
        if launch.name == _IF:
            body = _body(launch, types, options, inside, end, dropped)
        elif launch.name in (_LOOP, _SCAN):
            body = _repeated(launch, types, options, inside, end, dropped)
        if body is not None:
            inner[step] = body
        extra = 0 if body is not None else _at_end(inside.get(launch.node, 0), end)
        if extra is None:
            return None
        if launch.kernel.takes is not None and (call := op_call(launch.node, types, as_float=launch.as_float)) is not None:
            is_static = all(not isinstance(type_, TensorType) or type_.is_static for type_ in (*call.types, *call.results))
            if not is_static and end is not None:
                # What a kernel takes for operands of unknown size has no rule.
                if end:
                    return None
            else:
                taken = launch.kernel.takes(call, options.threads)
                if isinstance(taken, tuple):
                    pieces[step] = taken
                    taken = sum(taken)
                extra += taken
        takes.append(extra)
    early = {step for step, launch in enumerate(order) if launch.kernel.takes_first}
    return Inner(buffers, [0] * found.given + sizes, found.traced, takes, early, inner, pieces=pieces)


def _repeated(
    launch: Launch, types: Inferred, options: OrtOptions, inside: Mapping[Node, Dim], end: Literal[0, 1] | None, dropped: Set[Value]
) -> Inner | None:
    """Return the body of a Loop or Scan with its steps; None where its sizes are unknown. How often a loop runs that only its condition
    ends is unknown: three steps have all that is there at once, and slices of such a loop have no size."""
    known = types.trips.get(launch.node)
    trips = None if known is None else _at_end(known, end)
    trips = _SETTLED if trips is None else trips
    body = _body(launch, types, options, inside, end, dropped)
    if body is None:
        return None
    (inner,) = launch.inner
    if launch.name == _SCAN:
        states = inner.returned[: len(launch.node.inputs) - int(launch.node.attrs.get("num_scan_inputs", 0))]
        between = [body.sizes[number] for number in states for _ in range(min(trips - 1, 2)) if number >= inner.given]
        body.late = {inside: around for inside, around in body.late.items() if inside not in states}
        body.steps = ScanSteps(min(trips, _SETTLED), between)
        return body
    simulated = min(trips, max(_SETTLED, _MOST_KERNELS // _kernels_in(body)))
    count = len(launch.node.outputs) - (len(launch.node.inputs) - 2)
    slices = [number for number in inner.returned[max(len(inner.returned) - count, 0) :] if body.buffers.is_output[number]]
    skipped = [(trips - simulated) * body.sizes[number] for number in slices] if simulated < trips else ()
    shared = _shared(inner)
    condition = inner.returned[0] if inner.returned else 0
    body.steps = LoopSteps(simulated, launch.outputs, frozenset(slices), shared, condition < inner.given or condition in shared, skipped)
    return body


def _kernels_in(body: Inner) -> int:
    """Return how many kernels one run of a graph simulates."""
    own = max(len(body.buffers.taken), 1)
    return own + sum(_kernels_in(one) * (1 if one.steps is None else one.steps.trips) for one in body.inner.values())


def _shared(inner: Launches) -> frozenset[int]:
    """Return the results of the body of a Loop that Identity makes of what the body is given: the planner lets them share its memory
    (PlannerImpl::ComputeReusePlan in core/framework/allocation_planner.cc), but for weights of the body itself."""
    copies = [launch for launch in inner.launches if launch.name == _IDENTITY and 0 <= launch.inputs[0] < inner.given]
    sources = [inner.values[launch.inputs[0]] for launch in copies]
    return frozenset(
        launch.outputs[0]
        for launch, source in zip(copies, sources, strict=True)
        if source is None or source.role not in _WEIGHTS or source.graph is not launch.node.graph
    )


def _body(
    launch: Launch, types: Inferred, options: OrtOptions, inside: Mapping[Node, Dim], end: Literal[0, 1] | None, dropped: Set[Value]
) -> Inner | None:
    """Return the branch of an If that runs, or the larger one; None where their sizes are unknown."""
    bodies: list[Inner] = []
    for found in launch.inner:
        order = _order_of(found, options)
        buffers = plan_buffers(order, found, options.reuse)
        sizes = _sizes(found, end)
        body = None if sizes is None else _frame(order, found, buffers, sizes, types, options, inside, end, dropped)
        if body is None:
            return None
        # Where the node's own results need not have the sizes of this body's, the larger one stands for both.
        body.late = {
            inside: around
            for inside, around in zip(found.returned, launch.outputs, strict=False)
            if inside >= found.given and not _is_known_shape(found.likeness[inside])
        }
        # What is read from around it is handed to it. A weight that was dropped is not a tensor, and a run with such has no pattern
        # (ExecutionFrame in core/framework/execution_frame.cc).
        own = found.launches[0].node.graph if found.launches else None
        body.has_pattern = all(value not in dropped or value.graph is own for value in found.values[: found.given] if value is not None)
        bodies.append(body)
    return max(bodies, key=lambda body: pattern_bytes(body.buffers, body.sizes, body.traced) + max(body.takes, default=0), default=None)


def _is_known_shape(likeness: object) -> bool:
    """Return whether the session knows a shape as numbers, by what is equal for tensors that are of one size to it."""
    return isinstance(likeness, tuple) and all(isinstance(size, int) for size in likeness[1])


def _at_end(size: Dim, end: Literal[0, 1] | None) -> int | None:
    """Return a size that is a number, or an end of the limits of one that depends on data; None where there is no such end."""
    if isinstance(size, int):
        return size
    if end is None or any(not symbol.is_unknown for symbol in size.symbols()):
        return None
    return max(bounds(size)[0] or 0, 0) if end == 0 else bounds(size)[1]


def small_weights(weights: Iterable[Value]) -> list[int]:
    """Return the weights that the session copies into the arena: those below a size limit."""
    sizes = (weight.type.nbytes for weight in weights if weight.users and not _in_attributes(weight))
    return [size for size in sizes if isinstance(size, int) and 0 < size <= LARGEST_COPIED]


def _in_attributes(weight: Value) -> bool:
    """Return whether the file stores it in an attribute of the node: then the kernel keeps its own copy, outside the arena."""
    readers = [user if isinstance(user, Node) and op_type(user.source) != _EXTRACTOR else None for user in weight.users or ()]
    specs = [spec_of(user) if user is not None else None for user in readers]
    return all(spec is not None and spec.family in (Family.LEARNING, Family.TEXT) for spec in specs)


def packed_weights(packings: Iterable[tuple[Node, KernelPacking]], path: str) -> list[tuple[Hashable, KernelPacking]]:
    """Weights that kernels pack into another layout when the session is created, each with a key that is equal where a session finds that
    it has the same already. It compares what was packed, for one operator; here it is the same contents, packed the same way."""
    packed: list[tuple[Hashable, KernelPacking]] = []
    with WeightFiles(path) as files:
        contents = _Contents(files)
        for node, one in packings:
            packed.append(((op_type(node.source), contents.first_like(node.inputs[one.operand]), one.form), one))
    return packed


def packings_of(graph: Graph, types: Inferred, widened: Set[Node]) -> Iterator[tuple[Node, KernelPacking]]:
    """Yield each operand that a kernel packs, with its node, also inside regions. What runs in single precision (`widened`) reads casts
    of its weights, which cannot be packed."""
    for node in graph.walk():
        packs = ort_kernel_of(node).packs if node not in widened else None
        call = op_call(node, types) if packs is not None else None
        if packs is not None and call is not None:
            for pack in packs(call, [value is not None and value.role in _WEIGHTS for value in node.inputs]):
                yield node, pack


def _dropped_weights(packings: Iterable[tuple[Node, KernelPacking]]) -> frozenset[Value]:
    """Return weights that a session drops when it is made, since every kernel that reads them has packed them."""
    packed = Counter(node.inputs[one.operand] for node, one in packings)
    return frozenset(weight for weight, count in packed.items() if weight is not None and count == len(weight.users or ()))


_BEGINNING: Final = 256
"""Bytes of a weight that are compared before all of it is."""


class _Contents:
    """Finds weights with equal contents under other names. All of a weight is read only where its beginning is that of another."""

    def __init__(self, files: WeightFiles) -> None:
        self._files = files
        self._seen: dict[Value | None, Value | None] = {}
        self._alike: dict[tuple[Type, bytes], list[Value]] = {}

    def first_like(self, weight: Value | None) -> Value | None:
        """Return the first weight that was asked for with these contents; itself where they cannot be read."""
        found = self._seen.get(weight)
        if found is None and weight is not None:
            found = self._seen[weight] = self._look_up(weight)
        return found

    def _look_up(self, weight: Value) -> Value:
        beginning = self._read(weight, _BEGINNING)
        if beginning is None:
            return weight
        others = self._alike.setdefault((weight.type, beginning), [])
        mine = self._read(weight) if others else None
        for other in others:
            if mine is not None and self._read(other) == mine:
                return other
        others.append(weight)
        return weight

    def _read(self, weight: Value, most: int | None = None) -> bytes | None:
        try:
            stored = stored_tensor(weight, self._files)
            count = stored.bytes if most is None else min(most, stored.bytes)
            raw = bytearray(count)
            if count:
                self._files.read_into(stored.source, 0, memoryview(raw))
        except (Unreadable, OSError):
            return None
        return bytes(raw)


def op_call(node: Node, types: Inferred, *, as_float: bool = False) -> OpCall | None:
    spec = spec_of(node)
    if spec is None:
        return None
    widen = _as_float if as_float else lambda type_: type_
    operands = [None if value is None else widen(types.type_of(value)) for value in node.inputs]
    return OpCall(spec, operands, node.attrs, (), [widen(types.type_of(value)) for value in node.outputs], source=node.source)


def _as_float(type_: Type) -> Type:
    """Return the same in single precision, where it is in half."""
    return tensor(DType.F32, type_.shape, type_.device) if isinstance(type_, TensorType) and type_.dtype is DType.F16 else type_


# Casts that a session inserts, and those it takes out, in every graph, also with graph optimisations off.

_CAST: Final = "Cast"
DEQUANTIZE: Final = "DequantizeLinear"
_INTEGERS: Final = frozenset({DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64})
_FLOATS: Final = frozenset({DType.BF16, DType.F16, DType.F32, DType.F64})


def with_functions(found: Launches, types: Inferred, known: Inferred, has_kernel: Callable[[Launch], bool] | None = None) -> Launches:
    """Return the kernels with functions in place of operators that no provider runs; ONNX Runtime appends their nodes to the graph."""
    opset = max((opset_of(launch.node) for launch in found.launches if launch.node.source.startswith("onnx::")), default=0)
    kept: list[Launch] = []
    appended: list[Launch] = []
    for launch in found.launches:
        is_half = any(value >= 0 and found.dtypes[value] is DType.F16 for value in launch.inputs)
        steps = function_of(launch.name, opset, is_half)
        if not steps or not launch.outputs or ABSENT in launch.inputs or (has_kernel is not None and has_kernel(launch)):
            kept.append(launch)
            continue
        found.constants.append(FUNCTIONS[launch.name][1])
        made: list[int] = []
        rows: set[int] = set()
        """Results of reductions, and what follows from them alone."""
        for step in steps:
            operands = [launch.inputs[operand] if operand >= 0 else made[-operand - 1] for operand in step.operands]
            if step is steps[-1]:
                made.append(launch.outputs[0])
            else:
                result = launch.node.outputs[0]
                is_row = step.is_reduction or rows.issuperset(operands)
                made.append(found.add(None, *(_of_step(step, launch.node, one.type_of(result), is_row) for one in (types, known))))
                rows |= {made[-1]} if is_row else set()
            appended.append(Launch(launch.node, step.kernel, CHOICE if step.kernel == "Where" else PLAIN, operands, [], [made[-1]]))
    found.launches = [*kept, *appended]
    return found


def _of_step(step: FunctionStep, node: Node, result: Type, is_row: bool) -> Type:
    """Return the type that a step of a function makes, given that of the operator's result."""
    if not isinstance(result, TensorType) or result.shape is None:
        return result
    if is_row:
        axis = node.attrs.get("axis", -1)
        shape = list(result.shape)
        shape[axis if isinstance(axis, int) else -1] = 1
        return tensor(result.dtype, shape, result.device)
    return tensor(DType.BOOL, result.shape, result.device) if step.is_truth else result


def with_half_casts(found: Launches, types: Inferred, known: Inferred, runs: Callable[[Launch], bool] | None = None) -> Launches:
    """Return the kernels with casts to single precision and back around those that have no form in half precision; `runs` says which
    have."""
    if DType.F16 in found.dtypes:
        _Halves(found, types, known, runs or runs_half).insert()
    return found


class _Halves:
    def __init__(self, found: Launches, types: Inferred, known: Inferred, runs: Callable[[Launch], bool]) -> None:
        self.found = found
        self.types = types
        self.known = known
        self.maker = {value: launch for launch in found.launches for value in launch.outputs}
        self.readers = readers_of(found)
        self.lacking = {id(launch) for launch in found.launches if self._has_half(launch.inputs) and not runs(launch)}
        self.floats: dict[int, int] = {}

    def insert(self) -> None:
        """Insert them; a value is cast to single precision once. ONNX Runtime appends the casts in the order in which kernels run."""
        if len(self.found.launches) > 1:
            # It marks them one by one, so that a neighbour of one that it has marked counts as lacking too.
            for launch in self.found.launches:
                if id(launch) not in self.lacking and self._is_isolated(launch):
                    self.lacking.add(id(launch))
        for launch in execution_order(self.found):
            if id(launch) in self.lacking:
                self._wrap(launch)

    def _is_half(self, value: int) -> bool:
        return value >= 0 and self.found.dtypes[value] is DType.F16

    def _has_half(self, values: Iterable[int]) -> bool:
        return any(map(self._is_half, values))

    def _is_isolated(self, launch: Launch) -> bool:
        """Return whether it has only kernels without half precision around it: those that make its operands, inputs and weights aside, and
        all that read its results; of a list only the first counts (`OF_LISTS`)."""
        if launch.node.regions or not self._has_half(launch.inputs) or set(launch.outputs) & set(self.found.returned):
            return False
        makers = [self.maker[value] for value in launch.inputs if value in self.maker]
        some = slice(1) if launch.name in OF_LISTS else slice(None)
        halves = [self.maker[value] for value in launch.inputs[some] if self._is_half(value) and value in self.maker]
        readers = [reader for value in filter(self._is_half, launch.outputs[some]) for reader in self.readers.get(value, ())]
        return bool(makers and readers) and all(id(one) in self.lacking for one in (*halves, *readers))

    def _wrap(self, launch: Launch) -> None:
        launch.as_float = True
        for value in filter(self._is_half, launch.inputs):
            if value not in self.floats:
                self.floats[value] = self._add(value)
                self._cast(launch, value, self.floats[value])
        launch.inputs = [self.floats.get(value, value) if self._is_half(value) else value for value in launch.inputs]
        for place, value in enumerate(launch.outputs):
            if self._is_half(value):
                launch.outputs[place] = self._add(value)
                self._cast(launch, launch.outputs[place], value)

    def _add(self, half: int) -> int:
        value = self.found.values[half]
        types = self.found.between[half] if value is None else (self.types.type_of(value), self.known.type_of(value))
        return self.found.add(None, *map(_as_float, types))

    def _cast(self, launch: Launch, source: int, result: int) -> None:
        self.found.launches.append(Launch(launch.node, _CAST, PLAIN, [source], [], [result]))


def runs_half(launch: Launch) -> bool:
    """Return whether the CPU provider has a kernel in half precision."""
    return runs_halves(launch.name, opset_of(launch.node))


def readers_of(found: Launches) -> dict[int, list[Launch]]:
    """Return for each value the kernels that read it."""
    readers: dict[int, list[Launch]] = {}
    for launch in found.launches:
        for value in (*launch.inputs, *launch.captured):
            readers.setdefault(value, []).append(launch)
    return readers


def with_own_dequantized(found: Launches, types: Inferred, known: Inferred) -> Launches:
    """Return the kernels with a DequantizeLinear for each reader, as every session makes them (EnsureUniqueDQForNodeUnit); the first keeps
    the one that is there, unless it is also a result or read by graphs inside."""
    several = [launch for launch in found.launches if launch.name == DEQUANTIZE and launch.outputs]
    readers = readers_of(found) if several else {}
    for launch in several:
        value = launch.outputs[0]
        reading = {id(one): one for one in readers.get(value, ())}.values()
        own = [(one, place) for one in reading for place, operand in enumerate(one.inputs) if operand == value]
        is_shared = value in found.returned or any(value in one.captured for one in reading)
        source = found.values[value]
        for reader, place in own if is_shared else own[1:]:
            made = found.add(None, types.type_of(source), known.type_of(source))
            reader.inputs[place] = made
            found.launches.append(Launch(launch.node, launch.name, launch.kernel, [*launch.inputs], [], [made]))
    return found


def without_double_casts(found: Launches) -> Launches:
    """Return the kernels without casts whose only uses are other casts, where the first does not lose more precision than the second."""
    if sum(launch.name == _CAST for launch in found.launches) > 1:
        _Casts(found).take_out()
    return found


def _width(dtype: DType | None) -> int:
    """Return a coarse rank of a type's range; -1 for types that stay as they are."""
    return 0 if dtype is DType.BOOL else 1 if dtype in _INTEGERS else 2 if dtype in _FLOATS else -1


class _Casts:
    def __init__(self, found: Launches) -> None:
        self.found = found
        self.returned = set(found.returned)
        self.readers = readers_of(found)
        self.gone: set[int] = set()

    def take_out(self) -> None:
        """Go through the casts in the order of the file."""
        for launch in self.found.launches:
            if launch.name == _CAST and id(launch) not in self.gone and launch.outputs and launch.inputs and launch.inputs[0] >= 0:
                self._look_at(launch)
        self.found.launches = [launch for launch in self.found.launches if id(launch) not in self.gone]

    def _look_at(self, cast: Launch) -> None:
        source, result = cast.inputs[0], cast.outputs[0]
        dtypes = self.found.dtypes
        before, after = dtypes[source], dtypes[result]
        if min(_width(before), _width(after)) < 0:
            return
        loses = _width(before) > _width(after)
        readers = self.readers.get(result, [])
        again = [reader for reader in readers if reader.name == _CAST and reader.outputs]
        then = [dtypes[reader.outputs[0]] for reader in again]
        if any(_width(one) < 0 or (loses and _width(one) > _width(after)) for one in then):
            return
        back = [reader for reader, one in zip(again, then, strict=True) if one is before and reader.outputs[0] not in self.returned]
        for reader in back:
            self._replace(reader.outputs[0], source)
            self._remove(reader)
        if readers and len(again) == len(readers) and result not in self.returned:
            self._replace(result, source)
            self._remove(cast)

    def _replace(self, old: int, new: int) -> None:
        """Replace all uses of one value by another."""
        readers = self.readers.pop(old, [])
        for reader in readers:
            reader.inputs = [new if value == old else value for value in reader.inputs]
            reader.captured = [new if value == old else value for value in reader.captured]
        self.readers.setdefault(new, []).extend(reader for reader in readers if id(reader) not in self.gone)

    def _remove(self, launch: Launch) -> None:
        self.gone.add(id(launch))
        for value in launch.inputs:
            self.readers[value] = [reader for reader in self.readers.get(value, []) if reader is not launch]


# The topological order in which ONNX Runtime runs the kernels of a graph, by the session's setting.

ExecutionOrder: TypeAlias = Literal["default", "priority_based"]
"""Values of SessionOptions.execution_order that the packages on PyPI support."""
EXECUTION_ORDERS: Final[tuple[ExecutionOrder, ...]] = ("default", "priority_based")
REFUSED_ORDER: Final = "memory_efficient"
"""The setting that only builds with training support; others fail to create a session."""
_EARLY: Final = frozenset({"Shape", "Size"})
"""Kernels that the priority-based order runs before all other ready ones, since they free their operands."""


def execution_order(found: Launches, setting: ExecutionOrder = "default") -> list[Launch]:
    """Return the kernels as a session runs them that keeps the graph as it is."""
    makers = makers_of(found)
    places = _by_priority(found.launches, makers) if setting == "priority_based" else backwards(makers)
    return [found.launches[place] for place in places]


def makers_of(found: Launches) -> list[list[int]]:
    """Return for each kernel its predecessors: the kernels that define its operands."""
    maker = [-1] * (len(found.values) + 1)  # the last is that of ABSENT operands
    for index, launch in enumerate(found.launches):
        for value in launch.outputs:
            maker[value] = index
    makers: list[list[int]] = []
    for launch in found.launches:
        needed = {maker[value] for value in launch.inputs}
        if launch.captured:
            needed.update([maker[value] for value in launch.captured])
        needed.discard(-1)
        makers.append(sorted(needed) if len(needed) > 1 else [*needed])
    return makers


def _by_priority(launches: list[Launch], makers: list[list[int]]) -> list[int]:
    """Always the ready kernel that comes first in the file, but kernels that only read shapes before all others."""
    return sorted_by([launch.name not in _EARLY for launch in launches], makers)
