"""Memory that PyTorch's CUDA kernels take besides their results, in the order in which they ask the allocator for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from irscope.ir.dims import Dim
from irscope.ir.types import TensorType

if TYPE_CHECKING:
    from irscope.devices.target import Target
    from irscope.ops.call import OpCall

TakeKind: TypeAlias = Literal["temporary", "workspace"]
GemmPath: TypeAlias = Literal["cublas", "lt"]


@dataclass(frozen=True, slots=True)
class Take:
    """So many bytes are asked for; a later `Drop` of the same label gives them back."""

    label: str
    size: Dim
    kind: TakeKind = "temporary"


@dataclass(frozen=True, slots=True)
class Drop:
    """What a `Take` of this call took is given back."""

    label: str


@dataclass(frozen=True, slots=True)
class Result:
    """Where in the order a result's storage is made; a result that shares another's storage needs none."""

    index: int
    size: Dim | None = None
    """Bytes of the storage where they are more than the result's own elements (a padded result)."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product by cuBLAS or cuBLASLt; its workspace is a policy of the torch version, not of the operator."""

    path: GemmPath


@dataclass(frozen=True, slots=True)
class Unknown:
    """Temporary memory whose size cannot be known from the file."""

    label: str
    reason: str
    low: Dim = 0
    high: Dim | None = None
    """None: no bound is known."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a library is given for one kernel: it chooses the size on the device, a model tells what that may be."""

    label: str
    size: Dim
    most: Dim
    reason: str


MemoryEvent: TypeAlias = Take | Drop | Result | Gemm | Unknown | Workspace
Temporaries: TypeAlias = "Callable[[OpCall, Target], Sequence[MemoryEvent]]"


class NeedsNumbers(Exception):
    """Raised by a rule whose choice of kernels depends on a size that is a formula or unknown."""


def memory_events(call: OpCall, target: Target) -> tuple[MemoryEvent, ...]:
    """What one call asks the allocator for, in order. Without a rule: its results, nothing else.

    Results that share storage may be named too: the replay knows which results have storage of their own.
    """
    rule = call.spec.temporaries
    if rule is None or not call.source.startswith(("aten::", "torchvision::")):
        return results_only(call)
    try:
        return tuple(rule(call, target))
    except NeedsNumbers as needed:
        return (*results_only(call), Unknown("temporaries", str(needed)))
    except Exception:  # operands of a model that contradicts itself have sizes that no rule expects
        return (*results_only(call), Unknown("temporaries", "the operands do not fit the operator"))


def results_only(call: OpCall) -> tuple[MemoryEvent, ...]:
    """The results in order."""
    return tuple(Result(index) for index, type_ in enumerate(call.results) if isinstance(type_, TensorType))
