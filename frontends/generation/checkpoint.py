"""A checkpoint without weights: files as `from_pretrained` wants them, with the right headers and a hole where the values would be.

Only what `frontends.files.folders` read and checked is written to a folder of our own, from which the package loads.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

from irscope.errors import LoadError
from irscope.frontends.files.folders import INDEX, Tensors, stored_bytes
from irscope.frontends.torch_lowering.dtypes import SAFETENSORS_DTYPES
from irscope.ir.dtypes import DType

if TYPE_CHECKING:
    from torch import nn

_CODES: Final = {dtype: code for code, dtype in SAFETENSORS_DTYPES.items()}


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
            (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": tensors.bytes}, "weight_map": places}))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_hollow(path: Path, tensors: Mapping[str, tuple[DType, tuple[int, ...]]], where: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in _CODES:
            raise LoadError(f"tensor {name[:80]!r} is of {dtype.text}, which safetensors cannot hold", code="IRS197", where=where)
        size = stored_bytes(dtype, shape)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
