"""Recurrent networks by cuDNN: their weights in one buffer, and what a forward and a backward allocate (ATen/native/cudnn/RNN.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from irscope.frontends.eager.routes import RNN_MODES
from irscope.frontends.simulation.kernels import Kernel, Kernels

_aten = torch.ops.aten
_LIBRARY: Final = "cuDNN's workspace, reserve and dropout state"


def recurrent_kernels(kernels: Kernels) -> dict[str, Kernel]:
    """By name of the operator."""
    machine = kernels.machine
    seeded: list[bool] = []

    def flatten(weights: Sequence[torch.Tensor], *geometry: Any) -> torch.Tensor:
        buffer = _flat(weights)
        at = 0
        for one in weights:
            one.set_(buffer.untyped_storage(), at, one.shape, _rows(one.shape))
            at += one.numel()
        return buffer

    def forward(
        x: torch.Tensor,
        weights: Sequence[torch.Tensor],
        per_layer: int,
        buffer: Any,
        hx: torch.Tensor,
        cx: Any,
        mode: int,
        units: int,
        projected: int,
        layers: int,
        batch_first: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_sizes: Any,
        state: Any,
    ) -> tuple[torch.Tensor, ...]:
        if train and dropout and not seeded:
            seeded.append(True)
            machine.free(machine.take(8, "temporary", "random state"))
            kernels.tell_unknown(_LIBRARY)
        given = x.contiguous()
        hidden, cell = hx.contiguous(), None if cx is None else cx.contiguous()
        output = given.new_empty((*given.shape[:-1], (projected or units) * (2 if bidirectional else 1)))
        hy = hidden.new_empty(hidden.shape)
        cy = hidden.new_empty((0,)) if cell is None else cell.new_empty(cell.shape)
        kept = given.new_empty((0,), dtype=torch.uint8)
        if train:
            kernels.tell_unknown(_LIBRARY)
        whole = _flat(weights) if buffer is None else buffer
        return output, hy, cy, kept, whole

    def backward(
        x: torch.Tensor,
        weights: Sequence[torch.Tensor],
        per_layer: int,
        buffer: torch.Tensor,
        hx: torch.Tensor,
        cx: Any,
        output: torch.Tensor,
        d_output: Any,
        d_hy: Any,
        d_cy: Any,
        mode: int,
        units: int,
        projected: int,
        layers: int,
        batch_first: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_sizes: Any,
        state: Any,
        reserve: torch.Tensor,
        mask: Sequence[bool],
    ) -> tuple[Any, ...]:
        if not train:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        gradient = torch.zeros_like(output) if d_output is None else d_output
        of_h = torch.zeros_like(hx) if d_hy is None else d_hy
        of_c = None if cx is None else torch.zeros_like(cx) if d_cy is None else d_cy
        found = _of_inputs(x, hx, cx, gradient, of_h, of_c)
        made: list[Any] = [None] * len(weights)
        if mask[3]:
            given = x.contiguous()
            flat, at = buffer.new_empty(buffer.shape), 0
            for place, one in enumerate(weights):
                made[place] = flat.as_strided(one.shape, _rows(one.shape), at)
                at += one.numel()
            del given
        del of_c, of_h  # in the reverse of the order in which they came
        return (*found, made)

    return {
        "aten::_cudnn_rnn_flatten_weight": flatten,
        "aten::_cudnn_rnn": forward,
        "aten::_cudnn_rnn_backward": backward,
    }


def _of_inputs(
    x: torch.Tensor, hx: torch.Tensor, cx: Any, gradient: torch.Tensor, of_h: torch.Tensor, of_c: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of the input and of the first states; contiguous copies live as long as this."""
    given, gradient = x.contiguous(), gradient.contiguous()
    hidden, cell = hx.contiguous(), None if cx is None else cx.contiguous()
    of_h, of_c = of_h.contiguous(), None if of_c is None else of_c.contiguous()
    dx, dhx = given.new_empty(given.shape), hidden.new_empty(hidden.shape)
    dcx = hidden.new_empty((0,)) if cell is None else cell.new_empty(cell.shape)
    return dx, dhx, dcx


def _rows(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def _flat(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """A buffer for all weights."""
    return weights[0].new_empty((sum(one.numel() for one in weights),))


# -- torch.lstm and its like ------------------------------------------------------------------------------------------------


def recurrent_composites() -> dict[str, Kernel]:
    """`lstm.input` and its like by cuDNN, by name of the operator."""
    return {f"{name}.{kind}": _by_cudnn(name, packed=kind == "data") for name in RNN_MODES for kind in ("input", "data")}


def _by_cudnn(name: str, *, packed: bool) -> Kernel:
    def kernel(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        sizes: list[int] = []
        first = False
        if packed:
            sizes, hidden, weights, _, layers, dropout, train, bidirectional = [int(one) for one in rest[0]], *rest[1:]
        else:
            hidden, weights, _, layers, dropout, train, bidirectional, first = rest
        h, c = hidden if name == "lstm" else (hidden, None)
        x = x.transpose(0, 1) if first else x
        weights = list(weights)
        units = h.shape[-1] if c is None else c.shape[-1]
        projected = h.shape[-1] if h.shape[-1] != units else 0
        whole = sum(one.numel() for one in weights)
        buffer = None
        if torch.is_autocast_enabled("cuda"):
            x, h, c, weights, buffer = _cast(torch.get_autocast_dtype("cuda"), x, h, c, weights)
        elif len({one.untyped_storage()._cdata for one in weights}) == 1 and weights[0].untyped_storage().nbytes() >= whole * x.itemsize:
            buffer = weights[0].detach().as_strided((whole,), (1,), 0)
        per_layer = len(weights) // (layers * (2 if bidirectional else 1))
        made = _aten._cudnn_rnn(
            x,
            weights,
            per_layer,
            buffer,
            h,
            c,
            RNN_MODES[name],
            units,
            projected,
            layers,
            False,
            dropout,
            train,
            bidirectional,
            sizes,
            None,
        )
        output = made[0].transpose(0, 1) if first else made[0]
        return (output, *made[1:3]) if name == "lstm" else (output, made[1])

    return kernel


def _cast(
    dtype: torch.dtype, x: Any, h: Any, c: Any, weights: list[torch.Tensor]
) -> tuple[Any, Any, Any, list[torch.Tensor], torch.Tensor]:
    """What autocast does to a recurrent network: its weights in the lower precision, in one buffer again (AutocastRNN.cpp)."""
    buffer = torch.empty(sum(one.numel() for one in weights), dtype=dtype, device=x.device)
    made, at = [], 0
    for one in weights:
        made.append(buffer[at : at + one.numel()].view(one.shape).copy_(one))
        at += one.numel()
    return x.to(dtype), h.to(dtype), None if c is None else c.to(dtype), made, buffer.detach()
