"""Adapters: what their folders say, the weights that they add, and what is said where they do not fit their base."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.folders import read_adapter
from irscope.frontends.load import load_program
from irscope.frontends.zoo.names import file_in
from irscope.ir.program import Program
from irscope.passes.weights.params import count_parameters
from tests.frontends.hub import llama_tensors, write_adapter, write_llama, write_safetensors

BASE = sum(rows * (shape[0] if shape else 1) for rows, *shape in llama_tensors().values())
ADDED = 2 * (2 * 16 + 16 * 2 + 2 * 16 + 8 * 2)


def _loaded(folder: Path, base: str = "") -> Program:
    return load_program(file_in(folder), LoadOptions(base=base), DiagnosticSink())


def _named(program: Program, what: str) -> str:
    return next(assumption.value for assumption in program.assumed if assumption.what == what)


@pytest.mark.parametrize("weights", [True, False])
def test_weights_of_an_adapter_count_beside_those_of_its_base(tmp_path: Path, weights: bool) -> None:
    write_llama(tmp_path / "base")
    program = _loaded(write_adapter(tmp_path / "adapter", "../base", weights=weights))
    totals = count_parameters(program)
    assert totals.count == BASE + ADDED
    assert totals.bytes == 2 * BASE + 4 * ADDED
    assert _named(program, "base") == os.path.normpath(tmp_path / "base")


def test_what_an_adapter_is(tmp_path: Path) -> None:
    write_llama(tmp_path / "base")
    settings: dict[str, Any] = {"rank_pattern": {"v_proj": 3}, "alpha_pattern": {"v_proj": 6}, "modules_to_save": ["norm"]}
    folder = write_adapter(tmp_path / "adapter", str(tmp_path / "base"), weights=False, **settings)
    adapter = read_adapter(folder)
    assert adapter is not None
    assert (adapter.base, adapter.base_from) == (str(tmp_path / "base"), "adapter_config.json")
    assert (adapter.rank, adapter.targets) == (2, ("q_proj", "v_proj"))
    assert adapter.rank_of("model.layers.0.self_attn.v_proj") == 3
    assert adapter.scaling_of("model.layers.0.self_attn.v_proj") == 2
    assert adapter.scaling_of("model.layers.0.self_attn.q_proj") == 2
    assert adapter.is_beside("model.layers.1.self_attn.q_proj")
    assert not adapter.is_beside("model.layers.1.self_attn.k_proj")
    assert not adapter.is_beside("model.layers.1.self_attn.my_q_proj")


def test_stored_matrices_say_where_they_are(tmp_path: Path) -> None:
    """Also where adapter_config.json has a regular expression, which a stranger wrote and nobody runs."""
    write_llama(tmp_path / "base")
    folder = write_adapter(tmp_path / "adapter", "../base", target_modules="(a+)+$")
    adapter = read_adapter(folder)
    assert adapter is not None
    assert sorted(adapter.pairs) == sorted(f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(2) for name in "qv")
    assert not adapter.further
    assert count_parameters(_loaded(folder)).count == BASE + ADDED


def test_a_folder_may_hold_both(tmp_path: Path) -> None:
    folder = write_adapter(write_llama(tmp_path / "both"), "meta/of-a-hub")
    assert count_parameters(_loaded(folder)).count == BASE + ADDED


def test_the_user_names_another_base(tmp_path: Path) -> None:
    write_llama(tmp_path / "base")
    folder = write_adapter(tmp_path / "adapter", "meta/of-a-hub")
    program = _loaded(folder, str(tmp_path / "base"))
    assert count_parameters(program).count == BASE + ADDED
    with pytest.raises(LoadError, match="'meta/of-a-hub', which is not a folder here") as caught:
        _loaded(folder)
    assert caught.value.code == "IRS168"
    assert caught.value.hint.startswith("--base")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"peft_type": "IA3"}, "its peft_type is 'IA3'"),
        ({"peft_type": ["LORA"]}, "its peft_type is"),
        ({"r": 0}, "its rank r is 0"),
        ({"r": 1 << 60}, "its rank r is"),
        ({"r": "8"}, "its rank r is 8"),
        ({"base_model_name_or_path": None}, "does not say of which model"),
        ({"base_model_name_or_path": "a\0b"}, "does not say of which model"),
    ],
)
def test_settings_that_are_none(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    folder = write_adapter(tmp_path / "adapter", "../base", **changed)
    with pytest.raises(LoadError, match=said) as caught:
        read_adapter(folder)
    assert caught.value.code == "IRS168"


def test_an_adapter_of_another_model_is_told(tmp_path: Path) -> None:
    write_llama(tmp_path / "base")
    beside = "base_model.model.model.layers.0.self_attn.q_proj"
    folder = write_adapter(tmp_path / "adapter", "../base")
    for pair, said in (
        ({f"{beside}.lora_A.weight": (2, 16)}, "do not belong together"),
        ({f"{beside}.lora_A.weight": (2, 16), f"{beside}.lora_B.weight": (16, 3)}, "do not belong together"),
        ({f"{beside}.lora_A.weight": (2, 99), f"{beside}.lora_B.weight": (16, 2)}, "the base's weight is 16x16"),
        ({"x.lora_A.weight": (2, 16), "x.lora_B.weight": (16, 2)}, "is beside 'x', which its base"),
    ):
        write_safetensors(folder / "adapter_model.safetensors", pair, "F32")
        with pytest.raises(LoadError, match=said) as caught:
            _loaded(folder)
        assert caught.value.code == "IRS168"


def test_without_weights_names_have_to_be_a_list(tmp_path: Path) -> None:
    write_llama(tmp_path / "base")
    for targets, said in (("all-linear", "is not a list of names"), ([], "is not a list of names"), (["nothing"], "is called as")):
        folder = write_adapter(tmp_path / "adapter", "../base", weights=False, target_modules=targets)
        with pytest.raises(LoadError, match=said):
            _loaded(folder)
