"""Writes down what a kernel takes, in order, and what convolutions are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from irscope.ir.dims import Dim, SymDim, equal
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.layouts import has_memory_format, is_viewable, row_major
from irscope.ops.spec import Drop, Gemm, GemmPath, MemoryEvent, NeedsNumbers, Result, Take, TakeKind, Temporaries, Unknown, Workspace

if TYPE_CHECKING:
    from irscope.devices.catalogue import Target
    from irscope.devices.releases import Release
    from irscope.ir.graph import Attr
    from irscope.ops.spec import OpCall

# cuDNN's workspace for a convolution: a model, since the sizes come from a closed library that asks the device.

Kernel: TypeAlias = Literal["forward", "input", "filters"]
"""Kind of computation: the convolution, the gradient of its input (as a transposed convolution), or that of its filters."""
_LABELS: dict[Kernel, str] = {
    "forward": "cuDNN workspace",
    "input": "cuDNN workspace, gradient of the input",
    "filters": "cuDNN workspace, gradient of the filters",
}
_CLOSED = "cuDNN chooses the kernels of a convolution, and their workspace, on the device"
_RECORDED = 8
"""The major version of the architecture that was recorded."""


def convolution_workspace(
    target: Target, kernel: Kernel, x: TensorType, w: TensorType, y: TensorType, strides: Sequence[int], groups: Attr
) -> Workspace | None:
    """Return the workspace of one kernel over input, filters and result, two of which it reads; None where a size is not known."""
    parts = (x.nbytes, w.nbytes, y.nbytes)
    factors = _factors(target, x, w, strides, groups) if kernel == "forward" else (0, 0, 0)
    size: Dim = 0
    most: Dim = 0
    for factor, part in zip(factors, parts, strict=True):
        if part is None:
            return None
        size, most = size + factor * part, most + max(1, factor) * part
    return Workspace(_LABELS[kernel], size, most, _CLOSED)


def _factors(target: Target, x: TensorType, w: TensorType, strides: Sequence[int], groups: Attr) -> tuple[int, int, int]:
    """Return how many times the bytes of input, filters and result a convolution is taken to need."""
    device = target.device
    rule = device.workspaces.get(_kernel_kind(w, strides, groups), {}).get(x.dtype.text)
    if rule is not None:
        return rule.input, rule.filter, rule.output
    recorded = device.capability is not None and device.capability[0] == _RECORDED
    relays = x.dtype is DType.F32 and len(x.shape or ()) == 4 and has_memory_format(x, "channels_last") is not True
    return (1, 1, 0) if recorded and relays else (0, 0, 0)


def _kernel_kind(w: TensorType, strides: Sequence[int], groups: Attr) -> str:
    """Return the kind of kernel, as device files call it."""
    if groups != 1 and w.shape is not None and w.shape[1] == 1:
        return "depthwise"
    is_product = groups == 1 and w.shape is not None and all(size == 1 for size in (*w.shape[2:], *strides))
    return "pointwise" if is_product else "convolution"


# Writing down what a kernel takes and gives back, in order.


class Requests:
    """Collects what one call asks for and gives back. Labels that occur twice are numbered."""

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = results
        self.events: list[MemoryEvent] = []
        self._labels: dict[str, int] = {}

    def take(self, label: str, size: Dim, kind: TakeKind = "temporary") -> str:
        """Ask for bytes; the label that gives them back. Nothing is asked for where there are none."""
        count = self._labels.get(label, 0) + 1
        self._labels[label] = count
        name = label if count == 1 else f"{label} ({count})"
        if size == 0:
            return ""
        self.events.append(Take(name, size, kind))
        return name

    def drop(self, *labels: str) -> None:
        """Give back in this order; empty labels stand for what was never taken."""
        self.events.extend(Drop(label) for label in labels if label)

    def passing(self, label: str, *sizes: Dim) -> None:
        """Take all of these, then give them back in the same order."""
        self.drop(*[self.take(label, size) for size in sizes])

    def result(self, index: int = 0, size: Dim | None = None) -> None:
        """The storage of a result is made now."""
        if index < len(self.results):
            self.events.append(Result(index, size))

    def unknown(self, label: str, reason: str) -> None:
        self.events.append(Unknown(label, reason))


class Scratch(Requests):
    """Collects the events of a call of an operator of the graph."""

    def __init__(self, call: OpCall, target: Target) -> None:
        super().__init__(call.results)
        self.call = call
        self.target = target

    def gemm(self, path: GemmPath = "cublas") -> None:
        # Without elements PyTorch asks no library (aten/src/ATen/native/cuda/Blas.cpp).
        if not any(isinstance(one, TensorType) and one.nbytes == 0 for one in self.call.types):
            self.events.append(Gemm(path))

    def convolve(self, kernel: Kernel, x: TensorType, w: TensorType, y: Type | None) -> None:
        """cuDNN computes a convolution, or a gradient of one, in a workspace of its own choice."""
        strides, groups = self.call.ints("strides") or (), self.call.attr("groups")
        made = y if isinstance(y, TensorType) else None
        found = None if made is None else convolution_workspace(self.target, kernel, x, w, made, strides, 1 if groups is None else groups)
        if found is not None:
            self.events.append(found)

    def copy_unless_contiguous(self, type_: TensorType, label: str) -> str:
        """Return a row-major copy of a tensor that does not lie so."""
        return "" if is_contiguous(type_) else self.take(label, nbytes(type_))

    @property
    def release(self) -> Release:
        return self.target.release

    @property
    def source(self) -> str:
        """The operator's name in the file, without the in-place mark: "layer_norm"."""
        return self.call.source.partition("::")[2].rstrip("_")


def rule(write: Callable[[Scratch], None]) -> Temporaries:
    """Return a rule of an operator's record from a function that writes events down."""

    @wraps(write)
    def events(call: OpCall, target: Target) -> Sequence[MemoryEvent]:
        scratch = Scratch(call, target)
        write(scratch)
        return scratch.events

    return events


def nbytes(type_: TensorType) -> Dim:
    """Return bytes of a tensor's elements."""
    found = type_.nbytes
    if found is None:
        raise NeedsNumbers(f"the size of {type_} is not known")
    return found


def count(type_: TensorType) -> Dim:
    """Return elements of a tensor."""
    numel = type_.numel
    if numel is None:
        raise NeedsNumbers(f"the rank of {type_} is not known")
    return numel


def sizes(type_: TensorType) -> tuple[Dim, ...]:
    if type_.shape is None:
        raise NeedsNumbers(f"the rank of {type_} is not known")
    return type_.shape


def number(dim: Dim) -> int:
    """Return a size on which the choice of a kernel depends."""
    if isinstance(dim, SymDim):
        raise NeedsNumbers(f"the choice of kernels depends on the size {dim}; bind it")
    return int(dim)


def numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(number(dim) for dim in dims)


def strides(type_: TensorType) -> tuple[Dim, ...]:
    """Return strides in elements."""
    if isinstance(type_.layout, tuple):
        return type_.layout
    return row_major(sizes(type_))


def width(dtype: DType) -> int:
    """Return bytes of an element."""
    return (dtype.bits or 32) // 8


def is_half(dtype: DType) -> bool:
    return dtype in (DType.F16, DType.BF16)


def decided(verdict: bool | None, what: str) -> bool:
    """Return an answer that must be known."""
    if verdict is None:
        raise NeedsNumbers(f"{what} depends on sizes that are not bound")
    return verdict


def same(left: Dim, right: Dim) -> bool:
    return decided(equal(left, right), f"whether {left} is {right}")


def is_contiguous(type_: TensorType, memory_format: str = "contiguous_format") -> bool:
    if memory_format == "contiguous_format" and type_.layout is None:
        return True
    return decided(has_memory_format(type_, memory_format), f"how {type_} lies in memory")


def is_channels_last(type_: TensorType) -> bool:
    """Return whether PyTorch takes its strides for those of channels_last, by the comparisons that it makes."""
    if type_.layout is None or len(sizes(type_)) not in (4, 5):
        return False
    shape, steps = numbers(sizes(type_)), numbers(strides(type_))
    least = 0
    if steps[1] == 0:
        return False
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[axis] == 0 or steps[axis] < least or (axis == 0 and least == steps[1]):
            return False
        least = steps[axis] * max(shape[axis], 1)
    return True


def is_dense(type_: TensorType) -> bool:
    """Return whether its elements fill a block without gaps or overlaps, in whatever order."""
    return type_.layout is None or layouts.is_dense(numbers(sizes(type_)), numbers(strides(type_)))


def relaid(type_: TensorType, shape: Sequence[Dim], steps: Sequence[Dim]) -> TensorType:
    """Return the same elements seen with other sizes and strides."""
    return tensor(type_.dtype, shape, type_.device, tuple(steps))


def transposed(type_: TensorType) -> TensorType:
    """Return the last two axes swapped, as a view."""
    shape, steps = sizes(type_), strides(type_)
    if len(shape) < 2:
        return type_
    return relaid(type_, (*shape[:-2], shape[-1], shape[-2]), (*steps[:-2], steps[-1], steps[-2]))


def expanded(type_: TensorType, shape: Sequence[Dim]) -> TensorType:
    """Return a view stretched to a shape: stride 0 where it is stretched."""
    old, steps = sizes(type_), strides(type_)
    missing = len(shape) - len(old)
    moved = [
        0 if axis < missing or (same(old[axis - missing], 1) and not same(size, 1)) else steps[axis - missing]
        for axis, size in enumerate(shape)
    ]
    return relaid(type_, shape, moved)


def reshape_copies(type_: TensorType, shape: Sequence[Dim]) -> bool:
    """Return whether a reshape must copy."""
    if type_.layout is not None and is_row_major(type_):
        return False
    return not decided(is_viewable(type_, tuple(shape)), f"whether {type_} can be seen as another shape")


def is_row_major(type_: TensorType) -> bool:
    """Return whether its strides are known to be those of a row-major tensor."""
    return type_.layout is None or has_memory_format(type_, "contiguous_format") is True
