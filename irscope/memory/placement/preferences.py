"""Orders in which buffers may be placed: which of them matters most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irscope.memory.placement.problem import Numbers, Problem

_SHARPNESS = 4
"""Steps into which a disturbed criterion falls for each doubling, about: within one, the next criterion decides."""


class Preferences:
    """Orders of a problem's buffers by criteria: (T)otal of bytes alive with it, (W)idth in time, (A)rea, si(Z)e, (D)egree, (L)ower end.

    An order is a word: "TAW" sorts by total, then area, then width, all largest first; the lower end is earliest first.
    """

    def __init__(self, problem: Problem) -> None:
        width = problem.upper - problem.lower
        self.count = len(problem)
        self._criteria: dict[str, Numbers] = {
            "W": -width,
            "A": -width * problem.size,
            "Z": -problem.size,
            "L": problem.lower,
        }
        self._problem = problem

    def order(self, word: str) -> Numbers:
        """Buffers by the criteria of a word; equal ones stay in their order."""
        return np.lexsort([self._criterion(letter) for letter in reversed(word)])

    def disturbed(self, word: str, noise: float, random: np.random.Generator) -> Numbers:
        """The same with criteria that are blurred and shaken: buffers about equally important change places."""
        keys: list[NDArray[np.float64]] = []
        for letter in reversed(word):
            steps = np.log(np.abs(self._criterion(letter)) + 1.0) * _SHARPNESS
            keys.append(-np.floor(steps + random.random(self.count) * noise * 2 * _SHARPNESS))
        return np.lexsort(keys)

    def _criterion(self, letter: str) -> Numbers:
        if letter not in self._criteria:
            self._criteria[letter] = -(self._totals() if letter == "T" else self._degrees())
        return self._criteria[letter]

    def _totals(self) -> Numbers:
        """For each buffer, the most bytes that are alive with it at one moment."""
        total = np.zeros(self.count, dtype=np.int64)
        for alive, load in zip(self._problem.moments, self._problem.loads.tolist(), strict=True):
            total[alive] = np.maximum(total[alive], load)
        return total

    def _degrees(self) -> Numbers:
        """For each buffer, how many are alive at some time of its life."""
        problem = self._problem
        began = np.searchsorted(np.sort(problem.lower), problem.upper, side="left")
        ended = np.searchsorted(np.sort(problem.upper), problem.lower, side="right")
        return began - ended
