"""The names under which a text shows the values of a program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

from irscope.ir.graph import Graph, Value
from irscope.ir.runs import Run, runs
from irscope.ir.spelling import name_text


class ValueNames(dict[Value | None, str]):
    """Names by value; a value that no name was made for gets one with a question mark, which no text can define."""

    def __init__(self) -> None:
        super().__init__({None: "_"})

    def __missing__(self, value: Value | None) -> str:
        return "%?" if value is None or value.name is None else f"%?{name_text(value.name)[1:]}"


class _LooseNames(ValueNames):
    def __missing__(self, value: Value | None) -> str:
        if value is None or value.name is None:
            return "%?"
        return name_text(value.name)


def loose_names() -> ValueNames:
    """Names for a node shown alone: its values by their own names, unnamed ones as `%?`."""
    return _LooseNames()


def value_names(bodies: Sequence[Graph]) -> ValueNames:
    """Names for all values of these graphs and their regions: their own where they have one, else numbers from 0.

    Where two values that see one another have the same name, the later one gets a suffix.
    """
    names = ValueNames()
    for body in bodies:
        _name_body(body, names)
    return names


def _name_body(body: Graph, names: ValueNames) -> None:
    numbers = count()
    taken: set[str] = set()
    suffixes: dict[str, int] = {}
    # The tokens of each open graph: they are free again once it ends.
    levels: list[list[str]] = []
    for run in runs(body):
        if run.opens:
            levels.append([])
        tokens = levels[-1]
        for value in _defined(run):
            # A broken program may define a value twice.
            if value in names:
                continue
            name = value.name
            if name is None:
                names[value] = f"%{next(numbers)}"
                continue
            token = name_text(name)
            while token in taken:
                suffixes[name] = suffix = suffixes.get(name, 1) + 1
                token = name_text(f"{name}~{suffix}")
            taken.add(token)
            tokens.append(token)
            names[value] = token
        if run.closes:
            taken.difference_update(levels.pop())


def _defined(run: Run) -> chain[Value]:
    outputs = [value for node in run.nodes for value in node.outputs]
    return chain(run.graph.inputs, run.graph.weights, outputs) if run.opens else chain(outputs)
