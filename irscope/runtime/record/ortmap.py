"""Maps nodes of the graph that ONNX Runtime runs to nodes of the file, since it fuses, folds, renames and adds nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_REORDERS = ("ReorderInput", "ReorderOutput")
_ONLY_SIZES = ("Shape", "Size")
_LONGEST = 8
"""Nodes that one layout's operator takes in."""
_ENDING = re.compile(r"(_nchwc|_token_?\d*|_\d+|/[^/]*Fusion/?|/|_[A-Za-z]+)$")


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node with the names that tie it to others."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = ""

    @property
    def label(self) -> str:
        """How irscope names the node: by its first result."""
        return next((output for output in self.outputs if output), self.name)


@dataclass(frozen=True, slots=True)
class NodeMap:
    """The result: numbers of the file's nodes by number of the node that runs."""

    sources: tuple[tuple[int, ...], ...]
    folded: tuple[int, ...]
    """Nodes that were computed or removed before the first run."""
    unmapped: tuple[int, ...]


def map_nodes(original: Sequence[OnnxNode], running: Sequence[OnnxNode], inputs: Sequence[str], outputs: Sequence[str]) -> NodeMap:
    """Tie running nodes to the file's: by names of results and what lies between them, by names of nodes, and by their producers."""
    return _Mapper(original, running, frozenset(inputs), outputs).map()


class _Mapper:
    def __init__(self, original: Sequence[OnnxNode], running: Sequence[OnnxNode], inputs: frozenset[str], outputs: Sequence[str]) -> None:
        self.inputs = inputs
        self.original = original
        self.running = running
        self.maker = {output: number for number, node in enumerate(original) for output in node.outputs if output}
        self.owner: dict[int, int] = {}
        self.alias = self._aliases()
        self.gone = self._before_the_run(outputs)
        self.made = {self._known(output): number for number, node in enumerate(running) for output in node.outputs if output}

    def map(self) -> NodeMap:
        """What became of each node."""
        self._by_node_names()
        for number, node in enumerate(self.running):
            if node.op not in _REORDERS:
                self._by_results(number, node)
        self._by_producers()
        sources: list[list[int]] = [[] for _ in self.running]
        for number in sorted(self.owner):
            sources[self.owner[number]].append(number)
        left = [number for number in range(len(self.original)) if number not in self.owner]
        folded = tuple(number for number in left if number in self.gone)
        return NodeMap(tuple(map(tuple, sources)), folded, tuple(number for number in left if number not in self.gone))

    def _aliases(self) -> dict[str, str]:
        """What a changed layout's name stands for: reorders compute nothing."""
        alias: dict[str, str] = {}
        for node in reversed(self.running):
            if node.op == "ReorderOutput":
                alias[node.inputs[0]] = alias.get(node.outputs[0], node.outputs[0])
        for node in self.running:
            if node.op == "ReorderInput":
                alias.setdefault(node.outputs[0], alias.get(node.inputs[0], node.inputs[0]))
        return alias

    def _known(self, name: str) -> str:
        return self.alias.get(name, name)

    def _by_node_names(self) -> None:
        """Nodes whose results all have new names, as those of another layout have."""
        names: dict[str, int] = {}
        for place, one in enumerate(self.original):
            names.setdefault(one.name, place)
        for number, node in enumerate(self.running):
            if node.op in _REORDERS or any(self._known(output) in self.maker for output in node.outputs):
                continue
            found = self._named(node, names)
            if found is not None:
                for taken in self._fused_into(found, node.op):
                    self.owner.setdefault(taken, number)

    def _named(self, node: OnnxNode, names: Mapping[str, int]) -> int | None:
        name = node.name
        while name:
            number = names.get(name)
            if number is not None and (self.original[number].op == node.op or name != node.name):
                return number
            shorter = _ENDING.sub("", name)
            if shorter == name:
                return None
            name = shorter
        return None

    def _fused_into(self, last: int, op: str) -> list[int]:
        """A node that is named after the last one it took in: those on the way back to the one whose operator it has."""
        path = [last]
        while self.original[path[-1]].op != op and len(path) < _LONGEST:
            above = [self.maker[value] for value in self.original[path[-1]].inputs if value in self.maker]
            free = [number for number in above if number not in self.owner]
            if not free:
                return [last]
            path.append(max(free))
        return path if self.original[path[-1]].op == op else [last]

    def _by_results(self, number: int, node: OnnxNode) -> None:
        """The nodes between a running node's results and the values that other running nodes define."""
        pending = [self.maker[known] for output in node.outputs if (known := self._known(output)) in self.maker]
        while pending:
            found = pending.pop()
            if self.owner.setdefault(found, number) != number:
                continue
            for value in self.original[found].inputs:
                above = self.maker.get(value)
                if above is not None and above not in self.owner and above not in self.gone and self.made.get(value, number) == number:
                    pending.append(above)

    def _by_producers(self) -> None:
        """Remaining nodes belong to the last producer of their inputs, like an activation fused into its predecessor."""
        for number, node in enumerate(self.original):
            if number in self.owner or number in self.gone:
                continue
            owners = [self._owner_of(value) for value in node.inputs if value]
            known = [owner for owner in owners if owner is not None]
            if known:
                self.owner[number] = max(known)

    def _owner_of(self, value: str) -> int | None:
        maker = self.maker.get(value)
        return self.owner.get(maker) if maker is not None else None

    def _before_the_run(self, outputs: Sequence[str]) -> set[int]:
        """Nodes that depend on no input's values, or that no output depends on."""
        constant: set[int] = set()
        for number, node in enumerate(self.original):
            makers = [self.maker.get(value) for value in node.inputs if value and value not in self.inputs]
            fed = any(value in self.inputs for value in node.inputs)
            if node.op in _ONLY_SIZES or (not fed and all(maker in constant for maker in makers if maker is not None)):
                constant.add(number)
        used: set[int] = set()
        pending = [self.maker[name] for name in outputs if name in self.maker]
        while pending:
            number = pending.pop()
            if number not in used:
                used.add(number)
                pending.extend(self.maker[value] for value in self.original[number].inputs if value in self.maker)
        return constant | {number for number in range(len(self.original)) if number not in used}
