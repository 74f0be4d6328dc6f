"""Adapters on the modules of an installed transformers, beside peft's own where that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.load import make_named
from tests.frontends.hub import write_adapter, write_llama


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("copied", [None, ["lm_head"]])
def test_a_module_with_an_adapter_is_that_of_peft(tmp_path: Path, weights: bool, copied: list[str] | None) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    base = write_llama(tmp_path / "base", weights=False, tie_word_embeddings=False)
    if weights and copied:
        pytest.skip("the file has no copy of the head")
    folder = write_adapter(tmp_path / "adapter", "../base", weights=weights, modules_to_save=copied)
    mine = make_named(str(folder), LoadOptions(), hollow=False).module
    plain = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(str(base))).to(torch.bfloat16)
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], modules_to_save=copied)
    theirs = peft.get_peft_model(plain, config).base_model.model
    assert {name: (one.shape, one.dtype, one.requires_grad) for name, one in mine.named_parameters()} == {
        name: (one.shape, one.dtype, one.requires_grad) for name, one in theirs.named_parameters()
    }
    mine.load_state_dict(theirs.state_dict())
    ids = torch.arange(6)[None]
    assert torch.equal(mine(input_ids=ids).logits, theirs.eval()(input_ids=ids).logits)


def test_an_adapter_is_put_on_its_base(tmp_path: Path) -> None:
    write_llama(tmp_path / "base", weights=False)
    made = make_named(str(write_adapter(tmp_path / "adapter", "../base")), LoadOptions())
    names = [name for name, one in made.module.named_parameters() if one.requires_grad]
    assert len(names) == 8
    assert all(".lora_" in name for name in names)
    assert ("base", "adapter_config.json") in {(assumption.what, assumption.why) for assumption in made.assumed}


def test_an_adapter_of_another_model_is_told(tmp_path: Path) -> None:
    write_llama(tmp_path / "base", weights=False, hidden_size=32)
    with pytest.raises(LoadError, match="the layer is 32x32") as caught:
        make_named(str(write_adapter(tmp_path / "adapter", "../base")), LoadOptions())
    assert caught.value.code == "IRS168"
