"""Predicted times of ONNX Runtime's sessions beside times of real ones, recorded with the rates of the same machine.

`python -m tests.oracle.test_session_times` measures anew, for a machine that `irscope calibrate --only cpu --threads 1` has measured.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irscope
from irscope.cli.main import main
from irscope.devices.catalogue import calibration_file
from irscope.passes.cost.time import Time, Timing
from tests.tables import every

RECORDED: Final = Path(__file__).parents[1] / "data" / "ort" / "session_times.json"
LAYERS: Final = ((32, 64, 3, 1, 1), (64, 64, 3, 2, 1), (64, 64, 3, 1, 64), (64, 128, 1, 1, 1), (128, 128, 3, 2, 1), (128, 256, 1, 1, 1))
"""Channels in and out, side of the filter, step, groups."""
SIDE: Final = 56
FORMS: Final = ("f32", "signed", "unsigned", "qdq", "dynamic")


def network(form: str) -> onnx.ModelProto:
    """Return a small network of convolutions in floats, as operators of quantised tensors, between quantisation and dequantisation, or
    quantised while it runs."""
    drawn = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    kept = [numpy_helper.from_array(np.float32(0.02), "scale")]
    for name, kind in (("u8", np.uint8), ("i8", np.int8)):
        kept.append(numpy_helper.from_array(np.zeros((), kind), f"{name}_zero"))
    image, weights = ("i8", "i8") if form == "signed" else ("u8", "u8" if form == "dynamic" else "i8")

    def add(op: str, *inputs: str, count: int = 1, **attrs: Any) -> str:
        outputs = [f"{op}_{len(nodes)}_{place}" for place in range(count)]
        nodes.append(helper.make_node(op, inputs, outputs, **attrs))
        return outputs[0]

    value = "x"
    if form in ("signed", "unsigned"):
        value = add("QuantizeLinear", value, "scale", f"{image}_zero")
    for place, (channels, results, taps, step, groups) in enumerate(LAYERS):
        shape = (results, channels // groups, taps, taps)
        name = f"w{place}"
        floats = drawn.standard_normal(shape).astype(np.float32)
        codes = drawn.integers(1, 100, shape).astype(np.int8 if weights == "i8" else np.uint8)
        kept.append(numpy_helper.from_array(floats if form == "f32" else codes, name))
        attrs: dict[str, Any] = {"kernel_shape": [taps] * 2, "strides": [step] * 2, "pads": [taps // 2] * 4, "group": groups}
        if form == "f32":
            value = add("Relu", add("Conv", value, name, **attrs))
        elif form == "dynamic":
            quantised = add("DynamicQuantizeLinear", value, count=3)
            scale, zero = (quantised[:-1] + end for end in "12")
            sums = add("Cast", add("ConvInteger", quantised, name, zero, **attrs), to=TensorProto.FLOAT)
            value = add("Relu", add("Mul", sums, scale))
        elif form == "qdq":
            quantised = add("DequantizeLinear", add("QuantizeLinear", value, "scale", "u8_zero"), "scale", "u8_zero")
            value = add("Relu", add("Conv", quantised, add("DequantizeLinear", name, "scale", "i8_zero"), **attrs))
        else:
            scales = ("scale", f"{image}_zero", name, "scale", "i8_zero", "scale", f"{image}_zero")
            value = add("QLinearConv", value, *scales, **attrs)
    if form in ("signed", "unsigned"):
        value = add("DequantizeLinear", value, "scale", f"{image}_zero")
    elif form == "qdq":
        value = add("DequantizeLinear", add("QuantizeLinear", value, "scale", "u8_zero"), "scale", "u8_zero")
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, LAYERS[0][0], SIDE, SIDE])
    graph = helper.make_graph(nodes, form, [source], [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds of real runs by form, on the machine whose rates the device `this` then has."""
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    found = json.loads(RECORDED.read_text())
    calibration_file("this").write_text(json.dumps(found["device"]))
    return dict(found["seconds"])


def predicted(form: str, folder: Path, *, is_complete: bool = True) -> Timing:
    onnx.save(network(form), folder / f"{form}.onnx")
    timing = irscope.load(folder / f"{form}.onnx", device="this", ort_level="all").run([Time()])["time"].value
    assert isinstance(timing, Timing) and timing.seconds is not None and is_complete == (not timing.unknown)
    return timing


@every("form", FORMS)
def test_sessions_take_as_long_as_they_took(form: str, recorded: dict[str, float], tmp_path: Path) -> None:
    timing = predicted(form, tmp_path)
    assert timing.low is not None and timing.high is not None
    assert timing.low <= recorded[form] <= timing.high


def test_forms_of_a_model_are_in_their_real_order_where_that_is_more_than_noise(recorded: dict[str, float], tmp_path: Path) -> None:
    times = {form: predicted(form, tmp_path).seconds or 0.0 for form in FORMS}
    for faster, slower in itertools.permutations(FORMS, 2):
        assert times[faster] < times[slower] or recorded[faster] > recorded[slower] / 1.5, (faster, slower)


def test_the_card_and_the_pass_time_the_optimised_graph(
    recorded: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = predicted("qdq", tmp_path)
    path = str(tmp_path / "qdq.onnx")
    assert irscope.card(path, device="this").cost.time.value == expected.seconds
    assert main(["run", "--passes", "time", "--device", "this", "--format", "json", path]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reports"][0]["summary"]["seconds"] == expected.seconds
    assert any(taken["what"] == "ort-level" and taken["why"].startswith("for time: ") for taken in document["model"]["assumed"])
    assert main(["run", "--passes", "time", "--device", "this", "--ort-level", "off", path]) == 0
    assert "--ort-level all predicts which" in capsys.readouterr().err


def test_integers_whose_rate_was_not_measured_have_no_time(recorded: dict[str, float], tmp_path: Path) -> None:
    device = json.loads(calibration_file("this").read_text())
    device["sessions"] = {"product": device["sessions"]["product"]}
    del device["session_elements"], device["overheads"]
    calibration_file("this").write_text(json.dumps(device))
    assert predicted("unsigned", tmp_path, is_complete=False).high == math.inf


def _measured() -> dict[str, float]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    found = {}
    for form in FORMS:
        session = ort.InferenceSession(network(form).SerializeToString(), options, providers=["CPUExecutionProvider"])
        feeds = {"x": np.random.default_rng(0).random((1, LAYERS[0][0], SIDE, SIDE), np.float32)}
        taken = []
        for _ in range(50):
            started = time.process_time()
            session.run(None, feeds)
            taken.append(time.process_time() - started)
        found[form] = min(taken)
    return found


if __name__ == "__main__":
    device = json.loads(calibration_file("this").read_text())
    RECORDED.write_text(json.dumps({"device": device, "seconds": _measured()}, indent=1) + "\n")
