"""Models made of torch alone: what the quick tests look at, and what works without any other package."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.tools.zoo.models import Entry


class Unet(nn.Module):
    """Down and up again, with skips, transposed convolutions and resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(8, 16, 3, padding="same"), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.leaky_relu(self.inner(x), inplace=True)
        y = self.up(self.down(skip))
        y = F.interpolate(y, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([skip, y], 1))


class Translator(nn.Module):
    """nn.Transformer with causal masks and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.places = nn.Parameter(torch.zeros(12, 16))
        self.body = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        length = target.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        left = self.words(source) + self.places[: source.shape[1]]
        right = self.words(target) + self.places[:length]
        return self.head(self.body(left, right, tgt_mask=mask, tgt_is_causal=True))


class Experts(nn.Module):
    """Every token goes to its two best experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(12, 4, bias=False)
        self.up = nn.Parameter(torch.zeros(4, 12, 24))
        self.down = nn.Parameter(torch.zeros(4, 24, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        routed = F.one_hot(chosen, 4).to(x.dtype) * weights.unsqueeze(-1)
        hidden = F.gelu(torch.einsum("btd,edh->bteh", x, self.up))
        outputs = torch.einsum("bteh,ehd->bted", hidden, self.down)
        return torch.einsum("btke,bted->btd", routed, outputs), chosen


class Speech(nn.Module):
    """A spectrogram, convolutions over time, a recurrent network in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.conv = nn.Conv1d(17, 12, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm1d(12)
        self.rnn = nn.GRU(12, 10, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = torch.stft(x, 32, hop_length=8, window=self.window, return_complex=True).abs().clamp(min=1e-5).log()
        y = F.relu(self.norm(self.conv(spectrum))).transpose(1, 2)
        y, state = self.rnn(y)
        return F.log_softmax(self.out(y), -1), state


class Points(nn.Module):
    """Distances in random order, nearest neighbours, gathering, statistics."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distances = torch.cdist(x, x[:, torch.randperm(x.shape[1])])
        near = distances.topk(3, dim=-1, largest=False).indices
        picked = torch.gather(x.unsqueeze(1).expand(-1, x.shape[1], -1, -1), 2, near.unsqueeze(-1).expand(-1, -1, -1, x.shape[2]))
        centred = picked - picked.mean(2, keepdim=True)
        spread = torch.matmul(centred.transpose(-1, -2), centred) / 3
        values, order = torch.sort(spread.diagonal(dim1=-2, dim2=-1), descending=True)
        return values, order, torch.where(distances > 1, distances.new_zeros(()), distances).sum(dim=(1, 2))


class Waves(nn.Module):
    """Fourier transforms of every kind, forth and back."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        half = torch.fft.rfft(x, n=24, dim=-1)
        back = torch.fft.irfft(half, dim=-1)
        plane = torch.fft.ifft2(torch.fft.fft2(x, norm="ortho"))
        whole = torch.fft.irfftn(torch.fft.rfftn(x, dim=(-2, -1)), s=(5, 16), dim=(-2, -1))
        real = torch.fft.hfft(torch.fft.ihfft(x), n=12)
        frames = torch.stft(x.flatten(1), 16, hop_length=4, window=torch.hann_window(16), center=False, return_complex=True)
        return half.abs(), back, plane.real, whole, real, torch.istft(frames, 16, hop_length=4, window=torch.ones(16), center=False)


def _images(batch: int) -> tuple[Tensor, ...]:
    return (torch.rand(batch, 3, 30, 22),)


def _sentences(batch: int) -> tuple[Tensor, ...]:
    return torch.randint(0, 50, (batch, 9)), torch.randint(0, 50, (batch, 7))


def _entry(name: str, make: type[nn.Module], inputs: Callable[[int], tuple[Tensor, ...]]) -> Entry:
    return Entry(
        name=name,
        package="torch",
        recipe=inspect.getsource(make) + repr([item.shape for item in inputs(3)]),
        make=lambda: make().eval(),
        inputs=inputs,
        batch=3,
    )


def entries() -> list[Entry]:
    """All of them."""
    return [
        _entry("unet", Unet, _images),
        _entry("translator", Translator, _sentences),
        _entry("experts", Experts, lambda batch: (torch.rand(batch, 6, 12),)),
        _entry("speech", Speech, lambda batch: (torch.rand(batch, 96),)),
        _entry("waves", Waves, lambda batch: (torch.rand(batch, 4, 20),)),
        _entry("points", Points, lambda batch: (torch.rand(batch, 11, 3),)),
    ]
