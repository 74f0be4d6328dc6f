"""A recording that is shown without a model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.devices import find_device
from irscope.errors import LoadError
from irscope.recording import (
    Counters,
    DeviceRecord,
    Header,
    Held,
    Level,
    Machine,
    MemoryEvent,
    ModelRecord,
    OpRecord,
    Problem,
    Recording,
    Said,
    SaidTable,
    Sample,
    read_recording,
    write_recording,
)
from irscope.report.table import Table
from irscope.report.values import bare
from irscope.tools.explain import explain_file
from irscope.tools.explain.recorded import recording_of_history
from irscope.tools.simulation_files import table_said
from irscope.tui.app import IrscopeApp
from irscope.tui.memory.run import RunMemory
from irscope.tui.memory.views import StepStack
from irscope.tui.picker import read_recent
from irscope.tui.recording import run_of_recording
from irscope.tui.start import StartScreen
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import Prompt
from tests.tables import every
from tests.tui import driving
from tests.tui.driving import begun, start_headless

RECORDINGS = Path(__file__).parents[2] / "samples" / "recordings"
MIB = 1 << 20
PLACE = "train.py:7"
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)])
Steps = Callable[[IrscopeApp, Pilot[None]], Awaitable[None]]


def event(size: int, block: int, category: str = "activation", scope: str = "", line: str = PLACE) -> MemoryEvent:
    return MemoryEvent("warm", size * MIB, 0, block=block, category=category, scope=scope, source=line)


SIMULATED = Recording(
    Header(
        "torch-cuda",
        ModelRecord("train", "program", "train.py"),
        DeviceRecord("cuda", "NVIDIA H100 SXM", 80 << 30),
        settings={"simulated": True, "world": 8, "rank": 0},
        warmup=2,
        repeats=1,
    ),
    ops=(OpRecord(0, "aten::addmm", "layers/0"),),
    events=(
        event(4, 10, scope="layers.0.linear"),
        event(4, 11, scope="layers.1.linear"),
        event(2, 12, "gradient", line="train.py:8"),
        event(-4, 11, scope="layers.1.linear"),
        event(-4, 10, scope="layers.0.linear"),
        event(-2, 12, "gradient", line="train.py:8"),
        event(-1, 3, "temporary", line="train.py:3"),
    ),
    counters=(Counters("warm", requested=Level(24 * MIB, 35 * MIB), reserved=Level(40 * MIB, 40 * MIB)),),
    said=Said({"verdict": "fits on NVIDIA H100 SXM: 78.00 GiB of 78.60 GiB left", "reserved_peak_bytes": 40 * MIB, "steps_count": 3}),
    tables=(
        SaidTable("peak of each step", ("steps:text", "reserved:bytes"), (("1", 30 * MIB), ("2 to 3", 40 * MIB))),
        SaidTable("collectives", ("collective:text", "calls:count"), (("all_reduce", 39), ("broadcast", None))),
    ),
    held=(
        Held(8 * MIB, 1, "parameter", source="train.py:3"),
        Held(16 * MIB, 2, "optimizer state", source="train.py:9"),
        Held(1 * MIB, 3, "temporary", source="train.py:3"),
    ),
)


def drive(recording: Recording, steps: Steps, *, size: tuple[int, int] = (80, 24), symbols: Symbols = UNICODE) -> IrscopeApp:
    return driving.drive([run_of_recording(recording)], steps, size=size, symbols=symbols)


def written(folder: Path, count: int) -> list[Path]:
    """Return the files of so many ranks."""
    paths = [folder / f"rank{rank}.jsonl" for rank in range(count)]
    for rank, path in enumerate(paths):
        write_recording(path, in_phases(rank))
    return paths


def memory_of(recording: Recording) -> RunMemory:
    """What the Memory screen shows of a recording."""
    return RunMemory(run_of_recording(recording), UNICODE)


def run_shown(app: IrscopeApp, number: int = 0) -> RunMemory:
    """The run with this number."""
    return app.session.runs[number]


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()
    await pilot.pause()


def shown(app: IrscopeApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@SIZES
@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_it_opens_on_the_verdict_the_peak_and_what_is_alive_there(size: tuple[int, int], symbols: Symbols) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        text = shown(app)
        for part in (
            "fits on NVIDIA H100 SXM: 78.00 GiB of 78.60 GiB left",
            "40.00 MiB",
            "in step 3",
            "peak 35.00 MiB at event 3",
            "Alive at the peak, event 3: 35.00 MiB",
            "optimizer state",
            "layers.0-1.linear",
            "train.py:9",
        ):
            assert part in text
        if symbols is ASCII:
            assert text.isascii()

    drive(SIMULATED, steps, size=size, symbols=symbols)


@pytest.mark.slow
@SIZES
def test_keys_move_show_tables_help_and_leave(size: tuple[int, int]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(pilot, "end")
        assert "Alive at event 7: 24.00 MiB" in shown(app) and "layers" not in shown(app)
        await press(pilot, "7", "down")
        assert "peak of each step" in shown(app) and "2 to 3" in shown(app)
        await press(pilot, "down")
        assert "all_reduce" in shown(app) and "?" in shown(app)
        await press(pilot, "enter", "slash", *"broad", "enter")
        assert "broadcast" in shown(app) and "all_reduce" not in shown(app)
        await press(pilot, "2", "p")
        assert "Alive at the peak, event 3" in shown(app)
        await press(pilot, "slash", *"gradient", "enter")
        assert "1 of 5 rows" in shown(app) and "train.py:8" in shown(app)
        await press(pilot, "escape", "g", *"event 5", "enter")
        assert "Alive at event 5: 27.00 MiB" in shown(app)
        await press(pilot, "z")
        assert "Alive at event 5" not in shown(app)
        await press(pilot, "escape")
        assert "Alive at event 5" in shown(app)
        await press(pilot, "1")
        assert "[2 Memory]" in shown(app)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, TextDialog) and "Go to the next step." in "\n".join(
            "".join(span.text for span in line) for line in app.screen.lines
        )
        await press(pilot, "q")
        assert not isinstance(app.screen, TextDialog)
        await press(pilot, "q")

    app = drive(SIMULATED, steps, size=size)
    assert app.return_code == 0


def test_what_is_alive_adds_up_to_the_chart_everywhere() -> None:
    recordings = [SIMULATED, *(read_recording(path) for path in sorted(RECORDINGS.glob("*.jsonl")))]
    drawn = 0
    for recording in recordings:
        run = memory_of(recording)
        if run.stack is None:
            continue
        for step in range(len(run.stack)):
            sizes = [bare(cell) for cell in run.alive(step, step).cells("bytes")]
            assert sum(size for size in sizes if isinstance(size, int)) == run.stack.total[step]
            drawn += 1
        warm = recording.counter("warm")
        if warm is not None and warm.requested is not None:
            assert run.stack.total.max() == warm.requested.peak
    assert drawn > 50


@SIZES
@pytest.mark.parametrize("name", sorted(path.name for path in RECORDINGS.glob("*.jsonl")))
def test_recordings_of_real_runs_show_what_they_hold(name: str, size: tuple[int, int]) -> None:
    recording = read_recording(RECORDINGS / name)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert recording.header.device.name in shown(app) and recording.header.executor in shown(app)
        if recording.problems:
            assert "does not fit" in shown(app) and "Alive where memory was refused" in shown(app)
        await press(pilot, "7", "end")
        assert ("Operators of the recorded run" in shown(app)) == bool(recording.ops)

    drive(recording, steps, size=size)


def test_a_program_that_ran_out_of_memory_begins_with_what_was_alive_then() -> None:
    refused = SaidTable("alive where memory was refused", ("category:text", "bytes:bytes"), (("input", 7 * MIB),))
    recording = dataclasses.replace(SIMULATED, tables=(*SIMULATED.tables, refused), problems=(Problem("out_of_memory", "no more"),))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert "alive where memory was refused" in shown(app) and "step 3, the last one that ended" in shown(app)
        await press(pilot, "right")
        assert "Alive at event 4" in shown(app)

    drive(recording, steps)


def test_the_screen_and_its_table_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(pilot, "7", "down", "down", "e", "s", "e", "c", "e", "c")

    drive(dataclasses.replace(SIMULATED, path="runs/rank0.jsonl"), steps)
    assert {one.name for one in tmp_path.iterdir()} == {f"rank0.jsonl-reports{end}" for end in (".csv", "-2.csv", ".svg")}
    assert "<svg" in (tmp_path / "rank0.jsonl-reports.svg").read_text(encoding="utf-8")
    assert "all_reduce" in (tmp_path / "rank0.jsonl-reports.csv").read_text(encoding="utf-8")


def test_it_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_recording(path, SIMULATED)
    assert read_recording(path) == dataclasses.replace(SIMULATED, path=str(path))


@pytest.mark.parametrize(
    "table",
    [
        SaidTable("t", ("a:bytes",), (("text",),)),
        SaidTable("t", ("a:no such kind",), ((1,),)),
        SaidTable("t", ("a",), ((1,),)),
        SaidTable("t", ("a:text",), ((1,),)),
    ],
)
def test_a_table_that_makes_no_sense_is_one_clear_error(table: SaidTable) -> None:
    with pytest.raises(LoadError, match="makes no sense") as caught:
        run_of_recording(dataclasses.replace(SIMULATED, tables=(table,)))
    assert caught.value.code == "IRS477"


def test_rows_have_a_cell_for_each_column(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_recording(path, dataclasses.replace(SIMULATED, tables=(SaidTable("t", ("a:text", "b:bytes"), (("x",),)),)))
    with pytest.raises(LoadError, match="a cell for each of its 2 columns"):
        read_recording(path)


@pytest.mark.parametrize(("text", "code"), [('{"a": 1}\n', "IRS103"), ('{"line": "header", "schema": "irscope.recording/9"}\n', "IRS476")])
def test_other_files_are_refused_in_a_line(
    text: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    start_headless(monkeypatch)
    assert main(["tui", str(path)]) == 3
    said = capsys.readouterr().err
    assert code in said and said.count("\n") == 1


def test_the_command_and_the_start_open_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))
    path = tmp_path / "run.jsonl"
    write_recording(path, SIMULATED)
    opened = start_headless(monkeypatch)
    assert main(["tui", str(path)]) == 0
    ((run,),) = (shown for shown, _ in opened)
    assert run.path == str(path) and run.again().summary == run.summary
    assert read_recent() == [path]
    assert main(["tui", "--train", str(path)]) == 2

    async def choose() -> None:
        app = IrscopeApp(StartScreen(lambda path, tell: ([run_of_recording(read_recording(path))], "", None)), UNICODE)
        async with app.run_test(size=(80, 24)) as pilot:
            await begun(app, pilot)
            assert "run.jsonl" in driving.screen_text(app)
            await pilot.press("enter")
            await begun(app, pilot)
            assert "Memory requested in" in driving.screen_text(app)

    monkeypatch.undo()
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))
    asyncio.run(choose())


def in_phases(rank: int = 0) -> Recording:
    """A step with its phases on two streams, as one rank of two; a higher rank takes more."""
    told = zip(SIMULATED.events, ["forward"] * 3 + ["backward"] * 3 + ["optimizer"], range(7), strict=True)
    events = tuple(
        dataclasses.replace(one, phase=phase, stream=number % 2, time_us=float(number**2), bytes=one.bytes * (rank + 1))
        for one, phase, number in told
    )
    settings = {"simulated": True, "world": 2, "rank": rank}
    return dataclasses.replace(SIMULATED, events=events, header=dataclasses.replace(SIMULATED.header, settings=settings))


def test_a_recording_is_stacked_by_category_module_line_and_stream() -> None:
    made = memory_of(in_phases())
    assert made.stack is not None
    total = made.stack.total.tolist()
    assert isinstance(made.stack, StepStack) and list(dict.fromkeys(made.stack.phases)) == ["", "forward", "backward", "optimizer"]
    for by, names in (
        ("module", {"layers.0-1.linear"}),
        ("line", {PLACE}),
        ("stream", {"default stream", "stream 1"}),
        ("category", {"gradient"}),
    ):
        made.next_grouping()
        assert made.by == by and names <= set(made.stack.parts)
        assert made.stack.total.tolist() == total
    # Without streams there is nothing to tell apart.
    plain = memory_of(SIMULATED)
    for _ in range(3):
        plain.next_grouping()
    assert plain.by == "category" and not isinstance(plain.stack, StepStack)


def test_the_axis_is_the_time_that_was_measured() -> None:
    made = memory_of(in_phases())
    assert made.toggle_axis() == "" and made.stack is not None and made.stack.time == "as it was measured"
    # From the last event but one to the last a third of the time goes by.
    assert made.stack.column_of(7, 36) == 35 and made.stack.column_of(6, 36) == 25
    assert made.toggle_axis() == "" and not made.stack.time
    assert "does not say when" in memory_of(SIMULATED).toggle_axis()


def test_settings_that_were_tried_have_a_key() -> None:
    table = SaidTable("settings, each simulated: the most saved first", ("setting:text", "saved:bytes"), (("foreach=False", 3 * MIB),))
    made = memory_of(dataclasses.replace(SIMULATED, tables=(*SIMULATED.tables, table)))
    assert made.show_settings() and "settings, each simulated" in made.table_title()
    assert not memory_of(SIMULATED).show_settings()


@SIZES
def test_ranks_stand_side_by_side_at_one_scale(size: tuple[int, int]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        runs = app.session.runs
        assert [run.run.name for run in runs] == [f"rank {rank} of 2" for rank in range(3)]
        stacks = [run.stack for run in runs if run.stack is not None]
        assert {stack.top for stack in stacks} == {stacks[2].highest} and stacks[0].highest < stacks[2].highest
        assert all(f"rank {rank} of 2: " in shown(app) for rank in range(3))
        # The total of the first is a thin line over the others, as high as its own chart is there.
        assert stacks[2].beside == ("rank 0 of 2", stacks[0]) and stacks[0].beside == ("rank 1 of 2", stacks[1])
        for count in (3, 40, 200):
            assert stacks[0].over(stacks[2], count).tolist() == stacks[0].total[stacks[0].chosen(count)].tolist()
        chart = "\n".join(map(text_of, stacks[2].lines(100, 20, None, UNICODE)))
        assert f"── {stacks[0].text_at(stacks[0].peak or 0)} rank 0 of 2" in chart and chart.count("▔") + chart.count("▁") > 9
        await press(pilot, "tab", "home")
        assert runs[1].step == 0 and "Alive at the start" in shown(app)
        await press(pilot, "7", "down")
        assert "the runs side by side" in shown(app) and "rank 2 of 2" in shown(app)

    driving.drive([run_of_recording(in_phases(rank)) for rank in range(3)], steps, size=size)


@SIZES
def test_two_runs_are_compared_by_their_files(size: tuple[int, int], tmp_path: Path) -> None:
    """Keys: 6 where both were opened, else 6, o, the other file, enter."""
    paths = written(tmp_path, 2)
    runs = [run_of_recording(read_recording(path)) for path in paths]

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await driving.press(app, pilot, "6", *(["o"] if len(app.session.runs) == 1 else []))
        if len(app.session.runs) == 1:
            app.screen.query_one("#other", Prompt).value = str(paths[1])
            await driving.press(app, pilot, "enter")
        text = shown(app)
        assert "requested is the same" in text or "A has 40.00 MiB at its peak" in text or "reserved is the same" in text
        assert "difference, at most 10.00 MiB" in text and "only B" in text
        assert "counters: what there was before" in text and "irscope tui" not in text
        assert app.session["compare"].command(app.browse.source).startswith("irscope compare ")

    for shown_ in (runs, runs[:1]):
        driving.drive(shown_, steps, size=size)


def test_the_command_opens_several_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))
    paths = [*written(tmp_path, 2), RECORDINGS / "oom.pickle"]
    opened = start_headless(monkeypatch)
    assert main(["tui", *map(str, paths)]) == 0
    assert [[one.path for one in shown] for shown, _ in opened] == [[str(path) for path in paths]]
    other = tmp_path / "model.irs"
    other.write_text("irscope 1\n")
    assert main(["tui", *map(str, paths), str(other)]) == 2
    assert "is not a recording" in capsys.readouterr().err


def test_the_machine_is_lines_under_the_chart() -> None:
    """What was read, and nothing of what was not; where the machine was busy, that is said."""
    samples = tuple(Sample(1e5 * at, "plain", cpu=0.5 + at / 20, mhz=2000.0 + at) for at in range(10))
    run = memory_of(dataclasses.replace(SIMULATED, samples=samples, machine=Machine(2, 0.4, unread={"power": "no counters"})))
    shown = ["".join(span.text for span in line) for line in run.chart_lines(100, 20)]
    assert len(shown) == 20 and shown[-2].startswith("CPU busy") and "50 to 95 %" in shown[-2]
    assert "2,000 to 2,009 MHz" in shown[-1] and not any("power" in line for line in shown)
    assert any("busy machine" in note for note in run.run.notes) and any("power (no counters)" in note for note in run.run.notes)
    assert any(table.title.startswith("the machine while") for table in run.run.tables)
    assert len(run.chart_lines(100, 8)) == 8


def test_a_memory_snapshot_is_shown_as_a_recording_is() -> None:
    """The verdict, the chart by category, first what is alive where memory was refused, and all tables of the explanation."""
    explained = explain_file(RECORDINGS / "oom.pickle")
    found = recording_of_history(explained.history, explained.report(), explained.verdict)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert "a result is kept with its graph" in shown(app) and "in the history" in shown(app)
        run = run_shown(app)
        assert run.export().title == "alive where memory was refused"
        assert "faults found" in [table.title for table in run.run.tables]
        await pilot.press("o")
        assert run.stack is not None
        assert run.stack.highest == sum(bare(cell) for cell in run.alive(run.step, run.step).cells("bytes"))  # type: ignore[misc,arg-type]

    drive(found, steps, size=(120, 40))


def test_tables_of_a_compiled_program_are_written_so_that_they_can_be_shown() -> None:
    """The number of a graph stands in a column of texts."""
    table = table_said(Table.of([(0, "forward", 3 * MIB), (1, "backward", None)], ["graph", "part", "saved:bytes"], "what was compiled"))
    assert table.rows == (("0", "forward", 3 * MIB), ("1", "backward", None))
    made = run_of_recording(dataclasses.replace(SIMULATED, tables=(*SIMULATED.tables, table)))
    assert any(part.title == "what was compiled" for part in made.tables)


@SIZES
def test_another_device_is_laid_over_a_run_and_sizes_say_what_changes_them(size: tuple[int, int]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(pilot, "D", *"l4")
        await press(pilot, "enter")
        run = run_shown(app)
        assert run.verdict is not None
        assert run.verdict.text == "fits as it ran: 40.00 MiB reserved in this run, of 21.44 GiB on NVIDIA L4, 21.40 GiB left"
        assert ("laid over l4" in shown(app) and "fits as it ran: 40.00 MiB" in shown(app)) or "fits, 21.40 GiB left" in shown(app)
        # It stays when the chart is made again.
        await press(pilot, "o")
        assert run.stack is not None and run.stack.limit is not None and run.stack.limit.name == "capacity of l4"
        said: list[str] = []
        app.screen.notify = lambda text, **_: said.append(text)  # type: ignore[method-assign,assignment]
        await press(pilot, "c")
        assert said and "record or simulate it again" in said[0]

    drive(in_phases(), steps, size=size)


def test_keys_of_a_run_stand_below_it() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert shown(app).splitlines()[-1].startswith("D Device W Lower it")  # no size can be set

    drive(in_phases(), steps, size=(120, 40))


def test_a_run_that_does_not_fit_elsewhere_or_was_refused_says_so() -> None:
    run = memory_of(in_phases())
    run.other = dataclasses.replace(find_device("l4"), memory_bytes=1 << 20)
    assert run.verdict is not None and run.verdict.fits is False
    assert run.verdict.text.startswith("does NOT fit as it ran: 40.00 MiB reserved in this run, of ")
    assert run.verdict.text.endswith(" too much")
    refused = memory_of(dataclasses.replace(in_phases(), problems=(Problem("out_of_memory", "no more"),)))
    refused.lay_over("h200")
    assert refused.verdict is not None and refused.verdict.fits is None
    assert refused.verdict.text.startswith("memory was refused in this run")


@every("size", [(60, 20), (80, 24), (120, 40)])
def test_the_bytes_of_what_is_alive_stand_there_at_every_width(size: tuple[int, int]) -> None:
    scope, line = "transformer/encoder/layers/{}/attention/self/query_key_value", "/home/someone/a/deep/folder/modeling_something.py:1234"
    base = in_phases()
    long = [
        dataclasses.replace(one, scope=scope.format(number), source=line) if one.bytes > 0 else one
        for number, one in enumerate(base.events)
    ]

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        rows = shown(app).splitlines()
        table = rows[next(number for number, row in enumerate(rows) if "category" in row) :]
        assert "bytes" in table[0]
        for name, amount in (("optimizer state", "16.00 MiB"), ("activation", " 8.00 MiB"), ("gradient", " 2.00 MiB")):
            assert any(name[:9] in row and amount in row for row in table[1:])

    drive(dataclasses.replace(base, events=long), steps, size=size)
