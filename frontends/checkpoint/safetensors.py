"""safetensors files, and the index of a checkpoint that is spread over several of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from irscope.budget import admit
from irscope.errors import LoadError
from irscope.frontends.checkpoint.weights import WeightTable
from irscope.frontends.torch_common.dtypes import SAFETENSORS_DTYPES
from irscope.ir.dtypes import DType
from irscope.ir.places import FileRegion
from irscope.ir.types import tensor
from irscope.weights.folder import Forbidden, ModelFolder

_LONGEST_HEADER = 100 << 20


def read_safetensors(path: Path, table: WeightTable) -> None:
    """The tensors of one file: a length, a JSON header, raw bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LONGEST_HEADER):
            raise table.error(f"the header is said to have {length:,} bytes, the file has {size:,}")
        header = _json(file.read(length), table)
    start = 8 + length
    for name, entry in header.items():
        if name == "__metadata__":
            table.metadata.update({str(key): str(value)[:1000] for key, value in entry.items()} if isinstance(entry, dict) else {})
            continue
        try:
            dtype = SAFETENSORS_DTYPES.get(entry["dtype"], DType.UNKNOWN)
            shape = tuple(_size(item) for item in entry["shape"])
            first, last = (_size(item) for item in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise table.error(f"the header's entry {str(name)[:80]!r} does not have the form of a tensor") from None
        wanted = None if dtype.bits is None else (math.prod(shape) * dtype.bits + 7) // 8
        if not first <= last <= size - start or (wanted is not None and wanted != last - first):
            raise table.error(f"the tensor {str(name)[:80]!r} does not fit the file")
        table.add(str(name), tensor(dtype, shape), FileRegion(str(path), start + first, last - first, f"{path.name}:{first}"))


def _size(item: object) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or item < 0:
        raise ValueError("not a size")
    return item


def _json(data: bytes, table: WeightTable) -> dict[str, Any]:
    admit(len(data))
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise table.error("the header is no valid JSON") from None
    if not isinstance(found, dict):
        raise table.error("the header is no JSON object")
    return found


def read_sharded(path: Path, table: WeightTable) -> None:
    """The shards that an index names; they lie beside it."""
    if path.stat().st_size > _LONGEST_HEADER:
        raise table.error("the index is too large")
    places = _json(path.read_bytes(), table).get("weight_map")
    if not isinstance(places, dict):
        raise table.error("the index has no weight_map")
    folder = ModelFolder(path)
    shards = sorted({str(shard) for shard in places.values()})
    for shard in shards:
        if Path(shard).name != shard or shard in ("", ".", ".."):
            raise table.error(f"the index names {shard!r}, which is outside its own folder", "the index is hostile or damaged")
        try:
            found = folder.find(shard)
        except Forbidden as error:
            raise table.error(f"the shard {shard!r} {error}", error.hint or "the index is hostile or damaged") from None
        if found is None:
            raise LoadError(f"the shard {shard!r} is missing", code="IRS164", where=str(path), hint="put all shards beside the index")
        file = path.parent / shard
        if shard.endswith(".safetensors"):
            read_safetensors(file, table)
        else:
            from irscope.frontends.checkpoint.pickles import read_zip

            read_zip(file, table)
