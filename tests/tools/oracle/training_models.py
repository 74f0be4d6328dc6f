"""Models and settings for training steps: what is recorded on PyTorch's CUDA host code, and what is predicted without it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.tools.zoo.models import cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision


@dataclass(frozen=True)
class Trained:
    """A model with what it is trained on. `objective` makes the loss of what the model returns."""

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    objective: Callable[[Any], Tensor] = lambda out: out.loss


def _classifier(name: str, batch: int, size: int = 224, **options: Any) -> Callable[[], Trained]:
    def build() -> Trained:
        models = load_torchvision().models

        def objective(out: Any) -> Tensor:
            return nn.functional.cross_entropy(out, torch.zeros(batch, dtype=torch.long, device=out.device))

        return Trained(models.get_model(name, **options), (torch.zeros(batch, 3, size, size),), objective=objective)

    return build


def _transformers(name: str, config: str, batch: int, length: int, **options: Any) -> Callable[[], Trained]:
    def build() -> Trained:
        load_torchvision()  # transformers imports it
        import transformers

        module = getattr(transformers, name)(getattr(transformers, config)(**options))
        tokens = torch.zeros(batch, length, dtype=torch.long)
        kwargs = {"input_ids": tokens, "labels": torch.zeros(batch, length, dtype=torch.long)}
        return Trained(module, kwargs=kwargs)

    return build


class UNet(nn.Module):
    """Two convolutions a level, max pooling down, transposed convolutions up, concatenated skips."""

    def __init__(self, channels: tuple[int, ...] = (32, 64, 128, 256), classes: int = 21) -> None:
        super().__init__()
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        self.mix = nn.ModuleList()
        before = 3
        for width in channels:
            self.down.append(self._double(before, width))
            before = width
        for width in reversed(channels[:-1]):
            self.up.append(nn.ConvTranspose2d(before, width, 2, stride=2))
            self.mix.append(self._double(2 * width, width))
            before = width
        self.head = nn.Conv2d(before, classes, 1)
        self.pool = nn.MaxPool2d(2)

    @staticmethod
    def _double(before: int, width: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for inside in (before, width):
            layers += [nn.Conv2d(inside, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for index, block in enumerate(self.down):
            x = block(x)
            if index < len(self.down) - 1:
                skips.append(x)
                x = self.pool(x)
        for up, mix in zip(self.up, self.mix, strict=True):
            x = mix(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)  # type: ignore[no-any-return]


class Tagger(nn.Module):
    """A recurrent network over words."""

    def __init__(self, words: int = 8000, width: int = 512, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.recur = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recur(self.words(tokens))[0])  # type: ignore[no-any-return]


def _unet(batch: int = 4, size: int = 128) -> Trained:
    def objective(out: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out, torch.zeros(batch, size, size, dtype=torch.long, device=out.device))

    return Trained(UNet(), (torch.zeros(batch, 3, size, size),), objective=objective)


def _tagger(batch: int = 16, length: int = 64) -> Trained:
    def objective(out: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out.flatten(0, 1), torch.zeros(batch * length, dtype=torch.long, device=out.device))

    return Trained(Tagger(), (torch.zeros(batch, length, dtype=torch.long),), objective=objective)


def _mlp(batch: int = 512) -> Trained:
    widths = (784, 2048, 2048, 1024, 10)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.1)]

    def objective(out: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out, torch.zeros(batch, dtype=torch.long, device=out.device))

    return Trained(nn.Sequential(*layers[:-2]), (torch.zeros(batch, 784),), objective=objective)


def _encoder(batch: int = 8, length: int = 256) -> Trained:
    """PyTorch's own transformer with a mean squared error."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True, activation="gelu")
    net = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.LayerNorm(512), nn.Linear(512, 64))

    def objective(out: Tensor) -> Tensor:
        return nn.functional.mse_loss(out, torch.zeros(batch, length, 64, device=out.device))

    return Trained(net, (torch.zeros(batch, length, 512),), objective=objective)


_GPT2 = {"n_embd": 768, "n_layer": 6, "n_head": 12}
_LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "use_cache": False,
}

MODELS: dict[str, Callable[[], Trained]] = {
    "resnet50": _classifier("resnet50", 8),
    "resnet152": _classifier("resnet152", 4),
    "mobilenet_v3_large": _classifier("mobilenet_v3_large", 8),
    "convnext_tiny": _classifier("convnext_tiny", 8),
    "vit_b_16": _classifier("vit_b_16", 8),
    "bert": _transformers("BertForMaskedLM", "BertConfig", 8, 128, num_hidden_layers=6),
    "gpt2": _transformers("GPT2LMHeadModel", "GPT2Config", 4, 512, use_cache=False, **_GPT2),
    "llama": _transformers("LlamaForCausalLM", "LlamaConfig", 2, 512, **_LLAMA),
    "t5": _transformers(
        "T5ForConditionalGeneration", "T5Config", 4, 128, use_cache=False, num_layers=4, num_decoder_layers=4, decoder_start_token_id=0
    ),
    "unet": _unet,
    "lstm": _tagger,
    "mlp": _mlp,
}
"""The twelve of the figure."""

FURTHER: dict[str, Callable[[], Trained]] = {
    "vgg11": _classifier("vgg11", 4),
    "densenet121": _classifier("densenet121", 4),
    "efficientnet_b0": _classifier("efficientnet_b0", 8),
    "regnet_y_400mf": _classifier("regnet_y_400mf", 8),
    "swin_t": _classifier("swin_t", 4),
    "encoder": _encoder,
    "distilbert": _transformers("DistilBertForMaskedLM", "DistilBertConfig", 4, 200, n_layers=4),
    "qwen2": _transformers(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        2,
        300,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=4,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=20000,
        use_cache=False,
    ),
    "opt": _transformers("OPTForCausalLM", "OPTConfig", 2, 256, num_hidden_layers=4, use_cache=False),
}
"""Looked at only after the rules were written."""


@dataclass(frozen=True)
class Setting:
    """How a model is trained."""

    optimizer: str = "sgd"
    """sgd, momentum, adam, adamw."""
    fused: bool | None = None
    foreach: bool | None = None
    set_to_none: bool = True
    autocast: str = ""
    accumulate: int = 1

    @property
    def name(self) -> str:
        parts = [self.optimizer]
        parts += [word for word, value in (("fused", self.fused), ("foreach", self.foreach)) if value is not None and value]
        parts += [f"no-{word}" for word, value in (("fused", self.fused), ("foreach", self.foreach)) if value is False]
        parts += ["zeroed"] if not self.set_to_none else []
        parts += [self.autocast] if self.autocast else []
        parts += [f"x{self.accumulate}"] if self.accumulate > 1 else []
        return "-".join(parts)

    def build_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """The optimizer over these parameters."""
        options: dict[str, Any] = {"lr": 1e-3}
        for key in ("fused", "foreach"):
            if getattr(self, key) is not None:
                options[key] = getattr(self, key)
        if self.optimizer in ("sgd", "momentum"):
            return torch.optim.SGD(parameters, momentum=0.9 if self.optimizer == "momentum" else 0.0, **options)
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.optimizer](parameters, **options)


SETTINGS = (
    Setting("sgd"),
    Setting("adamw"),
    Setting("momentum"),
    Setting("adam"),
    Setting("adamw", fused=True),
    Setting("adamw", foreach=False),
    Setting("sgd", set_to_none=False),
    Setting("adamw", autocast="bf16"),
    Setting("momentum", accumulate=2),
)
"""The first two are those of the figure."""


@contextlib.contextmanager
def autocast(setting: Setting) -> Iterator[None]:
    """Mixed precision where the setting wants it."""
    if not setting.autocast:
        yield
        return
    with torch.autocast("cuda", dtype=torch.bfloat16):
        yield


def build(name: str) -> Trained:
    """A model with cheap weights, on the host."""
    with cheap_weights():
        return {**MODELS, **FURTHER}[name]()
