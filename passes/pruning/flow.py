"""Walks a graph and asks each operator's rule how slices of its operands become slices of its results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import Shape, TensorType
from irscope.ops.registry import find_op
from irscope.ops.slices import Floats, Ids, Slices
from irscope.ops.slicing import slice_rule
from irscope.ops.spec import Known
from irscope.passes.graph.alias import Aliases, written_operand
from irscope.passes.inference.engine import Inferred

_DECLARED = (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)


class Constants(Protocol):
    """What is known of the values of weights."""

    def slices(self, weight: Value) -> tuple[Floats | None, ...]:
        """By axis the number that each slice holds everywhere, NaN where that is not one number or not known."""
        ...

    def number(self, weight: Value) -> float:
        """The number in a weight of one element, NaN where it is not known."""
        ...


class Flow:
    """Slices of every value of a graph."""

    def __init__(self, types: Inferred, aliases: Aliases, first_of: Mapping[Value, Value], constants: Constants) -> None:
        self.types = types
        self.channels = Channels()
        self.found: dict[Value, Slices] = {}
        self._aliases = aliases
        self._first_of = first_of
        self._constants = constants
        self._overwritten: dict[Value, str] = {}

    # -- what rules ask ----------------------------------------------------------------------------------------

    def type(self, value: Value | None) -> TensorType | None:
        """The type of a tensor whose number of axes is known."""
        type_ = self.types.type_of(value)
        return type_ if isinstance(type_, TensorType) and type_.shape is not None else None

    def shape(self, value: Value | None) -> Shape:
        """Sizes of a value; None where the number of axes is unknown, or there are none."""
        return self.types.type_of(value).shape

    def known(self, value: Value) -> Known | None:
        """Values of a small tensor, where they are known."""
        return self.types.values.get(value)

    def of(self, value: Value | None) -> Slices | None:
        """Slices of an operand; None where it is absent or its number of axes unknown."""
        type_ = self.type(value)
        if value is None or type_ is None or type_.shape is None:
            return None
        found = self.found.get(value)
        if found is None:
            made = self._weight(value, type_) if value.role in _DECLARED else Slices.unknown(len(type_.shape))
            found = self.found[value] = made
        return found

    def sizes(self, value: Value | None) -> tuple[object, ...]:
        """Sizes of a tensor, symbols included."""
        type_ = self.type(value)
        return () if type_ is None or type_.shape is None else type_.shape

    def together(self, ids: Sequence[Ids | None], node: Node) -> Ids | None:
        """Axes that must have one size. One that cannot shrink keeps the others from it."""
        known = [each for each in ids if each is not None]
        if not known:
            return None
        first = known[0]
        if len(known) < len(ids) or any(len(each) != len(first) for each in known):
            for each in known:
                self.channels.block(each, f"{node.name} joins it with something that cannot shrink")
            return None
        for each in known[1:]:
            self.channels.unite(first, each)
        return first

    def contract(self, one: tuple[Ids | None, Floats | None], other: tuple[Ids | None, Floats | None], node: Node, folds: bool) -> None:
        """Products over an axis of two operands are summed; `folds` says whether a constant slice adds the same to every element."""
        ids = self.together((one[0], other[0]), node)
        if ids is None:
            return
        left, right = (np.full(len(ids), math.nan) if held is None else held for _, held in (one, other))
        needed = (left != 0) & (right != 0)
        constant = np.isfinite(left) if folds else np.zeros(len(ids), np.bool_)
        self.channels.read(ids, needed, constant, f"{node.name} reads it")

    # -- the walk ----------------------------------------------------------------------------------------------

    def run(self, graph: Graph) -> None:
        """Follow slices from the weights to the outputs."""
        self._say_what_is_overwritten(graph)
        for node in graph:
            self._node(node)
        for value in graph.outputs:
            self.block(value, "the model returns it")
        for value, name in self._overwritten.items():
            self.block(value, f"{name} writes over it")

    def _node(self, node: Node) -> None:
        spec = find_op(node.op)
        rule = None if spec is None else slice_rule(spec)
        # Rules are for operands that fit the operator; where they do not, nobody knows what comes out.
        fits = all(self.type(output) is not None for output in node.outputs)
        made = rule(self, node) if rule is not None and fits and not node.regions else None
        if made is None:
            self._block_all(node)
            return
        results = [made] if isinstance(made, Slices) else list(made)
        for value, slices in zip(node.outputs, results, strict=False):
            if slices.rank == len(self.sizes(value)):
                self.found[value] = slices
                if not value.users:
                    self.block(value, "nothing reads it")
            else:
                self._block(slices, f"{node.name} has results of a kind that cannot shrink")

    def _block_all(self, node: Node) -> None:
        inside = [inner for region in node.regions for inner in region.walk()]
        for user in (node, *inside):
            for value in user.inputs:
                if value is not None:
                    self.block(value, f"{node.name} ({node.op}) needs all of it")
        for region in (*node.regions, *(body for inner in inside for body in inner.regions)):
            for value in region.outputs:
                self.block(value, f"{node.name} ({node.op}) needs all of it")

    def block(self, value: Value, why: str) -> None:
        """All slices of a value must stay."""
        slices = self.of(value)
        if slices is not None:
            self._block(slices, why)

    def _block(self, slices: Slices, why: str) -> None:
        for ids in slices.ids:
            self.channels.block(ids, why)

    def _say_what_is_overwritten(self, graph: Graph) -> None:
        """What is written over while other names for it are read later does not hold what its own operator says."""
        writers = [(node, value) for node in graph.walk() for value in _written_operands(node)]
        if not writers:
            return
        names: dict[Value, list[Value]] = {}
        for value in (*graph.inputs, *graph.weights, *(output for node in graph for output in node.outputs)):
            names.setdefault(self._aliases.storage(value), []).append(value)
        for node, written in writers:
            own = (written, *node.outputs)
            root = self._aliases.storage(written)
            if root.role in _DECLARED:
                # It is something else in the next run.
                self._overwritten.update(dict.fromkeys(names.get(root, (root,)), node.name))
            for value in names.get(root, ()):
                late = any(not isinstance(user, Node) or user.graph is not graph or node.is_before(user) for user in value.users or ())
                if (value not in own or value is written) and late:
                    for one in (value, *own):
                        self._overwritten[one] = node.name

    def _weight(self, value: Value, type_: TensorType) -> Slices:
        shape = type_.shape or ()
        first = self._first_of.get(value, value)
        if first is not value:
            slices = self.of(first)
            if slices is not None and self.type(first) is type_:
                return slices
            self.block(first, "weights of different shapes lie in its place")
            return Slices.unknown(len(shape))
        ids = tuple(None if isinstance(size, SymDim) else self.channels.fresh(size) for size in shape)
        if value in self._overwritten:
            return Slices(ids, (None,) * len(shape))
        return Slices(ids, self._constants.slices(value), self._constants.number(value))


def _written_operands(node: Node) -> Iterator[Value]:
    """Operands that a node writes over."""
    value, spec = written_operand(node), find_op(node.op)
    if value is not None:
        yield value
    for place in spec.writes if spec is not None else ():
        written = node.inputs[place] if place < len(node.inputs) else None
        if written is not None:
            yield written


# ----------------------------------------------------------------------------------------------------
# Slices of weights and of what is computed from them: which must go together, and which can go without changing any result.

Mask: TypeAlias = npt.NDArray[np.bool_]
_FREE = -1
_MOST_SLICES = 1 << 25
"""Twice the rows and columns of a model of 100 layers with 10 matrices each, 16,384 wide: 256 MB of numbers."""


@immutable(slots=False)
class Verdict:
    """What becomes of every slice."""

    roots: Ids
    """By slice the number of the set it belongs to."""
    goes: Mask
    """By set whether it can go."""
    folds: Mask
    """By set whether it could go if the constant it always holds were added to a bias."""
    why: npt.NDArray[np.int32]
    """By set the number of the text that says why it stays."""
    texts: tuple[str, ...]

    def going(self, ids: Ids) -> Mask:
        """Return which of these slices can go."""
        return self.goes[self.roots[ids]]

    def keep_one(self, ids: Ids) -> None:
        """Of an axis of which everything could go one slice stays: nothing can have none."""
        if len(ids) and bool(self.going(ids).all()):
            self.goes[self.roots[ids[0]]] = False

    def folding(self, ids: Ids) -> Mask:
        """Return which of these slices could go if constants were folded into a bias."""
        return self.folds[self.roots[ids]]

    def reasons(self, ids: Ids) -> dict[str, int]:
        """Why these slices stay, with the number of slices, most frequent first."""
        found, counts = np.unique(self.why[self.roots[ids]], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return {self.texts[int(found[place])]: int(counts[place]) for place in order if int(found[place]) != _FREE}


class Channels:
    """Sets of slices, joined wherever an operator needs its operands to have equal sizes."""

    def __init__(self) -> None:
        self._parent: Ids = np.zeros(1024, np.int64)
        self._count = 0
        self._texts: dict[str, int] = {}
        self._blocked: list[tuple[Ids, int]] = []
        self._read: list[tuple[Ids, Mask, Mask, int]] = []

    def fresh(self, size: int) -> Ids | None:
        """New slices, each a set of its own; None for more than are worth telling apart."""
        if self._count + size > _MOST_SLICES:
            return None
        first, self._count = self._count, self._count + size
        if self._count > len(self._parent):
            self._parent = np.concatenate((self._parent, np.zeros(self._count + len(self._parent), np.int64)))
        made = np.arange(first, self._count)
        self._parent[first : self._count] = made
        return made

    def find(self, ids: Ids) -> Ids:
        """The sets that slices belong to."""
        roots = self._parent[ids]
        while True:
            above = self._parent[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        self._parent[ids] = roots
        return roots

    def unite(self, one: Ids, other: Ids) -> None:
        """Slices at equal places can only go together."""
        if one is other:
            return
        while True:
            left, right = self.find(one), self.find(other)
            differ = left != right
            if not differ.any():
                return
            # Where one set is to join several, one of them is joined in each round.
            low, high = np.minimum(left, right)[differ], np.maximum(left, right)[differ]
            self._parent[high] = low

    def block(self, ids: Ids | None, why: str) -> None:
        """These slices must stay."""
        if ids is not None and len(ids):
            self._blocked.append((ids, self._text(why)))

    def read(self, ids: Ids, needed: Mask, constant: Mask, why: str) -> None:
        """Something sums over these slices; `needed` ones add something, `constant` ones among them always the same."""
        self._read.append((ids, needed, constant, self._text(why)))

    def _text(self, why: str) -> int:
        return self._texts.setdefault(why, len(self._texts))

    @cached_property
    def verdict(self) -> Verdict:
        """Return what becomes of every slice, once everything has been said."""
        roots = self.find(np.arange(self._count))
        seen, stays, varies = (np.zeros(self._count, np.bool_) for _ in range(3))
        why = np.full(self._count, _FREE, np.int32)
        # What is said last is overwritten by what weighs more: first who reads, then what cannot shrink, the first of each.
        for ids, needed, constant, text in reversed(self._read):
            at = roots[ids]
            seen[at] = True
            stays[at[needed]] = True
            varies[at[needed & ~constant]] = True
            why[at[needed]] = text
        for ids, text in reversed(self._blocked):
            at = roots[ids]
            stays[at] = varies[at] = True
            why[at] = text
        return Verdict(roots, seen & ~stays, seen & stays & ~varies, why, tuple(self._texts))
