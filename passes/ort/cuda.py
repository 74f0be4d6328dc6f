"""Sessions of ONNX Runtime's CUDA provider: where each kernel runs, what is copied between the devices, and what the arenas hold.

Kernels, operands on the CPU and what is written in place were read from onnxruntime-gpu 1.31.1 itself, run over stand-ins for the CUDA
libraries: what its own host code decides is real, what cuDNN and cuBLAS decide is not.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib.resources import files
from math import prod
from typing import Final, TypeAlias, cast

from irscope.devices.catalogue import Target
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, round_up
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.jsoncodec import loads
from irscope.memory.arena import FIRST_REGION, MOST_DEAD, BfcArena, dissolve
from irscope.memory.caching.device import OutOfMemory
from irscope.ops.scratch.recorder import convolution_workspace
from irscope.ops.spec import KernelPacking, OpCall, OrtKernel
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.ort.cuda_session import CudaSession
from irscope.passes.ort.model import (
    OrtOptions,
    OrtPlan,
    execution_order,
    op_call,
    packed_weights,
    packings_of,
    ranges_of,
    runs_half,
    small_weights,
    with_functions,
    with_half_casts,
    without_double_casts,
)
from irscope.passes.ort.plan import PLAIN, Buffers, Launch, Launches, pattern_bytes, plan_buffers, read_launches
from irscope.passes.ort.simulated import OrtFigures, Session, simulate
from irscope.report.values import Provenance, Quantity

# What the provider has kernels for, and what they do with memory.

_CPU_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("CumSum", "Expand", "Reshape", "Split", "Squeeze", "Tile", "TopK", "Trilu", "Unsqueeze", "Upsample", "OneHot"), (1,)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"), (1,)),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare", "SequenceAt", "SequenceErase"), (1,)),
    **dict.fromkeys(("Pad", "Resize"), (1, 2, 3)),
    **dict.fromkeys(("ConstantOfShape", "If"), (0,)),
    "Dropout": (1, 2),
    "GroupQueryAttention": (6,),
    "Loop": (0, 1),
    "NonMaxSuppression": (2, 3, 4),
    "Range": (0, 1, 2),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
}
"""Operands that a CUDA kernel reads on the CPU."""
_CPU_RESULTS: Final = frozenset({"Shape", "Size", "SequenceLength"})
"""CUDA kernels that leave their result on the CPU."""
_IN_PLACE: Final = re.compile(
    "Celu|Elu|Gelu|HardSigmoid|HardSwish|LeakyRelu|Relu|ScatterND|Selu|Shrink|Sigmoid|Softplus|Softsign|Tanh|TensorScatter|"
    "ThresholdedRelu|Trilu"
)
"""CUDA kernels that write over operand 0 where they may."""
_FLOATS: Final = frozenset({DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ})
"""Element types whose readers are not moved to the CPU with the arithmetic of shapes."""
_SMALL: Final = 100
"""Elements of the largest weight that does not keep such arithmetic on the GPU."""
_RECURRENT: Final[Mapping[str, tuple[str, ...]]] = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
    "RNN": ("tanh",),
}
"""The only activation functions that cuDNN has for a direction."""

Version: TypeAlias = tuple[int, int, Mapping[str, frozenset[str]]]


@cache
def _kernels() -> Mapping[str, list[Version]]:
    """Return, by operator, versions with element types by place: "0" is operand 0, "r0" result 0. A last version of 0: the first alone."""
    content = cast("dict[str, list[tuple[int, int, dict[str, str]]]]", loads(files(__package__).joinpath("cuda_kernels.json").read_bytes()))
    return {
        name: [(first, last, {place: frozenset(types.split()) for place, types in places.items()}) for first, last, places in versions]
        for name, versions in content.items()
    }


@lru_cache(maxsize=4096)
def _versions(source: str) -> tuple[Version, ...]:
    """Return the registered versions for "onnx::Conv@11"."""
    owner, _, rest = source.partition("::")
    name, _, text = rest.partition("@")
    version = int(text) if text.isdecimal() else 0
    found = _kernels().get(name if owner == "onnx" else f"{owner}.{name}", ())
    return tuple(one for one in found if (one[0] == version if not one[1] else one[0] <= version <= one[1]))


def _dtypes_of(found: Launches) -> Callable[[int], DType | None]:
    """Return the element type of a value; None for an ABSENT one. Functions of operators without a kernel add values later."""
    return lambda value: found.dtypes[value] if value >= 0 else None


def _has_kernel(launch: Launch, dtype_of: Callable[[int], DType | None]) -> bool:
    return _takes_types(launch.node.source, tuple(map(dtype_of, launch.inputs)), tuple(map(dtype_of, launch.outputs)))


@lru_cache(maxsize=4096)
def _takes_types(source: str, operands: tuple[DType | None, ...], results: tuple[DType | None, ...]) -> bool:
    """Return whether there is a kernel for operands and results of these element types."""

    def fits(place: str, types: frozenset[str]) -> bool:
        given = results if place[0] == "r" else operands
        index = int(place.lstrip("r"))
        dtype = given[index] if index < len(given) else None
        return dtype is None or dtype.text in types

    return any(all(fits(place, types) for place, types in version[2].items()) for version in _versions(source))


def _is_refused(launch: Launch) -> bool:
    """Return whether the provider leaves a node that it has a kernel for to the CPU, because of its attributes."""
    attrs = launch.node.attrs
    if launch.name in _RECURRENT:
        usual = _RECURRENT[launch.name]
        given = [str(one).lower() for one in cast("Sequence[object]", attrs.get("activations") or ())]
        odd = any(one != usual[place % len(usual)] for place, one in enumerate(given))
        peeps = launch.name == "LSTM" and len(launch.inputs) > 7 and launch.inputs[7] >= 0
        before = launch.name == "GRU" and not attrs.get("linear_before_reset")
        return odd or peeps or before or any(attrs.get(name) for name in ("activation_alpha", "activation_beta", "clip", "input_forget"))
    if launch.name == "ConvTranspose":
        pads = cast("Sequence[object]", attrs.get("pads") or attrs.get("padding") or ())
        half = len(pads) // 2
        return len(pads) % 2 == 0 and list(pads[:half]) != list(pads[half:])
    return launch.name in ("ArgMax", "ArgMin") and bool(attrs.get("select_last_index"))


def _cpu_operands(launch: Launch) -> tuple[int, ...]:
    return _CPU_OPERANDS.get(launch.name, ())


@mutable(slots=True)
class Placed:
    """The kernels of a session, copies between the devices among them, and where values lie."""

    found: Launches
    on_gpu: set[int]
    """Kernels of the provider, by identity."""
    copies: int
    both: set[int]
    """Weights that lie on both devices."""
    gpu: set[int]
    """Values on the GPU."""

    @property
    def host(self) -> set[int]:
        """Values on the CPU alone."""
        return set(range(len(self.found.values))) - self.gpu


def place(graph: Graph, types: Inferred, known: Inferred) -> Placed:
    """Return where a session with the CUDA provider first and the CPU provider second runs the kernels of a graph."""
    read = read_launches(graph, types, known)
    dtype_of = _dtypes_of(read)
    found = with_functions(read, types, known, lambda launch: _has_kernel(launch, dtype_of))
    told: dict[tuple[int, str], bool] = {}
    on_gpu: set[int] = set()
    for launch in found.launches:
        key = id(launch.kind), launch.node.source
        runs_there = None if launch.kind is None else told.get(key)
        if runs_there is None:
            runs_there = told[key] = _has_kernel(launch, dtype_of) and not _is_refused(launch)
        if runs_there:
            on_gpu.add(id(launch))
    on_gpu -= _preferring_cpu(found, on_gpu)
    with_half_casts(found, types, known, lambda launch: id(launch) in on_gpu or runs_half(launch))
    without_double_casts(found)
    for launch in found.launches:
        if id(launch) in on_gpu:
            launch.kernel = _kernel(launch.name, launch.kernel.alias)
    return _with_copies(found, on_gpu)


@lru_cache(maxsize=1024)
def _kernel(name: str, alias: bool) -> OrtKernel:
    return OrtKernel((), alias=alias, in_place=(0,) if _IN_PLACE.fullmatch(name) else ())


def _preferring_cpu(found: Launches, on_gpu: set[int]) -> set[int]:
    """Kernels that depend on values on the CPU alone, in the main arithmetic of shapes: they go there too."""
    on_cpu = {value for launch in found.launches if launch.name in _CPU_RESULTS and id(launch) in on_gpu for value in launch.outputs}
    moved: set[int] = set()
    # More values on the CPU never make a kernel stay on the GPU, so any order leads to the same; once is enough but for kernels of
    # functions, which stand at the end of the file, behind what reads their results.
    made = [launch.outputs[0] for launch in found.launches if launch.outputs]
    is_in_order = all(map(operator.lt, made, made[1:]))
    before = -1
    while before < 0 or (len(on_cpu) > before and not is_in_order):
        before = len(on_cpu)
        for launch in found.launches:
            if on_cpu.isdisjoint(launch.inputs) and on_cpu.isdisjoint(launch.captured):
                continue
            if id(launch) in on_gpu:
                if not _is_cheap(launch, found, on_cpu):
                    continue
                moved.add(id(launch))
            on_cpu.update(launch.outputs)
    return moved


def _is_cheap(launch: Launch, found: Launches, on_cpu: set[int]) -> bool:
    """Return whether all operands of a kernel are on the CPU, inputs or small weights."""
    for index, value in enumerate(launch.inputs):
        if value < 0:
            continue
        if found.dtypes[value] in _FLOATS:
            return False
        if value < found.inputs or (value < found.given and _elements(found.values[value]) <= _SMALL):
            continue
        if value not in on_cpu or index in _cpu_operands(launch):
            return False
    return True


def _elements(value: Value | None) -> int:
    type_ = value.type if value is not None else None
    count = type_.numel if isinstance(type_, TensorType) else None
    return count if isinstance(count, int) else _SMALL + 1


def _with_copies(found: Launches, on_gpu: set[int]) -> Placed:
    """Return the kernels with those that copy what one device makes and the other reads."""
    gpu: set[int] = set()
    there: set[int] = set()
    here: set[int] = set()
    for launch in found.launches:
        if id(launch) not in on_gpu:
            here.update(launch.inputs, launch.captured)
            continue
        if launch.name not in _CPU_RESULTS:
            gpu.update(launch.outputs)
        if launch.name in _CPU_OPERANDS:
            for index, value in enumerate(launch.inputs):
                (here if index in _cpu_operands(launch) else there).add(value)
        else:
            there.update(launch.inputs)
        there.update(launch.captured)
    both: set[int] = set()
    crossing: dict[int, bool] = {}
    for value in range(len(found.values)):
        if value < found.given and value not in here:
            if value in there:
                gpu.add(value)
        elif value in there and found.inputs <= value < found.given:
            both.add(value)
        elif value in there and value not in gpu:
            crossing[value] = True
        elif value in here and value in gpu:
            crossing[value] = False
    copies = _copies(found, on_gpu, crossing)
    gpu.update(copy.outputs[0] for copy, to_gpu in zip(copies, crossing.values(), strict=True) if to_gpu)
    found.launches.extend(copies)
    on_gpu.update(map(id, copies))
    return Placed(found, on_gpu, len(copies), both, gpu)


def _copies(found: Launches, on_gpu: set[int], crossing: Mapping[int, bool]) -> list[Launch]:
    """Return the kernels that copy values, each to the GPU or from it, which those that read it there read the copy of."""
    if not crossing:
        return []
    makers: dict[int, Launch] = {}
    readers: dict[int, list[Launch]] = {value: [] for value in crossing}
    for launch in found.launches:
        for value in launch.outputs:
            if value in crossing:
                makers[value] = launch
        if readers.keys().isdisjoint(launch.inputs) and readers.keys().isdisjoint(launch.captured):
            continue
        for index, value in enumerate((*launch.inputs, *launch.captured)):
            is_there = id(launch) in on_gpu and not (index < len(launch.inputs) and index in _cpu_operands(launch))
            if crossing.get(value) is is_there:
                readers[value].append(launch)
    copies: list[Launch] = []
    for value, to_gpu in crossing.items():
        node = (makers[value] if value in makers else readers[value][0]).node
        copies.append(_copied(found, value, readers[value], node, on_gpu, to_gpu=to_gpu))
    return copies


def _copied(found: Launches, value: int, readers: Iterable[Launch], node: Node, on_gpu: set[int], *, to_gpu: bool) -> Launch:
    """Return a kernel that copies a value, whose readers on the other device read the copy."""
    copy = len(found.values)
    found.values.append(None)
    for column in (found.sizes, found.likeness, found.reusable, found.is_tensor, found.dtypes, found.traced):
        cast("list[object]", column).append(column[value])
    if value in found.limits:
        found.limits[copy] = found.limits[value]
    for launch in readers:
        is_on_gpu = id(launch) in on_gpu
        reads_there = [is_on_gpu and index not in _cpu_operands(launch) for index in range(len(launch.inputs))]
        launch.inputs = [copy if one == value and at is to_gpu else one for one, at in zip(launch.inputs, reads_there, strict=True)]
        if is_on_gpu is to_gpu:
            launch.captured = [copy if one == value else one for one in launch.captured]
    return Launch(node, "MemcpyFromHost" if to_gpu else "MemcpyToHost", PLAIN, [value], [], [copy])


@immutable
class Taken:
    """Bytes that a kernel takes for itself."""

    size: int
    most: int | None
    """None where nothing bounds it."""
    why: str = ""


_NONE: Final = Taken(0, 0)
_GRAIN: Final = 256
_LIBRARY: Final = "cuDNN and cuBLAS choose what {} takes while it runs"
_OPEN: Final = re.compile(
    r"\w*Attention|LSTM|GRU|RNN|MatMulNBits|MatMulBnb4|MatMulInteger|Q?MoE|Einsum|TopK|NonMaxSuppression|NonZero|Compress|Unique|Resize|"
    r"Upsample|ConvTranspose|NhwcConv|DeformConv|GemmFloat8|QOrderedMatMul|CumSum|DFT|BeamSearch|GreedySearch|Sampling|Reduce\w+|"
    r"ArgMax|ArgMin|InstanceNormalization|(Skip)?GroupNorm"
)
"""Kernels whose scratch depends on what a library says, or on what was not looked into."""


def _takes(launch: Launch, types: Inferred, target: Target) -> Taken:
    if launch.name in ("Conv", "FusedConv"):
        return _takes_convolution(launch, types, target)
    if _is_open(launch.name):
        return Taken(0, None, _LIBRARY.format(launch.name))
    rule = _RULES.get(launch.name)
    call = op_call(launch.node, types) if rule is not None else None
    return _NONE if rule is None or call is None else _exactly(rule(call))


@lru_cache(maxsize=1024)
def _is_open(name: str) -> bool:
    return _OPEN.fullmatch(name) is not None


def _exactly(size: int) -> Taken:
    return Taken(size, size)


def _takes_convolution(launch: Launch, types: Inferred, target: Target) -> Taken:
    """Return the workspace of the plan that cuDNN proposes, each time it runs: the provider searches without memory of its own."""
    operands = [types.type_of(value) if value is not None else None for value in launch.node.inputs[:2]]
    result = types.type_of(launch.node.outputs[0])
    unknown = Taken(0, None, _LIBRARY.format("a convolution"))
    if len(operands) < 2 or not all(isinstance(one, TensorType) for one in (*operands, result)):
        return unknown
    x, w, y = (cast("TensorType", one) for one in (*operands, result))
    steps = [step for step in cast("Sequence[object]", launch.node.attrs.get("strides") or ()) if isinstance(step, int)]
    found = convolution_workspace(target, "forward", x, w, y, steps, launch.node.attrs.get("groups") or 1)
    if found is None or not isinstance(found.size, int) or not isinstance(found.most, int):
        return unknown
    return Taken(found.size, found.most, found.reason)


def _numbers(call: OpCall, place: int) -> list[int]:
    type_ = call.types[place] if place < len(call.types) else None
    shape = type_.shape if isinstance(type_, TensorType) else None
    return [dim for dim in shape or () if isinstance(dim, int)]


def _takes_transposed(call: OpCall) -> int:
    """Copies of operand and result with the axis last, where it is not."""
    shape, axis, type_ = _numbers(call, 0), call.attr("axis"), call.types[0]
    if not shape or not isinstance(axis, int) or call.attrs.get("from_axis") or axis % len(shape) == len(shape) - 1:
        return 0
    size = type_.nbytes if isinstance(type_, TensorType) else 0
    return 2 * round_up(size, _GRAIN) if isinstance(size, int) else 0


def _takes_pointers(call: OpCall) -> int:
    """Return the addresses of all matrices, where the batches of the operands differ so that no stride leads from one to the next."""
    left, right = _numbers(call, 0), _numbers(call, 1)
    first, second = left[:-2], right[:-2]
    if len(right) <= 2 or first == second or prod(second) == 1 or (first and prod(first) == 1):
        return 0
    result = call.results[0].shape if call.results and isinstance(call.results[0], TensorType) else None
    count = prod(dim for dim in (result or ())[: max(len(first), len(second))] if isinstance(dim, int))
    return 3 * round_up(8 * count, _GRAIN)


_RULES: Final[Mapping[str, Callable[[OpCall], int]]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), _takes_transposed),
    **dict.fromkeys(("MatMul", "FusedMatMul", "TransposeMatMul"), _takes_pointers),
}
_GATES: Final[Mapping[str, int]] = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _rearranged(launch: Launch, found: Launches, types: Inferred) -> KernelPacking | None:
    """Weights of a recurrent layer in the order that cuDNN wants, beside those that it was made from; biases are there in any case."""
    gates, inputs = _GATES.get(launch.name), launch.inputs
    if gates is None or len(inputs) < 3 or any(not found.inputs <= value < found.given for value in inputs[1:4] if value >= 0):
        return None
    call = op_call(launch.node, types)
    weights, again = (_numbers(call, 1), _numbers(call, 2)) if call is not None else ([], [])
    if len(weights) != 3 or len(again) != 3:
        return None
    bits = found.dtypes[inputs[1]]
    width = (bits.bits or 0) // 8 if bits is not None else 0
    return KernelPacking(1, weights[0] * gates * again[2] * (weights[2] + again[2] + 2) * width, shared=False, reserved=False)


Peaks: TypeAlias = "dict[tuple[object, ...], OrtFigures]"
"""Peaks of arenas by what they are alike in after loading."""


@immutable
class CudaOptions:
    """Options of the provider and of the session."""

    limit: int | None = None
    """gpu_mem_limit"""
    first_chunk: int = FIRST_REGION
    """initial_chunk_size_bytes"""
    most_dead: int = MOST_DEAD
    """max_dead_bytes_per_chunk"""
    weights_outside: bool = False
    """session.use_device_allocator_for_initializers: weights lie in memory of their own."""
    shrinks: bool = False
    """memory.enable_memory_arena_shrinkage for this device."""


_ORDERS: Final = 8
"""Orders of loading that are tried."""
_MOST_TRIED: Final = 200_000
"""Kernels times orders, at most."""
_LOADING: Final = "weights enter the arena in the order of a hash table, which differs from session to session; eight orders were tried"


@immutable
class Laid:
    """The kernels of a session in their order, with where they run and their buffers: the same whatever the arena may take."""

    placed: Placed
    order: list[Launch]
    buffers: Buffers
    ranges: tuple[list[LiveRange], list[LiveRange]]


def lay_out(graph: Graph, types: Inferred, known: Inferred, options: OrtOptions) -> Laid | None:
    """Return where kernels run, in which order and in which buffers; None where none runs on the GPU."""
    placed = place(graph, types, known)
    if not placed.on_gpu:
        return None
    found, gpu = placed.found, placed.gpu
    found.likeness = [None if one is None else (value in gpu, one) for value, one in enumerate(found.likeness)]
    order = found.launches if options.file_order else execution_order(found, options.execution)
    buffers = plan_buffers(order, found, options.reuse)
    found.elsewhere = placed.host
    return Laid(placed, order, buffers, ranges_of(order, found, buffers))


def plan_cuda(
    graph: Graph,
    types: Inferred,
    laid: Laid,
    options: OrtOptions,
    cuda: CudaOptions,
    target: Target,
    inside: Mapping[Node, Dim] | None = None,
) -> OrtPlan:
    """Return two simulated runs of a session on a GPU."""
    inside = inside or {}
    found, order, buffers = laid.placed.found, laid.order, laid.buffers
    ranges, unsized_ranges = laid.ranges
    unsized = [value for value, size in zip(found.values, found.sizes, strict=True) if size is None and value is not None and value.node]
    plan = OrtPlan(order, found, buffers, ranges, unsized, None, inside=inside, unsized_ranges=unsized_ranges, on_cpu=False)
    plan.cuda = session = _session(laid.placed, order, target, cuda.limit)
    arena = CudaArena(graph, laid, options, cuda, target)
    simulated = arena.at(types, found.sizes, inside)
    if simulated is not None:
        session.find_host = partial(simulated.host, order)
        simulated.fill_in(session)
        plan.figures = simulated.figures
    return plan


class CudaArena:
    """The arena of a session on a GPU at any sizes of its tensors."""

    def __init__(self, graph: Graph, laid: Laid, options: OrtOptions, cuda: CudaOptions, target: Target) -> None:
        self.graph = graph
        self.laid = laid
        self.options = options
        self.cuda = cuda
        self.target = target

    def at(self, types: Inferred, sizes: Sequence[Dim | None], inside: Mapping[Node, Dim]) -> _Simulated | None:
        """Return the simulated arena for sizes that are numbers; None where one is not."""
        if not all(isinstance(size, int) for size in (*sizes, *inside.values())):
            return None
        return _Simulated(self, types, cast("Sequence[int]", sizes), cast("Mapping[Node, int]", inside))


def _scratch(least: Sequence[int], most: Sequence[int], open_: str, why: str) -> Quantity:
    size, end = max(least, default=0), max(most, default=0)
    if open_:
        return Quantity(size, Provenance.MODELLED, note=open_, lo=0)
    return Quantity(size) if size == end else Quantity(size, Provenance.MODELLED, note=why, lo=0, hi=end)


def _session(placed: Placed, order: Sequence[Launch], target: Target, limit: int | None) -> CudaSession:
    found = placed.found

    def bytes_of(values: Iterable[int]) -> int:
        return sum(size for value in values if isinstance(size := found.sizes[value], int))

    others = [launch for launch in order if id(launch) not in placed.on_gpu]
    there = bytes_of(value for value in range(found.inputs, found.given) if value not in placed.gpu)
    session = CudaSession(len(order) - len(others), others, placed.copies, there, target.device, limit)
    for number, value in enumerate(found.values[: found.given]):
        if value is not None and (number in placed.gpu or number in placed.both):
            size, before = found.sizes[number], session.resident.get(value.role.value, 0)
            session.resident[value.role.value] = None if size is None or before is None else before + size
            session.declared.setdefault(value.role.value, []).append(value.name or "")
    return session


class _Simulated:
    """Simulated runs at sizes that are numbers: as they are predicted, and the other cases that are possible."""

    def __init__(self, arena: CudaArena, types: Inferred, sizes: Sequence[int], inside: Mapping[Node, int]) -> None:
        self.graph = arena.graph
        self.types = types
        self.options = arena.options
        self.cuda = arena.cuda
        self.placed = placed = arena.laid.placed
        self.buffers = arena.laid.buffers
        self.sizes = sizes
        self.target = arena.target
        order = arena.laid.order
        self._block: int | None = None
        """Bytes of the block of the second run, which is the same in every attempt."""
        recurrent = (launch for launch in placed.found.launches if launch.name in _GATES)
        packed = [_rearranged(launch, placed.found, types) for launch in recurrent if id(launch) in placed.on_gpu]
        self.rearranged = [(number, one) for number, one in enumerate(packed) if one is not None]
        taken: dict[tuple[int, str], Taken] = {}

        def takes_of(launch: Launch) -> Taken:
            key = id(launch.kind), launch.name
            found = None if launch.kind is None else taken.get(key)
            if found is None:
                found = taken[key] = _takes(launch, types, arena.target)
            return found

        takes = [takes_of(launch) if id(launch) in placed.on_gpu else _NONE for launch in order]
        self.bodies = [inside.get(launch.node, 0) for launch in order]
        self.open_ = next((one.why for one in takes if one.most is None), "")
        self.why = next((one.why for one in takes if one.most != one.size), _LOADING)
        self.least = [one.size + extra for one, extra in zip(takes, self.bodies, strict=True)]
        self.most = [(one.size if one.most is None else one.most) + extra for one, extra in zip(takes, self.bodies, strict=True)]
        self.figures, self.shortage = self.attempt(self.least)

    def fill_in(self, session: CudaSession) -> None:
        """Say what was found of a session."""
        session.open_, session.why, session.shortage = self.open_, self.why, self.shortage
        session.scratch = _scratch(self.least, self.most, self.open_, self.why)
        session.find_ends = self.ends

    def ends(self) -> list[OrtFigures]:
        """Return the weights loaded in other orders, with the least and the most that kernels may take."""
        orders = min(_ORDERS, _MOST_TRIED // (len(self.bodies) + 1) + 1)
        peaks: tuple[Peaks, Peaks] = {}, {}
        return [self.attempt(self.most if seed % 2 else self.bodies, seed, peaks[seed % 2])[0] for seed in range(orders)]

    def _made(self, values: set[int]) -> list[int]:
        """Return the sizes of what runs make, of these values alone."""
        given = self.placed.found.given
        return [size if number >= given and number in values else 0 for number, size in enumerate(self.sizes)]

    def attempt(self, takes: Sequence[int], seed: int | None = None, peaks: Peaks | None = None) -> tuple[OrtFigures, str]:
        """Return its arena, and why it fails; where it does, the figures are those of a device with room enough."""
        try:
            return self.gpu(takes, bounded=True, seed=seed, peaks=peaks), ""
        except OutOfMemory as error:
            return self.gpu(takes, bounded=False, seed=seed, peaks=peaks), str(error)

    def gpu(self, takes: Sequence[int], *, bounded: bool, seed: int | None, peaks: Peaks | None) -> OrtFigures:
        """Return its arena. Weights are loaded in the order of the file, or in one drawn by chance; of that the peaks alone are found."""
        found, placed, cuda = self.placed.found, self.placed, self.cuda
        weights = [self.sizes[value] for value in range(found.inputs, found.given) if value in placed.gpu or value in placed.both]
        if seed is not None:
            random.Random(seed).shuffle(weights)
        arena = BfcArena(
            self.options.strategy,
            cuda.limit if bounded else None,
            device_memory=self.target.device.room_bytes if bounded else None,
            first_region=cuda.first_chunk,
            most_dead=cuda.most_dead,
        )
        inputs = [self.sizes[value] for value in range(found.inputs) if value in placed.gpu]
        made = self._made(placed.gpu)
        if self._block is None:
            self._block = pattern_bytes(self.buffers, made, found.traced) if self.options.pattern else 0
        pattern, block = self.options.pattern, self._block
        session = Session((), self.rearranged, takes, (), {}, arena, pattern, brought=inputs, block=block, shrinks=cuda.shrinks)
        session = replace(session, copied=weights) if cuda.weights_outside else replace(session, loaded=weights)
        try:
            return simulate(self.buffers, made, found.traced, session, peaks)
        finally:
            dissolve(arena)

    def host(self, order: Sequence[Launch]) -> OrtFigures:
        """Return the arena of the CPU: what runs there, and results that the GPU makes, which each run copies back."""
        found, placed = self.placed.found, self.placed
        there = {launch.node for launch in order if id(launch) in placed.on_gpu}
        numbered = enumerate(self.graph.weights, found.inputs)
        copied = small_weights([value for number, value in numbered if number not in placed.gpu])
        packed = packed_weights(packings_of(self.graph, self.types, there), self.options.path)
        carried = [self.sizes[value] for value in found.returned if value in placed.gpu and value >= found.given]
        arena = BfcArena(self.options.strategy)
        session = Session(copied, packed, [0] * len(order), (), {}, arena, self.options.pattern, carried=carried)
        return simulate(self.buffers, self._made(placed.host), found.traced, session)
