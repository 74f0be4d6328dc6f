"""Models of the transformers package: a kind of model with its default configuration, a class, or a configuration in a local file."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import nn

from irscope.errors import LoadError, UsageError
from irscope.frontends.named.recipe import DEFAULT_SIZES, Recipe, Wanted
from irscope.frontends.named.torchvision_ops import load_torchvision
from irscope.ir.dtypes import DType

_IMAGE_SIZE: Final = 224
_SAMPLES: Final = 16_000
_FRAMES: Final = 512
_VOCABULARY: Final = 1000
_BOX: Final = 4
_BOXES_BELOW: Final = 100
# Which of a kind's classes is meant: the first table that knows the kind.
_TABLES: Final = (
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def load_transformers() -> Any:
    """The package, told not to use the network."""
    # It imports torchvision wherever it finds it.
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    if importlib.util.find_spec("torchvision") is not None:
        load_torchvision()
    try:
        package = importlib.import_module("transformers")
    except ImportError as error:
        raise LoadError(f"transformers cannot be imported: {error}", code="IRS195", hint="pip install transformers") from error
    package.logging.set_verbosity_error()
    return package


def transformers_names() -> list[str]:
    """Kinds of models that have a class and a configuration."""
    load_transformers()
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return sorted({kind for table in _TABLES for kind in getattr(auto, table, {})})


def class_names() -> list[str]:
    """Classes of models that the package has."""
    package = load_transformers()
    return sorted(name for name in dir(package) if "For" in name or name.endswith(("Model", "LMHeadModel")))


def transformers_recipe(model: str, options: dict[str, Any]) -> Recipe:
    """A kind of model, a class such as BertModel, or a local config.json."""
    package = load_transformers()
    cache = bool(options.pop("use_cache", False))
    attention = options.pop("attn_implementation", None)
    config, cls = _config_and_class(package, model, options)
    for key in ("use_pretrained_backbone",):
        if hasattr(config, key):
            setattr(config, key, False)
    if attention is not None:
        config._attn_implementation = attention

    def make() -> nn.Module:
        module: nn.Module = cls(config)
        return module.eval()

    parameters = inspect.signature(cls.forward).parameters
    for one in (config, getattr(config, "text_config", None), getattr(config, "decoder", None)):
        if one is not None and hasattr(one, "use_cache"):
            one.use_cache = cache
    texts = (config, getattr(config, "text_config", None))
    found = [_first(one, "max_position_embeddings", "n_positions", "max_target_positions") for one in texts]
    longest = min((one for one in found if isinstance(one, int) and one > 0), default=DEFAULT_SIZES["seq"])
    sizes = {"seq": min(DEFAULT_SIZES["seq"], longest)}
    return Recipe(make, lambda module: list(_inputs(module, config, parameters)), sizes)


def _config_and_class(package: Any, model: str, options: dict[str, Any]) -> tuple[Any, Any]:
    path = Path(model)
    if path.exists():
        return _from_file(package, path, options)
    if model in transformers_names():
        return _configured(package.CONFIG_MAPPING[model], options, model), _class_of(package, model)
    cls: Any = getattr(package, model, None)
    config_class = getattr(cls, "config_class", None)
    if inspect.isclass(cls) and config_class is not None and issubclass(cls, nn.Module):
        return _configured(config_class, options, model), cls
    raise KeyError(model)


def _configured(config_class: Any, options: dict[str, Any], model: str) -> Any:
    """The default configuration with some settings changed; settings it does not have are refused."""
    try:
        plain = config_class()
        unknown = [key for key in options if not hasattr(plain, key)]
        if not unknown:
            return config_class(**options)
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"its configuration refuses that: {error}", code="IRS672", where=f"transformers:{model}") from error
    settings = sorted(key for key in plain.to_dict() if not key.startswith("_"))
    near = difflib.get_close_matches(unknown[0], settings, n=4, cutoff=0.5) or settings[:12]
    message = f"{config_class.__name__} has no setting {unknown[0]!r}"
    raise UsageError(message, code="IRS672", where=f"transformers:{model}", hint=f"near: {', '.join(near)}")


def _from_file(package: Any, path: Path, options: dict[str, Any]) -> tuple[Any, Any]:
    try:
        config = package.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError) as error:
        message = f"it holds no configuration: {' '.join(str(error).split())[:200]}"
        raise LoadError(message, code="IRS197", where=str(path), hint="name a folder with a config.json") from error
    for name in config.architectures or ():
        if hasattr(package, name):
            return config, getattr(package, name)
    return config, _class_of(package, config.model_type)


def _class_of(package: Any, kind: str) -> Any:
    """The class that a kind of model usually means."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for table in _TABLES:
        found = getattr(auto, table, {}).get(kind)
        names = found if isinstance(found, tuple | list) else (found,)
        for name in names:
            if name is not None and hasattr(package, name):
                return getattr(package, name)
    raise UsageError(f"{kind} has no class for a model", code="IRS197", where=f"transformers:{kind}", hint="name a class instead")


def _inputs(module: Any, config: Any, parameters: Any) -> Iterator[Wanted]:
    """What the model is called with, by the names that it uses for its arguments."""
    main = str(getattr(module, "main_input_name", "") or next(name for name in parameters if name != "self"))
    names = [main]
    has_text = getattr(config, "text_config", None) is not None
    if main == "input_ids" and has_text and getattr(config, "vision_config", None) is not None and not module.can_generate():
        names.append("pixel_values")
    if "bbox" in parameters:
        names.append("bbox")
    if main == "input_ids" and "attention_mask" in parameters:
        names.append("attention_mask")
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        names.append("decoder_input_ids")
    reads_text = main == "inputs" and type(module).__name__.endswith("LM")
    for name in names:
        yield replace(_input("input_ids", config), name=name) if reads_text else _input(name, config)


def _input(name: str, config: Any) -> Wanted:
    text = getattr(config, "text_config", None) or config
    if name.endswith("input_ids"):
        vocabulary = _first(config, "vocab_size") or _first(text, "vocab_size") or _VOCABULARY
        return Wanted(name, ("batch", "seq"), DType.I64, "ids", int(vocabulary), keyword=True)
    if name.endswith("attention_mask"):
        return Wanted(name, ("batch", "seq"), DType.I64, "ones", keyword=True)
    if name == "bbox":
        return Wanted(name, ("batch", "seq", _BOX), DType.I64, "ones", _BOXES_BELOW, keyword=True)
    shape = _SHAPES.get(name)
    if shape is None:
        raise UsageError(
            f"its main input is {name!r}, for which irscope knows no shape",
            code="IRS198",
            hint=f"irscope.capture(module, ...) from Python, or a class whose input is one of input_ids, {', '.join(_SHAPES)}",
        )
    return Wanted(name, ("batch", *shape(config)), keyword=True)


def _image(config: Any) -> tuple[int, ...]:
    vision = getattr(config, "vision_config", None) or config
    size = _first(vision, "image_size", "input_size") or _IMAGE_SIZE
    if isinstance(size, dict):
        size = [size.get("height", _IMAGE_SIZE), size.get("width", _IMAGE_SIZE)]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = _first(vision, "num_channels", "in_channels") or 3
    frames = _first(vision, "num_frames")
    return (*((frames,) if isinstance(frames, int) else ()), int(channels), int(height), int(width))


def _features(config: Any) -> tuple[int, ...]:
    per_frame = _first(config, "input_feat_per_channel")
    if per_frame is not None:
        return (_FRAMES, int(per_frame))
    bins = _first(config, "num_mel_bins", "feature_size") or 80
    longest = _first(config, "max_source_positions")
    return (int(bins), 2 * int(longest)) if longest is not None else (_FRAMES, int(bins))


def _sound(config: Any) -> tuple[int, ...]:
    bins, length = _first(config, "num_mel_bins"), _first(config, "max_length")
    return (int(length), int(bins)) if bins is not None and length is not None else (_SAMPLES,)


def _vectors(config: Any) -> tuple[int | str, ...]:
    return ("seq", int(_first(config, "d_model", "hidden_size") or _VOCABULARY))


_SHAPES: Final = {"pixel_values": _image, "input_features": _features, "input_values": _sound, "inputs": _vectors}


def _first(config: Any, *names: str) -> Any:
    """The first of these settings that the configuration has."""
    return next((found for name in names if (found := getattr(config, name, None)) is not None), None)
