"""The card: its numbers are those of the passes, its parts add up, and it fits a screen."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import irscope
from irscope.ir.program import Assumed
from irscope.report.card import Card
from irscope.report.cardtext import HEIGHT, adding_up, card_lines, formula_text
from irscope.report.options import RenderOptions
from irscope.report.printable import display_width
from irscope.report.units import Kind, humanise
from irscope.report.values import Quantity, quantity
from irscope.session import Model
from irscope.tools import config
from tests.tools.pages import report_schema

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
    total = sum((part.bytes for part in memory.parts), start=quantity(0))
    if memory.peak.value is not None:
        assert total.value == memory.peak.value
        assert made.fields()["peak"] == memory.peak.value


def test_the_numbers_are_those_of_the_passes(made: Card) -> None:
    model = irscope.load(made.identity.path, bind={size.symbol: size.size for size in made.sizes})
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


@pytest.mark.parametrize("name", ["cnn", "lstm", "transformer"])
def test_the_largest_size_is_looked_for_without_analyses_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Mapping[str, int]] = []
    bound_to = Model.bound_to

    def counted(model: Model, sizes: Mapping[str, int]) -> Model:
        looks.append(sizes)
        return bound_to(model, sizes)

    monkeypatch.setattr(Model, "bound_to", counted)
    largest = irscope.card(SAMPLES / "models" / f"{name}.onnx", device="h200").largest
    # The card itself, the size that fits, and the one that surely does.
    assert len(looks) <= 3
    assert {largest.symbol: largest.size} == {"batch": looks[1]["batch"]}


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
    assert made["peak_allocated"] == made["peak"] != made["pytorch_allocated"]
    assert made["pytorch_allocated"] == _raw(summary["device_peak_bytes"])
    on_cpu = irscope.card(model, device="epyc-7763").fields()
    assert on_cpu["peak_allocated"] is not None
    assert on_cpu["fits"] is None


def test_the_device_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    assert config.chosen_device("a100").reason == "named by --device"
    assert config.chosen_device().device.name == "h200"
    config.set_config("device", "NVIDIA GeForce RTX 4090")
    assert (config.chosen_device().device.name, config.chosen_device().reason) == ("rtx-4090", "set by irscope config")
    monkeypatch.setattr(config, "local_gpu", lambda: "NVIDIA L4")
    assert (config.chosen_device().device.name, config.chosen_device().reason) == ("l4", "this machine's GPU")
    monkeypatch.setattr(config, "local_gpu", lambda: "NVIDIA GeForce GTX 480")
    assert "GTX 480 is not in irscope's list" in config.chosen_device().reason


@pytest.mark.parametrize(
    ("visible", "found"), [(None, "NVIDIA L4"), ("1", "NVIDIA T4"), ("", ""), ("-1", ""), ("7", "NVIDIA T4"), ("GPU-5a", "NVIDIA L4")]
)
def test_the_gpu_of_this_machine_is_what_its_driver_shows(
    visible: str | None, found: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    for address, name in (("0000:01:00.0", "NVIDIA L4"), ("0000:02:00.0", "NVIDIA T4")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 129\n")
    monkeypatch.setattr(config, "_PROC", tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert config.local_gpu() == found


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(config, "_PROC", tmp_path / "nothing")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(config.shutil, "which", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert config.local_gpu() == ""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA GeForce RTX 4090'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(config.shutil, "which", lambda name: str(tool))
    assert config.local_gpu() == "NVIDIA GeForce RTX 4090"
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert config.local_gpu() == ""


# ----------------------------------------------------------------------------------------------------
# Whole cards as they are printed. IRSCOPE_UPDATE_SNAPSHOTS=1 writes them anew, to be read before they are committed.

CARDS = Path(__file__).parent / "cards"
GOLDEN: dict[str, tuple[str, dict[str, int], str]] = {
    "fits": ("tagger.irs", {}, "rtx4090"),
    "too-large": ("pyramid.irs", {"batch": 1024}, "t4"),
    "no-device-is-enough": ("pyramid.irs", {"batch": 1 << 20}, "h200"),
    "onnx": ("models/cnn.onnx", {}, "h200"),
    "onnx-on-a-cpu": ("models/cnn.onnx", {"batch": 8}, "epyc-7763"),
    "two-open-sizes": ("models/transformer.onnx", {}, "h200"),
    "sizes-fixed": ("models/net.pt", {}, "l4"),
    "branches": ("models/control_flow.onnx", {}, "h200"),
    "no-cuda": ("models/net.pt2", {}, "apple-m1"),
}


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", GOLDEN)
def test_whole_cards(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path, bind, device = GOLDEN[name]
    monkeypatch.chdir(SAMPLES)
    text = "\n".join(card_lines(irscope.card(irscope.load(path, bind=bind), device=device), RenderOptions(width=width))) + "\n"
    expected = CARDS / f"{name}-{width}.txt"
    if os.environ.get("IRSCOPE_UPDATE_SNAPSHOTS"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


# ----------------------------------------------------------------------------------------------------
# Models of every kind, and names that files can have.


def is_one_screen(made: Card) -> None:
    for width in (80, 100):
        lines = card_lines(made, RenderOptions(width=width))
        assert len(lines) <= HEIGHT, "\n".join(lines)
        assert max(map(display_width, lines)) <= width, "\n".join(lines)
        assert not any(ord(letter) < 32 for line in lines for letter in line)
    total = sum((part.bytes for part in made.memory.parts), start=quantity(0))
    assert made.memory.peak.value is None or total.value == made.memory.peak.value
    jsonschema.validate(made.to_json(), {"$ref": "#/$defs/Card", "$defs": json.loads(report_schema())["$defs"]})


@pytest.mark.torch
@pytest.mark.parametrize("name", ["unet", "translator", "experts", "speech", "points"])
def test_captured_models_have_cards(name: str) -> None:
    pytest.importorskip("torch")
    from tests.tools.zoo.plain import entries

    entry = next(entry for entry in entries() if entry.name == name)
    module, inputs = entry.make(), entry.inputs(2)
    made = irscope.card(irscope.capture(module, *inputs), device="a100")
    is_one_screen(made)
    assert made.memory.fits.value is True
    assert made.memory.allocated.value == made.memory.peak.value
    assert 0 < len(made.memory.largest) <= 3
    assert made.cost.flops.value


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["scripted", "weights", "half"])
def test_files_of_every_kind_have_cards(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
    module = torch.nn.Sequential(*layers).eval()
    path = tmp_path / "model.pt"
    if kind == "scripted":
        torch.jit.script(module).save(str(path))
    else:
        weights = module.state_dict()
        torch.save({name: value.half() for name, value in weights.items()} if kind == "half" else weights, path)
    made = irscope.card(path, device="l4")
    is_one_screen(made)
    if kind == "scripted":
        assert str(made).splitlines()[1].startswith("fits if what is assumed holds") or made.memory.fits.value is None
        return
    assert made.memory.fits.value is None
    assert made.cost.flops.value is None
    weights_bytes = sum(weight.bytes for weight in made.identity.weights)
    assert weights_bytes == made.fields()["parameter_bytes"]
    assert humanise(weights_bytes, Kind.BYTES) in str(made)


@pytest.mark.parametrize("name", ["m" * 300, "模型" * 60, "a b'c", "\u202emodel", "x\x1b[2J"])
def test_names_do_not_break_the_screen(name: str, tmp_path: Path) -> None:
    text = (SAMPLES / "mlp.irs").read_text(encoding="utf-8").replace("%x", f"%{json.dumps('input ' + name)}")
    path = tmp_path / f"{name[:60].replace(chr(27), '')}.irs"
    path.write_text(text, encoding="utf-8")
    is_one_screen(irscope.card(path, device="h200"))


def test_a_size_that_is_an_input_is_said_with_the_option_that_gives_it(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["values", "indices"])],
        "top",
        [helper.make_tensor_value_info("x", kinds.FLOAT, [3, 4]), helper.make_tensor_value_info("k", kinds.INT64, [1])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (("values", kinds.FLOAT), ("indices", kinds.INT64))],
    )
    path = tmp_path / "top.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    made = irscope.card(path, device="h200")
    is_one_screen(made)
    assert made.memory.peak.value is None and made.memory.peak.formula is not None
    assert made.memory.why == "sizes depend on k_0"
    assert any("--bind k_0=" in hint.line for hint in made.next)
    assert (
        irscope.card(irscope.load(path, bind={"k_0": 2}), device="h200").fields()["peak"] == 3 * 256
    )  # x and both results; k stays on the CPU


def test_a_flag_that_decides_a_branch_is_set_to_what_takes_the_most(tmp_path: Path) -> None:
    """A merged decoder: both branches are known, so that there is a peak before anybody says which one runs."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto

    def branch(name: str, nodes: list[tuple[str, str, str]]) -> Any:
        made = [helper.make_node(op, inputs.split(), [output], **({"axis": 0} if op == "Concat" else {})) for op, inputs, output in nodes]
        return helper.make_graph(made, name, [], [helper.make_tensor_value_info(nodes[-1][2], kinds.FLOAT, None)])

    large = branch("large", [("Concat", "x x", "l0"), ("Concat", "l0 l0", "l")])
    small = branch("small", [("Relu", "x", "s")])
    graph = helper.make_graph(
        [helper.make_node("If", ["use_cache"], ["y"], then_branch=small, else_branch=large)],
        "merged",
        [helper.make_tensor_value_info("x", kinds.FLOAT, ["batch", 256]), helper.make_tensor_value_info("use_cache", kinds.BOOL, [1])],
        [helper.make_tensor_value_info("y", kinds.FLOAT, None)],
    )
    path = tmp_path / "merged.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    made = irscope.card(path, device="h200")
    is_one_screen(made)
    assert made.memory.fits.value is True
    assert [dict(branch.chosen) for branch in made.memory.branches] == [{"use_cache": 1}, {"use_cache": 0}]
    peaks = [branch.peak.value for branch in made.memory.branches]
    assert made.memory.peak.value == peaks[1] > peaks[0]
    assert made.fields()["sizes"] == "batch=1,use_cache=0"
    assert "by branch:" in str(made)
    bound = irscope.card(irscope.load(path, bind={"use_cache": 1}), device="h200")
    assert bound.memory.peak.value == peaks[0] and not bound.memory.branches


@pytest.mark.torch
def test_a_training_step_has_a_card() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    step = irscope.capture_training(module, torch.zeros(8, 64), loss="mean", optimizer="adam")
    made = irscope.card(step, device="a100")
    is_one_screen(made)
    summary = irscope.run(step, "liveness", device="a100")["liveness"].report().summary
    assert {"parameter", "gradient"} < {part.category for part in made.memory.parts}
    assert "optimizer state" in str(made)
    assert made.fields()["fits"] == _raw(summary["fits"])
    assert made.fields()["peak"] == _raw(summary["device_peak_bytes"])
    assert made.next == ()


GENERATING = """irscope 1
format "module"
meta "generates" "yes"
meta "general.architecture" "llama"
meta "llama.block_count" "4"
meta "llama.context_length" "1000"
meta "llama.attention.head_count" "8"
meta "llama.attention.head_count_kv" "2"
meta "llama.attention.key_length" "64"
meta "llama.attention.value_length" "64"
meta "llama.cache_type" "bf16"
graph @main {
  input %x: bf16[2,256]
  param %w: bf16[256,256]
  %y: bf16[2,256] = nn.linear(%x, %w, _)
  return %y
}
"""


def test_a_language_model_is_told_what_generating_takes(tmp_path: Path) -> None:
    path = tmp_path / "model.irs"
    path.write_text(GENERATING)
    model = irscope.load(path)
    model.program.path = "transformers:llama"  # as a model by name, which has no file
    made = irscope.card(model, device="l4")
    text = " ".join(str(made).split())
    each = 4 * 2 * (64 + 64) * 2
    assert made.fields()["cache_per_token"] == each and made.fields()["cache_at_context"] == each * 1000
    assert "llama (4 layers, context 1,000)" in text and "2 bytes of bf16 * 4 layers * 2 heads * (64 + 64)" in text
    assert (
        "one forward without a cache" in text
        and "`irscope fit --device l4 --free batch --prompt 1024 --new 256 transformers:llama`" in text
    )
    generate, longest, _ = made.next
    assert generate.line == "irscope generate --device l4 transformers:llama"
    assert longest.line == "irscope fit --device l4 --free context transformers:llama"


def test_all_that_was_assumed_is_on_the_card() -> None:
    made = irscope.card(irscope.load(SAMPLES / "tagger.irs"))
    said = [Assumed(f"thing{number}", "so", "nobody said") for number in range(5)]
    text = str(replace(made, assumed=tuple(said)))
    assert all(f"thing{number}=so" in text for number in range(5)) and "more" not in text.partition("assumed")[2]
