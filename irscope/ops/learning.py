"""Operators of ai.onnx.ml and of preview.training, and those of text."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import MapType, Shape, Type, map_of, sequence, tensor
from irscope.ops.cost import Cost
from irscope.ops.rules import broadcast_shapes, dtype_attr, like, moved, per_element, products
from irscope.ops.spec import SIZES, Absent, CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, numel, op, sizes
from irscope.ops.values import Array, objects

# Classical machine learning (the ai.onnx.ml operators). `kept` are the weights that the file has in attributes of the node.


def _examples(call: OpCall) -> Dim:
    """Return how many examples there are; a tensor with one axis is one example."""
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
    """With probabilities there is one score a class; else one for each pair of classes that is compared, and two for a single pair."""
    rows, device, classes = _examples(call), call.tensor("x").device, _classes(call)
    if call.attr("has_probabilities"):
        scores = classes
    elif call.attr("compares_pairs") and isinstance(classes, int):
        scores = 2 if classes == 2 else classes * (classes - 1) // 2
    else:
        scores = call.unknown("without probabilities the number of scores depends on how the classes are compared", "", 1)
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


_PATHS = "the path of an example through a tree, and so the cost, depends on values"

_LEARNING = (
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
        "learn.svm_classifier(Tensor x, Tensor[] kept, *, any labels=[], bool has_probabilities=False, bool compares_pairs=False, "
        "str kernel_type='LINEAR') -> (Tensor label, Tensor? scores)",
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
        per_element(2),
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
        "learn.array_feature_extractor(Tensor x, Tensor indices) -> Tensor", _infer_extracted, moved, "Picks elements of the last axis."
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


# Steps of optimizers, and gradients, as ONNX has them.


def _infer_step(groups: int) -> Infer:
    """Behind rate and count stand weights, gradients and states, group by group; weights and states come back."""

    def infer(call: OpCall) -> list[Type]:
        tensors = call.rest("tensors")
        count, odd = divmod(len(tensors), groups)
        if odd:
            raise RuleError(f"{call.spec.name} needs {groups} tensors for each weight, not {len(tensors)} in all")
        return [*tensors[:count], *tensors[2 * count :]]

    return infer


def _step_cost(groups: int, elementwise: int, transcendental: int) -> CostRule:
    def cost(call: OpCall) -> Cost:
        tensors = call.rest("tensors")
        elements: Dim = 0
        for weights in tensors[: len(tensors) // groups]:
            elements = elements + numel(weights)
        return Cost(elementwise=elements * elementwise, transcendental=elements * transcendental)

    return cost


def _step(name: str, groups: int, elementwise: int, transcendental: int, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"train.{name}(Tensor rate, Tensor count, Tensor[] tensors, *, {attrs}) -> Tensor[]",
        Family.LEARNING,
        infer=_infer_step(groups),
        cost=_step_cost(groups, elementwise, transcendental),
        summary=summary,
        **facts,
    )


def _infer_gradient(call: OpCall) -> list[Type]:
    """One gradient for each of the first tensors, like it."""
    return list(call.rest("tensors")[: call.int_attr("count")])


_TRAINING = (
    _step(
        "adagrad",
        3,
        6,
        1,
        "float decay_factor=0.0, float epsilon=1e-06, float norm_coefficient=0.0",
        "A step of Adagrad: weights, gradients, sums of squares; new weights and sums.",
    ),
    _step(
        "adam",
        4,
        10,
        1,
        "float alpha=0.9, float beta=0.999, float epsilon=1e-06, float norm_coefficient=0.0, float norm_coefficient_post=0.0",
        "A step of Adam: weights, gradients, two moments; new weights and moments.",
    ),
    _step(
        "momentum",
        3,
        6,
        0,
        "float alpha=0.9, float beta=1.0, str mode='standard', float norm_coefficient=0.0",
        "A step with momentum: weights, gradients, momenta; new weights and momenta.",
    ),
    op(
        "train.gradient(Tensor[] tensors, *, int count) -> Tensor[]",
        Family.LEARNING,
        infer=_infer_gradient,
        cost=Absent.UNKNOWN,
        summary="Gradients for the first `count` tensors of a value computed from them; the cost is unknown.",
    ),
)


def _infer_concat(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(DType.STR, broadcast_shapes(call, [x.shape, call.shape("y")]), x.device)


def _evaluate_concat(call: OpCall) -> Known | None:
    x, y = call.value("x"), call.value("y")
    if x is None or y is None:
        return None
    wide = np.broadcast_arrays(x, y)
    return objects((str(a) + str(b) for a, b in zip(wide[0].flat, wide[1].flat, strict=True)), wide[0].shape)


def _pieces(call: OpCall) -> list[list[str]] | None:
    """Return every string split; None where the strings are not known."""
    strings = call.value("x")
    if strings is None:
        return None
    delimiter, most = call.attr("delimiter"), call.attr("maxsplit")
    return [str(text).split(delimiter or None, -1 if most is None else most) for text in strings.flat]


def _infer_split(call: OpCall) -> tuple[Type, ...]:
    x, pieces = call.tensor("x"), _pieces(call)
    longest: Dim
    if pieces is not None:
        longest = max(map(len, pieces), default=0)
    else:
        longest = call.unknown("the largest number of pieces depends on the strings")
    shape = None if x.shape is None else (*x.shape, longest)
    return tensor(DType.STR, shape, x.device), tensor(DType.I64, x.shape, x.device)


def _evaluate_split(call: OpCall) -> tuple[Known, Known] | None:
    pieces, strings = _pieces(call), call.value("x")
    if pieces is None or strings is None:
        return None
    longest = max(map(len, pieces), default=0)
    padded = [text for parts in pieces for text in (*parts, *[""] * (longest - len(parts)))]
    counts = np.asarray([len(parts) for parts in pieces], dtype=np.int64).reshape(strings.shape)
    return objects(padded, (*strings.shape, longest)), counts


def _normalized(call: OpCall) -> Array | None:
    """Strings without stop words, in the wanted case; None where they are not known."""
    strings = call.value("x")
    if strings is None:
        return None
    action, exact = call.attr("case_change_action"), bool(call.attr("is_case_sensitive"))
    stop = {word if exact else word.lower() for word in call.attr("stopwords")}
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(str(action), str)
    kept = [change(str(text)) for text in strings.flat if (str(text) if exact else str(text).lower()) not in stop]
    kept = kept or [""]
    return objects(kept, (len(kept),) if strings.ndim == 1 else (1, len(kept)))


def _infer_normalizer(call: OpCall) -> Type:
    x, strings = call.tensor("x"), _normalized(call)
    if x.shape is not None and (len(x.shape) not in (1, 2)):
        raise RuleError(f"text.normalizer takes (words) or (1, words), not {x}")
    shape: Shape = x.shape
    if strings is not None:
        shape = strings.shape
    elif shape is not None and call.attr("stopwords"):
        shape = (*shape[:-1], call.unknown("how many stop words there are depends on the strings", lo=1))
    return tensor(DType.STR, shape, x.device)


def _infer_tfidf(call: OpCall) -> Type:
    x = call.tensor("x")
    width = max(call.attr("ngram_indexes"), default=-1) + 1
    return tensor(DType.F32, None if x.shape is None else (*x.shape[:-1], width), x.device)


_TEXT = (
    op(
        "text.concat(Tensor x, Tensor y) -> Tensor",
        Family.TEXT,
        infer=_infer_concat,
        cost=moved,
        evaluate=_evaluate_concat,
        summary="Joins strings, element by element.",
    ),
    op(
        "text.split(Tensor x, *, str delimiter='', int? maxsplit) -> (Tensor y, Tensor counts)",
        Family.TEXT,
        infer=_infer_split,
        cost=moved,
        evaluate=_evaluate_split,
        summary="Splits strings into pieces, filled up with empty ones to equal numbers, and counts them.",
    ),
    op(
        "text.normalizer(Tensor x, *, str[] stopwords=[], str case_change_action='NONE', bool is_case_sensitive=False, "
        "str locale='') -> Tensor",
        Family.TEXT,
        infer=_infer_normalizer,
        cost=moved,
        evaluate=_normalized,
        summary="Drops stop words and changes the case of strings.",
    ),
    op(
        "text.regex_full_match(Tensor x, *, str pattern) -> Tensor",
        Family.TEXT,
        infer=like("x", DType.BOOL),
        cost=Absent.UNKNOWN,
        summary="Whether a whole string matches a regular expression.",
    ),
    op(
        "text.tfidf(Tensor x, Tensor[] kept, *, int[] ngram_indexes, int[] ngram_counts=[], int min_gram_length=1, int max_gram_length=1, "
        "int max_skip_count=0, str mode='TF') -> Tensor",
        Family.TEXT,
        infer=_infer_tfidf,
        cost=Absent.UNKNOWN,
        summary="Counts n-grams of each row; finding them costs what the values decide.",
    ),
)


OPS = (*_LEARNING, *_TRAINING, *_TEXT)
