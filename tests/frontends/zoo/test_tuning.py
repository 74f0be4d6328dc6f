"""`irscope train-plan --lora`: matrices beside frozen layers, against what peft's own take, and weights in few bits below them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import IrscopeError
from irscope.frontends.base import LoadOptions
from irscope.passkit.settings import Settings
from irscope.tools.capture import lora_of, open_training
from irscope.training import StepSetup, Tuning

pytestmark = pytest.mark.torch
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
TRUTH = [json.loads(line) for line in (Path(__file__).parents[2] / "data" / "generate" / "lora.jsonl").read_text().splitlines()]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8000,
    "max_position_embeddings": 512,
}
SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.Linear(256, 16)

    def forward(self, x):
        return self.head(self.down(torch.relu(self.up(x))))

def build():
    return Net(), (torch.zeros(8, 256),)
"""


def _folder(path: Path, dtype: str) -> str:
    (path / "config.json").write_text(json.dumps(LLAMA | {"dtype": dtype}))
    return str(path)


def _step(model: str, made: StepSetup, **bind: int) -> Any:
    return open_training(model, LoadOptions(bind=bind), made, Settings(device="h200"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x=1", "no setting 'x'"),
        ("r=0", "no whole number"),
        ("r=1.5", "no whole number"),
        ("r=nan", "no whole number"),
        ("dropout=2", "no number"),
        ("r=", "expected a value"),
    ],
)
def test_wrong_settings_are_one_line(text: str, said: str) -> None:
    with pytest.raises(IrscopeError, match=said):
        lora_of(text)


def test_settings_are_read() -> None:
    lora = lora_of("r=16,targets=q_proj+v_proj,dropout=0.1")
    assert (lora.rank, lora.alpha, lora.targets, lora.dropout) == (16, 16.0, ("q_proj", "v_proj"), 0.1)
    assert lora_of("targets=all-linear").targets == ()


def test_only_the_matrices_have_gradients_and_states(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    model = f"{tmp_path / 'train.py'}:build"
    step = _step(model, StepSetup(optimizer="adamw", tuning=Tuning(lora="r=4,targets=up+down")))
    trace = step.program.training
    trained = 4 * (2 * (256 + 1024))
    states = [piece for piece in trace.pieces if piece.category == "optimizer state"]
    # Two moments in f32, and a count of steps each.
    assert sum(piece.size for piece in states if piece.size > 4) == 2 * 4 * trained
    with pytest.raises(IrscopeError, match="is called as"):
        _step(model, StepSetup(tuning=Tuning(lora="targets=elsewhere")))
    with pytest.raises(IrscopeError, match="cannot be trained"):
        _step(model, StepSetup(tuning=Tuning(store_as="nf4")))
    with pytest.raises(IrscopeError, match="no gradient checkpointing"):
        _step(model, StepSetup(tuning=Tuning(recomputes=True)))


@needs_transformers
@pytest.mark.parametrize("row", TRUTH, ids=lambda row: row["job"])
def test_steps_are_those_of_peft(row: dict[str, Any], tmp_path: Path) -> None:
    options = row["options"]
    tuning = Tuning(lora=options[1], recomputes="--gradient-checkpointing" in options)
    optimizer = options[options.index("--optimizer") + 1] if "--optimizer" in options else "adamw"
    made = StepSetup(optimizer=optimizer, autocast="bf16" if "--autocast" in options else "", tuning=tuning)
    step = _step(_folder(tmp_path, row["dtype"]), made, batch=4, seq=256)
    report = step.run("training").reports[0].to_json()
    table = next(one for one in report["tables"] if one["title"] == "peak of each step")
    lines = [{key: line[place] for place, key in ((1, "requested"), (2, "allocated"), (4, "reserved"))} for line in table["rows"]]
    assert [lines[0], lines[-1], lines[-1]] == row["peaks"]


@needs_transformers
def test_frozen_weights_in_few_bits_take_fewer_bytes(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "bfloat16")
    plain, few = (
        _step(folder, StepSetup(optimizer="adamw", tuning=Tuning(lora="r=8", store_as=store_as)), batch=2, seq=64)
        for store_as in ("", "nf4")
    )
    sizes = [sum(piece.size for piece in one.program.training.pieces if piece.category == "parameter") for one in (plain, few)]
    linear = 4 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1376)
    # Half a byte of code, a scale in f32 for every 64 of them, and a table of 16 values for each layer, instead of two bytes.
    assert sizes[0] - sizes[1] == linear * 2 - linear // 2 - linear // 64 * 4 - 4 * 7 * 16 * 4
    assert any(assumption.what == "kernels" for assumption in few.program.assumed)
