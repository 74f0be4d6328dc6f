"""Folders as hubs have them, written by hand: no package is needed to make them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4}


def write_safetensors(path: Path, tensors: Mapping[str, Sequence[int]], dtype: str = "BF16", *, cut: int = 0) -> Path:
    """A file with tensors of one element type, whose last bytes may be cut off."""
    header, end = {}, 0
    for name, shape in tensors.items():
        size = prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end - cut))
    return path


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "dtype": "bfloat16",
    "tie_word_embeddings": True,
}


def llama_tensors() -> dict[str, tuple[int, ...]]:
    """What the weights of such a model are called, and their shapes."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (50, 16), "model.norm.weight": (16,)}
    for layer in range(2):
        rows = {"self_attn.q_proj": 16, "self_attn.k_proj": 8, "self_attn.v_proj": 8, "self_attn.o_proj": 16}
        for name, outputs in rows.items():
            found[f"model.layers.{layer}.{name}.weight"] = (outputs, 16)
        found |= {f"model.layers.{layer}.mlp.{name}.weight": (24, 16) for name in ("gate_proj", "up_proj")}
        found[f"model.layers.{layer}.mlp.down_proj.weight"] = (16, 24)
        found |= {f"model.layers.{layer}.{name}.weight": (16,) for name in ("input_layernorm", "post_attention_layernorm")}
    return found


def write_llama(folder: Path, *, weights: bool = True, **changed: Any) -> Path:
    """A small Llama."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **changed}))
    if weights:
        write_safetensors(folder / "model.safetensors", llama_tensors())
    return folder


def write_adapter(folder: Path, base: str, *, rank: int = 2, weights: bool = True, **changed: Any) -> Path:
    """An adapter beside the queries and values of such a model."""
    folder.mkdir(exist_ok=True)
    settings = {"peft_type": "LORA", "base_model_name_or_path": base, "r": rank, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps({**settings, **changed}))
    if weights:
        pairs: dict[str, tuple[int, ...]] = {}
        for layer in range(2):
            for name, outputs in (("q_proj", 16), ("v_proj", 8)):
                beside = f"base_model.model.model.layers.{layer}.self_attn.{name}"
                pairs[f"{beside}.lora_A.weight"], pairs[f"{beside}.lora_B.weight"] = (rank, 16), (outputs, rank)
        write_safetensors(folder / "adapter_model.safetensors", pairs, "F32")
    return folder
