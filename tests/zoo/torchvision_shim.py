"""Makes torchvision's model definitions usable beside a torch without CUDA.

The compiled operators of torchvision's usual wheel need CUDA's libraries; its Python needs only that the operators exist.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch
from torch import Tensor

_OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
}
_kept: list[torch.library.Library] = []
"""Libraries live as long as what they define."""


def load_torchvision() -> ModuleType:
    """The torchvision package; raises ImportError where it is not installed."""
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    if not torch.cuda.is_available():
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name, schema in _OPERATORS.items():
            library.define(name + schema)
        _kept.append(library)
    import torchvision

    if _kept and not torchvision.extension._has_ops():
        _implement(_kept[0])
    return torchvision  # type: ignore[no-any-return]  # untyped where torchvision is not installed


def _implement(library: torch.library.Library) -> None:
    """Give the operators a meaning, and tell torchvision's modules that they are there."""
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    torch.library.register_fake("torchvision::roi_align", _roi_align_shape, lib=library)
    for name in ("boxes", "roi_align"):
        module = sys.modules[f"torchvision.ops.{name}"]
        module._assert_has_ops = _nothing  # type: ignore[attr-defined]  # torchvision's own
        module._has_ops = _yes  # type: ignore[attr-defined]  # torchvision's own


# TorchScript compiles these two, which it could not do with lambdas.
def _nothing() -> None:
    pass


def _yes() -> bool:
    return True


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Boxes in order of their scores, without those that overlap a better one."""
    left, top, right, bottom = boxes.unbind(1)
    area = (right - left) * (bottom - top)
    alive = torch.ones(len(boxes), dtype=torch.bool)
    kept: list[int] = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if alive[index]:
            kept.append(index)
            width = (torch.minimum(right[index], right) - torch.maximum(left[index], left)).clamp(min=0)
            height = (torch.minimum(bottom[index], bottom) - torch.maximum(top[index], top)).clamp(min=0)
            shared = width * height
            alive &= ~(shared / (area[index] + area - shared) > iou_threshold)
    return torch.tensor(kept, dtype=torch.long)


def _roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling: int, aligned: bool) -> Tensor:
    """One bilinear sample in the middle of each bin: enough where only shapes are compared."""
    made = _roi_align_shape(x, rois, scale, height, width, sampling, aligned)
    rows, columns = x.shape[-2:]
    for index, (image, left, top, right, bottom) in enumerate(rois.tolist()):
        xs = (torch.arange(width) + 0.5) / width * (right - left) * scale + left * scale
        ys = (torch.arange(height) + 0.5) / height * (bottom - top) * scale + top * scale
        grid = torch.stack(torch.meshgrid(2 * xs / columns - 1, 2 * ys / rows - 1, indexing="xy"), -1)
        sampled = torch.nn.functional.grid_sample(x[int(image)][None], grid[None].to(x.dtype), align_corners=False)
        made[index] = sampled[0]
    return made


def _roi_align_shape(x: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling: int, aligned: bool) -> Tensor:
    return x.new_empty((rois.size(0), x.size(1), height, width))
