"""Classic machine learning (ai.onnx.ml) and optimizers (ai.onnx.preview.training).

Models of ai.onnx.ml have no initializers: what was learned stands in attributes of the nodes. It becomes weights that are the last
operands of a node: what is learned by fitting parameters, statistics of the data buffers, how trees are linked constants.
"""

from __future__ import annotations

from collections.abc import Mapping

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.elements import DTYPES
from irscope.frontends.onnx.lower.rules import Lower, Table, lower_as
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Role

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


def _kept(text: str, roles: Mapping[str, Role]) -> Lower:
    """An operator that keeps weights in attributes."""
    return lambda call: lower_as(call, text, weights=roles)


def _rows(call: Call, name: str, rows: int) -> dict[str, tuple[int, ...]]:
    """The shape of a flat list that holds so many rows."""
    values = call.numbers(name) or ()
    return {name: (rows, len(values) // rows)} if rows > 0 and values and len(values) % rows == 0 else {}


def _labels(call: Call) -> dict[str, Attr]:
    """Class labels, which are numbers or texts."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        found = call.attrs.get(name)
        if isinstance(found, tuple) and found:
            return {"labels": found}
    return {}


def _linear_classifier(call: Call) -> None:
    # Of two classes the file may keep only one row.
    shapes = _rows(call, "coefficients", len(call.numbers("intercepts") or ()))
    lower_as(call, "learn.linear_classifier ; post_transform?NONE", _labels(call), weights=_LINEAR, shapes=shapes)


def _linear_regressor(call: Call) -> None:
    shapes = _rows(call, "coefficients", call.integer("targets", 1))
    lower_as(call, "learn.linear_regressor ; targets?1 post_transform?NONE", weights=_LINEAR, shapes=shapes)


def _tree_classifier(call: Call) -> None:
    lower_as(call, "learn.tree_classifier ; post_transform?NONE", _labels(call), weights=_TREES)


def _svm_classifier(call: Call) -> None:
    attrs = _labels(call)
    if call.numbers("prob_a"):
        attrs["has_probabilities"] = True
    shapes = _rows(call, "support_vectors", sum(call.integers("vectors_per_class") or ()))
    lower_as(call, "learn.svm_classifier ; kernel_type?LINEAR", attrs, weights=_SVM, shapes=shapes)


def _svm_regressor(call: Call) -> None:
    shapes = _rows(call, "support_vectors", call.integer("n_supports", 0))
    lower_as(call, "learn.svm_regressor ; kernel_type?LINEAR", weights=_SVM, shapes=shapes)


def _tree_ensemble(call: Call) -> None:
    chosen = call.integer("post_transform", 0)
    attrs = _dtype_of(call, "leaf_weights")
    if 0 <= chosen < len(_POST_TRANSFORMS):
        attrs["post_transform"] = _POST_TRANSFORMS[chosen]
    lower_as(call, "learn.tree_ensemble ; targets=n_targets?1", attrs, weights=_TREES)


def _tree_regressor(call: Call) -> None:
    attrs = _dtype_of(call, "target_weights_as_tensor")
    lower_as(call, "learn.tree_ensemble ; targets=n_targets?1 post_transform?NONE", attrs, weights=_TREES)


def _dtype_of(call: Call, name: str) -> dict[str, Attr]:
    """The element type of a tensor that stands in an attribute."""
    stored = call.tensor_attr(name)
    return {} if stored is None else {"dtype": DTYPES.get(stored.data_type)}


def _one_hot_encoder(call: Call) -> None:
    categories = call.integers("cats_int64s") or call.texts("cats_strings")
    if not categories:
        raise Mismatch("it has no categories")
    lower_as(call, "learn.one_hot_encoder ; zeros?true", {"categories": len(categories)}, weights=_TABLES)


def _other_kind(call: Call) -> DType:
    """Texts become numbers and numbers texts; which way is known where the operand's type is declared."""
    type_ = call.needed(0).type
    if type_.dtype is DType.UNKNOWN:
        raise Mismatch("the element type of its operand is not declared")
    return DType.I64 if type_.dtype is DType.STR else DType.STR


def _label_encoder(call: Call) -> None:
    """The element type of the values is that of the result; the first form mapped texts to numbers and back."""
    attrs: dict[str, Attr] = {"dtype": _other_kind(call)} if call.has("classes_strings") else {}
    for name, dtype in (("values_floats", DType.F32), ("values_int64s", DType.I64), ("values_strings", DType.STR)):
        if call.has(name):
            attrs["dtype"] = dtype
    lower_as(call, "learn.label_encoder", {**attrs, **_dtype_of(call, "values_tensor")}, weights=_TABLES)


def _category_mapper(call: Call) -> None:
    lower_as(call, "learn.category_mapper", {"dtype": _other_kind(call)}, weights=_TABLES)


def _cast_map(call: Call) -> None:
    dtype = _CAST_TO.get(call.text("cast_to", "TO_FLOAT"))
    if dtype is None:
        raise Mismatch("attribute cast_to names no element type")
    lower_as(call, "learn.cast_map ; map_form?DENSE max_map?1", {"dtype": dtype})


def _gradient(call: Call) -> None:
    """The result is one gradient for each tensor in xs, which stand first."""
    sources = call.texts("xs")
    if not sources:
        raise Mismatch("attribute xs is absent")
    call.emit("train.gradient", call.inputs, {"count": len(sources)})


TABLE: Table = {
    "ArrayFeatureExtractor": "learn.array_feature_extractor",
    "Binarizer": "learn.binarizer ; threshold?0.0",
    "CastMap": _cast_map,
    "CategoryMapper": _category_mapper,
    "DictVectorizer": _kept("learn.dict_vectorizer", {"int64_vocabulary": Role.CONSTANT}),
    "FeatureVectorizer": "learn.feature_vectorizer ; widths=inputdimensions",
    "Imputer": _kept("learn.imputer", _STATISTICS),
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": "learn.normalizer ; norm?MAX",
    "OneHotEncoder": _one_hot_encoder,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _kept("learn.scaler", _STATISTICS),
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": lambda call: lower_as(call, "learn.zip_map", _labels(call)),
}

TRAINING: Table = {
    "Adagrad": "train.adagrad ; decay_factor?0.0 epsilon?1e-6 norm_coefficient?0.0",
    "Adam": "train.adam ; alpha?0.9 beta?0.999 epsilon?1e-6 norm_coefficient?0.0 norm_coefficient_post?0.0",
    "Momentum": "train.momentum ; alpha?0.9 beta?1.0 mode?standard norm_coefficient?0.0",
    "Gradient": _gradient,
}
