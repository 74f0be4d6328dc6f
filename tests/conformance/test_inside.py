"""No value inside any model of the suite has a shape or an element that the reference evaluator contradicts."""

from __future__ import annotations

import onnx
import pytest

from tests.conformance.test_conformance import sample, suite
from tests.tools.conformance.grade import Grade
from tests.tools.conformance.inside import findings, reference
from tests.tools.conformance.modes import MODES
from tests.tools.conformance.suite import Case

_MOST_NODES = 60
"""The evaluator is written in Python: whole networks would take it minutes."""


def _small(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.kind == "node" or len(onnx.ModelProto.FromString(case.model).graph.node) <= _MOST_NODES]


def _check(cases: list[Case]) -> tuple[int, int]:
    shapes = elements = 0
    wrong: list[str] = []
    for case in _small(cases):
        made = reference(case)
        for mode in MODES if made else ():
            for finding in findings(case, mode, made):
                shapes += 1
                elements += finding.elements is not None
                if finding.grade is Grade.WRONG or finding.elements is False:
                    wrong.append(f"{mode} {case.name} {finding.name} ({finding.op}): {finding.said}")
    assert not wrong, "\n".join(wrong[:20])
    return shapes, elements


@pytest.mark.slow
def test_sample() -> None:
    shapes, elements = _check(sample())
    assert shapes > 500
    assert elements > 200


@pytest.mark.full
def test_whole_suite() -> None:
    shapes, elements = _check(suite())
    print(f"\n{shapes} shapes and {elements} arrays of values agree")
    assert shapes > 30_000
    assert elements > 15_000
