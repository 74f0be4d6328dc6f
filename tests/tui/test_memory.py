"""The memory screen's state: what is alive where, and why."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.errors import PassError
from irscope.frontends.base import LoadOptions
from irscope.passes.lifetimes.timeline import HeldOver
from irscope.passkit.settings import Settings
from irscope.report.printable import display_width
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity, bare
from irscope.session import open_model
from irscope.tools.fit import fit
from irscope.tui.analyses import analysis_of, report_of
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Stack
from irscope.tui.command import Source
from irscope.tui.memory.lives import OTHERS, REST, By, Lives, Occupants, measured, occupants_of
from irscope.tui.memory.model import Found, Memory
from irscope.tui.memory.views import Counters, Verdict, counters_of
from irscope.tui.results import Alive
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tables import every
from tests.tui.driving import drive, press
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model

SAMPLES = Path(__file__).parents[2] / "samples"
ALL = [TWO_LAYERS, SYMBOLIC, FOREIGN, HOSTILE, NESTED, EMPTY]


def memory(text: str, *, symbols: Symbols = UNICODE, lifetime: str = "auto") -> Memory:
    """The model of a text with its answer."""
    opened = model(text)
    made = Memory(Browse(opened.program, Source("m.irs", settings=opened.manager.settings), symbols))
    made.browse.context = made.context.with_target(lifetime=lifetime)
    result = opened.manager.run_one(analysis_of(opened.manager, made.context.liveness))
    made.take(Found(made.context.target, Lives(result.value, made.browse.outline), counters_of(result.report()), measured(result.value)))
    return made


@pytest.mark.parametrize("lifetime", ["auto", "ssa", "eager", "jit"])
@pytest.mark.parametrize("text", [TWO_LAYERS, NESTED, FOREIGN])
def test_the_stack_adds_up_to_what_the_pass_says(text: str, lifetime: str) -> None:
    made = memory(text, lifetime=lifetime)
    assert made.stack is not None
    assert made.found is not None
    footprint = made.found.live.footprint
    assert made.stack.total.tolist() == list(footprint.heights)
    assert made.stack.total.max() == (footprint.peak.lo if footprint.peak.value is None else footprint.peak.value)
    made.toggle_base()
    assert made.stack.total.tolist() == list(footprint.heights)


def test_the_first_answer_goes_to_the_peak() -> None:
    made = memory(TWO_LAYERS)
    assert made.stack is not None
    assert made.step == made.stack.peak
    assert made.browse.step == made.step


def test_the_table_lists_what_is_alive_largest_first() -> None:
    made = memory(TWO_LAYERS)
    made.go_to(0)
    sizes = [made.size_of(one) for one in made.held()]
    assert sizes == sorted(sizes, reverse=True)
    rows = {made.table.columns[0].text(row): made.table.text(row) for row in range(len(made.table.shown))}
    assert set(rows) == {"3 parameters", "x", "%hidden"}
    assert "made here" in rows["%hidden"]
    assert "4.00 KiB" in rows["%hidden"]
    assert f"{made.stack.text_at(0)} in 3 rows" in made.table_title()


def test_the_sum_of_the_table_is_the_height_of_the_chart() -> None:
    made = memory(TWO_LAYERS)
    assert made.stack is not None
    for step in range(len(made.stack)):
        made.go_to(step)
        assert sum(made.size_of(one) or 0 for one in made.held()) == made.stack.total[step]


def test_steps_outside_are_taken_for_the_nearest() -> None:
    made = memory(TWO_LAYERS)
    made.go_to(-4)
    assert made.step == 0
    made.go_to(99)
    assert made.step == 3


def test_filtering_holds_for_every_step() -> None:
    made = memory(TWO_LAYERS)
    made.set_filter("hidden")
    for step in (0, 1):
        made.go_to(step)
        assert [made.table.text(row).split()[0] for row in made.table.shown.tolist()] == ["%hidden"]
    made.set_filter("!hidden")
    assert all("hidden" not in made.table.text(row) for row in made.table.shown.tolist())
    made.set_filter("")
    assert len(made.table)


def test_hills() -> None:
    made = memory(TWO_LAYERS)
    made.go_to(0)
    assert made.go_to_hill(1)
    assert made.stack is not None
    assert made.step == made.stack.peak
    assert not made.go_to_hill(1)
    assert made.go_to_peak()


def test_a_range_says_what_was_made_and_freed() -> None:
    made = memory(TWO_LAYERS)
    made.go_to(0)
    made.toggle_mark()
    made.go_to(3)
    assert made.range == (0, 3)
    texts = [made.table.text(row) for row in made.table.shown.tolist()]
    assert any("made and freed in the range" in text for text in texts)
    assert "Steps 0 to 3" in made.table_title()
    assert "freed" in made.table_title()
    made.toggle_mark()
    assert made.range is None


@every("symbols", [UNICODE, ASCII])
def test_the_axis_begins_at_what_never_changes_where_that_is_more_than_half(symbols: Symbols) -> None:
    made = memory(TWO_LAYERS, symbols=symbols)
    weights, inputs = (256 * 64 + 256 + 64 * 256) * 4, 4 * 64 * 4
    assert made.stack is not None
    assert made.stack.parts["weights"].tolist() == [weights] * 4
    assert made.stack.parts["inputs"].tolist() == [inputs] * 4
    base, cut = humanise(weights + inputs, Kind.BYTES), symbols.glyphs.cut
    lines = [text_of(line) for line in made.chart_lines(100, 20)]
    # The lowest row before the axis, with where the bars above it begin.
    broken = next(number for number, line in enumerate(lines) if line.startswith(base))
    assert f"{cut * 2} weights + inputs, not to scale: never changes; r shows all {cut}" in lines[broken]
    assert lines[broken + 1].strip().startswith("0 B")
    # What changes has all rows above it: the peak reaches the highest, the lowest total does not.
    top = f"{made.stack.top_text()} {symbols.glyphs.axis}"
    bars = next(line for line in lines if line.startswith(top))[made.stack.margin() :]
    count = 100 - made.stack.margin()
    assert bars[made.stack.column_of(made.stack.peak or 0, count)].strip()
    assert not bars[made.stack.column_of(int(made.stack.total.argmin()), count)].strip()
    made.toggle_base()
    assert not any(cut * 2 in text_of(line) for line in made.chart_lines(100, 20))
    made.toggle_base()
    assert any("r shows all" in text_of(line) for line in made.chart_lines(100, 20))


def test_the_axis_begins_at_zero_where_what_never_changes_is_less_than_half_or_all() -> None:
    half = TWO_LAYERS.replace("f32[4,64]", "f32[4096,64]")
    made = memory(half)
    assert made.stack is not None and not made.stack.is_broken
    made.toggle_base()
    assert made.stack.is_broken and made.stack.base(12) == made.stack.unchanging
    assert not made.stack.base(2), "there is no room to say so"
    whole = Stack({"weights": np.full(5, 7.0)})
    whole.breaks = None
    assert not whole.is_broken


def test_the_curve_moves_with_the_sizes() -> None:
    made = memory(SYMBOLIC)
    assert made.context.assumed == "batch=1"
    assert made.stack is not None
    weights = made.stack.parts["weights"]
    one = (made.stack.total - weights).tolist()
    assert made.browse.set_sizes("batch=8") == ""
    assert made.is_stale
    made.update()
    assert not made.is_stale
    assert (made.stack.total - weights).tolist() == [8 * value for value in one]


def test_sizes_grow_and_shrink_within_their_bounds() -> None:
    made = memory(SYMBOLIC)
    assert made.scale_symbol(plus=1) == ""
    assert made.browse.results.binding.env == {"batch": 2}
    made.scale_symbol(times=2)
    assert made.browse.results.binding.env == {"batch": 4}
    made.scale_symbol(times=1000)
    assert made.browse.results.binding.env == {"batch": 128}
    made.scale_symbol(plus=-500)
    assert made.browse.results.binding.env == {"batch": 1}
    assert memory(TWO_LAYERS).scale_symbol(plus=1)


def test_counters_for_other_sizes_have_to_be_asked_for() -> None:
    assert not memory(TWO_LAYERS).lacks_counters
    made = memory(SYMBOLIC)
    assert made.lacks_counters
    made.take_counters(made.counted_for, None)
    assert not made.lacks_counters
    made.browse.set_sizes("batch=4")
    assert made.lacks_counters
    made.take_counters(made.counted_for, PassError("no file"))
    assert not made.lacks_counters
    assert "no file" in text_of(made.counters().lines(100, UNICODE)[0])  # type: ignore[union-attr]


def test_the_peak_over_sizes_comes_from_one_analysis() -> None:
    opened = model(SYMBOLIC)
    made = memory(SYMBOLIC)
    assert made.sizes_question == 'curve{over="batch=1..64"}'
    made.take_sizes(report_of(opened.manager, made.sizes_question))
    assert made.by_size is not None
    made.drawings.view = "sizes"
    text = "\n".join(text_of(line) for line in made.chart_lines(80, 14))
    assert "batch=1 to batch=64" in text
    assert memory(TWO_LAYERS).sizes_question == ""


@pytest.mark.slow
def test_peaks_over_sizes_are_what_the_allocator_reserves_and_the_largest_that_fits_is_marked() -> None:
    opened = open_model(SAMPLES / "tagger.irs", settings=Settings(device="l4"))
    made = Memory(Browse(opened.program, Source("tagger.irs", settings=opened.manager.settings), UNICODE))
    run = opened.manager.run_one(analysis_of(opened.manager, "liveness"))
    made.take(Found(made.context.target, Lives(run.value, made.browse.outline), None))
    made.drawings.view = "sizes"
    assert made.lacks_fit and "X looks for the largest batch" in text_of(made.chart_lines(80, 20)[0])
    found = fit(opened)
    made.take_largest(made.fit_for, found)
    assert found.largest and not made.lacks_fit
    question = made.sizes_question
    assert f",{found.largest}," in question and question.count(",") <= 66
    report = report_of(opened.manager, question)
    made.take_sizes(report)
    table, stack = report.tables[0], made.by_size
    assert stack is not None
    assert stack.total.tolist() == [bare(cell) for cell in table.cells("reserved_bytes")]
    assert stack.parts["weights and inputs"].tolist() == [bare(cell) for cell in table.cells("resident_bytes")]
    assert all((part >= 0).all() for part in stack.parts.values())
    room = opened.manager.get("cuda-memory").target.device.room_bytes
    place = stack.place_of(found.largest)
    assert place is not None and stack.total[place] <= room < stack.total[-1]
    made.browse.results.verdict, made.browse.results.verdict_for = Verdict("", None, "l4", room), made.counted_for
    made.draw_limit()
    text = "\n".join(text_of(line) for line in made.chart_lines(100, 24))
    assert f"the largest batch that fits: {found.largest:,}" in text and f"the largest that fits: batch={found.largest:,}" in text
    assert "capacity of l4" in text and "~" in text


def test_an_answer_to_another_question_is_dropped() -> None:
    made = memory(TWO_LAYERS)
    before = made.found
    made.browse.context = made.context.with_target(lifetime="eager")
    assert made.is_waiting
    assert before is not None
    made.take(Found(("", "ssa", "worst"), before.lives, before.counters))
    assert made.found is before
    assert "computing" in made.chart_title()


def test_an_error_is_shown() -> None:
    made = memory(TWO_LAYERS)
    made.fail(PassError("it broke", hint="try ssa"))
    text = "\n".join(text_of(line) for line in made.chart_lines(60, 8))
    assert "it broke" in text
    assert "try ssa" in text
    assert not made.is_waiting


@every("symbols", [UNICODE, ASCII])
@every("size", [(1, 1), (20, 5), (60, 9), (120, 30)])
@every("text", ALL)
def test_lines_fit_over_anything(text: str, size: tuple[int, int], symbols: Symbols) -> None:
    made = memory(text, symbols=symbols)
    made.toggle_base()
    width, height = size
    lines = made.chart_lines(width, height)
    assert len(lines) == height
    if width >= 60:
        assert all(display_width(text_of(line)) <= width for line in lines)
    shown = [text_of(line) for line in lines] + [made.chart_title(), made.table_title()]
    assert all(character.isprintable() for text in shown for character in text)
    if symbols is ASCII:
        assert all(text.isascii() for text in shown)


def test_unknown_sizes_are_counted_not_taken_for_zero() -> None:
    assert "1 tensors of unknown size not counted" in memory(HOSTILE).chart_title() or memory(FOREIGN).uncounted >= 1


def test_the_row_leads_to_its_node() -> None:
    made = memory(TWO_LAYERS)
    made.go_to(0)
    names = [made.table.columns[0].text(row) for row in range(len(made.table.shown))]
    assert made.export().cells("tensor") == names
    made.table.index = names.index("%hidden")
    assert made.row_of_selected() == 2
    assert made.selected_name() == "%hidden"
    made.table.index = names.index("x")
    assert made.row_of_selected() is None


def test_counters_with_and_without_numbers() -> None:
    known = Counters("h200", {("before", "allocated"): 1024, ("cold", "allocated"): 4096, ("warm", "allocated"): None})
    lines = [text_of(line).split() for line in known.lines(200, UNICODE)]
    assert lines == [
        ["h200", "requested", "allocated", "reserved"],
        ["before", "?", "1.00", "KiB", "?"],
        ["first", "?", "4.00", "KiB", "?"],
        ["steady", "?", "?", "?"],
    ]
    unknown = Counters("h200", {("before", "allocated"): None}, "sizes depend on symbols")
    assert text_of(unknown.lines(80, UNICODE)[0]) == "allocator ? sizes depend on symbols"


def test_intervals_stand_only_where_the_legend_has_room_beside_them() -> None:
    opened = open_model(SAMPLES / "tagger.irs", settings=Settings(device="l4")).rebound({"batch": 4})
    made = Memory(Browse(opened.program, Source("tagger.irs", settings=opened.manager.settings), UNICODE))
    run = opened.manager.run_one(analysis_of(opened.manager, "liveness"))
    made.take(Found(made.context.target, Lives(run.value, made.browse.outline), counters_of(run.report()), measured(run.value)))
    for width, has_intervals in ((78, False), (118, False), (198, True)):
        lines = [text_of(line) for line in made.chart_lines(width, 30)]
        steady = next(line for line in lines if "steady " in line)
        assert (" to " in steady) is has_intervals
        # Beside one another they leave the chart its room.
        assert width == 78 or next(number for number, line in enumerate(lines) if "peak ~" in line) == 4


@given(st.lists(st.integers(0, 2**48), min_size=9, max_size=9), st.booleans())
def test_no_counter_is_ever_cut(sizes: list[int], is_modelled: bool) -> None:
    where = Provenance.MODELLED if is_modelled else Provenance.EXACT
    keys = [(moment, counter) for moment in ("before", "cold", "warm") for counter in ("requested", "allocated", "reserved")]
    made = Counters("rtx-4090-laptop", {key: Quantity(size, where, lo=0, hi=size) for key, size in zip(keys, sizes, strict=True)})
    lines = [text_of(line) for line in made.lines(78, UNICODE)]
    assert all(display_width(line) <= 78 for line in lines)
    for number, line in enumerate(lines[1:]):
        for size in sizes[3 * number : 3 * number + 3]:
            assert humanise(size, Kind.BYTES) in line


def test_counters_come_from_the_summary() -> None:
    opened = model(TWO_LAYERS)
    eager = counters_of(report_of(opened.manager, "liveness{model=eager}"))
    assert eager is not None
    assert eager.is_known
    assert eager.device == "h200"
    assert counters_of(report_of(opened.manager, "stats")) is None


IN_PLACE = """irscope 1
graph @main {
  input %x: f32[4,64]
  %a: ?[*] = math.abs(%x) @first !"onnx::Abs@17"
  %b: ?[*] = nn.relu(%a) @second !"onnx::Relu@17"
  %c: ?[*] = math.exp(%b) @third !"onnx::Exp@17"
  return %c
}
"""


def test_a_row_is_the_tensor_that_has_the_buffer_at_the_cursor() -> None:
    made = memory(IN_PLACE, lifetime="ort")
    made.go_to(2)
    texts = {made.table.columns[0].text(row): made.table.text(row) for row in range(len(made.table.shown))}
    assert set(texts) == {"x", "%b", "%c"}
    assert "read here, in the buffer of a" in texts["%b"]
    assert "second" in texts["%b"]
    table = made.export()
    assert set(zip(*(table.cells(key) for key in ("tensor", "born", "dies", "made_by")), strict=True)) == {
        ("x", 0, 3, ""),
        ("%b", 1, 2, "second"),
        ("%c", 2, 3, "third"),
    }
    made.set_filter("second")
    assert [made.table.columns[0].text(row) for row in made.table.shown] == ["%b"]
    made.set_filter("")
    made.go_to(0)
    made.toggle_mark()
    made.go_to(2)
    assert "made and freed in the range, a buffer of 2 tensors in turn" in " ".join(made.table.text(row) for row in made.table.shown)


@pytest.mark.parametrize("device", ["", "rtx3090", "xeon-8480"])
@pytest.mark.parametrize("name", ["tagger.irs", "mlp.irs", "models/cnn.onnx", "models/lstm.onnx", "models/net.pt", "models/net.pt2"])
def test_header_chart_and_table_say_what_the_report_says(name: str, device: str) -> None:
    opened = open_model(SAMPLES / name, LoadOptions())
    if opened.program.symbols:
        opened = opened.rebound(dict.fromkeys(opened.program.symbols, 4))
    opened.manager.settings = Settings(device=device)
    made = Memory(Browse(opened.program, Source(name, settings=opened.manager.settings), UNICODE))
    run = opened.manager.run_one(analysis_of(opened.manager, made.context.liveness))
    made.take(Found(made.context.target, Lives(run.value, made.browse.outline), counters_of(run.report()), measured(run.value)))
    summary = run.report().summary
    of = "tensor" if "tensor_peak_bytes" in summary else "device"
    peak = bare(summary[f"{of}_peak_bytes"])  # type: ignore[arg-type]  # a cell
    assert isinstance(peak, int)
    assert made.go_to_peak() and made.stack is not None
    assert made.stack.total.max() == made.stack.total[made.step] == peak == sum(made.size_of(one) or 0 for one in made.held())
    text = humanise(peak, Kind.BYTES)
    assert f"{text} in {made.count}" in made.table_title() and f"{text} at step {made.step}" in made.chart_title()
    Alive(Lives(run.value, made.browse.outline), (), measured(run.value)).apply(made.browse.results)
    (peaks,) = [span.text for line in made.browse.header(300) for span in line if " peak " in span.text]
    assert peaks.removeprefix(f"{of} peak ").lstrip("~") == f"{text} at step {made.step}"


@pytest.mark.parametrize("by", ["module", "tensor"])
@pytest.mark.parametrize("name", ["tagger.irs", "mlp.irs", "models/cnn.onnx", "models/lstm.onnx", "models/net.pt", "models/net.pt2"])
def test_modules_and_tensors_add_up_to_every_step(name: str, by: By) -> None:
    opened = open_model(SAMPLES / name, LoadOptions())
    if opened.program.symbols:
        opened = opened.rebound(dict.fromkeys(opened.program.symbols, 4))
    made = Memory(Browse(opened.program, Source(name, settings=opened.manager.settings), UNICODE))
    run = opened.manager.run_one(analysis_of(opened.manager, made.context.liveness))
    made.take(Found(made.context.target, Lives(run.value, made.browse.outline), counters_of(run.report()), measured(run.value)))
    assert made.found is not None and made.stack is not None
    total, categories = made.stack.total.tolist(), dict(made.stack.parts)
    made.by = by
    assert made.lacks_occupants
    made.take_occupants(made.counted_for, occupants_of(run.value, made.measured, made.found.lives, made.shown_for))
    assert made.stack.total.tolist() == total
    assert set(made.stack.parts) - {"weights", "inputs", OTHERS, REST}
    assert made.stack.parts["weights"].tolist() == categories["weights"].tolist()
    # What has no name of its own is rounding, and never less than nothing.
    assert made.stack.parts.get(REST, np.zeros(1)).min() >= 0
    made.go_to_peak()
    legend = made.stack.values_at(made.step)
    assert sum(legend.values()) == max(total) == sum(made.size_of(one) or 0 for one in made.held())
    if by == "tensor":
        named = {one.name: made.size_of(one) for one in made.held() if one.value is not None}
        assert all(named.get(key, size) == size for key, size in legend.items())
        assert set(legend) & set(named)


@pytest.mark.parametrize("text", ALL)
def test_stacking_by_anything_works_over_anything(text: str) -> None:
    made = memory(text)
    for _ in range(3):
        made.next_grouping()
        if made.lacks_occupants and made.found is not None:
            made.take_occupants(made.counted_for, occupants_of(made.found.live, made.measured, made.found.lives, made.shown_for))
        assert len(made.chart_lines(80, 20)) == 20
    assert made.by == "category"


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 2**40), st.sampled_from(["a/b", "a/c/d", "a/c", "", "e"])),
        max_size=40,
    )
)
def test_parts_by_name_add_up_whatever_is_alive(rows: list[tuple[int, int, int, str]]) -> None:
    held, total = HeldOver(), np.zeros(10, dtype=np.float64)
    for number, (one, other, size, path) in enumerate(rows):
        first, last = min(one, other), max(one, other)
        held.add_slot(f"t{number % 17}", "parameter" if number % 5 == 0 else "activation", size, (first, last), None)
        held.modules[-1] = path
        total[first : last + 1] += size
    made = Occupants(held, np.arange(10), 10)
    for by in ("module", "tensor"):
        parts = made.parts(by, total + 7, int(np.argmax(total)))
        assert np.sum(list(parts.values()), axis=0).tolist() == (total + 7).tolist()
        assert parts[REST].tolist() == [7.0] * 10
        assert len(parts) <= 14


@pytest.mark.slow
def test_the_cursor_stays_where_several_steps_are_of_one_node(tmp_path: Path) -> None:
    """XLA runs some nodes again inside other kernels: such steps have one row of the tree, and yet each is a step."""
    path = tmp_path / "grad.mlir"
    path.write_bytes(gzip.decompress((Path(__file__).parents[1] / "data" / "jax" / "cnn_grad.mlir.gz").read_bytes()))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2")
        memory = app.session["memory"]
        rows = memory.found.lives.steps.rows.tolist()
        assert len(set(rows)) < len(rows) and memory.step == memory.stack.peak
        await press(app, pilot, "home")
        for step in range(len(rows)):
            assert memory.step == memory.step_of_selected == step
            await pilot.press("right")
        await press(app, pilot, "1", "2")
        assert memory.step == len(rows) - 1

    drive(open_model(path), steps)
