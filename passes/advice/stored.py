"""Advice on weights: what is there twice or for nothing, fewer bits, channels that do nothing, sizes that hardware does not like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from irscope.ir.graph import Node, Role, Value
from irscope.ops.cost import Cost
from irscope.passes.advice.finding import Enquiry, Finding
from irscope.passes.advice.running import several, shown
from irscope.passes.cost.count import NodeCosts
from irscope.passes.prune_report import PruneReport, Pruning
from irscope.passes.weights.quantize_error import QuantizeError, TensorError
from irscope.passes.weights.storages import count_parameters
from irscope.passes.weights.tables import MULTIPLES, alignment_of
from irscope.report.units import Kind


def size_of(weight: Value) -> int:
    """Bytes of a weight, 0 where they are not known."""
    size = weight.type.nbytes
    return size if isinstance(size, int) else 0


def _weights_counted(count: int) -> str:
    return several(count, "weight", "weights")


def _say_unread(ask: Enquiry, unread: dict[Value, str]) -> None:
    for weight, reason in unread.items():
        ask.problems.append(f"the values of {weight.name!r} are not known: {reason}")


def unused(ask: Enquiry) -> Iterator[Finding]:
    """Weights that nothing reads, where there is a graph that could."""
    if not len(ask.ctx.program.graph):
        return
    totals = count_parameters(ask.ctx.program)
    shared = {*totals.tied_to, *totals.tied_to.values(), *totals.overlaps, *totals.overlaps.values()}
    found = [weight for weight in totals.weights if not weight.users and weight not in shared and size_of(weight)]
    if found:
        size = sum(map(size_of, found))
        yield Finding(
            what=f"remove {_weights_counted(len(found))} that nothing reads",
            evidence=f"{shown(size)} in storages of their own",
            sure="exact",
            weights=tuple(found),
            memory=size,
            seconds=0.0,
        )


def duplicates(ask: Enquiry) -> Iterator[Finding]:
    """Weights with the same contents in different places."""
    from irscope.passes.weights.values import WeightValues

    look = ask.ctx.get(WeightValues(histogram=False, threads=ask.threads, allow=ask.allow))
    _say_unread(ask, look.unread)
    flat: list[list[Value]] = []
    for group in look.duplicates:
        if look.statistics[group[0]].is_constant:
            flat.append(group)
            continue
        size = size_of(group[0])
        yield Finding(
            what=f"keep {group[0].name} once instead of {len(group)} times",
            evidence=f"{shown(size)} each, equal byte by byte",
            sure="exact",
            weights=tuple(group),
            memory=size * (len(group) - 1),
            seconds=0.0,
        )
    if flat:
        weights = tuple(weight for group in flat for weight in group)
        saved = sum(size_of(group[0]) * (len(group) - 1) for group in flat)
        yield Finding(
            what=f"keep {several(len(flat), 'constant', 'constants')} once instead of {_weights_counted(len(weights))}",
            evidence=f"each holds one number everywhere; together {shown(saved + sum(size_of(group[0]) for group in flat))}",
            sure="exact",
            weights=weights,
            memory=saved,
            seconds=0.0,
        )


def precision(ask: Enquiry) -> Iterator[Finding]:
    """The smallest formats in which matrices keep the signal to noise that is asked for."""
    errors = ask.ctx.get(QuantizeError(target=ask.target, threads=ask.threads, allow=ask.allow))
    _say_unread(ask, errors.unread)
    formats: dict[str, list[TensorError]] = {}
    for one in errors.tensors:
        if one.smallest and one.bytes is not None and one.bytes < size_of(one.weight):
            formats.setdefault(one.smallest, []).append(one)
    costs = ask.ctx.get(NodeCosts())
    for key, tensors in formats.items():
        sizes = {one.weight: size_of(one.weight) - (one.bytes or 0) for one in tensors}
        worst = min(tensors, key=lambda one: one.decibels[key])
        saved = sum(sizes.values())
        yield Finding(
            what=f"store {_weights_counted(len(tensors))} as {key}",
            evidence=f"{shown(sum(map(size_of, sizes)))} become {shown(sum(map(size_of, sizes)) - saved)} with scales; "
            f"weight error at least {worst.decibels[key]:.1f} dB ({worst.weight.name}), target {ask.target:g} dB; no activations were seen",
            sure="exact",
            weights=tuple(sizes),
            memory=saved,
            moved=sum(sizes.values()) if any(weight.users for weight in sizes) else 0,
            seconds=ask.clock.saved(_reading_less(sizes, costs.by_node)),
            is_lossless=False,
        )


def _reading_less(sizes: dict[Value, int], costs: dict[Node, Cost]) -> dict[Node, Cost]:
    """Nodes that multiply with weights that are smaller."""
    changed: dict[Node, Cost] = {}
    for weight, saved in sizes.items():
        for user in weight.users or ():
            cost = changed.get(user, costs.get(user)) if isinstance(user, Node) else None
            if cost is not None and isinstance(user, Node) and isinstance(cost.read, int) and cost.matmul != 0:
                changed[user] = replace(cost, read=max(cost.read - saved, 0))
    return changed


def pruning(ask: Enquiry) -> Iterator[Finding]:
    """Channels that do nothing, and matrices that are sparse in groups of four as they are."""
    result = ask.ctx.get(PruneReport(threads=ask.threads, allow=ask.allow))
    _say_unread(ask, result.unread)
    savings = result.savings
    if savings.weights:
        flops, moved = savings.total("flops"), savings.total("read") + savings.total("written")
        costs = {node: after.cost for node, (_, after) in savings.entries.items()}
        yield Finding(
            what=f"remove {several(result.removable, 'channel that does', 'channels that do')} nothing",
            evidence=f"{_weights_counted(len(savings.weights))} get smaller by {shown(savings.weight_bytes)}, "
            f"{len(savings.entries)} nodes compute {shown(flops, Kind.FLOPS)} less",
            sure="exact",
            nodes=tuple(savings.entries),
            weights=tuple(one.weight for one in savings.weights),
            memory=savings.weight_bytes,
            moved=moved,
            flops=flops,
            seconds=ask.clock.saved(costs) if costs else None,
        )
    yield from _constant(result)
    ready = [one for one in result.sparsity.tensors if one.groups is not None and one.groups.ready == 1.0 and one.sparse_bytes is not None]
    saved = sum(size_of(one.weight) - (one.sparse_bytes or 0) for one in ready)
    if saved > 0:
        yield Finding(
            what=f"store {_weights_counted(len(ready))} in 2:4 form",
            evidence="at least two zeros in every group of four along the axis that is summed over",
            sure="exact",
            weights=tuple(one.weight for one in ready),
            memory=saved,
        )


def _constant(result: Pruning) -> Iterator[Finding]:
    if result.foldable:
        yield Finding(
            what=f"fold {several(result.foldable, 'channel that never changes', 'channels that never change')} into a bias",
            evidence="each holds one number whatever the input is; what that saves is not computed",
            sure="exact",
            memory=None,
            moved=None,
            flops=None,
        )


def alignment(ask: Enquiry) -> Iterator[Finding]:
    """Matrices whose sizes are no multiples of what matrix units take at once."""
    least = MULTIPLES[0]
    found: list[Value] = []
    more = 0
    for weight in ask.ctx.program.weights():
        type_ = weight.type
        if weight.role is not Role.PARAMETER or not weight.users or type_.rank != 2:
            continue
        multiple, shape = alignment_of(type_), type_.shape or ()
        if (
            multiple is None
            or multiple >= least
            or not type_.dtype.is_float
            or min(size for size in shape if isinstance(size, int)) < least
        ):
            continue
        found.append(weight)
        rows, columns = (size for size in shape if isinstance(size, int))
        filled = -(-rows // least) * least * (-(-columns // least) * least)
        more += (filled - rows * columns) * (type_.dtype.bits or 8) // 8
    if found:
        yield Finding(
            what=f"make sizes of {_weights_counted(len(found))} multiples of {least}",
            evidence=f"filling up takes {shown(more)} more; kernels for other sizes are slower, by how much is not modelled",
            sure="exact",
            weights=tuple(found),
            memory=-more,
            moved=None,
            flops=None,
        )
