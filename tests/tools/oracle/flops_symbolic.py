"""Models with open sizes whose matrix products have a formula that is derived by hand."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from irscope.ir.parser import parse_program
from irscope.passes.cost.flops import Flops
from irscope.passkit.manager import Manager
from irscope.session import open_model
from tests.tools.oracle.flops_figures import text_of
from tests.tools.zoo.export import cache_folder
from tests.tools.zoo.models import Flat, cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision


@dataclass(frozen=True)
class Symbolic:
    """A model, its axes that stay open, and FLOPs of its matrix products and convolutions."""

    make: Callable[[], nn.Module]
    args: tuple[tuple[int, ...], ...]
    axes: dict[int, tuple[str, int, int]]
    """Name, least and largest size by axis."""
    formula: str
    tokens: bool = False


def _language(config: str, model: str, settings: dict[str, Any]) -> nn.Module:
    load_torchvision()
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    with cheap_weights():
        made = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    return Flat(made, ("input_ids",), {"use_cache": False, "return_dict": True}).eval()


def _vision(name: str) -> nn.Module:
    with cheap_weights():
        made: nn.Module = load_torchvision().models.get_model(name, weights=None).eval()
    return made


_LLAMA = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
_TEXT_AXES = {0: ("B", 1, 64), 1: ("S", 2, 1024)}
_IMAGE_AXES = {0: ("B", 1, 1024)}

SYMBOLIC = {
    # 12 layers of 12 d^2 and the head for each token, 4 d for each pair of tokens and layer, d = 768.
    "gpt2": Symbolic(
        lambda: _language("GPT2Config", "GPT2LMHeadModel", {}), ((2, 16),), _TEXT_AXES, "36864*B*S^2 + 247064064*B*S", tokens=True
    ),
    # Per token 2 * (12 * (2 d^2 + 2 d 256 + 3 d 2048) + 32000 d); per pair of tokens 12 * 4 d.
    "llama": Symbolic(
        lambda: _language("LlamaConfig", "LlamaForCausalLM", _LLAMA), ((2, 16),), _TEXT_AXES, "36864*B*S^2 + 200146944*B*S", tokens=True
    ),
    "vit_b_16": Symbolic(lambda: _vision("vit_b_16"), ((2, 3, 224, 224),), _IMAGE_AXES, "35127656448*B"),
    "resnet50": Symbolic(lambda: _vision("resnet50"), ((2, 3, 224, 224),), _IMAGE_AXES, "8178368512*B"),
}


def exported(name: str) -> Path:
    """The model as a `.pt2` file, made now if it was not made before."""
    entry = SYMBOLIC[name]
    path = cache_folder() / "open" / f"{name}.pt2"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    args = tuple(torch.randint(2, 30000, shape) if entry.tokens else torch.rand(shape) for shape in entry.args)
    axes = tuple({axis: torch.export.Dim(given, min=low, max=high) for axis, (given, low, high) in entry.axes.items()} for _ in args)
    model = entry.make()
    with torch.no_grad():
        program = torch.export.export(model, args, dynamic_shapes=(axes,) if isinstance(model, Flat) else axes)
    torch.export.save(program, path)
    return path


def open_text(name: str) -> str:
    """The program as text, its open sizes under the names by hand."""
    model = open_model(exported(name))
    shape = getattr(model.graph.inputs[0].type, "shape", None)
    assert shape is not None
    text = text_of(model)
    for axis, (given, _, _) in SYMBOLIC[name].axes.items():
        text = re.sub(rf"\b{re.escape(str(shape[axis]))}\b", given, text)
    return text


def counted(name: str) -> str:
    """FLOPs of matrix products and convolutions by the open sizes, spelled as by hand."""
    total = Manager(parse_program(open_text(name))).get(Flops()).total.matmul
    return str(total).replace("**", "^")
