"""The parameters screen's state: weights, groups, histograms."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import PassError
from irscope.report.printable import display_width
from irscope.session import Model, open_model
from irscope.tui.analyses import report_of
from irscope.tui.models.browse import Browse
from irscope.tui.models.command import Source
from irscope.tui.models.histogram import Bin, bars, size_bins, upright
from irscope.tui.models.params import PASS, VALUES, Params
from irscope.tui.models.spans import text_of
from irscope.tui.models.symbols import ASCII, UNICODE, Symbols
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, TWO_LAYERS, model

SAMPLE = Path(__file__).parents[2] / "samples" / "models" / "net.pt2"


def params(opened: Model, question: str = PASS, symbols: Symbols = UNICODE) -> Params:
    made = Params(Browse(opened.program, Source("m"), symbols))
    made.take(report_of(opened.manager, question))
    return made


def names(made: Params) -> list[str]:
    return [made.table.text(row).split("  ")[0] for row in made.table.shown.tolist()]


def test_weights_come_largest_first() -> None:
    assert names(params(model(TWO_LAYERS))) == ["w1", "w2", "b1"]


def test_shares_and_totals() -> None:
    made = params(model(TWO_LAYERS))
    assert "33,024 in 129.00 KiB" in made.title()
    assert "49.6%" in made.table.text(0)
    assert "V reads values" in made.title()


@pytest.mark.parametrize(
    ("text", "left"), [("w", 2), ("b1", 1), ("!w", 1), ("mem>1KiB", 2), ("mem<2KiB", 1), ("f32", 3), ("zzz", 0), ("", 3)]
)
def test_filtering(text: str, left: int) -> None:
    made = params(model(TWO_LAYERS))
    assert made.set_filter(text) == ""
    assert len(made.table) == left


def test_wrong_filters_are_explained() -> None:
    made = params(model(TWO_LAYERS))
    assert "not an amount of memory" in made.set_filter("mem>x")
    assert "no FLOPs" in made.set_filter("flops>1")


def test_modules_open_their_tensors() -> None:
    made = params(open_model(SAMPLE))
    made.toggle_group()
    assert made.selected_name == "(model)"
    made.table.move_to(1)
    module = made.selected_name
    assert made.open_module()
    assert made.group == "tensors"
    assert made.filter_text == module
    assert all(name.startswith(module) for name in names(made))
    assert not made.open_module()


def test_the_first_reader_of_a_tensor_is_found() -> None:
    made = params(model(TWO_LAYERS))
    assert made.selected_name == "w1"
    assert made.user_row() == 2


def test_values_bring_statistics_and_histograms() -> None:
    opened = open_model(SAMPLE)
    made = params(opened)
    assert "reads them all" in text_of(made.value_lines(60, 8)[0])
    made.take_values(report_of(opened.manager, VALUES))
    assert made.has_values
    titles = [column.title for column in made.table.columns]
    assert {"mean", "std", "largest", "zeros"} <= set(titles)
    made.table.select(0)
    chart = "\n".join(text_of(line) for line in made.value_lines(90, 8))
    assert "█" in chart


def test_values_that_cannot_be_read_say_why() -> None:
    made = params(model(TWO_LAYERS))
    made.is_reading = True
    assert "reading" in text_of(made.value_lines(60, 4)[0])
    made.fail_values(PassError("the weights are not here", hint="put them there"))
    text = "\n".join(text_of(line) for line in made.value_lines(60, 4))
    assert "not here" in text
    assert "put them there" in text
    assert not made.is_reading


@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(1, 1), (20, 5), (60, 9)])
@pytest.mark.parametrize("text", [TWO_LAYERS, EMPTY, HOSTILE, FOREIGN])
def test_lines_fit_over_anything(text: str, size: tuple[int, int], symbols: Symbols) -> None:
    made = params(model(text), symbols=symbols)
    for lines in (made.size_lines(*size), made.value_lines(*size)):
        assert len(lines) == size[1]
        if symbols is ASCII:
            assert all(text_of(line).isascii() for line in lines)
    assert made.export() is not None


def test_before_the_answer_there_is_a_sign_of_waiting() -> None:
    opened = model(TWO_LAYERS)
    made = Params(Browse(opened.program, Source("m"), UNICODE))
    assert text_of(made.size_lines(40, 3)[0]) == "…"
    assert made.title() == "Parameters"
    made.fail(PassError("no"))
    assert "no" in text_of(made.size_lines(40, 3)[0])


@given(st.lists(st.integers(1, 2**45), min_size=1, max_size=80), st.integers(1, 12))
def test_every_size_is_in_one_bin(sizes: list[int], most: int) -> None:
    bins = size_bins(sizes, most)
    assert len(bins) <= most
    assert sum(one.count for one in bins) == len(sizes)
    assert sum(one.weight for one in bins) == sum(sizes)
    for one in bins:
        assert one.count == sum(one.low <= size < one.high for size in sizes)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=20), st.integers(30, 90))
def test_bars_fit(sizes: list[int], width: int) -> None:
    for line in bars(size_bins(sizes, 8), width, UNICODE):
        assert display_width(text_of(line)) <= width


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=80), st.integers(4, 90), st.integers(3, 12))
def test_upright_bars_fit(counts: list[int], width: int, height: int) -> None:
    bins = [Bin(float(place), float(place + 1), count) for place, count in enumerate(counts)]
    lines = upright(bins, width, height, UNICODE)
    assert len(lines) <= height
    assert all(display_width(text_of(line)) <= width for line in lines)


def test_no_sizes_no_bars() -> None:
    assert size_bins([], 4) == []
    assert text_of(bars([], 40, UNICODE)[0]) == "no sizes"
