"""Formulas of peaks: from how much is alive at the same moment of programs at several sizes.

Moments are the same where as many blocks of the same origin are alive, in whatever order they were asked for. Where sizes of blocks are
polynomials of batch, prompt and new tokens, so is their sum; it is found from some programs, and held against others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

from irscope.immutable import immutable


class Sizes(NamedTuple):
    """Sizes that the user chooses."""

    batch: int
    prompt: int
    new: int


Powers: TypeAlias = "tuple[int, int, int]"
"""Of the batch, the prompt and new tokens."""
Moments: TypeAlias = "Mapping[int, int]"
"""Live bytes by what they are made of."""
BY_PROMPT: Final = ((0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0))
BY_BOTH: Final = ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0), (1, 1, 0), (1, 0, 1))


@immutable(slots=False)
class Window:
    """Bytes of each sequence that grow with the tokens until so many are seen."""

    rate: int
    most: int
    of: str
    """The prompt, or prompt + new."""

    def __call__(self, at: Sizes) -> int:
        return at.batch * self.rate * min(at.prompt + (at.new if self.of != "prompt" else 0), self.most)


@immutable(slots=False)
class Polynomial:
    """Bytes by the sizes, with what windows keep."""

    terms: Mapping[Powers, int]
    windows: tuple[Window, ...] = ()

    def __call__(self, at: Sizes) -> int:
        found: int = sum(factor * at.batch**i * at.prompt**j * at.new**k for (i, j, k), factor in self.terms.items())
        return found + sum(window(at) for window in self.windows)

    def __str__(self) -> str:
        """Return the formula as Python would compute it."""
        parts = []
        for power in (1, 0):
            inner = [f"{window.rate}*min({window.of}, {window.most})" for window in self.windows] if power else []
            inner += self._inner(power)
            joined = " + ".join(inner).replace("+ -", "- ")
            if inner:
                parts.append(joined if not power else f"batch*({joined})" if len(inner) > 1 else f"batch*{joined}")
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def _inner(self, power: int) -> list[str]:
        factor = {(j, k): term for (i, j, k), term in self.terms.items() if i == power}
        both = factor.get((0, 1), 0)
        terms = (
            (factor.get((0, 2), 0), "new**2"),
            (factor.get((2, 0), 0), "prompt**2"),
            (both, "(prompt + new)"),
            (factor.get((1, 0), 0) - both, "prompt"),
        )
        found = [text if one == 1 else f"{one}*{text}" for one, text in terms if one]
        return found + ([str(factor[0, 0])] if factor.get((0, 0)) else [])


@immutable(slots=False)
class Piece:
    """Lengths between which the highest of some moments is told."""

    moments: Mapping[int, Polynomial]
    first: int
    last: int
    """Lengths between which it was held against programs that were run."""
    since: int = 0
    until: int | None = None
    """The first length, and the last that it is for; None for all longer ones."""

    def __str__(self) -> str:
        texts = list(dict.fromkeys(str(moment) for moment in self.moments.values()))
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


@immutable(slots=False)
class PeakFormula:
    """The peak of a phase."""

    pieces: tuple[Piece, ...]
    of: str
    """The length by which pieces are parted: the prompt, or prompt + new."""

    def __call__(self, batch: int, prompt: int, new: int) -> int:
        found = self.gives(batch, prompt, new)
        if found is None:
            raise ValueError(f"there is no formula for {prompt:,} + {new:,} tokens")
        return found

    def gives(self, batch: int, prompt: int, new: int) -> int | None:
        """Return the bytes; None for lengths for which none was found."""
        length = prompt + (new if self.of != "prompt" else 0)
        piece = next((piece for piece in self.pieces if piece.since <= length and (piece.until is None or length <= piece.until)), None)
        return None if piece is None else max(moment(Sizes(batch, prompt, new)) for moment in piece.moments.values())

    @property
    def held(self) -> tuple[tuple[int, int], ...]:
        """Lengths between which it was held against programs that were run."""
        return tuple((piece.first, piece.last) for piece in self.pieces)

    def __str__(self) -> str:
        *short, last = self.pieces
        return "".join(f"{one} if {self.of} <= {one.until} else " for one in short) + str(last)


def moments_formula(counted: Mapping[Sizes, Moments], used: int, powers: Sequence[Powers], peaks: Iterable[int]) -> dict[int, Polynomial]:
    """Return how much is alive at each of some moments, from the first `used` programs, if the others were counted alike."""
    found: dict[int, Polynomial] = {}
    for moment in dict.fromkeys(peaks):
        having = {at: count[moment] for at, count in counted.items() if moment in count}
        made = polynomial_through({at: having[at] for at in [*counted][:used] if at in having}, powers)
        if made is not None and all(made(at) == size for at, size in having.items()):
            found[moment] = made
    return found


def polynomial_through(values: Mapping[Sizes, int], powers: Sequence[Powers]) -> Polynomial | None:
    """Return the one polynomial with such powers and whole coefficients that has these values; None where there is none, or several."""
    rows = [[*(Fraction(at.batch**i * at.prompt**j * at.new**k) for i, j, k in powers), Fraction(size)] for at, size in values.items()]
    for column in range(len(powers)):
        pivot = next((number for number in range(column, len(rows)) if rows[number][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        top = rows[column] = [row / rows[column][column] for row in rows[column]]
        for number, row in enumerate(rows):
            if number != column and row[column]:
                factor = row[column]
                rows[number] = [cell - factor * other for cell, other in zip(row, top, strict=True)]
    if any(row[-1] for row in rows[len(powers) :]) or any(row[-1].denominator != 1 for row in rows):
        return None
    return Polynomial({power: int(row[-1]) for power, row in zip(powers, rows, strict=False) if row[-1]})


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Adjacent pieces as one where they differ by what a window keeps: it grows until the window is full, and no more."""
    found = [pieces[0]]
    for piece in pieces[1:]:
        before = found[-1]
        made = {moment: _piecewise(before.moments[moment], one) for moment, one in piece.moments.items() if moment in before.moments}
        if len(made) == len(piece.moments) == len(before.moments) and all(made.values()):
            moments = {moment: one for moment, one in made.items() if one is not None}
            found[-1] = replace(piece, moments=moments, first=before.first, since=before.since)
        else:
            found.append(piece)
    return tuple(found)


def _piecewise(short: Polynomial, long: Polynomial) -> Polynomial | None:
    """Return what is both: `short` below a length, `long` above."""
    more = {power: short.terms.get(power, 0) - long.terms.get(power, 0) for power in {**short.terms, **long.terms}}
    more = {power: factor for power, factor in more.items() if factor}
    if not more:
        return long
    rate, other, constant = more.pop((1, 1, 0), 0), more.pop((1, 0, 1), 0), -more.pop((1, 0, 0), 0)
    if more or other not in (0, rate) or rate <= 0 or constant % rate or constant <= 0:
        return None
    window = Window(rate, constant // rate, "prompt + new" if other else "prompt")
    terms = {**long.terms, (1, 0, 0): long.terms.get((1, 0, 0), 0) - constant}
    return Polynomial({power: factor for power, factor in terms.items() if factor}, (*short.windows, *long.windows, window))
