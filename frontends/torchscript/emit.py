"""Operations on tensors become nodes, whose types are inferred at once: sizes steer what the code does next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.torch_lowering.dtypes import C10_DTYPES
from irscope.frontends.torch_lowering.fake import FakeTypes
from irscope.frontends.torch_lowering.lowering import AtenCall, Lowered
from irscope.frontends.torch_lowering.signatures import MEMORY_FORMATS, Argument, Param, Signature, foreign_attrs, resolve
from irscope.frontends.torch_lowering.table import lower
from irscope.frontends.torchscript.plain import NotKnown
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptClass, ScriptObject
from irscope.ir.dims import Dim, SymDim, floordiv, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Names, Node, Role, Value
from irscope.ir.places import Literal, Loc, Scalar, Scope
from irscope.ir.program import Called
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, ScalarType, TensorType, Type, scalar, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import Known, OpCall, RuleContext, RuleError
from irscope.ops.values import to_array

MOST_NODES = 5_000_000
_KIND_TYPES: dict[str, Type] = {
    "Tensor": UNKNOWN_TENSOR,
    "int": scalar(DType.I64),
    "float": scalar(DType.F64),
    "bool": scalar(DType.BOOL),
    "Scalar": scalar(DType.UNKNOWN),
}
# What a size as a tensor stands for here is the number in it.
_FROM_NUMBERS = frozenset({"arange", "full", "zeros", "ones", "empty", "linspace", "scalar_tensor", "eye"})


class _Context(RuleContext):
    """Gives unknown sizes names that stay apart from those of later analyses."""

    def fresh(self, reason: str, decided_by: str, lo: int | None, hi: int | None) -> SymDim:
        name = f"load.u{self._fresh}"
        self._fresh += 1
        return unknown(name, lo, hi)


class Emitter:
    """Appends nodes to the current graph."""

    def __init__(self, graph: Graph, sink: DiagnosticSink, path: str, fake: FakeTypes | None = None) -> None:
        self.main = graph
        self.graph = graph
        """Where nodes go: the main graph or a region."""
        self.scope: Scope = graph.scope
        self.loc: Loc | None = None
        """The statement of the archive's code."""
        self.origin: Loc | None = None
        """The Python that the running expression was traced from, where the archive says so."""
        self.expected_parts = 0
        """Number of variables that the statement sets at once: a list of tensors has as many where nothing else gives its length."""
        self.names = Names()
        self.path = path
        self.calls: dict[Node, Called] | None = None
        """The calls that nodes were made of, where they are kept."""
        self._sink = sink
        self._fake = fake
        self._context = _Context()
        self._known: dict[Value, Known] = {}
        self._count = 0

    def fresh(self, lo: int | None = None, hi: int | None = None) -> SymDim:
        """Return a whole number that is only known when the model runs."""
        return self._context.fresh("", "", lo, hi)

    def constant(self, type_: Type, number: bool | int | float, name: str | None = None) -> Value:
        """Return a constant of one element."""
        value = self.main.add_weight(type_, name, Role.CONSTANT, Literal((number,)))
        return value

    def value_of(self, item: Item) -> Item:
        """Return a tensor that is known as a number, as a value of the graph; everything else as it is."""
        if not isinstance(item, KnownTensor):
            return item
        if item.value is None:
            type_ = tensor(item.dtype, ())
            if isinstance(item.number, SymDim):
                node = self._append(
                    Lowered("tensor.full", (), {"shape": (), "fill": item.number, "dtype": item.dtype}), (type_,), "prim::NumToTensor"
                )
                item.value = node.outputs[0]
            else:
                item.value = self.constant(type_, item.number)
                known = to_array((item.number,), type_)
                if known is not None:
                    self._known[item.value] = known
        return item.value

    def remember(self, value: Value, known: Known) -> None:
        """Record the values of a small constant."""
        self._known[value] = known

    def known(self, value: Value) -> Known | None:
        """Return the values of a small tensor, where they are known."""
        return self._known.get(value)

    def call(self, namespace: str, name: str, positional: Sequence[Item], named: Mapping[str, Item]) -> Item:
        """Append the node of one operator call; its results as the code sees them."""
        full = name if namespace == "aten" else f"{namespace}::{name}"
        if namespace == "aten" and name in MAKERS:
            return make_tensor(self, positional, named)
        known = pack(name, positional) or unpack(name, positional)
        if known is not None:
            return known
        told = result_type(namespace, name, positional, self.fresh)
        positional = flattened(positional)
        if name in _FROM_NUMBERS:
            positional = [item.number if isinstance(item, KnownTensor) else item for item in positional]
        args = [self._argument(item) for item in positional]
        keywords = {key: self._argument(item) for key, item in named.items()}
        found = resolve(full, args, keywords) if told is None else None
        if found is None:
            return self._foreign(namespace, name, args, keywords, told)
        signature, bound = found
        call = AtenCall(signature, {param.name: _converted(bound.get(param.name), param) for param in signature.params})
        source = f"{namespace}::{name}"
        lowered = lower(call)
        asked: list[Type] | None = None
        if lowered is None:
            inputs, attrs = foreign_attrs(call.args)
            lowered = Lowered(f"{namespace}.{name}", inputs, attrs)
            asked = self._fake.ask(namespace, name, args, keywords) if self._fake is not None else None
        return self._structured(signature, self._make(lowered, signature, source, asked, call))

    def _argument(self, item: Item) -> Argument:
        if isinstance(item, KnownTensor):
            return self.value_of(item)
        if isinstance(item, list | tuple):
            return tuple(self._argument(part) for part in item)
        return item

    def _make(self, lowered: Lowered, signature: Signature, source: str, asked: list[Type] | None, call: AtenCall) -> list[Value]:
        """Return the node's values in the order of the ATen operator's results."""
        types = self._infer(lowered, signature) if asked is None else asked
        if lowered.results is not None:
            needed = max((slot for slot in lowered.results if slot is not None), default=-1) + 1
            types = [*types[:needed], *[UNKNOWN_TENSOR] * (needed - len(types))]
        elif "Tensor[]" not in signature.results:
            wanted = [_KIND_TYPES.get(kind, UNKNOWN_TYPE) for kind in signature.results if kind != "()"]
            types = [*types[: len(wanted)], *wanted[len(types) :]]
        node = self._append(lowered, types, source)
        if self.calls is not None:
            self.calls[node] = call.called
        self._evaluate(lowered, node)
        if lowered.results is None:
            return list(node.outputs)
        return [node.outputs[slot] if slot is not None else self._empty(source) for slot in lowered.results]

    def _empty(self, source: str) -> Value:
        type_ = tensor(DType.F32, (0,))
        return self._append(Lowered("tensor.empty", (), {"shape": (0,), "dtype": DType.F32}), (type_,), source).outputs[0]

    def _infer(self, lowered: Lowered, signature: Signature) -> list[Type]:
        spec = find_op(lowered.op)
        declared = [_KIND_TYPES.get(kind, UNKNOWN_TYPE) for kind in signature.results if kind != "()"]
        if "Tensor[]" in signature.results:
            declared = [UNKNOWN_TENSOR] * self.expected_parts
        if spec is None:
            self._sink.note(
                "IRS170", f"operator {lowered.op} is not known; its results' sizes are unknown", node=lowered.op, about=lowered.op
            )
            return declared
        if lowered.results is not None:
            count = max((slot for slot in lowered.results if slot is not None), default=-1) + 1
            declared = [UNKNOWN_TENSOR] * count
        call = OpCall(
            spec,
            [None if value is None else value.type for value in lowered.inputs],
            lowered.attrs,
            [None if value is None else self._known.get(value) for value in lowered.inputs],
            declared,
            self._context,
        )
        try:
            return list(spec.infer_types(call))
        except RuleError as error:
            self._sink.warn("IRS172", f"{lowered.op}: {error}", node=lowered.op, hint="give inputs that the model accepts with --input")
            return declared

    def _evaluate(self, lowered: Lowered, node: Node) -> None:
        """Keep the values of small results: they may become sizes."""
        spec = find_op(lowered.op)
        if spec is None or spec.evaluate is None or spec.random or "inplace" in lowered.attrs:
            return
        if not all(_is_small(output.type) for output in node.outputs):
            return
        if spec.needs_values and any(value is not None and value not in self._known for value in lowered.inputs):
            return
        call = OpCall(
            spec,
            [None if value is None else value.type for value in lowered.inputs],
            lowered.attrs,
            [None if value is None else self._known.get(value) for value in lowered.inputs],
            [output.type for output in node.outputs],
            self._context,
        )
        try:
            found = spec.evaluate(call)
        except (RuleError, ValueError, TypeError, ArithmeticError, IndexError):
            return
        values = [found] if isinstance(found, np.ndarray) else list(found or ())
        for output, value in zip(node.outputs, values, strict=False):
            if value is not None:
                self._known[output] = value

    def _append(self, lowered: Lowered, types: Sequence[Type], source: str) -> Node:
        self._count += 1
        if self._count > MOST_NODES:
            raise LoadError("the model unrolls to more than 5,000,000 nodes", code="IRS139", where=self.path)
        loc = self.origin or self.loc
        return self.graph.append(lowered.op, lowered.inputs, types, lowered.attrs, scope=self.scope, loc=loc, source=source)

    def op(self, op: str, inputs: Sequence[Value | None], attrs: dict[str, Attr], source: str) -> Value:
        """Append a node of one result whose type the operator's rule gives."""
        lowered = Lowered(op, inputs, attrs)
        signature = Signature(op, "", (), ("any",))
        return self._append(lowered, self._infer(lowered, signature), source).outputs[0]

    def node(self, op: str, inputs: Sequence[Value | None], types: Sequence[Type], source: str) -> Node:
        """Append a node that no ATen operator stands for."""
        return self._append(Lowered(op, inputs), types, source)

    def _structured(self, signature: Signature, values: list[Value]) -> Item:
        """Return the results as the code sees them: one tensor, a tuple, a list."""
        if signature.results == ("Tensor[]",):
            return values
        if len(signature.results) == 1 and signature.results[0] != "()":
            return values[0]
        return tuple(values) if values else None

    def _foreign(
        self, namespace: str, name: str, args: Sequence[Argument], named: Mapping[str, Argument], told: Type | None = None
    ) -> Item:
        """Return a call that fits no signature: one result, of the type that is told."""
        inputs, attrs = foreign_attrs({**{f"arg{index}": value for index, value in enumerate(args)}, **named})
        op = f"{namespace}.{name}"
        if told is None and self._fake is not None:
            asked = self._fake.ask(namespace, name, args, named)
            told = asked[0] if asked is not None and len(asked) == 1 else None
        if told is None:
            self._sink.note("IRS170", f"operator {op} is not known; its results' sizes are unknown", node=op, about=op)
        return self._append(Lowered(op, inputs, attrs), (told or UNKNOWN_TENSOR,), f"{namespace}::{name}").outputs[0]


def _is_small(type_: Type) -> bool:
    if not isinstance(type_, TensorType):
        return True
    count = type_.numel
    # Code computes sizes with single real numbers too; tensors of them are data.
    most = 64 if type_.dtype.is_integer or type_.dtype is DType.BOOL else 1
    return isinstance(count, int) and count <= most


def _converted(value: Argument, param: Param) -> Argument:
    """TorchScript writes element types and memory formats as numbers."""
    if isinstance(value, int) and not isinstance(value, bool | SymDim):
        if param.kind.startswith("ScalarType"):
            return C10_DTYPES.get(value, DType.UNKNOWN)
        if param.kind.startswith("MemoryFormat"):
            return MEMORY_FORMATS.get(value, "")
    if value == "cpu" and param.kind.startswith("Device"):
        return None
    return value


MAKERS = frozenset({"tensor", "as_tensor", "asarray"})


def make_tensor(emitter: Emitter, args: Sequence[Item], named: Mapping[str, Item]) -> Item:
    """Return the constant that torch.tensor makes of a number or of nested lists of numbers."""
    data = args[0] if args else named.get("data")
    given = named.get("dtype", args[1] if len(args) > 1 else None)
    dtype = C10_DTYPES.get(given, DType.UNKNOWN) if isinstance(given, int) else None
    if isinstance(data, KnownTensor):
        return KnownTensor(data.number, dtype or data.dtype)
    if isinstance(data, Value):
        if isinstance(data.type, ScalarType):
            return emitter.op("tensor.from_scalar", (data,), {"dtype": dtype or data.type.dtype}, "aten::tensor")
        if dtype is None:
            return emitter.call("aten", "clone", [data], {})
        return emitter.call("aten", "to", [data], {"dtype": given})
    if isinstance(data, bool | int | float | SymDim):
        return KnownTensor(data, dtype or _usual_dtype([data]))
    shape, flat = _flattened(data)
    if any(isinstance(item, KnownTensor | Value | SymDim) for item in flat):
        return _stacked_numbers(emitter, data, given)
    numbers = [item for item in flat if isinstance(item, bool | int | float | complex)]
    if len(numbers) != len(flat):
        raise NotKnown
    type_ = tensor(dtype or _usual_dtype(numbers), shape)
    values: list[Scalar] = [float(n) if type_.dtype.is_float and not isinstance(n, complex) else n for n in numbers]
    made = emitter.main.add_weight(type_, None, Role.CONSTANT, Literal(tuple(values)))
    known = to_array(values, type_)
    if known is not None:
        emitter.remember(made, known)
    return made


def _usual_dtype(numbers: Sequence[Item]) -> DType:
    """PyTorch's default element type for some numbers."""
    if any(isinstance(number, complex) for number in numbers):
        return DType.C64
    if not numbers or any(isinstance(number, float) for number in numbers):
        return DType.F32
    return DType.BOOL if all(isinstance(number, bool) for number in numbers) else DType.I64


def _flattened(data: Item) -> tuple[list[int], list[Item]]:
    """Return the sizes of nested lists, and their elements in order."""
    shape: list[int] = []
    level: list[Item] = [data]
    while level and all(isinstance(item, list | tuple) for item in level):
        rows = [item for item in level if isinstance(item, list | tuple)]
        shape.append(len(rows[0]))
        if any(len(row) != len(rows[0]) for row in rows):
            raise NotKnown
        level = [part for row in rows for part in row]
    return shape, level


def _stacked_numbers(emitter: Emitter, data: Item, dtype: Item) -> Item:
    """Return a list of sizes or of tensors of one element."""
    if not isinstance(data, list | tuple):
        raise NotKnown
    parts = [
        emitter.value_of(item if isinstance(item, Value | KnownTensor) else KnownTensor(_plain_number(item), _usual_dtype([item])))
        for item in data
    ]
    made = emitter.call("aten", "stack", [parts], {})
    return made if dtype is None else emitter.call("aten", "to", [made], {"dtype": dtype})


def _plain_number(item: Item) -> bool | int | float | SymDim:
    if not isinstance(item, bool | int | float | SymDim):
        raise NotKnown
    return item


# -- operators that only TorchScript has -------------------------------------------------------------------------------
# irscope has no records of them: quantised layers with packed weights, oneDNN's. They stay foreign; their results' types are told here,
# and the weights inside packed objects become operands, so that they count.


_PACKED = ScriptClass("packed weights", "")
_SETTINGS = ("stride", "padding", "dilation", "groups")
Fresh = Callable[[], Dim]


def pack(name: str, args: Sequence[Item]) -> ScriptObject | None:
    """Return what `quantized.linear_prepack(weight, bias)` and its like return; None where the name is another."""
    if "_prepack" not in name:
        return None
    made = ScriptObject(_PACKED, {"weight": args[0], "bias": args[1] if len(args) > 1 else None})
    rest = args[3:] if name.startswith("conv_transpose") else args[2:]
    made.attrs.update(zip(_SETTINGS, rest, strict=False))
    return made


def unpack(name: str, args: Sequence[Item]) -> tuple[Item, ...] | None:
    """Return the weight and bias in a packed object."""
    if "_unpack" not in name or not args or not isinstance(args[0], ScriptObject):
        return None
    return args[0].attrs.get("weight"), args[0].attrs.get("bias")


def flattened(args: Sequence[Item]) -> list[Item]:
    """Return the arguments with the tensors of packed objects in the objects' place."""
    items: list[Item] = []
    pending = list(reversed(args))
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if not isinstance(item, ScriptObject):
            items.append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            pending.extend(reversed([part for part in _packed_parts(item) if isinstance(part, Value | ScriptObject)]))
    return items


def _packed_parts(item: ScriptObject) -> list[Item]:
    parts: list[Item] = []
    for part in item.attrs.values():
        parts.extend(part if isinstance(part, list | tuple) else (part,))
    return parts


def result_type(namespace: str, name: str, args: Sequence[Item], fresh: Fresh) -> Type | None:
    """Return the type of a foreign operator's one result; None where nothing is known of it."""
    first = _packed_type(args[0]) if args else None
    if first is None:
        return None
    if name in _SAME:
        return first
    if name in _RETYPED:
        return _with_dtype(first, _RETYPED[name](args))
    if name == "mkldnn_convolution" and len(args) > 1:
        return _unknown_convolution(first, fresh)
    if namespace != "quantized":
        return None
    return _quantized(name, first, args, fresh)


def _quantized(name: str, first: TensorType, args: Sequence[Item], fresh: Fresh) -> Type | None:
    packed = next((arg for arg in args if isinstance(arg, ScriptObject)), None)
    dtype = DType.F32 if "_dynamic" in name else first.dtype
    weight = _weight(packed) if packed is not None else None
    if packed is not None and weight is None:
        return tensor(dtype, None)
    if name.startswith("linear") and weight is not None and weight.shape and first.shape:
        return tensor(dtype, (*first.shape[:-1], weight.shape[0]))
    if name.startswith("conv") and packed is not None and weight is not None:
        if "transpose" in name:
            return _unknown_convolution(first.with_dtype(dtype), fresh)
        return _quantized_convolution(first, weight, packed, dtype)
    others = [type_ for arg in args[1:] if (type_ := _packed_type(arg)) is not None and type_.shape]
    if packed is None and all(other.shape == first.shape for other in others):
        return first
    return tensor(first.dtype, None)


def _packed_type(item: Item) -> TensorType | None:
    if isinstance(item, KnownTensor):
        return tensor(item.dtype, ())
    if isinstance(item, list | tuple) and item:
        return _packed_type(item[0])
    return item.type if isinstance(item, Value) and isinstance(item.type, TensorType) else None


def _with_dtype(type_: TensorType, dtype: DType) -> TensorType:
    return tensor(dtype, type_.shape, type_.device)


def _code(position: int) -> Callable[[Sequence[Item]], DType]:
    def read(args: Sequence[Item]) -> DType:
        code = args[position] if position < len(args) else None
        return C10_DTYPES.get(code, DType.UNKNOWN) if isinstance(code, int) else DType.UNKNOWN

    return read


def _weight(packed: ScriptObject) -> TensorType | None:
    """Return the type of a packed object's weight: its tensor of most axes."""
    types = [type_ for item in flattened([packed]) if (type_ := _packed_type(item)) is not None and type_.shape]
    return max(types, key=lambda type_: len(type_.shape or ()), default=None)


def _quantized_convolution(x: TensorType, weight: TensorType, packed: ScriptObject, dtype: DType) -> TensorType:
    if x.shape is None or weight.shape is None:
        return tensor(dtype, None)
    axes = len(x.shape) - 2
    stride, padding, dilation = (
        _spatial_sizes(packed, key, axes, default) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    sizes = [
        floordiv(size + 2 * p - d * (kernel - 1) - 1, s) + 1
        for size, kernel, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=False)
    ]
    return tensor(dtype, (x.shape[0], weight.shape[0], *sizes))


def _spatial_sizes(packed: ScriptObject, key: str, axes: int, default: int) -> list[int]:
    found = packed.attrs.get(key)
    sizes = [item for item in found if isinstance(item, int)] if isinstance(found, list | tuple) else []
    return (sizes * axes)[:axes] if sizes else [default] * axes


def _unknown_convolution(x: TensorType, fresh: Fresh) -> TensorType:
    """A convolution whose weight is not in the file as a tensor."""
    if x.shape is None:
        return x
    return x.with_shape((x.shape[0], *(fresh() for _ in x.shape[1:])))


_SAME = frozenset({"to_mkldnn", "to_dense", "mkldnn_reorder_conv2d_weight"})
_RETYPED: dict[str, Callable[[Sequence[Item]], DType]] = {
    "dequantize": lambda args: DType.F32,
    "quantize_per_tensor": _code(3),
    "quantize_per_channel": _code(4),
    "quantize_per_tensor_dynamic": _code(1),
}
