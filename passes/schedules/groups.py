"""Orders in which some operators stay together: those that one node of the file was lowered to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.memory.ordering.problem import OrderProblem, Storage, make_problem
from irscope.memory.ordering.solve import best_order
from irscope.memory.ordering.sorting import sorted_by


@dataclass(frozen=True)
class Groups:
    """Operators of a problem in groups; the operators of one run one after the other, in the order as written."""

    members: list[list[int]]
    """Groups in an order that is valid as it stands."""

    def expanded(self, order: Sequence[int]) -> list[int]:
        """An order of groups as one of operators."""
        return [op for group in order for op in self.members[group]]

    @property
    def are_single(self) -> bool:
        """Whether each operator is a group of its own."""
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
        alone = make_problem([()] * len(group), inside, [problem.workspace[op] for op in group])
        workspace.append(max(alone.needs(range(len(group))), default=0))
    found = make_problem(before, storages, workspace)
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
