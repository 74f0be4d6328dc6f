"""Peaks of models from torchvision and transformers against real runs: how many are exact to the byte, and how far the others are off."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irscope.diagnostics import DiagnosticSink  # noqa: E402
from irscope.frontends.base import LoadOptions  # noqa: E402
from irscope.frontends.load import load_program  # noqa: E402
from irscope.passes.liveness import Liveness  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from tests.oracle.storages import record, record_module  # noqa: E402
from tests.zoo.export import Exported, exported  # noqa: E402
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


@contextmanager
def masks_as_exported() -> Iterator[None]:
    """While it exports, transformers makes attention masks that a run leaves out when nothing is masked; make them in the run too."""
    if importlib.util.find_spec("transformers") is None:
        yield
        return
    from transformers import masking_utils  # type: ignore[import-not-found,unused-ignore]  # optional

    with pytest.MonkeyPatch.context() as patch:
        for name in ("is_torchdynamo_exporting", "is_tracing"):
            patch.setattr(masking_utils, name, lambda *args: True)
        yield


def peak(found: Exported, model: str) -> int:
    program = load_program(found.path, LoadOptions(), DiagnosticSink())
    size = Manager(program).get(Liveness(model=model)).peak  # type: ignore[arg-type]  # checked by the pass
    assert isinstance(size, int)
    assert size != sum(parameter.nbytes for parameter in found.entry.make().parameters()), "activations equal to the parameters"
    return size


def eager_truth(found: Exported) -> int:
    model = found.entry.make()
    with masks_as_exported():
        return record_module(model, found.entry.inputs(found.entry.batch)).peak


def graph_truth(found: Exported) -> int:
    module: Any = torch.export.load(found.path).module()
    constants = [item for item in vars(module).values() if isinstance(item, torch.Tensor)]
    return record(module, found.entry.inputs(found.entry.batch), lambda: [*module.parameters(), *module.buffers(), *constants]).peak


def available() -> list[Exported]:
    known = catalogue()
    entries = [known[name] for name in (*TORCHVISION, *TRANSFORMERS) if name in known]
    if len(entries) < 40:
        pytest.skip("torchvision and transformers are not installed")
    return [found for entry in entries if not (found := exported(entry, "concrete")).refused]


@pytest.mark.parametrize(("model", "exact", "worst"), [("eager", 0.9, 0.06), ("ssa", 0.95, 0.02)])
def test_peaks(model: str, exact: float, worst: float) -> None:
    errors: dict[str, float] = {}
    for found in available():
        truth = eager_truth(found) if model == "eager" else graph_truth(found)
        errors[found.entry.name] = peak(found, model) / truth - 1
    off = {name: f"{error:+.2%}" for name, error in errors.items() if error}
    print(f"{model}: {len(errors) - len(off)} of {len(errors)} exact; {off}")
    assert len(off) <= (1 - exact) * len(errors), off
    assert max(abs(error) for error in errors.values()) <= worst, off
