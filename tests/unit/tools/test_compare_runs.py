"""A model beside a recording: the numbers are those of a run written down by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from irscope.errors import LoadError, UsageError
from irscope.passes.cost.time import Time
from irscope.passkit.settings import Settings
from irscope.recording import (
    Counters,
    DeviceRecord,
    Header,
    Input,
    Latency,
    Level,
    MemoryEvent,
    ModelRecord,
    OpRecord,
    Problem,
    Recording,
    Times,
)
from irscope.report.jsonout import json_lines
from irscope.report.values import Quantity
from irscope.tools.compare import compare_recording, run_comparison
from irscope.tools.compare.matching import How
from irscope.tools.compare.run_report import RUN_MEASURES, overhead_of
from irscope.tools.compare.runs import Figure, RunComparison, catalogued, settings_of
from tests.tools.pages import compare_schema
from tests.unit.tools.texts import MLP, model

HIDDEN, BACK = 4 * 16 * 4, 4 * 8 * 4
WEIGHTS = (16 * 8 + 16 + 8 * 16) * 4
BASELINE = WEIGHTS + BACK
"""Weights and the input."""


def ops(*, named: bool = True) -> tuple[OpRecord, ...]:
    lines = (
        ("aten::linear", "fc1", "hidden", "f32[4,16]", HIDDEN),
        ("aten::relu", "", "active", "f32[4,16]", HIDDEN),
        ("aten::linear", "fc2", "back", "f32[4,8]", BACK),
        ("aten::add", "", "y", "f32[4,8]", BACK),
    )
    return tuple(
        OpRecord(index, op, scope, (name,) if named else (), outputs=(out,), time=Times(5, 8.0, 10.0, 12.0), made=made)
        for index, (op, scope, name, out, made) in enumerate(lines)
    )


def events(run: str = "warm") -> tuple[MemoryEvent, ...]:
    """hidden and active live together, hidden goes; back takes a workspace; y is made while back is there."""
    return (
        MemoryEvent(run, HIDDEN, 0, block=0),
        MemoryEvent(run, HIDDEN, 1, block=1),
        MemoryEvent(run, -HIDDEN, 1, inside=False, block=0),
        MemoryEvent(run, BACK, 2, block=2),
        MemoryEvent(run, 1000, 2, block=3, category="workspace"),
        MemoryEvent(run, -1000, 2, block=3, category="workspace"),
        MemoryEvent(run, -HIDDEN, 2, inside=False, block=1),
        MemoryEvent(run, BACK, 3, block=4),
        MemoryEvent(run, -BACK, 3, inside=False, block=2),
    )


def recording(**changed: object) -> Recording:
    peak = Level(BASELINE, BASELINE + HIDDEN + BACK + 1000)
    made = Recording(
        Header(
            "torch-cpu",
            ModelRecord("mlp", "pt2", inputs=(Input("x", "f32[4,8]"),)),
            DeviceRecord("cpu", "a processor nobody knows"),
            versions={"torch": "2.13.0"},
        ),
        ops(),
        events(),
        (Counters("before", Level(BASELINE, BASELINE), Level(BASELINE, BASELINE)), Counters("warm", peak, peak)),
        (Latency("plain", Times(20, 30.0, 50.0, 60.0)), Latency("profiled", Times(20, 40.0, 75.0, 90.0))),
        path="run.jsonl",
    )
    return replace(made, **changed)  # type: ignore[arg-type]  # fields of the recording


def compared(found: Recording | None = None, text: str = MLP) -> RunComparison:
    return compare_recording(model(text, program_format="pt2"), found or recording())


def test_figures_are_predicted_and_measured() -> None:
    found = {figure.name: figure for figure in compared().figures("warm")}
    assert found["baseline"].predicted.value == found["baseline"].measured == BASELINE
    # The workspace is not part of what is predicted, and is left out of what was measured.
    assert found["delta"].predicted.value == found["delta"].measured == 2 * HIDDEN
    assert found["peak"].error == 0
    assert found["reserved"].predicted.value is None and found["reserved"].measured is None


def test_errors_are_shares_of_what_was_measured() -> None:
    # The run kept 256 bytes that the prediction knows nothing of.
    late = (MemoryEvent("warm", 2 * HIDDEN, 0, block=9), *events())
    found = {figure.name: figure for figure in compared(recording(events=late)).figures("warm")}
    assert found["delta"].difference == -2 * HIDDEN
    assert found["delta"].error == -0.5
    assert found["peak"].error == -2 * HIDDEN / (BASELINE + 4 * HIDDEN)
    assert set(found) | {"unmatched"} == set(RUN_MEASURES)


def test_nodes_are_matched_by_name_and_have_both_numbers() -> None:
    found = compared()
    assert found.matched == (4, 4)
    assert set(found.matching.how.values()) == {How.NAME}
    table = next(table for table in run_comparison(found).reports[0].tables if table.title == "nodes")
    assert table.cells("predicted_alive") == [HIDDEN, 2 * HIDDEN, HIDDEN + BACK, 2 * BACK]
    assert table.cells("measured_alive") == [HIDDEN, 2 * HIDDEN, HIDDEN + BACK, 2 * BACK]
    assert table.cells("predicted_made") == table.cells("measured_made") == [HIDDEN, HIDDEN, BACK, BACK]
    assert table.cells("measured_time") == [1e-5] * 4
    assert table.cells("flops")[0] == 2 * 4 * 16 * 8 + 4 * 16
    assert table.cells("flop_rate")[0] == pytest.approx(table.cells("flops")[0] / 1e-5)  # type: ignore[operator]
    assert table.cells("least_time") == table.cells("predicted_time") == [None] * 4


def test_modules_have_sums() -> None:
    table = next(table for table in run_comparison(compared()).reports[0].tables if table.title == "modules")
    rows = {row[0]: row for row in table.rows()}
    assert rows["(model)"][1:3] == (4, 4)
    assert rows["fc2"][1:3] == (1, 1)
    assert rows["(model)"][7] == pytest.approx(4e-5)


def test_without_names_operator_module_and_order_lead() -> None:
    found = compared(recording(ops=ops(named=False)))
    assert found.matched == (4, 4)
    assert found.matching.nodes_of == {0: [0], 1: [1], 2: [2], 3: [3]}
    assert set(found.matching.how.values()) == {How.ORDER}


def test_a_fused_operator_has_several_nodes_and_counts_once() -> None:
    first = replace(ops()[0], sources=("hidden", "active"), op="com.acme::FusedLinear")
    rest = [replace(op, index=index) for index, op in enumerate(ops()[2:], 1)]
    found = compared(recording(ops=(first, *rest), events=()))
    assert found.matched == (4, 3)
    assert found.groups == [[0, 1], [2], [3]]
    table = next(table for table in run_comparison(found).reports[0].tables if table.title == "nodes")
    assert table.cells("node")[0] == "hidden, active"
    assert table.cells("measured_time") == [1e-5] * 3
    assert table.cells("measured_alive") == [None] * 3


RESIDUAL = """irscope 1
graph @main {
  input %x: f32[1,4,8,8]
  param %w1: f32[4,4,1,1]
  param %w2: f32[4,4,1,1]
  param %w3: f32[4,4,1,1]
  %c1: f32[1,4,8,8] = nn.conv(%x, %w1)
  %r1: f32[1,4,8,8] = nn.relu(%c1)
  %c2: f32[1,4,8,8] = nn.conv(%r1, %w2)
  %sum: f32[1,4,8,8] = math.add(%c2, %x)
  %r2: f32[1,4,8,8] = nn.relu(%sum)
  %c3: f32[1,4,8,8] = nn.conv(%r2, %w3)
  return %c3
}
"""


def test_operators_that_a_layout_renamed_get_their_nodes_back() -> None:
    # As ONNX Runtime does it: two kernels are called after their result in another layout, the last one names everything.
    kernels = (
        OpRecord(0, "com.microsoft.nchwc::Conv", kernels=("r1_nchwc",)),
        OpRecord(1, "com.microsoft.nchwc::Conv", kernels=("c2_nchwc",)),
        OpRecord(2, "com.microsoft.nchwc::Conv", sources=("c1", "r1", "c2", "sum", "r2", "c3")),
        OpRecord(3, "com.microsoft.nchwc::ReorderOutput"),
    )
    found = compared(recording(ops=kernels, events=()), RESIDUAL)
    assert found.matching.nodes_of == {0: [0, 1], 1: [2, 3, 4], 2: [5]}
    assert [unmatched.reason for unmatched in found.unmatched] == ["the runtime put it in: a copy between devices or into another layout"]


def test_what_is_not_matched_has_a_reason() -> None:
    extra = OpRecord(4, "aten::frobnicate", "nowhere", ("gone",))
    found = compared(recording(ops=(*ops()[:3], replace(extra, index=3)), events=events()[:7]))
    assert [(unmatched.side, unmatched.name, unmatched.reason) for unmatched in found.unmatched] == [
        ("node", "y", "nothing recorded has its name, or its operator and module at this place"),
        ("recorded", "gone", "the model has no node gone"),
    ]


def test_a_run_that_ended_early_is_compared_as_far_as_it_goes() -> None:
    text = "out of memory: 1 GiB could not be had"
    found = compared(
        recording(ops=ops()[:2], events=(), counters=(), complete=False, problems=(Problem("out_of_memory", text, 1, "aten::relu"),))
    )
    assert [unmatched.reason for unmatched in found.unmatched] == ["the recording ends before it"] * 2
    assert [(diagnostic.code, diagnostic.message) for diagnostic in found.diagnostics] == [("IRS493", text)]
    assert all(figure.measured is None and figure.error is None for figure in found.figures("cold"))


def test_a_cut_short_file_is_said_to_be() -> None:
    found = compared(recording(complete=False, notes=("the recording was cut short",)))
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["IRS494"]


def test_a_recording_of_another_model_is_refused() -> None:
    others = tuple(replace(op, sources=(f"other{op.index}",), op="aten::frobnicate", outputs=("f32[7]",), scope="a/b") for op in ops())
    with pytest.raises(LoadError, match=r"of a different model \(mlp\): only 0 of 4 of its operators") as caught:
        compared(recording(ops=others))
    assert (caught.value.code, caught.value.exit_code) == ("IRS661", 3)


def test_names_that_many_models_have_do_not_make_it_the_same_model() -> None:
    # Exporters call nodes linear, relu, add in every file: what they make tells models apart.
    others = tuple(replace(op, outputs=("f32[7,7]",)) for op in ops())
    with pytest.raises(LoadError, match="only 0 of 4 of its operators make"):
        compared(recording(ops=others))
    short = tuple(replace(op, index=index) for index, op in enumerate(ops()[:1]))
    with pytest.raises(LoadError, match="only 1 of 4 of the model's nodes are in it"):
        compared(recording(ops=short, events=()))
    assert compared(recording(ops=short, events=(), complete=False)).matched == (1, 1)


def test_a_second_copy_of_the_model_is_noticed() -> None:
    level = Level(BASELINE + WEIGHTS, BASELINE + WEIGHTS)
    found = compared(recording(counters=(Counters("before", level, level),)))
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["IRS492"]
    assert "1.0 times its parameters" in found.diagnostics[0].message


def test_another_input_than_the_recorded_one_is_said() -> None:
    header = recording().header
    other = replace(header, model=replace(header.model, inputs=(Input("x", "f32[8,8]"),)))
    assert [diagnostic.code for diagnostic in compared(recording(header=other)).diagnostics] == ["IRS496"]


def test_an_empty_recording() -> None:
    document = run_comparison(compared(recording(ops=(), events=(), counters=(), latency=())))
    assert document.reports[0].series == ()
    assert "0 of 4 nodes matched" in " ".join(document.reports[0].headline)


def test_a_recorded_gpu_is_found_in_the_catalogue() -> None:
    names = {
        "NVIDIA H200": "h200",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA A100-SXM4-40GB": "a100-40gb",
        "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
        "NVIDIA GeForce RTX 4090": "rtx-4090",
        "Tesla T4": "t4",
    }
    assert {name: profile.name for name in names if (profile := catalogued(name)) is not None} == names
    assert catalogued("a processor nobody knows") is None


def test_device_and_version_are_those_of_the_recording() -> None:
    header = replace(recording().header, executor="torch-cuda", device=DeviceRecord("cuda", "NVIDIA H200"), versions={"torch": "2.12.1"})
    header = replace(header, settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    settings = settings_of(recording(header=header), Settings())
    assert (settings.device, settings.torch, settings.alloc_conf) == ("h200", "2.12.1", "expandable_segments:True")
    assert settings_of(recording(header=header), Settings(device="a100")).device == "a100"


def test_a_version_that_nobody_knows_is_the_recordings_fault() -> None:
    header = replace(recording().header, executor="torch-cuda", versions={"torch": "9.9.9"})
    with pytest.raises(LoadError, match=r"'9\.9\.9'"):
        settings_of(recording(header=header), Settings())
    assert settings_of(recording(header=header), Settings(torch="2.12")).torch == "2.12"
    with pytest.raises(UsageError):
        settings_of(recording(header=header), Settings(torch="7.1"))


def test_a_gpu_is_compared_with_the_simulated_allocator() -> None:
    header = replace(recording().header, executor="torch-cuda", device=DeviceRecord("cuda", "NVIDIA H200"))
    # Weights and input in blocks of 512 bytes, and a segment of 2 MiB.
    held = 512 * 4 + 512
    counters = (
        Counters("before", Level(BASELINE, BASELINE), Level(held, held), None, Level(2 << 20, 2 << 20)),
        Counters("cold", Level(BASELINE, BASELINE), Level(held, held + 3 * 512), None, Level(2 << 20, 22 << 20)),
    )
    made = recording(header=header, counters=counters, events=events("cold"))
    opened = model(MLP, program_format="pt2", settings=Settings(device="h200"))
    found = {figure.name: figure for figure in compare_recording(opened, made).figures("cold")}
    assert found["baseline"].predicted.value == 512 * 4
    assert found["baseline"].measured == held
    assert found["peak"].predicted.value is not None
    assert found["reserved"].measured == 22 << 20


def test_a_predicted_time_stands_beside_the_measured_one() -> None:
    opened = model(MLP, program_format="pt2", settings=Settings(device="h200"))
    report = run_comparison(compare_recording(opened, recording())).reports[0]
    timing = opened.manager.get(Time(device="h200"))
    table = next(table for table in report.tables if table.title == "nodes")
    predicted = [node.seconds for node in timing.nodes]
    assert all(predicted) and table.cells("predicted_time") == pytest.approx(predicted)
    assert table.cells("over") == pytest.approx([1e-5 / one - 1 for one in predicted])
    assert report.summary["time"]["predicted"] == timing.quantity()
    furthest = max(range(4), key=lambda place: abs(1e-5 - predicted[place]))
    [line] = [line for line in report.headline if line.startswith("furthest from their predicted time")]
    assert f": {table.cells('node')[furthest]} 10.00 us for " in line


def test_the_document_follows_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads("".join(json_lines(run_comparison(compared()).to_json())))
    jsonschema.Draft202012Validator(json.loads(compare_schema())).validate(document)
    columns = {column["key"]: column for column in document["reports"][0]["tables"][-1]["columns"]}
    assert columns["measured_alive"]["provenance"] == "measured"
    assert columns["least_time"]["provenance"] == "modelled"
    assert "provenance" not in columns["predicted_alive"]


def test_what_is_reserved_is_off_by_a_share_of_itself() -> None:
    """2 MiB of 13 are 15 %, however little a small model adds to its baseline."""
    reserved = Figure("reserved", Quantity(15 << 20), 13 << 20)
    assert reserved.error == pytest.approx(2 / 13)


def test_an_overhead_below_nothing_is_a_busy_machine() -> None:
    plain, profiled = Times(5, 90, 100, 110), Times(5, 30, 43, 60)
    assert overhead_of(profiled, plain, "of profiling").value == pytest.approx(100 / 43 - 1)
    hidden = overhead_of(plain, profiled, "of profiling")
    assert hidden.value is None and "not quiet" in hidden.note
