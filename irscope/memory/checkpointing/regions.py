"""Plans that recompute whole regions of the forward, as `torch.utils.checkpoint` does: at the first use, everything not saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from irscope.memory.checkpointing.problem import CheckpointProblem, StepStorage
from irscope.memory.checkpointing.simulate import KEEP, ONCE, Simulator


@dataclass(frozen=True)
class Region:
    """One call of a module that can be checkpointed."""

    module: str
    operators: tuple[int, ...]
    trigger: int
    """The first operator of the backward that needs anything that was saved inside."""
    end: int
    """One past the last operator that has to run again for what is saved."""


class RegionSimulator(Simulator):
    """Judges plans in which an operator of a region is either saved with all it makes, or runs again with the others of its region.

    What others outside read of a region is there for them in any case; for operators that make nothing else, the choice
    hangs on a storage without size that stands for the operator.
    """

    def __init__(self, problem: CheckpointProblem, regions: Sequence[Region]) -> None:
        self.regions = [region for region in regions if can_run_again(problem, region)]
        home = [-1] * len(problem)
        for number, region in enumerate(self.regions):
            for op in region.operators:
                home[op] = number
        problem = _with_marks(problem, home)
        inside = [_home_of(problem, storage, home) for storage in range(len(problem.storages))]
        units = _units(problem, inside)
        super().__init__(problem, sorted(number for unit in units for number in unit))
        self.units = units
        self.states = (KEEP, ONCE)
        self._of_region: list[list[int]] = [[] for _ in self.regions]
        for number in self.choices:
            self._of_region[inside[number]].append(number)
        self._decides = [next((one for one in op.writes if self._is_choice[one]), -1) for op in problem.operators]
        self._later = [bool(readers) for readers in problem.later_readers]

    def save_all(self) -> list[int]:
        """The plan in which everything that the backward reads is kept."""
        plan = [KEEP] * len(self.problem.storages)
        for unit in self.units:
            # What several operators make or change in place is saved by all of them or by none.
            state = KEEP if any(self.problem.later_readers[number] for number in unit) else ONCE
            for number in unit:
                plan[number] = state
        return plan

    def is_saved(self, plan: Sequence[int], op: int) -> bool:
        """Whether what an operator of a region makes is saved."""
        deciding = self._decides[op]
        return deciding >= 0 and plan[deciding] == KEEP

    def chains(self, plan: Sequence[int]) -> dict[int, list[int]]:
        """All that is not saved, for each region of which something is needed and not there."""
        found: dict[int, list[int]] = {}
        for region, members in zip(self.regions, self._of_region, strict=True):
            if any(plan[number] != KEEP and self._later[number] for number in members):
                chain = [op for op in region.operators if op < region.end and not self.is_saved(plan, op)]
                found[region.trigger] = sorted({*found.get(region.trigger, ()), *chain})
        return found

    def held(self, plan: Sequence[int], chains: dict[int, list[int]]) -> list[tuple[int, int]]:
        """What is saved for a region stays until the region runs again."""
        return [
            (number, region.trigger)
            for region in self.regions
            if region.trigger in chains
            for op in region.operators
            if self.is_saved(plan, op)
            for number in self._made[op]
        ]


def can_run_again(problem: CheckpointProblem, region: Region) -> bool:
    """Whether all operators of a region may run again; those that only change what stays are kept from doing so."""
    own = set(region.operators)
    for op in region.operators:
        writes = problem.operators[op].writes
        if all(problem.storages[one].is_input for one in writes):
            continue
        if not problem.can_repeat[op] or any(writer not in own for one in writes for writer in problem.writers[one]):
            return False
    return True


def _with_marks(problem: CheckpointProblem, home: list[int]) -> CheckpointProblem:
    """The problem with a storage without size for each operator of a region that makes only what others outside read."""
    storages = list(problem.storages)
    operators = list(problem.operators)
    for at, op in enumerate(operators):
        sized = [one for one in op.writes if storages[one].size and not storages[one].is_input]
        if home[at] >= 0 and sized and all(_home_of(problem, one, home) < 0 for one in sized):
            operators[at] = replace(op, writes=(*op.writes, len(storages)))
            storages.append(StepStorage(f"decides {op.name}", 0))
    return CheckpointProblem(operators, storages, problem.replay_random)


def _home_of(problem: CheckpointProblem, storage: int, home: list[int]) -> int:
    """The region in which a storage is made and, as far as the forward goes, read; -1 without one."""
    one = problem.storages[storage]
    if one.is_input or one.is_output or not problem.writers[storage]:
        return -1
    places = {home[op] for op in problem.writers[storage]}
    places.update(home[op] for op in problem.readers[storage] if op <= problem.last_forward[storage])
    return places.pop() if len(places) == 1 else -1


def _units(problem: CheckpointProblem, inside: list[int]) -> list[tuple[int, ...]]:
    """Storages that share operators are saved together."""
    unit_of = list(range(len(problem.storages)))

    def root(number: int) -> int:
        while unit_of[number] != number:
            unit_of[number] = unit_of[unit_of[number]]
            number = unit_of[number]
        return number

    for op in problem.operators:
        made = [one for one in op.writes if not problem.storages[one].is_input]
        for other in made[1:]:
            unit_of[root(other)] = root(made[0])
    members: dict[int, list[int]] = {}
    for number in range(len(problem.storages)):
        if inside[number] >= 0:
            members.setdefault(root(number), []).append(number)
    return [tuple(unit) for unit in members.values()]
