"""Every node of four large models is found again in recordings of real runs."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from irscope.recording import peak_of, without_workspaces  # only where both are installed
from tests.tools.oracle.recorded import MODELS, exported, record

pytestmark = [
    pytest.mark.full,
    pytest.mark.torch,
    pytest.mark.ort,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torchvision", "transformers", "onnxscript")),
        reason="needs the models of the zoo",
    ),
]
PEAKS = {"resnet50": 9_633_792, "vit_b_16": 5_446_656}
"""Activations at the peak of a warm run, as another recorder counted them."""


@pytest.mark.parametrize("name", sorted(MODELS))
def test_pytorch_names_every_node(name: str) -> None:
    one = record(exported(name, "pt2"))
    assert one.found == one.nodes
    if name in PEAKS:
        assert peak_of(without_workspaces(one.recording.run("warm"))).bytes == PEAKS[name]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_onnx_runtime_is_mapped_back(name: str) -> None:
    one = record(exported(name, "onnx"))
    mapping = one.recording.mapping
    assert one.found >= 0.97 * mapping.nodes
    # Few nodes may be gone before the run: what is folded must be small beside what runs.
    assert mapping.mapped >= 0.9 * mapping.nodes
