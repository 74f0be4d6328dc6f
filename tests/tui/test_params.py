"""The parameters screen's state: weights, groups, histograms."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.errors import PassError
from irscope.report.printable import display_width
from irscope.session import Model, open_model
from irscope.tui.analyses import report_of
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Bin, bars, linear, size_bins, upright
from irscope.tui.command import Source
from irscope.tui.params import PASS, VALUES, Params
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tui.driving import SMALL, drive, press, screen_text
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


def octaves(values: np.ndarray) -> list[Bin]:
    """Bins as the statistics of weights have them: powers of two on both sides of zero."""
    exponents = np.floor(np.log2(np.abs(values)))
    return [
        Bin(*sorted((sign * 2.0**power, sign * 2.0 ** (power + 1))), int(np.sum((exponents == power) & (np.sign(values) == sign))))
        for sign in (-1, 1)
        for power in np.unique(exponents)
    ]


def test_a_normal_distribution_has_one_tower() -> None:
    """Its octaves hold most values around one standard deviation, on both sides; on a linear axis most lie in the middle."""
    found = linear(octaves(np.random.default_rng(0).normal(size=100_000)), 0, 61)
    assert found is not None
    middle = int(-found.low / (found.high - found.low) * 61)
    assert max(found.counts[middle - 8 : middle + 9]) == max(found.counts)
    for side in (found.counts[middle + 3 :], found.counts[: middle - 2][::-1]):
        steps = [before - after for before, after in pairwise(side)]
        assert min(steps) > -0.12 * max(found.counts), "there is a second tower"
    assert found.counts[middle] > 4 * found.counts[middle + 30 * 2 // 3]


def test_an_even_distribution_is_flat() -> None:
    found = linear(octaves(np.random.default_rng(0).uniform(-1, 1, size=400_000)), 0, 40)
    assert found is not None and max(found.counts) < 1.1 * min(found.counts)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.integers(0, 10**6)), max_size=20),
    st.integers(0, 1000),
    st.integers(1, 90),
)
def test_no_value_gets_lost(parts: list[tuple[float, float, int]], zeros: int, columns: int) -> None:
    bins = [Bin(low, low + wide, count) for low, wide, count in parts]
    total = sum(one.count for one in bins) + zeros
    found = linear(bins, zeros, columns)
    assert (found is None) == (total == 0)
    if found is not None:
        assert sum(found.counts) + found.beyond == pytest.approx(total)
        assert found.beyond <= 2 * (total // 1000)


def test_few_values_far_out_are_counted_instead_of_drawn() -> None:
    bins = [Bin(-1.0, 0.0, 50_000), Bin(0.0, 1.0, 50_000), Bin(65536.0, 131072.0, 3)]
    found = linear(bins, 0, 10)
    assert found is not None and (found.low, found.high, found.beyond) == (-1.0, 1.0, 3)
    assert "3 further out" in "".join(text_of(line) for line in upright(bins, 60, 6, UNICODE))


def odd_model(tmp_path: Path) -> Model:
    torch = pytest.importorskip("torch")

    values = {
        "good": torch.linspace(-1, 1, 64),
        "bad": torch.tensor([float("nan"), 1.0]),
        "none": torch.zeros(6, 2),
        "wide": torch.tensor([float("inf"), 1.0, 1.0]),
    }
    torch.save(values, tmp_path / "odd.pt")
    return open_model(tmp_path / "odd.pt")


def test_what_is_odd_comes_first_and_is_counted(tmp_path: Path) -> None:
    opened = odd_model(tmp_path)
    made = params(opened)
    assert names(made)[0] == "good"
    assert not text_of(made.odd_lines(80, 1)[0])
    made.take_values(report_of(opened.manager, VALUES))
    assert names(made) == ["bad", "wide", "none", "good"]
    assert text_of(made.odd_lines(80, 1)[0]) == " 4 tensors: 1 with NaN, 1 with Inf, 1 all zero, 0 not read"
    rows = [text_of(made.table.line(place, 78, selected=False)) for place in range(4)]
    assert [row.split()[-2:] for row in rows[:3]] == [["1", "NaN"], ["1", "Inf"], ["all", "zero"]]
    said = {}
    for name in names(made):
        made.table.move_to(names(made).index(name))
        said[made.selected_name] = text_of(made.value_lines(78, 6)[0])
    assert said["bad"] == "1 NaN of 2" and said["wide"] == "1 Inf of 3" and said["none"] == "all 12 values are zero"


def test_the_screen_shows_them_at_80_columns(tmp_path: Path) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3", "V")
        lines = screen_text(app).splitlines()
        at = next(place for place, line in enumerate(lines) if "1 with NaN, 1 with Inf, 1 all zero" in line)
        assert "values" in lines[at + 1] and "1 NaN" in lines[at + 2] and "1 Inf" in lines[at + 3] and "all zero" in lines[at + 4]

    drive(odd_model(tmp_path), steps, size=SMALL)


def test_no_sizes_no_bars() -> None:
    assert size_bins([], 4) == []
    assert text_of(bars([], 40, UNICODE)[0]) == "no sizes"
