"""Every value of models exported by torch has the type that a run gives it, and every node has a cost."""

from __future__ import annotations

import pytest
from onnx import ModelProto, parser

from irscope.ir.types import Type
from tests.tools.conformance.grade import Grade
from tests.tools.conformance.real_exports import (
    EXAMPLE,
    GROUPS,
    MORE,
    NAMES,
    OTHER,
    PACKAGES,
    Graded,
    arithmetic,
    exact_share,
    exported,
    grade_graph,
    grade_model,
    inferred,
    missing_packages,
    program_of,
    table,
)

_LEAST_EXACT = {"optimised": 100.0, "plain": 99.0, "ort": 98.0}
_SMALLEST = "resnet"

needs_exporter = pytest.mark.skipif(bool(missing_packages()), reason=f"needs {', '.join(PACKAGES)}: make test EXTRAS=dev,torch,ort,zoo")


def _check(graphs: list[Graded]) -> None:
    bad = [line for graded in graphs for line in graded.bad]
    assert not any(grade is Grade.WRONG for graded in graphs for grade in graded.grades.values()), "\n".join(bad[:20])
    for group, kinds in GROUPS.items():
        share = exact_share(graded for graded in graphs if graded.kind in kinds)
        assert share >= _LEAST_EXACT[group], "\n".join([f"{group}: {share:.2f} %", *bad[:20]])


def _check_arithmetic(name: str) -> None:
    found = {kind: arithmetic(path, OTHER) for kind, path in exported(name).items()}
    assert {kind: one.unknown for kind, one in found.items()} == dict.fromkeys(found, ())
    assert len({one.matmul for one in found.values()}) == 1, found
    assert found["plain"].matmul


@needs_exporter
def test_smallest_model() -> None:
    _check(grade_model(_SMALLEST))
    _check_arithmetic(_SMALLEST)


@needs_exporter
@pytest.mark.full
def test_figures(capsys: pytest.CaptureFixture[str]) -> None:
    graphs = [graded for name in NAMES for graded in grade_model(name)]
    with capsys.disabled():
        print("", *table(graphs), sep="\n")
    _check(graphs)
    assert sum(len(graded.grades) for graded in graphs) > 2000


@needs_exporter
@pytest.mark.full
@pytest.mark.parametrize("name", MORE)
def test_more_models(name: str) -> None:
    _check(grade_model(name))


@needs_exporter
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES + MORE)
def test_optimising_keeps_the_matrix_products(name: str) -> None:
    _check_arithmetic(name)


# -- the comparison itself ---------------------------------------------------------------------------------------


def _model(body: str, batch: int | str = "batch") -> ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch}, seq] x) => (float[a, b] y) {{ {body} }}'
    return parser.parse_model(text)


def _grades(model: ModelProto, types: dict[str, Type]) -> dict[str, Grade]:
    return grade_graph("model", "plain", model, types).grades


@pytest.mark.ort
def test_grades() -> None:
    model = _model("t = Transpose <perm = [1, 0]> (x)  n = NonZero (t)  y = Relu (t)")
    found = inferred(program_of(model))
    assert _grades(model, found) == {"t": Grade.EXACT, "n": Grade.PARTIAL, "y": Grade.EXACT}
    del found["y"]
    assert _grades(model, found)["y"] is Grade.UNKNOWN


@pytest.mark.ort
def test_other_sizes_are_wrong_even_if_they_fit_the_example() -> None:
    model = _model("y = Identity (x)")
    assert _grades(model, inferred(program_of(_model("y = Transpose <perm = [1, 0]> (x)")))) == {"y": Grade.WRONG}
    assert _grades(model, inferred(program_of(_model("y = Identity (x)", EXAMPLE["batch"])))) == {"y": Grade.WRONG}


def test_declared_types_are_not_looked_at() -> None:
    model = _model("n = NonZero (x)  y = Cast <to = 1> (n)")
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 6
    assert "6" not in str(inferred(program_of(model))["y"])
