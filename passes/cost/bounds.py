"""The least time of each node on a device, and the resource that bounds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from irscope.devices.profile import SESSION_OPERATOR, DeviceProfile, Figure
from irscope.immutable import immutable, mutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim, bind, int_or_zero
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr, Node, Value
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole, Packing
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import Family, OpSpec
from irscope.passes.cost.count import MEASURES, Certainty, Entry
from irscope.passes.graph.alias import Aliases
from irscope.passes.inference.engine import Inferred

COMPUTE, MEMORY, BALANCED, LAUNCH, FREE, UNKNOWN = "compute", "memory", "balanced", "launch", "free", "unknown"
BINDINGS = (COMPUTE, MEMORY, BALANCED, LAUNCH, FREE, UNKNOWN)
BALANCE = 2.0
"""Within this factor of one another arithmetic and memory are called balanced: both figures are no better known than that."""


@immutable
class NodeBound:
    """One node: the least time of one run, by what it needs."""

    node: Node
    runs: int
    dtype: str
    """Whose rate it is that holds, as device files call element types."""
    flops: int
    bytes: int
    compute: float
    memory: float
    launch: float
    binding: str
    reason: str = ""
    """Why nothing is known of it."""
    is_exact: bool = True
    """True where its numbers are those of a run; else they are lower bounds of a run."""
    least_compute: float = 0.0
    """The same at the device's highest clock, with as few multiplications as a library's algorithms need."""
    least_memory: float = 0.0
    """Seconds for what the last cache cannot have held before or keep afterwards."""

    def of(self, node: Node) -> NodeBound:
        """Return the same of a node like this one."""
        return NodeBound(
            node,
            self.runs,
            self.dtype,
            self.flops,
            self.bytes,
            self.compute,
            self.memory,
            self.launch,
            self.binding,
            self.reason,
            self.is_exact,
            self.least_compute,
            self.least_memory,
        )

    def seconds(self, kind: str) -> float:
        """Return the least time of all runs. A processor starts an operator before it computes, a GPU starts the next one meanwhile."""
        work = max(self.compute, self.memory)
        return self.runs * (work + self.launch if kind == "cpu" else max(work, self.launch))

    def least(self, kind: str) -> float:
        """Return the time that all runs surely take where a kernel runs for this node alone."""
        work = max(self.least_compute, self.least_memory)
        return self.runs * (work + self.launch if kind == "cpu" else max(work, self.launch))

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes if self.bytes else None


@mutable
class Bounds:
    """Every node in order, and their sums."""

    device: DeviceProfile
    dtype: str
    nodes: list[NodeBound] = field(default_factory=list)
    is_fused: bool = False
    """True where the runtime fuses several nodes into one kernel, so that intermediate values need not move."""
    weights: int = 0
    """Bytes of weights that products read, each once."""

    def seconds_of(self, node: NodeBound) -> float:
        return node.seconds(self.device.kind)

    def least_of(self, node: NodeBound) -> float:
        """Return the time that all runs of a node surely take; where nodes are fused, the time of its products."""
        return node.least_compute * node.runs if self.is_fused else node.least(self.device.kind)

    @cached_property
    def seconds_by_node(self) -> list[float]:
        """Return the least time of each node, in order."""
        kind = self.device.kind
        return [one.seconds(kind) for one in self.nodes]

    @cached_property
    def seconds(self) -> float:
        """Return the time of a run by the data sheet, one node after the other; nodes that nothing is known of count as nothing."""
        return sum(self.seconds_by_node)

    @cached_property
    def least(self) -> float:
        """Return the time that a run surely takes on such a device; nodes that nothing is known of count as nothing."""
        bandwidth = self.device.bandwidth
        moved = max(self.weights - self.device.cache_bytes, 0) / bandwidth.hi if bandwidth is not None else 0.0
        launches = (one.launch for one in self.nodes if self.is_fused and one.binding not in (FREE, UNKNOWN))
        return max(sum(map(self.least_of, self.nodes)), moved, max(launches, default=0.0))

    def by_binding(self) -> dict[str, float]:
        """Seconds by what binds."""
        found = dict.fromkeys((COMPUTE, MEMORY, BALANCED, LAUNCH), 0.0)
        for one, seconds in zip(self.nodes, self.seconds_by_node, strict=True):
            if one.binding in found:
                found[one.binding] += seconds
        return found

    @cached_property
    def unknown(self) -> list[NodeBound]:
        return [one for one in self.nodes if one.binding == UNKNOWN]


class Bounder:
    """Works out bounds; `dtype` replaces every floating-point element type, with its size, and `sizes` are those of symbols."""

    def __init__(
        self,
        rates: Rates,
        types: Inferred,
        aliases: Aliases,
        dtype: DType | None,
        sizes: Mapping[str, int] | None = None,
        *,
        is_fused: bool = False,
    ) -> None:
        self.rates = rates
        self.device = rates.device
        self.is_fused = is_fused
        self.types = types
        self.dtype = dtype
        self.bindings = sizes or {}
        self.storage = aliases.storage
        self._shared = aliases.parents
        self._sizes: dict[Value, int] = {}
        self._least_of: dict[int, tuple[Cost, Cost | None]] = {}
        """By the identity of the cost that like nodes share, which must stay for that."""

    def bounds(self, entries: Iterable[Entry]) -> Iterator[NodeBound]:
        """Yield the bound of each entry, in order."""
        if not self.device.levels and self.dtype is None:
            yield from self._of_like_nodes(entries)
            return
        listed = list(entries)
        nodes = [entry.node for entry in listed]
        reuse = Reuse(self.device, self.storage, self.size, total_size(nodes, self.storage, self.size))
        for entry in listed:
            yield self.bound(entry, reuse)
            reuse.touch(entry.node)

    def _of_like_nodes(self, entries: Iterable[Entry]) -> Iterator[NodeBound]:
        """Yield the same where nothing stays in a cache: a bound then follows from the cost, which like nodes share, and from the sizes of
        the storages that are read."""
        reuse = Reuse(self.device, self.storage, self.size, 0)
        found: dict[tuple[object, ...], NodeBound] = {}
        kept: list[Entry] = []
        storage, shared, size, sizes = self.storage, self._shared, self.size, self._sizes
        for entry in entries:
            node = entry.node
            if entry.certainty is Certainty.UNKNOWN:
                yield self.bound(entry, reuse)
                continue
            told: list[object] = [id(entry.cost), entry.runs, node.op]
            if entry.certainty is not Certainty.FREE:
                inputs = node.inputs
                for value in inputs if len(inputs) < 2 else dict.fromkeys(inputs):
                    if value is None:
                        told.append(0)
                    else:
                        root = storage(value) if value in shared else value
                        number = sizes.get(root)
                        told.append(size(root) if number is None else number)
            key = tuple(told)
            like = found.get(key)
            if like is None:
                kept.append(entry)  # a cost that is gone may leave its identity to another
                like = found[key] = self.bound(entry, reuse)
                yield like
            else:
                yield like.of(node)

    def weights_of(self, entries: Iterable[Entry]) -> int:
        """Return the bytes of inputs and weights that products read as they are, each once: those are read in whole."""
        read = [value for entry in entries if int_or_zero(entry.cost.matmul) for value in entry.node.inputs if value is not None]
        return sum(map(self.size, {root for value in read if (root := self.storage(value)).node is None}))

    def size(self, value: Value) -> int:
        """Return the bytes of a value, in the element type that is asked about; 0 where they are unknown."""
        found = self._sizes.get(value)
        if found is None:
            type_ = self.types.type_of(value)
            found = self.number(type_.nbytes) or 0
            if self.dtype is not None:
                found = round(found * self._factor(type_.dtype))
            self._sizes[value] = found
        return found

    def number(self, size: Dim | None) -> int | None:
        """Return a size with symbols bound; None where it stays open."""
        if isinstance(size, SymDim) and self.bindings:
            size = bind(size, self.bindings)
        return size if isinstance(size, int) else None

    def _factor(self, dtype: DType) -> float:
        """Return the factor by which elements are larger in the requested element type."""
        if self.dtype is None or dtype.kind is not DTypeKind.FLOAT or not dtype.bits or not self.dtype.bits:
            return 1.0
        return self.dtype.bits / dtype.bits

    def bound(self, entry: Entry, reuse: Reuse) -> NodeBound:
        node = entry.node
        name = self.elements(node)
        if entry.certainty is Certainty.UNKNOWN:
            return _unbounded(entry, name, entry.reason)
        cost, runs = self._least(entry), self.number(entry.runs)
        if cost is None or runs is None:
            return _unbounded(entry, name, _open_sizes(entry))
        family = spec.family if (spec := spec_of(node)) is not None else None
        launch = self._launch(entry, family)
        is_copied = self.rates.in_session and family is Family.VIEW and not plays(node, OpRole.RESHAPE)
        if entry.certainty is Certainty.FREE and not is_copied:
            return NodeBound(node, runs, name, 0, 0, 0.0, 0.0, launch, FREE)
        kernel = self.kernel_of(node) if spec is not None and is_convolution(spec) else ""
        compute = self._compute(node, cost, name, kernel)
        read, written = self._scaled(node.inputs, cost.read), self._scaled(node.outputs, cost.written)
        if is_copied:
            read = written = sum(map(self.size, node.outputs))
        reading, writing = reuse.read_seconds(node, read), reuse.write_seconds(node, written)
        if compute is None or reading is None or writing is None:
            return _unbounded(entry, name, f"{self.device.title} has no figure for {name}")
        name, seconds = compute
        memory = reading + writing
        binding, is_exact = _binding(seconds, memory, launch), entry.bounds is None
        least_compute = self._least_compute(node, cost, name, kernel)
        least_memory = self._beyond_cache(read) + self._beyond_cache(written)
        return NodeBound(
            node,
            runs,
            name,
            int_or_zero(cost.flops),
            read + written,
            seconds,
            memory,
            launch,
            binding,
            is_exact=is_exact,
            least_compute=least_compute,
            least_memory=least_memory,
        )

    def _beyond_cache(self, amount: int) -> float:
        """Seconds for bytes that cannot all have stayed in the last cache; none where its size is not known, as it may hold them all."""
        cache, bandwidth = self.device.cache_bytes, self.device.bandwidth
        return max(amount - cache, 0) / bandwidth.hi if cache and bandwidth is not None else 0.0

    def _least_compute(self, node: Node, cost: Cost, name: str, kernel: str) -> float:
        """Seconds of arithmetic at the highest clock, with the fewest multiplications that libraries have algorithms for."""
        products = int_or_zero(cost.matmul)
        if products:
            filters = [self.types.type_of(value).shape if value is not None else None for value in node.inputs[1:3]]
            products = round((products - min(int_or_zero(cost.masked), products)) / saved(spec_of(node), filters, node.attrs))
            if self.is_fused and any(is_dequantized(value) for value in node.inputs):
                name = "u8i8"
        rate = self.rates.product(name, kernel) if products else None
        arithmetic = products / rate[1].hi if rate is not None else 0.0
        # What is fused may also have been folded into weights beforehand.
        others = Cost(elementwise=cost.elementwise, reduction=cost.reduction, transcendental=cost.transcendental)
        other = None if self.is_fused else self._compute(node, others, name, "")
        vector = other[1] if other is not None else 0.0
        return (arithmetic + vector if self.device.kind == "cpu" else max(arithmetic, vector)) / self.device.boost

    def element_type(self, node: Node) -> DType | None:
        """Return the element type a node computes in: the narrowest of its floating-point operands, else that of its first tensor."""
        tensors = [type_ for value in (*node.inputs, *node.outputs) if isinstance(type_ := self.types.type_of(value), TensorType)]
        floats = [type_.dtype for type_ in tensors if type_.dtype.kind in (DTypeKind.FLOAT, DTypeKind.COMPLEX)]
        if not floats:
            return tensors[0].dtype if tensors else None
        if self.dtype is not None:
            return self.dtype
        return min(floats, key=lambda dtype: dtype.bits or 64)

    def elements(self, node: Node) -> str:
        """Return the element types a node computes in, as device files call them: of a product of integers those of both sides."""
        spec = spec_of(node)
        if spec is not None and spec.family is Family.QUANTIZATION:
            given = (self.types.type_of(value) for value in node.inputs if value is not None)
            sides = [type_ for type_ in given if isinstance(type_, TensorType) and len(type_.shape or ()) > 1]
            if spec.codes is not None and spec.codes.packing is Packing.ROWS:
                return _PACKED if node.attrs.get("bits") == 4 else "f32"
            if len(sides) > 1 and sides[1].dtype.is_integer:
                return _integer_product_dtypes(sides[1], sides[0]) if _unfolds(spec) else _integer_product_dtypes(sides[0], sides[1])
        dtype = self.element_type(node)
        return rate_name(dtype) if dtype is not None else "f32"

    def kernel_of(self, node: Node) -> str:
        """Return which kind of convolution a node is: each channel for itself, a matrix product, or neither."""
        sides = [shape for value in node.inputs if len(shape := self.types.type_of(value).shape or ()) > 2]
        weight = sides[1] if len(sides) > 1 else (0, 0)
        is_deep = weight[1] == 1 and node.attrs.get("groups", 1) != 1
        spec = spec_of(node)
        if spec is not None and _unfolds(spec):
            return "unfolded_depthwise" if is_deep else "unfolded"
        if is_deep:
            # A session's convolutions of floats in its own layout are fused ones.
            is_plain = self.rates.in_session and spec is not None and spec.codes is None and "activation" not in node.attrs
            return "plain_depthwise" if is_plain else "depthwise"
        is_product = len(weight) > 2 and all(size == 1 for size in weight[2:]) and node.attrs.get("groups", 1) == 1
        return "pointwise" if is_product and _in_steps_of_one(node.attrs) else "convolution"

    def _scaled(self, values: Iterable[Value | None], amount: Dim | None) -> int:
        """Return the bytes that a rule counted, in the element type that is asked about."""
        counted = int_or_zero(amount)
        if self.dtype is None or not counted:
            return counted
        known = [value for value in dict.fromkeys(values) if value is not None]
        before = 0
        for value in known:
            before += self.number(self.types.type_of(value).nbytes) or 0
        return round(counted * sum(map(self.size, known)) / before) if before else counted

    def _least(self, entry: Entry) -> Cost | None:
        """Return the least that one run of an entry costs; None where that is a formula."""
        if entry.bounds is not None:
            return self._worked_out(entry)
        found = self._least_of.get(id(entry.cost))
        if found is None:
            found = self._least_of[id(entry.cost)] = entry.cost, self._worked_out(entry)
        return found[1]

    def _worked_out(self, entry: Entry) -> Cost | None:
        found: dict[str, int] = {}
        for measure in MEASURES:
            if measure != "flops":
                number = self.number(getattr(entry.cost, measure) if entry.bounds is None else entry.bounds[measure][0])
                if number is None:
                    return None
                found[measure] = number
        return Cost(**found)

    def _launch(self, entry: Entry, family: Family | None) -> float:
        """Return the overhead of starting a node; views need no kernel, but a processor's library is called for them too."""
        if self.rates.in_session and (operator := self.device.overheads.get(SESSION_OPERATOR)) is not None:
            return operator.lo
        if entry.certainty is Certainty.FREE:
            view = self.device.overheads.get("view") if family is Family.VIEW else None
            return view.lo if view is not None else 0.0
        return self.device.launch.lo if self.device.launch is not None else 0.0

    def _compute(self, node: Node, cost: Cost, name: str, kernel: str) -> tuple[str, float] | None:
        """Seconds of arithmetic, with the element type whose rate it is."""
        parts: list[float] = []
        products = int_or_zero(cost.matmul)
        if products:
            found = self.rates.product(name, kernel)
            if found is None:
                return None
            name, figure = found
            parts.append(products / figure.hi)
        in_session = self._session_seconds(node, cost, kernel)
        if in_session is not None:
            # Copying together is most of the time of few channels, and little of what many products take.
            return name, max(in_session, *parts) if kernel else in_session + sum(parts)
        simple, functions = int_or_zero(cost.elementwise) + int_or_zero(cost.reduction), int_or_zero(cost.transcendental)
        for amount, rate in ((simple, self.rates.vector(name)), (functions, self.rates.functions(name))):
            if amount and rate is None:
                return None
            if amount and rate is not None:
                parts.append(amount / rate)
        # The units of a GPU work side by side; a processor has one set for everything.
        return name, sum(parts) if self.device.kind == "cpu" else max(parts, default=0.0)

    def _session_seconds(self, node: Node, cost: Cost, kernel: str) -> float | None:
        """Return what a session's kernel takes beside its products, by elements; None where that was not measured."""
        rates, spec = self.device.session_elements, spec_of(node)
        if not self.rates.in_session or spec is None:
            return None
        counts = [self.elements_of(value) for value in (*node.inputs, *node.outputs) if value is not None]
        count, kind = max(counts, default=0), _element_kernel(spec, cost, counts)
        if kernel == "convolution" and spec.family is Family.QUANTIZATION:
            # What one place of the result needs is copied together for each element of the filter.
            weight = node.inputs[spec.codes.weight] if spec.codes is not None and len(node.inputs) > spec.codes.weight else None
            taps, places = ((self.types.type_of(value).shape or ())[2:] if value is not None else () for value in (weight, node.outputs[0]))
            images = (self.types.type_of(node.outputs[0]).shape or (0,))[0]
            count, kind = math.prod(self.number(size) or 0 for size in (images, *taps, *places)), "unfold"
        elif kind == "permute":
            count = sum(map(self.size, node.outputs)) // _FLOAT_BYTES
        rate = rates.get(kind)
        return None if rate is None else count / rate.hi

    def elements_of(self, value: Value) -> int:
        """Return the number of elements; 0 where it is not known."""
        return math.prod(self.number(size) or 0 for size in self.types.type_of(value).shape or (0,))


def _element_kernel(spec: OpSpec, cost: Cost, counts: Sequence[int]) -> str:
    """Return the kind of a session's kernel whose time goes by elements; empty where irscope measures none like it."""
    if spec.family is Family.SOFTMAX:
        return "softmax"
    if OpRole.RECODES in spec.roles:
        return "quantize" if spec.codes is None else "dequantize"
    if OpRole.TRANSPOSE in spec.roles:
        return "permute"
    if spec.family not in (Family.NORMALIZATION, Family.ELEMENTWISE):
        return ""
    if int_or_zero(cost.transcendental) >= max(counts, default=0):
        return "functions"
    return "elementwise" if spec.family is Family.ELEMENTWISE else "normalization"


_WINOGRAD: Final = 4
"""Results along an axis that the largest of cuDNN's tiles for filters of 3 makes at once (6 elements of input, 4 of output)."""


def saved(spec: OpSpec | None, filters: Sequence[Sequence[Dim] | None], attrs: Mapping[str, Attr]) -> float:
    """Return the factor by which a convolution's multiplications can be reduced: Winograd's algorithms compute several results from one
    transformed tile, along each axis that the filter moves along with stride 1. `filters` are the sizes of the second and third operand."""
    if spec is None or not (spec.family is Family.CONVOLUTION or OpRole.CONVOLUTION in spec.roles):
        return 1.0
    place = 0 if spec.family is Family.CONVOLUTION else 1
    sizes = filters[place] if len(filters) > place else None
    if sizes is None or not _in_steps_of_one(attrs):
        return 1.0
    return math.prod(_WINOGRAD * taps / (_WINOGRAD + taps - 1) for taps in sizes[2:] if isinstance(taps, int) and taps > 1)


def is_convolution(spec: OpSpec) -> bool:
    """Return whether an operator moves a filter over an image, of floats or of integers."""
    return spec.family is Family.CONVOLUTION or (spec.family is Family.QUANTIZATION and OpRole.FILTERS in spec.roles)


def _unfolds(spec: OpSpec) -> bool:
    """Return whether a convolution of integers multiplies the filter, its left side, with the unfolded image: that without scales."""
    return spec.family is Family.QUANTIZATION and OpRole.FILTERS in spec.roles and spec.codes is None


_PACKED: Final = "u4"
_FLOAT_BYTES: Final = 4  # of the elements whose permutation is measured: narrower ones take as much less


def _integer_product_dtypes(left: TensorType, right: TensorType) -> str:
    """Return the element types of a product of integers, as ONNX Runtime has kernels for them: floats on the left are quantised to u8."""
    return "i8i8" if left.dtype is DType.I8 else "u8i8" if right.dtype is DType.I8 else "u8u8"


def is_dequantized(value: Value | None) -> bool:
    """Return whether a value stands for integers, with which a runtime may compute instead."""
    spec = spec_of(value.node) if value is not None and value.node is not None else None
    return spec is not None and spec.family is Family.QUANTIZATION


def _in_steps_of_one(attrs: Mapping[str, Attr]) -> bool:
    stride = attrs.get("stride") or attrs.get("strides") or 1
    return all(step == 1 for step in (stride if isinstance(stride, tuple | list) else (stride,)))


def _binding(compute: float, memory: float, launch: float) -> str:
    if launch > max(compute, memory):
        return LAUNCH
    if compute > BALANCE * memory:
        return COMPUTE
    return MEMORY if memory > BALANCE * compute else BALANCED


def _open_sizes(entry: Entry) -> str:
    """Return why an entry has a formula instead of a number, and which sizes make it one."""
    formulas = [*(getattr(entry.cost, measure) for measure in MEASURES), entry.runs]
    options = bind_option({symbol: None for size in formulas if isinstance(size, SymDim) for symbol in size.symbols()})
    return f"it depends on open sizes, which {typed(options)} gives" if options else "it depends on sizes that are not known"


def _unbounded(entry: Entry, dtype: str, reason: str) -> NodeBound:
    runs = entry.runs if isinstance(entry.runs, int) else 1
    return NodeBound(entry.node, runs, dtype, 0, 0, 0.0, 0.0, 0.0, UNKNOWN, reason)


# Peak rates of a device by element type, with substitutes for missing figures.

Tf32: TypeAlias = Literal["default", "all", "none"]

# An element type that a device has no rate for is converted to a wider one, which cannot be faster.
_WIDER = {"f4": "f8", "f8": "f16", "f16": "f32", "bf16": "f32", "tf32": "f32", "i4": "i8", "i8": "f16", "i32": "f32", "f32": "bf16"}
_WIDER |= {"u8i8": "i8", "u8u8": "i8", "i8i8": "i8", "u4": "f32"}
_SHORT = {
    DType.F64: "f64",
    DType.F32: "f32",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.C64: "f32",
    DType.C128: "f64",
    DType.F4E2M1: "f4",
    DType.I8: "i8",
    DType.U8: "i8",
    DType.I4: "i4",
    DType.U4: "i4",
}


def rate_name(dtype: DType) -> str:
    """Return the element type as device files call it."""
    found = _SHORT.get(dtype)
    if found is not None:
        return found
    if dtype.kind is DTypeKind.FLOAT:
        return "f8"
    return "i32"


@immutable(slots=False)
class Rates:
    """Rates of one device. `tf32` says where products of f32 may run as TF32: PyTorch does so in convolutions, unless told otherwise;
    `in_session` takes those of ONNX Runtime's kernels where they were measured."""

    device: DeviceProfile
    tf32: Tf32 = "default"
    in_session: bool = False

    def product(self, dtype: str, kernel: str = "") -> tuple[str, Figure] | None:
        """Return the rate of matrix products, or of a kind of convolution, with the element type whose rate it is; None where there is
        none."""
        device = self.device
        as_tf32 = self.tf32 == "all" or (self.tf32 == "default" and bool(kernel))
        if dtype == "f32" and as_tf32 and device.kind == "gpu" and "tf32" in device.matrix:
            dtype = "tf32"
        seen: set[str] = set()
        while dtype not in seen:
            seen.add(dtype)
            measured = device.sessions.get(kernel or "product", {}) if self.in_session else {}
            figure = measured.get(dtype) or device.kernels.get(kernel, {}).get(dtype) or device.matrix.get(dtype)
            if figure is not None:
                return dtype, figure
            dtype = _WIDER.get(dtype, dtype)
        return None

    def vector(self, dtype: str) -> float | None:
        """Operations a second outside of matrix products; by default, no faster than those."""
        vector = self.device.vector
        for name in (dtype, _WIDER.get(dtype, "f32"), "f32"):
            if name in vector:
                return vector[name].hi
        found = self.product(dtype)
        return None if found is None else found[1].hi

    def functions(self, dtype: str) -> float | None:
        """Exponentials and the like a second."""
        measured = self.device.functions
        return measured.hi if measured is not None else self.vector(dtype)


# Where operands come from: a cache that still holds them, or main memory.
#
# A model runs again and again. What it reads was last touched some bytes ago: by the node that made it, or, for a weight, in the run
# before. The smallest level that holds all that was touched since then is the one it can come from.

Size = Callable[[Value], int]


class Reuse:
    """Follows a run over the storages of a model and says at which rate each operand can be had."""

    def __init__(self, device: DeviceProfile, storage: Callable[[Value], Value], size: Size, whole: int) -> None:
        self.device = device
        self.storage = storage
        self.size = size
        self.whole = whole
        """Bytes of all storages that a run touches."""
        self._touched = 0
        self._last: dict[Value, int] = {}

    def read_seconds(self, node: Node, amount: int) -> float | None:
        """Return the least time to read so many bytes of a node's operands; None where the device's bandwidth is unknown."""
        operands = [self.storage(value) for value in dict.fromkeys(node.inputs) if value is not None]
        sizes = [self.size(value) for value in operands]
        together = sum(sizes)
        if not together:
            return self._seconds(amount, self.whole)
        total = 0.0
        for operand, size in zip(operands, sizes, strict=True):
            seconds = self._seconds(amount * size / together, self._distance(operand) + size)
            if seconds is None:
                return None
            total += seconds
        return total

    def write_seconds(self, node: Node, amount: int) -> float | None:
        """Return the least time to write so many bytes of results, into memory that was just freed."""
        return self._seconds(amount, amount)

    def touch(self, node: Node) -> None:
        """Note that a node has run."""
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                storage = self.storage(value)
                if storage not in self._last:
                    self._touched += self.size(storage)
                self._last[storage] = self._touched

    def _distance(self, storage: Value) -> int:
        last = self._last.get(storage)
        return self.whole if last is None else self._touched - last

    def _seconds(self, amount: float, working_set: float) -> float | None:
        for level in self.device.levels:
            if level.size is not None and working_set <= level.size:
                return amount / level.bandwidth.hi
        bandwidth = self.device.bandwidth
        return None if bandwidth is None else amount / bandwidth.hi


def total_size(nodes: Sequence[Node], storage: Callable[[Value], Value], size: Size) -> int:
    """Return the bytes of every storage that the nodes touch, each once."""
    touched = {storage(value): None for node in nodes for value in (*node.inputs, *node.outputs) if value is not None}
    return sum(map(size, touched))
