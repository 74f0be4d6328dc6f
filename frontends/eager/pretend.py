"""A simulated CUDA device for fake tensors on a machine without CUDA."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from irscope.devices import Target, target_of
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.eager.answers import card
from irscope.frontends.eager.metas import cudnn_without_card
from irscope.frontends.eager.vtables import CannotPretend, Patch
from irscope.passkit.settings import Settings

_depth = 0


@contextmanager
def pretended_cuda(target: Target | None = None, sink: DiagnosticSink | None = None) -> Iterator[str]:
    """Within the context, fake tensors may be on the device that is yielded: "cuda", or "cpu" where that cannot be had.

    A torch that was built with CUDA knows the device, whether there is a card or not. Any other is made to believe in one; where that
    is not possible one diagnostic says so, and operators are captured on the CPU and counted as if they ran on a card.
    """
    target = target or target_of(Settings())
    if _knows_cuda():
        with cudnn_without_card(), nullcontext() if torch.cuda.is_available() else card(target):
            yield "cuda"
        return
    patch = _patch()
    if isinstance(patch, str):
        if sink is not None:
            sink.warn(
                "IRS187",
                f"this torch cannot pretend to have a CUDA device ({patch}); the model is captured on the CPU",
                hint="results may have another memory layout than on a card; a torch built with CUDA captures them as they are",
                about="device",
            )
        yield "cpu"
        return
    with _applied(patch), cudnn_without_card(), card(target):
        yield "cuda"


@contextmanager
def _applied(patch: Patch) -> Iterator[None]:
    global _depth
    if _depth == 0:
        patch.apply()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0:
            patch.undo()


def _knows_cuda() -> bool:
    return torch.version.cuda is not None or torch.version.hip is not None


@functools.cache
def _patch() -> Patch | str:
    """The replaced tables that make torch accept the device, or why that is impossible; tried once."""
    if sys.platform != "linux":
        return f"it was not tried on {sys.platform}"
    try:
        patch = Patch(Path(torch.__file__).parent)
    except CannotPretend as error:
        return str(error)
    patch.apply()
    try:
        return patch if _works() else "a tensor that was put there is elsewhere"
    except Exception as error:  # whatever torch makes of it, there is no device
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}"
    finally:
        patch.undo()


def _works() -> bool:
    from torch._subclasses.fake_tensor import FakeTensorMode

    accelerator = torch._C._accelerator_getAccelerator()
    with FakeTensorMode(), torch.no_grad():
        made = torch.empty(2, device="cuda") + 1
    return accelerator.type == "cuda" and made.device.type == "cuda"
