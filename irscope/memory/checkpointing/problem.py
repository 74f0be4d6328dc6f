"""The checkpointing problem of a training step: operators in order, the storages they read and write, and which may be recomputed."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property


class Phase(enum.IntEnum):
    """Which part of the step an operator belongs to."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Repeat(enum.IntEnum):
    """Whether an operator of the forward may run a second time."""

    FREELY = 0
    REPLAYED = 1
    """It draws random numbers, and gives the same result only where the generator's state is put back."""
    NEVER = 2
    """It changes state that persists, or its effects are unknown."""


@dataclass(frozen=True, slots=True)
class StepStorage:
    """Bytes that tensors of one step share: a tensor with its views and what is written over it."""

    name: str
    size: int
    is_input: bool = False
    """Whether it is there before the first operator."""
    is_output: bool = False
    """Whether it is there after the last one; with `is_input`, it is never freed."""
    held: int = -1
    """The operator after which Python or autograd let go of it, where that is known: it lives so long even if nothing reads it."""


@dataclass(frozen=True, slots=True)
class StepOperator:
    """One operator; storages are named by number."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    seconds: float
    phase: Phase = Phase.FORWARD
    repeat: Repeat = Repeat.FREELY
    workspace: int = 0
    """Bytes that exist only while it runs."""
    module: str = ""
    """Path of the module that called it."""


@dataclass(frozen=True)
class CheckpointProblem:
    """Operators in the order in which they run, and their storages."""

    operators: Sequence[StepOperator]
    storages: Sequence[StepStorage]
    replay_random: bool = True
    """Whether operators that draw random numbers may run again, with the generator's state put back."""

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def seconds(self) -> float:
        """Time of the step when nothing is recomputed."""
        return sum(op.seconds for op in self.operators)

    @cached_property
    def base(self) -> int:
        """Bytes that are there all the time, such as parameters."""
        return sum(storage.size for storage in self.storages if storage.is_input and storage.is_output)

    @cached_property
    def writers(self) -> list[list[int]]:
        """Operators that make or change each storage, in order."""
        found: list[list[int]] = [[] for _ in self.storages]
        for at, op in enumerate(self.operators):
            for storage in op.writes:
                found[storage].append(at)
        return found

    @cached_property
    def readers(self) -> list[list[int]]:
        """Operators that read each storage, in order."""
        found: list[list[int]] = [[] for _ in self.storages]
        for at, op in enumerate(self.operators):
            for storage in op.reads:
                found[storage].append(at)
        return found

    @cached_property
    def first_touch(self) -> list[int]:
        """Step at which each storage begins; -1 for inputs and for storages that no operator uses."""
        return [
            -1 if one.is_input else min((*self.writers[number][:1], *self.readers[number][:1]), default=-1)
            for number, one in enumerate(self.storages)
        ]

    @cached_property
    def last_touch(self) -> list[int]:
        """Step of the last operator that reads or writes each storage; the number of operators where it stays."""
        return [
            len(self) if one.is_output else max(one.held, *self.writers[number][-1:], *self.readers[number][-1:], -1)
            for number, one in enumerate(self.storages)
        ]

    @cached_property
    def last_forward(self) -> list[int]:
        """Step of the last operator of the forward that reads or writes each storage, -1 without one."""
        found = [-1] * len(self.storages)
        for at, op in enumerate(self.operators):
            if op.phase is Phase.FORWARD:
                for storage in (*op.reads, *op.writes):
                    found[storage] = at
        return found

    @cached_property
    def later_readers(self) -> list[tuple[int, ...]]:
        """Operators after the forward that read what the forward made."""
        return [tuple(at for at in readers if self.operators[at].phase is not Phase.FORWARD) for readers in self.readers]

    @cached_property
    def last_backward(self) -> int:
        """Step of the last operator of the backward, -1 without one."""
        return max((at for at, op in enumerate(self.operators) if op.phase is Phase.BACKWARD), default=-1)

    @cached_property
    def can_repeat(self) -> list[bool]:
        """Whether each operator can run again between the end of the forward and the end of the backward with the same result."""
        return [self._repeats(at, op) for at, op in enumerate(self.operators)]

    def _repeats(self, at: int, op: StepOperator) -> bool:
        if op.phase is not Phase.FORWARD or op.repeat is Repeat.NEVER:
            return False
        if op.repeat is Repeat.REPLAYED and not self.replay_random:
            return False
        for storage in op.writes:
            writers = self.writers[storage]
            if self.storages[storage].is_input:
                # A second run would change what stays a second time.
                return False
            if any(self.operators[writer].phase is not Phase.FORWARD for writer in writers):
                return False
            if writers[0] != at and sum(self.storages[one].size > 0 for one in op.writes) > 1:
                # Begun anew for one of its results, the storage that it changes would have to be begun anew as well.
                return False
        written = set(op.writes)
        return not any(
            at < writer < self.last_backward for storage in op.reads if storage not in written for writer in self.writers[storage]
        )

    @cached_property
    def droppable(self) -> list[bool]:
        """Whether each storage may be freed after the forward and made again when the backward needs it."""
        return [
            not one.is_input
            and not one.is_output
            and bool(self.writers[number])
            and all(self.can_repeat[at] for at in self.writers[number])
            and all(at > self.last_forward[number] for at in self.later_readers[number][:1])
            for number, one in enumerate(self.storages)
        ]

    @cached_property
    def saved(self) -> list[int]:
        """Storages that the forward makes and something later reads: what is kept when nothing is recomputed."""
        return [
            number
            for number, one in enumerate(self.storages)
            if not one.is_input and not one.is_output and self.later_readers[number] and self._is_forward(number)
        ]

    @cached_property
    def choices(self) -> list[int]:
        """Storages for which keeping or making again is a choice: what later operators read, and what that is made from."""
        wanted = [number for number in self.saved if self.droppable[number]]
        seen = set(wanted)
        for number in wanted:
            for writer in self.writers[number]:
                for source in (*self.operators[writer].reads, *self.operators[writer].writes):
                    if source not in seen and self.droppable[source] and self.storages[source].size:
                        seen.add(source)
                        wanted.append(source)
        return sorted(number for number in seen if self.storages[number].size)

    def _is_forward(self, storage: int) -> bool:
        return bool(self.writers[storage]) and self.operators[self.writers[storage][0]].phase is Phase.FORWARD


def make_problem(operators: Iterable[StepOperator], storages: Iterable[StepStorage], *, replay_random: bool = True) -> CheckpointProblem:
    """A problem of operators and storages, with each operator's reads and writes in order and once."""
    tidy = [
        StepOperator(
            op.name, tuple(sorted(set(op.reads))), tuple(sorted(set(op.writes))), op.seconds, op.phase, op.repeat, op.workspace, op.module
        )
        for op in operators
    ]
    return CheckpointProblem(tidy, list(storages), replay_random)
