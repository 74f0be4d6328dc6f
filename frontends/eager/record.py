"""Recordings: operators in order, their operands and results, storages with their live ranges; and the program that a recording is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import torch

from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.frontends.torch_lowering.lowering import AtenCall, Lowered
from irscope.frontends.torch_lowering.signatures import Argument, Signature, complete, find, foreign_attrs, parse_signature
from irscope.frontends.torch_lowering.table import lower
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Names, Node, Role, Value, paused_gc
from irscope.ir.places import Loc, Payload, Scope, root_scope
from irscope.ir.program import CAPTURED, Assumed, Called, Life, Observed, Program, observed_versions
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, scalar, tensor
from irscope.ops.layouts import row_major

Kind: TypeAlias = Literal["parameter", "buffer", "input", "state", "constant", "result"]
"""Roles of tensors that existed before the run; `state` is an optimizer's, `constant` any other."""
Phase: TypeAlias = Literal["forward", "backward", "optimizer"]


@dataclass(eq=False, slots=True)
class Storage:
    """A storage, from the operator that allocates it until Python and autograd drop their last reference."""

    number: int
    size: Dim
    device: str
    born: int | None
    """The operator that allocates it; None if it existed before the run."""
    died: int | None = None
    """Operators that had begun when it was freed: after operator `died - 1`, or while that one ran. None while it lives."""
    rank: int = 0
    """Its index among all deaths."""
    inside: bool = False
    """True where it was freed while operator `died - 1` ran, not after it."""

    @property
    def bytes(self) -> int:
        """Return the size, in a recording without open sizes."""
        assert isinstance(self.size, int)
        return self.size


@dataclass(eq=False, slots=True)
class Tensor:
    """One tensor as an operand or result: a view of a storage."""

    number: int
    storage: Storage | None
    """None for tensors without one, such as sparse ones."""
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim
    device: str
    kind: Kind = "result"
    name: str = ""
    """The name of a parameter, buffer or input."""
    made_by: int | None = None
    """The operator whose result it is."""
    trainable: bool = False
    """True where it takes gradients."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the shape, in a recording without open sizes."""
        return tuple([size for size in self.shape if isinstance(size, int)])


@immutable(slots=False)
class GeneratedKernel:
    """A kernel that torch's compiler generated, in the place of an operator."""

    name: str
    operators: tuple[str, ...] = ()
    """Operators that were fused into it, by their names in ATen."""
    lines: tuple[str, ...] = ()
    """Where the program says so."""
    bytes: int | None = None
    """Read and written, as the compiler counts them."""
    counts: tuple[tuple[str, int], ...] | None = None
    """Operations by class of FLOPs; None where it does something that is not counted."""
    namespace: ClassVar[str] = "triton"
    tags: ClassVar[tuple[Any, ...]] = ()
    is_view: ClassVar[bool] = False


@dataclass(eq=False, slots=True)
class Op:
    """One operator that ran."""

    number: int
    func: Any
    """torch._ops.OpOverload, or a GeneratedKernel."""
    args: tuple[Any, ...]
    """Arguments in which `Tensor` stands for each tensor; lists are tuples."""
    kwargs: dict[str, Any]
    results: tuple[Any, ...]
    """Results in which `Tensor` stands for each tensor, lists flattened."""
    scope: Scope
    loc: Loc | None
    phase: Phase
    sequence: int | None = None
    """Number by which autograd links a backward operator to the forward one: that of the node that runs it, in the forward that of the node
    that was made last, which is the operator's own where it has one."""
    autograd_node: str = ""
    """The node of autograd that ran it; empty in the forward and in the optimizer."""

    @property
    def namespace(self) -> str:
        namespace: str = self.func.namespace
        return namespace

    @property
    def name(self) -> str:
        """Return the operator without namespace and overload: "add_"."""
        if isinstance(self.func, GeneratedKernel):
            return self.func.name
        name: str = self.func._schema.name
        return name.partition("::")[2]

    @property
    def overload(self) -> str:
        if isinstance(self.func, GeneratedKernel):
            return ""
        found: str = self.func._overloadname
        return found

    def reads(self) -> Iterator[Tensor]:
        """Yield the tensors among the arguments."""
        yield from tensors_in((self.args, tuple(self.kwargs.values())))

    def makes(self) -> Iterator[Tensor]:
        """Yield the tensors among the results."""
        yield from tensors_in(self.results)

    def writes(self) -> Iterator[Tensor]:
        """Yield the tensors that it overwrites, by its schema."""
        if isinstance(self.func, GeneratedKernel):
            yield from self.makes()
            return
        for place, argument in enumerate(self.func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given: Any = self.args[place] if place < len(self.args) else self.kwargs.get(argument.name)
                yield from tensors_in(given)


def tensors_in(item: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, in order."""
    pending = [item]
    while pending:
        waiting = pending.pop()
        if isinstance(waiting, Tensor):
            yield waiting
        elif isinstance(waiting, tuple):
            pending.extend(reversed(waiting))


@dataclass
class Record:
    """A run of a callable."""

    ops: list[Op] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    outputs: tuple[Any, ...] = ()
    """Results of the callable, tensors as `Tensor`, containers flattened."""
    root: Scope = field(default_factory=root_scope)
    device: str = ""
    """The device of the model: "cuda:0", or "cpu" where none could be simulated."""
    grad: bool = False
    """True where operators were recorded below autograd, decomposed; else as Python calls them."""
    guessed: list[Op] = field(default_factory=list)
    """Operators whose results have a guessed, data-dependent size."""
    assumed: dict[Assumed, str] = field(default_factory=dict)
    """Assumptions about the run, each with the code of its warning; no code where it was reported before."""
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Markers set by the caller, each with the index of the next operator."""


def dtype_of(tensor: torch.Tensor) -> DType:
    """Return the element type as irscope names it."""
    return _dtype_named(tensor.dtype)


@functools.cache
def _dtype_named(dtype: torch.dtype) -> DType:
    return NAMED_DTYPES.get(str(dtype).removeprefix("torch."), DType.UNKNOWN)


_ROLES = {"parameter": Role.PARAMETER, "buffer": Role.BUFFER, "state": Role.BUFFER, "constant": Role.CONSTANT}
_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}
# Checks of what a program assumes.
_SILENT = frozenset({"_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range", "sym_constrain_range_for_size"})


def program_of(record: Record, payload: Callable[[Tensor], Payload | None] = lambda _: None, *, keep_calls: bool = False) -> Program:
    """Return the program of a recording; `payload` gives known values of tensors that existed before the run."""
    with paused_gc():
        lowering = _Lowering(record, payload)
        program = lowering.program()
    if keep_calls:
        program.calls = lowering.calls
    return program


def lowered(record: Record) -> tuple[Program, list[int]]:
    """Return the program of a recording, and for each operator the index of its first node; the number of nodes comes last."""
    with paused_gc():
        lowering = _Lowering(record, lambda _: None)
        return lowering.program(), lowering._steps


def with_storages(record: Record) -> tuple[Program, dict[Storage, Value]]:
    """Return the program of a recording, and the value that had each storage first."""
    with paused_gc():
        lowering = _Lowering(record, lambda _: None)
        return lowering.program(), lowering._first


class _Lowering:
    def __init__(self, record: Record, payload: Callable[[Tensor], Payload | None]) -> None:
        self._record = record
        self._payload = payload
        self._graph = Graph(scope=record.root)
        self._names = Names()
        self._values: dict[Tensor, Value] = {}
        self._first: dict[Storage, Value] = {}
        """The value that had each storage first."""
        self._storages: dict[Value, Value] = {}
        self.calls: dict[Node, Called] = {}
        self._steps: list[int] = []
        """For each operator the index of its first node."""
        devices = {one.device for one in record.tensors}
        self._hidden = devices.pop() if len(devices) == 1 else ""
        """The default device, which types do not state."""

    def program(self) -> Program:
        """Lower everything."""
        record, graph = self._record, self._graph
        for one in record.tensors:
            if one.kind != "result" and one.kind != "constant":
                self._declare(one)
        for op in record.ops:
            self._steps.append(len(graph))
            self._add(op)
        self._steps.append(len(graph))
        graph.set_outputs([self._value(value) for value in record.outputs])
        metadata = {
            "producer": f"torch {torch.__version__}",
            "dialect": "below autograd" if record.grad else "as called",
            "device": record.device,
        }
        observed = Observed(graph, observed_versions(graph), self._lives(), self._storages)
        return Program(graph, format="module", metadata=metadata, observed=observed, assumed=list(record.assumed), traits=CAPTURED)

    # -- values ----------------------------------------------------------------------------------------------------

    def _type(self, one: Tensor) -> TensorType:
        device = "" if one.device == self._hidden else one.device
        if one.storage is None:
            return tensor(one.dtype, one.shape, device, "sparse")
        return tensor(one.dtype, one.shape, device, None if one.strides == row_major(one.shape) else one.strides)

    def _declare(self, one: Tensor) -> Value:
        """An input or weight."""
        type_ = self._type(one)
        if one.kind == "input":
            value = self._graph.add_input(type_, self._names.unique(one.name or "input"))
        else:
            role = _ROLES.get(one.kind, Role.CONSTANT)  # a result that no node has
            value = self._graph.add_weight(type_, self._names.unique(one.name or "constant"), role, self._payload(one))
            if role is Role.PARAMETER:
                self._graph.trainable[value] = one.trainable
        self._values[one] = value
        if one.storage is not None:
            self._first.setdefault(one.storage, value)
        return value

    def _value(self, one: Tensor) -> Value:
        found = self._values.get(one)
        return self._declare(one) if found is None else found

    def _argument(self, item: Any) -> Argument:
        """Return an argument as a value, number, text, type or tuple of these."""
        if isinstance(item, Tensor):
            return self._value(item)
        if isinstance(item, tuple | list):
            return tuple([self._argument(part) for part in item])
        if isinstance(item, torch.dtype):
            return NAMED_DTYPES.get(str(item).removeprefix("torch."), DType.UNKNOWN)
        if isinstance(item, torch.memory_format):
            return _FORMATS.get(item, "")
        if isinstance(item, torch.device):
            return "" if str(item) == self._hidden else str(item)
        if isinstance(item, torch.layout):
            return 0
        if item is None or isinstance(item, bool | int | float | complex | str | SymDim):
            return item
        return str(item)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _add(self, op: Op) -> None:
        if op.name in _SILENT:
            return
        if isinstance(op.func, GeneratedKernel):
            self._append(op, self._generated(op, op.func), f"triton::{op.name}")
            self._note_storages(op)
            return
        full = op.name if op.namespace == "aten" else f"{op.namespace}::{op.name}"
        signature = signature_of(op, full)
        call = AtenCall(signature, self._named(op, signature))
        lowered = lower(call)
        if lowered is None:
            inputs, attrs = foreign_attrs(call.args)
            lowered = Lowered(f"{op.namespace}.{op.name}", inputs, attrs)
        node = self._append(op, lowered, f"{op.namespace}::{op.name}" + ("" if op.overload in ("", "default") else f".{op.overload}"))
        self.calls[node] = call.called
        self._note_storages(op)

    def _generated(self, op: Op, kernel: GeneratedKernel) -> Lowered:
        attrs: dict[str, Attr] = {"kernel": kernel.name, "operators": kernel.operators, "lines": kernel.lines}
        attrs |= {} if kernel.bytes is None else {"bytes": kernel.bytes}
        return Lowered("compiled.kernel", [self._value(read) for read in op.reads()], {**attrs, **dict(kernel.counts or ())})

    def _named(self, op: Op, signature: Signature) -> dict[str, Argument]:
        """Return all arguments by name."""
        given: dict[str, Argument] = {}
        for place, param in enumerate(signature.params):
            if place < len(op.args):
                given[param.name] = self._argument(op.args[place])
            elif param.name in op.kwargs:
                given[param.name] = self._argument(op.kwargs[param.name])
        return complete(signature, given)

    def _append(self, op: Op, lowered: Lowered, source: str) -> Node:
        results = op.results
        slots = lowered.results
        if slots is None or len(slots) != len(results):
            slots = tuple(range(len(results)))
        count = max((slot for slot in slots if slot is not None), default=-1) + 1
        types: list[Type] = [UNKNOWN_TYPE] * count
        names: list[str | None] = [None] * count
        for slot, made in zip(slots, results, strict=True):
            if slot is not None:
                types[slot] = self._type(made) if isinstance(made, Tensor) else _scalar_type(made)
                names[slot] = self._names.unique(op.name.strip("_") or op.name)
        node = self._graph.append(lowered.op, lowered.inputs, types, lowered.attrs, names=names, scope=op.scope, loc=op.loc, source=source)
        for slot, made in zip(slots, results, strict=True):
            if isinstance(made, Tensor) and slot is not None:
                self._values[made] = node.outputs[slot]
        return node

    def _note_storages(self, op: Op) -> None:
        for made in op.makes():
            value = self._values.get(made)
            if value is not None and made.storage is not None:
                self._storages[value] = self._first.setdefault(made.storage, value)

    # -- lifetimes -------------------------------------------------------------------------------------------------

    def _lives(self) -> dict[Value, Life]:
        """Storages allocated by the run that belong to some value."""
        lives: dict[Value, Life] = {}
        for storage, value in self._first.items():
            if value.node is None or storage.born is None:
                continue
            born = self._steps[storage.born]
            died = None if storage.died is None else max(self._steps[min(storage.died, len(self._steps) - 1)] - 1, born)
            lives[value] = Life(born, died, storage.rank, storage.size)
        return lives


@functools.lru_cache(maxsize=4096)
def _of_schema(full: str, overload: str, schema: str) -> Signature:
    known = find(full, overload or "default")
    return (
        known if known is not None else parse_signature(full, schema.partition("::")[2].removeprefix(full.rpartition("::")[2]).lstrip("."))
    )


def signature_of(op: Op, full: str) -> Signature:
    """Return the signature of an operator, from torch itself where irscope does not have it."""
    return _of_schema(full, op.overload, str(op.func._schema))


def _scalar_type(made: object) -> Type:
    if isinstance(made, bool):
        return scalar(DType.BOOL)
    if isinstance(made, int | SymDim):
        return scalar(DType.I64)
    return scalar(DType.F64) if isinstance(made, float) else UNKNOWN_TYPE
