"""Symbolic dimensions by example: canonical form, text, division, comparison, binding, limits."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from irscope.errors import UsageError
from irscope.ir.dims import (
    Dim,
    SymDim,
    bind,
    bounds,
    broadcast,
    ceildiv,
    dim_max,
    dim_min,
    equal,
    exact_div,
    floordiv,
    less,
    less_equal,
    mod,
    parse_dim,
    product,
    symbol,
    unknown,
)
from tests.tables import every

batch, seq, heads = symbol("batch"), symbol("seq"), symbol("heads")
u = unknown("nonzero_3")


# Interning and immutability


def test_equal_formulas_are_one_object() -> None:
    assert symbol("batch") is batch
    assert (batch + seq) * 2 is 2 * seq + 2 * batch
    assert (batch + 1) * (batch - 1) is batch**2 - 1
    assert hash(batch + seq) == hash(seq + batch)
    assert batch != seq
    dim: Dim = batch
    assert dim != 1


def test_bounds_are_part_of_a_symbol() -> None:
    assert symbol("batch", 1, 64) is not batch
    assert symbol("batch", 1, 64) is symbol("batch", 1, 64)
    difference = symbol("batch", 1, 64) - batch
    assert isinstance(difference, SymDim)
    assert difference is -(batch - symbol("batch", 1, 64))


def test_constants_come_back_as_numbers() -> None:
    for value, expected in ((batch - batch, 0), (batch * 0, 0), ((batch + 3) - batch, 3), (batch**0, 1), (floordiv(batch, batch), 1)):
        assert type(value) is int
        assert value == expected


def test_unused_formulas_are_forgotten_at_once() -> None:
    gc.disable()
    try:
        first, second = symbol("forgotten_a"), symbol("forgotten_b")
        formula = dim_max(first * 3 + 1, mod(floordiv(second, 7) + first, 50))
        assert bounds(formula - first)[0] is not None
        assert str(formula)
        references = [weakref.ref(thing) for thing in (formula, first, second, *formula.leaves)]
        assert len(references) == 5
        del formula, first, second
        assert [reference() for reference in references] == [None] * 5
    finally:
        gc.enable()


def test_threads_get_the_same_object() -> None:
    results: list[list[Dim]] = [[] for _ in range(4)]
    start = threading.Barrier(4)

    def work(into: list[Dim]) -> None:
        start.wait()
        for at in range(200):
            into.append(floordiv(symbol(f"thread_{at}") * 3 + 1, 2) + seq)

    threads = [threading.Thread(target=work, args=(into,)) for into in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(dim is first for others in results[1:] for dim, first in zip(others, results[0], strict=True))


def test_copies_are_the_same_object() -> None:
    formula = dim_max(floordiv(batch + 1, 2), seq) * 3
    assert copy.copy(formula) is formula
    assert copy.deepcopy([formula])[0] is formula
    assert pickle.loads(pickle.dumps(formula)) is formula


def test_a_pickle_can_be_read_elsewhere() -> None:
    formula = dim_max(floordiv(symbol("n", 2, 9) + 1, 2) * u, 3 * seq)
    program = "import pickle, sys; d = pickle.load(sys.stdin.buffer); print(d, d.bounds, d.is_unknown)"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(formula), capture_output=True, check=True)
    assert done.stdout.decode().strip() == f"{formula} {formula.bounds} True"


def test_order_and_truth_are_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"dims\.less"):
        _ = batch < seq
    with pytest.raises(TypeError, match=r"dims\.dim_max"):
        max(batch, 3)
    with pytest.raises(TypeError, match=r"dims\.equal"):
        bool(batch)
    dim: Dim = batch
    assert (dim == 3) is False
    assert (dim != 3) is True


# Other kinds of numbers


@pytest.mark.parametrize("three", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_any_kind_become_plain_ones(three: int) -> None:
    assert batch + three is batch + 3
    assert batch - three is batch - 3
    assert batch * three is batch * 3
    assert batch // three is floordiv(batch, 3)
    assert batch % three is mod(batch, 3)
    assert dim_max(batch, three) is dim_max(batch, 3)
    assert broadcast(batch, three) == 3
    assert type(broadcast(batch, three)) is int
    assert type(floordiv(three, 2)) is int
    assert bind(batch, {"batch": three}) == 3
    assert type(bind(batch, {"batch": three})) is int
    assert type(product([three, three])) is int


def test_integers_on_the_left() -> None:
    assert 3 + batch is batch + 3
    assert 3 - batch is -batch + 3
    assert 3 * batch is batch * 3
    assert str(7 // batch) == "7//batch"
    assert str(7 % batch) == "7%batch"
    three: Any = np.int64(3)
    assert three * batch is 3 * batch
    assert three + batch is 3 + batch


def test_bools_count_as_integers() -> None:
    assert batch + True is batch + 1
    assert type(product([True, True])) is int
    assert type(dim_max(True, False)) is int


def test_other_types_are_left_to_the_other_side() -> None:
    shapes = np.array([batch, 2], dtype=object)
    assert list(shapes * seq) == [batch * seq, 2 * seq]
    assert list(seq - shapes) == [seq - batch, seq - 2]
    assert list(shapes // 2) == [batch // 2, 1]
    with pytest.raises(TypeError):
        batch + 1.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        1.5 * batch  # type: ignore[operator]
    with pytest.raises(TypeError):
        floordiv(batch, 2.0)  # type: ignore[arg-type]


# Text


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * batch * seq + 3 * batch - 1, "2*batch*seq + 3*batch - 1"),
        (seq * batch, "batch*seq"),
        (1 - batch, "-batch + 1"),
        (batch**2 * seq, "batch**2*seq"),
        (u + batch, "?nonzero_3 + batch"),
        (-floordiv(seq, 2), "-(seq//2)"),
        (batch - floordiv(seq, 2), "batch - seq//2"),
        (2 * floordiv(seq, 2), "2*(seq//2)"),
        (batch * floordiv(seq, 2) ** 2, "batch*(seq//2)**2"),
        (floordiv(seq + 1, 2), "(seq + 1)//2"),
        (floordiv(seq, batch * heads), "seq//(batch*heads)"),
        (floordiv(seq, heads**2), "seq//heads**2"),
        (mod(2 * batch, 3), "(2*batch)%3"),
        (mod(dim_max(batch, seq), 3), "max(batch, seq)%3"),
        (dim_max(3, seq, batch), "max(batch, seq, 3)"),
        (dim_min(batch * 2, seq), "min(2*batch, seq)"),
        (floordiv(mod(batch, seq), 2), "(batch%seq)//2"),
        (mod(-5, batch), "(-5)%batch"),
    ],
)
def test_text_is_short_and_reads_back(dim: Dim, text: str) -> None:
    assert str(dim) == text
    assert parse_dim(text) is dim
    assert repr(dim) == f"SymDim({text})"


@every(
    ("text", "expected"),
    [
        ("12", 12),
        (" batch ", batch),
        ("N.x_1", symbol("N.x_1")),
        ("?u0", unknown("u0")),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("+-+3", -3),
        ("10 - 4 - 3", 3),
        ("100 // 7 // 2", 7),
        ("7 / 2", 3),
        ("6 / 4 * 2", 3),
        ("batch*seq/batch", seq),
        ("floor(batch/2)", floordiv(batch, 2)),
        ("FLOOR(batch / 2)", floordiv(batch, 2)),
        ("ceil(batch/2)", ceildiv(batch, 2)),
        ("ceiling(batch/2)", ceildiv(batch, 2)),
        ("floor(batch/2 - 1/2) + 1", floordiv(batch + 1, 2)),
        ("floor(0.5*batch)", floordiv(batch, 2)),
        ("2.0*batch", 2 * batch),
        ("Max(1, batch, 3)", dim_max(batch, 3)),
        ("Min(batch, 3)", dim_min(batch, 3)),
        ("Mod(batch, 3)", mod(batch, 3)),
        ("FloorDiv(batch, 3)", floordiv(batch, 3)),
        ("CeilDiv(batch, 3)", ceildiv(batch, 3)),
        ("max (batch, seq)", dim_max(batch, seq)),
        ("max*min", symbol("max") * symbol("min")),
        ("batch\n  * seq", batch * seq),
        ("(batch + 1)**2", batch**2 + 2 * batch + 1),
        ("(batch/2)**2 * 4", batch**2),
        ("(batch/2)//2", floordiv(batch, 4)),
    ],
)
def test_formulas_are_read_as_exporters_write_them(text: str, expected: Dim) -> None:
    assert parse_dim(text) == expected


@every(
    ("text", "column", "message"),
    [
        ("", 1, "nothing to read"),
        ("  ", 1, "nothing to read"),
        ("batch +", 8, "missing at the end"),
        ("batch seq", 7, "operator is missing"),
        ("2batch", 2, "operator is missing"),
        ("batch $ 2", 7, "means nothing here"),
        ("(batch", 1, "never closed"),
        ("max(batch, (seq)", 1, "never closed"),
        ("batch)", 6, "belongs to"),
        ("(batch, seq)", 7, "belongs to"),
        ("batch, seq", 6, "belongs to"),
        ("()", 2, "missing before )"),
        ("* 2", 1, "missing before *"),
        ("sqrt(batch)", 5, "not a function"),
        ("mod(batch)", 1, "takes two arguments, not 1"),
        ("1 + floor(batch, 2)", 5, "takes one argument, not 2"),
        ("batch // 0", 7, "divided by zero"),
        ("batch / 0", 7, "divides by zero"),
        ("batch % (2 - 2)", 7, "divided by zero"),
        ("batch ** seq", 7, "power must be"),
        ("batch ** -1", 7, "power must be"),
        ("2 ** 65", 3, "power must be"),
        ("((9 ** 64) ** 64) ** 64", 12, "too large"),
        ("9" * 5_000, 1, "too large"),
        ("1 + " + "(" * 201 + "1" + ")" * 201, 205, "nested"),
        ("x" * 201, 1, "cannot name"),
    ],
)
def test_errors_name_the_column_and_show_it(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        parse_dim(text)
    assert caught.value.code == "IRS621"
    assert f"column {column}:" in str(caught.value)
    *_, shown, caret = str(caught.value).split("\n")
    if text.strip() and column <= len(text):
        assert shown[caret.index("^")] == text[column - 1]


def test_long_texts_are_refused_before_they_are_read() -> None:
    with pytest.raises(UsageError, match="too long") as caught:
        parse_dim("1+" * 5_000 + "1")
    assert caught.value.code == "IRS621"


def test_deep_but_legal_texts_need_no_stack() -> None:
    assert parse_dim("(" * 200 + "batch" + ")" * 200) is batch
    assert parse_dim("-" * 9_000 + "batch") is batch
    assert parse_dim("+".join(["1"] * 4_000)) == 4_000


def test_names_are_looked_up_once_and_may_be_missing() -> None:
    asked: list[str] = []

    def find(name: str) -> Any:
        asked.append(name)
        known: dict[str, Any] = {"a": batch, "?b": 4, "c": np.int64(2)}
        return known[name]

    assert parse_dim("a + a*?b + c", find) is 5 * batch + 2
    assert asked == ["a", "?b", "c"]
    with pytest.raises(UsageError, match="no dimension named zz") as caught:
        parse_dim("a + zz", find)
    assert "column 5" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "é", "a\n", "?"])
def test_names_that_would_not_read_back_are_refused(name: str) -> None:
    for make in (symbol, unknown):
        with pytest.raises(UsageError) as caught:
            make(name)
        assert caught.value.code == "IRS621"


# Division


@every(
    ("over", "under", "expected"),
    [
        (7, -2, "-4"),
        (64 * batch * seq, 8, "8*batch*seq"),
        (64 * batch * seq, 8 * batch, "8*seq"),
        (batch * seq + batch, batch, "seq + 1"),
        (seq - 1, 2, "(seq + 1)//2 - 1"),
        (3 * seq, 2, "seq + seq//2"),
        (2 * seq + 1, 4, "seq//2"),
        (8 * batch + 6 * seq, 12, "(4*batch + 3*seq)//6"),
        (seq, -2, "-seq + seq//2"),
        (8 * batch + symbol("r", 0, 7), 8, "batch"),
        (8 * batch + symbol("r", 0, 7), 16, "batch//2"),
        (batch * seq + seq - 1, seq, "batch"),
        (batch * seq + seq, seq + 0, "batch + 1"),
        (batch, batch + 1, "0"),
        (-batch, batch + 1, "-1"),
        (batch * seq, heads * seq, "batch//heads"),
        (batch * seq + seq, heads * seq, "(batch + 1)//heads"),
        (2 * batch + 1, 2 * heads, "batch//heads"),
        (floordiv(seq, 3), 4, "seq//12"),
        (floordiv(seq, 3) + batch, 4, "(3*batch + seq)//12"),
        (floordiv(seq, batch), 4, "seq//(4*batch)"),
        (floordiv(seq, batch), heads, "seq//(batch*heads)"),
        (batch**2, batch + 1, "batch - 1"),
        (batch**2 - seq**2, batch - seq, "batch + seq"),
        (symbol("small", 1, 3), 4, "0"),
        (0, batch, "0"),
    ],
)
def test_floor_division_is_simplified(over: Dim, under: Dim, expected: str) -> None:
    assert str(floordiv(over, under)) == expected


@pytest.mark.parametrize(
    ("over", "under", "expected"),
    [
        (-7, 2, "1"),
        (batch, 1, "0"),
        (batch, batch, "0"),
        (64 * batch + 3, 8, "3"),
        (10 * batch + 3, 4, "2*(batch%2) + (2*batch + 3)%4 - 2*(batch%2)"),
        (batch, -3, "-((2*batch)%3)"),
        (symbol("small", 1, 3), 4, "small"),
        (mod(batch, 12), 4, "batch%4"),
        (mod(batch, 12) + seq, 4, "(batch + seq)%4"),
        (batch * seq + 1, seq, "1%seq"),
        (batch * seq, heads * seq, "seq*(batch%heads)"),
        (batch - 1, batch, "batch - 1"),
    ],
)
def test_remainders_are_simplified(over: Dim, under: Dim, expected: str) -> None:
    assert mod(over, under) == parse_dim(expected, {"batch": batch, "seq": seq, "heads": heads, "small": symbol("small", 1, 3)}.__getitem__)


def test_ceiling_division() -> None:
    assert ceildiv(7, 2) == 4
    assert ceildiv(-7, 2) == -3
    assert str(ceildiv(seq, 64)) == "(seq + 63)//64"
    assert ceildiv(6 * seq, 3) is 2 * seq
    assert ceildiv(batch * seq, batch) is seq
    assert str(ceildiv(batch, seq)) == "(batch - 1)//seq + 1"
    assert bind(ceildiv(batch, symbol("any", None)), {"batch": 7, "any": -2}) == -3


def test_division_by_zero_is_a_usage_error() -> None:
    for divide in (floordiv, mod, ceildiv):
        for over in (5, batch):
            with pytest.raises(UsageError, match="zero") as caught:
                divide(over, 0)
            assert caught.value.code == "IRS622"
    assert exact_div(4, 0) is None
    assert exact_div(batch, 0) is None


@pytest.mark.parametrize(
    ("over", "under", "expected"),
    [
        (12, 4, 3),
        (12, 5, None),
        (batch * seq * 64, batch, 64 * seq),
        (batch * seq * 64, -8 * seq, -8 * batch),
        (batch * seq + batch, seq + 1, batch),
        (batch * seq + 1, batch, None),
        (batch, seq, None),
        (0, batch, 0),
        (3, batch, None),
        (batch, batch, 1),
        (u * 64, u, 64),
        (batch - mod(batch, 8), 8, floordiv(batch, 8)),
        (64 * ceildiv(batch, 64), 64, ceildiv(batch, 64)),
        (3 * batch, 2, None),
    ],
)
def test_exact_quotients(over: Dim, under: Dim, expected: Dim | None) -> None:
    dim = exact_div(over, under)
    assert dim == expected
    assert type(dim) is type(expected)


# Bounds and comparisons


@every(
    ("dim", "expected"),
    [
        (5, (5, 5)),
        (batch, (1, None)),
        (u, (0, None)),
        (symbol("n", None, 7), (None, 7)),
        (3 * batch + 2, (5, None)),
        (2 - batch, (None, 1)),
        (symbol("p", 1, 4) * symbol("q", -2, 3), (-8, 12)),
        (symbol("q", -2, 3) ** 2, (0, 9)),
        (batch * seq - batch, (0, None)),
        (batch**2 - batch, (0, None)),
        (symbol("p", 1, 4) * (10 - symbol("p", 1, 4)), (6, None)),
        (floordiv(symbol("p", 1, 9), 2), (0, 4)),
        (mod(batch, 8), (0, 7)),
        (mod(batch, symbol("p", 3, 9)), (0, 8)),
        (mod(batch, symbol("m", -4, -2)), (-3, 0)),
        (dim_max(batch, 7), (7, None)),
        (dim_min(batch, 7), (1, 7)),
        (batch - floordiv(batch, 2), (1, None)),
        (2 * floordiv(batch, 2) - batch, (-1, 0)),
        (dim_max(batch, seq) - batch, (0, None)),
        (batch - dim_min(batch, seq), (0, None)),
        (64 * ceildiv(batch, 64) - batch, (0, 63)),
    ],
)
def test_bounds(dim: Dim, expected: tuple[int | None, int | None]) -> None:
    lo, hi = bounds(dim)
    if expected == (6, None):
        # Both factors depend on one symbol: any sound answer below the true (9, 25) will do.
        assert lo is not None
        assert 0 <= lo <= 9
    else:
        assert (lo, hi) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (batch, batch, True),
        (batch, seq, None),
        (batch, 0, False),
        (batch, 1, None),
        (batch + 1, batch, False),
        (2 * batch, 2 * seq + 1, False),
        (6 * batch + 3, 9 * seq, None),
        (6 * batch + 2, 9 * seq, False),
        (batch - mod(batch, 8), 8 * floordiv(batch, 8), True),
        (floordiv(batch, 2) + ceildiv(batch, 2), batch, True),
        (dim_max(batch + 1, seq + 1), dim_max(batch, seq) + 1, True),
        (dim_max(-batch, -seq), -dim_min(batch, seq), True),
        (dim_max(2 * batch, 2 * seq), 2 * dim_max(batch, seq), True),
        (3, 3, True),
        (3, 4, False),
    ],
)
def test_equality_has_three_answers(left: Dim, right: Dim, expected: bool | None) -> None:
    assert equal(left, right) is expected
    assert equal(right, left) is expected


@pytest.mark.parametrize(
    ("left", "right", "strictly", "weakly"),
    [
        (1, 2, True, True),
        (batch, batch, False, True),
        (batch, batch + 1, True, True),
        (1, batch, None, True),
        (0, batch, True, True),
        (batch, 0, False, False),
        (batch, seq, None, None),
        (batch, batch * seq, None, True),
        (floordiv(seq, 2), seq, True, True),
        (floordiv(u, 2), u, None, True),
        (mod(seq, batch), batch, True, True),
        (mod(seq, batch), seq, None, True),
        (batch, dim_max(batch, seq), None, True),
        (dim_max(batch, seq), batch + seq, True, True),
        (floordiv(seq - 7, 2) + 1, seq, True, True),
    ],
)
def test_order_has_three_answers(left: Dim, right: Dim, strictly: bool | None, weakly: bool | None) -> None:
    assert less(left, right) is strictly
    assert less_equal(left, right) is weakly
    assert less_equal(right, left) is (None if strictly is None else not strictly)


def test_extremes_are_flat_sorted_and_short() -> None:
    assert dim_max(batch, dim_max(seq, 3), 5) is dim_max(5, seq, batch)
    assert dim_max(batch, batch) is batch
    assert dim_max(batch, 1) is batch
    assert dim_max(batch, 0, -3) is batch
    assert dim_max(3, 4) == 4
    assert dim_min(3, 4) == 3
    assert dim_min(batch, 1) == 1
    assert dim_max(batch, batch + 1, seq) is dim_max(batch + 1, seq)
    assert dim_min(batch, batch + 1, seq) is dim_min(batch, seq)
    assert dim_max(batch, dim_min(batch, seq)) is batch
    assert dim_max(12 * batch * seq + 7, 5 * batch + 3) is 12 * batch * seq + 7
    with pytest.raises(TypeError):
        dim_max()


def test_a_maximum_of_many_formulas_keeps_those_that_may_win() -> None:
    lines = [at * batch + (40 - at) ** 2 for at in range(41)]
    below = [line - 1 for line in lines]
    dim = dim_max(*below, *lines)
    assert dim is dim_max(*reversed(lines))
    assert str(dim).count(",") > 20
    for value in (1, 2, 20, 39, 60, 81):
        assert bind(dim, {"batch": value}) == max(at * value + (40 - at) ** 2 for at in range(41))


def test_broadcasting() -> None:
    assert broadcast(1, 5) == 5
    assert broadcast(5, 1) == 5
    assert broadcast(batch, 1) is batch
    assert broadcast(1, batch) is batch
    assert broadcast(batch, 8) == 8
    assert broadcast(0, u) == 0
    assert broadcast(batch, batch) is batch
    assert broadcast(batch, seq) is dim_max(batch, seq)
    both = broadcast(u, unknown("v"))
    assert str(both) == "max(?nonzero_3, ?v)*min(?nonzero_3, ?v, 1)"
    for left, right, expected in ((0, 1, 0), (1, 0, 0), (0, 0, 0), (4, 1, 4), (1, 4, 4), (4, 4, 4)):
        assert bind(both, {"?nonzero_3": left, "?v": right}) == expected


# Symbols and binding


def test_symbols_are_listed_by_name() -> None:
    formula = dim_max(floordiv(seq, 2) * batch, u)
    assert formula.symbol_names() == ("?nonzero_3", "batch", "seq")
    assert formula.symbols() == (u, batch, seq)
    assert formula.is_unknown
    assert not batch.is_unknown
    assert not (batch + seq).is_unknown  # type: ignore[union-attr]
    assert unknown("?nonzero_3") is u


def test_binding_numbers_and_formulas() -> None:
    formula = 2 * batch * floordiv(seq, 2) + mod(u, 3)
    assert bind(formula, {"batch": 4, "seq": 9, "?nonzero_3": 5}) == 34
    assert bind(formula, {"seq": 2 * heads}) is 2 * batch * heads + mod(u, 3)
    assert bind(formula, {"nonzero_3": 5, "other": 1}) is formula
    assert bind(batch - seq, {"batch": seq, "seq": batch}) is seq - batch
    assert bind(7, {"batch": 1}) == 7
    assert bind(dim_max(batch, seq), {"seq": 1}) is batch


@pytest.mark.parametrize(
    ("value", "limits"), [(0, "from 1 to 64"), (65, "from 1 to 64"), (-batch, "from 1 to 64"), (batch + 64, "from 1 to 64")]
)
def test_binding_respects_the_limits(value: Dim, limits: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(symbol("n", 1, 64) * seq, {"n": value})
    assert caught.value.code == "IRS620"
    for part in ("n cannot be", str(value), limits):
        assert part in str(caught.value)


def test_limits_on_one_side_are_named() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        bind(batch, {"batch": 0})
    with pytest.raises(UsageError, match="at most -1"):
        bind(symbol("low", None, -1), {"low": 0})
    with pytest.raises(UsageError, match="no possible size") as caught:
        symbol("n", 4, 3)
    assert caught.value.code == "IRS620"


def test_binding_that_divides_by_zero_names_the_binding() -> None:
    for formula in (floordiv(seq, u), mod(seq, u)):
        with pytest.raises(UsageError, match=r"divided by zero where \?nonzero_3 = 0, seq = 4") as caught:
            bind(formula + 1, {"?nonzero_3": 0, "seq": 4, "batch": 2})
        assert caught.value.code == "IRS622"


def test_product() -> None:
    assert product([]) == 1
    assert product([2, 3]) == 6
    assert product([batch, 2, seq, 3]) is 6 * batch * seq
    assert product([batch, 0]) == 0
    assert product(iter([batch])) is batch


# Limits that keep formulas from growing without end


def is_collapsed(dim: Dim) -> bool:
    return isinstance(dim, SymDim) and any(name.startswith("?large_") for name in dim.symbol_names())


def test_too_many_terms_become_one_unknown_size() -> None:
    formula: Dim = 1
    for at in range(12):
        formula = formula * (symbol(f"a{at}") + symbol(f"b{at}") + 1)
    assert is_collapsed(formula)
    lo, hi = bounds(formula)
    assert lo is not None
    assert 0 < lo <= 3**12
    assert hi is None
    assert len(str(formula)) < 10_000


def test_the_same_large_formula_has_the_same_name() -> None:
    def build() -> Dim:
        return product([sum((symbol(f"s{at}") * at for at in range(1, 60)), start=0)] * 3)

    first, second = build(), build()
    assert is_collapsed(first)
    assert first is second


def test_high_degrees_and_deep_nesting_collapse() -> None:
    assert not is_collapsed(batch**64)
    assert is_collapsed(batch**64 * batch)
    with pytest.raises(UsageError) as caught:
        _ = batch**65
    assert caught.value.code == "IRS622"
    formula: Dim = batch
    for at in range(200):
        formula = mod(seq * formula + 1, symbol(f"n{at}", 2))
    assert isinstance(formula, SymDim)
    assert is_collapsed(formula)
    assert len(str(formula)) < 10_000
    assert bounds(formula)[0] == 0
    assert parse_dim(str(formula), {str(part): part for part in formula.symbols()}.__getitem__) is formula


@pytest.mark.slow
def test_repeated_squares_stay_small() -> None:
    formula: Dim = batch
    for _ in range(200):
        formula = formula * formula + 1
    assert is_collapsed(formula)
    lo, hi = bounds(formula)
    assert lo.bit_length() < 100_000
    assert hi is None


def test_a_maximum_of_too_many_arguments_collapses_with_bounds() -> None:
    formula = dim_max(*[symbol(f"z{at}", at, 500) for at in range(300)])
    assert is_collapsed(formula)
    assert bounds(formula) == (299, 500)


def test_importing_dims_needs_nothing_heavy() -> None:
    program = (
        "import sys, irscope.ir.dims; "
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'torch', 'onnx', 'sympy', 'textual', 'hashlib')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
