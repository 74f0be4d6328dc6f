"""Operators that packages bring along as compiled libraries: their kernels never meet the simulated device, and torchvision's are known."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from irscope.frontends.simulation.imports import ChangedImports
from irscope.frontends.simulation.kernels import Kernel, Kernels

_BITS: Final = 64
"""Boxes of which a number of the mask of torchvision's nms tells whether they overlap (csrc/ops/cuda/nms_kernel.cu)."""
_LIBRARY: Final = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
_DIFFERENTIABLE: Final = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")


class CompiledOperators:
    """Keep the CUDA kernels of libraries that a program loads from running; simulated kernels take their places."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._libraries: dict[str, torch.library.Library] = {}
        self._defined: list[torch.library.Library] = []

    def install(self) -> None:
        """Install the kernels."""
        self._kernels.special.update(_of_torchvision(self._kernels))
        operators: Any = torch.ops
        load, known = operators.load_library, torch._C._dispatch_get_registrations_for_dispatch_key

        def load_library(path: Any) -> None:
            before = set(known("CUDA"))
            load(path)
            for full in sorted(set(known("CUDA")) - before):
                space, _, name = full.partition("::")
                packet, _, overload = name.partition(".")
                op = getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
                self._impl(space, name, self._kernels.kernel_of(op), "CUDA")

        operators.load_library = load_library
        ChangedImports({"torchvision.extension": self._complete}).install()

    def declare(self, files: Sequence[str], texts: str | Sequence[str]) -> None:
        """Define the operators of an extension that is compiled at run time, as its sources do: they write to what they are given."""
        sources = [Path(one).read_text("utf-8", "replace") for one in map(str, files) if Path(one).is_file()]
        for text in (*sources, *([texts] if isinstance(texts, str) else texts)):
            for match in _LIBRARY.finditer(text):
                body = text[match.end() :].partition("\n}")[0]
                for said in re.finditer(rf"\b{match[2]}\.def\(\s*((?:\"[^\"]*\"\s*)+)", body):
                    self._define(match[1], "".join(re.findall(r"\"([^\"]*)\"", said[1])))

    def _define(self, space: str, schema: str) -> None:
        name, has_schema, _ = schema.partition("(")
        if not has_schema or hasattr(getattr(torch.ops, space), name):
            return
        self._defined.append(torch.library.Library(space, "FRAGMENT"))
        self._defined[-1].define(schema)
        op = getattr(getattr(torch.ops, space), name).default
        self._impl(space, name, self._kernels.kernel_of(op) if op._schema.returns else self._writing(f"{space}::{name}"), "CUDA")

    def _writing(self, name: str) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> None:
            self._kernels.machine.forget([*args, *kwargs.values()])
            self._kernels.tell_unknown(name)

        return kernel

    def _impl(self, space: str, name: str, kernel: Kernel, key: str) -> None:
        library = self._libraries.get(space)
        if library is None:
            library = self._libraries[space] = torch.library.Library(space, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that kernels for CUDA are replaced
            library.impl(name, kernel, key, allow_override=True)

    def _complete(self, extension: Any) -> None:
        """Let torchvision's operators exist where its library was built for another torch: `pip install torchvision` gives one that loads
        CUDA's libraries, also beside a torch without them."""
        if extension._has_ops():
            return
        from irscope.frontends.zoo.packages import declare_operators

        library = declare_operators()
        extension._has_ops, extension._check_cuda_version = lambda: True, lambda: -1
        for name in ("nms", *_DIFFERENTIABLE):
            op = getattr(torch.ops.torchvision, name).default
            self._impl("torchvision", name, self._kernels.kernel_of(op), "CUDA")
            self._impl("torchvision", name, _in_float(op), "AutocastCUDA")
        for name in _DIFFERENTIABLE:
            _differentiate(name, library)


def _of_torchvision(kernels: Kernels) -> dict[str, Kernel]:
    """Return what torchvision's kernels allocate, as its sources say."""

    def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
        count = boxes.shape[0]
        if not boxes.numel():
            return boxes.new_empty(0, dtype=torch.int64)
        order = scores.sort(stable=True, dim=0, descending=True)[1]
        alive = [boxes.index_select(0, order).contiguous(), boxes.new_empty(count * -(-count // _BITS), dtype=torch.int64)]
        keep = boxes.new_zeros(count, dtype=torch.bool)
        kernels.machine.forget([keep])
        chosen = order.masked_select(keep)
        del alive
        return chosen

    def roi_align(
        source: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, sampling: int, aligned: bool
    ) -> torch.Tensor:
        made = source.new_zeros(rois.shape[0], source.shape[1], height, width)
        source.contiguous(), rois.contiguous()
        kernels.machine.forget([made])
        return made

    def roi_align_backward(
        grad: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, *sizes: int | bool
    ) -> torch.Tensor:
        made = grad.new_zeros(sizes[:4])
        rois.contiguous()
        kernels.machine.forget([made])
        return made

    return {
        "torchvision::nms": nms,
        "torchvision::roi_align": roi_align,
        "torchvision::_roi_align_backward": roi_align_backward,
    }


def _in_float(op: Any) -> Kernel:
    """Return what runs under autocast: the operator in 32 bits, whose result has the type of its first operand again."""

    def run(first: torch.Tensor, *others: Any) -> Any:
        with torch.autocast("cuda", enabled=False):
            made = op(*[one.float() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in (first, *others)])
        made = [one.to(first.dtype) if one.is_floating_point() else one for one in (made if isinstance(made, tuple) else (made,))]
        return made[0] if len(made) == 1 else tuple(made)

    return run


def _differentiate(name: str, library: torch.library.Library) -> None:
    """Let an operator of torchvision have its backward, which takes operands of the forward, what it chose and sizes, by their names."""
    forward, backward = (getattr(torch.ops.torchvision, one).default for one in (name, f"_{name}_backward"))
    given, wanted = ([argument.name for argument in op._schema.arguments] for op in (forward, backward))

    def setup(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        values = dict(zip(given, inputs, strict=True))
        values |= dict(zip(("batch_size", "channels", "height", "width"), inputs[0].shape, strict=True))
        if isinstance(output, tuple):
            values["argmax"] = values["channel_mapping"] = output[1]
        ctx.kept = [one for one in wanted if isinstance(values.get(one), torch.Tensor)]
        ctx.plain = {one: values[one] for one in wanted if one in values and one not in ctx.kept}
        ctx.save_for_backward(*[values[one] for one in ctx.kept])

    def run(ctx: Any, grad: Any, *others: Any) -> Any:
        values = ctx.plain | dict(zip(ctx.kept, ctx.saved_tensors, strict=True)) | {"grad": grad}
        made = backward(*[values[one] for one in wanted])
        grads = made if isinstance(made, tuple) else (made,)
        return (*grads, *[None] * (len(given) - len(grads)))

    torch.library.register_autograd(f"torchvision::{name}", run, setup_context=setup, lib=library)
