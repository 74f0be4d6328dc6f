"""What a Triton kernel that Inductor generated reads, writes and computes: counted in its source, which is parsed as data."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from irscope.budget import spend
from irscope.ir.dims import Dim, product
from irscope.ir.types import TensorType

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
        """Bytes read and written, and operations by class; None where the size of a loop is not known."""
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
            for axes, found in self.counts.items():
                turns = product(sizes[axis] for axis in sorted(axes))
                for name, times in found.items():
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
        """Bytes of all arguments: no more of one than it has, nor than the loops reach."""
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
    """The loops of a kernel with these parameters, in the order in which it is called; None for other kernels than Inductor's."""
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
    """What an expression stands for: the loops it changes in, and whether it is a number that is computed, or the place of one."""

    axes: Axes = frozenset()
    is_value: bool = False
    is_running: bool = False
    """What a reduction has so far."""


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
        """One operation on these operands; on places alone it is part of an address."""
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
        parts = [self.value(one) for one in node.args]
        if how == "where" and len(parts) == 3:
            # Behind a mask alone nothing is chosen: it is what lies outside of the loops.
            return self.operation(parts) if parts[0].is_value else _Found(_axes_of(parts[1:]), True, any(one.is_running for one in parts))
        if how == "broadcast_to" and len(parts) == 2:
            shape = node.args[1].elts if isinstance(node.args[1], ast.List) else ()
            wide = [self.name(one.id) for one in shape if isinstance(one, ast.Name)]
            return _Found(_axes_of([parts[0], *wide]), parts[0].is_value)
        return self.function(how, parts)

    def function(self, how: str, parts: Sequence[_Found]) -> _Found:
        """A function of numbers."""
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
