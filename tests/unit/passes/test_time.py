"""Predicted times: classes of kernels, the queue between host and device, and what cannot be told."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from irscope.ir.parser import parse_program
from irscope.ir.program import ONNX, Program
from irscope.passes.cost.clock import STEPPED, KernelClass, constants, names_of
from irscope.passes.cost.kernels import MATRIX
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.time import Time, Timing
from irscope.passkit.manager import Manager


def program(body: str, inputs: str, symbols: str = "") -> Program:
    return parse_program(f'irscope 1\nformat "pt2"\n{symbols}graph @main {{\n{inputs}\n{body}\n}}\n')


def timing(made: Program, device: str = "rtx-4090") -> Timing:
    return Manager(made).get(Time(device=device))


def product(m: int, k: int = 4096, n: int = 4096) -> Program:
    return program(f"%c: f16[{m},{n}] = math.matmul(%a, %b)\nreturn %c", f"input %a: f16[{m},{k}]\ninput %b: f16[{k},{n}]")


def image(op: str, attrs: str, weight: str, out: str, layout: str = "") -> Program:
    inputs = f"input %x: f16[64,64,56,56]{layout}\ninput %w: f16{weight}"
    return program(f"%y: f16{out}{layout} = {op}(%x, %w, _) {{{attrs}}}\nreturn %y", inputs)


def classes(found: Timing) -> list[str]:
    return [one.kernel.kind.name if one.kernel else "?" for one in found.nodes]


def test_a_large_product_takes_as_long_as_its_arithmetic_at_a_share_of_the_peak() -> None:
    found = timing(product(8192))
    at_peak = 2 * 8192 * 4096 * 4096 / 165.2e12
    assert found.seconds is not None and found.low is not None and found.high is not None
    assert 0.7 * at_peak < found.seconds < 2 * at_peak
    assert found.low < found.seconds < found.high
    assert [one.binds for one in found.nodes] == ["compute"]


def test_twice_the_rows_take_twice_as_long_but_for_the_last_wave() -> None:
    once, twice = (timing(product(rows)).seconds for rows in (16384, 32768))
    # 2,048 tiles of 256 x 128 are 16 waves over 128 multiprocessors; what is left of the last one is the same for both, one wave at most.
    assert once and twice and 2 * 16 / 17 < twice / once <= 2


def test_a_small_product_does_not_get_faster_than_a_tile() -> None:
    small, smaller = (timing(product(rows, 512, 512)).seconds for rows in (16, 8))
    assert small is not None and small == pytest.approx(smaller, rel=0.05)


@pytest.mark.parametrize(
    ("weight", "attrs", "out", "expected"),
    [
        ("[128,64,1,1]", "strides=[1, 1], dilations=[1, 1], groups=1, pads=[0, 0, 0, 0]", "[64,128,56,56]", "POINTWISE"),
        ("[64,64,3,3]", "strides=[1, 1], dilations=[1, 1], groups=1, pads=[1, 1, 1, 1]", "[64,64,56,56]", "CONVOLUTION"),
        ("[64,16,3,3]", "strides=[1, 1], dilations=[1, 1], groups=4, pads=[1, 1, 1, 1]", "[64,64,56,56]", "GROUPED"),
        ("[64,1,3,3]", "strides=[1, 1], dilations=[1, 1], groups=64, pads=[1, 1, 1, 1]", "[64,64,56,56]", "DEPTHWISE"),
    ],
)
def test_convolutions_are_told_apart_by_filter_and_groups(weight: str, attrs: str, out: str, expected: str) -> None:
    assert classes(timing(image("nn.conv", attrs, weight, out))) == [expected]


def test_an_image_with_channels_innermost_has_efficiencies_of_its_own() -> None:
    attrs = "strides=[1, 1], dilations=[1, 1], groups=1, pads=[1, 1, 1, 1]"
    first, last = (timing(image("nn.conv", attrs, "[64,64,3,3]", "[64,64,56,56]", layout)) for layout in ("", "<200704,1,3584,64>"))
    assert last.nodes[0].kernel is not None and last.nodes[0].kernel.last and first.seconds != last.seconds


@pytest.mark.parametrize(
    ("op", "attrs", "sizes", "layout", "kind"),
    [
        ("nn.group_norm", "num_groups=8", "[64,64,56,56]", "<200704,1,3584,64>", "GROUP_NORM"),
        ("nn.layer_norm", "axis=-1", "[64,3136,64]", "<200704,1,3136>", "ROW_NORM"),
        ("nn.softmax", "axis=-1", "[64,3136,64]", "<200704,1,3136>", "SOFTMAX"),
    ],
)
def test_what_takes_elements_in_the_order_of_the_axes_alone_lays_them_so_first(
    op: str, attrs: str, sizes: str, layout: str, kind: str
) -> None:
    def normed(lies: str) -> Timing:
        weights = "" if kind == "SOFTMAX" else ", %w, %w"
        inputs = f"input %x: f32{sizes}{lies}" + ("\ninput %w: f32[64]" if weights else "")
        return timing(program(f"%y: f32{sizes} = {op}(%x{weights}) {{{attrs}}}\nreturn %y", inputs))

    first, last = normed(""), normed(layout)
    assert classes(first) == classes(last) == [kind]
    # Read and written once; a copy is three more reads. What starting a kernel takes is the same.
    assert last.nodes[0].seconds == pytest.approx(2.5 * first.nodes[0].seconds, rel=0.03)


@pytest.mark.parametrize(
    ("sizes", "layout", "count", "is_added", "reads"),
    [
        ("64,512", "", 1, False, 1),
        ("64,512", "<200704,392,1>", 1, True, 1),
        ("64,512", "<100352,1,512>", 64, True, 1),
        ("64,16,32", "<100352,196,3136,1>", 64 * 16, True, 1 + 3),
    ],
)
def test_a_layer_over_rows_out_of_order_is_many_products_and_a_sum_of_its_own(
    sizes: str, layout: str, count: int, *, is_added: bool, reads: int
) -> None:
    # ATen's linear calls addmm only where there are no gaps, and folds rows only where they follow one another; a copy is three reads.
    inputs = f"input %x: f16[{sizes},196]{layout}\ninput %w: f16[256,196]\ninput %b: f16[256]"
    [only] = timing(program(f"%y: f16[{sizes},256] = nn.linear(%x, %w, %b)\nreturn %y", inputs)).nodes
    assert only.kernel is not None and only.kernel.kind.name == "PRODUCT"
    assert (only.kernel.count, only.kernel.m, only.kernel.added) == (count, 64 * 512 / count, is_added * 2 * 2 * 64 * 512 * 256)
    assert only.kernel.flops == 2 * 64 * 512 * 196 * 256 and only.kernel.read == 2 * (reads * 64 * 512 * 196 + 256 * 196 + 256)


def test_a_row_norm_takes_as_long_in_16_bits_as_in_32() -> None:
    def normed(dtype: str) -> float:
        inputs = f"input %x: {dtype}[65536,1024]\ninput %w: {dtype}[1024]"
        body = f"%y: {dtype}[65536,1024] = nn.layer_norm(%x, %w, %w) {{axis=-1}}\nreturn %y"
        return timing(program(body, inputs)).nodes[0].seconds

    assert normed("f16") == pytest.approx(normed("f32"))


def test_attention_over_other_than_four_axes_is_not_fused() -> None:
    def found(axes: str) -> tuple[str, float]:
        made = program(f"%y: f16{axes} = nn.sdpa(%q, %q, %q, _)\nreturn %y", f"input %q: f16{axes}")
        [one] = timing(made).nodes
        assert one.kernel is not None
        return one.kernel.kind.name, one.kernel.read + one.kernel.written

    elements, scores = 64 * 8 * 49 * 32, 64 * 8 * 49 * 49
    assert found("[64,8,49,32]") == ("ATTENTION", 4 * 2 * elements)
    # Queries, keys and values in f32, queries and keys scaled, each written and read; scores in f32: written by the product, read and
    # written by the softmax, compared to truth values of a byte, which are read, then replaced by a copy, and read by the product.
    assert found("[4,16,8,49,32]") == ("BATCHED", 4 * 2 * elements + 2 * 5 * 4 * elements + (4 * 7 + 2) * scores)


def test_elementwise_kernels_are_told_apart_by_how_operands_lie() -> None:
    body = """%same: f16[512,1024] = math.add(%a, %a)
%mixed: f32[512,1024] = math.add(%a, %f)
%turned: f16[512,1024] = math.add(%a, %t)
%cast: f32[512,1024] = tensor.to(%a) {dtype=<f32>}
%view: f16[1024,512]<1,1024> = view.transpose(%a) {axis0=0, axis1=1}
return %same, %mixed, %turned, %cast, %view"""
    inputs = "input %a: f16[512,1024]\ninput %f: f32[512,1024]\ninput %t: f16[512,1024]<1,512>"
    assert classes(timing(program(body, inputs))) == ["MAP", "MIXED", "STRIDED", "CAST", "HOST"]


def test_many_short_kernels_wait_for_the_host() -> None:
    steps = "\n".join(f"%x{number + 1}: f16[16] = nn.relu(%x{number})" for number in range(300))
    found = timing(program(f"{steps}\nreturn %x300", "input %x0: f16[16]"))
    assert found.seconds == pytest.approx(300 * constants().host_seconds["operator"], rel=0.05)
    assert found.nodes[-1].binds == "launch" and 0 < found.waiting < found.seconds


def test_an_operand_that_was_just_made_comes_from_the_cache() -> None:
    small, large = 1 << 23, 1 << 28
    for size, in_cache in ((small, 1.0), (large, 0.3)):
        pair = program(f"%y: f16[{size}] = nn.relu(%x)\n%z: f16[{size}] = nn.relu(%y)\nreturn %z", f"input %x: f16[{size}]")
        found = timing(pair)
        assert found.clock is not None
        first, second = (one.seconds for one in found.nodes)
        share = found.clock.table["map.bandwidth"] * found.clock.machine.bandwidth
        # Half of the bytes are read; the part of them that is in the cache comes at its rate.
        saved = size * 2 / share * (1 - 1 / found.clock.table["cache"])
        assert 0 < first - second <= saved * in_cache * 1.01


def test_an_operator_without_a_record_leaves_the_interval_open_and_counts_as_unknown() -> None:
    made = program("%y: f32[64] = aten.strange(%x)\n%z: f32[64] = nn.relu(%y)\nreturn %z", "input %x: f32[64]")
    manager = Manager(made)
    result = manager.run_one(Time(device="rtx-4090"))
    found: Timing = result.value
    assert found.seconds and found.high == math.inf and [one.binds for one in found.unknown] == ["unknown"]
    report = result.made_report
    assert report.coverage is not None and (report.coverage.known, report.coverage.unknown) == (1, ("aten.strange",))
    assert any(one.code == "IRS424" and "no upper end" in one.message for one in report.diagnostics)


def test_products_of_quantised_operands_have_no_class_and_no_upper_end() -> None:
    """Nothing that times were fitted to multiplies integers: libraries reach anything between a tenth of their peak and all of it."""
    scales = "".join(f"input %{name}: f32[]\ninput %{name}z: u8[]\n" for name in ("a", "b", "c"))
    body = "%y: u8[64,64] = quant.qgemm(%x, %a, %az, %w, %b, %bz, _, %c, %cz)\nreturn %y"
    found = timing(program(body, f"input %x: u8[64,512]\ninput %w: u8[512,64]\n{scales}"), "xeon-8480")
    assert classes(found) == ["?"] and found.high == math.inf


def test_products_between_dequantisation_are_integer_kernels_of_a_session_on_a_processor() -> None:
    inputs = "input %x: f32[64,512]\ninput %w: i8[512,64]\ninput %s: f32[]\ninput %z: i8[]"
    body = "%d: f32[512,64] = quant.dequantize(%w, %s, %z)\n%y: f32[64,64] = math.matmul(%x, %d)\nreturn %y"
    made = program(body, inputs)
    assert math.isfinite(timing(made, "xeon-8480").high or math.inf)
    made.traits = ONNX
    assert [one.node.op for one in timing(made, "xeon-8480").unknown] == ["math.matmul"]
    assert not timing(made, "l4").unknown  # CUDA's kernels take floats
    made.traits = replace(ONNX, is_session=True)
    assert not timing(made, "xeon-8480").unknown
    opened = program(body, inputs.replace("f32[64,512]", "f32[n,512]"), "symbol n [1,*]\n")
    opened.traits = ONNX
    assert [one.node.op for one in timing(opened, "xeon-8480").unknown] == ["math.matmul"]


def test_a_device_without_bandwidth_has_no_time_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    record = {"name": "slow", "title": "Slow", "kind": "gpu", "sources": {"me": {"text": "made up", "date": "2026"}}}
    path.write_text(json.dumps({**record, "matrix": {"f32": {"value": 1, "unit": "TFLOP/s", "source": "me"}}}))
    result = Manager(product(64)).run_one(Time(device=str(path)))
    assert result.value.seconds is None and result.value.high is None
    [told] = [one.message for one in result.made_report.diagnostics if one.code == "IRS424"]
    assert told == "no time can be predicted for Slow: its bandwidth is not known"


def test_a_device_without_times_of_its_own_has_a_wider_interval() -> None:
    own, other = timing(product(8192)), timing(product(8192), "rtx-4060-laptop")
    assert own.clock is not None and other.clock is not None
    assert own.clock.is_own and other.clock.fitted_on == "rtx-4090" and not other.clock.is_own
    assert all(found.seconds and found.low and found.high for found in (own, other))
    # As shares of the prediction: the least time may cut an interval off.
    (low, high), (own_low, own_high) = other.clock.spread["eager"], own.clock.spread["eager"]
    assert low < own_low and high > own_high


def test_what_is_unlike_the_devices_left_out_has_a_wider_interval_than_they() -> None:
    left_out = timing(product(8192), "rtx-5080").clock
    assert left_out is not None and left_out.fitted_on == "rtx-5090" and not left_out.is_assumed
    for name in ("rtx-pro-6000-maxq", "i7-12700h", "apple-m1", "mi300x"):
        other, note = (found := timing(product(8192), name)).clock, found.quantity().note
        assert other is not None and other.is_assumed and note.startswith("the interval is assumed")
        low, high = other.spread["eager"]
        assert low < left_out.spread["eager"][0] < left_out.spread["eager"][1] < high


def share_of_peak(device: str, peak: float) -> float:
    """Return the share of its printed peak that a device is predicted to reach in a product of 13 billion parameters' layers."""
    seconds = timing(product(40_960, 5120, 20_480), device).seconds
    assert seconds is not None
    return 2 * 40_960 * 5120 * 20_480 / peak / seconds


@pytest.mark.parametrize(("device", "peak", "step"), [("a100", 312e12, 0.79), ("h100", 989.4e12, 0.59)])
def test_products_of_data_centre_devices_reach_what_whole_steps_reached(device: str, peak: float, step: float) -> None:
    # llm-foundry's best hardware utilisation of a 13b model: whole steps, of which products are four fifths.
    assert 0.9 * step < share_of_peak(device, peak) < 1.3 * step


def test_a_product_on_a_card_of_300_watts_takes_about_what_cublas_took() -> None:
    # 8,192 cubed in f16: 229 TFLOP/s by github.com/waynehacking8/blackwell-tensorcore-kernels.
    seconds = timing(product(8192, 8192, 8192), "rtx-pro-6000-maxq").seconds
    assert seconds == pytest.approx(2 * 8192**3 / 229e12, rel=0.12)


def test_a_processor_runs_above_its_printed_clock_as_far_as_the_one_with_times_does() -> None:
    clock = timing(product(64), "i7-12700h").clock
    assert clock is not None
    # 2.3 to 4.7 GHz, 3.3 to 4.8 GHz.
    assert clock.machine.rates[32] == pytest.approx(0.6592e12 * (1 + 4.7 / 2.3) / (1 + 4.8 / 3.3))


def test_a_device_that_its_power_feeds_reaches_more_of_its_peak() -> None:
    # 370 and 2,160 GFLOP/s of the printed peak a watt, and 1,413 in between.
    h20, h100, pcie = (share_of_peak(name, peak) for name, peak in (("h20", 148e12), ("h100", 989.4e12), ("h100-pcie", 756e12)))
    assert 1 > h20 > h100 > pcie


def test_the_report_has_a_row_a_node_and_the_interval() -> None:
    made = program("%y: f16[64] = nn.relu(%x)\nreturn %y", "input %x: f16[64]")
    report: dict[str, Any] = Manager(made).run_one(Time(device="rtx-3090")).made_report.to_json()
    low, high = report["intervals"]["seconds"]
    assert low < report["summary"]["seconds"] < high
    [table] = report["tables"]
    assert [row[0] for row in table["rows"]] == ["y"] and [column["key"] for column in table["columns"]][4:7] == ["seconds", "low", "high"]


def test_every_table_has_the_efficiencies_of_every_class() -> None:
    wanted = {f"{name}.bandwidth" for kind in KernelClass if kind for name in names_of(kind)}
    wanted |= {f"{name}.rate" for kind in MATRIX | STEPPED for name in names_of(kind)}
    for name, table in constants().tables.items():
        assert wanted <= table.shares.keys(), name
        assert table.source in constants().sources and {"eager", "compiled", "training"} <= table.spread.keys()


@pytest.mark.parametrize(("body", "inputs"), [
    ("%y: f16[1073741824] = nn.relu(%x)\nreturn %y", "input %x: f16[1073741824]"),
    ("%y: f16[16384,16384] = math.matmul(%a, %b)\nreturn %y", "input %a: f16[16384,16384]\ninput %b: f16[16384,16384]"),
])  # fmt: skip
def test_no_interval_begins_below_the_least_time(body: str, inputs: str) -> None:
    manager = Manager(program(body, inputs))
    found, bounds = manager.get(Time(device="rtx-4090")), manager.get(Roofline(device="rtx-4090"))
    assert found.seconds and found.low and found.high and found.low >= bounds.least and found.least == bounds.least
    wide = replace(found.clock, spread={"eager": (0.1, 0.2)})  # type: ignore[type-var]
    held = replace(found, clock=wide)
    assert held.low == held.high == bounds.least


@pytest.mark.parametrize("device", ["xeon-8380", "i9-10940x", "i7-12700h", "h100", "mi300x"])
def test_every_kind_of_device_has_a_time(device: str) -> None:
    found = timing(product(64), device)
    assert found.seconds and found.low and found.high and found.low < found.seconds < found.high


def test_gradients_of_a_convolution_are_products_too() -> None:
    inputs = "input %g: f16[64,64,56,56]\ninput %x: f16[64,64,56,56]\ninput %w: f16[64,64,3,3]"
    attrs = "strides=[1, 1], dilations=[1, 1], groups=1, pads=[1, 1], transposed=false, output_padding=[0, 0]"
    body = f"%a: f16[64,64,56,56], %b: f16[64,64,3,3], %c: f16[64] = grad.conv(%g, %x, %w) {{{attrs}}}\nreturn %a, %b, %c"
    found = timing(program(body, inputs))
    assert classes(found) == ["CONVOLUTION_GRADIENT"]
    kernel = found.nodes[0].kernel
    assert kernel is not None and kernel.flops == pytest.approx(2 * 2 * 64 * 56 * 56 * 64 * 64 * 9)


def test_an_operand_that_only_repeats_is_not_read_across_its_order() -> None:
    inputs = "input %x: f16[64,32,28,28]\ninput %s: f16[64,32,28,28]<32,1,0,0>"
    assert classes(timing(program("%y: f16[64,32,28,28] = math.mul(%x, %s)\nreturn %y", inputs))) == ["MIXED"]
