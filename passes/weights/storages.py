"""Weights by the storage they lie in: names that share one are tied, and no byte counts twice."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, cast

from irscope.immutable import mutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Role, Value
from irscope.ir.places import Blob, FileRegion
from irscope.ir.program import PackedPart, Program
from irscope.ir.types import Type
from irscope.passes.sizes import at_least, dim_cell
from irscope.report.values import Provenance, Quantity

_PARTS: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PARAMETERS: Final = frozenset({"param", "params", "parameters"})
"""Names that programs give to the tree of parameters that they are handed: flax, haiku, optax and the guides of JAX."""
_OTHERS: Final = frozenset(
    {"opt", "optimizer", "grad", "grads", "gradients", "updates", "mu", "nu", "momentum", "trace", "ema", "stats", "cache"}
)
"""Trees of the same form: what an optimizer keeps for each parameter, gradients, averages."""


@mutable
class ParameterTotals:
    """Sums over distinct storages; names that share one are tied."""

    count: Dim = 0
    bytes: Dim = 0
    buffer_bytes: Dim = 0
    constant_bytes: Dim = 0
    tied_bytes_saved: Dim = 0
    weights: list[Value] = field(default_factory=list)
    tied_to: dict[Value, Value] = field(default_factory=dict)
    """Names for the very same bytes, with the first of them."""
    overlaps: dict[Value, Value] = field(default_factory=dict)
    """Weights that share a part of a storage, with the first that lies in it."""
    own: dict[Value, tuple[Dim, Dim]] = field(default_factory=dict)
    """Elements and bytes of each weight that no other one before it has counted; those of parameters add up to `count` and `bytes`."""
    unsized: list[Value] = field(default_factory=list)
    """Weights of unknown size, which the sums leave out: those of their role are lower bounds then."""
    packed: Mapping[Value, PackedPart] = field(default_factory=dict)
    """Weights in few bits, and what lies beside them: they count for the parameters that they stand for."""
    uncounted: str = ""
    """Why the number of parameters is not known."""
    named: list[Value] = field(default_factory=list)
    """Inputs that are parameters by their names, where a file does not tell which of its inputs are."""

    @property
    def are_inputs(self) -> bool:
        """Return whether parameters are among the inputs, and nobody says which."""
        return bool(self.uncounted) and not any(weight.role in (Role.PARAMETER, Role.BUFFER) for weight in self.weights)

    @property
    def every_byte(self) -> Dim:
        """Bytes of parameters, buffers and constants."""
        return self.bytes + self.buffer_bytes + self.constant_bytes

    def is_complete(self, role: Role | None = None) -> bool:
        """Return whether the sums over a role, or over all weights, leave nothing out."""
        return not any(role is None or weight.role is role for weight in self.unsized)

    @property
    def count_cell(self) -> object:
        """Return the number of parameters as reports hold it."""
        if self.named:
            return self._assumed([value.type.numel for value in self.named])
        if self.uncounted:
            return Quantity(None, Provenance.UNKNOWN, note=self.uncounted, lo=dim_cell(self.count))
        return at_least(self.count, self.is_complete(Role.PARAMETER))

    @property
    def bytes_cell(self) -> object:
        """Return their bytes as reports hold them."""
        if self.named:
            return self._assumed([value.type.nbytes for value in self.named])
        if self.are_inputs:
            return Quantity(None, Provenance.UNKNOWN, note=self.uncounted)
        return at_least(self.bytes, self.is_complete(Role.PARAMETER))

    def _assumed(self, sizes: Sequence[Dim | None]) -> Quantity:
        """Return the sum over inputs that are taken for parameters."""
        known = [size for size in sizes if size is not None]
        total = sum(known, start=cast("Dim", 0))
        return Quantity(dim_cell(total) if len(known) == len(sizes) else None, Provenance.ASSUMED, note="told by the names of inputs")

    @property
    def bits_each(self) -> float | None:
        """Bits that a parameter takes, scales and all; None where none is quantised, or their number is not known."""
        is_quantised = bool(self.packed) or any(weight.type.dtype.block for weight in self.weights)
        if not is_quantised or self.uncounted or not self.is_complete(Role.PARAMETER):
            return None
        return 8 * self.bytes / self.count if isinstance(self.count, int) and isinstance(self.bytes, int) and self.count else None

    @property
    def known_count(self) -> Dim | None:
        """Return the number of parameters; None where it is only a lower bound."""
        return None if self.uncounted else self.known(Role.PARAMETER, self.count)

    def known(self, role: Role, total: Dim) -> Dim | None:
        """Return a sum over a role; None where it is only a lower bound."""
        return total if self.is_complete(role) else None


@mutable
class _Storage:
    """Counted parts of one storage: disjoint intervals, in order."""

    first: Value
    exact: dict[tuple[int, int], Value] = field(default_factory=dict)
    counted: list[tuple[int, int]] = field(default_factory=list)

    def add(self, low: int, high: int) -> int:
        """Count an interval; how many of its bytes are new."""
        new = high - low
        place = max(0, bisect_left(self.counted, (low, low)) - 1)
        while place < len(self.counted) and self.counted[place][0] <= high:
            start, stop = self.counted[place]
            if stop < low:
                place += 1
                continue
            new -= max(0, min(high, stop) - max(low, start)) if low < high else 0
            low, high = min(low, start), max(high, stop)
            del self.counted[place]
        insort(self.counted, (low, high))
        return new


def count_parameters(program: Program) -> ParameterTotals:
    """Totals of a program's weights, each storage once."""
    storages: dict[str, _Storage] = {}
    totals = ParameterTotals(packed=program.packed, uncounted=program.uncounted)
    sizes: dict[Type, tuple[Dim | None, Dim | None]] = {}
    for weight in program.weights():
        totals.weights.append(weight)
        type_ = weight.type
        found = sizes.get(type_)
        if found is None:
            found = sizes[type_] = type_.numel, type_.nbytes
        numel, size = found
        if numel is None or size is None:
            totals.unsized.append(weight)
            continue
        new = _new_bytes(weight, size, storages, totals)
        part = program.packed.get(weight)
        totals.own[weight] = _elements_in(numel if part is None else part.parameters, new, size), new
        if weight.role is Role.PARAMETER:
            totals.count += totals.own[weight][0]
            totals.bytes += new
        elif weight.role is Role.BUFFER:
            totals.buffer_bytes += new
        else:
            totals.constant_bytes += new
    if totals.are_inputs:
        totals.named = [value for value in program.graph.inputs if _is_named_parameter(str(value.name or ""))]
    return totals


def _is_named_parameter(name: str) -> bool:
    """Return whether the first part of a path that tells what a tree is says parameters: `state.params['w']`, and not
    `opt_state.mu['params']`."""
    parts = (part.lower() for part in _PARTS.findall(name))
    return next((part in _PARAMETERS for part in parts if part in _PARAMETERS or part in _OTHERS), False)


def _new_bytes(weight: Value, size: Dim, storages: dict[str, _Storage], totals: ParameterTotals) -> Dim:
    """Return the bytes of a weight that no other weight has counted."""
    place = _byte_range(weight)
    if place is None or isinstance(size, SymDim) or size == 0:
        return size
    key, low, high = place
    storage = storages.get(key)
    if storage is None:
        storage = storages[key] = _Storage(weight)
    twin = storage.exact.setdefault((low, high), weight)
    if twin is not weight:
        totals.tied_to[weight] = twin
        totals.tied_bytes_saved += size
        return 0
    # Strides may make the reach in the file longer or shorter than the elements are.
    new = min(storage.add(low, high), size)
    if new < min(size, high - low):
        totals.overlaps[weight] = storage.first
        totals.tied_bytes_saved += size - new
    return new if new < min(size, high - low) else size


def _elements_in(numel: Dim, new: Dim, size: Dim) -> Dim:
    """Return the elements that so many of the bytes hold."""
    return numel * new // size if isinstance(numel, int) and isinstance(new, int) and isinstance(size, int) and size else numel


def _byte_range(weight: Value) -> tuple[str, int, int] | None:
    """Return the storage of a weight, and its byte range; None where they are unknown."""
    graph = weight.graph
    data = graph.data.get(weight) if graph is not None else None
    if isinstance(data, FileRegion):
        return f"{data.path}:{data.storage}", data.offset, data.offset + data.length
    return (f"blob:{data.storage}", 0, len(data.data)) if isinstance(data, Blob) and data.storage else None


def is_matrix(weight: Value, program: Program) -> bool:
    """Parameters of at least two axes that hold floats: what is pruned and quantised."""
    type_ = weight.type
    if weight in program.packed or weight.role is not Role.PARAMETER or type_.shape is None or type_.numel == 0:
        return False
    return len(type_.shape) > 1 and type_.dtype.is_float and (type_.dtype.bits or 0) >= 16
