"""Folders of models with an installed transformers: weights beside the configuration, code that is not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import irscope
from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.load import make_named
from irscope.ir.dtypes import DType
from tests.frontends.hub import llama_tensors, write_llama, write_safetensors

CODE = {"AutoConfig": "configuration_my.MyConfig", "AutoModelForCausalLM": "modeling_my.MyForCausalLM"}


def _made(folder: Path, sink: DiagnosticSink | None = None, **options: Any) -> Any:
    return make_named(str(folder), LoadOptions(**options), sink=sink)


def _taken(made: Any) -> dict[str, str]:
    return {assumption.what: f"{assumption.value} ({assumption.why})" for assumption in made.assumed}


def test_the_header_says_what_the_configuration_asks_for(tmp_path: Path) -> None:
    taken = _taken(_made(write_llama(tmp_path / "a")))
    assert taken["dtype"] == "bf16 (the configuration)"
    assert taken["attention"].startswith("sdpa ")
    assert "stored" not in taken
    taken = _taken(_made(write_llama(tmp_path / "b", weights=False)))
    assert taken["sizes"] == "the configuration's (the folder has no weights)"


def test_weights_that_are_stored_otherwise_are_told(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a")
    write_safetensors(folder / "model.safetensors", llama_tensors(), "F32")
    assert _taken(_made(folder))["stored"] == "f32 (the headers of the weights)"


def test_weights_say_the_element_type_where_the_configuration_does_not(tmp_path: Path) -> None:
    made = _made(write_llama(tmp_path / "a", dtype=None))
    assert _taken(made)["dtype"] == "bf16 (the weights; the configuration does not say)"
    assert {str(value.dtype) for value in made.module.parameters()} == {"torch.bfloat16"}
    assert made.recipe.dtype is DType.BF16


@pytest.mark.parametrize(
    ("lost", "more", "said"),
    [
        ("", {}, []),
        ("model.norm.weight", {}, ["the folder lacks the tensor 'model.norm.weight' of the model that its configuration describes"]),
        ("", {"x.weight": (2,)}, ["the folder holds the tensor 'x.weight' that the model of its configuration does not have"]),
        ("", {"model.norm.weight": (17,)}, ["'model.norm.weight' is 17 in the folder and 16 by its configuration"]),
    ],
)
def test_weights_and_configuration_that_disagree(tmp_path: Path, lost: str, more: dict[str, tuple[int, ...]], said: list[str]) -> None:
    folder = write_llama(tmp_path / "a")
    tensors = {name: shape for name, shape in llama_tensors().items() if name != lost} | more
    write_safetensors(folder / "model.safetensors", tensors)
    sink = DiagnosticSink()
    _made(folder, sink)
    assert [one.message for one in sink] == said


def test_experts_that_are_stored_one_by_one_agree(tmp_path: Path) -> None:
    """transformers holds them as one tensor, and says how the names become one another."""
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    MixtralForCausalLM(MixtralConfig(**sizes, vocab_size=50, num_local_experts=4)).to(torch.bfloat16).save_pretrained(tmp_path / "a")
    sink = DiagnosticSink()
    _made(tmp_path / "a", sink)
    assert not [*sink]


def test_an_architecture_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a", model_type="lama", architectures=["LamaForCausalLM"])
    with pytest.raises(LoadError, match="does not know the architecture 'lama'") as caught:
        _made(folder)
    assert caught.value.hint.startswith("near: ")


@pytest.mark.parametrize("changed", [{"auto_map": None}, {"dtype": "os.system('x')"}])
def test_a_configuration_that_the_package_stumbles_over_is_the_folders_fault(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="transformers cannot read its configuration"):
        _made(write_llama(tmp_path / "a", **changed))


GENERATING = ["generate", "--prompt", "8", "--new", "2"]
MODULES, SECONDS, BYTES = "irscope.frontends.zoo.packages._MOST_MODULES", "irscope.budget.FOLDER_SECONDS", "irscope.budget.FOLDER_BYTES"


@pytest.mark.parametrize("command", [["run"], GENERATING])
@pytest.mark.parametrize(
    ("limit", "most", "said"), [(MODULES, 10, "than 10 modules"), (SECONDS, 0.0, "than 0 CPU s"), (BYTES, -1, " MB: ")]
)
def test_a_configuration_beyond_a_limit_is_one_line(
    command: list[str],
    limit: str,
    most: float,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("irscope.budget.BETWEEN_LOOKS", 0)
    monkeypatch.setattr(limit, most)
    folder = str(write_llama(tmp_path / "a"))
    assert main([*command, folder]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert said in line and "IRS106" in line and "{num_hidden_layers=32}" in line and "the file" not in line
    if command == ["run"] and limit is not MODULES:
        assert "--budget 60s,4GB" in line and main([*command, "--budget", "60s,4GB", folder]) == 0


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose code leaves a file behind when it runs."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    folder = write_llama(tmp_path / "own", model_type="mine", architectures=["MyForCausalLM"], auto_map=CODE)
    config = "from transformers import LlamaConfig\nclass MyConfig(LlamaConfig):\n    model_type = 'mine'\n"
    (folder / "configuration_my.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{config}")
    model = "class MyForCausalLM(LlamaForCausalLM):\n    config_class = MyConfig\n"
    (folder / "modeling_my.py").write_text(f"from transformers import LlamaForCausalLM\nfrom .configuration_my import MyConfig\n{model}")
    return folder


@pytest.mark.parametrize("words", [["run"], ["generate", "--prompt", "4", "--new", "2"], ["fit"], ["train-plan"], ["show"]])
def test_code_in_a_folder_is_not_run(words: list[str], planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, str(planted)]) == 3
    err = capsys.readouterr().err
    assert "IRS175" in err
    assert "configuration_my.py, modeling_my.py" in err
    assert "--trust-remote-code" in err
    assert not (tmp_path / "ran").exists()


def test_code_in_a_folder_runs_where_the_user_says_so(planted: Path, tmp_path: Path) -> None:
    made = _made(planted, trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    assert type(made.module).__name__ == "MyForCausalLM"


def test_code_that_the_package_has_itself_is_passed_over(planted: Path, tmp_path: Path) -> None:
    write_llama(planted, auto_map=CODE)
    (remark,) = (remark for remark in irscope.load(planted).diagnostics if remark.code == "IRS175")
    assert "is not run: this is LlamaForCausalLM" in remark.message and "--trust-remote-code" in remark.hint
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("trusted", [False, True])
def test_code_of_another_repository_is_never_run(trusted: bool, planted: Path) -> None:
    write_llama(planted, model_type="mine", auto_map={name: f"evil/one--{value}" for name, value in CODE.items()})
    with pytest.raises(LoadError, match=r"modeling_my\.py of evil/one|other repositories \(evil/one\)"):
        _made(planted, trust_remote_code=trusted)


def test_the_cache_is_that_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_llama(tmp_path / "a")
    (folder / "generation_config.json").write_text('{"cache_implementation": "static"}')
    for words, said in (([], "static cache (generation_config.json)"), (["--cache", "dynamic"], "dynamic cache,")):
        assert main(["generate", str(folder), "--prompt", "8", "--new", "4", *words]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_cards_cache_is_what_generating_holds(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a")
    made = irscope.card(str(folder))
    run = irscope.generate(str(folder), prompt=7, new=3)
    assert made.described is not None and made.described.cache.value is not None
    assert run.to_json()["cache_bytes"] == int(str(made.described.cache.value)) * 9
