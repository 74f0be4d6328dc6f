"""All models of torchvision, with inputs that are small where the model allows it."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from tests.tools.zoo.models import Entry, Flat, cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision

DETECTION = ("fasterrcnn", "fcos", "keypointrcnn", "maskrcnn", "retinanet", "ssd")
_VIDEO = {"mvit": (3, 16, 224, 224), "swin3d": (3, 8, 112, 112), "s3d": (3, 16, 224, 224)}
_CLIPS = ("mc3_18", "r2plus1d_18", "r3d_18")
# Parts that only training needs, and starts that take long.
_OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False},
    "densenet": {},
}


def entries() -> list[Entry]:
    """One entry for each name that torchvision lists."""
    if importlib.util.find_spec("torchvision") is None:
        return []
    return [_entry(name) for name in load_torchvision().models.list_models()]


def _entry(name: str) -> Entry:
    detection = name.startswith(DETECTION)
    shapes = _shapes(name)
    return Entry(
        name=name,
        package="torchvision",
        recipe=f"{shapes}",
        make=lambda: _make(name, detection),
        inputs=lambda batch: _inputs(shapes, batch, detection),
        dynamic=not detection,
    )


def _shapes(name: str) -> list[tuple[int, ...]]:
    if name.startswith("raft"):
        return [(3, 128, 128), (3, 128, 128)]
    if name in _CLIPS:
        return [(3, 8, 64, 64)]
    for prefix, shape in _VIDEO.items():
        if name.startswith(prefix):
            return [shape]
    if name.startswith(("deeplabv3", "fcn", "lraspp")):
        return [(3, 96, 96)]
    return [(3, 299, 299) if "inception" in name else (3, 224, 224)]


def _make(name: str, detection: bool) -> nn.Module:
    models = load_torchvision().models
    options = dict(next((found for key, found in _OPTIONS.items() if name.endswith(key)), {}))
    if detection or name.startswith(("deeplabv3", "fcn", "lraspp")):
        options["weights_backbone"] = None
    with cheap_weights():
        model = models.get_model(name, weights=None, **options).eval()
    return Flat(model).eval() if detection or name.startswith(("deeplabv3", "fcn", "lraspp", "raft")) else model


def _inputs(shapes: list[tuple[int, ...]], batch: int, detection: bool) -> tuple[Any, ...]:
    torch.manual_seed(1)
    if detection:
        return ([torch.rand(shape) for shape in shapes],)
    return tuple(torch.rand(batch, *shape) for shape in shapes)
