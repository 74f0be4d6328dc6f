"""Multiply-adds of well-known models, derived by hand from their configurations: no counter had a part in them."""

from __future__ import annotations

from collections.abc import Callable

_TOKENS = 128


def resnet50(size: int = 224, classes: int = 1000) -> int:
    """A stem of 7x7, four stages of bottlenecks (1x1, 3x3 with the stride, 1x1), a shortcut at the start of each, a head."""
    side = size // 2
    macs = side * side * 64 * 3 * 49
    side //= 2
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            after = side // 2 if block == 0 and stage > 0 else side
            macs += side * side * channels * width + after * after * width * (9 * width + 4 * width)
            if block == 0:
                macs += after * after * channels * 4 * width
            channels, side = 4 * width, after
    return macs + channels * classes


def vgg16(size: int = 224) -> int:
    """Thirteen convolutions of 3x3 in five groups with pooling between them, three linear layers."""
    macs, channels = 0, 3
    for width, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            macs += size * size * 9 * channels * width
            channels = width
        size //= 2
    return macs + 25088 * 4096 + 4096 * 4096 + 4096 * 1000


def encoder_layers(layers: int, tokens: int, width: int, inner: int) -> int:
    """Four projections, two products with every pair of tokens, and two layers with a wider one between."""
    return layers * (4 * tokens * width * width + 2 * tokens * tokens * width + 2 * tokens * width * inner)


def vit_b_16(size: int = 224, patch: int = 16, width: int = 768) -> int:
    patches = (size // patch) ** 2
    return patches * width * 3 * patch * patch + encoder_layers(12, patches + 1, width, 4 * width) + width * 1000


def gpt2(tokens: int = _TOKENS, width: int = 768, words: int = 50257) -> int:
    return encoder_layers(12, tokens, width, 4 * width) + tokens * width * words


def bert_base(tokens: int = _TOKENS, width: int = 768) -> int:
    """The pooler looks at the first token only."""
    return encoder_layers(12, tokens, width, 4 * width) + width * width


def _gated_decoder(layers: int, tokens: int, width: int, shared: int) -> int:
    """Attention in which `shared` features stand for keys and for values; feed-forward layers come on top."""
    return layers * (2 * tokens * width * width + 2 * tokens * width * shared + 2 * tokens * tokens * width)


def llama12(tokens: int = _TOKENS, width: int = 768, inner: int = 2048, words: int = 32000) -> int:
    return _gated_decoder(12, tokens, width, 4 * 64) + 12 * 3 * tokens * width * inner + tokens * width * words


def mixtral_small(tokens: int = _TOKENS, width: int = 512, inner: int = 1024, words: int = 32000, experts: int = 8, chosen: int = 2) -> int:
    mixture = 4 * tokens * (width * experts + chosen * 3 * width * inner)
    return _gated_decoder(4, tokens, width, 2 * 64) + mixture + tokens * width * words


def _seq2seq(layers: int, source: int, target: int, width: int, heads: int, inner: int) -> int:
    """An encoder, and a decoder that looks at itself and at the encoder's result; `heads` is the width of all heads."""
    encoder = 4 * source * width * heads + 2 * source * source * heads + 2 * source * width * inner
    itself = 4 * target * width * heads + 2 * target * target * heads
    across = 2 * target * width * heads + 2 * source * width * heads + 2 * target * source * heads
    return layers * (encoder + itself + across + 2 * target * width * inner)


def t5_small(tokens: int = _TOKENS) -> int:
    return _seq2seq(6, tokens, tokens, 512, 512, 2048) + tokens * 512 * 32128


def whisper_tiny(frames: int = 3000, target: int = 32, width: int = 384) -> int:
    """Two convolutions of width 3, the second with stride 2, come first."""
    source = frames // 2
    stem = frames * 80 * width * 3 + source * width * width * 3
    return stem + _seq2seq(4, source, target, width, width, 4 * width) + target * width * 51865


def lstm(steps: int = _TOKENS, width: int = 512, layers: int = 2) -> int:
    """Four gates, each from the input and from the state."""
    return layers * steps * 4 * width * (width + width)


BY_HAND: dict[str, Callable[[], int]] = {
    "resnet50_tv": resnet50, "resnet50_hf": resnet50, "vgg16_tv": vgg16, "vit_b_16_tv": vit_b_16, "vit_b16_hf": vit_b_16,
    "vit_b16_hf_eager": vit_b_16, "gpt2_hf": gpt2, "gpt2_hf_eager": gpt2, "bert_base_hf": bert_base, "llama12_hf": llama12,
    "mixtral_small_hf": mixtral_small, "t5_small_hf": t5_small, "whisper_tiny_hf": whisper_tiny, "lstm_2x512": lstm,
}  # fmt: skip
