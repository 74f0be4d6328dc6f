"""The card: its numbers are those of the passes, its parts add up, and it fits a screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import irscope
from irscope.report.card import Card
from irscope.report.cardtext import HEIGHT, adding_up, card_lines, formula_text
from irscope.report.options import RenderOptions
from irscope.report.printable import display_width
from irscope.report.units import Kind
from irscope.report.values import Quantity, quantity
from irscope.tools import config

SAMPLES = Path(__file__).parents[3] / "samples"
MODELS = sorted([*SAMPLES.glob("*.irs"), *(SAMPLES / "models").iterdir()])


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "local_gpu", lambda: "")


@pytest.fixture(scope="module", params=MODELS, ids=lambda path: path.name)
def made(request: pytest.FixtureRequest) -> Card:
    return irscope.card(request.param, device="h200")


@pytest.mark.parametrize("width", [80, 100])
def test_a_card_is_one_screen(made: Card, width: int) -> None:
    lines = card_lines(made, RenderOptions(width=width))
    assert len(lines) <= HEIGHT
    assert max(map(display_width, lines)) <= width
    assert any("fits" in line for line in lines[:3])


def test_the_parts_add_up_to_the_headline(made: Card) -> None:
    memory = made.memory
    total = sum((one.bytes for one in memory.parts), start=quantity(0))
    if memory.peak.value is not None:
        assert total.value == memory.peak.value
        assert made.fields()["peak"] == memory.peak.value


def test_the_numbers_are_those_of_the_passes(made: Card) -> None:
    model = irscope.load(made.identity.path, bind={one.symbol: one.size for one in made.sizes})
    results = irscope.run(model, "flops,params,liveness,roofline", device="h200")
    fields = made.fields()
    assert fields["flops"] == _raw(results["flops"].report().summary["total_flops"])
    assert fields["parameters"] == _raw(results["params"].report().summary["count"])
    assert fields["least_time"] == _raw(results["roofline"].report().summary["least_seconds"])
    summary = results["liveness"].report().summary
    key = "device_peak_bytes" if _raw(summary.get("device_peak_bytes")) is not None else "tensor_peak_bytes"
    assert fields["peak"] == _raw(summary[key])
    if "fits" in summary:
        assert fields["fits"] == _raw(summary["fits"])


def _raw(cell: object) -> object:
    return cell.value if isinstance(cell, Quantity) else cell


def test_a_card_is_json(made: Card) -> None:
    found = json.loads(json.dumps(made.to_json()))
    assert found["fields"]["parameters"] == made.fields()["parameters"]
    assert set(found["provenance"]) <= set(found["fields"])


def test_the_largest_size_is_that_of_fit() -> None:
    path = SAMPLES / "models" / "cnn.onnx"
    made = irscope.card(path, device="h200")
    found = irscope.fit(irscope.load(path), device="h200")
    assert (made.largest.symbol, made.largest.size, made.largest.surely) == ("batch", found.largest, found.surely)


@pytest.mark.parametrize(
    ("formula", "kind", "text"),
    [
        ("416137354*batch", Kind.FLOPS, "416.14 MFLOPs x batch"),
        ("2609152*batch + 1247272", Kind.BYTES, "2.49 MiB x batch + 1.19 MiB"),
        ("536*batch*length**2 + 12*batch", Kind.COUNT, "536 x batch x length^2 + 12 x batch"),
        ("a + b + c", Kind.COUNT, None),
        ("max(batch, 3)", Kind.BYTES, None),
    ],
)
def test_formulas_are_written_for_people(formula: str, kind: Kind, text: str | None) -> None:
    assert formula_text(formula, kind) == text


@pytest.mark.parametrize("others", [{}, {"s1": 3}])
def test_printed_parts_add_up(others: dict[str, int]) -> None:
    values = [5_242_881, 1_048_575, 349_525, 349_525, 349_526, 3, *others.values()]
    unit = float(1 << 20)
    shown = adding_up(values, sum(values), unit)
    assert round(sum(shown), 2) == round(sum(values) / unit, 2)


@pytest.mark.torch
def test_sizes_are_those_of_the_example_in_the_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt2"
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(torch.nn.Linear(4, 8).eval(), (torch.zeros(16, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    made = irscope.card(path, device="h200")
    (size,) = made.sizes
    assert (size.size, size.source, size.role) == (16, "the file's example", "batch")
    assert made.fields()["flops"] == irscope.card(irscope.load(path, bind={size.symbol: 16}), device="h200").fields()["flops"]
    assert made.fields()["flops_formula"] is not None
    text = str(made)
    assert "16 (the file's example)" in text


def test_a_bound_batch_is_set_free_to_find_the_largest() -> None:
    path = SAMPLES / "pyramid.irs"
    made = irscope.card(irscope.load(path, bind={"batch": 3000}), device="t4")
    assert made.fields()["fits"] is False
    found = irscope.fit(irscope.load(path), device="t4")
    assert made.largest.size == found.largest
    assert made.fields()["missing"] is not None
    assert "h200" in made.memory.devices


def test_an_onnx_file_on_a_gpu_has_pytorchs_counters_beside_its_own(tmp_path: Path) -> None:
    path = SAMPLES / "models" / "cnn.onnx"
    made = irscope.card(irscope.load(path, bind={"batch": 4}), device="h200").fields()
    model = irscope.load(path, bind={"batch": 4})
    summary = irscope.run(model, "liveness{model=eager}", device="h200")["liveness"].report().summary
    assert made["peak_allocated"] is None
    assert made["pytorch_allocated"] == _raw(summary["device_peak_bytes"])
    on_cpu = irscope.card(model, device="epyc-7763").fields()
    assert on_cpu["peak_allocated"] is not None
    assert on_cpu["fits"] is None


def test_the_device_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    assert config.chosen_device("a100").reason == "--device"
    assert config.chosen_device().device.name == "h200"
    config.set_config("device", "NVIDIA GeForce RTX 4090")
    assert (config.chosen_device().device.name, config.chosen_device().reason) == ("rtx-4090", "set by irscope config")
    monkeypatch.setattr(config, "local_gpu", lambda: "NVIDIA L4")
    assert (config.chosen_device().device.name, config.chosen_device().reason) == ("l4", "this machine's GPU")
    monkeypatch.setattr(config, "local_gpu", lambda: "NVIDIA GeForce GTX 480")
    assert "GTX 480 is not in irscope's list" in config.chosen_device().reason
