"""The operator calls that a `.pt2` file records, to be made again on tensors without data.

Only the description of the graph is read: no weights, nothing pickled. Operators other than ATen's are not called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irscope.frontends.exported.tensors import Types, read_json
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.dtypes import SERIALIZED_DTYPES
from irscope.frontends.torch_common.expressions import Symbols
from irscope.ir.dims import Dim, bind
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.peers.base import CannotCount

Json = Any
"""Parsed JSON, of whatever form the file has."""
_LEFT_OUT = frozenset({"as_device", "as_layout", "as_memory_format"})
"""Arguments that change neither sizes nor arithmetic; without them a call works on tensors of any device."""


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator; tensors are their types."""

    names: tuple[str, ...]
    """Of the results, the first of which is the node's own."""
    operator: str
    """As "linear.default"."""
    args: tuple[object, ...]
    named: Mapping[str, object]


@dataclass(frozen=True)
class Recording:
    """The calls of a file, and what is not made again."""

    calls: tuple[Call, ...]
    skipped: Mapping[str, str]
    """Targets that are no ATen operators by the name of the node."""


def recording(path: Path, method: str, sizes: Mapping[str, Dim]) -> Recording:
    """The calls of a `.pt2` file with its open sizes bound; raises CannotCount where some stay open."""
    with Archive(path) as archive:
        names = [name for name in archive.names("models/") if name.endswith(".json")]
        if not names:
            raise CannotCount("the file is of an older form of .pt2; export the model again")
        wanted = f"models/{method}.json"
        name = wanted if wanted in names else "models/model.json" if "models/model.json" in names else names[0]
        document = read_json(archive, name)
    return _Reader(document, sizes).read()


class _Reader:
    def __init__(self, document: Json, sizes: Mapping[str, Dim]) -> None:
        self._graph = document["graph_module"]["graph"]
        self._types = Types(Symbols(document.get("range_constraints") or {}), "")
        self._sizes = sizes

    def read(self) -> Recording:
        calls: list[Call] = []
        skipped: dict[str, str] = {}
        for node in self._graph["nodes"]:
            names = tuple(_result_names(node))
            target = str(node["target"])
            if not target.startswith("torch.ops.aten."):
                if target.startswith("torch.ops.") and names:
                    skipped[names[0]] = target.removeprefix("torch.ops.")
                continue
            args: list[object] = []
            named: dict[str, object] = {}
            for given in node["inputs"]:
                if next(iter(given["arg"])) in _LEFT_OUT or given["name"] == "pin_memory":
                    continue
                value = self._argument(given["arg"])
                if given.get("kind") == 2:
                    named[given["name"]] = value
                else:
                    args.append(value)
            calls.append(Call(names, target.removeprefix("torch.ops.aten."), tuple(args), named))
        return Recording(tuple(calls), skipped)

    def _argument(self, arg: Json) -> object:
        ((kind, content),) = arg.items()
        if kind == "as_tensor":
            return self._tensor(content["name"])
        if kind == "as_tensors":
            return [self._tensor(item["name"]) for item in content]
        if kind == "as_optional_tensors":
            return [self._tensor(item["as_tensor"]["name"]) if "as_tensor" in item else None for item in content]
        if kind.startswith("as_sym_"):
            return [self._number(item) for item in content] if isinstance(content, list) else self._number(content)
        if kind == "as_scalar_type":
            return SERIALIZED_DTYPES.get(content, DType.UNKNOWN)
        if kind == "as_complex":
            return complex(content["real"], content["imag"])
        if kind == "as_float":
            return float(content)
        return None if kind == "as_none" else content

    def _tensor(self, name: str) -> TensorType:
        type_ = self._types.tensor(self._graph["tensor_values"][name])
        assert type_.shape is not None
        return type_.with_shape([self._bound(size) for size in type_.shape])

    def _number(self, item: Json) -> object:
        if "as_name" not in item:
            return next(iter(item.values()))
        found = self._graph["sym_int_values"].get(item["as_name"])
        if found is None:
            raise CannotCount("a number in the graph depends on data, which this counter would need")
        return self._bound(self._types.dim(found))

    def _bound(self, size: Dim) -> int:
        found = bind(size, self._sizes)
        if not isinstance(found, int):
            raise CannotCount(f"the size {found} is open; give it with --bind to compare")
        return found


def _result_names(node: Json) -> Iterator[str]:
    for output in node["outputs"]:
        ((kind, content),) = output.items()
        if kind == "as_tensor":
            yield content["name"]
        elif kind == "as_tensors":
            yield from (item["name"] for item in content)
        elif kind.startswith("as_sym") and "as_name" in content:
            yield content["as_name"]
