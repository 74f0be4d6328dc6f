"""Names and configurations: which package makes them, what is read from them, what is refused."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import copy
import importlib.util
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import irscope
from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.load import make_named
from irscope.frontends.zoo.names import is_name, looks_like_name, parse_name
from irscope.ir.dtypes import DType

# Names of models: what they are, and what is said of those that are none.


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
    assert "IRS195" in said and "torch and timm are not installed (pip install torch timm)" in said
    assert main(["zoo"]) == 0
    assert "not installed: timm (pip install timm)" in capsys.readouterr().out
    assert main(["zoo", "timm"]) == 2
    assert "IRS195" in capsys.readouterr().err


# Models of installed packages, by name.

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


def test_settings_of_published_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    needs("transformers")
    small = "num_hidden_layers=1,hidden_size=64,intermediate_size=64,vocab_size=64,num_attention_heads=2,num_key_value_heads=1"
    scaled = 'rope_scaling={"rope_type":"linear","factor":2.0},torch_dtype=bfloat16,pad_token_id=null,eos_token_id=[1,2]'
    config: Any = make_named(f"transformers:llama{{{small},{scaled}}}", LoadOptions()).module.config
    assert config.rope_parameters["factor"] == 2.0 and config.eos_token_id == [1, 2] and config.pad_token_id is None
    assert main(["run", f"transformers:llama{{{small},pad_token_id=x}}"]) == 2
    assert "IRS672" in capsys.readouterr().err


def test_zoo_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    needs("torchvision")
    assert main(["zoo", "torchvision:resnet*"]) == 0
    listed = capsys.readouterr().out
    assert "torchvision:resnet50" in listed and "vgg" not in listed


# A configuration in a folder: its own element type is the default, and what is analysed otherwise is said. A stand-in for the package.


class Words(nn.Module):
    """Makes itself in an element type, as models of the package do: a table stays in f32, and one layer is kept wide."""

    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.wide = nn.Linear(16, 16)
        self.register_buffer("rates", torch.ones(4, dtype=torch.float32))

    @classmethod
    def _from_config(cls, config: Any, dtype: torch.dtype) -> Words:
        usual = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return cls(config)
        finally:
            torch.set_default_dtype(usual)

    def _get_dtype_plan(self, dtype: torch.dtype) -> dict[str, torch.dtype]:
        return {"wide": torch.float32} if dtype is torch.float16 else {}

    def can_generate(self) -> bool:
        return True

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.wide(self.embed(input_ids).to(self.wide.weight.dtype))  # type: ignore[no-any-return]  # a module's call has no type


def _read(path: str, **options: Any) -> SimpleNamespace:
    settings = {**json.loads((Path(path) / "config.json").read_text()), **options}
    return SimpleNamespace(**{**settings, "dtype": getattr(torch, settings.get("dtype") or "", None)})


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = ModuleType("transformers")
    found.__spec__ = ModuleSpec("transformers", None)
    found.logging = SimpleNamespace(set_verbosity_error=lambda: None)
    found.AutoConfig = SimpleNamespace(from_pretrained=lambda path, local_files_only, trust_remote_code, **options: _read(path, **options))
    found.Words, found.PreTrainedModel = Words, nn.Module
    monkeypatch.setitem(sys.modules, "transformers", found)
    monkeypatch.setattr("irscope.frontends.zoo.packages.is_installed", lambda name: True)
    monkeypatch.setattr("irscope.frontends.zoo.load._installed_version", lambda name: "0")


def folder(path: Path, **settings: Any) -> str:
    (path / "config.json").write_text(json.dumps({"architectures": ["Words"], "vocab_size": 50, **settings}))
    return f"transformers:{path}"


def taken(model: irscope.Model) -> dict[str, tuple[str, bool]]:
    return {assumption.what: (assumption.value, assumption.is_guess) for assumption in model.program.assumed}


def dtypes(model: irscope.Model) -> dict[str | None, str]:
    return {weight.name: weight.type.dtype.text for weight in model.program.weights()}


BY_CONFIGURATION = {"sizes": ("the configuration's", False)}
"""What is said of a folder without weights."""


@pytest.mark.usefixtures("package")
def test_the_configurations_own_type_is_the_default(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path, dtype="bfloat16"))
    assert dtypes(model) == {"embed.weight": "bf16", "wide.weight": "bf16", "wide.bias": "bf16", "rates": "f32"}
    assert taken(model) == {"dtype": ("bf16", False), **BY_CONFIGURATION, "batch": ("1", False), "seq": ("128", False)}


@pytest.mark.usefixtures("package")
def test_parts_that_the_package_keeps_wide_stay_wide(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path, dtype="float16"))
    assert dtypes(model) == {"embed.weight": "f16", "wide.weight": "f32", "wide.bias": "f32", "rates": "f32"}


@pytest.mark.usefixtures("package")
def test_what_differs_from_the_configuration_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder(tmp_path, dtype="bfloat16", use_cache=True)
    model = irscope.load(f"{name}{{dtype=f32}}", bind={"batch": 2, "seq": 8})
    assert set(dtypes(model).values()) == {"f32"}
    assert taken(model) == {"dtype": ("f32", False), "use_cache": ("false", False), **BY_CONFIGURATION}
    assert main(["run", "--strict", "--passes", "flops", f"{name}{{dtype=f32}}"]) == 0
    # Lines are as long as a pipe's are, so that the header may take several.
    head = " ".join(capsys.readouterr().out.partition("\n\n")[0].split())
    assert "settings: dtype=f32 (the configuration says bf16), use_cache=false (the configuration says true), sizes=" in head
    assert main(["run", "--passes", "flops", name]) == 0
    assert "dtype=bf16 (the configuration)" in capsys.readouterr().out.partition("\n\n")[0].partition("settings:")[2]
    # What the user says is not assumed.
    said = irscope.load(f"{name}{{use_cache=false,dtype=bf16}}", bind={"batch": 2, "seq": 8})
    assert taken(said) == BY_CONFIGURATION


@pytest.mark.usefixtures("package")
def test_a_configuration_without_a_type_is_said_to_have_none(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path), bind={"batch": 2, "seq": 8})
    assert set(dtypes(model).values()) == {"f32"}
    assert taken(model) == {"dtype": ("f32", False), **BY_CONFIGURATION}


@pytest.mark.usefixtures("package")
def test_quantised_weights_that_are_analysed_are_as_the_configuration_says(tmp_path: Path) -> None:
    name = folder(tmp_path, dtype="bfloat16", quantization_config={"quant_method": "fp8"})
    assert taken(irscope.load(name))["weights"] == ("fp8", False)


@pytest.mark.usefixtures("package")
def test_quantised_weights_that_are_not_analysed_are_a_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder(tmp_path, dtype="bfloat16", quantization_config={"quant_method": "hqq"})
    assert taken(irscope.load(name))["weights"] == ("plain bf16", True)
    assert main(["run", "--strict", "--passes", "params", "--format", "json", name]) == 5
    out, err = capsys.readouterr()
    assert "IRS199" in err and "quantised by hqq" in err
    # The weights themselves are others, so their bytes are not exact.
    assert json.loads(out)["reports"][0]["provenance"]["bytes"] == "assumed"


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.full
def test_types_are_those_of_the_packages_own_loading(dtype: DType, tmp_path: Path) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    from irscope.frontends.zoo.packages import load_transformers

    package = load_transformers()
    configs = {
        "LlamaForCausalLM": package.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4),
        "T5ForConditionalGeneration": package.T5Config(d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16),
    }
    for name, config in configs.items():
        path = tmp_path / name
        wanted = {DType.BF16: torch.bfloat16, DType.F16: torch.float16}[dtype]
        getattr(package, name)(copy.deepcopy(config)).to(wanted).save_pretrained(path)
        truth = getattr(package, name).from_pretrained(path)
        made = make_named(f"transformers:{path}", LoadOptions()).module
        for read in (nn.Module.named_parameters, nn.Module.named_buffers):
            assert {key: one.dtype for key, one in read(made)} == {key: one.dtype for key, one in read(truth)}


@pytest.mark.usefixtures("package")
def test_a_configuration_that_is_a_link_elsewhere_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to(tmp_path / "secret.json")
    assert main(["run", f"transformers:{tmp_path / 'model'}"]) == 3
    assert "'config.json' is outside the folder of the model" in capsys.readouterr().err
