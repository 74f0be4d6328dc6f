"""Models whose training steps are planned in `checkpointing.py`, each with its inputs; a model returns its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Encoder(nn.Module):
    """Layers of torch's transformer encoder with learned positions; dropout takes attention through the unfused form."""

    def __init__(self, layers: int, width: int, heads: int, words: int, inner: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, heads, inner, 0.1, batch_first=True) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        hidden = self.words(tokens) + self.places
        for layer in self.layers:
            hidden = layer(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), wanted.flatten())


class Residual(nn.Module):
    """Sixteen residual blocks of two convolutions behind a stem with pooling."""

    def __init__(self, blocks: int = 16, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.ModuleList([_block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 10)

    def forward(self, pictures: Tensor, wanted: Tensor) -> Tensor:
        hidden = self.stem(pictures)
        for block in self.blocks:
            hidden = functional.relu(hidden + block(hidden))
        return functional.cross_entropy(self.head(hidden.mean((2, 3))), wanted)


def _block(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )


class Gpt(nn.Module):
    """A decoder with fused causal attention and tied weights, such as GPT-2's smallest."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, length: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([_Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            hidden = layer(hidden)
        scores = functional.linear(self.norm(hidden), self.words.weight)
        return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.mixed(self.before(hidden)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.joined(found.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.narrow(functional.gelu(self.wide(self.between(hidden)), approximate="tanh"))


class Classifier(nn.Module):
    """A network with the loss of its scores."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pictures: Tensor, wanted: Tensor) -> Tensor:
        return functional.cross_entropy(self.network(pictures), wanted)


Made = tuple[nn.Module, tuple[Tensor, ...]]


def _words(batch: int, length: int, words: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, words, (batch, length)), torch.randint(0, words, (batch, length))


def _residual() -> Made:
    return Residual(), (torch.randn(16, 3, 128, 128), torch.randint(0, 10, (16,)))


def _small() -> Made:
    return Encoder(2, 128, 4, 1000, 512, 64), _words(8, 64, 1000)


def _large() -> Made:
    return Encoder(12, 768, 12, 32000, 3072, 512), _words(8, 512, 32000)


def _gpt() -> Made:
    return Gpt(), _words(8, 1024, 50257)


def _resnet() -> Made:
    from tests.tools.zoo.torchvision_shim import load_torchvision

    network = load_torchvision().models.resnet152(weights=None)
    return Classifier(network), (torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,)))


MODELS: dict[str, Callable[[], Made]] = {"CNN-16": _residual, "TF-2L": _small, "TF-12L": _large, "ResNet-152": _resnet, "GPT-2": _gpt}
"""Under fake tensors: nothing is allocated."""
