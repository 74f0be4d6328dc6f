"""Named models written to files, with random weights and the inputs that they were exported for."""

from __future__ import annotations

import importlib.util
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from irscope.errors import LoadError, UsageError
from irscope.files import staged
from irscope.frontends.base import LoadOptions
from irscope.frontends.named.load import Made, first_line, large_enough, make_named, open_axes, quiet
from irscope.frontends.named.tensors import make_arguments
from irscope.frontends.torch_common.dtypes import NAMED_DTYPES

SUFFIXES: Final = (".onnx", ".pt2", ".pt")
INPUTS_KEY: Final = "irscope.inputs"
"""Where a file describes its inputs: a metadata property of ONNX, an extra file of TorchScript."""
_COPIES: Final = 3
"""Weights, what the exporter makes of them, and what it writes."""


def export_named(text: str, options: LoadOptions, target: Path) -> list[Path]:
    """Make the model for real, export it, and write its inputs beside it. Returns the files written."""
    kind = target.suffix.lower()
    if kind == ".onnx" and importlib.util.find_spec("onnxscript") is None:
        hint = "torch.onnx.export needs it: pip install onnxscript"
        raise UsageError("onnxscript is not installed", code="IRS675", where=text, hint=hint)
    _check_memory(text, options)
    made = make_named(text, options, hollow=False)
    made.chosen = large_enough(made.chosen)
    if kind == ".pt" and made.chosen.open:
        raise UsageError("a trace has no open sizes", code="IRS673", where=text, hint="give numbers, or export .pt2 or .onnx")
    args, kwargs = make_arguments(made.chosen, real=True)
    described = json.dumps(describe(args, kwargs, made))
    with staged(target) as path:
        try:
            with quiet(), torch.no_grad():
                _WRITERS[kind](made, args, kwargs, path, described)
        except Exception as error:  # whatever an exporter raises is why it does not accept the model
            raise LoadError(f"torch does not export it: {first_line(error)}", code="IRS676", where=text) from error
        Path(f"{path}.inputs.npz").write_bytes(_arrays(args, kwargs, made))
        return [target.parent / file.name for file in sorted(path.parent.iterdir())]


def describe(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> list[dict[str, object]]:
    """Names, element types and shapes of the inputs."""
    names = {str(dtype): text for text, dtype in _DTYPES.items()}
    return [
        {"name": name, "dtype": names.get(str(tensor.dtype), str(tensor.dtype)), "shape": list(tensor.shape)}
        for name, tensor in _named(args, kwargs, made)
    ]


_DTYPES: Final = {dtype.text: getattr(torch, name) for name, dtype in NAMED_DTYPES.items() if hasattr(torch, name)}


def _named(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> list[tuple[str, torch.Tensor]]:
    positional = [one.name for one in made.chosen.inputs if not one.keyword]
    found: list[tuple[str, torch.Tensor]] = []
    for name, value in (*zip(positional, args, strict=True), *kwargs.items()):
        if isinstance(value, list):
            found += [(f"{name}.{number}", item) for number, item in enumerate(value)]
        else:
            found.append((name, value))
    return found


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> bytes:
    """The inputs as numpy's archive; element types that numpy lacks as their bits."""
    buffer = io.BytesIO()
    tensors = _named(args, kwargs, made)
    arrays: dict[str, Any] = {name: (one.view(torch.uint16) if one.dtype is torch.bfloat16 else one).numpy() for name, one in tensors}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _check_memory(text: str, options: LoadOptions) -> None:
    """Refuse a model whose weights would not fit into this machine."""
    hollow = make_named(text, options).module
    need = sum(tensor.numel() * tensor.element_size() for tensor in (*hollow.parameters(), *hollow.buffers()))
    try:
        room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if need * _COPIES > room:
        raise UsageError(
            f"its weights are {need / 2**30:.1f} GiB, and exporting takes {_COPIES} times that; {room / 2**30:.1f} GiB are free",
            code="IRS677",
            where=text,
            hint="options in braces make it smaller, such as {num_hidden_layers=2}; `irscope run` needs no weights",
        )


def _write_pt2(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    program = torch.export.export(made.module, args, kwargs, dynamic_shapes=_axes(made))
    torch.export.save(program, path, extra_files={INPUTS_KEY: described})


def _write_onnx(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    program = torch.onnx.export(made.module, args, kwargs=kwargs, dynamic_shapes=_axes(made), dynamo=True, verbose=False)
    assert program is not None
    program.model.metadata_props[INPUTS_KEY] = described
    program.save(str(path))


def _write_trace(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    module = made.module
    if hasattr(module, "config") and hasattr(module.config, "return_dict"):
        module.config.return_dict = False
    trace: Callable[..., Any] = torch.jit.trace
    if kwargs:
        traced = trace(module, example_kwarg_inputs=kwargs, check_trace=False, strict=False)
    else:
        traced = trace(module, args, check_trace=False, strict=False)
    torch.jit.save(traced, str(path), _extra_files={INPUTS_KEY: described})


def _axes(made: Made) -> dict[str, dict[int, Any]] | None:
    return open_axes(made.chosen) if made.chosen.open else None


_WRITERS: Final[dict[str, Callable[[Made, tuple[Any, ...], dict[str, Any], Path, str], None]]] = {
    ".onnx": _write_onnx,
    ".pt2": _write_pt2,
    ".pt": _write_trace,
}
