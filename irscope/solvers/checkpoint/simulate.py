"""Simulation of a step under a plan: the exact sequence of operators, its time and its peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from irscope.immutable import immutable
from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, StepStorage
from irscope.solvers.graphs import DisjointSets

KEEP, ONCE, AGAIN = 0, 1, 2
"""Keep a storage until its last use; free it after the forward and recompute it once; or recompute it for each use."""


@immutable
class Cost:
    """Cost of a plan."""

    peak: int
    seconds: float
    """Time beyond that of the step in which nothing is recomputed."""
    where: int
    """The operator of the original step that runs at the peak, or for which something is recomputed then; -1 between steps."""


@immutable(slots=False)
class Rewritten:
    """The step as it runs under a plan."""

    sequence: list[int]
    """Operators by number."""
    before: list[int]
    """For each place the operator of the original step for which something is recomputed there, or which runs there."""
    needs: list[int]
    """Bytes alive while each one runs."""
    cost: Cost


@dataclass
class _Lives:
    """Begins and ends of the storages that a plan can move."""

    freed: list[int]
    """Bytes that end after each operator of the original step."""
    born_again: dict[int, int]
    """Bytes that begin at a recomputed operator, by its key."""
    freed_again: dict[int, int]
    """Bytes that end after a recomputed operator."""
    passing: dict[int, int]
    """Bytes that a recomputed operator writes although they are still alive or not needed."""


_SPAN = 1 << 20
"""Keys of moments: an operator's number times this, plus the place among what is recomputed for it, plus the most for itself."""


class Simulator:
    """Evaluates plans: a plan is a list with KEEP, ONCE or AGAIN for each storage, which matters for those in `choices`."""

    def __init__(self, problem: CheckpointProblem, choices: Sequence[int] | None = None) -> None:
        self.problem = problem
        self.evaluations = 0
        self.choices = problem.choices if choices is None else list(choices)
        self.units: list[tuple[int, ...]] = [(number,) for number in self.choices]
        """Choices that can only be made together."""
        self.states: tuple[int, ...] = (KEEP, ONCE, AGAIN)
        operators, storages = problem.operators, problem.storages
        count = len(storages)
        self._is_choice = [False] * count
        for number in self.choices:
            self._is_choice[number] = True
        makers = sorted({at for number in self.choices for at in problem.writers[number]})
        beside = (read for at in makers for read in (*operators[at].reads, *operators[at].writes))
        self._moving = sorted({choice for choice in (*self.choices, *beside) if storages[choice].size and not storages[choice].is_output})
        """Storages whose end depends on the plan."""
        moves = [False] * count
        for number in self._moving:
            moves[number] = True
        self._size = [storage.size for storage in storages]
        self._sources = [tuple(read for read in op.reads if self._is_choice[read] and read not in op.writes) for op in operators]
        self._read = [tuple(read for read in op.reads if moves[read] and read not in op.writes) for op in operators]
        self._made = [tuple(write for write in op.writes if self._size[write]) for op in operators]
        self._wants = [tuple(one for one in op.reads if self._is_choice[one]) if op.phase is not Phase.FORWARD else () for op in operators]
        self._wanting = [at for at, wants in enumerate(self._wants) if wants]
        self._workspace = [op.workspace for op in operators]
        self._seconds = [op.seconds for op in operators]
        self._first_writer = [writers[0] if writers else -1 for writers in problem.writers]
        self._last_key = [at * _SPAN + _SPAN - 1 for at in problem.last_touch]
        self._last_forward = problem.last_forward
        self._born = [0] * len(operators)
        self._at_start = 0
        for number in self._moving:
            first = problem.first_touch[number]
            if first < 0:
                self._at_start += self._size[number]
            else:
                self._born[first] += self._size[number]
        self._during, self._standing = self._constant(moves)
        self._at_rest = max(sum(one.size for one in storages if one.is_input), sum(one.size for one in storages if one.is_output))

    def _constant(self, moves: list[bool]) -> tuple[list[int], list[int]]:
        """Return bytes of what no plan changes, while each operator runs and right before it."""
        problem = self.problem
        added, freed = [0] * len(problem), [0] * len(problem)
        live = 0
        for number, storage in enumerate(problem.storages):
            first, last = problem.first_touch[number], problem.last_touch[number]
            if moves[number] or (first < 0 and not storage.is_input):
                continue
            if first < 0:
                live += storage.size
            else:
                added[first] += storage.size
            if 0 <= last < len(problem):
                freed[last] += storage.size
        during, standing = [], []
        for at in range(len(problem)):
            standing.append(live)
            live += added[at]
            during.append(live + self._workspace[at])
            live -= freed[at]
        return during, standing

    def save_all(self) -> list[int]:
        """Return the plan in which everything that the backward reads is kept."""
        plan = [KEEP] * len(self.problem.storages)
        for number in self.choices:
            if not self.problem.later_readers[number]:
                plan[number] = ONCE
        return plan

    def chains(self, plan: Sequence[int]) -> dict[int, list[int]]:
        """Operators to run again, in order, right before each operator that needs them."""
        present = [state == KEEP for state in plan]
        chains: dict[int, list[int]] = {}
        for at in self._wanting:
            missing = [number for number in self._wants[at] if not present[number]]
            if missing:
                chain = self._makers(missing, present)
                self._arrive(plan, chain, present)
                chains[at] = sorted(chain)
        return chains

    def _makers(self, missing: list[int], present: list[bool]) -> set[int]:
        """Return operators that make what is missing from what is there."""
        writers, sources = self.problem.writers, self._sources
        chain: set[int] = set()
        for number in missing:
            for writer in writers[number]:
                if writer not in chain:
                    chain.add(writer)
                    missing += [source for source in sources[writer] if not present[source]]
        return chain

    def _arrive(self, plan: Sequence[int], chain: set[int], present: list[bool]) -> None:
        """Note what is there once operators have run again, other than for one use."""
        writers, is_choice = self.problem.writers, self._is_choice
        for writer in chain:
            for number in self._made[writer]:
                if is_choice[number] and plan[number] == ONCE and writers[number][-1] in chain:
                    present[number] = True

    def held(self, plan: Sequence[int], chains: dict[int, list[int]]) -> Sequence[tuple[int, int]]:
        """Return storages that have to wait for what is recomputed for an operator, besides those that it reads."""
        return ()

    def cost(self, plan: Sequence[int]) -> Cost:
        """Peak and extra time of a plan."""
        return self._run(plan, None)

    def rewrite(self, plan: Sequence[int]) -> Rewritten:
        """Return the whole sequence under a plan."""
        into = Rewritten([], [], [], Cost(0, 0.0, -1))
        cost = self._run(plan, into)
        return Rewritten(into.sequence, into.before, into.needs, cost)

    def _run(self, plan: Sequence[int], into: Rewritten | None) -> Cost:
        self.evaluations += 1
        chains = self.chains(plan)
        lives = self._lives(plan, chains)
        freed, born, during = lives.freed, self._born, self._during
        live, peak, where, seconds = self._at_start, self._at_rest, -1, 0.0
        for at in range(len(born)):
            if at in chains:
                for place, op in enumerate(chains[at]):
                    key = at * _SPAN + place
                    live += lives.born_again.get(key, 0)
                    here = self._standing[at] + live + lives.passing.get(key, 0) + self._workspace[op]
                    seconds += self._seconds[op]
                    if here > peak:
                        peak, where = here, at
                    if into is not None:
                        into.sequence.append(op)
                        into.before.append(at)
                        into.needs.append(here)
                    live -= lives.freed_again.get(key, 0)
            live += born[at]
            here = during[at] + live
            if here > peak:
                peak, where = here, at
            if into is not None:
                into.sequence.append(at)
                into.before.append(at)
                into.needs.append(here)
            live -= freed[at]
        return Cost(peak, seconds, where)

    def _lives(self, plan: Sequence[int], chains: dict[int, list[int]]) -> _Lives:
        size, last = self._size, self._last_key.copy()
        lives = _Lives([0] * len(self._born), {}, {}, {})
        births: dict[int, int] = {}
        for at, chain in chains.items():
            self._one_chain(plan, at, chain, last, births, lives)
        for number, at in self.held(plan, chains):
            last[number] = max(last[number], at * _SPAN + len(chains[at]) - 1)
        freed, steps = lives.freed, len(self._born)
        for number in self._moving:
            if plan[number] != KEEP:
                # What the forward made ends with the forward.
                freed[self._last_forward[number]] += size[number]
            else:
                _free(lives, last[number], size[number], steps)
        for number, birth in births.items():
            _free(lives, max(last[number], birth), size[number], steps)
        return lives

    def _one_chain(self, plan: Sequence[int], at: int, chain: list[int], last: list[int], births: dict[int, int], lives: _Lives) -> None:
        """Count what is recomputed for one operator."""
        brief: dict[int, int] = {}
        whole = set(chain)
        key = at * _SPAN
        for op in chain:
            for number in self._read[op]:
                _use(number, key, brief, last)
            for number in self._made[op]:
                if self._first_writer[number] != op:
                    _use(number, key, brief, last)
                elif (
                    plan[number] == KEEP or number in births or not self._is_choice[number] or self.problem.writers[number][-1] not in whole
                ):
                    lives.passing[key] = lives.passing.get(key, 0) + self._size[number]
                else:
                    lives.born_again[key] = lives.born_again.get(key, 0) + self._size[number]
                    (brief if plan[number] == AGAIN else births)[number] = key
            key += 1
        for number in self._wants[at]:
            if number in brief:
                brief[number] = at * _SPAN + _SPAN - 1
        for number, end in brief.items():
            _free(lives, end, self._size[number], len(self._born))


def _use(number: int, key: int, brief: dict[int, int], last: list[int]) -> None:
    """Note when a storage is used."""
    if number in brief:
        brief[number] = key
    elif key > last[number]:
        last[number] = key


def _free(lives: _Lives, key: int, size: int, steps: int) -> None:
    at, place = divmod(key, _SPAN)
    if place < _SPAN - 1:
        lives.freed_again[key] = lives.freed_again.get(key, 0) + size
    elif at < steps:
        lives.freed[at] += size


# Plans that recompute whole regions of the forward, as `torch.utils.checkpoint` does: at the first use, everything not saved.


@immutable(slots=False)
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
        self._decides = [next((write for write in op.writes if self._is_choice[write]), -1) for op in problem.operators]
        self._later = [bool(readers) for readers in problem.later_readers]

    def save_all(self) -> list[int]:
        """Return the plan in which everything that the backward reads is kept."""
        plan = [KEEP] * len(self.problem.storages)
        for unit in self.units:
            # What several operators make or change in place is saved by all of them or by none.
            state = KEEP if any(self.problem.later_readers[number] for number in unit) else ONCE
            for number in unit:
                plan[number] = state
        return plan

    def is_saved(self, plan: Sequence[int], op: int) -> bool:
        """Return whether what an operator of a region makes is saved."""
        deciding = self._decides[op]
        return deciding >= 0 and plan[deciding] == KEEP

    def chains(self, plan: Sequence[int]) -> dict[int, list[int]]:
        """Return all that is not saved, for each region of which something is needed and not there."""
        chains: dict[int, list[int]] = {}
        for region, members in zip(self.regions, self._of_region, strict=True):
            if any(plan[number] != KEEP and self._later[number] for number in members):
                chain = [op for op in region.operators if op < region.end and not self.is_saved(plan, op)]
                chains[region.trigger] = sorted({*chains.get(region.trigger, ()), *chain})
        return chains

    def held(self, plan: Sequence[int], chains: dict[int, list[int]]) -> list[tuple[int, int]]:
        """Return what is saved for a region stays until the region runs again."""
        return [
            (number, region.trigger)
            for region in self.regions
            if region.trigger in chains
            for op in region.operators
            if self.is_saved(plan, op)
            for number in self._made[op]
        ]


def can_run_again(problem: CheckpointProblem, region: Region) -> bool:
    """Return whether all operators of a region may run again; those that only change what stays are kept from doing so."""
    own = set(region.operators)
    for op in region.operators:
        writes = problem.operators[op].writes
        if all(problem.storages[write].is_input for write in writes):
            continue
        if not problem.can_repeat[op] or any(writer not in own for write in writes for writer in problem.writers[write]):
            return False
    return True


def _with_marks(problem: CheckpointProblem, home: list[int]) -> CheckpointProblem:
    """Return the problem with a storage without size for each operator of a region that makes only what others outside read."""
    storages = list(problem.storages)
    operators = list(problem.operators)
    for at, op in enumerate(operators):
        sized = [write for write in op.writes if storages[write].size and not storages[write].is_input]
        if home[at] >= 0 and sized and all(_home_of(problem, one, home) < 0 for one in sized):
            operators[at] = replace(op, writes=(*op.writes, len(storages)))
            storages.append(StepStorage(f"decides {op.name}", 0))
    return CheckpointProblem(operators, storages, problem.replay_random)


def _home_of(problem: CheckpointProblem, storage: int, home: list[int]) -> int:
    """Return the region in which a storage is made and, as far as the forward goes, read; -1 without one."""
    one = problem.storages[storage]
    if one.is_input or one.is_output or not problem.writers[storage]:
        return -1
    places = {home[op] for op in problem.writers[storage]}
    places.update(home[op] for op in problem.readers[storage] if op <= problem.last_forward[storage])
    return places.pop() if len(places) == 1 else -1


def _units(problem: CheckpointProblem, inside: list[int]) -> list[tuple[int, ...]]:
    """Return storages that share operators are saved together."""
    sets = DisjointSets(range(len(problem.storages)))
    for op in problem.operators:
        made = [write for write in op.writes if not problem.storages[write].is_input]
        for other in made[1:]:
            sets.join(made[0], other)
    return [tuple(unit) for unit in sets.groups(number for number in range(len(problem.storages)) if inside[number] >= 0)]
