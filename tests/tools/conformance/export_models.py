"""Exports the models of tests.tools.conformance.real_exports: `python -m tests.tools.conformance.export_models folder name ...`.

It runs in a process of its own, as it hides torchvision: transformers imports it where it is installed, which fails when it
was built for another torch, and none of these models needs it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.modules["torchvision"] = None  # type: ignore[assignment]

import torch  # noqa: E402
import transformers  # noqa: E402

LAYERS = 2
HIDDEN = 32
HEADS = 4
VOCABULARY = 99
POSITIONS = 64


class Export(NamedTuple):
    """A model, the arguments it is traced with, and names for their sizes that may vary."""

    module: torch.nn.Module
    arguments: dict[str, torch.Tensor]
    dynamic: dict[str, dict[int, str]]


def _tokens() -> tuple[dict[str, torch.Tensor], dict[str, dict[int, str]]]:
    batch, seq = 2, 7
    arguments = {
        "input_ids": torch.randint(0, VOCABULARY, (batch, seq)),
        "attention_mask": torch.ones(batch, seq, dtype=torch.int64),
    }
    return arguments, {name: {0: "batch", 1: "seq"} for name in arguments}


def bert() -> Export:
    """An encoder."""
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=POSITIONS,
    )
    return Export(transformers.BertModel(config), *_tokens())


def llama() -> Export:
    """A decoder whose heads share keys and values in pairs."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=POSITIONS,
        use_cache=False,
    )
    return Export(transformers.LlamaForCausalLM(config), *_tokens())


def vit() -> Export:
    """An image transformer; only its batch may vary."""
    config = transformers.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
    )
    return Export(
        transformers.ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: "batch"}}
    )


def resnet() -> Export:
    """A convolutional network over images of any size."""
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")
    dynamic = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    return Export(transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 48)}, dynamic)


def gpt2() -> Export:
    """A decoder whose plain export splits into lists."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=1,
    )
    return Export(transformers.GPT2LMHeadModel(config), *_tokens())


class _Cached(torch.nn.Module):
    """A decoder that is given the keys and values of earlier tokens, and returns them with those of the new ones."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            num_hidden_layers=1,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS // 2,
            intermediate_size=2 * HIDDEN,
            max_position_embeddings=POSITIONS,
        )
        self.model = transformers.LlamaForCausalLM(config)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        cache = transformers.DynamicCache()
        cache.update(keys, values, 0)
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        layer = found.past_key_values.layers[0]
        return found.logits, layer.keys, layer.values


def cached() -> Export:
    """One step of a decoder with a cache: the mask is as long as the earlier tokens and the new ones together."""
    batch, seq, past = 2, 7, 5
    earlier = torch.randn(batch, HEADS // 2, past, HIDDEN // HEADS)
    arguments = {
        "input_ids": torch.randint(0, VOCABULARY, (batch, seq)),
        "attention_mask": torch.ones(batch, past + seq, dtype=torch.int64),
        "keys": earlier,
        "values": earlier.clone(),
    }
    names = {"input_ids": "seq", "attention_mask": "past + seq", "keys": "past", "values": "past"}
    dynamic = {name: {0: "batch", 2 if name in ("keys", "values") else 1: size} for name, size in names.items()}
    return Export(_Cached(), arguments, dynamic)


def wav2vec() -> Export:
    """Convolutions over a recording of any length, then an encoder."""
    config = transformers.Wav2Vec2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    )
    return Export(transformers.Wav2Vec2Model(config), {"input_values": torch.randn(2, 400)}, {"input_values": {0: "batch", 1: "samples"}})


def segformer() -> Export:
    """Attention over images of any size, with shape arithmetic that rounds."""
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    )
    dynamic = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    return Export(transformers.SegformerForSemanticSegmentation(config), {"pixel_values": torch.randn(2, 3, 32, 48)}, dynamic)


MODELS: dict[str, Callable[[], Export]] = {
    "bert": bert, "llama": llama, "vit": vit, "resnet": resnet, "gpt2": gpt2, "cached": cached, "wav2vec": wav2vec, "segformer": segformer,
}  # fmt: skip


def export(name: str, optimize: bool, path: Path) -> None:
    """Write one model."""
    torch.manual_seed(0)
    module, arguments, dynamic = MODELS[name]()
    program: Any = torch.onnx.export(
        module.eval(), (), kwargs=arguments, dynamo=True, dynamic_shapes=dynamic, optimize=optimize, verbose=False
    )
    program.save(path)


def main(folder: Path, names: list[str]) -> None:
    """Write each model twice: as the exporter leaves it when asked to optimise, and when not."""
    warnings.simplefilter("ignore")
    for name in names:
        export(name, True, folder / f"{name}-optimised.onnx")
        export(name, False, folder / f"{name}-plain.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
