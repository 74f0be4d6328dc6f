"""Releases of ONNX Runtime: which is predicted, by which rules, and what is said of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import irscope
from irscope.cli.main import main
from irscope.devices import releases
from irscope.devices.releases import NEWEST_ORT, ort_release
from irscope.errors import UsageError
from tests.frontends.onnx.build import model, value


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """Two convolutions in f16, for which the CPU provider has kernels in f32 alone."""
    weights = [numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float16), name) for name in ("v", "w")]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "v"], ["a"], name="first"),
        onnx.helper.make_node("Relu", ["a"], ["b"], name="relu"),
        onnx.helper.make_node("Conv", ["b", "w"], ["y"], name="second"),
    ]
    proto = model(nodes, [value("x", [1, 4, 8, 8], TensorProto.FLOAT16)], (), weights, opset=17, ir_version=8)
    proto.graph.output.append(value("y", [1, 4, 4, 4], TensorProto.FLOAT16))
    path = tmp_path / "halves.onnx"
    onnx.save(proto, path)
    return path


# Operators of what sessions of 1.20.1 and 1.31.1 saved as optimized_model_filepath on a processor with AVX-512.
SAVED = {"1.20": {"Cast": 4, "Conv": 2, "Relu": 1}, "1.31": {"Cast": 2, "Conv": 2, "ReorderOutput": 2}}


@pytest.mark.parametrize(
    ("asked", "saved", "runtime", "note"),
    [
        ("1.20.1", "1.20", "onnxruntime 1.20", "of onnxruntime 1.20 not all is followed"),
        ("1.31", "1.31", "onnxruntime 1.31", ""),
        ("1.25.0", "1.31", "onnxruntime 1.25 by the rules of 1.31", "how 1.25 differs was not measured"),
    ],
)
def test_session_is_that_of_the_release_that_is_asked_for(
    asked: str, saved: str, runtime: str, note: str, halves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--format", "json", "--ort", asked, "--passes", "ort-memory", str(halves)]) == 0
    report = json.loads(capsys.readouterr().out)["reports"][0]
    kernels = report["tables"][0]
    place = [column["key"] for column in kernels["columns"]].index("kernel")
    assert Counter(row[place] for row in kernels["rows"]) == SAVED[saved]
    assert report["summary"]["runtime"] == runtime
    assert any(note in one for one in report["notes"]) and (note or not any("differs" in one for one in report["notes"]))
    assert main(["run", "--ort", asked, "--device", "xeon-8480", str(halves)]) == 0
    assert f"ONNX Runtime {runtime.removeprefix('onnxruntime ')}" in capsys.readouterr().out
    plan = irscope.load(halves, ort=asked, ort_level="all", device="xeon-8480").run("ort-memory")["ort-memory"].value
    assert runtime.startswith(f"onnxruntime {plan.release.text}")


def test_default_is_the_installed_release_else_the_newest_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, version in (("1.20.1", "1.20"), ("1.32.0.dev1", "1.32"), ("", NEWEST_ORT)):
        monkeypatch.setattr(releases, "_installed_ort", lambda installed=installed: installed)
        assert ort_release("").version == version
    assert ort_release("1.31.1").text == "1.31"


@pytest.mark.parametrize("text", ["x", "1", "1.x", "-1.20", "1.20 1.31"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a version of ONNX Runtime"):
        ort_release(text)
