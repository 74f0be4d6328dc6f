"""The buffer plan that Inductor wrote into a wrapper, as a program: allocations, kernels, calls of libraries, and when each buffer goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.inductor.loops import Loops
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.frontends.torch_lowering.lowering import AtenCall, Lowered
from irscope.frontends.torch_lowering.signatures import Argument, Signature, complete, find, foreign_attrs, overloads, resolve
from irscope.frontends.torch_lowering.table import lower
from irscope.ir.dims import Dim, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Names, Node, Role, Value
from irscope.ir.places import FileRegion, Loc
from irscope.ir.program import COMPILED, Life, Observed, Program, observed_versions
from irscope.ir.types import MOST_BYTES, UNKNOWN_TYPE, TensorType, Type, scalar, tensor
from irscope.ops.layouts import row_major

GENERATED: Final = "compiled.kernel"
UNKNOWN_KERNEL: Final = "inductor.kernel"
"""One whose signature was not found: what it writes is not known."""
MOST_TOLD: Final = 4
"""Lines that are named of those that were not understood."""
_MOST_AXES: Final = 64
"""More axes than PyTorch's tensors can have."""
_SEEDS: Final = {6: DType.U64, 7: DType.U64}
_RESULTS: Final[Mapping[str, Mapping[int, DType]]] = {
    "_scaled_dot_product_flash_attention": {1: DType.F32, **_SEEDS},
    "_scaled_dot_product_efficient_attention": {1: DType.F32, 2: DType.I64, 3: DType.I64},
    "_scaled_dot_product_cudnn_attention": {1: DType.F32, **_SEEDS},
    "_scaled_dot_product_flash_attention_for_cpu": {1: DType.F32},
}
"""Element types of results that are not those of the operands: schemas of ATen do not tell, its kernels do."""
_LIKE_OPERANDS: Final = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "_addmm_activation", "convolution", "convolution_backward", "mkldnn_convolution"}
    | {"_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward"}
    | {"_scaled_dot_product_cudnn_attention_backward", *_RESULTS}
)
"""Operators whose results have the element type of their operands, those of `_RESULTS` apart; wrappers give sizes alone."""


@dataclass(slots=True, eq=False)
class Storage:
    """One piece of memory and how many names of the wrapper hold it."""

    first: Value
    owned: bool
    """Whether the wrapper took it; inputs and constants are the caller's."""
    born: int = 0
    size: Dim = 0
    names: int = 0


@dataclass(slots=True, eq=False)
class Held:
    """What a name of the wrapper stands for: a tensor, or a view of one."""

    value: Value
    storage: Storage
    name: str = ""

    @property
    def type(self) -> TensorType:
        found = self.value.type
        return found if isinstance(found, TensorType) else tensor(DType.UNKNOWN, None)


@dataclass(frozen=True, slots=True)
class Made:
    """A result of a call, as far as the wrapper tells."""

    name: str | None = None
    shape: tuple[Dim, ...] | None = None
    strides: tuple[Dim, ...] | None = None
    dtype: DType = DType.UNKNOWN


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel: which of its arguments are written, and their element types."""

    written: frozenset[int]
    dtypes: Mapping[int, DType]
    known: bool = True
    """Whether its signature was found; otherwise what it writes is not known."""
    loops: Loops | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What the comment above a call says of it."""

    operators: tuple[str, ...] = ()
    loc: Loc | None = None


@dataclass
class Plan:
    """Writes down what a wrapper does, in its order."""

    path: str
    sink: DiagnosticSink
    symbols: Symbols = field(default_factory=lambda: Symbols({}))
    graph: Graph = field(default_factory=Graph)
    names: Names = field(default_factory=Names)
    unread: list[tuple[int, str]] = field(default_factory=list)
    """Lines that were not understood, with what is there."""
    devices: dict[str, None] = field(default_factory=dict)
    allocations: int = 0
    reused: int = 0
    kernels: int = 0
    calls: int = 0
    _lives: dict[Value, Life] = field(default_factory=dict)
    _storages: dict[Value, Value] = field(default_factory=dict)
    _of: dict[Value, Storage] = field(default_factory=dict)
    _rank: int = 0

    # -- what is there before the wrapper runs ---------------------------------------------------------------------

    def type_of(self, dtype: DType, shape: Sequence[Dim] | None, strides: Sequence[Dim] | None, device: str = "") -> TensorType:
        """A tensor's type; the device is noted, and told once for the whole program."""
        if device:
            self.devices[device] = None
        if shape is None:
            return tensor(dtype, None)
        if len(shape) > _MOST_AXES or (strides is not None and len(strides) != len(shape)):
            raise LoadError(f"a tensor has {len(shape)} sizes and {len(strides or ())} strides", code="IRS128", where=self.path)
        sizes = tuple(shape)
        layout = None if strides is None or tuple(strides) == row_major(sizes) else tuple(strides)
        made = tensor(dtype, sizes, "", layout)
        extent = _extent(made)
        if not made.is_possible or (isinstance(extent, int) and not 0 <= extent <= MOST_BYTES):
            raise LoadError(f"there can be no tensor {str(made)[:80]}", code="IRS128", where=self.path, hint="the file is damaged")
        return made

    def declare(self, name: str, type_: Type) -> Held:
        """An input."""
        return self._given(self.graph.add_input(type_, self.names.unique(name)))

    def constant(self, name: str, type_: Type, role: Role, data: FileRegion | None = None) -> Held:
        """A parameter, buffer or constant."""
        return self._given(self.graph.add_weight(type_, self.names.unique(name), role, data))

    def _given(self, value: Value) -> Held:
        self._of[value] = storage = Storage(value, owned=False)
        return Held(value, storage)

    # -- what the wrapper does -------------------------------------------------------------------------------------

    def empty(self, name: str, type_: TensorType, loc: Loc | None) -> Held:
        """A buffer that the wrapper allocates."""
        self.allocations += 1
        attrs: dict[str, Attr] = {"shape": type_.shape or (), "dtype": type_.dtype}
        node = self._append("tensor.empty", (), (type_,), attrs, (name,), loc, "empty_strided")
        return self._own(node.outputs[0], _extent(type_))

    def view(self, name: str, of: Held, type_: TensorType, offset: Dim, loc: Loc | None) -> Held:
        """Other sizes and strides over the same memory; the tensor itself where they are its own."""
        if type_ is of.type and offset == 0:
            return of
        strides = type_.layout if isinstance(type_.layout, tuple) else row_major(type_.shape or ())
        attrs: dict[str, Attr] = {"shape": type_.shape or (), "strides": strides, "offset": offset}
        node = self._append("view.as_strided", (of.value,), (type_,), attrs, (name,), loc, "reinterpret_tensor")
        return self._share(node.outputs[0], of.storage)

    def launch(
        self, name: str, kernel: Kernel, operands: Sequence[Held | None], origin: Origin, sizes: Mapping[int, Dim]
    ) -> dict[int, Held]:
        """A generated kernel; what it writes holds new values, by the place of the argument. `sizes` are its numbers, by place."""
        self.kernels += 1
        places = [place for place, one in enumerate(operands) if one is not None]
        written = [place for place in places if place in kernel.written]
        given = [one for one in operands if one is not None]
        types = [one.type for place, one in zip(places, given, strict=True) if place in kernel.written]
        attrs: dict[str, Attr] = {"kernel": name}
        if origin.operators:
            attrs["operators"] = origin.operators
        cost = kernel.loops.cost([None if one is None else one.type for one in operands], sizes) if kernel.loops is not None else None
        if cost is not None:
            read, wrote, counts = cost
            attrs |= {"bytes": read + wrote, **(counts or {})}
        results = [one.name or one.value.name for place, one in zip(places, given, strict=True) if place in kernel.written]
        inputs = [one.value for one in given]
        first = next((operands[place] for place in written), None)
        if first is not None and not all(one.storage.owned for place in written if (one := operands[place]) is not None):
            attrs["inplace"] = given.index(first)  # what the caller has is changed: the kernel is needed though nothing reads its results
        node = self._append(GENERATED if kernel.known else UNKNOWN_KERNEL, inputs, types, attrs, results, origin.loc, name)
        made: dict[int, Held] = {}
        for place, value in zip(written, node.outputs, strict=True):
            one = operands[place]
            if one is not None:
                made[place] = self._share(value, one.storage)
        return made

    def call(
        self,
        name: str,
        overload: str | None,
        positional: Sequence[Argument],
        named: Mapping[str, Argument],
        results: Mapping[int, Made],
        origin: Origin,
        out: Sequence[Held] = (),
    ) -> list[Held]:
        """A call of an operator of a library: `results` by place, or written to `out`. What it made comes back, by place."""
        self.calls += 1
        found = _signature(name, overload, [_value(one) for one in positional], {key: _value(one) for key, one in named.items()})
        namespace, _, short = name.rpartition("::")
        source = f"{namespace or 'aten'}::{short}"
        lowered: Lowered | None = None
        signature: Signature | None = None
        args: Mapping[str, Argument] = {}
        if found is not None:
            signature, args = found
            lowered = lower(AtenCall(signature, args))
        if lowered is None:
            given: dict[str, Argument] = (
                dict(found[1])
                if found is not None
                else {
                    **{f"arg{place}": _value(one) for place, one in enumerate(positional)},
                    **{key: _value(one) for key, one in named.items()},
                }
            )
            inputs, attrs = foreign_attrs(given)
            lowered = Lowered(f"{namespace or 'aten'}.{short}", inputs, attrs)
        written = None if signature is None or signature.written is None else args.get(signature.written)
        count = max(len(out), len(signature.results) if signature is not None else 0, max((place + 1 for place in results), default=0))
        operand = next((one for one in lowered.inputs if one is not None), None)
        types = [self._result_type(name, place, results.get(place), out, signature, operand) for place in range(count)]
        if isinstance(written, Value) and count:
            types[0] = written.type
        slots = lowered.results if lowered.results is not None and len(lowered.results) == count else tuple(range(count))
        size = max((slot for slot in slots if slot is not None), default=-1) + 1
        made_types: list[Type] = [UNKNOWN_TYPE] * size
        made_names: list[str | None] = [None] * size
        for place, slot in enumerate(slots):
            if slot is not None:
                made_types[slot] = types[place]
                one = results.get(place)
                made_names[slot] = (
                    (out[place].name or out[place].value.name) if place < len(out) else one.name if one is not None else short.strip("_")
                )
        node = self._append(lowered.op, lowered.inputs, made_types, lowered.attrs, made_names, origin.loc, source)
        made: list[Held] = []
        for place, slot in enumerate(slots):
            if slot is None:
                node_of = self._append("tensor.empty", (), (types[place],), {"shape": ()}, (short,), origin.loc, source)
                made.append(self._own(node_of.outputs[0], 0))
            elif place == 0 and isinstance(written, Value):
                made.append(self._share(node.outputs[slot], self._of[written]))
            elif place < len(out):
                made.append(self._share(node.outputs[slot], out[place].storage))
            else:
                type_ = types[place]
                extent = _extent(type_) if isinstance(type_, TensorType) else 0
                made.append(self._own(node.outputs[slot], extent))
        return made

    def _result_type(
        self, name: str, place: int, made: Made | None, out: Sequence[Held], signature: Signature | None, operand: Value | None
    ) -> Type:
        if place < len(out):
            return out[place].type
        if made is None:
            kind = signature.results[place] if signature is not None and place < len(signature.results) else ""
            return scalar(DType.I64) if kind in ("int", "SymInt") else UNKNOWN_TYPE
        dtype = made.dtype
        if dtype is DType.UNKNOWN:
            dtype = _RESULTS.get(name, {}).get(place, DType.UNKNOWN)
        if dtype is DType.UNKNOWN and operand is not None and (name in _LIKE_OPERANDS or name.startswith("_c10d_functional::")):
            dtype = operand.type.dtype
        return self.type_of(dtype, made.shape, made.strides)

    def not_read(self, line: int, what: str, operands: Sequence[Held] = ()) -> None:
        """A line that was not understood: a node of which nothing is known."""
        self.unread.append((line, what))
        attrs: dict[str, Attr] = {"line": line}
        self._append("inductor.unread", [one.value for one in operands], (), attrs, None, Loc(self.path, line), what[:80])

    # -- names -----------------------------------------------------------------------------------------------------

    def hold(self, one: Held, name: str = "") -> None:
        """One more name for it."""
        one.storage.names += 1
        one.name = name or one.name

    def drop(self, one: Held) -> None:
        """A name less; with the last one the memory goes."""
        storage = one.storage
        storage.names -= 1
        if storage.names == 0 and storage.owned and storage.first in self._lives:
            life = self._lives[storage.first]
            if life.died is None:
                self._lives[storage.first] = Life(life.born, len(self.graph) - 1, self._rank, life.size)
                self._rank += 1

    def _own(self, value: Value, size: Dim | None) -> Held:
        born = len(self.graph) - 1
        storage = Storage(value, owned=True, born=born, size=0 if size is None else size)
        self._of[value] = storage
        self._lives[value] = Life(born, None, 0, storage.size)
        self._storages[value] = value
        return Held(value, storage)

    def _share(self, value: Value, storage: Storage) -> Held:
        self._storages[value] = storage.first
        self._of[value] = storage
        return Held(value, storage)

    def _append(
        self,
        op: str,
        inputs: Sequence[Value | None],
        types: Sequence[Type],
        attrs: Mapping[str, Attr],
        names: Sequence[str | None] | None,
        loc: Loc | None,
        source: str,
    ) -> Node:
        spend(50 + len(inputs), "statements of the wrapper")
        unique = None if names is None else [None if name is None else self.names.unique(name) for name in names]
        return self.graph.append(op, inputs, types, attrs, names=unique, loc=loc, source=source)

    # -- the whole -------------------------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[Held], kind: str, metadata: Mapping[str, str], examples: Mapping[str, int]) -> Program:
        """The program; lines that were not understood are told."""
        self.graph.set_outputs([one.value for one in outputs])
        if self.unread:
            told = ", ".join(f"line {line} ({what[:60]})" for line, what in self.unread[:MOST_TOLD])
            more = f" and {len(self.unread) - MOST_TOLD} more" if len(self.unread) > MOST_TOLD else ""
            what = "1 line was" if len(self.unread) == 1 else f"{len(self.unread)} lines were"
            self.sink.warn("IRS129", f"{what} not understood, and what it takes is not known: {told}{more}", about="inductor")
        facts = {
            **metadata,
            "device": ", ".join(self.devices),
            "allocations": str(self.allocations),
            "reused": str(self.reused),
            "generated kernels": str(self.kernels),
            "library calls": str(self.calls),
        }
        observed = Observed(self.graph, observed_versions(self.graph), self._lives, self._storages)
        return Program(
            self.graph,
            symbols=dict(self.symbols.named),
            format=kind,
            path=self.path,
            metadata={key: text for key, text in facts.items() if text},
            examples={name: size for name, size in examples.items() if name in self.symbols.named},
            observed=observed,
            traits=COMPILED,
        )


def unknown_size(line: int) -> Dim:
    """A size whose expression was not understood."""
    return unknown(f"line{line}", 0, None)


def _extent(type_: TensorType) -> Dim | None:
    """Bytes from a tensor's first element to its last, as `empty_strided` takes them; None where that is not known."""
    if not isinstance(type_.layout, tuple) or type_.shape is None or type_.dtype.bits is None:
        return type_.nbytes
    if any(size == 0 for size in type_.shape):
        return 0
    last: Dim = 1
    for size, stride in zip(type_.shape, type_.layout, strict=True):
        last = last + (size - 1) * stride
    return (last * type_.dtype.bits + 7) // 8


def _value(one: Argument) -> Argument:
    """An argument as signatures want it."""
    if isinstance(one, Held):
        return one.value
    if isinstance(one, tuple | list):
        return tuple([_value(item) for item in one])
    return one


def _signature(
    name: str, overload: str | None, positional: Sequence[Argument], named: Mapping[str, Argument]
) -> tuple[Signature, dict[str, Argument]] | None:
    """The overload that is called, with its arguments by name."""
    full = name.removeprefix("aten::")
    if overload is not None and (signature := find(full, overload)) is not None and len(positional) <= len(signature.params):
        # None stands for a tensor that is not there, also where the schema has none that may be absent.
        bound = {**{param.name: one for param, one in zip(signature.params, positional, strict=False)}, **named}
        if all(param.required is False or param.name in bound for param in signature.params):
            return signature, complete(signature, bound)
    found = resolve(full, positional, named)
    if found is None:
        # Calls of C leave arguments out that have a default, and give truth values as numbers.
        for signature in overloads(full):
            params = signature.params
            if len(positional) <= len(params) and not named:
                given = {param.name: _as_kind(one, param.kind) for param, one in zip(params, positional, strict=False)}
                of_c = signature.bind((), given)
                if of_c is not None:
                    return signature, complete(signature, of_c)
        return None
    return found[0], complete(found[0], found[1])


def _as_kind(one: Argument, kind: str) -> Argument:
    if kind.startswith("bool") and isinstance(one, int):
        return bool(one)
    if kind.startswith("float") and isinstance(one, int):
        return float(one)
    return one
