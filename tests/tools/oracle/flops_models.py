"""The 21 models whose matrix products and convolutions are known by hand or by PyTorch's own counter, and how to make them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.tools.zoo.models import Entry, Flat, cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision

TOKENS = 128
_TEXT: dict[str, tuple[int, ...]] = {"input_ids": (TOKENS,)}
_IMAGE: dict[str, tuple[int, ...]] = {"pixel_values": (3, 224, 224)}
_NO_CACHE = {"use_cache": False}


@dataclass(frozen=True)
class _Recipe:
    """A model of transformers: configuration, class, inputs without the batch, and options of its call."""

    config: str
    model: str
    settings: dict[str, Any]
    inputs: dict[str, tuple[int, ...]]
    options: dict[str, Any]


_EAGER = {"attn_implementation": "eager"}
_TRANSFORMERS: dict[str, _Recipe] = {
    "vit_b16_hf": _Recipe("ViTConfig", "ViTForImageClassification", {"num_labels": 1000}, _IMAGE, {}),
    "vit_b16_hf_eager": _Recipe("ViTConfig", "ViTForImageClassification", {"num_labels": 1000, **_EAGER}, _IMAGE, {}),
    "gpt2_hf": _Recipe("GPT2Config", "GPT2LMHeadModel", {}, _TEXT, _NO_CACHE),
    "gpt2_hf_eager": _Recipe("GPT2Config", "GPT2LMHeadModel", dict(_EAGER), _TEXT, _NO_CACHE),
    "bert_base_hf": _Recipe("BertConfig", "BertModel", {}, _TEXT, {}),
    "t5_small_hf": _Recipe(
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "decoder_start_token_id": 0},
        {"input_ids": (TOKENS,), "decoder_input_ids": (TOKENS,)},
        _NO_CACHE,
    ),
    "llama12_hf": _Recipe(
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "vocab_size": 32000,
            "max_position_embeddings": 2048,
        },
        _TEXT,
        _NO_CACHE,
    ),
    "mixtral_small_hf": _Recipe(
        "MixtralConfig",
        "MixtralForCausalLM",
        {
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "max_position_embeddings": 2048,
        },
        _TEXT,
        _NO_CACHE,
    ),
    "mamba_small_hf": _Recipe(
        "MambaConfig", "MambaForCausalLM", {"hidden_size": 512, "num_hidden_layers": 4, "vocab_size": 32000}, _TEXT, _NO_CACHE
    ),
    "whisper_tiny_hf": _Recipe(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {
            "d_model": 384,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
            "encoder_ffn_dim": 1536,
            "decoder_ffn_dim": 1536,
            "vocab_size": 51865,
        },
        {"input_features": (80, 3000), "decoder_input_ids": (32,)},
        _NO_CACHE,
    ),
    "resnet50_hf": _Recipe("ResNetConfig", "ResNetForImageClassification", {"num_labels": 1000}, _IMAGE, {}),
    "detr_r50_hf": _Recipe(
        "DetrConfig",
        "DetrForObjectDetection",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {"class": "ResNetConfig", "out_features": ["stage4"]},
        },
        {"pixel_values": (3, 800, 800)},
        {},
    ),
}
_TORCHVISION = (
    "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "swin_t", "vit_b_16", "fcn_resnet50",
)  # fmt: skip


def entries() -> dict[str, Entry]:
    """The 21 models by name; those of packages that are not installed are left out."""
    made = [*map(_vision, _TORCHVISION), *(_language(name, recipe) for name, recipe in _TRANSFORMERS.items()), _lstm()]
    return {entry.name: entry for entry in made if entry.installed}


def _vision(name: str) -> Entry:
    return Entry(
        name=f"{name}_tv", package="torchvision", recipe="224", make=lambda: _make_vision(name), inputs=lambda batch: _draw(_IMAGE, batch)
    )


def _make_vision(name: str) -> nn.Module:
    options = {"weights_backbone": None} if name.startswith("fcn") else {}
    with cheap_weights():
        model: nn.Module = load_torchvision().models.get_model(name, weights=None, **options).eval()
    return Flat(model).eval() if options else model


def _language(name: str, recipe: _Recipe) -> Entry:
    return Entry(
        name=name,
        package="transformers",
        recipe=repr(recipe),
        make=lambda: _make_language(recipe),
        inputs=lambda batch: _draw(recipe.inputs, batch),
    )


def _make_language(recipe: _Recipe) -> nn.Module:
    load_torchvision()
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    settings = dict(recipe.settings)
    backbone = settings.get("backbone_config")
    if backbone:
        settings["backbone_config"] = getattr(transformers, backbone["class"])(out_features=backbone["out_features"])
    config = getattr(transformers, recipe.config)(**settings)
    with cheap_weights():
        model = getattr(transformers, recipe.model)(config).eval()
    return Flat(model, tuple(recipe.inputs), {"return_dict": True, **recipe.options}).eval()


def _lstm() -> Entry:
    def make() -> nn.Module:
        return nn.LSTM(512, 512, num_layers=2, batch_first=True).eval()

    return Entry(name="lstm_2x512", package="torch", recipe=f"{TOKENS}", make=make, inputs=lambda batch: (torch.rand(batch, TOKENS, 512),))


def _draw(inputs: dict[str, tuple[int, ...]], batch: int) -> tuple[Any, ...]:
    torch.manual_seed(1)
    return tuple(
        torch.randint(2, 30000, (batch, *shape)) if name.endswith("ids") else torch.rand(batch, *shape) for name, shape in inputs.items()
    )
