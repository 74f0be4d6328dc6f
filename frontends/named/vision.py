"""Models of torchvision and timm: classifiers, detectors, segmentation, video, optical flow."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from torch import nn

from irscope.errors import LoadError
from irscope.frontends.named.recipe import Recipe, Wanted
from irscope.frontends.named.torchvision_ops import load_torchvision
from irscope.ir.dtypes import DType

_USUAL_SIZE: Final = 224
_SEGMENTATION_SIZE: Final = 520
_DETECTION_SIZE: Final = (800, 800)
_FLOW_SIZE: Final = (520, 960)
_FRAMES: Final = 16
_COLOURS: Final = 3


def torchvision_names() -> list[str]:
    """What torchvision lists."""
    return list(load_torchvision().models.list_models())


def torchvision_recipe(model: str, options: dict[str, Any], dtype: DType | None) -> Recipe:
    """A model of torchvision with random weights."""
    models = load_torchvision().models
    builder = models.get_model_builder(model)
    if "weights_backbone" in inspect.signature(builder).parameters:
        options.setdefault("weights_backbone", None)
    if "init_weights" in inspect.signature(builder).parameters or model in ("googlenet", "inception_v3"):
        options.setdefault("init_weights", False)
    variants = list(models.get_model_weights(model))
    preset = type(variants[0].transforms()).__name__ if variants else "ImageClassification"
    default = getattr(models.get_model_weights(model), "DEFAULT", None)
    transforms = default.transforms() if default is not None else None

    def inputs(module: nn.Module) -> Sequence[Wanted]:
        if preset == "ObjectDetection":
            return [Wanted("images", (_COLOURS, *_DETECTION_SIZE), as_list=True, is_usual=True)]
        if preset == "OpticalFlow":
            return [Wanted(name, ("batch", _COLOURS, *_FLOW_SIZE), is_usual=True) for name in ("image1", "image2")]
        if preset == "SemanticSegmentation":
            return [Wanted(first_input(module), ("batch", _COLOURS, _SEGMENTATION_SIZE, _SEGMENTATION_SIZE), is_usual=True)]
        size = getattr(transforms, "crop_size", [_USUAL_SIZE])
        height, width = (size * 2)[:2]
        own = getattr(module, "image_size", None)
        if isinstance(own, int):
            height = width = own
        if preset == "VideoClassification":
            frames = max(_FRAMES, default.meta.get("min_temporal_size", 0)) if default is not None else _FRAMES
            return [Wanted(first_input(module), ("batch", _COLOURS, frames, height, width), is_usual=True)]
        return [Wanted(first_input(module), ("batch", _COLOURS, height, width), is_usual=not hasattr(transforms, "crop_size"))]

    return Recipe(lambda: models.get_model(model, weights=None, **options).eval(), inputs, dtype=dtype)


def first_input(module: nn.Module) -> str:
    """What a module calls its first argument."""
    return next(iter(inspect.signature(module.forward).parameters), "x")


def timm_names() -> list[str]:
    """What timm lists."""
    return list(_timm().list_models())


def timm_recipe(model: str, options: dict[str, Any], dtype: DType | None) -> Recipe:
    """A model of timm with random weights."""
    timm = _timm()

    def inputs(module: nn.Module) -> Sequence[Wanted]:
        settings = getattr(module, "pretrained_cfg", None) or {}
        said = options.get("input_size") or settings.get("input_size")
        size = tuple(said or (_COLOURS, _USUAL_SIZE, _USUAL_SIZE))
        own = options.get("img_size")
        if own is not None:
            size = (size[0], *(own if isinstance(own, list | tuple) else (own, own)))
        if "in_chans" in options:
            size = (options["in_chans"], *size[1:])
        return [Wanted(first_input(module), ("batch", *size), is_usual=not said and own is None)]

    return Recipe(lambda: timm.create_model(model, pretrained=False, **options).eval(), inputs, dtype=dtype)


def _timm() -> Any:
    import importlib

    load_torchvision()
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise LoadError(f"timm cannot be imported: {error}", code="IRS195", hint="pip install timm") from error
