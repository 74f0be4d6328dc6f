"""torchvision's models beside a torch without CUDA, able to run: irscope only declares the operators that torchvision was not built for."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from irscope.frontends.zoo import packages

_kept: list[torch.library.Library] = []
"""Libraries live as long as what they define."""


def load_torchvision() -> ModuleType:
    """The torchvision package; raises ImportError where it is not installed."""
    package = packages.load_torchvision()
    if packages.declared() and not _kept:
        library = torch.library.Library("torchvision", "IMPL", "CPU")
        library.impl("nms", _nms)
        library.impl("roi_align", _roi_align)
        _kept.append(library)
    return package


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
    made = x.new_empty((rois.size(0), x.size(1), height, width))
    rows, columns = x.shape[-2:]
    for index, (image, left, top, right, bottom) in enumerate(rois.tolist()):
        xs = (torch.arange(width) + 0.5) / width * (right - left) * scale + left * scale
        ys = (torch.arange(height) + 0.5) / height * (bottom - top) * scale + top * scale
        grid = torch.stack(torch.meshgrid(2 * xs / columns - 1, 2 * ys / rows - 1, indexing="xy"), -1)
        sampled = torch.nn.functional.grid_sample(x[int(image)][None], grid[None].to(x.dtype), align_corners=False)
        made[index] = sampled[0]
    return made
