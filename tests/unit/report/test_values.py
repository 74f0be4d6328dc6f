"""Whatever a pass puts into a cell becomes a plain value, or is refused by name."""

from __future__ import annotations

import enum
import json
import math

import numpy as np
import pytest

from irscope.errors import PassError
from irscope.ir.dtypes import DType
from irscope.report.values import Quantity, compact_json, json_value, plain, raw_text


class Colour(enum.Enum):
    DARK_RED = 1


class Size(enum.IntEnum):
    BIG = 7


class Letter(str, enum.Enum):  # noqa: UP042
    A = "a"


class Named:
    def __init__(self, name: str | None) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), (1, 2)),
        (np.array(4), 4),
        (DType.F32, "f32"),
        (Colour.DARK_RED, "dark_red"),
        (Size.BIG, 7),
        (Letter.A, "a"),
        ([1, [None, "b"]], (1, (None, "b"))),
        ({"seq": {"shape": [1, DType.I8]}}, {"seq": {"shape": (1, "i8")}}),
        (Named("conv1"), "conv1"),
        (Named(None), None),
        ([Quantity(3, note="bound")], (3,)),
    ],
)
def test_plain(value: object, cell: object) -> None:
    result = plain(value)
    assert result == cell
    assert type(result) is type(cell)


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, print, Named])
def test_what_cannot_be_shown_is_refused(value: object) -> None:
    with pytest.raises(PassError, match="cannot show") as error:
        plain(value)
    assert error.value.code == "IRS510"


class Formula:
    def __str__(self) -> str:
        return "2*batch"


def test_a_quantity_holds_plain_values() -> None:
    quantity = Quantity(np.int64(3), formula=Formula(), lo=np.float32(0.5), hi=Formula())  # type: ignore[arg-type]
    assert quantity == Quantity(3, formula="2*batch", lo=0.5, hi="2*batch")
    assert type(quantity.value) is int
    assert Quantity(Formula()).shown == "2*batch"  # type: ignore[arg-type]


def test_json_value() -> None:
    assert json_value(math.nan) == "nan"
    assert json_value((10**40, -math.inf, None)) == [10**40, "-inf", None]
    assert json_value(Quantity(None, formula="2*b")) == "2*b"
    assert json.loads(compact_json({"a\x7f": [10**40, "\u202e"]})) == {"a\x7f": [10**40, "\u202e"]}


def test_raw_text() -> None:
    assert raw_text(None) == ""
    assert raw_text(False) == "false"
    assert raw_text(1e22) == "1e+22"
    assert raw_text((1, None, "b")) == '[1, null, "b"]'
