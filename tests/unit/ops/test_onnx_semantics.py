"""What ONNX does differently from PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dtypes import DType
from irscope.ir.types import Type, sequence, tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calling import evaluate, infer, shape, shapes, t, value


def test_integer_division_truncates() -> None:
    x, y = np.array([-7, 7, -7], dtype=np.int32), np.array([2, -2, -2], dtype=np.int32)
    assert value("math.div", x, y, rounding_mode="c") == [-3, -3, 3]
    assert value("math.div", x.astype(np.float32), y.astype(np.float32), rounding_mode="c") == [-3.5, -3.5, 3.5]
    assert shape("math.div", "i32[2]", "i32[2]", rounding_mode="c") == "i32[2]"
    assert shape("math.div", "i32[2]", "i32[2]") == "f32[2]"


def test_power_keeps_the_base_type() -> None:
    assert shape("math.pow", "i32[2]", "f32[2]", keep_dtype=True) == "i32[2]"
    assert value("math.pow", np.array([2, 3], dtype=np.int32), np.array([2.5, 2.0], dtype=np.float32), keep_dtype=True) == [5, 9]


def test_scalar_axes() -> None:
    assert shape("view.flatten_2d", "f32[]", axis=0) == "f32[1,1]"
    assert shape("view.flatten_2d", "f32[2,3,4]", axis=-1) == "f32[6,4]"
    assert shape("view.unsqueeze", "f32[]", axes=(0, 1)) == "f32[1,1]"
    assert shape("tensor.nonzero", np.array(5.0), by_axis=True) == "i64[0,1]"


def test_reduction_without_axes() -> None:
    assert shape("reduce.sum", "f32[2,3]", keepdims=True) == "f32[1,1]"
    assert shape("reduce.sum", "f32[2,3]", noop_with_empty_axes=True) == "f32[2,3]"
    assert shape("reduce.sum", "f32[2,3]", "i64[0]", noop_with_empty_axes=True) == "f32[2,3]"
    assert shape("reduce.sum", "f32[2,3]", np.array([], dtype=np.int64)) == "f32[]"
    assert shape("reduce.max", "f32[*]") == "f32[]"
    assert value("reduce.max", np.zeros((0, 2), dtype=np.float32), axes=(0,)) == [-np.inf, -np.inf]


def test_equal_parts_and_uneven_ones() -> None:
    results = [t("f32[*]")] * 3
    assert [str(part) for part in infer("view.split", "f32[7]", results=results, num_outputs=3)] == ["f32[3]", "f32[3]", "f32[1]"]
    assert [str(part) for part in infer("view.split", "f32[6]", results=results)] == ["f32[2]"] * 3
    with pytest.raises(RuleError):
        infer("view.split", "f32[7]", results=results)


def test_unknown_part_sizes_do_not_become_equal_parts() -> None:
    assert shapes("view.split", "f32[6]", "i64[2]") == ["f32[?u0]", "f32[?u1]"]


def test_sequences() -> None:
    element = tensor(DType.F32, (2, 3))
    whole = sequence(element)
    assert infer("seq.construct", "f32[2,3]", "f32[2,3]") == (whole,)
    assert str(infer("seq.construct", "f32[2,3]", "f32[4,3]")[0]) == "seq(f32[?u0,3])"
    assert infer("seq.at", whole, np.array(0)) == (element,)
    assert str(infer("seq.split", "f32[6,4]", np.array(2), axis=0)[0]) == "seq(f32[2,4])"
    assert str(infer("seq.split", "f32[7,4]", np.array(2), axis=0)[0]) == "seq(f32[?u0,4])"
    assert str(infer("seq.split", "f32[7,4]", axis=0, keepdims=False)[0]) == "seq(f32[4])"
    assert str(infer("seq.concat_from", whole, axis=1)[0]) == "f32[2,?u0]"
    assert str(infer("seq.concat_from", whole, axis=1, new_axis=True)[0]) == "f32[2,?u0,3]"
    assert shape("seq.length", whole) == "i64[]"


def test_optionals_tuples_and_dictionaries() -> None:
    made: Type = infer("optional.make", "f32[2]")[0]
    assert str(made) == "optional(f32[2])"
    assert shape("optional.get", made) == "f32[2]"
    assert shape("optional.has", None) == "bool[]"
    pair = infer("tuple.make", "f32[2]", "i64[]")[0]
    assert shape("tuple.get", pair, index=-1) == "i64[]"
    assert shapes("seq.unpack", pair) == ["f32[2]", "i64[]"]
    named = infer("map.make", "f32[2]", "f32[2]", keys=("a", "b"))[0]
    assert str(named) == "map(str, f32[2])"
    assert shape("map.get", named, key="a") == "f32[2]"


def test_suppressed_boxes() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], dtype=np.float32)
    scores = np.array([[[0.9, 0.75, 0.6]]], dtype=np.float32)
    limits = [np.array([3]), np.array([0.5], dtype=np.float32), np.array([0.0], dtype=np.float32)]
    assert value("vision.non_max_suppression", boxes, scores, *limits) == [[0, 0, 0], [0, 0, 2]]
    assert shape("vision.non_max_suppression", "f32[1,3,4]", "f32[1,1,3]") == "i64[0,3]"
    assert shape("vision.non_max_suppression", "f32[1,3,4]", "f32[1,1,3]", "i64[]") == "i64[?u0,3]"
    assert value("vision.nms", boxes[0], scores[0, 0], iou_threshold=0.5) == [0, 2]


def test_random_tensors_and_casts_like() -> None:
    assert shape("random.bernoulli", "f64[3]") == "f64[3]"
    assert shape("tensor.cast_like", "f32[n]", "i8[2]") == "i8[n]"
    assert value("tensor.cast_like", np.array([1.7]), np.array([1], dtype=np.int8)) == [1]
    assert shapes("nn.dropout", "f32[n]") == ["f32[n]", "bool[n]"]


def test_running_sums_from_the_end() -> None:
    x = np.array([1.0, 2.0, 3.0])
    assert value("tensor.cumsum", x, np.array(0), exclusive=True) == [0, 1, 3]
    assert value("tensor.cumsum", x, np.array(0), reverse=True) == [6, 5, 3]
    assert value("tensor.cumsum", x, np.array(0), exclusive=True, reverse=True) == [5, 3, 0]


def test_ranges_with_unknown_limits() -> None:
    assert shape("tensor.arange", "i64[]", "i64[]", "i64[]") == "i64[?u0]"
    assert shape("tensor.arange", np.array(10), np.array(4), np.array(-2)) == "i64[3]"
    with pytest.raises(RuleError, match="step is 0"):
        infer("tensor.arange", np.array(0), np.array(4), np.array(0))


def test_texts() -> None:
    words = np.array(["a", "b"], dtype=object)
    call_types = tensor(DType.STR, (2,))
    assert shape("compare.equal", call_types, call_types) == "bool[2]"
    found = evaluate("view.reshape", words, shape=(2, 1))
    assert found is not None
    assert found[0] is not None
    assert found[0].tolist() == [["a"], ["b"]]
