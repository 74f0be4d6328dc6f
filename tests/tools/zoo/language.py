"""Models of the transformers package, one small configuration for each of many families, with random weights."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from tests.tools.zoo.configurations import FAMILIES, Family
from tests.tools.zoo.models import Entry, Flat, cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision


def entries() -> list[Entry]:
    """One entry for each family."""
    if importlib.util.find_spec("transformers") is None:
        return []
    return [_entry(name, family) for name, family in FAMILIES.items()]


def _entry(name: str, family: Family) -> Entry:
    return Entry(
        name=name,
        package="transformers",
        recipe=repr(family),
        make=lambda: _make(family),
        inputs=lambda batch: tuple(_input(name, shape, batch, family) for name, shape in family.inputs.items()),
        batch=2,
        dynamic=family.dynamic,
    )


def _make(family: Family) -> nn.Module:
    if importlib.util.find_spec("torchvision") is not None:
        # transformers imports it wherever it finds it.
        load_torchvision()
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    config = getattr(transformers, family.config)(**_configured(transformers, family.settings))
    with cheap_weights():
        model = getattr(transformers, family.model)(config).eval()
    options: dict[str, Any] = {"return_dict": True, **family.options}
    return Flat(model, tuple(family.inputs), options).eval()


def _configured(transformers: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in which `{"class": ...}` stands for another configuration."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and "class" in value:
            inner = {name: part for name, part in value.items() if name != "class"}
            made[key] = getattr(transformers, value["class"])(**_configured(transformers, inner))
        else:
            made[key] = value
    return made


def _input(name: str, shape: tuple[int, ...], batch: int, family: Family) -> Tensor:
    torch.manual_seed(len(name))
    if name == "bbox":
        return torch.randint(0, 50, (batch, *shape)).sort(-1).values
    if name.endswith("input_ids"):
        return torch.randint(2, family.vocabulary, (batch, *shape))
    if name.endswith("attention_mask") or name == "pixel_mask":
        return torch.ones(batch, *shape, dtype=torch.int64)
    return torch.rand(batch, *shape)
