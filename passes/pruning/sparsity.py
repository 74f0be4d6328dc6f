"""How far the matrices of a model could be thinned out: energy kept by magnitude, and readiness for 2:4 sparsity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from irscope.ir.graph import Node, Value
from irscope.ops.registry import factors_of, plays
from irscope.ops.spec import OpRole
from irscope.passes.weights.storages import is_matrix
from irscope.passes.weights.values import Look
from irscope.passkit.base import PassContext
from irscope.weights.losses import METADATA_BITS, EnergyKept, Grouped, Grouping, energy_kept, grouped
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, stored_tensor

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Thinned:
    """One matrix."""

    weight: Value
    kept: EnergyKept | None
    groups: Grouped | None
    why_no_groups: str = ""

    @property
    def sparse_bytes(self) -> int | None:
        """Bytes of the matrix with two of every four elements, and where they stand."""
        type_ = self.weight.type
        bits = type_.dtype.bits
        return None if self.groups is None or not bits else (self.groups.groups * 2 * (bits + METADATA_BITS) + 7) // 8


@dataclass
class Sparsity:
    """All matrices of floats, and what is left when they are pruned by one global threshold."""

    tensors: list[Thinned] = field(default_factory=list)
    total: EnergyKept | None = None
    unread: dict[Value, str] = field(default_factory=dict)


def thin_out(weights: Iterable[Value], look: Look, files: WeightFiles, threads: int, ctx: PassContext) -> Sparsity:
    """Look at each distinct matrix."""
    found = Sparsity()
    jobs: list[tuple[Value, Stored]] = []
    seen: set[int] = set()
    for weight in weights:
        if not is_matrix(weight) or id(look.statistics.get(weight, weight)) in seen:
            continue
        seen.add(id(look.statistics.get(weight, weight)))
        try:
            if weight in look.unread:
                raise Unreadable(look.unread[weight])
            jobs.append((weight, stored_tensor(weight, files)))
        except Unreadable as problem:
            found.unread[weight] = str(problem)
    kept, found.total = energy_kept([tensor for _, tensor in jobs], files, threads=threads, tick=ctx.tick)
    groups = grouped([Grouping(tensor, _sums_over_second(weight)) for weight, tensor in jobs], files, threads, ctx.tick)
    for (weight, _), one, group in zip(jobs, kept, groups, strict=True):
        if isinstance(one, str):
            found.unread[weight] = one
            continue
        is_known = isinstance(group, Grouped)
        found.tensors.append(Thinned(weight, one, group if isinstance(group, Grouped) else None, "" if is_known else str(group)))
    return found


def _sums_over_second(weight: Value) -> bool:
    """Whether products are summed over the second axis of a weight, as in linear layers and convolutions; else over the first."""
    value, is_second = weight, True
    while True:
        user = next((one for one in value.users or () if isinstance(one, Node)), None)
        if user is None:
            return is_second
        if plays(user, OpRole.TRANSPOSE) and len(value.users or ()) == 1:
            value, is_second = user.outputs[0], not is_second
            continue
        return is_second != _sums_over_first(user, value)


def _sums_over_first(node: Node, value: Value) -> bool:
    """Whether an operator sums over the first axis of this operand."""
    factors = factors_of(node)
    if factors is None:
        return plays(node, OpRole.OVER_FIRST)
    return factors.over_first and node.inputs.index(value) == factors.right and not node.attrs.get("trans_b")
