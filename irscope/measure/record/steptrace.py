"""A recorded training step: calls and blocks of memory as the profiler saw them, and the lines of a recording that are made of these."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import nn
from torch._C._profiler import _EventType

from irscope.immutable import immutable
from irscope.measure.record.torchpasses import is_composite, types_of
from irscope.measure.record.trace import OUT, SCOPE, Allocation, Operator, Trace
from irscope.recording.records import Counters, Held, Level, MemoryEvent

PHASE: Final = "irscope::phase"
_AUTOGRAD: Final = ("autograd::", "torch::autograd::")
_EVALUATES: Final = "autograd::engine::evaluate_function"
_EVER: Final = 1 << 62
"""All that is told of a step belongs to it: it was watched for no longer."""
_NUMBER: Final = 16
"""Bytes of a number that Python hands to an operator as a tensor, which ends with the operator: none is captured."""
GRADIENT: Final = "gradient"
STATE: Final = "optimizer state"
_FAR: Final = 200
"""Calls that are left out at most to find where two steps agree again."""


@dataclass(slots=True)
class StepOperator(Operator):
    """A call below autograd."""

    phase: str = ""
    sequence: int = -1
    """By which autograd links a backward operator to the forward one."""


@immutable
class _Place:
    """Place of an event in the tree of calls."""

    scope: str = ""
    phase: str = ""
    sequence: int = -1
    op: int | None = None


def step_trace(seen: Any) -> Trace:
    """Return the calls and allocations of a step, of all threads that are the program's own or autograd's, in order of time."""
    trace = Trace()
    operators: list[StepOperator] = []
    scopes: dict[int, str] = {}
    roots = seen.profiler.kineto_results.experimental_event_tree()
    main = next((root.start_tid for root in roots if root.name.startswith("irscope::")), None)
    pending: list[tuple[Any, _Place]] = [(root, _Place()) for root in reversed(roots)]
    while pending:
        event, place = pending.pop()
        if event.tag == _EventType.Allocation:
            trace.allocations.append(_allocation(event, place))
            continue
        if event.tag == _EventType.TorchOp:
            if not event.children and event.name.startswith("irscope::"):
                continue
            place = _entered(event, place, operators, scopes, main)
        pending.extend((child, place) for child in reversed(event.children))
    _in_order(trace, operators, scopes)
    return trace


def _allocation(event: Any, place: _Place) -> Allocation:
    fields = event.extra_fields
    made = Allocation(event.start_time_ns, fields.alloc_size, fields.allocation_id, device=str(fields.device.type), address=fields.ptr)
    made.op, made.inside, made.scope = place.op, place.op is not None, place.scope
    if place.op is not None:
        made.kernel = place.op
    return made


def _entered(event: Any, place: _Place, operators: list[StepOperator], scopes: dict[int, str], main: int | None) -> _Place:
    name: str = event.name
    kind, _, text = name.partition(" ")
    number = int(event.extra_fields.sequence_number)
    if kind == SCOPE:
        return replace(place, scope=text)
    if kind == PHASE:
        return place if place.phase == "backward" else replace(place, phase=text)
    if kind == OUT and place.op is not None:
        operators[place.op].outs.append(int(text))
        return place
    if name.startswith(_EVALUATES):
        return replace(place, phase="backward", sequence=number)
    if name.startswith("Optimizer."):
        return replace(place, phase="optimizer")
    if place.op is not None or "::" not in name or name.startswith((*_AUTOGRAD, "irscope::")):
        return place
    if main is not None and event.start_tid != main and place.phase != "backward":
        return place  # loaders and other threads of the program's
    if number >= 0 and place.phase != "backward":
        scopes.setdefault(number, place.scope)
    if is_composite(name):
        return place if number < 0 or place.phase == "backward" else replace(place, sequence=max(place.sequence, number))
    taken = event.end_time_ns - event.start_time_ns
    made = StepOperator(name, event.start_time_ns, event.end_time_ns, "", place.scope, types_of(event), seconds=taken)
    made.phase, made.sequence = place.phase, place.sequence if place.phase == "backward" else max(number, place.sequence)
    operators.append(made)
    return replace(place, op=len(operators) - 1)


def _in_order(trace: Trace, operators: list[StepOperator], scopes: Mapping[int, str]) -> None:
    order = sorted(range(len(operators)), key=lambda at: operators[at].start)
    moved = {old: new for new, old in enumerate(order)}
    trace.operators = [operators[at] for at in order]
    for allocation in trace.allocations:
        if allocation.op is not None:
            allocation.op = allocation.kernel = moved[allocation.op]
    last = ""
    for op in (operators[at] for at in order):
        if op.phase == "backward" and not op.scope:
            # What accumulates a gradient has no forward of its own and follows that which made it.
            last = op.scope = scopes.get(op.sequence, last if op.sequence < 0 else "")
    _fill_phases([operators[at] for at in order])
    trace.start, trace.end = min((op.start for op in trace.operators), default=0), _EVER
    trace.settle()


_BETWEEN: Final = {
    ("", "forward"): "data",
    ("optimizer", "forward"): "data",
    ("backward", "forward"): "data",
    ("backward", "optimizer"): "optimizer",
    ("forward", "optimizer"): "optimizer",
    ("optimizer", ""): "optimizer",
    ("optimizer", "optimizer"): "optimizer",
    ("backward", ""): "optimizer",
    ("backward", "backward"): "backward",
}
"""Of what runs between two phases. The loss is of the forward, what clips gradients and scales them of the optimizer."""


def _fill_phases(operators: Sequence[StepOperator]) -> None:
    following = ""
    nexts: list[str] = []
    for op in reversed(operators):
        nexts.append(following)
        following = op.phase or following
    before = ""
    loss = "forward" if any(op.phase in ("backward", "optimizer") for op in operators) else "data"
    for op, after in zip(operators, reversed(nexts), strict=True):
        if op.phase:
            before = op.phase
        else:
            op.phase = _BETWEEN.get((before, after), loss)


# What is there when a step begins, and what it is for.


@dataclass
class Resident:
    """Storages by address: category, bytes, name."""

    found: dict[int, tuple[str, int, str]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.found.values())


def residents(device: str, optimizers: Sequence[Any], modules: Sequence[nn.Module]) -> Resident:
    """Return every storage that Python reaches on a device, with its role; of several the first of state, gradient, parameter, buffer."""
    made = Resident()
    names = {id(one): name for module in modules for name, one in module.named_parameters()}
    for tensor, category, name in _roles(optimizers, modules, names):
        try:
            storage = tensor.untyped_storage()
            if tensor.device.type == device and storage.nbytes() and storage.data_ptr():
                made.found.setdefault(storage.data_ptr(), (category, storage.nbytes(), name))
        except Exception:  # fake and sparse tensors, and such as other libraries derive, have no memory that counts here
            continue
    return made


def _roles(optimizers: Sequence[Any], modules: Sequence[nn.Module], names: Mapping[int, str]) -> Iterator[tuple[torch.Tensor, str, str]]:
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, Mapping) else ():
                if isinstance(value, torch.Tensor):
                    yield value, STATE, f"{key} of {names.get(id(parameter), 'a parameter')}"
    objects = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    for one in objects:
        if one.is_leaf and one.grad is not None:
            yield one.grad, GRADIENT, names.get(id(one), "")
    yield from ((one, "parameter", names.get(id(one), "")) for one in objects if isinstance(one, nn.Parameter))
    yield from ((one, "buffer", name) for module in modules for name, one in module.named_buffers())
    yield from ((one, "input", "") for one in objects)


def short_line(line: str, script: str) -> str:
    """File and line, without the folder of the script."""
    folder = script.rpartition("/")[0]
    return line.removeprefix(f"{folder}/") if folder else line


def pairs(wanted: Sequence[str], other: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the positions of the same calls in two steps; where they differ, they go on at the nearest place where they agree again."""
    at = beside = 0
    while at < len(wanted) and beside < len(other):
        if wanted[at] == other[beside]:
            yield at, beside
            at, beside = at + 1, beside + 1
            continue
        moved = _next_alike(wanted, other, at, beside)
        if moved is None:
            return
        at, beside = moved


def _next_alike(wanted: Sequence[str], other: Sequence[str], at: int, beside: int) -> tuple[int, int] | None:
    for distance in range(1, _FAR):
        for skipped in range(distance + 1):
            first, second = at + distance - skipped, beside + skipped
            if first < len(wanted) and second < len(other) and wanted[first] == other[second]:
                return first, second
    return None


def held_before(before: Resident, trace: Trace) -> list[Held]:
    """Return what is there before the step. What ends in it without being known to Python, as buffers of libraries, is told as another."""
    numbers: dict[int, int] = {}
    born: set[int] = set()
    strangers: list[Held] = []
    for allocation in trace.allocations:
        if allocation.bytes > 0:
            born.add(allocation.address)
        elif allocation.address in born:
            born.discard(allocation.address)
        elif allocation.address in before.found and allocation.address not in numbers:
            numbers[allocation.address] = allocation.block
        else:
            strangers.append(Held(-allocation.bytes, allocation.block, "other", "", ""))
    known = (Held(size, numbers.get(address), category, name) for address, (category, size, name) in before.found.items())
    return [*known, *strangers]


def step_events(run: str, trace: Trace, before: Resident, after: Resident, *, is_same: bool) -> Iterator[MemoryEvent]:
    """Yield the blocks as they come and go, with what they are for."""
    kinds = _categories(trace, before, after)
    start = trace.allocations[0].time if trace.allocations else 0
    for allocation, category in zip(trace.allocations, kinds, strict=True):
        op = trace.operators[allocation.op] if allocation.op is not None else None
        assert op is None or isinstance(op, StepOperator)
        yield MemoryEvent(
            run,
            allocation.bytes,
            allocation.op if is_same else None,
            allocation.inside,
            allocation.block,
            category,
            op.name if op is not None else "",
            (op.scope if op is not None else "") or allocation.scope,
            round((allocation.time - min(start, trace.start or start)) / 1000, 3),
            phase=op.phase if op is not None else "data",
        )


def _categories(trace: Trace, before: Resident, after: Resident) -> list[str]:
    ends: dict[int, int] = {}
    births: dict[int, int] = {}
    births_at: dict[int, int] = {}
    there = {address: category for address, (category, _, _) in before.found.items()}
    kinds = [""] * len(trace.allocations)
    for at, allocation in enumerate(trace.allocations):
        if allocation.bytes > 0:
            births_at[allocation.address] = at
        elif (birth := births_at.pop(allocation.address, None)) is not None:
            ends[birth], births[at] = at, birth
        else:
            kinds[at] = there.pop(allocation.address, "other")
    backward = next((op.start for op in trace.operators if isinstance(op, StepOperator) and op.phase == "backward"), None)
    for at, allocation in enumerate(trace.allocations):
        if allocation.bytes > 0:
            kinds[at] = _category(trace, allocation, ends.get(at), after, backward)
    for at, birth in births.items():
        kinds[at] = kinds[birth]
    return kinds


def _category(trace: Trace, allocation: Allocation, end: int | None, after: Resident, backward: int | None) -> str:
    if end is None:
        found = after.found.get(allocation.address)
        return found[0] if found is not None and found[0] != "input" else _kept(trace, allocation)
    gone = trace.allocations[end]
    if allocation.inside and gone.inside and allocation.op == gone.op:
        return "workspace"
    if not allocation.inside and allocation.bytes <= _NUMBER and (gone.op or 0) - (allocation.op if allocation.op is not None else -1) <= 1:
        return "workspace"
    op = trace.operators[allocation.op] if allocation.op is not None else None
    phase = op.phase if isinstance(op, StepOperator) else "data"
    if phase == "data":
        return "input"
    is_kept = phase == "forward" and backward is not None and allocation.time < backward < gone.time
    return "activation" if is_kept else "temporary"


def _kept(trace: Trace, allocation: Allocation) -> str:
    """Return what is there after the step and is nothing of the model's: a batch, a result that Python holds, or a library's own."""
    op = trace.operators[allocation.op] if allocation.op is not None else None
    phase = op.phase if isinstance(op, StepOperator) else "data"
    return "input" if phase == "data" else "activation"


def usage_of(trace: Trace) -> list[tuple[int, int, int]]:
    """Return for each call the bytes that outlive it, the most besides, and the bytes alive when it ends."""
    count = len(trace.operators)
    made, workspace, taken, alive_after = ([0] * count for _ in range(4))
    ends: dict[int, int] = {}
    open_: dict[int, int] = {}
    for at, block in enumerate(trace.allocations):
        if block.bytes > 0:
            open_[block.address] = at
        elif (birth := open_.pop(block.address, None)) is not None and block.inside and trace.allocations[birth].op == block.op:
            ends[birth] = ends[at] = 1
    alive, reached = 0, 0
    starts = [op.start for op in trace.operators]
    for at, block in enumerate(trace.allocations):
        now = block.op if block.inside and block.op is not None else bisect_right(starts, block.time)
        for number in range(reached, min(now, count)):
            alive_after[number] = alive
        reached = max(reached, now)
        alive += block.bytes
        if not block.inside or block.op is None:
            continue
        if at in ends:
            taken[block.op] += block.bytes
            workspace[block.op] = max(workspace[block.op], taken[block.op])
        elif block.bytes > 0:
            made[block.op] += block.bytes
    for number in range(reached, count):
        alive_after[number] = alive
    return list(zip(made, workspace, alive_after, strict=True))


def levels(run: str, current: int, peak: int) -> Counters:
    return Counters(run, Level(current, peak), Level(current, peak))
