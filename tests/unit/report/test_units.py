"""Numbers for people."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report import Kind, Quantity, humanise

MIB = 2**20


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, Kind.BYTES, "0 B"),
        (1023, Kind.BYTES, "1,023 B"),
        (1024, Kind.BYTES, "1.00 KiB"),
        (MIB - 1, Kind.BYTES, "1.00 MiB"),
        (int(11.07 * MIB), Kind.BYTES, "11.07 MiB"),
        (-3 * 2**30 // 2, Kind.BYTES, "-1.50 GiB"),
        (2**80, Kind.BYTES, "1,048,576.00 EiB"),
        (1.5, Kind.BYTES, "1.50 B"),
        (-(10**400), Kind.BYTES, "-8.67e+381 EiB"),
        (1e300, Kind.SECONDS, "1.00e+300 s"),
        (10**20, Kind.RATIO, "1.00e+22%"),
        (999, Kind.FLOPS, "999 FLOPs"),
        (4_110_000_000, Kind.FLOPS, "4.11 GFLOPs"),
        (2 * 10**18, Kind.FLOPS, "2.00 EFLOPs"),
        (25_557_032, Kind.COUNT, "25,557,032"),
        (2.5, Kind.COUNT, "2.50"),
        (12, Kind.INDEX, "12"),
        (12345, Kind.INDEX, "12345"),
        (0.5, Kind.RATIO, "50.0%"),
        (1, Kind.RATIO, "100.0%"),
        (0, Kind.RATIO, "0.0%"),
        (0.00001, Kind.RATIO, "<0.1%"),
        (0.99999, Kind.RATIO, ">99.9%"),
        (-0.25, Kind.RATIO, "-25.0%"),
        (0, Kind.SECONDS, "0 s"),
        (12e-9, Kind.SECONDS, "12.00 ns"),
        (0.0000345, Kind.SECONDS, "34.50 us"),
        (0.00123, Kind.SECONDS, "1.23 ms"),
        (1234, Kind.SECONDS, "1,234.00 s"),
        (4.8e12, Kind.BYTES_PER_SECOND, "4.80 TB/s"),
        (989e12, Kind.FLOPS_PER_SECOND, "989.00 TFLOP/s"),
        (0.123456789, Kind.NUMBER, "0.123457"),
        (math.nan, Kind.BYTES, "nan"),
        (-math.inf, Kind.FLOPS, "-inf"),
        (True, Kind.BOOL, "yes"),
        ("2*batch", Kind.BYTES, "2*batch bytes"),
        ("2*batch", Kind.COUNT, "2*batch"),
        ("f32", Kind.DTYPE, "f32"),
        ((8, 3, None), Kind.SHAPE, "[8,3,?]"),
        ((), Kind.SHAPE, "[]"),
        (("batch", 3), Kind.SHAPE, "[batch,3]"),
        ({"seq": {"dtype": "f32", "shape": (2, None)}}, Kind.SHAPE, "seq(f32[2,?])"),
        ({"optional": {"dtype": "i64", "shape": None}}, Kind.SHAPE, "optional(i64[*])"),
        (Quantity(2048), Kind.BYTES, "2.00 KiB"),
        (Quantity(None, formula="b"), Kind.BYTES, "b bytes"),
    ],
)
def test_examples(value: object, kind: Kind, text: str) -> None:
    assert humanise(value, kind) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", Kind)
def test_unknown_is_never_zero(kind: Kind) -> None:
    assert humanise(None, kind) == "unknown"
    assert humanise(Quantity(None), kind, "?") == "?"


@given(st.integers(-(10**26), 10**26) | st.floats(-1e20, 1e20))
def test_bytes_are_within_half_of_the_last_digit(value: float) -> None:
    number, unit = humanise(value, Kind.BYTES).split()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    shown = Fraction(number.replace(",", "")) * scale
    assert abs(shown - Fraction(value)) <= Fraction(scale, 200)
    assert abs(Fraction(number.replace(",", ""))) < 1024 or unit == "EiB"


@given(st.integers(0, 10**8) | st.floats(0, 1e8))
def test_seconds_are_within_half_of_the_last_digit(value: float) -> None:
    number, unit = humanise(value, Kind.SECONDS).split()
    scale = {"ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000), "s": Fraction(1)}[unit]
    assert abs(Fraction(number.replace(",", "")) * scale - Fraction(value)) <= scale / 200


@given(st.integers() | st.floats(), st.sampled_from(Kind))
def test_every_number_has_a_text(value: float, kind: Kind) -> None:
    text = humanise(value, kind)
    assert text.isprintable()
    assert len(text) < 30 or kind in (Kind.COUNT, Kind.NUMBER) or not kind.is_number or kind is Kind.INDEX
