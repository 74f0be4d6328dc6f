"""What single calls ask the allocator for, by the rules of their operators, in the form of the recordings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from irscope.devices.catalogue import Target
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.memory.kernels import workspace_policy
from irscope.ops.registry import find_op
from irscope.ops.spec import Drop, Gemm, OpCall, Result, Take, Unknown, memory_events
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager

DATA = Path(__file__).parents[2] / "data" / "op_temporaries"
_NAME = slice(0, 58)
_CUT = 220
"""Recorded lines end here, even within a number."""


@dataclass(frozen=True)
class Recorded:
    """Signed sizes of one call; a line that was too long lacks its end."""

    events: tuple[str, ...]
    is_whole: bool

    def agrees(self, predicted: list[str]) -> bool:
        return tuple(predicted) == self.events if self.is_whole else tuple(predicted[: len(self.events)]) == self.events


def recordings(name: str) -> dict[str, Recorded]:
    """Lines of one file by name, failed calls left out."""
    found: dict[str, Recorded] = {}
    for line in (DATA / name).read_text().splitlines()[1:]:
        head, bar, tail = line.partition(" | ")
        if bar and " peak " in head:
            events = tuple(tail.split())
            whole = len(tail) < _CUT
            found[head[_NAME].strip()] = Recorded(events if whole else events[:-1], whole)
    return found


def more_recordings(name: str) -> dict[str, Recorded]:
    """Lines of a file of further calls by the text of the call."""
    found: dict[str, Recorded] = {}
    for line in (DATA / name).read_text().splitlines()[1:]:
        call, _, events = line.rpartition(" => ")
        found[call] = Recorded(tuple(events.split()), True)
    return found


def calls(name: str) -> dict[str, str]:
    """Programs by the name of their line."""
    parts = (DATA / name).read_text().split("// case: ")[1:]
    return {head: text for head, _, text in (part.partition("\n") for part in parts)}


class Player:
    """Plays calls in order; a workspace that stays is taken by the first that wants it."""

    def __init__(self, target: Target, warm: bool = False) -> None:
        self.target = target
        self.policy = workspace_policy(target)
        every = (*self.policy.cublas, *self.policy.lt) if warm else ()
        self.kept = {buffer.label for buffer in every if buffer.kept}
        self.unknown: list[str] = []

    def play(self, text: str) -> list[str]:
        program = parse_program(text)
        return [f"{size:+d}" for size in self._sizes(program)]

    def _sizes(self, program: Program) -> list[int]:
        manager = Manager(program)
        types, aliases = manager.get(Shapes()), manager.get(Alias())
        graph = program.graph
        last = _last_uses(graph, aliases.storage)
        sizes: list[int] = []
        held: dict[Value, int] = {}
        for step, node in enumerate(graph):
            own = [output for output in node.outputs if aliases.storage(output) is output]
            spec = find_op(node.op)
            assert spec is not None, node.op
            operands = [None if value is None else aliases.strides.type_of(value) for value in node.inputs]
            values = [None if value is None else types.values.get(value) for value in node.inputs]
            results = [aliases.strides.type_of(output) for output in node.outputs]
            parameters = frozenset(i for i, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
            call = OpCall(spec, operands, node.attrs, values, results, source=node.source, parameters=parameters)
            self._node(node, call, own, sizes, held)
            for value, at in last.items():
                if at == step and value in held:
                    sizes.append(-held.pop(value))
        return [size for size in sizes if size]

    def _node(self, node: Node, call: OpCall, own: list[Value], sizes: list[int], held: dict[Value, int]) -> None:
        taken: dict[str, int] = {}
        waiting = dict.fromkeys(own)
        for event in memory_events(call, self.target):
            if isinstance(event, Take):
                taken[event.label] = _int(event.size)
                sizes.append(taken[event.label])
            elif isinstance(event, Drop):
                sizes.append(-taken.pop(event.label))
            elif isinstance(event, Result):
                value = node.outputs[event.index]
                if value in waiting:
                    del waiting[value]
                    self._make(value, call.results[event.index].nbytes if event.size is None else event.size, sizes, held)  # type: ignore[attr-defined]
            elif isinstance(event, Gemm):
                self._gemm(event, sizes)
            elif isinstance(event, Unknown):
                self.unknown.append(event.reason)
        for value in waiting:
            self._make(value, call.results[node.outputs.index(value)].nbytes, sizes, held)  # type: ignore[attr-defined]
        assert not taken, f"{node.op} never gives back {list(taken)}"

    def _make(self, value: Value, size: object, sizes: list[int], held: dict[Value, int]) -> None:
        held[value] = _int(size)
        sizes.append(held[value])

    def _gemm(self, event: Gemm, sizes: list[int]) -> None:
        passing: list[int] = []
        for buffer in self.policy.buffers(event.path):
            if buffer.kept and buffer.label in self.kept:
                continue
            sizes.append(buffer.size)
            if buffer.kept:
                self.kept.add(buffer.label)
            else:
                passing.append(buffer.size)
        sizes.extend(-size for size in passing)


def _last_uses(graph: Graph, storage: object) -> dict[Value, int]:
    """Steps after which each storage is given up, in the order in which Python lets go of arguments."""
    last: dict[Value, int] = {}
    nodes = list(graph)
    for step, node in enumerate(nodes):
        for value in (*node.outputs, *(value for value in node.inputs if value is not None)):
            last[storage(value)] = step  # type: ignore[operator]
    for value in graph.outputs:
        last[storage(value)] = len(nodes)  # type: ignore[operator]
    return last


def _int(size: object) -> int:
    """Sizes that depend on values count as nothing: the recordings' device reads zeros, so nothing is ever found."""
    return int(size) if isinstance(size, int) else 0
