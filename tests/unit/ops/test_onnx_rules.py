"""What ONNX does and PyTorch does not: other rules, strings, classical learning; differences of neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, map_of, sequence, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import Absent, OpCall, RuleError
from tests.unit.ops.calling import cost, evaluate, f32, i64, infer, shape, shape_of, shapes, spec_of, t, value

# What ONNX does differently from PyTorch.


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
    assert found.tolist() == [["a"], ["b"]]


# Strings: pieces, stop words and what stays unknown without the strings.


def words(*texts: str) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    return np.asarray(texts, dtype=object)


def strings(*shape: int) -> TensorType:
    return tensor(DType.STR, shape)


def test_pieces_are_filled_up() -> None:
    known = (words("a,b,c", "d"),)
    y, counts = infer("text.split", strings(2), values=known, delimiter=",", results=2)
    assert (str(y), str(counts)) == ("str[2,3]", "i64[2]")
    pieces, numbers = evaluate("text.split", strings(2), values=known, delimiter=",", results=2)  # type: ignore[misc]  # two results
    assert pieces.tolist() == [["a", "b", "c"], ["d", "", ""]]
    assert numbers.tolist() == [3, 1]
    assert shape_of("text.split", strings(2), values=known, delimiter=",", maxsplit=1) == (2, 2)
    assert shape_of("text.split", strings(1), values=(words("  a   b "),)) == (1, 2)


def test_unknown_strings_leave_the_number_of_pieces_open() -> None:
    found = shape_of("text.split", strings(2, 3))
    assert found[:2] == (2, 3)
    assert isinstance(found[2], SymDim)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, ["Monday", "tuesday"]),
        ({"stopwords": ("monday",)}, ["tuesday"]),
        ({"stopwords": ("monday",), "is_case_sensitive": True}, ["Monday", "tuesday"]),
        ({"stopwords": ("monday", "tuesday"), "case_change_action": "UPPER"}, [""]),
        ({"case_change_action": "UPPER"}, ["MONDAY", "TUESDAY"]),
        ({"stopwords": ("Monday",), "is_case_sensitive": True, "case_change_action": "LOWER"}, ["tuesday"]),
    ],
)
def test_stop_words_go(attrs: dict[str, object], expected: list[str]) -> None:
    known = (words("Monday", "tuesday"),)
    assert shape_of("text.normalizer", strings(2), values=known, **attrs) == (len(expected),)
    assert np.asarray(evaluate("text.normalizer", strings(2), values=known, **attrs)).tolist() == expected
    row = (known[0].reshape(1, 2),)
    assert shape_of("text.normalizer", strings(1, 2), values=row, **attrs) == (1, len(expected))


def test_without_stop_words_sizes_stay() -> None:
    assert shape_of("text.normalizer", strings(4)) == (4,)
    with pytest.raises(RuleError):
        shape_of("text.normalizer", strings(1, 2, 3))


def test_joined_strings_broadcast() -> None:
    known = (words("a", "b").reshape(2, 1), words("x", "y"))
    assert shape_of("text.concat", strings(2, 1), strings(2), values=known) == (2, 2)
    assert np.asarray(evaluate("text.concat", strings(2, 1), strings(2), values=known)).tolist() == [["ax", "ay"], ["bx", "by"]]


def test_counts_of_ngrams_are_as_wide_as_their_indexes() -> None:
    assert shape_of("text.tfidf", tensor(DType.I32, (3, 12)), ngram_indexes=(0, 4, 2)) == (3, 5)
    assert str(infer("text.regex_full_match", strings(2, 1), pattern="a*")[0]) == "bool[2,1]"


# Classical learning, optimizer steps and control flow: what the other oracles do not run.


def test_labels_decide_classes_and_element_type() -> None:
    rows = symbol("N")
    found = infer("learn.tree_classifier", f32(rows, 4), labels=("a", "b", "c"), results=2)
    assert [str(type_) for type_ in found] == ["str[N]", "f32[N,3]"]
    one = infer("learn.linear_classifier", f32(4), labels=(3, 4), results=2)
    assert [str(type_) for type_ in one] == ["i64[1]", "f32[1,2]"]
    scores = infer("learn.svm_classifier", f32(rows, 4), labels=(0, 1, 2), results=2)[1]
    assert str(scores).startswith("f32[N,?")
    for classes, pairs in ((2, 2), (3, 3), (5, 10)):
        scores = infer("learn.svm_classifier", f32(rows, 4), labels=tuple(range(classes)), compares_pairs=True, results=2)[1]
        assert str(scores) == f"f32[N,{pairs}]"


def test_targets_and_dictionaries() -> None:
    assert shape_of("learn.tree_ensemble", f32(5, 3), targets=2) == (5, 2)
    assert str(infer("learn.zip_map", f32(5, 2), labels=("x", "y"))[0]) == "seq(map(str, f32[]))"
    assert str(infer("learn.cast_map", map_of(DType.I64, f32()), map_form="SPARSE", max_map=7)[0]) == "f32[1,7]"
    assert str(infer("learn.dict_vectorizer", map_of(DType.STR, i64()))[0]) == "i64[*]"
    with pytest.raises(RuleError):
        infer("learn.dict_vectorizer", f32(3))


def test_linear_models_are_products() -> None:
    found = cost("learn.linear_regressor", f32(10, 4), targets=3)
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


# Differences of neighbours.


@pytest.mark.parametrize(("shape", "axis", "n"), [((5,), 0, 1), ((2, 7), -1, 2), ((3, 4), 0, 3), ((3, 4), 0, 9)])
def test_agrees_with_numpy(shape: tuple[int, ...], axis: int, n: int) -> None:
    spec = find_op("math.diff")
    assert spec is not None
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) ** 2
    call = OpCall(spec, [tensor(DType.I64, shape)], {"axis": axis, "n": n}, [x])
    wanted = np.diff(x, n, axis)
    assert spec.infer_types(call) == (tensor(DType.I64, wanted.shape),)
    assert np.array_equal(np.asarray(spec.evaluate(call)), wanted)


def test_symbolic_size_and_joined_ends() -> None:
    spec = find_op("math.diff")
    types = [tensor(DType.I64, (symbol("n", 2), 3)), tensor(DType.I64, (1, 3)), None]
    assert str(spec.infer_types(OpCall(spec, types, {"axis": 0}))[0]) == "i64[n,3]"
