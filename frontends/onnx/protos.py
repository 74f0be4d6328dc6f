"""Messages and operator schemas of the onnx package, without the rest of it.

Importing all of onnx takes longer than reading and analysing a small model: its checker, its helpers and the metadata of installed
packages, of which reading a file needs nothing. So the two modules that hold messages and schemas are loaded by themselves, under
their own names; whoever imports onnx afterwards finds them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final


def _part(name: str) -> ModuleType:
    """Return a module of the onnx package; where it does not lie there as expected, the whole package is imported first."""
    full = f"onnx.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.find_spec("onnx")
    folders = () if spec is None or "onnx" in sys.modules else spec.submodule_search_locations or ()
    for path in (Path(folder, name + suffix) for folder in folders for suffix in (".py", *EXTENSION_SUFFIXES)):
        if path.is_file() and (own := importlib.util.spec_from_file_location(full, path)) is not None and own.loader is not None:
            module = importlib.util.module_from_spec(own)
            sys.modules[full] = module
            try:
                own.loader.exec_module(module)
            except Exception:  # another layout of the package: it knows how to import itself
                del sys.modules[full]
                break
            return module
    return importlib.import_module(full)


if TYPE_CHECKING:
    from onnx import (
        IR_VERSION,
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )
    from onnx.defs import OpSchema, SchemaError, get_schema, onnx_opset_version
else:
    _messages = _part("onnx_ml_pb2")
    _schemas = _part("onnx_cpp2py_export").defs
    AttributeProto = _messages.AttributeProto
    FunctionProto = _messages.FunctionProto
    GraphProto = _messages.GraphProto
    ModelProto = _messages.ModelProto
    NodeProto = _messages.NodeProto
    OperatorSetIdProto = _messages.OperatorSetIdProto
    SparseTensorProto = _messages.SparseTensorProto
    TensorProto = _messages.TensorProto
    TensorShapeProto = _messages.TensorShapeProto
    TypeProto = _messages.TypeProto
    ValueInfoProto = _messages.ValueInfoProto
    IR_VERSION = _messages.Version.IR_VERSION
    OpSchema, SchemaError, get_schema = _schemas.OpSchema, _schemas.SchemaError, _schemas.get_schema

    def onnx_opset_version() -> int:
        """Return the newest version of the standard operator set."""
        return _schemas.schema_version_map()[""][1]


def function_body(schema: OpSchema) -> FunctionProto:
    """Return the definition of an operator by others; without nodes where the schema has none."""
    stored: Any = schema  # `function_body` itself is put there by onnx.defs
    body: FunctionProto = FunctionProto.FromString(stored._function_body)
    return body


def onnx_version() -> str:
    """Return the version of the installed package."""
    from importlib.metadata import version

    return version("onnx")


__all__: Final = [
    "IR_VERSION", "AttributeProto", "FunctionProto", "GraphProto", "ModelProto", "NodeProto", "OpSchema", "OperatorSetIdProto",
    "SchemaError", "SparseTensorProto", "TensorProto", "TensorShapeProto", "TypeProto", "ValueInfoProto", "function_body", "get_schema",
    "onnx_opset_version", "onnx_version",
]  # fmt: skip
