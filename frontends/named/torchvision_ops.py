"""torchvision's model definitions beside a torch for which its compiled operators were not built.

The wheel on PyPI needs CUDA's libraries. Its Python needs only that the operators exist: they are declared, with the shapes of their
results, and never run.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

import torch
from torch import Tensor

_OPERATORS: Final = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
}
_kept: list[torch.library.Library] = []
"""A library lives as long as what it declares."""


def load_torchvision() -> ModuleType:
    """The torchvision package; ImportError where it is not installed."""
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    try:
        return importlib.import_module("torchvision")
    except (RuntimeError, AttributeError):
        # What an operator's absence breaks; the package is imported anew below.
        for name in [name for name in sys.modules if name == "torchvision" or name.startswith("torchvision.")]:
            del sys.modules[name]
    return _with_declared_operators()


def declared() -> bool:
    """Whether operators had to be declared, so that they cannot run."""
    return bool(_kept)


def _with_declared_operators() -> ModuleType:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + schema)
    _kept.append(library)
    package = importlib.import_module("torchvision")
    torch.library.register_fake("torchvision::roi_align", _roi_align, lib=library, allow_override=True)
    for name in ("boxes", "roi_align"):
        module = sys.modules.get(f"torchvision.ops.{name}")
        if module is not None:
            module._assert_has_ops = _nothing  # type: ignore[attr-defined]  # torchvision's own
            module._has_ops = _yes  # type: ignore[attr-defined]  # torchvision's own
    return package


# TorchScript compiles these two, which it could not do with lambdas.
def _nothing() -> None:
    pass


def _yes() -> bool:
    return True


def _roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling: int, aligned: bool) -> Tensor:
    return x.new_empty((rois.size(0), x.size(1), height, width))
