"""The engines that are graded: irscope, and the shape inference that comes with onnx."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from irscope.frontends.onnx import load_model
from irscope.ir.dims import Dim, SymDim, bind
from irscope.ir.dtypes import DType
from irscope.ir.types import MapType, OptionalType, SequenceType, TensorType, Type
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.conformance.grade import Answer, ListAnswer, OtherAnswer, TensorAnswer
from tests.tools.conformance.modes import symbol_value

Engine = Callable[[bytes], dict[str, Answer]]

# Numbers of TensorProto.DataType, independent of the frontend's own table.
DTYPE_NUMBERS = {
    DType.F32: 1, DType.U8: 2, DType.I8: 3, DType.U16: 4, DType.I16: 5, DType.I32: 6, DType.I64: 7, DType.STR: 8, DType.BOOL: 9,
    DType.F16: 10, DType.F64: 11, DType.U32: 12, DType.U64: 13, DType.C64: 14, DType.C128: 15, DType.BF16: 16, DType.F8E4M3FN: 17,
    DType.F8E4M3FNUZ: 18, DType.F8E5M2: 19, DType.F8E5M2FNUZ: 20, DType.U4: 21, DType.I4: 22, DType.F4E2M1: 23, DType.F8E8M0: 24,
    DType.U2: 25, DType.I2: 26, DType.F6E2M3: 27, DType.F6E3M2: 28, DType.UNKNOWN: 0,
}  # fmt: skip


def irscope(model: bytes) -> dict[str, Answer]:
    """irscope's answers by result name."""
    program = load_model(model)
    names = [info.name for info in onnx.ModelProto.FromString(model).graph.output]
    found = Manager(program).get(Shapes())
    return {name: _answer(found.type_of(value)) for name, value in zip(names, program.graph.outputs, strict=True)}


def _answer(type_: Type) -> Answer:
    if isinstance(type_, TensorType):
        shape = None if type_.shape is None else tuple(bound_size(dim) for dim in type_.shape)
        return TensorAnswer(DTYPE_NUMBERS[type_.dtype], shape)
    if isinstance(type_, SequenceType | OptionalType):
        return ListAnswer(_answer(type_.element), isinstance(type_, OptionalType))
    return OtherAnswer() if isinstance(type_, MapType) else None


def bound_size(dim: Dim) -> int | None:
    """A size with the symbols of mode S replaced by what they stand for; None where others are left."""
    if not isinstance(dim, SymDim):
        return dim
    values = {name: symbol_value(name) for name in dim.symbol_names()}
    bound = bind(dim, {name: value for name, value in values.items() if value is not None})
    return None if isinstance(bound, SymDim) else bound


def onnx_strict(model: bytes) -> dict[str, Answer]:
    """Answers of onnx.shape_inference with data propagation, in strict mode."""
    inferred = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(model), check_type=True, strict_mode=True, data_prop=True)
    return {info.name: _declared(info.type) for info in inferred.graph.output}


def _declared(type_: onnx.TypeProto) -> Answer:
    kind = type_.WhichOneof("value")
    if kind is None:
        return None
    if kind == "tensor_type":
        tensor_type = type_.tensor_type
        shape = tuple(_declared_size(dim) for dim in tensor_type.shape.dim) if tensor_type.HasField("shape") else None
        return TensorAnswer(tensor_type.elem_type, shape)
    if kind == "sequence_type":
        return ListAnswer(_declared(type_.sequence_type.elem_type))
    if kind == "optional_type":
        return ListAnswer(_declared(type_.optional_type.elem_type), is_optional=True)
    return OtherAnswer()


def _declared_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") else symbol_value(dim.dim_param)


ENGINES: dict[str, Engine] = {"irscope": irscope, "onnx": onnx_strict}
