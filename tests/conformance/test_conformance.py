"""irscope is right about the shapes of the backend tests of onnx: wrong nowhere, and exact where its peers are or better."""

from __future__ import annotations

import zlib
from functools import cache

import pytest

from tests.tools.conformance.grade import Grade, ListAnswer, OtherAnswer, TensorAnswer, grade
from tests.tools.conformance.modes import MODES, prepare
from tests.tools.conformance.run import Score, score
from tests.tools.conformance.suite import Case, Map, Optional_, Sequence_, Tensor, load_suite

LEAST_EXACT = {"T": 84.0, "V": 98.5, "S": 92.0}
"""Percent of all models whose every result must be exact."""
SAMPLE = 13
"""One of so many models is in the sample, whatever its place in the suite."""


@cache
def suite() -> list[Case]:
    return load_suite()


@cache
def sample() -> list[Case]:
    return [case for case in suite() if zlib.crc32(case.name.encode()) % SAMPLE == 0]


def told(found: Score, bad: Grade) -> str:
    return "\n".join(outcome.line() for outcome in found.of(bad))


@pytest.mark.parametrize("mode", MODES)
def test_sample(mode: str) -> None:
    """Few models, but of every kind; shares may differ from those of the whole by a few points."""
    assert len(sample()) >= 140
    found = score("irscope", mode, sample())
    assert not found.of(Grade.ERROR), told(found, Grade.ERROR)
    assert not found.of(Grade.WRONG), told(found, Grade.WRONG)
    assert found.exact_share >= LEAST_EXACT[mode] - 4, found.row()


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_whole_suite(mode: str) -> None:
    found = score("irscope", mode, suite())
    print(f"\n{found.row()}")
    assert not found.of(Grade.ERROR), told(found, Grade.ERROR)
    assert not found.of(Grade.WRONG), told(found, Grade.WRONG)
    assert found.exact_share >= LEAST_EXACT[mode], found.row()


# -- the harness itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_no_declared_result_type_is_left(mode: str) -> None:
    for case in sample():
        model = prepare(case, mode)
        assert not any(info.HasField("type") for info in model.graph.output), case.name
        assert not model.graph.value_info, case.name


def test_values_leave_no_tensor_input() -> None:
    for case in sample():
        given = sum(raw is not None for raw in case.inputs)
        before, after = prepare(case, "T").graph, prepare(case, "V").graph
        assert len(before.input) - len(after.input) == len(after.initializer) - len(before.initializer) <= given, case.name


def test_symbols_replace_sizes() -> None:
    case = next(case for case in suite() if case.name == "test_abs")
    dims = prepare(case, "S").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in dims] == ["d3", "d4", "d5"]


F32, I64 = 1, 7


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (TensorAnswer(F32, (2, 3)), Grade.EXACT),
        (TensorAnswer(0, (2, 3)), Grade.PARTIAL),
        (TensorAnswer(F32, (2, None)), Grade.PARTIAL),
        (TensorAnswer(F32, None), Grade.UNKNOWN),
        (None, Grade.UNKNOWN),
        (TensorAnswer(F32, (2, 4)), Grade.WRONG),
        (TensorAnswer(F32, (None, 4)), Grade.WRONG),
        (TensorAnswer(F32, (2,)), Grade.WRONG),
        (TensorAnswer(I64, None), Grade.WRONG),
        (ListAnswer(TensorAnswer(F32, (2, 3))), Grade.WRONG),
        (OtherAnswer(), Grade.WRONG),
    ],
)
def test_grades_of_tensors(answer: TensorAnswer | ListAnswer | OtherAnswer | None, expected: Grade) -> None:
    assert grade(Tensor(F32, (2, 3)), answer) is expected


def test_grades_of_lists() -> None:
    same = Sequence_((Tensor(F32, (2,)), Tensor(F32, (2,))), F32)
    mixed = Sequence_((Tensor(F32, (2,)), Tensor(F32, (3,))), F32)
    known, open_, other = (ListAnswer(TensorAnswer(F32, (2,))), ListAnswer(TensorAnswer(F32, None)), ListAnswer(TensorAnswer(I64, None)))
    assert [grade(same, answer) for answer in (known, open_, other)] == [Grade.EXACT, Grade.UNKNOWN, Grade.WRONG]
    assert [grade(mixed, answer) for answer in (known, open_, other)] == [Grade.WRONG, Grade.EXACT, Grade.WRONG]
    assert grade(Sequence_((), F32), open_) is Grade.EXACT
    assert grade(Sequence_((), F32), other) is Grade.WRONG


def test_grades_of_optionals_and_maps() -> None:
    maybe = ListAnswer(TensorAnswer(F32, (2,)), is_optional=True)
    assert grade(Optional_(Tensor(F32, (2,))), maybe) is Grade.EXACT
    assert grade(Optional_(Tensor(F32, (3,))), maybe) is Grade.WRONG
    assert grade(Optional_(None), maybe) is Grade.EXACT
    assert grade(Tensor(F32, (2,)), maybe) is Grade.WRONG
    assert grade(Map(), OtherAnswer()) is Grade.EXACT
    assert grade(Map(), maybe) is Grade.WRONG
