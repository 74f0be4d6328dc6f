"""The family that `arch` names is the one that a model's authors give it, for every model of the zoo whose family is beyond dispute."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.passes.patterns.arch import Arch, Verdict
from irscope.passkit.manager import Manager
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import Entry, catalogue

pytestmark = [
    pytest.mark.torch,
    # Exporting warns of whatever the packages' own code uses.
    pytest.mark.filterwarnings("ignore"),
]

LANGUAGE = {
    "encoder-only transformer": (
        "bert roberta albert electra distilbert deberta_v2 mpnet mobilebert squeezebert modernbert layoutlm big_bird funnel canine xlnet"
    ),
    "decoder-only transformer": (
        "gpt2 gpt_neo gptj gpt_neox opt bloom llama mistral qwen2 qwen3 gemma gemma2 gemma3 phi phi3 falcon stablelm olmo2 cohere granite "
        "starcoder2"
    ),
    "mixture-of-experts decoder-only transformer": "mixtral qwen3_moe deepseek_v3",
    "state-space model": "mamba mamba2",
    "encoder-decoder transformer": "t5 bart marian pegasus whisper speech_to_text",
    "transformer with cross attention": "perceiver",
    "vision transformer": "ast vit deit beit dinov2 vit_mae yolos swin swinv2 pvt",
    "vision-language transformer": "clip siglip owlvit",
    "hybrid of convolution and attention": "wav2vec2 hubert levit",
    "convolutional network with attention": "detr mobilevit",
    "depthwise-separable convolutional network": "convnext convnextv2 mobilenet_v1",
    "convolutional network": "resnet regnet poolformer",
}
VISION = {
    "convolutional network": (
        "alexnet densenet googlenet inception mc3_18 r2plus1d_18 r3d_18 regnet resnet resnext squeezenet vgg wide_resnet"
    ),
    "depthwise-separable convolutional network": "convnext efficientnet mnasnet mobilenet shufflenet",
    "vision transformer": "swin_ swin_v2 vit_",
    "hybrid of convolution and attention": "maxvit",
}
PLAIN = {
    "unet": "convolutional encoder-decoder",
    "translator": "encoder-decoder transformer",
    "experts": "mixture-of-experts multilayer perceptron",
    "speech": "recurrent network",
    "points": "no network",
}


def family_of(entry: Entry) -> str:
    """The family that a model is known to be of; empty where one could argue."""
    if entry.package == "transformers":
        return next((family for family, names in LANGUAGE.items() if entry.name in names.split()), "")
    return next((family for family, names in VISION.items() if entry.name.startswith(tuple(names.split()))), "")


def verdict(entry: Entry, form: str = "concrete") -> Verdict | None:
    """What `arch` says; None where the model cannot be exported."""
    found = exported(entry, form)
    if found.refused:
        return None
    return Manager(load_program(found.path, LoadOptions(), DiagnosticSink())).get(Arch()).verdict


@pytest.mark.parametrize("form", ["concrete", "decomposed", "traced"])
@pytest.mark.parametrize("name", PLAIN)
def test_models_of_torch_alone(name: str, form: str) -> None:
    found = verdict(catalogue()[name], form)
    assert found is not None and found.family == PLAIN[name]


@pytest.mark.parametrize("name", ["llama", "mobilenet_v3_small"])
def test_models_of_packages(name: str) -> None:
    entry = catalogue().get(name)
    if entry is None:
        pytest.skip("its package is not installed")
    found = verdict(entry)
    assert found is not None and found.confidence == "high"
    wanted = {"llama": "decoder-only transformer", "mobilenet_v3_small": "depthwise-separable convolutional network"}
    assert found.family == wanted[name]


@pytest.mark.full
@pytest.mark.parametrize("package", ["transformers", "torchvision"])
def test_all_models(package: str) -> None:
    wanted: dict[str, str] = {}
    for name, entry in catalogue().items():
        family = family_of(entry) if entry.package == package else ""
        if family:
            wanted[name] = family
    if not wanted:
        pytest.skip(f"{package} is not installed")
    wrong: list[str] = []
    for name, family in wanted.items():
        found = verdict(catalogue()[name])
        if found is not None and found.family != family:
            wrong.append(f"{name} is a {family}, not a {found.family}: {found.reason}")
    assert wrong == []
