"""Names of models: what they are, and what is said of those that are none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.frontends.zoo.names import is_name, looks_like_name, parse_name


def test_parts_of_a_name() -> None:
    name = parse_name("transformers:llama{num_hidden_layers=2, dtype=bf16,rope=[1,2],eps=1e-5,tie=true,pad=none}")
    assert (name.package, name.model) == ("transformers", "llama")
    expected = {"num_hidden_layers": 2, "dtype": "bf16", "rope": [1, 2], "eps": 1e-5, "tie": True, "pad": None}
    assert dict(name.options) == expected
    assert parse_name("timm:resnet18").options == ()


@pytest.mark.parametrize("text", ["timm:x{a}", "timm:x{1=2}", "timm:x{a=1,a=2}", "nobody:x", "timm:"])
def test_names_that_do_not_parse(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_name(text)
    assert caught.value.code == "IRS670"


def test_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_name("timm:resnet18")
    assert not is_name("model.onnx") and not is_name("C:/models/timm.onnx")
    assert looks_like_name("huggingface:gpt2") == "huggingface"
    assert not looks_like_name("C:model")
    (tmp_path / "timm:resnet18").write_text("irscope 1\ngraph @main {\ninput %x: f32[2]\nreturn %x\n}\n")
    assert not is_name("timm:resnet18")
    assert main(["show", "timm:resnet18"]) == 0


def test_a_package_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "huggingface:gpt2"]) == 2
    said = capsys.readouterr().err
    assert "IRS674" in said and "torchvision, timm, transformers" in said
    assert said.count("\n") == 1


def test_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = importlib.util.find_spec

    def nothing(name: str, *rest: Any) -> Any:
        return None if name in ("torch", "timm", "torchvision", "transformers") else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    assert main(["run", "timm:resnet18"]) == 2
    said = capsys.readouterr().err
    assert "IRS195" in said and "torch and timm is not installed (pip install torch timm)" in said
    assert main(["zoo"]) == 0
    assert "not installed: timm (pip install timm)" in capsys.readouterr().out
    assert main(["zoo", "timm"]) == 2
    assert "IRS195" in capsys.readouterr().err
