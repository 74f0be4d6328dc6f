"""Rules for what ONNX Runtime's CPU kernels do with memory. Everything here was observed in the profile of onnxruntime 1.31."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Final, NamedTuple

from irscope.ir.dims import Dim, round_up
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.spec import Family, KernelPacking, OpCall, OrtKernel, Packs, Takes

_SUM: Final = 3
"""Position of the tensor that a fused convolution adds."""
_PATCHES: Final = 65536
"""Bytes of patches for each thread."""
_WORK_OF_THREAD: Final = 65536
"""Multiplications for which another thread is worth it."""
_COLUMNS: Final = 16
"""Matrices are packed in panels of so many columns."""
_LINE: Final = 64
"""Bytes of a line of the processor's cache."""


_HALF: Final = frozenset(
    [
        "Attention",
        "BitCast",
        "Cast",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "DynamicSlice",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "If",
        "IsNaN",
        "LayerNormalization",
        "Loop",
        "Mod",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "RMSNormalization",
        "RandomNormalLike",
        "RandomUniformLike",
        "Reshape",
        "ReverseSequence",
        "RotaryEmbedding",
        "Round",
        "Scan",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "SequenceAt",
        "SequenceConstruct",
        "Shape",
        "Shrink",
        "Sign",
        "SimplifiedLayerNormalization",
        "Slice",
        "Split",
        "SplitToSequence",
        "Squeeze",
        "TensorScatter",
        "Transpose",
        "Unsqueeze",
        "BranchwiseRMSNorm",
        "EngramGate",
        "ExpandDims",
        "GatedAdd",
        "GatedRMSNorm",
        "GatherBlockQuantized",
        "GroupQueryAttention",
        "HyperConnectionPostMix",
        "HyperConnectionPreMix",
        "Inverse",
        "LinearAttentionGate",
        "MRotaryEmbedding",
        "MatMulNBits",
        "QMoE",
        "ScaledSiLU",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "SparseAttention",
        "UnfoldTensor",
    ]
)
"""Operators for which the CPU provider has kernels of half precision: `get_all_opkernel_def()` of onnxruntime 1.31 lists them."""
_HALF_SINCE: Final = {"Clip": 12, "DequantizeLinear": 19, "IsInf": 20, "Max": 12, "Min": 12, "QuantizeLinear": 19}
"""The same from a version of the operator on."""


OF_LISTS: Final = frozenset({"Concat", "Max", "Min", "Split"})
"""Operators that run in half precision and take or make a list of tensors. IsIsolatedFp16NodeOnCpu in
core/optimizer/insert_cast_transformer.cc goes by the operands and results of the schema, where a list is one, so that it looks at the
first tensor alone (of what Split reads, only that is in half precision)."""


def runs_halves(name: str, version: int) -> bool:
    """Return whether the CPU provider has a kernel of half precision for an operator, by its name in the file and its version."""
    return name in _HALF or version >= _HALF_SINCE.get(name, version + 1)


def alias(*names: str) -> tuple[OrtKernel, ...]:
    """Return kernels whose result has the buffer of their first operand."""
    return (OrtKernel(names, alias=True),)


def in_place(*names: str, takes: Takes | None = None) -> tuple[OrtKernel, ...]:
    """Return kernels that write over their first operand where they may."""
    return (OrtKernel(names, in_place=(0,), takes=takes),)


def packs(rule: Packs, *names: str, takes: Takes | None = None) -> tuple[OrtKernel, ...]:
    """Return kernels for which a session packs weights anew."""
    return (OrtKernel(names, packs=rule, takes=takes),)


def takes(rule: Takes, *names: str, first: bool = False) -> tuple[OrtKernel, ...]:
    """Return kernels that take memory while they run, before their results where `first` says so."""
    return (OrtKernel(names, takes=rule, takes_first=first),)


class FunctionStep(NamedTuple):
    """A kernel of the function that defines an operator."""

    kernel: str
    operands: tuple[int, ...]
    """Operands of the operator by position, results of earlier steps from -1 downward; constants are left out."""

    @property
    def is_truth(self) -> bool:
        return self.kernel in ("Less", "Greater", "Equal")

    @property
    def is_reduction(self) -> bool:
        return self.kernel.startswith("Reduce")


FUNCTIONS: Final = {
    "HardSwish": (14, 0, "HardSigmoid x; Mul x 1"),
    "Mish": (18, 0, "Softplus x; Tanh 1; Mul x 2"),
    "Swish": (24, 4, "Mul x; Sigmoid 1; Mul x 2"),
    "LeakyRelu": (16, 8, "Less x; Mul x; Where 1 2 x"),
    "PRelu": (16, 4, "Less x; Mul y x; Where 1 2 x"),
    "Softmax": (13, 8, "ReduceMax x; Sub x 1; Exp 2; ReduceSum 3; Div 3 4"),
    "LogSoftmax": (13, 8, "ReduceMax x; Sub x 1; Exp 2; ReduceSum 3; Log 4; Sub 2 5"),
    "GreaterOrEqual": (12, 0, "Greater x y; Equal x y; Or 1 2"),
    "LessOrEqual": (12, 0, "Less x y; Equal x y; Or 1 2"),
    "Elu": (18, 12, "Less x; Exp x; Sub 2; Mul 3; Where 1 4 x"),
    "HardSigmoid": (18, 16, "Mul x; Add 1; Min 2; Max 3"),
    "Relu": (18, 4, "Max x"),
    "Selu": (18, 12, "Exp x; Mul 1; Sub 2; Mul 3; Mul x; Less x; Where 6 4 5"),
    "Softplus": (18, 4, "Exp x; Add 1; Log 2"),
    "Softsign": (18, 4, "Abs x; Add 1; Div x 2"),
    "ThresholdedRelu": (18, 8, "Less x; Where 1 x"),
}
"""Functions that define operators, from an operator set on: those in `onnx.defs`, of operators without a kernel of the CPU provider, or
without one of half precision; then bytes of constants. Operands are x and y, or the results of steps, from 1 on."""
WITHOUT_KERNEL: Final = frozenset([
    "Bernoulli", "CastLike", "CenterCropPad", "GroupNormalization", "HardSwish", "Mish", "NegativeLogLikelihoodLoss",
    "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
])  # fmt: skip
"""Operators of the standard domain for which the CPU provider has no kernel at all: `get_all_opkernel_def()` of onnxruntime 1.31."""


@cache
def function_of(name: str, opset: int, is_half: bool) -> tuple[FunctionStep, ...]:
    """Return the kernels that ONNX Runtime runs in place of an operator; nothing where it has one."""
    since, _, text = FUNCTIONS.get(name, (0, 0, ""))
    if not text or opset < since or not (name in WITHOUT_KERNEL or is_half):
        return ()
    steps = [step.split() for step in text.split("; ")]
    return tuple(FunctionStep(kind, tuple("xy".find(one) if one in "xy" else -int(one) for one in operands)) for kind, *operands in steps)


def _takes_choices(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return what is chosen from either side where both have the sizes of the result."""
    result = call.results[0] if call.results else None
    size = result.nbytes if result is not None else None
    return (size, size) if isinstance(size, int) else ()


CHOICE: Final = OrtKernel(("Where",), takes=_takes_choices, takes_first=True)
"""`Where` in a function."""


def _shape(call: OpCall, operand: int, *dtypes: DType) -> tuple[int, ...] | None:
    """Return sizes of an operand, where it is a tensor of one of these element types and they are numbers."""
    type_ = call.types[operand] if operand < len(call.types) else None
    if type_ is None or type_.dtype not in dtypes or type_.shape is None:
        return None
    shape = tuple(dim for dim in type_.shape if isinstance(dim, int))
    return shape if len(shape) == len(type_.shape) else None


def _panels(rows: int, columns: int) -> int:
    """Return bytes of a float matrix in panels."""
    return 4 * rows * round_up(columns, _COLUMNS)


def _float_matrix(call: OpCall, weights: Sequence[bool], transposed: bool) -> list[KernelPacking]:
    shape = _shape(call, 1, DType.F32)
    if not weights[1] or shape is None or len(shape) != 2:
        return []
    rows, columns = reversed(shape) if transposed else shape
    return [KernelPacking(1, _panels(rows, columns), transposed)]


def packs_matmul(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return _float_matrix(call, weights, transposed=False)


def packs_gemm(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return _float_matrix(call, weights, transposed=bool(call.attr("trans_b")))


def _byte_panels(rows: int, columns: int, dtype: DType) -> int:
    """Bytes of a matrix of 8-bit integers in panels, each column with its sum. Its products take two rows at once where it is unsigned,
    else four."""
    return round_up(columns, _COLUMNS) * (round_up(rows, 2 if dtype is DType.U8 else 4) + 4)


def _byte_type(call: OpCall, operand: int) -> DType:
    return DType.U8 if _shape(call, operand, DType.U8) is not None else DType.I8


def _has_signed_codes(call: OpCall) -> bool:
    """Return whether operand 0 has signed codes, for whose products x86 has no packed form (MlasGemmPackBSize)."""
    return _shape(call, 0, DType.I8) is not None


def packs_integers(operand: int) -> Packs:
    """Return the packing of a matrix of 8-bit integers."""

    def rule(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
        shape = _shape(call, operand, DType.I8, DType.U8)
        if shape is None or len(shape) != 2 or not weights[operand] or _has_signed_codes(call):
            return []
        transposed = bool(call.attrs.get("trans_b"))
        rows, columns = reversed(shape) if transposed else shape
        packed = _byte_panels(rows, columns, _byte_type(call, operand))
        return [KernelPacking(operand, packed, transposed, prod(shape) if transposed else 0)]

    return rule


def packs_lstm(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return [
        one for operand in (1, 2) for one in _each_direction(call, weights, operand, lambda rows, inner: _panels(inner, rows), DType.F32)
    ]


def packs_dynamic_lstm(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return [
        one
        for operand in (1, 2)
        for one in _each_direction(call, weights, operand, partial(_byte_panels, dtype=_byte_type(call, operand)), DType.I8, DType.U8)
    ]


def packs_gru(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    """The recurrent weights of the hidden gate stand apart from those of the two others."""
    return [
        *_each_direction(call, weights, 1, lambda rows, inner: _panels(inner, rows), DType.F32),
        *_each_direction(call, weights, 2, lambda rows, inner: _panels(inner, 2 * rows // 3) + _panels(inner, rows // 3), DType.F32),
    ]


def _each_direction(
    call: OpCall, weights: Sequence[bool], operand: int, packed: Callable[[int, int], int], *dtypes: DType
) -> list[KernelPacking]:
    shape = _shape(call, operand, *dtypes)
    if shape is None or len(shape) != 3 or not weights[operand]:
        return []
    return [KernelPacking(operand, shape[0] * packed(shape[1], shape[2]))]


def _each_head(call: OpCall, weights: Sequence[bool], panels: Callable[[int, int], int], *dtypes: DType) -> list[KernelPacking]:
    """Return the packing of each head's part of the projections."""
    shape, heads = _shape(call, 1, *dtypes), call.attr("num_heads")
    if shape is None or len(shape) != 2 or not weights[1] or not isinstance(heads, int) or call.attrs.get("qkv_hidden_sizes"):
        return []
    if heads < 1 or shape[1] == 0 or shape[1] % (3 * heads):
        return []
    return [KernelPacking(1, 3 * heads * panels(shape[0], shape[1] // 3 // heads), heads)]


def packs_attention(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return _each_head(call, weights, _panels, DType.F32)


def packs_quantized_attention(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    return _each_head(call, weights, partial(_byte_panels, dtype=_byte_type(call, 1)), DType.I8, DType.U8)


def copies_weight(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    """Return the packing of the filter of a transposed convolution in another order, where it has more than one row and column."""
    shape, groups = _shape(call, 1, DType.F32), call.int_attr("groups") or 1
    if shape is None or not weights[1] or len(shape) <= 2 or shape[0] // groups == 1 or prod(shape[1:]) == 1:
        return []
    return [KernelPacking(1, 4 * prod(shape), groups, reserved=False)]


def takes_transposed_convolution(call: OpCall, threads: int) -> int:
    """Patches of one group of an image."""
    image, filters = _shape(call, 0, DType.F32, DType.F64), _shape(call, 1, DType.F32, DType.F64)
    if image is None or filters is None:
        return 0
    return _width(call, 0) * prod(filters[1:]) * prod(image[2:])


def takes_selections(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return what is chosen from either side, each as large as it is with the condition."""
    types = call.types[:3]
    shapes = [type_.shape for type_ in types if type_ is not None and type_.shape is not None]
    sizes = [[dim for dim in shape if isinstance(dim, int)] for shape in shapes]
    if len(shapes) < 3 or any(len(one) < len(shape) for one, shape in zip(sizes, shapes, strict=True)):
        return ()
    sizes = [_broadcast(sizes[0], one) for one in sizes[1:]]
    return tuple(_width(call, 1) * prod(size) for size in sizes)


def takes_running_result(call: OpCall, threads: int) -> int:
    """Return the memory of what has been made so far of more than two operands."""
    shape = call.results[0].shape if call.results else None
    if len(call.types) < 3 or shape is None:
        return 0
    return _width(call, 0) * prod(dim for dim in shape if isinstance(dim, int))


def takes_squares(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return the memory of the scale of every place, and squares of one image with channels before and behind."""
    shape = _shape(call, 0, DType.F32)
    if shape is None or len(shape) != 4:
        return ()
    size = call.int_attr("size") or 1
    return _chunks(prod(shape), (shape[1] + size - 1) * shape[2] * shape[3])


def _width(call: OpCall, operand: int) -> int:
    """Return bytes of an element."""
    type_ = call.types[operand] if operand < len(call.types) else None
    return 0 if type_ is None or type_.dtype.bits is None else -(-type_.dtype.bits // 8)


def _broadcast(left: Sequence[int], right: Sequence[int]) -> list[int]:
    rank = max(len(left), len(right))
    pairs = zip([1] * (rank - len(left)) + [*left], [1] * (rank - len(right)) + [*right], strict=True)
    return [other if one == 1 else one for one, other in pairs]


def packs_halves(*operands: int) -> Packs:
    """Vectors in half precision, as single."""

    def rule(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
        shapes = {operand: _shape(call, operand, DType.F16) for operand in operands if operand < len(weights) and weights[operand]}
        return [KernelPacking(operand, 4 * prod(shape)) for operand, shape in shapes.items() if shape is not None]

    return rule


class _QuantizedFilter(NamedTuple):
    """Sizes of the filter of a convolution of 8-bit integers."""

    groups: int
    outputs: int
    """Channels that a group makes."""
    inputs: int
    places: int
    is_signed: bool

    @property
    def is_depthwise(self) -> bool:
        return self.inputs == self.outputs == 1

    @property
    def is_direct(self) -> bool:
        """Return whether there is a kernel that needs no matrix of patches: for signed weights whose zero points are 0, as they are
        wherever weights are signed."""
        if not self.is_signed:
            return False
        return self.is_depthwise if self.groups > 1 else self.outputs >= _COLUMNS and self.inputs % 4 == 0


def _quantized_filter(call: OpCall) -> _QuantizedFilter | None:
    shape, groups = _shape(call, 3, DType.I8, DType.U8), call.int_attr("groups") or 1
    if shape is None or len(shape) < 3 or shape[0] % groups:
        return None
    # Only unsigned images have kernels without patches on x86.
    is_signed = _shape(call, 3, DType.I8) is not None and _shape(call, 0, DType.U8) is not None
    return _QuantizedFilter(groups, shape[0] // groups, shape[1], prod(shape[2:]), is_signed)


def _is_pointwise(call: OpCall, image: Sequence[int], window: Sequence[int], result: Sequence[Dim]) -> bool:
    """Return whether a convolution reads one place for each that it makes."""
    return prod(window) == 1 and tuple(result) == tuple(image) and all(stride == 1 for stride in call.attr("strides") or ())


def packs_quantized_filter(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    found = _quantized_filter(call)
    if found is None or not weights[3]:
        return []
    inner = found.inputs * found.places
    if found.is_direct:
        channels = found.groups if found.is_depthwise else found.outputs
        return [KernelPacking(3, round_up(channels, _COLUMNS) * inner, shared=False, reserved=False)]
    if found.is_depthwise or _has_signed_codes(call):
        # The filter in another order.
        return [KernelPacking(3, found.groups * found.outputs * inner)]
    packed = found.groups * _byte_panels(inner, found.outputs, _byte_type(call, 3))
    return [KernelPacking(3, packed, found.groups, found.outputs * inner)]


def takes_quantized_convolution(call: OpCall, threads: int) -> tuple[int, ...]:
    """Sums, patches or the places where they begin, and image and result with their channels last where they are not; for one image."""
    image, found = _shape(call, 0, DType.I8, DType.U8), _quantized_filter(call)
    shape = call.results[0].shape if call.results else None
    if image is None or found is None or shape is None:
        return ()
    is_last = bool(call.attrs.get("channels_last"))
    window, result = (image[1:-1], shape[1:-1]) if is_last else (image[2:], shape[2:])
    places = prod(dim for dim in result if isinstance(dim, int))
    outputs = found.groups * found.outputs * places
    pieces = [] if found.is_direct else [4 * outputs]
    if not is_last:
        pieces += [prod(image[1:]), outputs]
    is_pointwise = _is_pointwise(call, window, (found.places,), result)
    if found.is_depthwise or (found.is_direct and not is_pointwise):
        pieces.append(8 * found.places * places)
    elif not is_pointwise:
        pieces.append(found.inputs * found.places * places * (found.groups if len(image) > 4 else 1))
    return tuple(pieces)


def takes_integer_patches(call: OpCall, threads: int) -> int:
    """Patches of one group of an image."""
    image, filters = _shape(call, 0, DType.I8, DType.U8), _shape(call, 1, DType.I8, DType.U8)
    shape = call.results[0].shape if call.results else None
    if image is None or filters is None or shape is None or _is_pointwise(call, image[2:], filters[2:], shape[2:]):
        return 0
    return prod(filters[1:]) * prod(dim for dim in shape[2:] if isinstance(dim, int))


def takes_operand(width: int, *dtypes: DType) -> Takes:
    """Operand 0, of one of these types, with elements of another width."""

    def rule(call: OpCall, threads: int) -> int:
        shape = _shape(call, 0, *dtypes)
        return width * prod(shape) if shape is not None else 0

    return rule


def takes_biased(call: OpCall, threads: int) -> int:
    """Return the bytes of operand 0 with its bias added; without one the result holds what comes between."""
    shape = _shape(call, 0, DType.F32)
    return 4 * prod(shape) if shape is not None and _shape(call, 1, DType.F32) is not None else 0


def takes_gemm_sums(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return the memory of `takes_sums`, and of the second matrix transposed where that was not done when it was packed."""
    sums, filters = takes_sums(call, threads), _shape(call, 3, DType.I8, DType.U8)
    if filters is None or not call.attrs.get("trans_b") or not _has_signed_codes(call):
        return (sums,)
    return sums, prod(filters)


def takes_sums(call: OpCall, threads: int) -> int:
    """Return sums of 32 bits behind a result of 8."""
    shape = call.results[0].shape if call.results and call.results[0].dtype in (DType.I8, DType.U8) else None
    sizes = tuple(dim for dim in shape or () if isinstance(dim, int))
    return 4 * prod(sizes) if shape is not None and len(sizes) == len(shape) else 0


def _block_bytes(call: OpCall) -> tuple[int, int, int] | None:
    """Columns, blocks of a column and bytes of a block of a matrix in codes of few bits; None where the kernel has no form for it.

    Only codes of 4 bits are multiplied as they are with sums of floats, those of 8 with sums of integers alone (accuracy level 4).
    """
    bits, length, columns = call.int_attr("bits"), call.int_attr("block_size"), call.int_attr("n")
    unpackable = call.given("group_index") or (call.given("zero_points") and call.tensor("zero_points").dtype is not DType.U8)
    if unpackable or (bits == 8 and not _sums_integers(call)) or bits not in (4, 8) or length not in (16, 32, 64, 128, 256):
        return None
    return columns, -(-call.int_attr("k") // length), length * bits // 8


def _sums_integers(call: OpCall) -> bool:
    return call.int_attr("accuracy_level") == 4


def packs_few_bits(call: OpCall, weights: Sequence[bool]) -> list[KernelPacking]:
    """Codes block by block; with sums of integers also the scales, and for 16 columns at once their products with the zero points, each
    part at a multiple of 64 bytes."""
    found = _block_bytes(call)
    if found is None or not weights[1]:
        return []
    columns, blocks, size = found
    packed = columns * blocks * size
    if _sums_integers(call):
        packed += 4 * blocks * (columns + round_up(columns, _COLUMNS)) + 2 * (_LINE - 1)
    return [KernelPacking(1, packed)]


def takes_few_bits(call: OpCall, threads: int) -> int:
    """Return the memory of the left side in codes of 8 bits, or all weights as floats where the kernel has no form for their codes."""
    left = _shape(call, 0, DType.F32)
    if left is None or not left:
        return 0
    found = _block_bytes(call)
    if found is None:
        length = call.int_attr("block_size")
        return 4 * call.int_attr("n") * round_up(call.int_attr("k"), length)
    rows = prod(left[:-1])
    return round_up(rows * found[1] * (call.int_attr("block_size") + 8), _LINE) + _LINE - 1 if _sums_integers(call) else 0


def takes_convolution(call: OpCall, threads: int) -> int:
    """Patches of the image: all of them where there are more filters than places, else some for each thread."""
    image, filters = _shape(call, 0, DType.F32), _shape(call, 1, DType.F32)
    shape = call.results[0].shape if call.results else None
    if image is None or filters is None or shape is None:
        return 0
    places = prod(dim for dim in shape[2:] if isinstance(dim, int))
    if _is_pointwise(call, image[2:], filters[2:], shape[2:]):
        return 0
    inner = prod(filters[1:])
    count = filters[0] // (call.int_attr("groups") or 1)
    if count > places:
        return 4 * places * inner
    return _PATCHES * min(threads, count * places * inner // _WORK_OF_THREAD + 1)


def takes_two(call: OpCall, threads: int) -> tuple[int, ...]:
    """Transposed copies of operand and result, where the axis is not the last one."""
    shape, axis = _shape(call, 0, DType.F32, DType.F64), call.attr("axis")
    if shape is None or not shape or not isinstance(axis, int) or call.attrs.get("from_axis") or axis % len(shape) == len(shape) - 1:
        return ()
    return (4 * prod(shape),) * 2


def _chunks(*counts: int) -> tuple[int, ...]:
    """Return bytes of requests for so many elements of four bytes."""
    return tuple(4 * count for count in counts)


class _Layer(NamedTuple):
    """Sizes of a recurrent layer."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: tuple[bool, ...]
    """For each direction, whether it reads backwards."""

    @property
    def state(self) -> int:
        """Elements of the states of one direction."""
        return self.batch * self.hidden

    def copies(self, call: OpCall, is_reverse: bool) -> tuple[int, ...]:
        """Lengths that were not given; the inputs and outputs of a direction that reads backwards."""
        lengths = () if call.given("lengths") else (self.batch,)
        return _chunks(*lengths, *((self.steps * self.batch * self.inputs, self.steps * self.state) if is_reverse else ()))

    def states(self, call: OpCall, count: int) -> tuple[int, ...]:
        """Last states that the kernel keeps for itself, since nobody asked for them."""
        given = sum(isinstance(type_, TensorType) for type_ in call.results[1 : 1 + count])
        return _chunks(*(len(self.directions) * self.state for _ in range(count - given)))


def _layer(call: OpCall) -> _Layer | None:
    x, r = _shape(call, 0, DType.F32), _shape(call, 2, DType.F32, DType.I8, DType.U8)
    if x is None or r is None or len(x) != 3 or len(r) != 3 or call.attrs.get("batch_first"):
        return None
    direction = call.attr("direction")
    directions = (False, True) if direction == "bidirectional" else (direction == "reverse",)
    return _Layer(*x, min(r[1:]), directions)


def takes_lstm(call: OpCall, threads: int) -> tuple[int, ...]:
    """Gates of all steps, states, sums of the biases; both directions keep theirs until the end."""
    layer = _layer(call)
    if layer is None:
        return ()
    state, hidden = layer.state, layer.hidden
    own = _chunks(hidden, hidden, state, state, state, 4 * layer.steps * state, *([hidden] * 4 if call.given("b") else ()))
    if call.spec.family is Family.QUANTIZATION:
        own += (max(layer.steps * layer.batch * layer.inputs, state), *_chunks(4 * state))
    return (*layer.states(call, 2), *(piece for is_reverse in layer.directions for piece in (*own, *layer.copies(call, is_reverse))))


def takes_gru(call: OpCall, threads: int) -> tuple[int, ...]:
    """Do as for an LSTM, with the biases once for each sequence."""
    layer = _layer(call)
    if layer is None:
        return ()
    linear = 1 if call.attr("linear_before_reset") else 0
    biases = 3 + linear if call.given("b") else 0
    own = _chunks(3 * layer.steps * layer.state, *([layer.state] * (2 + linear + biases)))
    return (*layer.states(call, 1), *(piece for is_reverse in layer.directions for piece in (*own, *layer.copies(call, is_reverse))))


def takes_rnn(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return the memory of the inputs times their weights, and all outputs where nobody asked for them."""
    layer = _layer(call)
    if layer is None:
        return ()
    asked = isinstance(call.results[0], TensorType)
    return _chunks(layer.steps * layer.state, *(() if asked else (len(layer.directions) * layer.steps * layer.state,)))


FUSED_CONVOLUTION: Final = (OrtKernel(("Conv",), in_place=(_SUM,)), OrtKernel(("FusedConv",), in_place=(_SUM,), takes=takes_convolution))
