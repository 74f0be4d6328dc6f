"""Tensors of strings."""

from __future__ import annotations

import numpy as np

from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, Type, tensor
from irscope.ops.rules import broadcast_shapes, moved
from irscope.ops.spec import Absent, Family, Known, OpCall, RuleError, op
from irscope.ops.values import Array, objects
from irscope.ops.work import like


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
    """Every string split; None where the strings are not known."""
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


OPS = (
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
