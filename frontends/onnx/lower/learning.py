"""Classic machine learning (ai.onnx.ml) and optimizers (ai.onnx.preview.training).

Models of ai.onnx.ml have no initializers: what was learned stands in attributes of the nodes. It becomes weights that are the last
operands of a node: what is learned by fitting parameters, statistics of the data buffers, how trees are linked constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from irscope.frontends.onnx.call import Call, Mismatch, Operand
from irscope.frontends.onnx.elements import DTYPES
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, integer, integers, number, read, text
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Role
from irscope.ir.types import TensorType

_CAST_TO = {"TO_FLOAT": DType.F32, "TO_INT64": DType.I64, "TO_STRING": DType.STR}
_POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LINEAR = dict.fromkeys(("coefficients", "intercepts"), Role.PARAMETER)
_SVM = {
    **dict.fromkeys(("support_vectors", "coefficients", "rho", "prob_a", "prob_b"), Role.PARAMETER),
    **dict.fromkeys(("kernel_params", "vectors_per_class"), Role.CONSTANT),
}
_LEARNED_OF_TREES = (
    "nodes_values", "nodes_values_as_tensor", "nodes_splits", "membership_values", "leaf_weights", "base_values", "base_values_as_tensor",
    "target_weights", "target_weights_as_tensor", "class_weights", "class_weights_as_tensor",
)  # fmt: skip
_LINKS_OF_TREES = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs",
    "nodes_modes", "nodes_hitrates", "nodes_hitrates_as_tensor", "nodes_missing_value_tracks_true", "tree_roots", "leaf_targetids",
    "target_treeids", "target_nodeids", "target_ids", "class_treeids", "class_nodeids", "class_ids",
)  # fmt: skip
_TREES = {**dict.fromkeys(_LEARNED_OF_TREES, Role.PARAMETER), **dict.fromkeys(_LINKS_OF_TREES, Role.CONSTANT)}
_STATISTICS = dict.fromkeys(("offset", "scale", "imputed_value_floats", "imputed_value_int64s"), Role.BUFFER)
_TABLES = dict.fromkeys(
    (
        "keys_floats", "keys_int64s", "keys_tensor", "values_floats", "values_int64s", "values_tensor", "cats_int64s", "int64_vocabulary",
    ),
    Role.CONSTANT,
)  # fmt: skip


def _kept(op: str, roles: Mapping[str, Role]) -> Lower:
    """Like `direct`, for an operator that keeps weights in attributes."""

    def lower(call: Call) -> None:
        call.emit(op, [*call.inputs, *call.attribute_weights(roles)])

    return lower


def _rows(call: Call, name: str, rows: int) -> dict[str, tuple[int, ...]]:
    """The shape of a flat list that holds so many rows."""
    values = call.numbers(name) or ()
    return {name: (rows, len(values) // rows)} if rows > 0 and values and len(values) % rows == 0 else {}


def _linear(call: Call, rows: int) -> Sequence[Operand]:
    return [*call.inputs, *call.attribute_weights(_LINEAR, _rows(call, "coefficients", rows))]


def _support_vectors(call: Call, vectors: int) -> Sequence[Operand]:
    return [*call.inputs, *call.attribute_weights(_SVM, _rows(call, "support_vectors", vectors))]


def _labels(call: Call) -> dict[str, Attr]:
    """Class labels, which are numbers or texts."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        found = call.attrs.get(name)
        if isinstance(found, tuple) and found:
            return {"labels": found}
    return {}


def _linear_classifier(call: Call) -> None:
    # Of two classes the file may keep only one row.
    operands = _linear(call, len(call.numbers("intercepts") or ()))
    call.emit("learn.linear_classifier", operands, {**_labels(call), "post_transform": call.text("post_transform", "NONE")})


def _linear_regressor(call: Call) -> None:
    attrs: dict[str, Attr] = {"targets": call.integer("targets", 1), "post_transform": call.text("post_transform", "NONE")}
    call.emit("learn.linear_regressor", _linear(call, call.integer("targets", 1)), attrs)


def _tree_classifier(call: Call) -> None:
    attrs: dict[str, Attr] = {**_labels(call), "post_transform": call.text("post_transform", "NONE")}
    call.emit("learn.tree_classifier", [*call.inputs, *call.attribute_weights(_TREES)], attrs)


def _svm_classifier(call: Call) -> None:
    attrs: dict[str, Attr] = {**_labels(call), "kernel_type": call.text("kernel_type", "LINEAR")}
    if call.numbers("prob_a"):
        attrs["has_probabilities"] = True
    call.emit("learn.svm_classifier", _support_vectors(call, sum(call.integers("vectors_per_class") or ())), attrs)


def _svm_regressor(call: Call) -> None:
    call.emit("learn.svm_regressor", _support_vectors(call, call.integer("n_supports", 0)), read(call, text("kernel_type", "LINEAR")))


def _tree_ensemble(call: Call) -> None:
    weights = call.tensor_attr("leaf_weights")
    chosen = call.integer("post_transform", 0)
    attrs: dict[str, Attr] = {"targets": call.integer("n_targets", 1)}
    if 0 <= chosen < len(_POST_TRANSFORMS):
        attrs["post_transform"] = _POST_TRANSFORMS[chosen]
    if weights is not None:
        attrs["dtype"] = DTYPES.get(weights.data_type)
    call.emit("learn.tree_ensemble", [*call.inputs, *call.attribute_weights(_TREES)], attrs)


def _tree_regressor(call: Call) -> None:
    attrs: dict[str, Attr] = {"targets": call.integer("n_targets", 1), "post_transform": call.text("post_transform", "NONE")}
    weights = call.tensor_attr("target_weights_as_tensor")
    if weights is not None:
        attrs["dtype"] = DTYPES.get(weights.data_type)
    call.emit("learn.tree_ensemble", [*call.inputs, *call.attribute_weights(_TREES)], attrs)


def _one_hot_encoder(call: Call) -> None:
    categories = call.integers("cats_int64s") or call.texts("cats_strings")
    if not categories:
        raise Mismatch("it has no categories")
    operands = [*call.inputs, *call.attribute_weights(_TABLES)]
    call.emit("learn.one_hot_encoder", operands, {"categories": len(categories), "zeros": call.flag("zeros", True)})


def _other_kind(call: Call) -> DType:
    """Texts become numbers and numbers texts; which way is known where the operand's type is declared."""
    type_ = call.needed(0).type
    if not isinstance(type_, TensorType) or type_.dtype is DType.UNKNOWN:
        raise Mismatch("the element type of its operand is not declared")
    return DType.I64 if type_.dtype is DType.STR else DType.STR


def _label_encoder(call: Call) -> None:
    """The element type of the values is that of the result; the first form mapped texts to numbers and back."""
    attrs: dict[str, Attr] = {"dtype": _other_kind(call)} if call.has("classes_strings") else {}
    for name, dtype in (("values_floats", DType.F32), ("values_int64s", DType.I64), ("values_strings", DType.STR)):
        if call.has(name):
            attrs["dtype"] = dtype
    values = call.tensor_attr("values_tensor")
    if values is not None:
        attrs["dtype"] = DTYPES.get(values.data_type)
    call.emit("learn.label_encoder", [*call.inputs, *call.attribute_weights(_TABLES)], attrs)


def _category_mapper(call: Call) -> None:
    call.emit("learn.category_mapper", [*call.inputs, *call.attribute_weights(_TABLES)], {"dtype": _other_kind(call)})


def _cast_map(call: Call) -> None:
    dtype = _CAST_TO.get(call.text("cast_to", "TO_FLOAT"))
    if dtype is None:
        raise Mismatch("attribute cast_to names no element type")
    call.emit("learn.cast_map", call.inputs, read(call, text("map_form", "DENSE"), integer("max_map", 1), dtype=dtype))


def _zip_map(call: Call) -> None:
    call.emit("learn.zip_map", call.inputs, _labels(call))


def _gradient(call: Call) -> None:
    """The result is one gradient for each tensor in xs, which stand first."""
    sources = call.texts("xs")
    if not sources:
        raise Mismatch("attribute xs is absent")
    call.emit("train.gradient", call.inputs, {"count": len(sources)})


TABLE: Table = {
    "ArrayFeatureExtractor": direct("learn.array_feature_extractor"),
    "Binarizer": direct("learn.binarizer", number("threshold", 0.0)),
    "CastMap": _cast_map,
    "CategoryMapper": _category_mapper,
    "DictVectorizer": _kept("learn.dict_vectorizer", {"int64_vocabulary": Role.CONSTANT}),
    "FeatureVectorizer": direct("learn.feature_vectorizer", integers("inputdimensions", to="widths")),
    "Imputer": _kept("learn.imputer", _STATISTICS),
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": direct("learn.normalizer", text("norm", "MAX")),
    "OneHotEncoder": _one_hot_encoder,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _kept("learn.scaler", _STATISTICS),
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": _zip_map,
}

TRAINING: Table = {
    "Adagrad": direct("train.adagrad", number("decay_factor", 0.0), number("epsilon", 1e-6), number("norm_coefficient", 0.0)),
    "Adam": direct(
        "train.adam",
        number("alpha", 0.9),
        number("beta", 0.999),
        number("epsilon", 1e-6),
        number("norm_coefficient", 0.0),
        number("norm_coefficient_post", 0.0),
    ),
    "Momentum": direct(
        "train.momentum", number("alpha", 0.9), number("beta", 1.0), text("mode", "standard"), number("norm_coefficient", 0.0)
    ),
    "Gradient": _gradient,
}
