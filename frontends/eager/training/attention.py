"""Attention by the kernels that the device would run, also where PyTorch's own functions call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from irscope.devices import Target
from irscope.frontends.eager.routes import attention


@contextmanager
def fused_attention(target: Target) -> Iterator[None]:
    """Within it `scaled_dot_product_attention` runs as on the target.

    Functions of torch such as `multi_head_attention_forward` look it up by name and run with all modes for functions off.
    """
    original = functional.scaled_dot_product_attention

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.device.type != "cuda":
            found: Tensor = original(
                query, key, value, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return found
        q, k, v, mask = _autocast(query, key, value, attn_mask)
        return attention(target, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _autocast(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Any, Any, Any, Tensor | None]:
    """Autocast turns operands of attention into its own type, as it does for matrix products."""
    if not torch.is_autocast_enabled("cuda"):
        return query, key, value, mask
    wanted = torch.get_autocast_dtype("cuda")
    q, k, v = (one.to(wanted) if one.is_floating_point() else one for one in (query, key, value))
    return q, k, v, mask.to(wanted) if mask is not None and mask.is_floating_point() else mask
