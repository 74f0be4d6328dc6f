"""Peaks of models from torchvision and transformers against real runs: how many are exact to the byte, and how far the others are off."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.oracle.zoo import Model, Row, compare  # noqa: E402
from tests.zoo.models import catalogue  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

TORCHVISION = (
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "fcn_resnet50",
    "googlenet",
    "inception_v3",
    "mc3_18",
    "mnasnet1_0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mvit_v1_b",
    "regnet_x_800mf",
    "regnet_y_400mf",
    "resnet18",
    "resnet50",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "swin_t",
    "swin_v2_t",
    "vgg11_bn",
    "vit_b_32",
)
TRANSFORMERS = (
    "albert",
    "bart",
    "bert",
    "clip",
    "convnext",
    "deit",
    "dinov2",
    "distilbert",
    "electra",
    "gemma",
    "gpt2",
    "gpt_neo",
    "llama",
    "mistral",
    "opt",
    "phi3",
    "qwen2",
    "roberta",
    "segformer",
    "swin",
    "t5",
    "vit",
    "whisper",
)


@pytest.mark.parametrize(
    ("form", "model", "exact", "worst"),
    [("concrete", "eager", 0.95, 0.01), ("concrete", "ssa", 0.95, 0.02), ("traced", "eager", 0.85, 0.2)],
)
def test_peaks(form: str, model: Model, exact: float, worst: float) -> None:
    known = catalogue()
    names = [name for name in (*TORCHVISION, *TRANSFORMERS) if name in known]
    if len(names) < 40:
        pytest.skip("torchvision and transformers are not installed")
    rows: list[Row] = [row for name in names if not (row := compare(name, form, model)).refused.startswith("refused")]
    assert not [row.line() for row in rows if row.refused]
    off = {row.name: f"{row.error:+.2%}" for row in rows if row.error}
    print(f"{form} {model}: {len(rows) - len(off)} of {len(rows)} exact; {off}")
    assert len(off) <= (1 - exact) * len(rows), off
    assert max(abs(row.error) for row in rows) <= worst, off
