"""What a language model of transformers keeps of each token, under GGUF's keys: a card says it without running a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from irscope.frontends.files.folders import CONTEXTS
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.ir.program import GENERATES

if TYPE_CHECKING:
    from torch import nn

_PLAIN: Final = ("DynamicLayer", "DynamicSlidingWindowLayer")
"""Layers of a cache that hold keys and values of each token, or of the last tokens."""


def said_of_cache(module: nn.Module) -> dict[str, str]:
    """Return what the metadata of a program says of a model that generates; nothing for one that does not."""
    config: Any = getattr(module, "config", None)
    can_generate = getattr(module, "can_generate", None)
    if config is None or not callable(can_generate) or not can_generate():
        return {}
    kind, text = str(config.model_type), config.get_text_config(decoder=True)
    dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), None)
    stored = NAMED_DTYPES.get(str(dtype).removeprefix("torch."))
    found: dict[str, object] = {
        "context_length": next((size for key in CONTEXTS if isinstance(size := getattr(text, key, None), int)), None),
        "block_count": getattr(text, "num_hidden_layers", None),
        "embedding_length": getattr(text, "hidden_size", None),
        "attention.head_count": getattr(text, "num_attention_heads", None),
        "cache_type": None if stored is None else stored.text,
        **dict(_layers(config, text)),
    }
    said = {f"{kind}.{key}": one if isinstance(one, str) else json.dumps(one) for key, one in found.items() if one is not None}
    return {GENERATES: "yes", "general.architecture": kind, **said}


def _layers(config: Any, text: Any) -> Iterator[tuple[str, object]]:
    """What the cache that transformers makes for the configuration holds in each layer, or why that is no plain sum."""
    from transformers.cache_utils import DynamicCache

    if getattr(config, "is_encoder_decoder", False):
        yield "cache_unknown", "its decoder also keeps what its encoder read"
        return
    try:
        layers = DynamicCache(config=config).layers
    except Exception:  # whatever a configuration with code of its own raises
        layers = []
    heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_attention_heads", None)
    is_odd = getattr(text, "kv_lora_rank", None) or getattr(text, "multi_query", None) or not isinstance(heads, int)
    if not layers or is_odd or any(type(one).__name__ not in _PLAIN for one in layers):
        yield "cache_unknown", "not every layer keeps whole keys and values of each token"
        return
    width = getattr(text, "head_dim", None)
    yield "attention.head_count_kv", heads
    if isinstance(width, int):
        yield "attention.key_length", width
        yield "attention.value_length", width
    windows = [getattr(one, "sliding_window", None) or 0 for one in layers]
    if len({*windows} - {0}) == 1:
        yield "attention.sliding_window", max(windows) - 1  # the next token makes the window whole
        yield "attention.sliding_window_pattern", [bool(one) for one in windows]
