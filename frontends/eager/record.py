"""Recordings: operators in order, their operands and results, and storages with their live ranges."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import torch

from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.immutable import immutable
from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.places import Loc, Scope, root_scope
from irscope.ir.program import Assumed

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
    """Whether it was freed while operator `died - 1` ran, not after it."""

    @property
    def bytes(self) -> int:
        """The size, in a recording without open sizes."""
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
    """Whether it takes gradients."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, in a recording without open sizes."""
        return tuple([size for size in self.shape if isinstance(size, int)])


@immutable(slots=False)
class GeneratedKernel:
    """A kernel that torch's compiler generated, in the place of an operator."""

    name: str
    operators: tuple[str, ...] = ()
    """What was fused into it, as ATen names it."""
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
        found: str = self.func.namespace
        return found

    @property
    def name(self) -> str:
        """The operator without namespace and overload: "add_"."""
        if isinstance(self.func, GeneratedKernel):
            return self.func.name
        found: str = self.func._schema.name
        return found.partition("::")[2]

    @property
    def overload(self) -> str:
        if isinstance(self.func, GeneratedKernel):
            return ""
        found: str = self.func._overloadname
        return found

    def reads(self) -> Iterator[Tensor]:
        """Tensors among the arguments."""
        yield from tensors_in((self.args, tuple(self.kwargs.values())))

    def makes(self) -> Iterator[Tensor]:
        """Tensors among the results."""
        yield from tensors_in(self.results)

    def writes(self) -> Iterator[Tensor]:
        """Tensors that it writes over, by its schema."""
        if isinstance(self.func, GeneratedKernel):
            yield from self.makes()
            return
        for place, argument in enumerate(self.func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given: Any = self.args[place] if place < len(self.args) else self.kwargs.get(argument.name)
                yield from tensors_in(given)


def tensors_in(item: Any) -> Iterator[Tensor]:
    """Tensors in nested tuples, in order."""
    pending = [item]
    while pending:
        found = pending.pop()
        if isinstance(found, Tensor):
            yield found
        elif isinstance(found, tuple):
            pending.extend(reversed(found))


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
    """Whether operators were recorded below autograd, decomposed; else as Python calls them."""
    guessed: list[Op] = field(default_factory=list)
    """Operators whose results have a guessed, data-dependent size."""
    assumed: dict[Assumed, str] = field(default_factory=dict)
    """Assumptions about the run, each with the code of its warning; no code where it was reported before."""
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Markers set by the caller, each with the index of the next operator."""


def dtype_of(tensor: torch.Tensor) -> DType:
    """The element type as irscope names it."""
    return _dtype_named(tensor.dtype)


@functools.cache
def _dtype_named(dtype: torch.dtype) -> DType:
    return NAMED_DTYPES.get(str(dtype).removeprefix("torch."), DType.UNKNOWN)
