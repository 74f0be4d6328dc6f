"""Live ranges of local variables in functions whose lines the file does not record (their operators are attributed to the caller)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from irscope.ir.graph import Node, Value
from irscope.ir.types import TensorType
from irscope.ops.registry import plays
from irscope.ops.spec import OpRole
from irscope.passes.lifetimes.holds import Facts, Holds


class HiddenFunction:
    """The operators that one statement runs beside those of the modules it calls."""

    def __init__(self, facts: Facts, direct: Sequence[int], end: int, place: str) -> None:
        self._facts = facts
        self._direct = direct
        """Their steps."""
        self._end = end
        self._by = f"a local variable of a function called at {place}"
        self._scope = facts.steps[direct[0]].scope if direct else None
        self._alike: dict[object, list[int]] = {}
        """Steps by type and shape of their results."""
        self.spare: list[Value] = []
        """What the function may return besides what has a reader: the last of its variables to which there is no other reference."""

    def hold(self, holds: Holds) -> None:
        """Record until when its variables keep its results alive."""
        made = [(step, output) for step in self._direct for output in self._facts.steps[step].outputs]
        for step, output in made:
            self._alike.setdefault(_likeness(output), []).append(step)
        for step, output in made:
            self._hold_given(holds, output, step)
            self._hold_converted(holds, output)
            self._hold_waiting(holds, output, step)

    def _hold_given(self, holds: Holds, value: Value, step: int) -> None:
        """Operands of a module, a matrix product or a projection were bound to a variable."""
        for used, _ in self._facts.uses.get(value, ()):
            if not step < used <= self._end:
                continue
            node = self._facts.steps[used]
            if node.scope is not self._scope or (plays(node, OpRole.MATRIX_PRODUCT) and not _is_normalized(value)):
                holds.add(value, self._end, "local", self._by)
                if self._facts.last_use(value) <= self._end:
                    self.spare = [value]
            elif plays(node, OpRole.LINEAR_LAYER):
                holds.add(value, self._bound_again(value, used), "local", self._by)

    def _hold_waiting(self, holds: Holds, value: Value, step: int) -> None:
        """A result is bound to a variable if, before its use, operators run on which that use does not depend."""
        used = self._readers(value)
        if not used or not step + 1 < used[0] <= self._end or not self._runs_between(step, used[0]):
            return
        last = self._facts.last_use(value)
        if last > self._end:
            return
        # The result of an operator with one tensor operand is usually bound to the operand's name.
        if len([one for one in self._facts.steps[last].inputs if one is not None]) > 1:
            holds.add(value, self._bound_again(value, last), "local", self._by)

    def _hold_converted(self, holds: Holds, value: Value) -> None:
        """A softmax with an immediate cast is one statement, whose variable is rebound only after both."""
        used, steps = self._readers(value), self._facts.steps
        if len(used) != 1 or used[0] >= min(self._end, len(steps) - 1):
            return
        reader, after = steps[used[0]], steps[used[0] + 1]
        if plays(reader, OpRole.SOFTMAX) and plays(after, OpRole.CONVERT) and after.inputs[0] is reader.outputs[0]:
            holds.add(value, used[0] + 1, "local", self._by)

    def _readers(self, value: Value) -> list[int]:
        """Steps that read a value itself, not a view of it."""
        return [step for step, read in self._facts.uses.get(value, ()) if read is value]

    def _runs_between(self, step: int, reader: int) -> bool:
        """Whether something runs between two steps on which the second does not depend."""
        needed = set(self._facts.steps[reader].inputs)
        for between in range(reader - 1, step, -1):
            node = self._facts.steps[between]
            if not any(output in needed for output in node.outputs):
                return True
            needed.update(node.inputs)
        return False

    def _bound_again(self, value: Value, used: int) -> int:
        """The step after which a variable is most likely rebound: that of the next result of the same size, from its use on."""
        steps = self._alike[_likeness(value)]
        place = bisect_left(steps, used)
        return steps[place] if place < len(steps) else self._end


def function_name(node: Node) -> str:
    """How source code spells a call of the operator."""
    return f"{node.source.rpartition('::')[2].partition('.')[0]}("


def _is_normalized(value: Value) -> bool:
    """Whether functional.normalize made a value, whose result is mostly used where it is made."""
    node = value.node
    norm = node.inputs[1] if node is not None and plays(node, OpRole.DIVIDE) and len(node.inputs) > 1 else None
    return norm is not None and norm.node is not None and norm.node.source.startswith("aten::expand")


def _likeness(value: Value) -> object:
    type_ = value.type
    return (type_.dtype, type_.shape) if isinstance(type_, TensorType) else type_
