"""Classical machine learning (the ai.onnx.ml operators). `kept` are the weights that the file has in attributes of the node."""

from __future__ import annotations

from typing import Unpack

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import MapType, Shape, Type, map_of, sequence, tensor
from irscope.ops.cost import Cost
from irscope.ops.rules import dtype_attr, moved, per_element
from irscope.ops.spec import SIZES, Absent, Facts, Family, OpCall, OpSpec, RuleError, numel, op, sizes
from irscope.ops.work import like, products


def _examples(call: OpCall) -> Dim:
    """How many examples there are; a tensor with one axis is one example."""
    shape = call.shape("x")
    if shape is None:
        return call.unknown("the number of examples is not known", SIZES)
    return shape[0] if len(shape) > 1 else 1


def _classes(call: OpCall, fallback: str = "") -> Dim:
    labels = call.attr("labels")
    if labels:
        return len(labels)
    found = call.attr(fallback) if fallback else None
    return len(found) if found else call.unknown("the number of classes depends on how the model stores its coefficients", "", 1)


def _label_dtype(call: OpCall) -> DType:
    labels = call.attr("labels")
    return DType.STR if labels and isinstance(labels[0], str) else DType.I64


def _infer_classifier(call: OpCall) -> tuple[Type, ...]:
    rows, device = _examples(call), call.tensor("x").device
    return call.fit(tensor(_label_dtype(call), (rows,), device), tensor(DType.F32, (rows, _classes(call)), device))


def _infer_svm(call: OpCall) -> tuple[Type, ...]:
    """With probabilities there is one score a class; else the number depends on how classes are compared."""
    rows, device = _examples(call), call.tensor("x").device
    reason = "without probabilities the number of scores depends on how the classes are compared"
    scores = _classes(call) if call.attr("has_probabilities") else call.unknown(reason, "", 1)
    return call.fit(tensor(_label_dtype(call), (rows,), device), tensor(DType.F32, (rows, scores), device))


def _infer_targets(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, DType.F32), (_examples(call), call.int_attr("targets")), x.device)


def _cost_linear(call: OpCall) -> Cost:
    result = call.results[-1]
    features = sizes(call.types[0])[-1]
    return products(numel(result) * features, numel(result))


def _infer_encoded(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(DType.F32, None if x.shape is None else (*x.shape, call.int_attr("categories")), x.device)


def _infer_features(call: OpCall) -> Type:
    parts = call.rest("parts")
    widths = call.attr("widths")
    shapes = [part.shape for part in parts]
    rows: Dim = 1
    total: Dim = 0
    for index, shape in enumerate(shapes):
        if shape is not None and len(shape) > 1:
            rows = shape[0]
        elif shape is None and index == 0:
            rows = call.unknown("the number of examples is not known", SIZES)
        if widths:
            total = total + widths[index]
        else:
            total = total + (product(shape[1:]) if shape is not None and len(shape) > 1 else call.unknown("a part's width is not known"))
    return tensor(DType.F32, (rows, total), parts[0].device if parts else "")


def _infer_extracted(call: OpCall) -> Type:
    x, y = call.tensor("x"), call.shape("indices")
    shape: Shape = None
    if x.shape is not None and y is not None:
        count = product(y)
        shape = (1, count) if len(x.shape) == 1 else (*x.shape[:-1], count)
    return tensor(x.dtype, shape, x.device)


def _infer_zip(call: OpCall) -> Type:
    labels = call.attr("labels")
    return sequence(map_of(DType.STR if labels and isinstance(labels[0], str) else DType.I64, tensor(DType.F32, ())))


def _infer_map_cast(call: OpCall) -> Type:
    length: Dim = call.unknown("the number of elements is that of the dictionary", "")
    if call.attr("map_form") == "SPARSE":
        length = call.int_attr("max_map")
    return tensor(dtype_attr(call, DType.F32), (1, length))


def _infer_dictionary(call: OpCall) -> Type:
    source = call.types[0]
    if not isinstance(source, MapType):
        raise RuleError(f"learn.dict_vectorizer needs a dictionary, not {source}")
    value = source.value
    return tensor(value.dtype, None)


def _infer_relabelled(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, x.dtype), x.shape, x.device)


def _record(schema: str, infer: object, cost: object, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.LEARNING, infer=infer, cost=cost, summary=summary, **facts)  # type: ignore[arg-type]  # passed through


def _two_an_element(call: OpCall) -> Cost:
    return per_element(2)(call)


_PATHS = "the path of an example through a tree, and so the cost, depends on values"

OPS = (
    _record(
        "learn.linear_classifier(Tensor x, Tensor[] kept, *, any labels=[], str post_transform='NONE') -> (Tensor label, Tensor? scores)",
        _infer_classifier,
        _cost_linear,
        "The class with the largest linear function, and the scores of all.",
    ),
    _record(
        "learn.linear_regressor(Tensor x, Tensor[] kept, *, int targets=1, str post_transform='NONE') -> Tensor",
        _infer_targets,
        _cost_linear,
        "Linear functions of the features.",
    ),
    _record(
        "learn.svm_classifier(Tensor x, Tensor[] kept, *, any labels=[], bool has_probabilities=False, str kernel_type='LINEAR') -> "
        "(Tensor label, Tensor? scores)",
        _infer_svm,
        Absent.UNKNOWN,
        "Support vector machine: classes and scores. The number of support vectors decides the cost, which is unknown.",
    ),
    _record(
        "learn.svm_regressor(Tensor x, Tensor[] kept, *, int targets=1, str kernel_type='LINEAR') -> Tensor",
        _infer_targets,
        Absent.UNKNOWN,
        "Support vector machine: a number for each example. The number of support vectors decides the cost, which is unknown.",
    ),
    _record(
        "learn.tree_classifier(Tensor x, Tensor[] kept, *, any labels=[], str post_transform='NONE') -> (Tensor label, Tensor? scores)",
        _infer_classifier,
        Absent.UNKNOWN,
        f"Decision trees that vote on a class; {_PATHS}.",
    ),
    _record(
        "learn.tree_ensemble(Tensor x, Tensor[] kept, *, int targets=1, dtype? dtype, str post_transform='NONE') -> Tensor",
        _infer_targets,
        Absent.UNKNOWN,
        f"Decision trees whose leaves are added up; {_PATHS}.",
    ),
    _record(
        "learn.scaler(Tensor x, Tensor[] kept) -> Tensor",
        like("x", DType.F32),
        _two_an_element,
        "Subtracts an offset and multiplies by a scale.",
    ),
    _record(
        "learn.normalizer(Tensor x, *, str norm='MAX') -> Tensor",
        like("x", DType.F32),
        lambda call: Cost(elementwise=numel(call.results[0]) * 2, reduction=numel(call.results[0])),
        "Divides each row by its norm.",
    ),
    _record("learn.imputer(Tensor x, Tensor[] kept) -> Tensor", like("x"), per_element(1), "Replaces missing numbers."),
    _record(
        "learn.one_hot_encoder(Tensor x, Tensor[] kept, *, int categories, bool zeros=True) -> Tensor",
        _infer_encoded,
        per_element(1),
        "One element a category, 1 where it is the one.",
    ),
    _record("learn.binarizer(Tensor x, *, float threshold=0.0) -> Tensor", like("x"), per_element(1), "1 above a threshold, else 0."),
    _record(
        "learn.array_feature_extractor(Tensor x, Tensor indices) -> Tensor",
        _infer_extracted,
        moved,
        "Picks elements of the last axis.",
    ),
    _record(
        "learn.feature_vectorizer(Tensor[] parts, *, int[] widths=[]) -> Tensor",
        _infer_features,
        moved,
        "Joins features into one row an example.",
    ),
    _record(
        "learn.label_encoder(Tensor x, Tensor[] kept, *, dtype? dtype) -> Tensor",
        _infer_relabelled,
        moved,
        "Replaces keys by values of a table.",
    ),
    _record(
        "learn.category_mapper(Tensor x, Tensor[] kept, *, dtype dtype) -> Tensor",
        _infer_relabelled,
        moved,
        "Replaces names by numbers or back.",
    ),
    _record(
        "learn.dict_vectorizer(Tensor x, Tensor[] kept) -> Tensor",
        _infer_dictionary,
        moved,
        "A dictionary's values in the order of a vocabulary.",
    ),
    _record(
        "learn.cast_map(Tensor x, *, str map_form='DENSE', int max_map=1, dtype? dtype) -> Tensor",
        _infer_map_cast,
        moved,
        "A dictionary's values as a tensor.",
    ),
    _record("learn.zip_map(Tensor x, *, any labels=[]) -> Tensor", _infer_zip, moved, "A dictionary from labels to scores for each row."),
)
