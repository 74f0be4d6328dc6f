"""A configuration in a folder: its own element type is the default, and what is analysed otherwise is said. A stand-in for the package."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import irscope  # noqa: E402
from irscope.cli.main import main  # noqa: E402
from irscope.frontends.base import LoadOptions  # noqa: E402
from irscope.frontends.zoo.load import make_named  # noqa: E402
from irscope.ir.dtypes import DType  # noqa: E402

pytestmark = pytest.mark.torch


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
    found.Words = Words
    monkeypatch.setitem(sys.modules, "transformers", found)
    monkeypatch.setattr("irscope.frontends.zoo.packages.is_installed", lambda name: True)
    monkeypatch.setattr("irscope.frontends.zoo.load._version", lambda name: "0")


def folder(path: Path, **settings: Any) -> str:
    (path / "config.json").write_text(json.dumps({"architectures": ["Words"], "vocab_size": 50, **settings}))
    return f"transformers:{path}"


def taken(model: irscope.Model) -> dict[str, tuple[str, bool]]:
    return {one.what: (one.value, one.is_guess) for one in model.program.assumed}


def dtypes(model: irscope.Model) -> dict[str | None, str]:
    return {weight.name: weight.type.dtype.text for weight in model.program.weights()}


@pytest.mark.usefixtures("package")
def test_the_configurations_own_type_is_the_default(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path, dtype="bfloat16"))
    assert dtypes(model) == {"embed.weight": "bf16", "wide.weight": "bf16", "wide.bias": "bf16", "rates": "f32"}
    assert taken(model) == {"batch": ("1", False), "seq": ("128", False)}


@pytest.mark.usefixtures("package")
def test_parts_that_the_package_keeps_wide_stay_wide(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path, dtype="float16"))
    assert dtypes(model) == {"embed.weight": "f16", "wide.weight": "f32", "wide.bias": "f32", "rates": "f32"}


@pytest.mark.usefixtures("package")
def test_what_differs_from_the_configuration_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder(tmp_path, dtype="bfloat16", use_cache=True)
    model = irscope.load(f"{name}{{dtype=f32}}", bind={"batch": 2, "seq": 8})
    assert set(dtypes(model).values()) == {"f32"}
    assert taken(model) == {"dtype": ("f32", False), "use_cache": ("false", False)}
    assert main(["run", "--strict", "--passes", "flops", f"{name}{{dtype=f32}}"]) == 0
    head = capsys.readouterr().out.splitlines()[1]
    assert head.startswith("taken: dtype=f32 (the configuration says bf16), use_cache=false (the configuration says true), batch=1")
    assert main(["run", "--passes", "flops", name]) == 0
    assert "dtype" not in capsys.readouterr().out.splitlines()[1]
    # What the user says is not assumed.
    said = irscope.load(f"{name}{{use_cache=false,dtype=bf16}}", bind={"batch": 2, "seq": 8})
    assert taken(said) == {}


@pytest.mark.usefixtures("package")
def test_a_configuration_without_a_type_is_said_to_have_none(tmp_path: Path) -> None:
    model = irscope.load(folder(tmp_path), bind={"batch": 2, "seq": 8})
    assert set(dtypes(model).values()) == {"f32"}
    assert taken(model) == {"dtype": ("f32", False)}


@pytest.mark.usefixtures("package")
def test_quantised_weights_that_are_not_analysed_are_a_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder(tmp_path, dtype="bfloat16", quantization_config={"quant_method": "fp8"})
    assert taken(irscope.load(name))["weights"] == ("plain bf16", True)
    assert main(["run", "--strict", "--passes", "params", "--format", "json", name]) == 5
    out, err = capsys.readouterr()
    assert "IRS199" in err and "quantised by fp8" in err
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
