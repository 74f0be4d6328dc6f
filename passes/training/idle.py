"""Tensors that the forward saves for the backward: when each is used, how long it is unused, and what recomputing it would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from irscope.passes.training.times import StepTimes
from irscope.training import Piece, Trace

_MOST_OPERATORS = 10_000
"""Of one recomputation: further back it cannot be worth it."""


@dataclass(frozen=True)
class Kept:
    """One piece of memory that the forward makes and the backward needs; positions count the operators of the step."""

    piece: Piece
    created: int
    last_forward: int
    first_backward: int | None
    """None where nothing of the backward reads it: Python or autograd only holds it."""
    last_backward: int | None
    idle_seconds: float
    recompute_seconds: float | None
    """None where it cannot be computed again, as what it was made of has been written over."""
    recompute_bytes: int
    """What recomputing makes on the way, itself included."""
    recomputed: int
    """Operators that would run again."""
    needs_random_state: bool
    """Whether some of them draw random numbers."""
    swap_seconds: float


def kept_pieces(trace: Trace, times: StepTimes, link: float) -> list[Kept]:
    """What the steady step keeps, in order of creation; `link` is in bytes a second."""
    return list(_Search(trace, times, link).run())


class _Search:
    def __init__(self, trace: Trace, times: StepTimes, link: float) -> None:
        self._span = trace.steady
        self._ops = trace.in_step(self._span)
        self._seconds = [times.of(op) for op in self._ops]
        self._clock = [0.0, *accumulate(self._seconds)]
        self._link = link
        self._trace = trace
        self._writers: dict[Piece, list[int]] = {}
        self._readers: dict[Piece, list[int]] = {}
        for at, op in enumerate(self._ops):
            if op.is_view:
                continue
            for piece in op.writes:
                self._writers.setdefault(piece, []).append(at)
            for piece in op.reads:
                self._readers.setdefault(piece, []).append(at)

    def run(self) -> Iterator[Kept]:
        """Each kept piece."""
        for piece in self._trace.pieces:
            if piece.category != "activation" or not piece.on_device or not piece.size:
                continue
            if piece.born is None or not self._span.first <= piece.born < self._span.end:
                continue
            yield self._kept(piece, piece.born - self._span.first)

    def _kept(self, piece: Piece, created: int) -> Kept:
        touched = sorted({*self._readers.get(piece, ()), *self._writers.get(piece, ())})
        forward = [at for at in touched if self._ops[at].phase == "forward"]
        backward = [at for at in self._readers.get(piece, ()) if self._ops[at].phase == "backward"]
        last = forward[-1] if forward else created
        first = next((at for at in backward if at > last), None)
        end = first if first is not None else self._death(piece)
        idle = max(self._clock[end] - self._clock[last + 1], 0.0)
        again = self._again(piece, last, end)
        seconds = None if again is None else sum(self._seconds[at] for at in again)
        made = {one for at in again or () for _, one in self._ops[at].makes}
        return Kept(
            piece,
            created,
            last,
            first,
            backward[-1] if first is not None else None,
            idle,
            seconds,
            max(sum(one.size for one in made if one.on_device), piece.size),
            len(again or ()),
            any(self._ops[at].is_random for at in again or ()),
            piece.size / self._link,
        )

    def _death(self, piece: Piece) -> int:
        died = self._span.end if piece.died is None else min(piece.died, self._span.end)
        return max(died - self._span.first, 0)

    def _again(self, piece: Piece, until: int, when: int) -> list[int] | None:
        """Operators to run again for a piece as it was after `until`, given what is alive at `when`; None where that is impossible."""
        needed: dict[int, None] = {}
        pending = [(piece, until)]
        seen: set[tuple[Piece, int]] = set()
        while pending:
            wanted, moment = pending.pop()
            if (wanted, moment) in seen:
                continue
            seen.add((wanted, moment))
            writers = [at for at in self._writers.get(wanted, ()) if at <= moment]
            if not writers:
                if not self._is_there(wanted, when):
                    return None
                continue
            for at in writers:
                if at in needed:
                    continue
                if self._ops[at].phase != "forward" or len(needed) >= _MOST_OPERATORS:
                    return None
                needed[at] = None
                pending += [
                    (source, at)
                    for source in self._ops[at].reads
                    if source is not wanted and source is not piece and not self._holds(source, at, when)
                ]
        return sorted(needed)

    def _is_there(self, piece: Piece, when: int) -> bool:
        return (piece.born is None or piece.born - self._span.first <= when) and self._death(piece) > when

    def _holds(self, piece: Piece, read: int, when: int) -> bool:
        """Whether what was read is still there, unchanged."""
        if not self._is_there(piece, when):
            return False
        return not any(read < at < when for at in self._writers.get(piece, ()))
