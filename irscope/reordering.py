"""The order that `schedule` finds, for the nodes of the model's own file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from irscope.errors import UsageError
from irscope.frontends.nodefile import NodeFile, open_nodes
from irscope.memory.ordering.sorting import sorted_by
from irscope.passes.schedule import Schedule, Scheduled
from irscope.passes.schedules.groups import Groups, group_order
from irscope.session import Model


@dataclass(frozen=True)
class FileOrder:
    """An order of a file's nodes, and what it needs."""

    order: tuple[int, ...]
    """Numbers of the file's nodes; those that stand for nothing the schedule knows run as soon as they can."""
    before: int
    """Bytes alive at the peak in the order as written."""
    after: int
    bound: int
    """No order needs less."""
    unsized: int = 0
    """Tensors whose size is not known: they count as nothing, so that the peaks are only lower limits."""

    @property
    def moved(self) -> int:
        """Nodes that stand at another place than before."""
        return sum(place != number for place, number in enumerate(self.order))

    @property
    def is_new(self) -> bool:
        return bool(self.moved)

    @property
    def verdict(self) -> str:
        """The benefit of the order, in one sentence."""
        if self.unsized:
            return f"{self.unsized} tensors have no known size and do not count: with them, the order may not be better"
        if self.after == self.before:
            proven = "proven best" if self.after <= self.bound else "the best that was found"
            return f"reordering does not help here: the order as written is {proven}"
        if self.after <= self.bound:
            return "no order needs less: proven"
        return f"at most {self.after / self.bound - 1:.1%} above the lower bound of every order" if self.bound else "no bound is known"


def file_order(model: Model, nodes: NodeFile, schedule: Schedule) -> FileOrder:
    """The order for the nodes of the file that the model was read from."""
    if schedule.model == "eager":
        raise UsageError(
            "the program in a file frees tensors after their last use, which is not what model=eager stands for",
            code="IRS359",
            hint="leave model out",
        )
    origins = list(model.program.origins)
    found = model.manager.get(schedule)
    return _file_order(found, _file_numbers(model, found, origins), nodes, schedule)


def _file_numbers(model: Model, found: Scheduled, origins: Sequence[int]) -> list[int]:
    """For each operator of the schedule, the file's node; those behind the end stand for what the file does without a node."""
    graph = model.graph
    after = max(origins, default=-1) + 1
    numbers = {node: origins[at] if at < len(origins) else after for at, node in enumerate(graph)}
    return [numbers[node] for node in found.draft.nodes]


def _file_order(found: Scheduled, numbers: list[int], nodes: NodeFile, schedule: Schedule) -> FileOrder:
    problem = found.draft.problem
    count = len(nodes.needs)
    members: dict[int, list[int]] = {}
    for op, number in enumerate(numbers):
        members.setdefault(number, []).append(op)
    last = members.pop(count, [])
    files = list(members)
    groups = Groups([*members.values(), *([last] if last else [])])
    as_written = list(range(len(groups.members)))
    wanted = found.ordering.order if found.is_new else range(len(problem))
    best = group_order(problem, groups, wanted, schedule.seconds, schedule.seed) if found.is_new else as_written
    before_all = problem.peak(range(len(problem)))
    order = _with_rest([files[group] for group in best if group < len(files)], members, problem.before, numbers, nodes)
    peak = problem.peak([op for number in order for op in members.get(number, ())] + last)
    if peak >= before_all or (found.limit is not None and not found.limit.allows(_expanded(order, members, last))):
        order, peak = list(range(count)), before_all
    return FileOrder(tuple(order), before_all, peak, found.ordering.bound, len(found.draft.unsized))


def _expanded(order: Sequence[int], members: dict[int, list[int]], last: list[int]) -> list[int]:
    return [op for number in order for op in members.get(number, ())] + last


def _with_rest(
    order: Sequence[int], members: dict[int, list[int]], before: Sequence[Sequence[int]], numbers: Sequence[int], nodes: NodeFile
) -> list[int]:
    """The order with the file's other nodes: each runs as soon as it can."""
    keys = [-1] * len(nodes.needs)
    for place, number in enumerate(order):
        keys[number] = place
    needs = [set(one) for one in nodes.needs]
    for number, ops in members.items():
        needs[number].update(numbers[one] for op in ops for one in before[op])
        needs[number].discard(number)
    return sorted_by(keys, [tuple(sorted(one)) for one in needs])


def write_reordered(model: Model, nodes: NodeFile, found: FileOrder, target: Path) -> list[Path]:
    """Write a copy of the file with its nodes in that order; returns the files written."""
    if target.resolve() == Path(model.program.path).resolve():
        raise UsageError(
            "the reordered model would take the place of the original", code="IRS361", where=str(target), hint="name another file"
        )
    return nodes.write(found.order, target)


def open_nodes_of(model: Model) -> NodeFile:
    """The nodes of the file that the model was read from."""
    return open_nodes(Path(model.program.path), model.options.method)
