"""The suite: every backend test of the installed onnx package, each with its inputs and the types of its reference results.

The truth is taken from reference data. Declared result types are read only to tell sequences from tensors and for the
element types of arrays that numpy cannot name; they are erased from the model before any engine sees it.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests

_FORMAT = 1
_ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Tensor:
    """An array of the reference results: element type by its ONNX number, and sizes."""

    dtype: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Sequence_:
    """A list of the reference results, with the declared element type for the case that it is empty."""

    items: tuple[Truth, ...]
    element: int


@dataclass(frozen=True)
class Optional_:
    """A result that may be absent."""

    item: Truth | None


@dataclass(frozen=True)
class Map:
    """A dictionary; its contents are not graded."""


Truth = Tensor | Sequence_ | Optional_ | Map


@dataclass(frozen=True)
class Case:
    """One model of the suite."""

    name: str
    kind: str
    model: bytes
    inputs: tuple[bytes | None, ...]
    """Serialised tensors; None for what is not a tensor."""
    truth: tuple[tuple[str, Truth], ...]
    """Result names with their types."""


def load_suite() -> list[Case]:
    """The suite, built once for each version of onnx and then kept in a cache folder."""
    path = cache_folder() / f"onnx-suite-{onnx.__version__}-{_FORMAT}.json"
    try:
        return [_unpacked(row) for row in json.loads(path.read_text())]
    except (OSError, ValueError):
        pass
    cases = list(_build())
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        json.dump([_packed(case) for case in cases], file)
    os.replace(file.name, path)
    return cases


def cache_folder() -> Path:
    """Where built things are kept: $IRSCOPE_CACHE, else a folder of this user under the system's temporary one."""
    given = os.environ.get("IRSCOPE_CACHE", "")
    folder = Path(given) if given else Path(tempfile.gettempdir()) / f"irscope-tests-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


# -- building ----------------------------------------------------------------------------------------------------


def _build() -> Iterator[Case]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        generated = load_model_tests(kind="node")
    for test in generated:
        inputs, outputs = test.data_sets[0]
        yield _case(test.name, "node", test.model, inputs, outputs)
    for kind in _ON_DISK:
        for test in sorted(load_model_tests(kind=kind), key=lambda test: test.name):
            yield _from_folder(test.name, kind, Path(test.model_dir))
    light = Path(DATA_DIR) / "light"
    for path in sorted(light.glob("*.onnx")):
        model = onnx.load(path)
        outputs = [_read(light / f"{path.stem}_output_{index}.pb", info.type) for index, info in enumerate(model.graph.output)]
        yield _case(path.stem, "light", model, (), outputs)


def _from_folder(name: str, kind: str, folder: Path) -> Case:
    model = onnx.load(folder / "model.onnx")
    data = min(folder.glob("test_data_set*"))
    inputs = [_read(data / f"input_{index}.pb", model.graph.input[index].type) for index in range(len(list(data.glob("input_*"))))]
    outputs = [_read(data / f"output_{index}.pb", model.graph.output[index].type) for index in range(len(list(data.glob("output_*"))))]
    return _case(name, kind, model, inputs, outputs)


def _read(path: Path, type_: onnx.TypeProto) -> object:
    raw = path.read_bytes()
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(raw))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
    return None if kind == "map_type" else onnx.TensorProto.FromString(raw)


def _case(name: str, kind: str, model: onnx.ModelProto, inputs: Sequence[object], outputs: Sequence[object]) -> Case:
    truth = tuple((info.name, _truth(value, info.type)) for info, value in zip(model.graph.output, outputs, strict=False))
    return Case(name, kind, model.SerializeToString(), tuple(_serialised(value) for value in inputs), truth)


def _serialised(value: object) -> bytes | None:
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    if isinstance(value, np.ndarray | np.generic):
        return numpy_helper.from_array(np.asarray(value)).SerializeToString()
    return None


def _truth(value: Any, type_: onnx.TypeProto) -> Truth:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        element = type_.sequence_type.elem_type
        return Sequence_(tuple(_truth(item, element) for item in value or ()), element.tensor_type.elem_type)
    if kind == "optional_type":
        element = type_.optional_type.elem_type
        if isinstance(value, list) and element.WhichOneof("value") == "tensor_type":
            value = value[0] if value else None
        absent = value is None or (isinstance(value, list) and not value)
        return Optional_(None if absent else _truth(value, element))
    if kind == "map_type":
        return Map()
    if isinstance(value, onnx.TensorProto):
        return Tensor(value.data_type, tuple(value.dims))
    return Tensor(type_.tensor_type.elem_type, np.asarray(value).shape)


# -- the cache file ----------------------------------------------------------------------------------------------


def _packed(case: Case) -> list[object]:
    inputs = [None if raw is None else base64.b64encode(raw).decode() for raw in case.inputs]
    model = base64.b64encode(case.model).decode()
    return [case.name, case.kind, model, inputs, [[name, _packed_truth(truth)] for name, truth in case.truth]]


def _unpacked(row: list[Any]) -> Case:
    name, kind, model, inputs, truth = row
    raw = tuple(None if text is None else base64.b64decode(text) for text in inputs)
    return Case(name, kind, base64.b64decode(model), raw, tuple((one, _unpacked_truth(packed)) for one, packed in truth))


def _packed_truth(truth: Truth | None) -> list[Any] | None:
    match truth:
        case Tensor():
            return ["tensor", truth.dtype, list(truth.shape)]
        case Sequence_():
            return ["sequence", [_packed_truth(item) for item in truth.items], truth.element]
        case Optional_():
            return ["optional", _packed_truth(truth.item)]
        case Map():
            return ["map"]
    return None


def _unpacked_truth(packed: list[Any]) -> Truth:
    kind, *rest = packed
    if kind == "tensor":
        return Tensor(rest[0], tuple(rest[1]))
    if kind == "sequence":
        return Sequence_(tuple(_unpacked_truth(item) for item in rest[0]), rest[1])
    if kind == "optional":
        return Optional_(None if rest[0] is None else _unpacked_truth(rest[0]))
    return Map()
