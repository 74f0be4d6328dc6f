"""Which buffer each value gets: ONNX Runtime's allocation plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from irscope.passes.ort.kernels import Launch, Launches

NEVER = -1


@dataclass(slots=True)
class Buffers:
    """Columns by number of value, and by step."""

    owner: list[int]
    """The value whose buffer a value occupies: itself where it has its own."""
    source: list[int]
    """The value of which a value is a view: itself where it is none."""
    is_output: list[bool]
    """Whether the buffer is returned to the caller; it is never reused and lives to the end."""
    born: list[int]
    """The step that allocates the buffer, NEVER for values without an allocation."""
    released: list[int]
    """The step after which the buffer is freed, NEVER for those that live until the run ends."""
    taken: list[list[int]]
    """Buffers that each step allocates, in order."""
    dropped: list[list[int]]
    """Buffers that each step frees."""


def plan_buffers(order: Sequence[Launch], found: Launches, reuse: bool = True) -> Buffers:
    """Go through the steps as ONNX Runtime's planner does."""
    planner = _Planner(order, found, reuse)
    for step, launch in enumerate(order):
        planner.place(step, launch)
        planner.settle(launch)
    return planner.release(order)


class _Planner:
    def __init__(self, order: Sequence[Launch], found: Launches, reuse: bool) -> None:
        count = len(found.values)
        self.found = found
        self.reuse = reuse
        self.owner = list(range(count))
        self.source = list(range(count))
        self.is_output = [False] * count
        self.uses = uses = [0] * count
        """Reference counts of buffers: outstanding uses and definitions of all values that share them; one more for what others own."""
        self.free: defaultdict[object, list[int]] = defaultdict(list)
        """Dead buffers by shape and type, the most recently freed last."""
        self.born = [NEVER] * count
        self.taken: list[list[int]] = [[] for _ in order]
        for value in range(found.given):
            uses[value] = 1
        for launch in order:
            for value in (*launch.inputs, *launch.captured):
                if value >= 0:
                    uses[value] += 1
            for value in launch.outputs:
                uses[value] += 1
        for value in found.returned:
            uses[value] += 1
            self.is_output[value] = value >= found.given

    def place(self, step: int, launch: Launch) -> None:
        """Assign buffers to the results of a step."""
        for position, value in enumerate(launch.outputs):
            if not self.is_output[value]:
                source = self._source(launch, position, value)
                if source >= 0:
                    owner = self.owner[source]
                    self.owner[value] = owner
                    if position == 0 and launch.kernel.alias and source == launch.inputs[0]:
                        self.source[value] = self.source[source]
                    self.uses[owner] += self.uses[value]
                    continue
            self.born[value] = step
            self.taken[step].append(value)

    def _source(self, launch: Launch, position: int, value: int) -> int:
        """A value whose buffer the result reuses, or NEVER."""
        found = self.found
        kernel, inputs = launch.kernel, launch.inputs
        if position == 0 and inputs:
            if kernel.alias and inputs[0] >= 0:
                return inputs[0]
            for index in kernel.in_place:
                operand = inputs[index] if index < len(inputs) else NEVER
                likeness = found.likeness[value]
                if operand >= 0 and self.uses[self.owner[operand]] == 1 and likeness is not None and likeness == found.likeness[operand]:
                    return operand
        # A value without a use gets its own buffer.
        if self.reuse and found.reusable[value] and self.uses[value] > 1:
            dead = self.free.get(found.likeness[value])
            if dead:
                return dead.pop()
        return NEVER

    def settle(self, launch: Launch) -> None:
        """Decrement the reference counts of a step's operands and results; dead buffers become free for later results."""
        for value in (*launch.inputs, *launch.captured, *launch.outputs):
            if value >= 0:
                owner = self.owner[value]
                self.uses[owner] -= 1
                if not self.uses[owner]:
                    self.free[self.found.likeness[owner]].append(owner)

    def release(self, order: Sequence[Launch]) -> Buffers:
        """When each buffer is freed: after its last use. Buffers without a use stay until the run ends."""
        released = [NEVER] * len(self.owner)
        for step, launch in enumerate(order):
            for value in (*launch.inputs, *launch.captured):
                if value >= 0:
                    released[self.owner[value]] = step
        dropped: list[list[int]] = [[] for _ in order]
        for value, step in enumerate(released):
            if step == NEVER:
                continue
            if self.born[value] == NEVER or self.is_output[value]:
                released[value] = NEVER
            else:
                dropped[step].append(value)
        return Buffers(self.owner, self.source, self.is_output, self.born, released, self.taken, dropped)
