"""Models of installed packages, by name."""

from __future__ import annotations

import importlib.util

import pytest

import irscope
from irscope.cli.main import main

pytestmark = pytest.mark.torch


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(
    ("name", "parameters", "inputs"),
    [
        ("torchvision:resnet18", 11_689_512, ["f32[1,3,224,224]"]),
        pytest.param("torchvision:mvit_v2_s", 34_537_744, ["f32[1,3,16,224,224]"], marks=pytest.mark.full),
        pytest.param("timm:vit_base_patch16_224", 86_567_656, ["f32[1,3,224,224]"], marks=pytest.mark.full),
        pytest.param("transformers:gpt2", 124_439_808, ["i64[1,128]", "i64[1,128]"], marks=pytest.mark.full),
        pytest.param("transformers:llama", 6_738_415_616, ["i64[1,128]", "i64[1,128]"], marks=pytest.mark.full),
        pytest.param("transformers:whisper", 37_760_640, ["f32[1,80,3000]", "i64[1,128]"], marks=pytest.mark.full),
        pytest.param("transformers:BertModel{num_hidden_layers=1}", 31_515_648, ["i64[1,128]", "i64[1,128]"], marks=pytest.mark.full),
    ],
)
def test_parameters_and_inputs(name: str, parameters: int, inputs: list[str]) -> None:
    needs(name.partition(":")[0])
    model = irscope.load(name)
    assert model.info().parameters == parameters
    assert [str(value.type).partition("]")[0] + "]" for value in model.graph.inputs] == inputs


@pytest.mark.parametrize(
    ("name", "near"), [("torchvision:resnet51", "resnet50"), ("timm:resnet18x", "resnet18"), ("transformers:gpt3", "gpt2")]
)
@pytest.mark.full
def test_near_matches(name: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs(name.partition(":")[0])
    assert main(["run", name]) == 2
    said = capsys.readouterr().err
    assert "IRS196" in said and near in said and said.count("\n") == 1


@pytest.mark.full
def test_a_setting_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    needs("transformers")
    assert main(["run", "transformers:bert{num_hidden_layer=2}"]) == 2
    said = capsys.readouterr().err
    assert "IRS672" in said and "num_hidden_layers" in said


def test_zoo_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    needs("torchvision")
    assert main(["zoo", "torchvision:resnet*"]) == 0
    listed = capsys.readouterr().out
    assert "torchvision:resnet50" in listed and "vgg" not in listed
