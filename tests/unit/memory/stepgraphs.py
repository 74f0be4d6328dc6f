"""Small training steps, and a slow simulator of plans that shares no code with the real one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, checkpoint_problem
from irscope.solvers.checkpoint.simulate import AGAIN, KEEP, ONCE


def chain(count: int = 6, size: int = 100, seconds: float = 1.0) -> CheckpointProblem:
    """Layers one after the other, each with a result that its own backward and that of the next one read."""
    storages = [StepStorage("weights", 1000, True, True), StepStorage("input", size, True)]
    operators: list[StepOperator] = []
    for at in range(count):
        storages.append(StepStorage(f"result {at}", size))
        operators.append(StepOperator(f"layer {at}", (0, at + 1), (at + 2,), seconds))
    gradient = -1
    for at in range(count - 1, -1, -1):
        storages.append(StepStorage(f"gradient {at}", size, is_output=at == 0))
        reads = (0, at + 1, at + 2) if gradient < 0 else (0, at + 1, at + 2, gradient)
        gradient = len(storages) - 1
        operators.append(StepOperator(f"backward {at}", reads, (gradient,), 2 * seconds, Phase.BACKWARD))
    return checkpoint_problem(operators, storages)


def random_step(seed: int, count: int = 6) -> CheckpointProblem:
    """A forward of random wiring with results of several tensors, writing in place and random numbers, and a backward that reads of it."""
    draw = random.Random(seed)
    storages = [StepStorage("weights", draw.randrange(50), True, True), StepStorage("input", draw.randrange(100), True)]
    operators: list[StepOperator] = []
    made: list[int] = [1]
    for at in range(count):
        reads = tuple(draw.sample(made, min(len(made), draw.randint(1, 2))))
        workspace = draw.choice((0, 0, 40))
        kind = Repeat.FREELY if draw.random() < 0.8 else Repeat.REPLAYED if draw.random() < 0.7 else Repeat.NEVER
        if len(made) > 1 and draw.random() < 0.2:
            operators.append(StepOperator(f"in place {at}", reads, (made[-1],), draw.randint(1, 9), repeat=kind))
            continue
        results = []
        for _ in range(draw.choice((1, 1, 2))):
            results.append(len(storages))
            storages.append(StepStorage(f"result {at}", draw.randrange(120), is_output=draw.random() < 0.05))
        operators.append(StepOperator(f"op {at}", reads, tuple(results), draw.randint(1, 9), repeat=kind, workspace=workspace))
        made += results
    gradient = -1
    for at in range(count):
        reads = tuple(draw.sample(made, min(len(made), draw.randint(0, 2)))) + ((gradient,) if gradient >= 0 else ())
        storages.append(StepStorage(f"gradient {at}", draw.randrange(60), is_output=at == count - 1))
        gradient = len(storages) - 1
        operators.append(
            StepOperator(f"backward {at}", reads, (gradient,), draw.randint(1, 9), Phase.BACKWARD, workspace=draw.choice((0, 30)))
        )
    return checkpoint_problem(operators, storages, replay_random=draw.random() < 0.5)


def slow_cost(problem: CheckpointProblem, plan: Sequence[int]) -> tuple[int, float]:  # noqa: C901  # one walk, on purpose without parts to share
    """Peak and extra time of a plan, by writing out every copy of every storage and counting what is alive at each moment."""
    operators, storages = problem.operators, problem.storages
    touched: dict[tuple[int, int], list[int]] = {}  # (storage, copy) -> moments at which it is touched
    current = [0] * len(storages)  # which copy readers of later operators see
    copies = [0] * len(storages)
    usable = [storage.is_input for storage in storages]
    workspace: list[int] = []
    extra = 0.0

    def chosen(number: int) -> bool:
        return number in problem.choices and plan[number] != KEEP

    def touch(number: int, copy: int) -> None:
        touched.setdefault((number, copy), []).append(len(workspace) - 1)

    for at, op in enumerate(operators):
        forward = op.phase is Phase.FORWARD
        brief: list[int] = []
        if not forward:
            for number in range(len(storages)):
                if chosen(number) and problem.last_forward[number] < at and current[number] == 0:
                    usable[number] = False
            wanted = [number for number in op.reads if not usable[number] and number in problem.choices]
            need: set[int] = set()
            while wanted:
                for writer in problem.writers[wanted.pop()]:
                    if writer not in need:
                        need.add(writer)
                        sources = [read for read in operators[writer].reads if read not in operators[writer].writes]
                        wanted += [source for source in sources if source in problem.choices and not usable[source]]
            fresh: dict[int, int] = {}
            for writer in sorted(need):
                workspace.append(operators[writer].workspace)
                extra += operators[writer].seconds
                for number in operators[writer].reads:
                    if number not in operators[writer].writes:
                        touch(number, fresh.get(number, current[number]))
                for number in operators[writer].writes:
                    if number not in fresh:
                        copies[number] += 1
                        fresh[number] = copies[number]
                    touch(number, fresh[number])
                    is_whole = problem.writers[number][-1] in need
                    if not usable[number] and number in problem.choices and is_whole and problem.writers[number][-1] == writer:
                        current[number], usable[number] = fresh[number], True
                        if plan[number] == AGAIN:
                            brief.append(number)
                    elif usable[number]:
                        fresh.pop(number)
        workspace.append(op.workspace)
        for number in (*op.reads, *op.writes):
            touch(number, current[number])
            usable[number] = True
        for number in brief:
            current[number], usable[number] = 0, False
    total = len(workspace)
    live = [0] * total
    for (number, copy), moments in touched.items():
        storage = storages[number]
        first = 0 if storage.is_input and copy == 0 else moments[0]
        last = total - 1 if storage.is_output and copy == 0 else moments[-1]
        for moment in range(first, last + 1):
            live[moment] += storage.size
    unused = sum(slot.size for number, slot in enumerate(storages) if slot.is_input and slot.is_output and (number, 0) not in touched)
    at_rest = max(
        sum(storage.size for storage in storages if storage.is_input), sum(storage.size for storage in storages if storage.is_output)
    )
    return max([at_rest, *(here + room + unused for here, room in zip(live, workspace, strict=True))]), extra


STATES = (KEEP, ONCE, AGAIN)
