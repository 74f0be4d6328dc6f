"""Models that PyTorch's exporters do not take, and what they say."""

from __future__ import annotations

_DETECTION = (
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2",
    "fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large",
)  # fmt: skip
_ON_DATA = "Could not guard on data-dependent expression"
"""The number of boxes, experts or tokens that an `if` in the model asks for is known only when it runs."""

REFUSED: dict[str, dict[str, str]] = {
    "concrete": {**dict.fromkeys(_DETECTION, _ON_DATA), "longformer": _ON_DATA, "vilt": _ON_DATA},
    "dynamic": {
        **dict.fromkeys(_DETECTION, "no batch axis"),
        "longformer": _ON_DATA,
        "vilt": _ON_DATA,
        # The parts of a concatenation along the batch are counted again, which fixes their number.
        "raft_large": "Constraints violated (batch)",
        "raft_small": "Constraints violated (batch)",
    },
    # The exporter's own decomposition views what it may not.
    "decomposed": {
        **dict.fromkeys(_DETECTION, _ON_DATA),
        "longformer": _ON_DATA,
        "vilt": _ON_DATA,
        "gpt2": "Cannot view a tensor",
    },
    # It calls an autograd function that is written in Python.
    "traced": {"bloom": "GeLUFunction"},
    "scripted": {},
}

NOT_FOLLOWED: frozenset[str] = frozenset(name for name in _DETECTION if "rcnn" in name)
"""Scripted models that irscope says it cannot follow: whether any box is left decides how many axes their boxes have."""
