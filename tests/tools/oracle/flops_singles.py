"""Single operators with the multiply-adds they need by hand: 40 that have some, and those that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_BATCH, _LENGTH, _WIDTH, _HEADS = 2, 64, 64, 4


@dataclass(frozen=True)
class Single:
    """One operator: a module that uses it, its arguments, and its multiply-adds."""

    make: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    macs: int


class _With(nn.Module):
    """A module that calls a function of itself and its arguments; `parts` become attributes."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) and part.is_floating_point() else part)

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


def _of(function: Callable[..., Any], *args: tuple[int, ...], macs: int, **parts: Callable[[], Any]) -> Single:
    return Single(
        lambda: _With(function, **{name: make() for name, make in parts.items()}), lambda: tuple(torch.randn(shape) for shape in args), macs
    )


def _layer(make: Callable[[], nn.Module], *args: tuple[int, ...], macs: int = 0) -> Single:
    return Single(make, lambda: tuple(torch.randn(shape) for shape in args), macs)


def _random(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def _bytes(*shape: int) -> Tensor:
    return torch.randint(-9, 9, shape).to(torch.int8)


def _grouped(self: Any, x: Tensor) -> Tensor:
    return torch._grouped_mm(x, self.w, offs=torch.tensor([8, 16, 24, 32], dtype=torch.int32))


def _dynamic_quantized() -> nn.Module:
    made: nn.Module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 32)), {nn.Linear}, dtype=torch.qint8)
    return made


_SDPA = ((2, 4, 64, 16),) * 3
_IMAGE = (2, 8, 16, 16)

SINGLES: dict[str, Single] = {
    "linear 2D": _layer(lambda: nn.Linear(64, 32), (8, 64), macs=8 * 64 * 32),
    "linear 3D": _layer(lambda: nn.Linear(64, 32), (2, 16, 64), macs=32 * 64 * 32),
    "F.linear": _of(lambda s, x: F.linear(x, s.w), (8, 64), macs=8 * 64 * 32, w=_random(32, 64)),
    "x @ w (2D)": _of(lambda s, x: x @ s.w, (8, 64), macs=8 * 64 * 32, w=_random(64, 32)),
    "x @ w (4D batched)": _of(lambda s, x, y: x @ y, (2, 3, 8, 64), (2, 3, 64, 16), macs=6 * 8 * 64 * 16),
    "mv": _of(lambda s, x: s.w @ x, (64,), macs=32 * 64, w=_random(32, 64)),
    "dot": _of(lambda s, x, y: torch.dot(x, y), (64,), (64,), macs=64),
    "outer": _of(lambda s, x, y: torch.outer(x, y), (64,), (32,), macs=64 * 32),
    "einsum bhqd,bhkd->bhqk": _of(lambda s, x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), (2, 3, 8, 64), (2, 3, 9, 64), macs=6 * 8 * 9 * 64),
    "einsum 3 operands": _of(
        lambda s, x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), (8, 16), (16, 32), (32, 64), macs=8 * 16 * 32 + 8 * 32 * 64
    ),
    "addmm": _of(lambda s, x: torch.addmm(s.b, x, s.w), (8, 64), macs=8 * 64 * 32, w=_random(64, 32), b=_random(32)),
    "baddbmm": _of(lambda s, b, x, y: torch.baddbmm(b, x, y), (2, 8, 16), (2, 8, 64), (2, 64, 16), macs=2 * 8 * 64 * 16),
    "bilinear": _layer(lambda: nn.Bilinear(16, 16, 8), (4, 16), (4, 16), macs=4 * 8 * 16 * 16 + 4 * 8 * 16),
    "conv1d": _layer(lambda: nn.Conv1d(8, 16, 3), (2, 8, 32), macs=2 * 16 * 30 * 8 * 3),
    "conv2d": _layer(lambda: nn.Conv2d(8, 16, 3), _IMAGE, macs=2 * 16 * 14 * 14 * 8 * 9),
    "conv3d": _layer(lambda: nn.Conv3d(4, 8, 3), (1, 4, 8, 8, 8), macs=8 * 216 * 4 * 27),
    "conv2d grouped g=4": _layer(lambda: nn.Conv2d(8, 16, 3, groups=4), _IMAGE, macs=2 * 16 * 14 * 14 * 2 * 9),
    "conv2d depthwise": _layer(lambda: nn.Conv2d(8, 8, 3, groups=8), _IMAGE, macs=2 * 8 * 14 * 14 * 9),
    "conv2d padding=same dilated": _layer(lambda: nn.Conv2d(8, 16, 3, padding="same", dilation=2), _IMAGE, macs=2 * 16 * 16 * 16 * 8 * 9),
    "conv_transpose2d s2": _layer(lambda: nn.ConvTranspose2d(8, 16, 4, stride=2), _IMAGE, macs=2 * 8 * 16 * 16 * 16 * 16),
    "conv_transpose2d grouped": _layer(lambda: nn.ConvTranspose2d(8, 16, 4, stride=2, groups=4), _IMAGE, macs=2 * 8 * 16 * 16 * 4 * 16),
    "SDPA": _of(lambda s, q, k, v: F.scaled_dot_product_attention(q, k, v), *_SDPA, macs=2 * 2 * 4 * 64 * 64 * 16),
    "SDPA causal (full count)": _of(
        lambda s, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *_SDPA, macs=2 * 2 * 4 * 64 * 64 * 16
    ),
    "SDPA GQA": _of(
        lambda s, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (2, 4, 64, 16),
        (2, 2, 64, 16),
        (2, 2, 64, 16),
        macs=2 * 2 * 4 * 64 * 64 * 16,
    ),
    "MultiheadAttention need_weights=False": _of(
        lambda s, x: s.m(x, x, x, need_weights=False)[0],
        (_BATCH, _LENGTH, _WIDTH),
        macs=4 * _BATCH * _LENGTH * _WIDTH * _WIDTH + 2 * _BATCH * _LENGTH * _LENGTH * _WIDTH,
        m=lambda: nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=True),
    ),
    "TransformerEncoderLayer": _layer(
        lambda: nn.TransformerEncoderLayer(_WIDTH, _HEADS, 128, batch_first=True, dropout=0.0),
        (_BATCH, _LENGTH, _WIDTH),
        macs=_BATCH * _LENGTH * (4 * _WIDTH * _WIDTH + 2 * _LENGTH * _WIDTH + 2 * _WIDTH * 128),
    ),
    "LSTM": _layer(lambda: nn.LSTM(32, 64, batch_first=True), (2, 10, 32), macs=2 * 10 * 4 * 64 * (32 + 64)),
    "GRU": _layer(lambda: nn.GRU(32, 64, batch_first=True), (2, 10, 32), macs=2 * 10 * 3 * 64 * (32 + 64)),
    "LSTMCell": _layer(lambda: nn.LSTMCell(32, 64), (2, 32), macs=2 * 4 * 64 * (32 + 64)),
    "grouped_mm (MoE)": Single(
        lambda: _With(_grouped, w=torch.randn(4, 64, 32).bfloat16()), lambda: (torch.randn(32, 64).bfloat16(),), 32 * 64 * 32
    ),
    "_int_mm": Single(lambda: _With(lambda s, x: torch._int_mm(x, s.w), w=_bytes(64, 32)), lambda: (_bytes(32, 64),), 32 * 64 * 32),
    "dynamic-quantized Linear": Single(_dynamic_quantized, lambda: (torch.randn(8, 64),), 8 * 64 * 32),
    "cdist (matmul path)": _of(
        lambda s, x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"), (32, 16), (40, 16), macs=32 * 40 * 18
    ),
    "rfft n=1024 (5/2 n log2 n flop)": _of(lambda s, x: torch.fft.rfft(x).abs(), (1, 1024), macs=12800),
    "unfold+matmul": _of(lambda s, x: s.w @ F.unfold(x, 3), _IMAGE, macs=2 * 16 * 72 * 196, w=_random(16, 72)),
    "embedding_bag sum": Single(lambda: nn.EmbeddingBag(100, 16, mode="sum"), lambda: (torch.randint(0, 100, (4, 10)),), 0),
    "shared module called twice": _of(lambda s, x: s.m(s.m(x)), (8, 64), macs=2 * 8 * 64 * 64, m=lambda: nn.Linear(64, 64)),
    "weight-tied (F.linear w/ emb)": Single(
        lambda: _With(lambda s, i: F.linear(F.embedding(i, s.w), s.w), w=torch.randn(100, 16)),
        lambda: (torch.randint(0, 100, (4, 10)),),
        40 * 16 * 100,
    ),
    "matmul outside any module method": _of(lambda s, x: torch.matmul(x, x.mT), (4, 8, 16), macs=4 * 8 * 16 * 8),
    "linalg.solve 32 (2/3 n^3 flop)": Single(
        lambda: _With(lambda s, x: torch.linalg.solve(x, torch.eye(32))),
        lambda: (torch.randn(32, 32) + 32 * torch.eye(32),),
        32**3 // 3 + 32**3,
    ),
    "softmax": _layer(lambda: nn.Softmax(-1), (8, 64)),
    "gelu": _layer(lambda: nn.GELU(), (8, 64)),
    "batch_norm": _layer(lambda: nn.BatchNorm2d(8), _IMAGE),
    "layer_norm": _layer(lambda: nn.LayerNorm(64), (8, 64)),
    "avg_pool2d": _layer(lambda: nn.AvgPool2d(2), _IMAGE),
    "max_pool2d": _layer(lambda: nn.MaxPool2d(2), _IMAGE),
    "add": _of(lambda s, x, y: x + y, (8, 64), (8, 64), macs=0),
    "interpolate bilinear": _layer(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), _IMAGE),
}
