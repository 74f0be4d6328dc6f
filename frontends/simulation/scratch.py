"""Temporary memory of kernels that only a running program meets: gradients and composites that no file's operator stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch

from irscope.ops.gradients import sum_sorted_rows
from irscope.ops.scratch.ordering import cub_sort_pairs
from irscope.ops.scratch.recorder import Requests
from irscope.ops.spec import MemoryEvent


class Asked(Requests):
    """Collects the events of one call: its arguments by name, and its results."""

    def __init__(self, arguments: Mapping[str, Any], results: Sequence[Any]) -> None:
        super().__init__(results)
        self._arguments = arguments

    def __getitem__(self, name: str) -> Any:
        return self._arguments.get(name)

    def make(self, *places: int) -> None:
        """Allocate the storages of results now."""
        for place in places:
            self.result(place)

    def contiguous(self, tensor: torch.Tensor) -> str:
        """Return a row-major copy of a tensor that does not lie so."""
        return "" if tensor.is_contiguous() else self.take("contiguous copy", _bytes(tensor))


Rule: TypeAlias = Callable[[Asked], Sequence[MemoryEvent]]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _contiguous_gradient(name: str, *results: int) -> Rule:
    """The gradient lies row by row first."""

    def rule(asked: Asked) -> Sequence[MemoryEvent]:
        copy = asked.contiguous(asked[name])
        asked.make(*(results or (0,)))
        asked.drop(copy)
        return asked.events

    return rule


def _result_first(name: str) -> Rule:
    """Return the same copy, after the result."""

    def rule(asked: Asked) -> Sequence[MemoryEvent]:
        asked.result(0)
        asked.drop(asked.contiguous(asked[name]))
        return asked.events

    return rule


def _complex_to_float(asked: Asked) -> Sequence[MemoryEvent]:
    """Of complex numbers the result is complex first (unary_op_impl_with_complex_to_float_out)."""
    asked.result(0)
    if asked["self"].is_complex():
        asked.passing("complex result", _bytes(asked["self"]))
    return asked.events


def _deviations(asked: Asked) -> Sequence[MemoryEvent]:
    asked.result(0)
    asked.passing("scaled noise", _bytes(asked.results[0]))
    return asked.events


def _real_from_complex(asked: Asked) -> Sequence[MemoryEvent]:
    """cuFFT overwrites what it reads."""
    asked.result(0)
    copy = asked.take("copy of the input", _bytes(asked["self"]))
    asked.unknown("library workspace", "cuFFT reports the size of its workspace only on the device")
    asked.drop(copy)
    return asked.events


def _scatter_means(asked: Asked) -> Sequence[MemoryEvent]:
    """Means are sums over numbers of addends, which are counted in the same way."""
    asked.result(0)
    if asked["reduce"] == "mean":
        ones = asked.take("ones", _bytes(asked["src"]))
        counts = asked.take("counts", _bytes(asked["self"]))
        none = asked.take("where there are none", asked["self"].numel())
        asked.drop(none, counts, ones)
    return asked.events


def _unfolded(asked: Asked) -> Sequence[MemoryEvent]:
    """Positions along the axis."""
    asked.result(0)
    asked.passing("positions", asked["input_sizes"][asked["dim"]] * 8)
    return asked.events


def _bag(asked: Asked) -> Sequence[MemoryEvent]:
    """Return the sizes of the bags, the bag of each position, sums, the largest."""
    asked.make(2, 1, 0, 3)
    return asked.events


def _bag_gradient(asked: Asked) -> Sequence[MemoryEvent]:
    """Positions are sorted, by all of their bits, and rows summed piece by piece (EmbeddingBag.cu)."""
    gradient, positions = asked["grad"], asked["indices"]
    copy = asked.contiguous(gradient)
    if asked["mode"] == _LARGEST:
        asked.result(0)
        asked.drop(copy)
        return asked.events
    number, item = positions.numel(), positions.element_size()
    row = gradient.shape[1] * max(gradient.element_size(), 4)
    sort = cub_sort_pairs(number, item, item)
    sum_sorted_rows(asked, number, asked["num_weights"], item, sort, row, scaled=bool(asked["scale_grad_by_freq"]))
    asked.drop(copy)
    return asked.events


def _lengths(asked: Asked, batch: int) -> list[str]:
    return [asked.take(what, 8 * batch) for what in ("starts of targets", "lengths of inputs", "lengths of targets")]


def _ctc(asked: Asked) -> Sequence[MemoryEvent]:
    """LossCTC.cu: three lists of numbers, the forward variables, the loss."""
    lists = _lengths(asked, asked["log_probs"].shape[1])
    asked.make(1, 0)
    asked.drop(*lists)
    return asked.events


def _ctc_gradient(asked: Asked) -> Sequence[MemoryEvent]:
    """The backward variables are as many as the forward ones."""
    lists = _lengths(asked, asked["log_probs"].shape[1])
    beta = asked.take("backward variables", _bytes(asked["log_alpha"]))
    asked.result(0)
    asked.drop(beta, *lists)
    return asked.events


_LARGEST: Final = 2
"""EmbeddingBag's mode "max"."""


def _no_memory(asked: Asked) -> Sequence[MemoryEvent]:
    """Zeros that nobody writes have no memory behind them."""
    asked.result(0, 0)
    return asked.events


SCRATCH: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("aten::abs", "aten::abs.out", "aten::angle"), _complex_to_float),
    **dict.fromkeys(("aten::normal.Tensor_float", "aten::normal.Tensor_Tensor"), _deviations),
    "aten::_fft_c2r": _real_from_complex,
    "aten::scatter_reduce.two": _scatter_means,
    "aten::_efficientzerotensor": _no_memory,
    "aten::unfold_backward": _unfolded,
    "aten::_ctc_loss": _ctc,
    "aten::_ctc_loss_backward": _ctc_gradient,
    "aten::_embedding_bag": _bag,
    "aten::_embedding_bag_dense_backward": _bag_gradient,
    "aten::cudnn_grid_sampler_backward": _contiguous_gradient("grad_output", 0, 1),
    "aten::fractional_max_pool2d_backward": _contiguous_gradient("grad_output"),
    **{f"aten::{mode}_pad{axes}d_backward": _result_first("grad_output") for mode in ("reflection", "replication") for axes in (1, 2, 3)},
}
"""By name of the operator."""
NOTHING: Final = frozenset(
    f"aten::{name}"
    for name in (
        "log_sigmoid_forward",
        "rrelu_with_noise",
        "_prelu_kernel",
        "_prelu_kernel_backward",
        "aminmax",
        "multi_margin_loss_backward",
        "multilabel_margin_loss_backward",
        "grid_sampler_2d",
        "grid_sampler_2d_backward",
        "cudnn_grid_sampler",
        "fractional_max_pool2d",
        "random_.from",
        "random_.to",
        "random_",
        "_weight_norm_interface_backward",
    )
)
"""Kernels that take nothing beside their results."""
