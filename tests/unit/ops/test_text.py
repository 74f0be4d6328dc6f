"""Strings: pieces, stop words and what stays unknown without the strings."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import evaluate, infer, shape_of


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
    assert found is not None
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
