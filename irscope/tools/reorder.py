"""The order that `schedule` finds, for the nodes of the model's own file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.nodefile import as_program, graph_module, open_file, reordered, save_program
from irscope.frontends.load import NodeFile, open_nodes
from irscope.immutable import immutable
from irscope.passes.order.schedule import Schedule, Scheduled
from irscope.session import Model, open_model
from irscope.solvers.graphs import sorted_by
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.solve import best_order

if TYPE_CHECKING:
    import torch


@immutable(slots=False)
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


# ----------------------------------------------------------------------------------------------------
# Orders in which some operators stay together: those that one node of the file was lowered to.


@immutable(slots=False)
class Groups:
    """Operators of a problem in groups; the operators of one run one after the other, in the order as written."""

    members: list[list[int]]
    """Groups in an order that is valid as it stands."""

    def expanded(self, order: Sequence[int]) -> list[int]:
        """An order of groups as one of operators."""
        return [op for group in order for op in self.members[group]]

    @property
    def are_single(self) -> bool:
        """Return whether each operator is a group of its own."""
        return all(len(group) == 1 for group in self.members)


def contracted(problem: OrderProblem, groups: Groups) -> OrderProblem:
    """The problem of ordering the groups. What a group makes and drops again is its workspace, with all else that it touches alive."""
    group_of = {op: number for number, group in enumerate(groups.members) for op in group}
    before: list[set[int]] = [set() for _ in groups.members]
    for op, earlier in enumerate(problem.before):
        before[group_of[op]].update(group_of[one] for one in earlier)
    inner: list[list[Storage]] = [[] for _ in groups.members]
    storages: list[Storage] = []
    for storage in problem.storages:
        touches = sorted({group_of[op] for op in storage.touches})
        if len(touches) == 1 and len(groups.members[touches[0]]) > 1 and not storage.is_input and not storage.is_output:
            inner[touches[0]].append(storage)
        else:
            storages.append(Storage(storage.size, tuple(touches), storage.is_input, storage.is_output))
    workspace: list[int] = []
    for number, group in enumerate(groups.members):
        before[number].discard(number)
        place = {op: at for at, op in enumerate(group)}
        inside = [Storage(one.size, tuple(place[op] for op in one.touches)) for one in inner[number]]
        alone = order_problem([()] * len(group), inside, [problem.workspace[op] for op in group])
        workspace.append(max(alone.needs(range(len(group))), default=0))
    found = order_problem(before, storages, workspace)
    return OrderProblem(found.before, found.storages, found.workspace, problem.base)


def group_order(problem: OrderProblem, groups: Groups, wanted: Sequence[int], seconds: float, seed: int) -> list[int]:
    """The order of groups that needs least: near an order of operators that is known to be good, or from a new search."""
    place = {op: at for at, op in enumerate(wanted)}
    last = [max(place[op] for op in group) for group in groups.members]
    whole = contracted(problem, groups)
    near = sorted_by(last, whole.before)
    if groups.are_single:
        return near
    found = best_order(whole, seconds, seed).order
    return min((near, found), key=lambda order: problem.peak(groups.expanded(order)))


# ----------------------------------------------------------------------------------------------------
# Torch modules and exported programs with the order of operators that needs least memory.


@immutable(slots=False)
class ScheduledProgram:
    """A program in its new order, with the peak before and after."""

    program: torch.export.ExportedProgram
    """With the original's weights; `torch.export.save` writes it."""
    order: FileOrder

    @property
    def module(self) -> torch.fx.GraphModule:
        """Return what runs the program: it lets go of each value after its last use."""
        return graph_module(self.program)

    @property
    def peak_before_bytes(self) -> int:
        return self.order.before

    @property
    def peak_after_bytes(self) -> int:
        return self.order.after

    @property
    def lower_bound_bytes(self) -> int:
        return self.order.bound

    @property
    def proven_optimal(self) -> bool:
        return self.order.after <= self.order.bound

    def save(self, path: str | Path) -> None:
        """Write a `.pt2` file."""
        save_program(self.program, Path(path))


def scheduled(
    subject: torch.nn.Module | torch.export.ExportedProgram,
    *args: Any,
    bind: Mapping[str, int] | None = None,
    seconds: float = 10,
    seed: int = 0,
    latency: str = "",
    **kwargs: Any,
) -> ScheduledProgram:
    """The module or exported program with its operators in the order that needs least memory. A module is exported for its arguments.

    `bind` gives sizes of symbols for which the order is to be good; it is valid for all.
    """
    program = as_program(subject, args, kwargs)
    with tempfile.TemporaryDirectory(prefix="irscope-") as folder:
        path = Path(folder) / "model.pt2"
        save_program(program, path)
        model = open_model(path, LoadOptions(bind=dict(bind or {})))
        found = file_order(model, open_file(path), Schedule(seconds=seconds, seed=seed, latency=latency))
    return ScheduledProgram(reordered(program, found.order) if found.is_new else program, found)
