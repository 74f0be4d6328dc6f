"""A captured training step as a checkpointing problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, make_problem
from irscope.training import Piece, StepOp, Trace


@dataclass(frozen=True)
class StepProblem:
    """The problem of the steady step, and what its numbers stand for."""

    problem: CheckpointProblem
    ops: list[StepOp]
    pieces: list[Piece]


def step_problem(trace: Trace, seconds: Callable[[StepOp], float], *, replay_random: bool = True) -> StepProblem:
    """The steady step; what is not on the device does not count."""
    span = trace.steady
    captured = [op for op in trace.in_step(span) if any(piece.on_device for piece in op.writes)]
    place: list[int] = []
    count = 0
    for op in trace.in_step(span):
        if count < len(captured) and captured[count] is op:
            count += 1
        place.append(count - 1)
    pieces = [piece for piece in trace.pieces if piece.on_device and _is_in(piece, span.first, span.end)]
    number = {piece: at for at, piece in enumerate(pieces)}
    storages = []
    for piece in pieces:
        stays = piece.died is None or piece.died > span.end
        held = -1 if piece.died is None or stays else place[max(0, piece.died - 1 - span.first)]
        before = piece.born is None or piece.born < span.first
        storages.append(StepStorage(piece.name, piece.size, is_input=before, is_output=stays, held=held))
    operators = [
        StepOperator(
            op.name,
            tuple(number[piece] for piece in op.reads if piece in number),
            tuple(number[piece] for piece in op.writes if piece in number),
            seconds(op),
            Phase[op.phase.upper()],
            Repeat.REPLAYED if op.is_random else Repeat.FREELY,
            module=op.scope.module,
        )
        for op in captured
    ]
    return StepProblem(make_problem(operators, storages, replay_random=replay_random), captured, pieces)


def _is_in(piece: Piece, first: int, end: int) -> bool:
    """Whether a piece is there at some time of a step."""
    return (piece.born is None or piece.born < end) and (piece.died is None or piece.died > first)
