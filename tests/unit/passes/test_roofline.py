"""Times, energy and traffic against arithmetic done by hand, on a device with round numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irscope.devices.catalogue import all_devices, find_device
from irscope.errors import UsageError
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.cost.bounds import Bounds
from irscope.passes.cost.energy import Energy, Spent, constants
from irscope.passes.cost.roofline import Layers, Roofline, Traffic
from irscope.passkit.manager import Manager
from irscope.report.report import Report
from irscope.report.values import Quantity
from tests.tables import every

# Least times against arithmetic done by hand, on a device with round numbers.

FIGURES: dict[str, Any] = {
    "name": "round",
    "title": "A round device",
    "kind": "gpu",
    "sources": {"me": {"text": "made up", "date": "2026"}},
    "matrix": {
        "f32": {"value": 1, "unit": "TFLOP/s", "source": "me"},
        "tf32": {"value": 4, "unit": "TFLOP/s", "source": "me"},
        "bf16": {"value": 8, "unit": "TFLOP/s", "source": "me"},
    },
    "vector": {"f32": {"value": 0.5, "unit": "TFLOP/s", "source": "me"}},
    "bandwidth": {"value": 100, "unit": "GB/s", "source": "me"},
    "launch": {"lo": 1, "hi": 10, "unit": "us", "source": "me"},
}


@pytest.fixture
def device(tmp_path: Path) -> Path:
    return write(tmp_path, {})


def write(folder: Path, change: dict[str, Any]) -> Path:
    path = folder / "round.json"
    path.write_text(json.dumps({**FIGURES, **change}))
    return path


def program(body: str, inputs: str) -> Program:
    return parse_program(f'irscope 1\nformat "pt2"\ngraph @main {{\n{inputs}\n{body}\n}}\n')


def product(m: int, k: int, n: int, dtype: str = "f32") -> Program:
    return program(f"%c: {dtype}[{m},{n}] = math.matmul(%a, %b)\nreturn %c", f"input %a: {dtype}[{m},{k}]\ninput %b: {dtype}[{k},{n}]")


def bounds(made: Program, device: Path | str, **options: Any) -> Bounds:
    return Manager(made).get(Roofline(device=str(device), **options))


def test_a_large_product_is_bound_by_arithmetic(device: Path) -> None:
    [one] = bounds(product(1024, 1024, 1024), device).nodes
    assert one.flops == 2 * 1024**3 and one.bytes == 3 * 4 * 1024**2
    assert one.compute == pytest.approx(2 * 1024**3 / 1e12) and one.memory == pytest.approx(12 * 1024**2 / 1e11)
    assert one.binding == "compute"


def test_a_thin_product_is_bound_by_memory(device: Path) -> None:
    [one] = bounds(product(1, 4096, 4096), device).nodes
    assert one.binding == "memory" and one.seconds("gpu") == pytest.approx((4096**2 + 2 * 4096) * 4 / 1e11)


def test_near_the_ridge_a_node_is_balanced(device: Path) -> None:
    """The ridge is at 10 FLOP a byte; m = n = k has n / 6 of them."""
    found = {n: bounds(product(n, n, n), device).nodes[0].binding for n in (96, 110, 132)}
    assert found == {96: "balanced", 110: "balanced", 132: "compute"}


def test_a_tiny_node_is_bound_by_its_launch(device: Path) -> None:
    found = bounds(program("%b: f32[4] = nn.relu(%a)\nreturn %b", "input %a: f32[4]"), device)
    assert found.nodes[0].binding == "launch" and found.seconds == pytest.approx(1e-6)
    assert found.by_binding()["launch"] == pytest.approx(1e-6)


def test_a_processor_starts_before_it_computes(tmp_path: Path) -> None:
    path = write(tmp_path, {"kind": "cpu"})
    [one] = bounds(product(1024, 1024, 1024), path).nodes
    assert one.seconds("cpu") == pytest.approx(one.compute + 1e-6)


def test_views_take_nothing(device: Path) -> None:
    found = bounds(program("%b: f32[8,4]<1,8> = view.transpose(%a) {axis0=0, axis1=1}\nreturn %b", "input %a: f32[4,8]"), device)
    assert [node.binding for node in found.nodes] == ["free"] and found.seconds == 0


def test_the_element_type_may_be_another(device: Path) -> None:
    [wide] = bounds(product(1024, 1024, 1024), device).nodes
    [narrow] = bounds(product(1024, 1024, 1024), device, dtype="bf16").nodes
    assert narrow.compute == pytest.approx(wide.compute / 8) and narrow.bytes * 2 == wide.bytes
    assert narrow.dtype == "bf16"
    [same] = bounds(product(1024, 1024, 1024, "bf16"), device).nodes
    assert (same.compute, same.bytes) == (narrow.compute, narrow.bytes)
    with pytest.raises(UsageError, match="not a floating-point element type"):
        bounds(product(8, 8, 8), device, dtype="i8")


def convolution() -> Program:
    return program(
        "%y: f32[1,64,32,32] = nn.conv(%x, %w, _) {kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1}\n"
        "return %y",
        "input %x: f32[1,64,32,32]\nparam %w: f32[64,64,3,3]",
    )


def test_convolutions_may_use_tf32_and_products_not(device: Path) -> None:
    [conv] = bounds(convolution(), device).nodes
    assert conv.dtype == "tf32" and conv.compute == pytest.approx(conv.flops / 4e12)
    assert bounds(convolution(), device, tf32="none").nodes[0].dtype == "f32"
    assert bounds(product(64, 64, 64), device).nodes[0].dtype == "f32"
    assert bounds(product(64, 64, 64), device, tf32="all").nodes[0].dtype == "tf32"


def test_kinds_of_convolution_have_rates_of_their_own(tmp_path: Path) -> None:
    slow = {"f32": {"value": 0.1, "unit": "TFLOP/s", "source": "me"}}
    path = write(tmp_path, {"kind": "cpu", "kernels": {"depthwise": slow}})
    made = program(
        "%y: f32[1,64,32,32] = nn.conv(%x, %w, _) {kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=64}\n"
        "return %y",
        "input %x: f32[1,64,32,32]\nparam %w: f32[64,1,3,3]",
    )
    [one] = bounds(made, path).nodes
    assert one.compute == pytest.approx(one.flops / 1e11)
    [dense] = bounds(convolution(), path).nodes
    assert dense.compute == pytest.approx(dense.flops / 1e12)


def test_what_was_just_made_comes_from_a_cache(tmp_path: Path) -> None:
    """%b was made by the node before and fits into the cache; %a was last read in the run before, with all else in between."""
    level = {
        "name": "cache",
        "size": {"value": 3, "unit": "MiB", "source": "me"},
        "bandwidth": {"value": 1000, "unit": "GB/s", "source": "me"},
    }
    path = write(tmp_path, {"kind": "cpu", "levels": [level]})
    made = program("%b: f32[262144] = nn.relu(%a)\n%c: f32[262144] = nn.relu(%b)\nreturn %c", "input %a: f32[262144]")
    first, second = bounds(made, path).nodes
    mib = 2**20
    assert first.memory == pytest.approx(mib / 1e11 + mib / 1e12)
    assert second.memory == pytest.approx(mib / 1e12 + mib / 1e12)


def test_the_least_time_is_at_the_highest_clock(tmp_path: Path) -> None:
    clocks = {"clock": {"value": 1, "unit": "GHz", "source": "me"}, "max_clock": {"value": 1250, "unit": "MHz", "source": "me"}}
    made = product(4096, 4096, 4096)
    seconds = 2 * 4096**3 / 1e12
    assert bounds(made, write(tmp_path, {})).least == pytest.approx(seconds), "no clock is known: that of the data sheet"
    found = bounds(made, write(tmp_path, clocks))
    assert (found.seconds, found.least) == (pytest.approx(seconds), pytest.approx(seconds / 1.25))


def test_the_least_time_moves_what_the_last_cache_cannot_hold(tmp_path: Path) -> None:
    """16 MiB are read and 16 written; a cache may have held 6 of each before and keep as many."""
    made = program("%b: f32[4194304] = nn.relu(%a)\nreturn %b", "input %a: f32[4194304]")
    found = bounds(made, write(tmp_path, {"l2_cache": {"value": 6, "unit": "MiB", "source": "me"}}))
    mib = 2**20
    assert found.seconds == pytest.approx(32 * mib / 1e11) and found.least == pytest.approx(20 * mib / 1e11)
    # Without a figure it may hold everything.
    assert bounds(made, write(tmp_path, {})).least == pytest.approx(4 * mib / 0.5e12)


@pytest.mark.parametrize(
    ("attrs", "filters", "saved"),
    [("strides=[1, 1]", "3,3", 4.0), ("strides=[2, 2]", "3,3", 1.0), ("", "1,1", 1.0), ("", "1,7", 2.8), ("", "5,5", 6.25)],
)
def test_convolutions_have_algorithms_of_fewer_products(tmp_path: Path, attrs: str, filters: str, saved: float) -> None:
    inputs = f"input %a: f32[64,256,56,56]\ninput %w: f32[256,256,{filters}]"
    made = program(f"%c: ?[*] = nn.conv(%a, %w, _) {{{attrs}}}\nreturn %c", inputs)
    found = bounds(made, write(tmp_path, {}), tf32="none")
    assert found.seconds / found.least == pytest.approx(saved)


def test_a_runtime_that_fuses_moves_weights_at_least(tmp_path: Path) -> None:
    """ONNX Runtime may make one kernel of the product and of what follows: what is between them is not counted."""
    body = "%c: f32[8,4096] = math.matmul(%a, %w)\n%d: f32[8,4096] = nn.relu(%c)\nreturn %d"
    text = f'irscope 1\nformat "onnx"\ngraph @main {{\ninput %a: f32[8,4096]\ninput %w: f32[4096,4096]\n{body}\n}}\n'
    found = bounds(parse_program(text), write(tmp_path, {}))
    read = 4 * (4096 * 4096 + 8 * 4096)
    assert found.is_fused and found.least == pytest.approx(max(2 * 8 * 4096**2 / 1e12, read / 1e11))


def test_symbols_leave_the_time_open_until_they_are_bound(device: Path) -> None:
    made = program("%b: f32[n,8] = nn.relu(%a)\nreturn %b", "input %a: f32[n,8]")
    manager = Manager(made)
    found = manager.get(Roofline(device=str(device)))
    assert [one.binding for one in found.unknown] == ["unknown"] and "--bind" in found.unknown[0].reason
    [result] = manager.run([Roofline(device=str(device))])
    report = result.report()
    assert report.coverage is not None and report.coverage.known == 0
    assert [diagnostic.code for diagnostic in report.diagnostics] == ["IRS424"]


def test_an_unknown_operator_counts_as_nothing_and_is_named(device: Path) -> None:
    made = program("%b: f32[8] = vendor.magic(%a)\n%c: f32[8] = nn.relu(%b)\nreturn %c", "input %a: f32[8]")
    found = bounds(made, device)
    assert [one.node.op for one in found.unknown] == ["vendor.magic"] and found.seconds == pytest.approx(1e-6)


def test_the_report_adds_up(device: Path) -> None:
    [result] = Manager(product(512, 512, 512)).run([Roofline(device=str(device), top=0)])
    document = result.report().to_json()
    assert sum(document["summary"]["share_of_time"].values()) == pytest.approx(1)  # type: ignore[union-attr]  # a group
    assert document["summary"]["ridge"] == {"f32": 10.0}
    assert document["summary"]["least_seconds"] == pytest.approx(2 * 512**3 / 1e12)


def test_half_the_bandwidth_takes_twice_as_long(tmp_path: Path) -> None:
    made = product(1, 4096, 4096)
    before = bounds(made, write(tmp_path, {})).seconds
    slow = {"value": 50, "unit": "GB/s", "source": "me"}
    assert bounds(made, write(tmp_path, {"bandwidth": slow})).seconds == pytest.approx(2 * before)


# Joules and grams are intervals of stated constants times stated amounts.


def spent(**options: Any) -> Spent:
    return Manager(product(1024, 1024, 1024, "bf16")).get(Energy(**options))


def test_the_parts_are_amounts_times_constants() -> None:
    found, known = spent(device="h200"), constants()
    parts = {term.name: term for term in found.terms}
    flops, moved = 2 * 1024**3, 3 * 2 * 1024**2
    assert parts["arithmetic bf16"].amount == (flops, flops) and parts["caches"].amount == (moved, moved)
    assert parts["main memory"].amount == (moved, moved), "inputs and outputs are all there is"
    low = flops * known.arithmetic["bf16"].lo + moved * (known.memory["gpu"].lo + known.cache.lo) + found.seconds * 73.7
    assert found.joules[0] == pytest.approx(low)


def test_the_high_end_of_arithmetic_is_the_whole_chip_at_its_peak() -> None:
    h200 = find_device("h200")
    figure = constants().flop(h200, "bf16")
    assert figure is not None and figure.hi == pytest.approx(700 / 989.4e12)


@every("device", [device for device in all_devices() if device.power is not None], ids=lambda device: device.name)
def test_the_interval_is_one_and_agrees_with_the_rated_power(device: Any) -> None:
    """A run at its bound, at rated power, lies between a hundredth of the high end and a hundred times the low one."""
    found = spent(device=device.name)
    low, high = found.joules
    assert high is not None and 0 < low < high
    rated = device.power.hi * found.seconds
    assert low / 100 < rated < high * 100


def test_a_device_without_power_has_no_upper_end() -> None:
    low, high = spent(device="tpu-v5e").joules
    assert low > 0 and high is None


def test_carbon_needs_a_country() -> None:
    everywhere, germany = spent(device="h200"), spent(device="h200", country="deu", pue=1.2)
    low, high = germany.grams
    joules = germany.joules
    assert joules[1] is not None and high is not None
    assert low == pytest.approx(joules[0] / 3.6e6 * 1.2 * 381) and high == pytest.approx(joules[1] / 3.6e6 * 1.2 * 381)
    assert everywhere.grams is None, "nobody said whose grid it is"
    assert spent(device="h200", grid=100.0).grams is not None
    with pytest.raises(UsageError, match=r"no grid 'atlantis'.*DEU"):
        spent(country="atlantis")


@pytest.mark.parametrize("options", [{"runs": 0}, {"slower": 0.5}, {"pue": 0.9}, {"grid": -1.0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spent(**options)


def test_runs_add_up() -> None:
    once, often = spent(device="h200").joules, spent(device="h200", runs=1000).joules
    assert often == (pytest.approx(1000 * once[0]), pytest.approx(1000 * (once[1] or 0)))


def test_numbers_are_numbers_within_their_intervals() -> None:
    [result] = Manager(product(64, 64, 64)).run([Energy(device="a100", country="DEU")])
    report = result.report()
    found: Any = report.to_json()
    for key in ("joules", "watts", "flops_per_joule", "grams_of_co2"):
        low, high = found["intervals"][key]
        number = found["summary"][key]
        assert isinstance(number, float) and isinstance(low, float) and isinstance(high, float)
        assert 0 < low < number < high and found["provenance"][key] == "modelled"
    _, inputs, carbon = report.tables
    assert all(row[-2] and row[-1] for table in (inputs, carbon) for row in table.rows()), "each constant has a source and a date"


def test_watts_and_flops_per_joule_agree_with_joules_and_seconds() -> None:
    found = spent(device="h200")
    low, high = found.joules
    least, most = found.watts
    assert high is not None and most is not None
    assert least * found.seconds <= low and most <= found.device.power.hi  # type: ignore[union-attr]  # an H200 has a figure
    assert least * found.seconds * found.slower <= high
    assert found.flops_per_joule == (pytest.approx(2 * 1024**3 / high), pytest.approx(2 * 1024**3 / low))


def test_joules_by_class_add_up_to_the_whole() -> None:
    report = reported("%r: ?[*] = nn.relu(%h)\n  %y: ?[*] = nn.softmax(%r) {axis=1}")
    rows = list(report.tables[0].rows())
    assert sorted(str(row[0]) for row in rows) == ["contraction", "elementwise", "softmax"]
    joules: Any = report.summary["joules"]
    for end in ("value", "lo", "hi"):
        assert sum(getattr(row[-1], end) for row in rows) == pytest.approx(getattr(joules, end))


def test_without_a_country_carbon_is_unknown_and_says_why() -> None:
    found: Any = reported("%y: ?[*] = nn.relu(%h)").to_json()
    assert found["summary"]["grams_of_co2"] is None and "country" in found["remarks"]["grams_of_co2"]
    assert any("country=DEU" in note for note in found["notes"])


def test_energy_with_nodes_that_nobody_knows_has_no_upper_end() -> None:
    report = reported("%y: ?[*] = acme.mystery(%h)")
    joules: Any = report.summary["joules"]
    assert joules.lo > 0 and joules.hi is None
    (unknown,) = [row for row in report.tables[0].rows() if row[0] == "unknown"]
    assert [getattr(cell, "shown", cell) for cell in unknown] == ["unknown", 1, None, None, None]


def reported(body: str) -> Report:
    head = "irscope 1\ngraph @main {\n  input %x: f32[64,64]\n  param %w: f32[64,64]\n  %h: ?[*] = nn.linear(%x, %w)\n"
    return Manager(parse_program(f"{head}  {body}\n  return %y\n}}\n")).run([Energy(device="h200")])[0].report()


# Bytes read and written: views are free, weights count once for each use, and no run moves less than the compulsory.

LINEAR = """irscope 1
graph @main {
  input %x: f32[8,16]
  param %w: f32[32,16]
  param %unused: f32[100]
  %a: f32[8,32] = nn.linear(%x, %w, _)
  %t: f32[32,8] = view.transpose(%a) {axis0=0, axis1=1}
  %b: f32[8,32] = nn.linear(%x, %w, _)
  %c: f32[8,32] = math.add(%a, %b)
  return %c, %t
}
"""


def moved(text: str) -> Report:
    return Manager(parse_program(text)).run_one(Traffic()).report()


def rows(report: Report) -> dict[object, tuple[object, object]]:
    table, _ = report.tables
    return dict(zip(table.cells("node"), zip(table.cells("read"), table.cells("written"), strict=True), strict=True))


def test_reads_and_writes_of_every_node() -> None:
    report = moved(LINEAR)
    assert rows(report) == {"a": (4 * (128 + 512), 4 * 256), "t": (0, 0), "b": (4 * (128 + 512), 4 * 256), "c": (4 * 512, 4 * 256)}
    assert report.summary["moved_bytes"] == 2 * 4 * (640 + 256) + 4 * 768


def test_compulsory_traffic_has_each_tensor_once() -> None:
    summary = moved(LINEAR).summary
    assert summary["compulsory"] == {"inputs": 4 * 128, "weights": 4 * 512, "outputs": 4 * 512}
    assert summary["compulsory_bytes"] == 4 * (128 + 512 + 512)


def test_intensity() -> None:
    report = moved(LINEAR)
    flops = 2 * 2 * 8 * 16 * 32 + 256
    moved_bytes = report.summary["moved_bytes"]
    assert isinstance(moved_bytes, int)
    assert report.summary["intensity"] == {
        "as_counted": pytest.approx(flops / moved_bytes),
        "at_most": pytest.approx(flops / (4 * (128 + 512 + 512))),
    }


def test_a_table_of_which_a_few_rows_are_read() -> None:
    declared = "input %i: i64[5]\n  param %w: f32[1000,16]"
    text = f"irscope 1\ngraph @main {{\n  {declared}\n  %y: f32[5,16] = nn.embedding(%w, %i)\n  return %y\n}}\n"
    assert rows(moved(text))["y"] == (5 * 16 * 4 + 5 * 8, 5 * 16 * 4)


def test_unknown_bytes_are_no_zero() -> None:
    report = moved("irscope 1\ngraph @main {\n  input %x: f32[4]\n  %y: f32[*] = foreign.op(%x)\n  return %y\n}\n")
    found = report.summary["moved_bytes"]
    assert found.hi is None
    assert report.coverage.unknown == ("foreign.op",)


def test_layers_join_flops_bytes_and_bottlenecks() -> None:
    report = Manager(parse_program(LINEAR)).run_one(Layers()).report()
    (table,) = report.tables
    assert [column.key for column in table.columns] == ["name", "type", "flops", "memory", "arithmetic_intensity", "bottleneck"]
    first = next(iter(table.rows()))
    assert first[:5] == ("a", "nn.linear", 8192, 3584, pytest.approx(8192 / 3584))
    assert set(table.cells("bottleneck")) <= {"compute", "memory", "balanced", "launch", "free", "unknown"}


def test_shares_by_intensity_need_no_device_and_leave_out_nothing() -> None:
    manager = Manager(parse_program(LINEAR))
    (layers,), (_, table) = (manager.run_one(one).report().tables for one in (Layers(), Traffic()))
    row, view = table.to_dicts()
    assert (view["flops_per_byte"], view["nodes"], view["memory"]) == ("moves nothing", 1, 0)
    sums = [sum(layers.cells(key)) for key in ("flops", "memory")]  # type: ignore[arg-type]  # plain numbers
    assert (row["flops_per_byte"], row["nodes"], [row["flops"], row["memory"]]) == ("< 10", len(layers) - 1, sums)
    text = """irscope 1
graph @main {
  input %x: f32[512,512]
  %a: f32[512,512] = math.matmul(%x, %x)
  %v: f32[512,512] = view.transpose(%a) {axis0=0, axis1=1}
  %r: f32[512,512] = nn.relu(%a)
  %f: f32[512] = foreign.op(%a)
  return %v, %r, %f
}
"""
    _, table = Manager(parse_program(text)).run_one(Traffic()).report().tables
    found = {row["flops_per_byte"]: row for row in table.to_dicts()}
    assert {name: row["nodes"] for name, row in found.items()} == {"> 50": 1, "< 10": 1, "moves nothing": 1, "unknown": 1}
    # 2 x 512^3 operations on three matrices of 1 MiB: 85 a byte.
    assert (found["> 50"]["flops"], found["> 50"]["memory"]) == (2 * 512**3, 3 << 20)
    assert found["unknown"]["flops"] is None and found["unknown"]["of_flops"] is None
    share = {row[0]: row[4] for row in table.rows()}["> 50"]
    assert isinstance(share, Quantity) and share.ends == (0.0, 1.0), "an unknown operator may be any part of the whole"
