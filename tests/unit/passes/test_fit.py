"""The largest batch that fits, against looking at every batch; curves from one analysis against one analysis each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.ir.bind import symbol_named
from irscope.ir.parser import parse_program
from irscope.memory.caching import OutOfMemory
from irscope.memory.tape import Replayed
from irscope.passes.memory.cuda import CudaMemory
from irscope.passes.memory.curve import Simulator, simulator
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import Points, largest_by_formula, largest_by_measuring, parse_points, peaks_at
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.settings import Settings
from irscope.session import Model, open_model
from irscope.tools.fit import Search, fit
from tests.tables import every

ROOT = Path(__file__).parents[3]
MLP = ROOT / "samples" / "mlp.irs"
TAGGER = ROOT / "samples" / "tagger.irs"
NAMES = (
    "Residual",
    "InPlace",
    "Views",
    "Lists",
    "Locals",
    "Reused",
    "DropoutEval",
    "Reshapes",
    "ChannelsLast",
    "Attention",
    "Pooled",
    "Pairs",
    "Chosen",
)
BATCHES = range(1, 17)


@pytest.fixture(scope="module", params=[*NAMES, "onnx"])
def model(request: pytest.FixtureRequest) -> Model:
    pytest.importorskip("torch")
    from tests.unit.passes.fitting_models import dynamic_models, dynamic_onnx

    return open_model(dynamic_onnx() if request.param == "onnx" else dynamic_models()[request.param])


def needs(model: Model, counter: str) -> list[int]:
    """What every batch needs, each from an analysis of a model that was read with that batch."""
    search = Search(model, counter)
    symbol = symbol_named(model.program, "batch")
    assert symbol is not None
    return [search.need(symbol, batch, {}).bytes for batch in BATCHES]


@pytest.mark.torch
@pytest.mark.parametrize("counter", ["activation", "auto"])
def test_a_fit_is_what_looking_at_every_batch_finds(model: Model, counter: str) -> None:
    found = needs(model, counter)
    # What is asked for is the least that can be needed: from there on nothing fits, so looking at these batches is looking at all.
    enough = needs(model, "requested" if counter == "auto" else counter)[-1]
    candidates = (found[0] - 1, found[0], found[6] + 1, (found[9] + found[10]) // 2, found[13] - 1, enough - 1)
    for memory in [memory for memory in candidates if memory < enough]:
        fitting = [batch for batch, need in zip(BATCHES, found, strict=True) if need <= memory]
        answer = fit(model, memory, counter=counter)
        assert answer.largest == (fitting[-1] if fitting else 0)
        assert answer.exhaustive and answer.memory == memory
        assert answer.peak.bytes == found[(answer.largest or 1) - 1]
        assert answer.headroom == memory - answer.peak.bytes
        assert answer.following is None or answer.following.bytes > memory


@pytest.mark.torch
def test_a_curve_is_what_an_analysis_at_each_size_finds(model: Model) -> None:
    points = parse_points(["batch=1..9,17"], model.program)
    curve = peaks_at(model.manager.get(Liveness()), points)
    for place, sizes in enumerate(points):
        timeline = model.rebound(sizes).manager.get(Liveness())
        assert (curve.activation[place], curve.step[place]) == (timeline.peak, timeline.peak_step)
        assert curve.resident[place] == sum(size for size in timeline.resident.values() if isinstance(size, int))


@pytest.mark.torch
def test_replays_count_what_an_analysis_at_each_size_counts(model: Model) -> None:
    replays = simulator(model.manager, "auto")
    if replays is None:
        assert model.program.format == "onnx"
        return
    assert not (replays.is_settled and "Chosen" in model.program.path)
    points = parse_points(["batch=1..7,33"], model.program)
    for sizes, counted in zip(points, replays.counted(points), strict=True):
        expected = model.rebound(sizes).manager.get(CudaMemory()).central
        assert [outcome.peak for outcome in counted.outcomes] == [outcome.peak for outcome in expected.outcomes]


@pytest.mark.parametrize(("torch", "conf"), [("2.11", ""), ("2.12", ""), ("2.13", "expandable_segments:True"), ("2.15", "")])
def test_replays_follow_the_version_and_the_options(torch: str, conf: str) -> None:
    settings = Settings(torch=torch, alloc_conf=conf)
    model = open_model(TAGGER, settings=settings)
    replays = simulator(model.manager, "auto")
    points = parse_points(["batch=1..6"], model.program)
    for sizes, counted in zip(points, replays.counted(points), strict=True):
        expected = model.rebound(sizes).manager.get(CudaMemory()).central
        assert [outcome.peak for outcome in counted.outcomes] == [outcome.peak for outcome in expected.outcomes]


def test_memory_that_runs_out_only_where_the_cache_cannot_help() -> None:
    found = fit(open_model(TAGGER), 150 << 20)
    assert found.before_oom is not None and found.largest is not None
    replays = simulator(open_model(TAGGER).manager, "auto")
    runs = replays.under(parse_points(["batch=1..40"], open_model(TAGGER).program), 150 << 20)
    assert found.before_oom == max(batch for batch, goes in enumerate(runs, 1) if goes is not None) >= found.largest


@pytest.mark.parametrize("memory", [150 << 20, 300 << 20, 1 << 30])
def test_what_surely_fits_does_so_at_the_upper_end_of_every_interval(memory: int) -> None:
    model = open_model(TAGGER)
    found, search = fit(model, memory), Search(model)
    ends = {batch: search.need("batch", batch, {}).most or 0 for batch in range(1, (found.largest or 0) + 2)}
    assert found.peak.is_modelled and found.surely == max(batch for batch, most in ends.items() if most <= memory)
    assert found.surely_peak is not None and found.surely_peak.most == ends[found.surely] <= memory
    assert 0 < found.surely <= (found.largest or 0)


@pytest.mark.slow
def test_the_answer_does_not_contradict_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--memory", "8GiB", str(TAGGER)]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    search = Search(open_model(TAGGER))
    surely = search.largest(8 << 30, "batch", {}).surely or 0
    assert (search.need("batch", surely, {}).most or 0) <= 8 << 30 < (search.need("batch", surely + 1, {}).most or 0)
    assert f"  batch {surely} surely fits 8.00 GiB, batch 994 as modelled" in lines[:10]
    assert "may need" not in text
    (sure,) = (line for line in lines if line.startswith("  surely"))
    (modelled,) = (line for line in lines if line.startswith("  as modelled"))
    assert f"at {surely}" in sure and "~" not in sure
    highest = search.need("batch", 994, {}).most or 0
    assert "~8.00 GiB" in modelled and f"to {highest / 2**30:.2f} GiB]" in modelled and "at 994" in modelled
    assert main(["fit", "--memory", "8GiB", "--format", "json", str(TAGGER)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["largest_surely"] == surely and document["largest"] == 994
    assert document["surely_peak_bytes"] <= document["memory_bytes"] < document["highest_peak_bytes"]


def test_a_size_that_nothing_bounds_has_its_reason_and_no_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows what the GPU's library takes for a mean, which is words where a number of bytes stands otherwise."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])]
    x, y = (helper.make_tensor_value_info(name, 1, ["batch", size]) for name, size in (("x", 64), ("y", 1)))
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "mean.onnx")
    assert main(["fit", "--memory", "1GiB", "--device", "h200", str(tmp_path / "mean.onnx")]) == 0
    (sure,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  surely"))
    assert sure.endswith("none: cuDNN and cuBLAS choose what ReduceMean takes while it runs")


@pytest.mark.slow
def test_whether_the_next_size_runs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    memory = 300 << 20
    model = open_model(TAGGER)
    found = fit(model, memory)
    assert found.largest == 28 and found.following is not None and found.following.bytes > memory
    alone = model.rebound({"batch": 29}).manager.get(CudaMemory())
    outcome = alone.replay(memory)
    assert found.following_runs and found.following_retries is not None
    assert outcome.retries == found.following_retries != (0, 0)
    assert outcome.worst("reserved") <= memory
    with pytest.raises(OutOfMemory):
        model.rebound({"batch": (found.before_oom or 0) + 1}).manager.get(CudaMemory()).replay(memory)
    assert main(["fit", "--memory", "300MiB", str(TAGGER)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "at 29, which runs: PyTorch gives its cache back once in the second forward" in said
    assert " runs up to 30: " in said
    assert main(["fit", "--memory", "8GiB", str(TAGGER)]) == 0
    assert "at 995, where PyTorch runs out of memory" in " ".join(capsys.readouterr().out.split())


def _halved(replayed: Replayed) -> Replayed:
    outcomes = [replace(outcome, peak=replace(outcome.peak, reserved=outcome.peak.reserved // 2)) for outcome in replayed.outcomes]
    return replace(replayed, outcomes=outcomes)


def test_where_replays_find_something_else_all_answers_come_from_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = 300 << 20
    right = fit(open_model(TAGGER), memory)
    honest = Simulator.needed

    def wrong(self: Simulator, points: Points) -> list[Replayed]:
        return [_halved(one) for one in honest(self, points)]

    def nothing(self: Simulator, points: Points, memory: int) -> list[Replayed | None]:
        return [None] * len(points)

    monkeypatch.setattr(Simulator, "needed", wrong)
    monkeypatch.setattr(Simulator, "under", nothing)
    found = fit(open_model(TAGGER), memory)
    assert (found.largest, found.surely, found.before_oom) == (right.largest, right.surely, right.before_oom)
    assert found.following_retries == right.following_retries


def test_sizes_that_run_above_one_that_does_not_are_told_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    honest = Simulator.under

    def under(self: Simulator, points: Points, memory: int) -> list[Replayed | None]:
        return [None if sizes["batch"] == 29 else one for sizes, one in zip(points, honest(self, points, memory), strict=True)]

    monkeypatch.setattr(Simulator, "under", under)
    assert main(["fit", "--memory", "300MiB", str(TAGGER)]) == 0
    said = capsys.readouterr().out
    assert "at 29, where PyTorch runs out of memory" in " ".join(said.split())
    assert "  runs         30, though not all in between: " in said


@pytest.mark.slow
def test_what_is_needed_is_not_what_is_left_once_the_cache_was_given_back() -> None:
    """On the whole device, too, a size fits where the allocator need not empty its cache."""
    small = "rtx-4060-laptop"
    model = open_model(TAGGER, settings=Settings(device=small))
    found = fit(model)
    assert found.largest is not None and found.before_oom is not None and found.following is not None
    assert found.peak.bytes <= found.memory < found.following.bytes
    assert fit(open_model(TAGGER, settings=Settings(device=small)), found.memory).largest == found.largest


def test_long_searches_tell_how_far_they_are() -> None:
    class Watch(Instrument):
        said: ClassVar[list[str]] = []

        def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
            self.said.append(what)

        def ended(self) -> None:
            self.said.append("over")

    fit(open_model(TAGGER, instruments=[Watch()]), 150 << 20)
    assert Watch.said.count("sizes tested:") > 5 and Watch.said[-1] == "over"


@every("memory", [0, 5, 36, 37, 100, 10**6, 10**15])
@every("high", [None, 1, 40])
def test_a_rising_formula_is_solved(memory: int, high: int | None) -> None:
    def heights(sizes: Sequence[int]) -> list[int]:
        return [7 * size + size**2 // 5 for size in sizes]

    largest = largest_by_formula(heights, memory, 1, high, rising=True)
    size = largest.size or 0
    assert size == 0 or heights([size])[0] <= memory
    assert size == high or heights([size + 1])[0] > memory


def test_sizes_beyond_one_that_fails_are_looked_at() -> None:
    need = {size: size * 10 + (25 if size % 4 == 0 else 0) for size in range(1, 60)}
    for memory in range(5, 400, 7):
        largest = max((size for size, bytes_ in need.items() if bytes_ <= memory), default=None)
        formula = largest_by_formula(lambda sizes: [need[size] for size in sizes], memory, 1, 59, rising=False)
        assert formula.size == largest
        measured = largest_by_measuring(need.__getitem__, memory, min(59, max(1, memory // 10)), 1, 59, looks=100)
        assert (measured.size, measured.exhaustive) == (largest, True)


def test_sizes_far_above_many_that_fail_are_found_by_sampling() -> None:
    """What is reserved jumps by much at 39, and is what is asked for again from 2,000 on."""
    looked: list[int] = []

    def measure(size: int) -> int:
        looked.append(size)
        return size * 10 + (100_000 if 39 <= size < 2_000 else 0)

    largest = largest_by_measuring(measure, 40_005, 4_000, 1, None, looks=60)
    assert largest.size == 4_000
    looked.clear()
    largest = largest_by_measuring(lambda size: measure(size) + (100_000 if size > 3_000 else 0), 40_005, 4_000, 1, None, looks=60)
    assert (largest.size, largest.exhaustive) == (3_000, False)
    assert min(largest.failing) >= 39 and max(largest.failing) < 2_000
    assert len(set(looked)) <= 75


def test_what_was_not_looked_at_is_said() -> None:
    measured = largest_by_measuring(lambda size: size * 3, 3_000, 3_000, 1, None, looks=60)
    assert (measured.size, measured.exhaustive) == (1_000, False)


def inputs(*lines: str) -> str:
    """A program with these inputs; every name in their shapes is a symbol."""
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", " ".join(line.partition("[")[2] for line in lines)))
    symbols = "".join(f"symbol {name} [1,*]\n" for name in names)
    return f"irscope 1\n{symbols}graph @main {{\n" + "\n".join(lines) + "\nreturn %x\n}\n"


@pytest.mark.parametrize(
    ("shapes", "name", "symbol"),
    [
        (["input %x: f32[s77,3]"], "batch", "s77"),
        (["input %x: f32[s77,s3]"], "seq", "s3"),
        (["input %x: f32[N,3]"], "batch", "N"),
        (["input %x: i64[batch_size,sequence_length]"], "seq", "sequence_length"),
        (["input %x: f32[length,batch,8]"], "seq", "length"),
        (["input %x: f32[length,8]"], "batch", None),
        (["input %x: f32[s1,8]", "input %y: f32[s2,8]"], "batch", None),
        (["input %x: f32[s1,8]"], "width", None),
    ],
)
def test_names_that_people_give_to_symbols(shapes: list[str], name: str, symbol: str | None) -> None:
    assert symbol_named(parse_program(inputs(*shapes)), name) == symbol


def test_combinations_of_sizes() -> None:
    program = parse_program(inputs("input %x: f32[batch,seq]"))
    points = parse_points(["batch=1..2,seq=8,16"], program)
    assert list(points) == [{"batch": 1, "seq": 8}, {"batch": 1, "seq": 16}, {"batch": 2, "seq": 8}, {"batch": 2, "seq": 16}]
    assert parse_points(["batch=8..24..8,100"], program).columns["batch"] == [8, 16, 24, 100]


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "batch=a", "batch=4..1", "batch=1..2..0", "batch=1,seq=2,batch=3", "batch=1..999999999", "rows=1"]
)
def test_sizes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_points([text], parse_program(inputs("input %x: f32[batch,seq]")))


def test_the_command_prints_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(MLP), "--memory", "1MiB", "--counter", "requested", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "irscope.fit/1"
    assert document["free"] == "batch" and document["limited_by"] and document["formula"]
    assert document["peak_bytes"] + document["headroom_bytes"] == document["memory_bytes"] == 1 << 20
    assert document["next_peak_bytes"] > 1 << 20
    low, high = document["seconds_interval"]
    assert 0 < low < document["seconds"] < high


TWO = """irscope 1
symbol batch [1,*]
symbol seq [1,64]
graph @main {
  input %x: f32[batch,seq,8]
  %t: f32[batch,8,seq] = view.permute(%x) {perm=[0, 2, 1]}
  %scores: f32[batch,seq,seq] = math.matmul(%x, %t)
  %p: f32[batch,seq,seq] = nn.softmax(%scores) {axis=-1}
  %y: f32[batch,seq,8] = math.matmul(%p, %x)
  return %y
}
"""


def test_two_symbols_have_a_frontier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.irs"
    path.write_text(TWO, encoding="utf-8")
    memory = 100_000
    assert main(["fit", str(path), "--memory", str(memory), "--free", "batch,seq", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["free"] == "batch,seq" and found["largest"] == found["frontier"][0]["batch"]
    search = Search(open_model(path))
    for row in found["frontier"]:
        needs = [search.need("batch", batch, {"seq": row["seq"]}).bytes for batch in (row["batch"], row["batch"] + 1)]
        assert needs[0] == row["peak_bytes"] <= memory < needs[1]
    assert [row["seq"] for row in found["frontier"]] == [1, 2, 4, 8, 16, 32, 64]
    assert main(["fit", str(path), "--memory", str(memory)]) == 2
    assert "IRS338" in capsys.readouterr().err
    assert main(["fit", str(path), "--memory", str(memory), "--free", "batch,seq"]) == 0
    assert "the largest batch for each seq" in capsys.readouterr().out


def test_what_does_not_fit_is_said_with_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(MLP), "--memory", "1KiB", "--counter", "requested"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "IRS335" in said.err and "does not fit" in said.err and "explain-peak" in said.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--free", "rows"], "IRS625"),
        (["--free", "batch,batch"], "IRS337"),
        (["--free", "a,b,c"], "IRS337"),
        (["--memory", "lots"], "IRS336"),
        (["--bind", "batch=4"], "IRS624"),
        (["--bind", "batch=4", "--free", "batch_size"], "IRS624"),
    ],
)
def test_mistakes_are_said(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(MLP), *arguments]) == 2
    assert code in capsys.readouterr().err


def test_a_sweep_is_a_table_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--passes", "liveness{model=ssa}", "--sweep", "batch=1..3", str(MLP)]) == 0
    curve = json.loads(capsys.readouterr().out)["reports"][-1]
    assert curve["pass"] == "curve"
    assert [row[0] for row in curve["tables"][0]["rows"]] == [1, 2, 3]


@pytest.mark.parametrize(("path", "memory"), [(TAGGER, "1GiB"), (ROOT / "samples" / "models" / "cnn.onnx", "64MiB")])
def test_the_peak_is_that_of_liveness(path: Path, memory: str) -> None:
    opened = open_model(path)
    found = fit(opened, memory)
    summary = opened.rebound({found.symbol: found.largest or 0}).manager.run("liveness")[0].report().summary
    assert found.peak.device_peak == summary.get("device_peak_bytes")
    assert found.to_json()["device_peak_bytes"] == found.peak.device_peak.value
