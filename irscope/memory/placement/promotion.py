"""Better orders for many buffers: what came to lie too high is placed earlier the next time."""

from __future__ import annotations

import numpy as np

from irscope.memory.placement.gaps import place_in_order
from irscope.memory.placement.problem import Numbers, Problem

_SHAKE = 0.002
"""By how much of the order's length others change places, every other time."""


class Promotion:
    """One order, changed as long as it gets better or stays as good."""

    def __init__(self, problem: Problem, order: Numbers, offsets: Numbers, seed: int, *, tightest: bool) -> None:
        self._problem = problem
        self._random = np.random.default_rng(seed)
        self._tightest = tightest
        self._rank = np.empty(len(order))
        self._rank[order] = np.arange(len(order))
        self._tops = offsets + problem.size
        self._steady = True

    def next(self) -> Numbers:
        """Offsets of another order."""
        random, height = self._random, int(self._tops.max())
        count = len(self._rank)
        limit = self._problem.max_live + (height - self._problem.max_live) * random.random()
        rank = self._rank.copy()
        high = np.flatnonzero(self._tops >= min(limit, height))
        rank[high] *= random.random(len(high))
        if not self._steady:
            rank += random.random(count) * (count * _SHAKE)
        self._steady = not self._steady
        offsets = place_in_order(self._problem, np.argsort(rank, kind="stable"), tightest=self._tightest)
        tops = offsets + self._problem.size
        if tops.max() <= height:
            self._rank, self._tops = rank, tops
        return offsets
