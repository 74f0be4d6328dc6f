"""Slices of weights and of what is computed from them: which must go together, and which can go without changing any result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.ops.slices import Ids

Mask: TypeAlias = npt.NDArray[np.bool_]
_FREE = -1
_MOST_SLICES = 1 << 25
"""Twice the rows and columns of a model of 100 layers with 10 matrices each, 16,384 wide: 256 MB of numbers."""


@dataclass(frozen=True)
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
        """Which of these slices can go."""
        return self.goes[self.roots[ids]]

    def keep_one(self, ids: Ids) -> None:
        """Of an axis of which everything could go one slice stays: nothing can have none."""
        if len(ids) and bool(self.going(ids).all()):
            self.goes[self.roots[ids[0]]] = False

    def folding(self, ids: Ids) -> Mask:
        """Which of these slices could go if constants were folded into a bias."""
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
        """What becomes of every slice, once everything has been said."""
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
