"""A recorded forward and backward as a problem of checkpointing, with the regions that torch's checkpointing could run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from irscope.frontends.eager.record import Op, Record, Tensor, tensors_in
from irscope.memory.checkpointing.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, make_problem
from irscope.memory.checkpointing.regions import Region

# ----------------------------------------------------------------------------------------------------
# How long the operators of a step take, by a simple cost model.


@dataclass(frozen=True)
class CostModel:
    """The larger of computing and moving bytes, and a constant for the launch."""

    flops_per_second: float = 100e12
    bytes_per_second: float = 1.5e12
    launch_seconds: float = 2e-6

    def seconds(self, flops: float, moved: float) -> float:
        """Time of an operator with this much work."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second) + self.launch_seconds


SIMPLE_COSTS = CostModel()
"""100 TFLOP/s, 1.5 TB/s and 2 microseconds for a launch: about an A100 in half precision."""


def formula_of(target: Any) -> Callable[..., int] | None:
    """torch's own formula for the floating point operations of an operator; it takes shapes in the place of tensors."""
    from torch.utils.flop_counter import flop_registry

    found: Callable[..., int] | None = flop_registry.get(getattr(target, "overloadpacket", None))
    return found


# ----------------------------------------------------------------------------------------------------
# A recorded forward and backward as a problem of checkpointing, with the regions that torch's checkpointing could run again.

_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
"""Classes that say nothing about what is inside."""
_SEVERAL = 3
"""Calls of modules of one class that make it a kind of block."""


@dataclass(frozen=True)
class RecordedStep:
    """The problem, and the recorded operators that its own stand for."""

    problem: CheckpointProblem
    ops: list[Op]
    """The recorded operator of each operator of the problem; views are left out."""
    record: Record


def problem_of(record: Record, costs: CostModel = SIMPLE_COSTS, seconds: Callable[[Op], float] | None = None) -> RecordedStep:
    """The problem of a record that holds a forward and its backward."""
    ops: list[Op] = []
    made: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    place = [0] * len(record.ops)
    for op in record.ops:
        place[op.number] = len(ops) - 1
        writes = {one.storage.number for one in (*op.makes(), *changed_by(op)) if one.storage is not None}
        writes = {one for one in writes if record.storages[one].born == op.number} | {
            one.storage.number for one in changed_by(op) if one.storage is not None
        }
        if not writes:
            continue
        place[op.number] = len(ops)
        ops.append(op)
        made.append((tuple({one.storage.number for one in op.reads() if one.storage is not None}), tuple(writes)))
    names = _names(record)
    storages = [
        StepStorage(
            names[number],
            one.bytes,
            is_input=one.born is None,
            is_output=one.died is None,
            held=-1 if one.died is None or one.died == 0 else place[one.died - 1],
        )
        for number, one in enumerate(record.storages)
    ]
    operators = [
        StepOperator(
            f"{op.name}_{op.number}",
            reads,
            writes,
            seconds(op) if seconds is not None else seconds_of(op, costs),
            Phase[op.phase.upper()],
            Repeat.REPLAYED if torch.Tag.nondeterministic_seeded in op.func.tags else Repeat.FREELY,
            module=op.scope.module,
        )
        for op, (reads, writes) in zip(ops, made, strict=True)
    ]
    return RecordedStep(make_problem(operators, storages), ops, record)


def changed_by(op: Op) -> list[Tensor]:
    """Tensors that an operator writes over, by its schema."""
    found: list[Tensor] = []
    for place, argument in enumerate(op.func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given: Any = op.args[place] if place < len(op.args) else op.kwargs.get(argument.name)
            found += tensors_in(given)
    return found


def seconds_of(op: Op, costs: CostModel) -> float:
    """Time of a recorded operator by a cost model."""
    moved = sum(_bytes(one) for one in (*op.reads(), *op.makes()))
    formula = formula_of(op.func)
    flops = 0.0
    if formula is not None:
        args, kwargs = tree_map_only(Tensor, lambda one: torch.Size(one.sizes), (op.args, op.kwargs))
        results = [torch.Size(one.sizes) for one in op.makes()]
        try:
            flops = float(formula(*args, **kwargs, out_val=results[0] if len(results) == 1 else tuple(results)))
        except (TypeError, IndexError, AttributeError):
            flops = 0.0
    return costs.seconds(flops, moved)


def divisions(step: RecordedStep) -> list[list[Region]]:
    """Ways to divide a module into regions: blocks that occur several times, and modules that hold shares of what is kept."""
    calls = _Calls(step)
    found: list[list[Region]] = []
    for accepts in (calls.is_block, calls.holds_at_most(0.5), calls.holds_at_most(0.2)):
        regions = [one for path in calls.outermost(accepts) if (one := _region(step, path, calls.inside[path])) is not None]
        if regions and all([one.module for one in regions] != [other.module for other in known] for known in found):
            found.append(regions)
    return found


class _Calls:
    """Modules that were called in the forward, with their operators and what the backward keeps of them."""

    def __init__(self, step: RecordedStep) -> None:
        problem = step.problem
        saved = set(problem.saved)
        self.total = sum(problem.storages[one].size for one in saved)
        self.held: dict[str, int] = {}
        self.inside: dict[str, list[int]] = {}
        self.classes: dict[str, str] = {}
        self._calls: dict[str, set[str]] = {}
        self._children: dict[str, dict[str, None]] = {}
        for at, (op, operator) in enumerate(zip(step.ops, problem.operators, strict=True)):
            if operator.phase is Phase.FORWARD:
                self._note(at, op, sum(problem.storages[one].size for one in operator.writes if one in saved))
        counts = Counter(self.classes[path] for path in self.classes if self._children.get(path))
        self._repeated = {name for name, count in counts.items() if count >= _SEVERAL and name not in _CONTAINERS}

    def _note(self, at: int, op: Op, size: int) -> None:
        above = ""
        for scope in op.scope.chain:
            path = scope.module
            self.held[path] = self.held.get(path, 0) + size
            self.inside.setdefault(path, []).append(at)
            self.classes.setdefault(path, scope.cls)
            self._calls.setdefault(path, set()).add(scope.path)
            self._children.setdefault(above, {}).setdefault(path)
            above = path

    def outermost(self, accepts: Callable[[str], bool]) -> list[str]:
        """The outermost modules that are accepted; only such as are called once and keep something."""
        chosen: list[str] = []
        pending = list(self._children.get("", ()))
        while pending:
            path = pending.pop(0)
            if len(self._calls[path]) == 1 and self.held[path] and accepts(path):
                chosen.append(path)
            else:
                pending = [*self._children.get(path, ()), *pending]
        return chosen

    def is_block(self, path: str) -> bool:
        """Whether a module is of a kind that occurs several times and holds others, or is small beside those."""
        return self.classes[path] in self._repeated or not self._children.get(path)

    def holds_at_most(self, share: float) -> Callable[[str], bool]:
        """Whether a module holds at most a share of what is kept."""
        return lambda path: self.held[path] <= share * self.total


def _region(step: RecordedStep, path: str, operators: list[int]) -> Region | None:
    """The region of a module's operators; None where the backward needs nothing of it."""
    problem = step.problem
    prefix = f"{path}."
    numbers = {op.sequence: op.number for op in step.record.ops if op.phase == "forward" and (f"{op.scope.module}.").startswith(prefix)}
    first, last = min(operators), max(operators)
    own = {step.ops[at].number: at for at in operators}
    trigger, end = -1, first
    for at in range(last + 1, len(problem)):
        op = problem.operators[at]
        made_by = numbers.get(step.ops[at].sequence) if op.phase is Phase.BACKWARD else None
        before = [one for one in op.reads if problem.first_touch[one] <= last]
        if made_by is None or not before:
            continue
        trigger = at if trigger < 0 else trigger
        maker = own.get(made_by)
        if maker is None:
            # A view: what it shows is made by what ran before it.
            maker = max((one for number, one in own.items() if number < made_by), default=first)
            end = max(end, maker + 1)
        else:
            end = max(end, maker + 1 if set(problem.operators[maker].writes) & set(before) else maker)
    return Region(path, tuple(operators), trigger, end) if trigger >= 0 else None


def _names(record: Record) -> list[str]:
    names = [""] * len(record.storages)
    for tensor in record.tensors:
        if tensor.storage is not None and not names[tensor.storage.number]:
            if tensor.name or tensor.made_by is None:
                names[tensor.storage.number] = tensor.name
            else:
                op = record.ops[tensor.made_by]
                where = op.scope.module or op.scope.cls
                names[tensor.storage.number] = f"{where}: {op.name}" if where else op.name
    return names


def _bytes(tensor: Tensor) -> int:
    count = 1
    for size in tensor.sizes:
        count *= size
    return count * max(1, (tensor.dtype.bits or 8) // 8)


# ----------------------------------------------------------------------------------------------------
# The peak of a step that was recorded.


def recorded_peak(record: Record) -> int:
    """Most bytes of tensors alive at once that were made while a step ran."""
    count = len(record.ops)
    change = [0] * (count + 1)
    for one in record.storages:
        if one.born is not None:
            change[one.born] += one.bytes
            if one.died is not None and one.died <= count:
                change[max(one.died, one.born + 1)] -= one.bytes
    live = peak = 0
    for amount in change[:count]:
        live += amount
        peak = max(peak, live)
    return peak
