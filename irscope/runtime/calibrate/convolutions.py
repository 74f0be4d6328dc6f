"""A rule for the workspace of convolutions, fitted to recordings of a GPU and validated on held-out models.

The library that computes them is closed: what it takes is only known once it ran. The rule is the simplest that could be: so many times
the bytes of input, filter and result, with whole numbers for each kind of convolution and element type.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KEPT_OUT = 3
"""Of this many models in alphabetical order, the last is held out of the fit."""
_CANDIDATES = tuple(itertools.product((0, 1, 2), (0, 1, 2), (0, 1, 2)))
"""Factors of input, filter and result."""
_EXACT = 512
"""The allocator's rounding."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """One recorded convolution, in bytes."""

    model: str
    kind: str
    """convolution, pointwise or depthwise."""
    dtype: str
    input: int
    filter: int
    output: int
    workspace: int

    @property
    def touched(self) -> int:
        return self.input + self.filter + self.output


@dataclass(frozen=True, slots=True)
class Errors:
    """How far a rule is off, as a fraction of the bytes that each convolution touches."""

    count: int
    exact: int
    """Convolutions whose workspace is right up to rounding."""
    median: float
    worst: float
    mean: float
    without: float
    """The mean error of predicting nothing (the baseline)."""

    @property
    def explains(self) -> bool:
        """Whether the rule halves the baseline error."""
        return self.mean <= self.without / 2


@dataclass(frozen=True, slots=True)
class FittedRule:
    """The rule of one kind and element type."""

    kind: str
    dtype: str
    factors: tuple[int, int, int]
    """Of input, filter and result."""
    fitted: Errors
    kept_out: Errors | None
    """On the held-out models; None where they have no such convolution."""

    @property
    def useful(self) -> bool:
        """Whether it improves predictions, also of held-out models."""
        return self.fitted.explains and (self.kept_out is None or self.kept_out.explains)


def kept_out_models(models: Iterable[str]) -> frozenset[str]:
    """A third of the models, chosen by their names alone."""
    return frozenset(sorted(set(models))[KEPT_OUT - 1 :: KEPT_OUT])


def fit_rules(convolutions: Sequence[Convolution], aside: frozenset[str]) -> list[FittedRule]:
    """A rule for each kind and element type that the models of the fit have."""
    found: list[FittedRule] = []
    for kind, dtype in sorted({(one.kind, one.dtype) for one in convolutions}):
        alike = [one for one in convolutions if (one.kind, one.dtype) == (kind, dtype)]
        seen = _distinct(one for one in alike if one.model not in aside)
        if not seen:
            continue
        factors = min(_CANDIDATES, key=lambda factors: (_total(factors, seen), sum(factors), factors))
        other = [one for one in alike if one.model in aside]
        found.append(FittedRule(kind, dtype, factors, errors_of(factors, seen), errors_of(factors, other) if other else None))
    return found


def errors_of(factors: tuple[int, int, int], convolutions: Sequence[Convolution]) -> Errors:
    """How a rule does on these convolutions."""
    off = [abs(_predicted(factors, one) - one.workspace) for one in convolutions]
    shares = [miss / one.touched for miss, one in zip(off, convolutions, strict=True)]
    without = statistics.fmean(one.workspace / one.touched for one in convolutions)
    exact = sum(miss <= _EXACT for miss in off)
    return Errors(len(off), exact, statistics.median(shares), max(shares), statistics.fmean(shares), without)


def _predicted(factors: tuple[int, int, int], one: Convolution) -> int:
    return factors[0] * one.input + factors[1] * one.filter + factors[2] * one.output


def _total(factors: tuple[int, int, int], convolutions: Sequence[Convolution]) -> float:
    """Sum of the errors as shares, so that a few large convolutions do not decide alone."""
    return sum(abs(_predicted(factors, one) - one.workspace) / one.touched for one in convolutions)


def _distinct(convolutions: Iterable[Convolution]) -> list[Convolution]:
    """Each convolution once: deep networks repeat the same one many times."""
    return list({(one.input, one.filter, one.output, one.workspace): one for one in convolutions}.values())
