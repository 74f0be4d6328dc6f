"""Formulas of peaks: from how much is alive at the same moment of programs that ask alike at several sizes.

Between programs that make the same requests in the same order, what is alive at a moment is a sum of sizes. Where these are polynomials of
the batch and of a length, so is the sum; it is found from as many programs as it has coefficients, and held against others.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Powers: TypeAlias = "tuple[int, int]"
"""Of the batch and of the length."""


@dataclass(frozen=True, eq=True)
class Polynomial:
    """Bytes by a batch and a length."""

    terms: Mapping[Powers, int]

    def __call__(self, batch: int, length: int) -> int:
        return sum(factor * batch**i * length**j for (i, j), factor in self.terms.items())

    def text(self, length: str) -> str:
        """As Python would compute it."""
        parts = []
        for power in (1, 0):
            inner = [_term(self.terms[power, j], length, j) for j in (2, 1, 0) if self.terms.get((power, j))]
            joined = " + ".join(inner).replace("+ -", "- ")
            if inner:
                parts.append(joined if not power else f"batch*({joined})" if len(inner) > 1 else f"batch*{joined}")
        return " + ".join(parts).replace("+ -", "- ") or "0"


def _term(factor: int, length: str, power: int) -> str:
    inner = f"({length})" if " " in length else length
    return str(factor) if not power else f"{factor}*{inner}" + (f"**{power}" if power > 1 else "")


@dataclass(frozen=True)
class PeakFormula:
    """The highest of some polynomials: moments at which most is alive, for smaller or larger sizes."""

    moments: tuple[Polynomial, ...]
    length: str
    """What the length is called: the prompt, or the tokens there are at the end."""
    first: int
    last: int
    """Lengths between which it was held against programs that were run."""
    besides: Polynomial | None = None
    """What is there by the batch and the prompt, where the length is not the prompt's: its ids and mask."""

    def __call__(self, batch: int, length: int, prompt: int = 0) -> int:
        return max(one(batch, length) for one in self.moments) + (self.besides(batch, prompt) if self.besides is not None else 0)

    def __str__(self) -> str:
        texts = [one.text(self.length) for one in self.moments]
        found = texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"
        return f"{found} + {self.besides.text('prompt')}" if self.besides is not None else found


Samples: TypeAlias = "Mapping[tuple[int, int], Sequence[int]]"
"""What is alive after each request, by batch and length."""


def peak_formula(used: Samples, held_against: Samples, degree: int, length: str) -> PeakFormula | None:
    """The formula of a peak; None where no polynomial of the batch and of a length in that degree is what was counted.

    `used` are two batches with one length more than the degree each.
    """
    everything = {**used, **held_against}
    if len({len(one) for one in everything.values()}) != 1:
        return None
    moments = dict.fromkeys(max(range(len(one)), key=one.__getitem__) for one in everything.values())
    seen: list[Polynomial] = []
    for moment in moments:
        made = polynomial_through({place: one[moment] for place, one in used.items()}, degree)
        if made is None or any(made(*place) != one[moment] for place, one in held_against.items()):
            continue
        if made not in seen:
            seen.append(made)
    lengths = [place[1] for place in everything]
    answer = PeakFormula(tuple(seen), length, min(lengths), max(lengths))
    return answer if seen and all(answer(*place) == max(one) for place, one in everything.items()) else None


def polynomial_through(values: Mapping[tuple[int, int], int], degree: int) -> Polynomial | None:
    """The polynomial, with whole coefficients, through values at two batches and degree + 1 lengths each."""
    batches = sorted({batch for batch, _ in values})
    lengths = sorted({length for _, length in values})
    rows = [_newton(lengths, [values[batch, length] for length in lengths]) for batch in batches]
    terms: dict[Powers, int] = {}
    for power in range(degree + 1):
        slope = (rows[1][power] - rows[0][power]) / (batches[1] - batches[0])
        for exponent, factor in ((1, slope), (0, rows[0][power] - slope * batches[0])):
            if factor.denominator != 1:
                return None
            if factor:
                terms[exponent, power] = int(factor)
    return Polynomial(terms)


def _newton(places: Sequence[int], values: Sequence[int]) -> list[Fraction]:
    """Coefficients of the polynomial through values at places, the constant first."""
    differences = [Fraction(one) for one in values]
    for step, at in itertools.product(range(1, len(places)), range(len(places) - 1, 0, -1)):
        if at >= step:
            differences[at] = (differences[at] - differences[at - 1]) / (places[at] - places[at - step])
    found = [Fraction(0)] * len(places)
    for place, difference in zip(reversed(places), reversed(differences), strict=True):
        found = [difference - place * found[0]] + [below - place * one for below, one in itertools.pairwise(found)]
    return found
