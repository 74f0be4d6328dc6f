"""A checkpoint without weights: files as `from_pretrained` wants them, with the right headers and a hole where the values would be.

What a folder holds is data: its configuration and the headers of its weights are read and checked here, and only what was checked is
written to a folder of our own, from which the package loads. No value of a weight is read.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint as checkpoints
from irscope.frontends.torch_lowering.dtypes import SAFETENSORS_DTYPES
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.weights.source import Forbidden, ModelFolder

if TYPE_CHECKING:
    from torch import nn

_LARGEST_CONFIG: Final = 16 << 20
"""Bytes; those of models are some kilobytes, with long tables of quantised layers some hundred."""
_INDEX: Final = "model.safetensors.index.json"
_WEIGHTS: Final = (_INDEX, "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
"""In the order in which `from_pretrained` looks for them."""
_CODES: Final = {dtype: code for code, dtype in SAFETENSORS_DTYPES.items()}
_SHARD: Final = 5 << 30
"""Bytes of a shard, as `save_pretrained` writes them unless it is told otherwise (50 GB from transformers 5 on, 5 GB before)."""


@dataclass(frozen=True)
class Tensors:
    """The tensors of a checkpoint by file, as stored."""

    files: Mapping[str, Mapping[str, tuple[DType, tuple[int, ...]]]]

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return sum(_stored(dtype, shape) for tensors in self.files.values() for dtype, shape in tensors.values())

    @property
    def by_dtype(self) -> dict[DType, int]:
        """Bytes by element type."""
        found: dict[DType, int] = {}
        for tensors in self.files.values():
            for dtype, shape in tensors.values():
                found[dtype] = found.get(dtype, 0) + _stored(dtype, shape)
        return found


def _stored(dtype: DType, shape: tuple[int, ...]) -> int:
    bits = dtype.bits or 8
    for size in shape:
        bits *= size
    return (bits + 7) // 8


def read_folder(folder: Path, sink: DiagnosticSink) -> tuple[dict[str, Any], Tensors | None]:
    """The configuration of a hub folder, and what its weights are, where it has any."""
    files = ModelFolder(folder)
    config = _json_of(files, folder, "config.json")
    if config is None:
        raise LoadError(
            "the folder has no config.json", code="IRS197", where=str(folder), hint="name the folder of a model with its config.json"
        )
    for name in _WEIGHTS:
        if _find(files, folder, name) is not None:
            return config, _tensors_of(folder, name, sink)
    return config, None


def _find(files: ModelFolder, folder: Path, name: str) -> Path | None:
    try:
        found = files.find(name)
    except Forbidden as error:
        raise LoadError(f"{name!r} {error}", code="IRS197", where=str(folder), hint=error.hint) from None
    return None if found is None else Path(found.path)


def _json_of(files: ModelFolder, folder: Path, name: str) -> dict[str, Any] | None:
    path = _find(files, folder, name)
    if path is None:
        return None
    where = str(folder / name)
    if path.stat().st_size > _LARGEST_CONFIG:
        raise LoadError(f"it has {path.stat().st_size:,} bytes", code="IRS197", where=where, hint="a configuration has some kilobytes")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise LoadError("it is no valid JSON", code="IRS197", where=where, hint="copy it again") from None
    if not isinstance(found, dict):
        raise LoadError("it is no JSON object", code="IRS197", where=where, hint="copy it again")
    return found


def _tensors_of(folder: Path, name: str, sink: DiagnosticSink) -> Tensors:
    program = checkpoints.load(folder / name, LoadOptions(), sink)
    files: dict[str, dict[str, tuple[DType, tuple[int, ...]]]] = {}
    for weight in program.graph.weights:
        type_ = weight.type
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        place = getattr(program.graph.data.get(weight), "path", "")
        shape = tuple(size for size in type_.shape if isinstance(size, int))
        files.setdefault(Path(place).name or name, {})[str(weight.name)] = (type_.dtype, shape)
    if name == _INDEX:
        _check_index(folder, files)
    return Tensors(files)


def _check_index(folder: Path, files: Mapping[str, Mapping[str, object]]) -> None:
    """An index says of each tensor in which shard it is."""
    places = json.loads((folder / _INDEX).read_bytes())["weight_map"]
    for tensor, shard in places.items():
        if tensor not in files.get(shard, ()):
            message = f"the index says that {str(tensor)[:80]!r} is in {str(shard)[:80]!r}, which does not have it"
            raise LoadError(
                message, code="IRS164", where=str(folder / _INDEX), hint="index and shards are of different models; copy them again"
            )


def tensors_of(module: nn.Module) -> Tensors:
    """What `save_pretrained` would write of a module: a tensor that two names share is written once."""
    from irscope.frontends.eager.record import dtype_of

    seen: set[int] = set()
    found: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = (dtype_of(tensor), tuple(tensor.shape))
    return Tensors({"model.safetensors": found})


@contextmanager
def hollow(tensors: Tensors) -> Iterator[Path]:
    """A folder with these tensors, for as long as the context lasts."""
    folder = Path(mkdtemp(prefix="irscope-"))
    try:
        places: dict[str, str] = {}
        for number, (name, of_file) in enumerate(tensors.files.items(), 1):
            many = len(tensors.files) > 1
            file = f"model-{number:05}-of-{len(tensors.files):05}.safetensors" if many else "model.safetensors"
            _write_hollow(folder / file, of_file, name)
            places |= dict.fromkeys(of_file, file)
        if len(tensors.files) > 1:
            (folder / _INDEX).write_text(json.dumps({"metadata": {"total_size": tensors.bytes}, "weight_map": places}))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_hollow(path: Path, tensors: Mapping[str, tuple[DType, tuple[int, ...]]], where: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in _CODES:
            raise LoadError(f"tensor {name[:80]!r} is of {dtype.text}, which safetensors cannot hold", code="IRS197", where=where)
        size = _stored(dtype, shape)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
