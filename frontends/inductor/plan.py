"""The buffer plan that Inductor wrote into a wrapper, as a program: allocations, kernels with what their source computes, deaths."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.frontends.torch_lowering.lowering import AtenCall, Lowered
from irscope.frontends.torch_lowering.signatures import Argument, Signature, complete, find, foreign_attrs, overloads, resolve
from irscope.frontends.torch_lowering.table import lower
from irscope.ir.dims import Dim, product, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Names, Node, Role, Value
from irscope.ir.places import FileRegion, Loc
from irscope.ir.program import COMPILED, Life, Observed, Program, observed_versions
from irscope.ir.types import MOST_BYTES, UNKNOWN_TYPE, TensorType, Type, scalar, tensor
from irscope.ops.layouts import row_major

Axes: TypeAlias = frozenset[str]
"""Loops, by the letters that their sizes begin with: "x" of xnumel, "r0_" of r0_numel."""
CLASSES: Final = ("matmul", "elementwise", "transcendental", "reduction")
_TRANSCENDENTAL = re.compile(
    r"exp|exp2|expm1|sqrt|sqrt_rn|rsqrt|cos|sin|lgamma|erf|cosh|sinh|acos|acosh|asin|asinh|atan2|atan|atanh|erfc|erfinv|hypot|log|"
    r"log10|log2|log1p|fast_log|tan|tanh|fast_tanhf|fast_expf|sigmoid|pow|digamma"
)
_ELEMENTWISE = re.compile(
    r"maximum|minimum|abs|fma|floor|ceil|trunc|rint|nearbyint|round|llrint|isinf|isnan|isfinited|finitef|signbit|copysign|fmod|remainder_integer|"
    r"div_floor_integer|div_rn|add_rn|sub_rn|mul_rn|rand|randn|randint|randint4x|rand_eager|randn_eager|clamp|fdiv"
)
_REDUCES = re.compile(r"sum|max|min|xor_sum|any|prod|max2|min2|max_with_index|min_with_index|argmax|argmin|reduce")
_RUNNING: Final[Mapping[str, Mapping[str, int]]] = {
    # A running mean and the sum of squares around it: difference, mean, difference, product, sum.
    **{name: {"elementwise": 3, "reduction": 2} for name in ("welford_reduce", "welford_combine")},
    # The maximum so far, and the sum of the powers of e below it.
    "online_softmax_combine": {"elementwise": 1, "transcendental": 1, "reduction": 2},
    **{name: {"reduction": 1} for name in ("maximum_with_index", "minimum_with_index")},
}
"""Steps of reductions over blocks, as the compiled program counts them."""
_FINISHES: Final = frozenset({"welford", "online_softmax_reduce"})
"""They bring the lanes of one block together, which is not counted: it does not grow with what is reduced."""
_MOVES: Final = frozenset(
    {"broadcast_to", "full", "zeros", "zeros_like", "full_like", "to", "reshape", "expand_dims", "promote_to_tensor", "cast", "arange"}
    | {"view", "trans", "permute", "split", "join", "cat", "multiple_of", "max_contiguous", "device_assert", "where", "program_id", "cdiv"}
)
_FUNCTION = re.compile(r"^[ \t]*def\s+\w+\(", re.MULTILINE)
_NUMEL = re.compile(r"([xyz]|r\d+_|r)numel")
_INDEX = re.compile(r"([xyz]|r\d+_|r)(?:index|offset|base|mask)|([XYZ]|R\d+_|R)BLOCK")
_PARAMETER = re.compile(r"(?:in_out_ptr|in_ptr|out_ptr|ws_ptr|arg_)\w*|seed_offset|load_seed_offset\d*")
_MOST_NUMBERS: Final = 10**15
"""Larger sizes of loops are those of damaged files."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Accesses and operations of one kernel, by the loops in which they are."""

    read: Mapping[int, tuple[Axes, ...]]
    """By place of the argument, one for each load."""
    written: Mapping[int, tuple[Axes, ...]]
    counts: Mapping[Axes, Mapping[str, int]] | None
    """Operations for each turn, by class of FLOPs; None where some are not known."""
    sizes: Mapping[str, int]
    """Sizes of loops that the source has."""
    places: Mapping[str, int]
    """Arguments that are sizes of loops."""
    whole: bool = False
    """A template's: each operand is read once."""
    matmul: int = 0

    def cost(self, operands: Sequence[TensorType | None], given: Mapping[int, Dim]) -> tuple[Dim, Dim, dict[str, Dim] | None] | None:
        """Return the bytes read and written, and operations by class; None where the size of a loop is not known."""
        sizes: dict[str, Dim] = {name: given[place] for name, place in self.places.items() if place in given}
        sizes.update(self.sizes)
        if any(not axes <= sizes.keys() for axes in self._all_axes()):
            return None
        read, written = (self._moved(part, operands, sizes) for part in (self.read, self.written))
        if read is None or written is None:
            return None
        counts: dict[str, Dim] | None = None
        if self.counts is not None:
            counts = dict.fromkeys(CLASSES, 0)
            counts["matmul"] = self.matmul
            for axes, count in self.counts.items():
                turns = product(sizes[axis] for axis in sorted(axes))
                for name, times in count.items():
                    counts[name] = counts[name] + times * turns
        return read, written, counts

    def _all_axes(self) -> Iterator[Axes]:
        if self.whole:
            return
        for part in (self.read, self.written):
            for found in part.values():
                yield from found
        yield from self.counts or ()

    def _moved(self, part: Mapping[int, tuple[Axes, ...]], operands: Sequence[TensorType | None], sizes: Mapping[str, Dim]) -> Dim | None:
        """Return the bytes of all arguments: no more of one than it has, nor than the loops reach."""
        total: Dim = 0
        for place, found in part.items():
            type_ = operands[place] if place < len(operands) else None
            if type_ is None:
                continue  # a number
            numel, bits = type_.numel, type_.dtype.bits
            if numel is None or bits is None:
                return None
            if not self.whole:
                reached: Dim = 0
                for axes in found:
                    reached = reached + product(sizes[axis] for axis in sorted(axes))
                if isinstance(reached, int) and isinstance(numel, int):
                    numel = min(reached, numel)
            total = total + (numel * bits + 7) // 8
        return total


def loops_of(source: str, params: Sequence[str]) -> Loops | None:
    """Return the loops of a kernel with these parameters, in the order in which it is called; None for other kernels than Inductor's."""
    at = source.find("@triton.jit")
    begin = _FUNCTION.search(source, at) if at >= 0 else None
    if begin is None or not params or not all(_PARAMETER.fullmatch(one) or _NUMEL.fullmatch(one) or one.startswith("ks") for one in params):
        return _template(source, params)
    end = source.find("'''", begin.start())
    text = textwrap.dedent(source[begin.start() : end if end >= 0 else len(source)])
    spend(len(text) // 8, "lines of kernels")
    try:
        tree = ast.parse(text)
        reader = _Reader({name: place for place, name in enumerate(params)})
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
        reader.block(function.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, StopIteration, _NotCounted):
        return None
    if not reader.read and not reader.written:
        return None
    return reader.loops()


_TEMPLATE = re.compile(r"^\s+([MNK])\s*(?::\s*tl\.constexpr\s*)?= (\d{1,9})\s*$", re.MULTILINE)
_OPERANDS: Final = frozenset({"arg_A", "arg_B"})


def _template(source: str, params: Sequence[str]) -> Loops | None:
    """Inductor's own kernel of a matrix product, with what is fused behind it: that is not counted, as it is little beside the product."""
    if not set(params) >= _OPERANDS or "tl.dot(" not in source:
        return None
    sizes = {match[1]: int(match[2]) for match in _TEMPLATE.finditer(source)}
    if sizes.keys() != {"M", "N", "K"} or "bmm" in source[:4096]:
        return None
    whole: tuple[Axes, ...] = (frozenset(),)
    outs = {place: whole for place, name in enumerate(params) if name.startswith(("out_ptr", "in_out_ptr"))}
    ins = {place: whole for place, name in enumerate(params) if place not in outs}
    return Loops(ins, outs, {}, {}, {}, whole=True, matmul=2 * sizes["M"] * sizes["N"] * sizes["K"])


class _NotCounted(Exception):
    """Something that Inductor's kernels do not have, so that nothing is counted."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Meaning of an expression: the loops it varies in, and whether it is a computed number, or the place of one."""

    axes: Axes = frozenset()
    is_value: bool = False
    is_running: bool = False
    """True for the running value of a reduction."""


_NONE: Final = _Found()


@dataclass
class _Reader:
    """Follows a kernel's statements."""

    params: Mapping[str, int]
    names: dict[str, _Found] = field(default_factory=dict)
    read: dict[int, list[Axes]] = field(default_factory=dict)
    written: dict[int, list[Axes]] = field(default_factory=dict)
    counts: dict[Axes, Counter[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    is_counted: bool = True

    def __post_init__(self) -> None:
        numels = [match[1] for name in self.params if (match := _NUMEL.fullmatch(name))]
        self.inner = frozenset(name for name in numels if name.startswith("r"))

    def loops(self) -> Loops:
        places = {match[1]: place for name, place in self.params.items() if (match := _NUMEL.fullmatch(name))}
        read, written = ({place: tuple(found) for place, found in part.items()} for part in (self.read, self.written))
        return Loops(read, written, self.counts if self.is_counted else None, self.sizes, places)

    def block(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.assign(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.assign(node.target, node.value)
            elif isinstance(node, ast.For):
                self.block(node.body)
            elif isinstance(node, ast.Expr):
                self.value(node.value)
            elif not isinstance(node, ast.Pass):
                raise _NotCounted

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        names = [one.id for one in (target.elts if isinstance(target, ast.Tuple) else [target]) if isinstance(one, ast.Name)]
        match = _NUMEL.fullmatch(names[0]) if len(names) == 1 else None
        if match:
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and 0 <= value.value <= _MOST_NUMBERS:
                self.sizes[match[1]] = value.value
            return
        found = self.value(value)
        is_running = any(name.startswith("_tmp") for name in names)
        if is_running or re.fullmatch(r"tmp\d+_(?:mean|m2|weight)", names[0] if names else ""):
            found = _Found(found.axes | self.inner, is_value=True, is_running=True)
        elif any(name.startswith("tmp") for name in names):
            found = _Found(found.axes, is_value=True, is_running=found.is_running)
        self.names.update(dict.fromkeys(names, found))

    def count(self, axes: Axes, found: Mapping[str, int]) -> None:
        self.counts.setdefault(axes, Counter()).update(found)

    def operation(self, parts: Sequence[_Found], kind: str = "elementwise") -> _Found:
        """Return one operation on these operands; on places alone it is part of an address."""
        axes = _axes_of(parts)
        if not any(one.is_value for one in parts):
            return _Found(axes)
        running = any(one.is_running for one in parts)
        self.count(axes, {"reduction" if running else kind: 1})
        return _Found(axes, is_value=True, is_running=running)

    def value(self, node: ast.expr) -> _Found:
        if isinstance(node, ast.Constant):
            return _NONE
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.BinOp):
            parts = [self.value(node.left), self.value(node.right)]
            masks = isinstance(node.op, ast.BitAnd) and any(_is_mask(one) for one in (node.left, node.right))
            return _Found(parts[0].axes | parts[1].axes) if masks else self.operation(parts)
        if isinstance(node, ast.UnaryOp):
            return self.operation([self.value(node.operand)]) if not isinstance(node.operand, ast.Constant) else _NONE
        if isinstance(node, ast.Compare):
            return self.operation([self.value(one) for one in (node.left, *node.comparators)])
        if isinstance(node, ast.Subscript):
            return self.value(node.value)
        if isinstance(node, ast.Attribute | ast.List | ast.Tuple | ast.JoinedStr):
            return _NONE
        if isinstance(node, ast.Call):
            return self.call(node)
        raise _NotCounted

    def name(self, name: str) -> _Found:
        found = self.names.get(name)
        match = _INDEX.fullmatch(name)
        if match:
            axis = (match[1] or match[2]).lower()
            return _Found(self.inner if axis == "r" and self.inner else frozenset({axis}))
        return found or _NONE

    def call(self, node: ast.Call) -> _Found:
        func = node.func
        how = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if how in ("load", "store", "atomic_add") and node.args and isinstance(func, ast.Attribute):
            return self.access(how, node)
        if how == "to" and isinstance(func, ast.Attribute):
            return self.value(func.value)
        if how in ("full", "zeros", "full_like", "zeros_like"):
            return _Found(is_value=True)
        if how in ("arange", "program_id", "range", "float"):
            return _NONE
        parts = [self.value(argument) for argument in node.args]
        if how == "where" and len(parts) == 3:
            # Behind a mask alone nothing is chosen: it is what lies outside of the loops.
            return self.operation(parts) if parts[0].is_value else _Found(_axes_of(parts[1:]), True, any(part.is_running for part in parts))
        if how == "broadcast_to" and len(parts) == 2:
            shape = node.args[1].elts if isinstance(node.args[1], ast.List) else ()
            wide = [self.name(dim.id) for dim in shape if isinstance(dim, ast.Name)]
            return _Found(_axes_of([parts[0], *wide]), parts[0].is_value)
        return self.function(how, parts)

    def function(self, how: str, parts: Sequence[_Found]) -> _Found:
        """Return a function of numbers."""
        axes = _axes_of(parts)
        if how in _RUNNING:
            self.count(axes, _RUNNING[how])
            return _Found(axes, True, True)
        if how in _FINISHES or (_REDUCES.fullmatch(how) and parts):
            if how not in _FINISHES and not parts[0].is_running:
                self.count(parts[0].axes, {"reduction": 1})
            return _Found(axes - self.inner, True)
        if how in _MOVES:
            return _Found(axes, any(one.is_value for one in parts))
        if _TRANSCENDENTAL.fullmatch(how):
            return self.operation(parts, "transcendental")
        if not _ELEMENTWISE.fullmatch(how):
            self.is_counted = False
        return self.operation(parts)

    def access(self, how: str, node: ast.Call) -> _Found:
        """A load or a store at `pointer + (index)`."""
        place = node.args[0]
        name = place.left if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add) else place
        axes = self.value(place.right).axes if isinstance(place, ast.BinOp) else frozenset()
        number = self.params.get(name.id) if isinstance(name, ast.Name) else None
        if number is None:
            raise _NotCounted
        if how == "load":
            if number not in self.written:  # what it wrote itself is still in registers or a cache
                self.read.setdefault(number, []).append(axes)
            return _Found(axes, is_value=True)
        if len(node.args) > 1:
            axes |= self.value(node.args[1]).axes
        if how == "atomic_add":
            self.count(axes, {"elementwise": 1})
            self.read.setdefault(number, []).append(axes)
        self.written.setdefault(number, []).append(axes)
        return _NONE


def _axes_of(parts: Sequence[_Found]) -> Axes:
    return frozenset[str]().union(*[one.axes for one in parts])


def _is_mask(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.endswith("mask")


GENERATED: Final = "compiled.kernel"
UNKNOWN_KERNEL: Final = "inductor.kernel"
"""One whose signature was not found: what it writes is not known."""
_MOST_AXES: Final = 64
"""More axes than PyTorch's tensors can have."""
_SEEDS: Final = {6: DType.U64, 7: DType.U64}
_RESULTS: Final[Mapping[str, Mapping[int, DType]]] = {
    "_scaled_dot_product_flash_attention": {1: DType.F32, **_SEEDS},
    "_scaled_dot_product_efficient_attention": {1: DType.F32, 2: DType.I64, 3: DType.I64},
    "_scaled_dot_product_cudnn_attention": {1: DType.F32, **_SEEDS},
    "_scaled_dot_product_flash_attention_for_cpu": {1: DType.F32},
}
"""Element types of results that are not those of the operands: schemas of ATen do not tell, its kernels do."""
_LIKE_OPERANDS: Final = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "_addmm_activation", "convolution", "convolution_backward", "mkldnn_convolution"}
    | {"_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward"}
    | {"_scaled_dot_product_cudnn_attention_backward", *_RESULTS}
)
"""Operators whose results have the element type of their operands, those of `_RESULTS` apart; wrappers give sizes alone."""


@dataclass(slots=True, eq=False)
class Storage:
    """One piece of memory and how many names of the wrapper hold it."""

    first: Value
    owned: bool
    """True where the wrapper allocated it; inputs and constants are the caller's."""
    born: int = 0
    size: Dim = 0
    names: int = 0


@dataclass(slots=True, eq=False)
class Held:
    """Tensor, or view of one, that a name of the wrapper stands for."""

    value: Value
    storage: Storage
    name: str = ""

    @property
    def type(self) -> TensorType:
        found = self.value.type
        return found if isinstance(found, TensorType) else tensor(DType.UNKNOWN, None)


@dataclass(frozen=True, slots=True)
class Made:
    """A result of a call, as far as the wrapper tells."""

    name: str | None = None
    shape: tuple[Dim, ...] | None = None
    strides: tuple[Dim, ...] | None = None
    dtype: DType = DType.UNKNOWN


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel: which of its arguments are written, and their element types."""

    written: frozenset[int]
    dtypes: Mapping[int, DType]
    known: bool = True
    """True where its signature is known; otherwise it is unknown what it writes."""
    loops: Loops | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a call, from the comment above it."""

    operators: tuple[str, ...] = ()
    loc: Loc | None = None


@dataclass
class Plan:
    """Writes down what a wrapper does, in its order."""

    path: str
    sink: DiagnosticSink
    symbols: Symbols = field(default_factory=lambda: Symbols({}))
    graph: Graph = field(default_factory=Graph)
    names: Names = field(default_factory=Names)
    unread: list[tuple[int, str]] = field(default_factory=list)
    """Lines that were not understood, with what is there."""
    devices: dict[str, None] = field(default_factory=dict)
    allocations: int = 0
    reused: int = 0
    kernels: int = 0
    calls: int = 0
    _lives: dict[Value, Life] = field(default_factory=dict)
    _storages: dict[Value, Value] = field(default_factory=dict)
    _of: dict[Value, Storage] = field(default_factory=dict)
    _rank: int = 0

    def type_of(self, dtype: DType, shape: Sequence[Dim] | None, strides: Sequence[Dim] | None, device: str = "") -> TensorType:
        """Return a tensor's type; the device is noted, and reported once for the whole program."""
        if device:
            self.devices[device] = None
        if shape is None:
            return tensor(dtype, None)
        if len(shape) > _MOST_AXES or (strides is not None and len(strides) != len(shape)):
            raise LoadError(f"a tensor has {len(shape)} sizes and {len(strides or ())} strides", code="IRS128", where=self.path)
        sizes = tuple(shape)
        layout = None if strides is None or tuple(strides) == row_major(sizes) else tuple(strides)
        made = tensor(dtype, sizes, "", layout)
        extent = _extent(made)
        if not made.is_possible or (isinstance(extent, int) and not 0 <= extent <= MOST_BYTES):
            raise LoadError(f"there can be no tensor {str(made)[:80]}", code="IRS128", where=self.path, hint="the file is damaged")
        return made

    def declare(self, name: str, type_: Type) -> Held:
        """An input."""
        return self._given(self.graph.add_input(type_, self.names.unique(name)))

    def constant(self, name: str, type_: Type, role: Role, data: FileRegion | None = None) -> Held:
        """A parameter, buffer or constant."""
        return self._given(self.graph.add_weight(type_, self.names.unique(name), role, data))

    def _given(self, value: Value) -> Held:
        self._of[value] = storage = Storage(value, owned=False)
        return Held(value, storage)

    def empty(self, name: str, type_: TensorType, loc: Loc | None) -> Held:
        """Return a buffer that the wrapper allocates."""
        self.allocations += 1
        attrs: dict[str, Attr] = {"shape": type_.shape or (), "dtype": type_.dtype}
        node = self._append("tensor.empty", (), (type_,), attrs, (name,), loc, "empty_strided")
        return self._own(node.outputs[0], _extent(type_))

    def view(self, name: str, of: Held, type_: TensorType, offset: Dim, loc: Loc | None) -> Held:
        """Return other sizes and strides over the same memory; the tensor itself where they are its own."""
        if type_ is of.type and offset == 0:
            return of
        strides = type_.layout if isinstance(type_.layout, tuple) else row_major(type_.shape or ())
        attrs: dict[str, Attr] = {"shape": type_.shape or (), "strides": strides, "offset": offset}
        node = self._append("view.as_strided", (of.value,), (type_,), attrs, (name,), loc, "reinterpret_tensor")
        return self._share(node.outputs[0], of.storage)

    def launch(
        self, name: str, kernel: Kernel, operands: Sequence[Held | None], origin: Origin, sizes: Mapping[int, Dim]
    ) -> dict[int, Held]:
        """A generated kernel; what it writes holds new values, by the place of the argument. `sizes` are its numbers, by place."""
        self.kernels += 1
        places = [place for place, one in enumerate(operands) if one is not None]
        written = [place for place in places if place in kernel.written]
        given = [one for one in operands if one is not None]
        types = [argument.type for place, argument in zip(places, given, strict=True) if place in kernel.written]
        attrs: dict[str, Attr] = {"kernel": name}
        if origin.operators:
            attrs["operators"] = origin.operators
        cost = kernel.loops.cost([None if one is None else one.type for one in operands], sizes) if kernel.loops is not None else None
        if cost is not None:
            read, wrote, counts = cost
            attrs |= {"bytes": read + wrote, **(counts or {})}
        results = [argument.name or argument.value.name for place, argument in zip(places, given, strict=True) if place in kernel.written]
        inputs = [argument.value for argument in given]
        first = next((operands[place] for place in written), None)
        if first is not None and not all(one.storage.owned for place in written if (one := operands[place]) is not None):
            attrs["inplace"] = given.index(first)  # what the caller has is changed: the kernel is needed though nothing reads its results
        node = self._append(GENERATED if kernel.known else UNKNOWN_KERNEL, inputs, types, attrs, results, origin.loc, name)
        made: dict[int, Held] = {}
        for place, value in zip(written, node.outputs, strict=True):
            one = operands[place]
            if one is not None:
                made[place] = self._share(value, one.storage)
        return made

    def call(
        self,
        name: str,
        overload: str | None,
        positional: Sequence[Argument],
        named: Mapping[str, Argument],
        results: Mapping[int, Made],
        origin: Origin,
        out: Sequence[Held] = (),
    ) -> list[Held]:
        """Return a call of an operator of a library: `results` by place, or written to `out`. What it made comes back, by place."""
        self.calls += 1
        found = _signature(name, overload, [_value(one) for one in positional], {key: _value(one) for key, one in named.items()})
        namespace, _, short = name.rpartition("::")
        source = f"{namespace or 'aten'}::{short}"
        lowered: Lowered | None = None
        signature: Signature | None = None
        args: Mapping[str, Argument] = {}
        if found is not None:
            signature, args = found
            lowered = lower(AtenCall(signature, args))
        if lowered is None:
            given: dict[str, Argument] = (
                dict(found[1])
                if found is not None
                else {
                    **{f"arg{place}": _value(argument) for place, argument in enumerate(positional)},
                    **{key: _value(one) for key, one in named.items()},
                }
            )
            inputs, attrs = foreign_attrs(given)
            lowered = Lowered(f"{namespace or 'aten'}.{short}", inputs, attrs)
        written = None if signature is None or signature.written is None else args.get(signature.written)
        count = max(len(out), len(signature.results) if signature is not None else 0, max((place + 1 for place in results), default=0))
        operand = next((value for value in lowered.inputs if value is not None), None)
        types = [self._result_type(name, place, results.get(place), out, signature, operand) for place in range(count)]
        if isinstance(written, Value) and count:
            types[0] = written.type
        slots = lowered.results if lowered.results is not None and len(lowered.results) == count else tuple(range(count))
        size = max((slot for slot in slots if slot is not None), default=-1) + 1
        made_types: list[Type] = [UNKNOWN_TYPE] * size
        made_names: list[str | None] = [None] * size
        for place, slot in enumerate(slots):
            if slot is not None:
                made_types[slot] = types[place]
                one = results.get(place)
                made_names[slot] = (
                    (out[place].name or out[place].value.name) if place < len(out) else one.name if one is not None else short.strip("_")
                )
        node = self._append(lowered.op, lowered.inputs, made_types, lowered.attrs, made_names, origin.loc, source)
        made: list[Held] = []
        for place, slot in enumerate(slots):
            if slot is None:
                node_of = self._append("tensor.empty", (), (types[place],), {"shape": ()}, (short,), origin.loc, source)
                made.append(self._own(node_of.outputs[0], 0))
            elif place == 0 and isinstance(written, Value):
                made.append(self._share(node.outputs[slot], self._of[written]))
            elif place < len(out):
                made.append(self._share(node.outputs[slot], out[place].storage))
            else:
                type_ = types[place]
                extent = _extent(type_) if isinstance(type_, TensorType) else 0
                made.append(self._own(node.outputs[slot], extent))
        return made

    def _result_type(
        self, name: str, place: int, made: Made | None, out: Sequence[Held], signature: Signature | None, operand: Value | None
    ) -> Type:
        if place < len(out):
            return out[place].type
        if made is None:
            kind = signature.results[place] if signature is not None and place < len(signature.results) else ""
            return scalar(DType.I64) if kind in ("int", "SymInt") else UNKNOWN_TYPE
        dtype = made.dtype
        if dtype is DType.UNKNOWN:
            dtype = _RESULTS.get(name, {}).get(place, DType.UNKNOWN)
        if dtype is DType.UNKNOWN and operand is not None and (name in _LIKE_OPERANDS or name.startswith("_c10d_functional::")):
            dtype = operand.type.dtype
        return self.type_of(dtype, made.shape, made.strides)

    def not_read(self, line: int, what: str, operands: Sequence[Held] = ()) -> None:
        """Add a node of which nothing is known, for a line that was not understood."""
        self.unread.append((line, what))
        attrs: dict[str, Attr] = {"line": line}
        self._append("inductor.unread", [one.value for one in operands], (), attrs, None, Loc(self.path, line), what[:80])

    def hold(self, one: Held, name: str = "") -> None:
        """Count another name of the storage."""
        one.storage.names += 1
        one.name = name or one.name

    def drop(self, one: Held) -> None:
        """Drop a name; with the last one the memory is freed."""
        storage = one.storage
        storage.names -= 1
        if storage.names == 0 and storage.owned and storage.first in self._lives:
            life = self._lives[storage.first]
            if life.died is None:
                self._lives[storage.first] = Life(life.born, len(self.graph) - 1, self._rank, life.size)
                self._rank += 1

    def _own(self, value: Value, size: Dim | None) -> Held:
        born = len(self.graph) - 1
        storage = Storage(value, owned=True, born=born, size=0 if size is None else size)
        self._of[value] = storage
        self._lives[value] = Life(born, None, 0, storage.size)
        self._storages[value] = value
        return Held(value, storage)

    def _share(self, value: Value, storage: Storage) -> Held:
        self._storages[value] = storage.first
        self._of[value] = storage
        return Held(value, storage)

    def _append(
        self,
        op: str,
        inputs: Sequence[Value | None],
        types: Sequence[Type],
        attrs: Mapping[str, Attr],
        names: Sequence[str | None] | None,
        loc: Loc | None,
        source: str,
    ) -> Node:
        spend(50 + len(inputs), "statements of the wrapper")
        unique = None if names is None else [None if name is None else self.names.unique(name) for name in names]
        return self.graph.append(op, inputs, types, attrs, names=unique, loc=loc, source=source)

    def finish(self, outputs: Sequence[Held], kind: str, metadata: Mapping[str, str], examples: Mapping[str, int]) -> Program:
        """Return the program, and report lines that were not understood."""
        self.graph.set_outputs([one.value for one in outputs])
        for line, statement in self.unread:
            said = f"line {line} ({statement}) is not understood, and what it takes is not known"
            self.sink.warn("IRS129", said, about="inductor")
        facts = {
            **metadata,
            "device": ", ".join(self.devices),
            "allocations": str(self.allocations),
            "reused": str(self.reused),
            "generated kernels": str(self.kernels),
            "library calls": str(self.calls),
        }
        observed = Observed(self.graph, observed_versions(self.graph), self._lives, self._storages)
        return Program(
            self.graph,
            symbols=dict(self.symbols.named),
            format=kind,
            path=self.path,
            metadata={key: text for key, text in facts.items() if text},
            examples={name: size for name, size in examples.items() if name in self.symbols.named},
            observed=observed,
            traits=COMPILED,
        )


def unknown_size(line: int) -> Dim:
    """Return a size whose expression was not understood."""
    return unknown(f"line{line}", 0, None)


def _extent(type_: TensorType) -> Dim | None:
    """Return the bytes from a tensor's first element to its last, as `empty_strided` takes them; None where that is not known."""
    if not isinstance(type_.layout, tuple) or type_.shape is None or type_.dtype.bits is None:
        return type_.nbytes
    if any(size == 0 for size in type_.shape):
        return 0
    last: Dim = 1
    for size, stride in zip(type_.shape, type_.layout, strict=True):
        last = last + (size - 1) * stride
    return (last * type_.dtype.bits + 7) // 8


def _value(argument: Argument) -> Argument:
    """Return an argument as signatures want it."""
    if isinstance(argument, Held):
        return argument.value
    if isinstance(argument, tuple | list):
        return tuple([_value(item) for item in argument])
    return argument


def _signature(
    name: str, overload: str | None, positional: Sequence[Argument], named: Mapping[str, Argument]
) -> tuple[Signature, dict[str, Argument]] | None:
    """Return the overload that is called, with its arguments by name."""
    full = name.removeprefix("aten::")
    if overload is not None and (signature := find(full, overload)) is not None and len(positional) <= len(signature.params):
        # None stands for a tensor that is not there, also where the schema has none that may be absent.
        bound = {**{param.name: argument for param, argument in zip(signature.params, positional, strict=False)}, **named}
        if all(param.required is False or param.name in bound for param in signature.params):
            return signature, complete(signature, bound)
    found = resolve(full, positional, named)
    if found is None:
        # Calls of C leave arguments out that have a default, and give truth values as numbers.
        for signature in overloads(full):
            params = signature.params
            if len(positional) <= len(params) and not named:
                given = {param.name: _as_kind(argument, param.kind) for param, argument in zip(params, positional, strict=False)}
                of_c = signature.bind((), given)
                if of_c is not None:
                    return signature, complete(signature, of_c)
        return None
    return found[0], complete(found[0], found[1])


def _as_kind(argument: Argument, kind: str) -> Argument:
    if kind.startswith("bool") and isinstance(argument, int):
        return bool(argument)
    if kind.startswith("float") and isinstance(argument, int):
        return float(argument)
    return argument
