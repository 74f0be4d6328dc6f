"""Classical learning, optimizer steps and control flow: what the other oracles do not run."""

from __future__ import annotations

import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import map_of, tensor
from irscope.ops.spec import Absent, RuleError
from tests.unit.ops.calls import cost, f32, i64, infer, shape_of, spec_of


def test_labels_decide_classes_and_element_type() -> None:
    rows = symbol("N")
    found = infer("learn.tree_classifier", f32(rows, 4), labels=("a", "b", "c"), results=2)
    assert [str(type_) for type_ in found] == ["str[N]", "f32[N,3]"]
    one = infer("learn.linear_classifier", f32(4), labels=(3, 4), results=2)
    assert [str(type_) for type_ in one] == ["i64[1]", "f32[1,2]"]
    scores = infer("learn.svm_classifier", f32(rows, 4), labels=(0, 1, 2), results=2)[1]
    assert str(scores).startswith("f32[N,?")


def test_targets_and_dictionaries() -> None:
    assert shape_of("learn.tree_ensemble", f32(5, 3), targets=2) == (5, 2)
    assert str(infer("learn.zip_map", f32(5, 2), labels=("x", "y"))[0]) == "seq(map(str, f32[]))"
    assert str(infer("learn.cast_map", map_of(DType.I64, f32()), map_form="SPARSE", max_map=7)[0]) == "f32[1,7]"
    assert str(infer("learn.dict_vectorizer", map_of(DType.STR, i64()))[0]) == "i64[*]"
    with pytest.raises(RuleError):
        infer("learn.dict_vectorizer", f32(3))


def test_linear_models_are_products() -> None:
    found = cost("learn.linear_regressor", f32(10, 4), targets=3)
    assert found is not None
    assert found.macs == 10 * 4 * 3


def test_steps_return_weights_and_states() -> None:
    rate, count = f32(), tensor(DType.I64, ())
    a, b = f32(3), f32(2, 2)
    adam = infer("train.adam", rate, count, a, b, a, b, a, b, a, b, results=6)
    assert adam == (a, b, a, b, a, b)
    assert infer("train.momentum", rate, count, a, a, a, results=2) == (a, a)
    assert infer("train.gradient", a, b, f32(), count=2, results=2) == (a, b)
    with pytest.raises(RuleError, match="tensors for each weight"):
        infer("train.adagrad", rate, count, a, a)


def test_control_flow_is_left_to_the_passes() -> None:
    for name in ("cf.if", "cf.loop", "cf.scan", "cf.map", "cf.call"):
        assert spec_of(name).infer is Absent.CONTROL
        assert spec_of(name).cost is Absent.CONTROL
    assert spec_of("cf.assert").has_effect
