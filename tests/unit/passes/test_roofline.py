"""Least times against arithmetic done by hand, on a device with round numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import UsageError
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.cost.bounds import Bounds
from irscope.passes.cost.roofline import Roofline
from irscope.passkit.manager import Manager

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
    assert [one.binding for one in found.nodes] == ["free"] and found.seconds == 0


def test_the_element_type_may_be_another(device: Path) -> None:
    [wide] = bounds(product(1024, 1024, 1024), device).nodes
    [narrow] = bounds(product(1024, 1024, 1024), device, dtype="bf16").nodes
    assert narrow.compute == pytest.approx(wide.compute / 8) and narrow.bytes * 2 == wide.bytes
    assert narrow.dtype == "bf16"
    [same] = bounds(product(1024, 1024, 1024, "bf16"), device).nodes
    assert (same.compute, same.bytes) == (narrow.compute, narrow.bytes)
    with pytest.raises(UsageError, match="no floating-point element type"):
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
