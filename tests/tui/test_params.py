"""The parameters screen's state: weights, groups, histograms."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.errors import PassError
from irscope.ir.dtypes import DType
from irscope.report.printable import display_width
from irscope.session import Model, open_model
from irscope.tui.analyses import report_of
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Histogram, bars, even_histogram, octave_histogram, size_bins, upright
from irscope.tui.command import Source
from irscope.tui.params import PASS, VALUES, Params
from irscope.tui.text import ASCII, UNICODE, Span, Symbols, text_of
from irscope.tui.widgets.paint import Prompt
from irscope.weights.result import TensorStatistics, wide_shape
from tests.frontends.gguf_files import small
from tests.tables import every
from tests.tui.driving import SMALL, drive, press, screen_text
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, TWO_LAYERS, model
from tests.unit.weights.test_differences import changed, write

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


@every("symbols", [UNICODE, ASCII])
@every("size", [(1, 1), (20, 5), (60, 9)])
@every("text", [TWO_LAYERS, EMPTY, HOSTILE, FOREIGN])
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


def found_bins(values: np.ndarray, columns: int) -> Histogram:
    """The histogram of equal widths that the scan counts, drawn in so many columns."""
    floats = values.astype(np.float32)
    words = np.bincount(floats.view("<u2")[1::2], minlength=1 << 16)
    made = TensorStatistics(len(floats))
    wide_shape(words, 8, made, DType.F32)
    assert made.even is not None
    histogram = even_histogram(made.even.width, made.even.first, made.even.counts, made.even.beyond, columns)
    assert histogram is not None
    return histogram


@pytest.mark.parametrize("columns", [7, 20, 47, 64, 200])
def test_bins_of_equal_width_hold_what_numpy_counts(columns: int) -> None:
    values = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    histogram = found_bins(values, columns)
    assert len(histogram.counts) <= columns and sum(histogram.counts) + histogram.beyond == len(values)
    width = float(histogram.axis.rpartition(" ")[2])
    low = -histogram.zero[0] * width
    edges = low + width * np.arange(len(histogram.counts) + 1)
    assert histogram.counts == tuple(np.histogram(values, edges)[0].tolist())


def test_few_values_far_out_are_counted_instead_of_drawn() -> None:
    histogram = found_bins(np.concatenate([np.linspace(-0.99, 0.99, 99_997, dtype=np.float32), [65536.0, 70000.0, 131071.0]]), 64)
    assert histogram.beyond == 3 and histogram.ends == ("-1", "1")
    assert "3 further out" in "".join(text_of(line) for line in upright(histogram, 90, 8, UNICODE))


@given(
    st.dictionaries(st.integers(-149, 127), st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30),
    st.integers(0, 9),
    st.integers(5, 300),
)
def test_octaves_lie_on_a_logarithmic_axis_and_none_is_lost(held: dict[int, tuple[int, int]], zeros: int, columns: int) -> None:
    histogram = octave_histogram([(2.0**at, *counts) for at, counts in sorted(held.items())], zeros, columns)
    total = sum(map(sum, held.values())) + zeros
    if histogram is None:
        assert total == 0
        return
    assert sum(histogram.counts) == total and len(histogram.counts) <= columns
    assert histogram.counts[int(histogram.zero[0])] == zeros


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=80), st.integers(4, 90), st.integers(3, 12))
def test_upright_bars_fit(counts: list[int], width: int, height: int) -> None:
    histogram = even_histogram(0.5, -3, counts, 0, width)
    assert histogram is not None and sum(histogram.counts) == sum(counts)
    lines = upright(histogram, width, height, UNICODE)
    assert len(lines) <= height
    assert all(display_width(text_of(line)) <= width for line in lines)


def odd_model(folder: Path) -> Model:
    """A checkpoint with every alert, each in one tensor, and a good one."""
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(8, 64)).astype(np.float32) for name in ("good", "bad", "wide", "holes", "far")}
    values["bad"][0, 0] = np.nan
    values["wide"][0, 1] = np.inf
    values["holes"][2:4] = 0
    values["far"][1, 1] = 1e6
    values["none"], values["same"] = np.zeros((6, 2), np.float32), np.ones((4, 4), np.float32)
    return open_model(write(folder / "odd.safetensors", values))


def test_before_values_are_read_alerts_are_unknown_and_not_none(tmp_path: Path) -> None:
    made = params(odd_model(tmp_path))
    assert "alerts unknown, V reads values" in made.title()
    assert not text_of(made.alert_lines(80, 1)[0])


def test_alerts_come_first_and_are_counted(tmp_path: Path) -> None:
    opened = odd_model(tmp_path)
    made = params(opened)
    made.take_values(report_of(opened.manager, VALUES))
    assert names(made) == ["bad", "wide", "none", "holes", "same", "far", "good"]
    assert made.selected_name == "bad"
    assert made.title().startswith("Parameters · 6 of 7 tensors with alerts")
    assert text_of(made.alert_lines(80, 1)[0]) == " 1 NaN, 1 Inf, 1 all zero, 1 with dead channels, 1 constant, 1 with outliers"
    texts = [made.table.columns[6].text(int(row)) for row in made.table.shown]
    assert texts == ["1 NaN", "1 Inf", "all zero", "2 dead channels", "constant", "1 outlier", ""]
    said = {}
    for name in names(made):
        made.table.move_to(names(made).index(name))
        said[made.selected_name] = text_of(made.value_lines(78, 6)[0])
    assert said["bad"] == "1 NaN of 512" and said["wide"] == "1 Inf of 512" and said["none"] == "all 12 values are zero"


def test_biases_of_zeros_and_norms_of_ones_are_no_alerts_and_a_matrix_of_zeros_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = {
        f"layer.{number}.{name}": value for number in range(3) for name, value in (("bias", np.zeros(8)), ("norm.weight", np.ones(8)))
    }
    values |= {
        "scale": np.zeros(()),
        "nan.bias": np.array([np.nan, 0.0]),
        "none.weight": np.zeros((8, 4)),
        "weight": rng.normal(size=(8, 8)),
    }
    opened = open_model(write(tmp_path / "fresh.safetensors", {name: value.astype(np.float32) for name, value in values.items()}))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3", "V")
        text = screen_text(app)
        assert "2 of 10 tensors with alerts" in text
        assert " 1 NaN, 1 all zero; none: Inf" in text
        rows = [line for line in text.splitlines() if "f32" in line]
        assert "nan.bias" in rows[0] and "1 NaN" in rows[0] and "none.weight" in rows[1] and "all zero" in rows[1]
        assert not any("zero" in row or "constant" in row for row in rows[2:])

    drive(opened, steps)
    made = params(opened)
    made.take_values(report_of(opened.manager, VALUES))
    made.table.move_to(names(made).index("layer.0.bias"))
    assert made.value_lines(78, 6)[0] == (Span("all 8 values are zero", "plain"),)


def test_a_model_without_alerts_says_so() -> None:
    opened = open_model(SAMPLE)
    made = params(opened)
    made.take_values(report_of(opened.manager, VALUES))
    none = text_of(made.alert_lines(120, 1)[0])
    assert "none: NaN, Inf" in none


@pytest.mark.slow
def test_at_80_columns_v_shows_the_alerts_x_the_other_axis_and_o_which_weights_changed(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    _, after = changed(tmp_path / "two")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3")
        assert "alerts unknown" in screen_text(app)
        await press(app, pilot, "V")
        lines = screen_text(app).splitlines()
        at = next(place for place, line in enumerate(lines) if "6 of 7 tensors with alerts" in line)
        assert "1 NaN, 1 Inf, 1 all zero, 1 with dead channels, 1 constant, 1 with outliers" in lines[at + 1]
        assert "alerts" in lines[at + 2] and "1 NaN" in lines[at + 3] and "1 Inf" in lines[at + 4] and "all zero" in lines[at + 5]
        assert "linear axis, " in screen_text(app)
        await press(app, pilot, "x")
        assert "logarithmic axis, bins of a factor of" in screen_text(app)
        await press(app, pilot, "v")
        assert "Parameters by module · 6 of 7 tensors with alerts" in screen_text(app)
        await press(app, pilot, "o")
        app.screen.query_one("#other", Prompt).value = after
        await press(app, pilot, "enter")
        assert app.model_screen is not None and app.model_screen.NAME == "compare"
        assert "only in A" in screen_text(app)

    drive(odd_model(tmp_path), steps, size=SMALL)


def test_no_sizes_no_bars() -> None:
    assert size_bins([], 4) == []
    assert text_of(bars([], 40, UNICODE)[0]) == "no sizes"


def test_a_gguf_file_shows_its_types_and_values_that_are_not_read(tmp_path: Path) -> None:
    opened = open_model(small().write(tmp_path / "model.gguf"))
    made = params(opened)
    assert "190,208" in made.title()
    assert {opened.graph.weights[0].type.dtype.text, "q8_0"} <= {str(weight.type.dtype) for weight in opened.graph.weights}
    made.take_values(report_of(opened.manager, VALUES))
    assert "not read" in text_of(made.alert_lines(80, 1)[0])


def test_memory_of_weights_alone_is_unknown_and_says_what_they_take(tmp_path: Path) -> None:
    """Nothing is 0 B there, and nothing is still being computed."""
    opened = open_model(write(tmp_path / "weights.safetensors", {"a": np.zeros((128, 384), dtype=np.float32)}))
    seen = []

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2")
        seen.append(screen_text(app))

    drive(opened, steps, size=SMALL)
    text = " ".join(seen[0].split())
    assert "memory over a run is unknown: its weights take 192.00 KiB; 3 lists them" in text and "Alive: ?, the file has no graph" in text
    assert "computing" not in text and " 0 B" not in text


def test_equal_layers_of_a_checkpoint_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    values = {f"h.{number}.w": np.full((4, 4), number, dtype=np.float32) for number in range(12)}
    opened = open_model(write(tmp_path / "layers.safetensors", dict(sorted(values.items()))))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        def shown() -> list[str]:
            return [match[0] for line in screen_text(app).splitlines() if "f32" in line and (match := re.search(r"h\.\d+\.w", line))]

        await press(app, pilot, "3")
        ordered = [f"h.{number}.w" for number in range(12)]
        assert shown() == ordered
        await press(app, pilot, "V")
        # The matrix of zeros is an alert; equal rows behind it keep the order.
        assert shown() == ordered

    drive(opened, steps)
