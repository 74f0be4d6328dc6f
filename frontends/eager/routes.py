"""Operators that dispatch to other kernels on a CUDA device than on the CPU: attention and recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from irscope.devices import Target
from irscope.frontends.eager.record import dtype_of
from irscope.frontends.eager.values import recorded_size
from irscope.ir.types import TensorType, tensor
from irscope.ops.registry import find_op
from irscope.ops.scratch.recorder import Scratch
from irscope.ops.scratch.sdpa import Attention, Kernel, choose, refused
from irscope.ops.spec import OpCall

Route: TypeAlias = Callable[[Target, Sequence[Any], Mapping[str, Any]], Any]
_MASK_ALIGNMENT = 8
_FLASH_ALIGNMENT = 8
RNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


_core: Any = torch._C
_ENABLED: dict[Kernel, Callable[[], bool]] = {
    "flash": _core._get_flash_sdp_enabled,
    "efficient": _core._get_mem_efficient_sdp_enabled,
    "cudnn": _core._get_cudnn_sdp_enabled,
    "math": _core._get_math_sdp_enabled,
}


# -- attention ---------------------------------------------------------------------------------------------------------


def attention(
    target: Target,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`scaled_dot_product_attention` by the kernel that the device would choose."""
    kernel = kernel_of(target, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if kernel == "math":
        if attn_mask is not None:
            attn_mask = _as_numbers(attn_mask, query.dtype)  # before the choice of a kernel, in attention.cpp
        made = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )
        return made[0]  # type: ignore[no-any-return]
    if kernel == "efficient":
        return _efficient_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _flash_attention(query, key, value, dropout_p, is_causal, scale)


def kernel_of(
    target: Target,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> Kernel:
    """PyTorch's choice on the target among the kernels that the program leaves enabled (`sdpa_kernel`). Raises its error where none is."""
    spec = find_op("nn.sdpa")
    assert spec is not None
    types = [_type_of_tensor(query), _type_of_tensor(key), _type_of_tensor(value), _type_of_tensor(mask) if mask is not None else None]
    made = Attention(_type_of_tensor(query), _type_of_tensor(key), _type_of_tensor(value), types[3], is_causal, dropout > 0, enable_gqa)
    enabled = [name for name, asked in _ENABLED.items() if asked()]
    chosen = choose(Scratch(OpCall(spec, types, {}, (), []), target), made, enabled)
    if chosen not in enabled:
        raise RuntimeError("No available kernel. Aborting execution.")  # as sdp_utils.cpp
    if error := refused(made, chosen):
        raise torch.AcceleratorError(error)
    return chosen


def _type_of_tensor(found: torch.Tensor) -> TensorType:
    return tensor(dtype_of(found), tuple(map(recorded_size, found.shape)), "", tuple(map(recorded_size, found.stride())))


def _flash_attention(query: Any, key: Any, value: Any, dropout: float, is_causal: bool, scale: float | None) -> torch.Tensor:
    head = query.shape[-1]
    missing = -head % _FLASH_ALIGNMENT
    scale = head**-0.5 if scale is None else scale
    if missing:
        query, key, value = (functional.pad(one, (0, missing)) for one in (query, key, value))
    results = list(torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, scale=scale))
    # A tuple of C++ gives its results back from the first to the last, one of Python from the last.
    made: torch.Tensor = results.pop(0)
    while results:
        results.pop(0)
    return made[..., :head] if missing else made


def _efficient_attention(
    query: Any, key: Any, value: Any, mask: torch.Tensor | None, dropout: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    with_sums = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    if mask is not None:
        mask = _aligned(_as_numbers(mask, query.dtype)).expand(*query.shape[:-1], key.shape[-2])
    made: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, with_sums, dropout, is_causal, scale=scale
    )[0]
    return made


def _as_numbers(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a boolean mask as an additive one."""
    if mask.dtype is not torch.bool:
        return mask
    yes = torch.ops.aten.scalar_tensor(0.0, dtype=dtype, device=mask.device)
    no = torch.ops.aten.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device)
    return torch.where(mask, yes, no)


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask with rows aligned for the kernel: a padded copy, sliced to the original size."""
    if mask.stride(-1) == 1 and all(recorded_size(step) % _MASK_ALIGNMENT == 0 for step in mask.stride()[:-1]):
        return mask
    last = mask.shape[-1]
    return functional.pad(mask, (0, _MASK_ALIGNMENT - last % _MASK_ALIGNMENT))[..., :last]


def _attention_route(target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return attention(target, *args, **kwargs)


# -- recurrent networks ------------------------------------------------------------------------------------------------


def _recurrent_route(name: str) -> Route:
    def route(target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(args[1], torch.Tensor) and not isinstance(args[2], list | tuple | torch.Tensor):
            return NotImplemented
        if not torch.backends.cudnn.enabled:
            return NotImplemented  # PyTorch's own kernels run, one step after the other
        return recurrent(name, args, isinstance(args[3], list | tuple), _in_rows)

    return route


def _in_rows(x: Any, h: Any, c: Any, weights: list[torch.Tensor]) -> tuple[Any, ...]:
    x = x.contiguous()
    # On the device the weights lie in one buffer, which is saved for the backward; any view of them represents it here.
    buffer = weights[0].detach().flatten()
    return x, h.contiguous(), None if c is None else c.contiguous(), weights, buffer


def recurrent(name: str, args: Sequence[Any], packed: bool, prepare: Callable[..., tuple[Any, ...]]) -> tuple[torch.Tensor, ...]:
    """Run `torch.lstm` or its like by cuDNN, on padded sequences or packed ones; `prepare` is given input, states and weights, and returns
    them as the kernel takes them, with the buffer that the weights lie in."""
    first, sizes = False, list[int]()
    if packed:
        x, sizes, hidden, weights, _, layers, dropout, train, bidirectional = args
    else:
        x, hidden, weights, _, layers, dropout, train, bidirectional, first = args
    h, c = hidden if name == "lstm" else (hidden, None)
    x = x.transpose(0, 1) if first else x
    units = h.shape[-1] if c is None else c.shape[-1]
    projected = h.shape[-1] if h.shape[-1] != units else 0
    per_layer = len(weights) // (layers * (2 if bidirectional else 1))
    x, h, c, weights, buffer = prepare(x, h, c, list(weights))
    geometry = (RNN_MODES[name], units, projected, layers, False, dropout, train, bidirectional, [int(size) for size in sizes], None)
    made = torch.ops.aten._cudnn_rnn(x, weights, per_layer, buffer, h, c, *geometry)
    output = made[0].transpose(0, 1) if first else made[0]
    return (output, *made[1:3]) if name == "lstm" else (output, made[1])


# -- products of matrices ----------------------------------------------------------------------------------------------


def _grouped_product(target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Grouped matrix products exist for any element type on a device; torch's fake implementation supports only one."""
    if args[0].dtype is torch.bfloat16:
        return NotImplemented
    halves = [torch.empty_strided(argument.shape, argument.stride(), dtype=torch.bfloat16, device=argument.device) for argument in args[:2]]
    made = torch.ops.aten._grouped_mm(*halves, *args[2:], **{**kwargs, "out_dtype": None})
    return torch.empty_like(made, dtype=args[0].dtype)


# -- where they are taken ----------------------------------------------------------------------------------------------


def _counted(x: torch.Tensor, times: int) -> tuple[torch.Tensor, ...]:
    """Return numbers of the channels of a batch, in float32 at least (ATen/native/cuda/Normalization.cu)."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return tuple(torch.empty(x.shape[1], dtype=dtype, device=x.device) for _ in range(times))


def _sums_of_gradients(target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    _, _, mean, _, weight, *wanted = args
    sums = (torch.empty_like(mean), torch.empty_like(mean)) if wanted[0] else (None, None)
    return (*sums, *(torch.empty_like(mean if weight is None else weight) if each else None for each in wanted[1:]))


_SYNCHRONISED: dict[str, Route] = {
    "aten::batch_norm_stats": lambda target, args, kwargs: _counted(args[0], 2),
    "aten::batch_norm_gather_stats": lambda target, args, kwargs: _counted(args[0], 2),
    "aten::batch_norm_gather_stats_with_counts": lambda target, args, kwargs: _counted(args[0], 2),
    "aten::batch_norm_elemt": lambda target, args, kwargs: torch.empty_like(args[0]),
    "aten::batch_norm_backward_reduce": _sums_of_gradients,
    "aten::batch_norm_backward_elemt": lambda target, args, kwargs: torch.empty_like(args[1]),
}
"""What SyncBatchNorm runs, which torch has neither shapes of nor kernels for on the host."""
KERNELS: dict[str, Route] = {"aten::_grouped_mm": _grouped_product, **_SYNCHRONISED}
"""Routes at either level of recording."""
ROUTES: dict[str, Route] = {
    **KERNELS,
    "aten::scaled_dot_product_attention": _attention_route,
    **{f"aten::{name}": _recurrent_route(name) for name in RNN_MODES},
}
"""Routes by operator name, where operators are recorded as Python calls them."""
_FUNCTIONS: dict[Any, Route] = {
    functional.scaled_dot_product_attention: _attention_route,
    **{getattr(torch._VF, name): _recurrent_route(name) for name in RNN_MODES},
}


class Rerouted(TorchFunctionMode):
    """Applies the same routes where operators are recorded below autograd."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        route = _FUNCTIONS.get(func)
        if route is not None:
            found = route(self._target, args, kwargs or {})
            if found is not NotImplemented:
                return found
        return func(*args, **(kwargs or {}))
