"""What XLA's CPU compiler says of a program: its memory, and the FLOPs of what it made of it.

FLOPs follow HloCostAnalysis of XLA, which goes over the program behind all optimisations. There, equal operators are there once, those
that change nothing are gone, and what is fused into several kernels is computed in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from irscope.ir.dims import Dim, SymDim, dim_max, exact_div
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.places import Literal
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.general import BARRIER, BITS_AS, COUNTS, EXPANDED_WORK, LARGEST, SUMS
from irscope.ops.registry import plays, roles_of, spec_of
from irscope.ops.spec import Family, OpCall, RuleError
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.fused import SCATTERED, Body, plan_fused
from irscope.passes.lifetimes.kernels import Step
from irscope.passes.lifetimes.packed import FusedPlan, assigned
from irscope.passes.lifetimes.sharded import Sharding
from irscope.passes.lifetimes.values import COMPUTED, Values
from irscope.passes.sizes import dim_cell
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_NEUTRAL: Final[dict[OpRole, tuple[float, bool]]] = {
    OpRole.MULTIPLY: (1, True),
    OpRole.ADD: (0, True),
    OpRole.DIVIDE: (1, False),
    OpRole.SUBTRACT: (0, False),
}
"""Constants that change nothing, and whether they may be the first operand as well."""
_WITH_CONSTANT: Final = ((OpRole.MULTIPLY, OpRole.DIVIDE), (OpRole.ADD, OpRole.SUBTRACT))
_LARGER: Final = "math.maximum"
_CHOOSES: Final = 7
"""Operations of the function with which SelectAndScatterExpander looks for the largest of a window, beside a select for each axis."""
_FOURIER: Final = "fft.transform"
_BUTTERFLY: Final = 8
"""FLOPs of XLA's count for each element of a Fourier transform and power of two of a length: four fused multiplications and additions
(HloCostAnalysis::HandleFft), whose powers are multiplied where there are several lengths."""
_LIBRARY: Final = "custom_call.lapack_"
"""Operators that stay calls of LAPACK in what the compiler made. Of their work it says -1, which its sum takes like any other number."""
_COUNT_NOTE: Final = (
    "cost_analysis counts what the compiler made: bodies of loops once, transcendental functions apart, conversions too, "
    "what is fused into two kernels twice, and calls of LAPACK as -1, as their work is not known to it"
)
_WORK: Final = ("cost_analysis_flops", "cost_analysis_transcendentals")
Work: TypeAlias = tuple[Dim, Dim]
"""FLOPs, and transcendental functions of elements."""


class _Simplified(Body):
    """A graph without operators that are there twice, or change nothing: their results are those of others."""

    def _alias(self) -> None:
        super()._alias()
        self.numbers: dict[Value, float] = {} if self.around is None else getattr(self.around, "numbers", {})
        """Results all of whose elements are one number, which the compiler computes (HloConstantFolding)."""
        self._distinct: dict[Value, int] = {}
        self.late: dict[Node, Node] = {}
        """Nodes that run where another one stands."""
        seen: dict[object, Value] = {}
        for node in self.steps:
            spec = spec_of(node)
            if spec is None or node.regions or len(node.outputs) != 1 or node.outputs[0] in self.roots or spec.family is Family.RANDOM:
                continue
            output = node.outputs[0]
            kept = self._kept(node) or self._joined(node) or self._scattered_onto(node)
            if kept is not None:
                self.roots[output] = kept
                continue
            self._moved(node)
            number = self._folded(node)
            if number is not None:
                self.numbers[output] = number
                if not math.isnan(number):
                    continue
            if any(isinstance(user, Node) and user.regions for user in output.users or ()):
                continue  # a loop writes over each of its states
            operands = tuple(None if value is None else self._name(value) for value in node.inputs)
            first = seen.setdefault((node.op, str(dict(node.attrs)), operands, str(self.types.type_of(output))), output)
            if first is not output:
                self.roots[output] = first
        if self.late:
            stands = {other: made for made, other in self.late.items()}
            moved = [stands.get(node, node) for node in self.steps if node not in self.late]
            self.steps = moved
            self.place = {node: step for step, node in enumerate(self.steps)}

    def _moved(self, node: Node) -> None:
        """Have a node read what is behind a negation or a factor, where the compiler does less of that elsewhere."""
        below = [self.root(value).node for value in node.inputs if value is not None]
        if plays(node, OpRole.MULTIPLY) and len(below) == 2:
            if all(one is not None and plays(one, OpRole.NEGATE) for one in below):
                self.operands[node] = [one.inputs[0] for one in below if one is not None and one.inputs[0] is not None]
            for made, other in ((below[0], node.inputs[1]), (below[1], node.inputs[0])):
                whole = None if made is None else self._by_constant(made, _WITH_CONSTANT[0])
                if whole is not None and other is not None and 1 < self.breadth(self.root(other)) < self.elements(node.outputs[0]):
                    self.operands[node] = [whole, other]  # what is repeated is multiplied instead
        elif len(below) == 1 and below[0] is not None and plays(below[0], OpRole.NEGATE) and node.op == SUMS:
            self.operands[node] = [value for value in below[0].inputs if value is not None]  # the sum is negated instead

    def _literal(self, value: Value) -> Literal | None:
        """Return the numbers of a constant, of this graph or of those around it."""
        inner: Values | None = self if value.role is Role.CONSTANT else None
        while inner is not None and value not in inner.graph.data:
            inner = inner.around
        data = None if inner is None else inner.graph.data[value]
        return data if isinstance(data, Literal) else None

    def _name(self, value: Value) -> object:
        """Return what is the same for equal constants."""
        data = self._literal(value)
        if data is not None:
            return (str(self.types.type_of(value)), data.values)
        number = self.numbers.get(self.root(value), math.nan)
        if not math.isnan(number):
            return (number, str(self.types.type_of(value)))
        root = value
        while not _is_barrier(root.node) and (above := self.roots.get(root)) is not None:
            root = above
        return (root, str(self.types.type_of(value)))

    def _kept(self, node: Node) -> Value | None:
        """Return the operand that is the result, as the other one is neutral, or as others are empty."""
        if OpRole.CONCATENATE in roles_of(node):
            parts = [value for value in node.inputs if value is not None and self.elements(value)]
            return parts[0] if len(parts) == 1 else None
        if OpRole.SELECT in roles_of(node) and node.inputs[0] is not None and (chosen := self._constant(node.inputs[0])) is not None:
            return node.inputs[1 if chosen else 2] if not math.isnan(chosen) else None
        if len(node.inputs) != 2:
            return None
        neutral = next((_NEUTRAL[role] for role in _NEUTRAL if plays(node, role)), (float("-inf"), True) if node.op == _LARGER else None)
        if neutral is None:
            return None
        number, is_either = neutral
        for place in (1, 0) if is_either else (1,):
            other, kept = node.inputs[place], node.inputs[1 - place]
            if other is not None and kept is not None and self._constant(other) == number:
                return kept if self.types.type_of(kept) == self.types.type_of(node.outputs[0]) else None
        return None

    def _joined(self, node: Node) -> Value | None:
        """Return the operand that is scaled or shifted by a constant as well, as the compiler makes one constant of both."""
        for roles in _WITH_CONSTANT:
            value = self._by_constant(node, roles)
            inner = None if value is None else self.root(value).node
            if value is None or inner is None or self._by_constant(inner, roles) is None or len(value.users or ()) != 1:
                continue
            type_ = self.types.type_of(node.outputs[0])
            if (
                isinstance(type_, TensorType)
                and type_.dtype.is_float
                and self.types.type_of(value) is type_ is self.types.type_of(inner.outputs[0])
            ):
                return value
        return None

    def _scattered_onto(self, node: Node) -> Value | None:
        """Return the scatter that adds to nothing, whose result is added: the compiler adds to the other operand at once (HandleAdd)."""
        if not plays(node, OpRole.ADD) or len(node.inputs) != 2:
            return None
        for place, value in enumerate(node.inputs):
            made, other = value.node if value is not None else None, node.inputs[1 - place]
            if value is None or made is None or other is None or not made.attrs.get("adds") or len(value.users or ()) != 1:
                continue
            start = made.inputs[0]
            if made not in self.operands and start is not None and self._constant(start) == 0:
                self.operands[made] = [other, *(one for one in made.inputs[1:] if one is not None)]
                self.late[made] = node
                return value
        return None

    def _by_constant(self, node: Node, roles: tuple[OpRole, OpRole]) -> Value | None:
        """Return what a node combines with a constant, by one of two roles, of which the second has the constant behind."""
        if len(node.inputs) == 2 and any(plays(node, role) for role in roles):
            for place in (1, 0) if plays(node, roles[0]) else (1,):
                by = node.inputs[place]
                if by is not None and self._constant(by) is not None:
                    return node.inputs[1 - place]
        return None

    def _folded(self, node: Node) -> float | None:
        """Return the number that all elements of a result are, of operands of which that is known; any where it has none."""
        if not self.elements(node.outputs[0]):
            return 0.0
        numbers = [None if value is None else self._constant(value) for value in node.inputs]
        known = [number for number in numbers if number is not None]
        spec = spec_of(node)
        if not known or len(known) < len(numbers) or spec is None:
            return None
        if spec.family not in (Family.ELEMENTWISE, Family.COMPARISON):
            return known[0] if OpRole.CONVERT in spec.roles else None
        types = [self.types.type_of(value) for value in node.inputs if value is not None]
        call = OpCall(spec, types, node.attrs, [np.asarray(number) for number in known], [self.types.type_of(node.outputs[0])])
        try:
            with np.errstate(all="ignore"):
                found = None if spec.evaluate is None else spec.evaluate(call)
            return float(found.flat[0]) if isinstance(found, np.ndarray) and found.size else math.nan
        except (RuleError, ArithmeticError, TypeError, ValueError):
            return math.nan

    def distinct(self, value: Value) -> int:
        """Return how many elements are computed: of a value that is repeated those that are, also through operators that have no other
        operand, as they are computed before it is repeated (TryToSinkBroadcastAfterOpWithUniqueNonScalarOperand)."""
        root = self.root(value)
        node, count = root.node, self._distinct.get(root)
        if count is not None:
            return count
        count = self.elements(root)
        spec = spec_of(node) if node is not None and node in self.place else None
        if node is not None and spec is not None and len(node.outputs) == 1:
            operands = dict.fromkeys(self.root(one) for one in node.inputs if one is not None and self._constant(one) is None)
            axis, type_ = node.attrs.get("axis"), self.types.type_of(root)
            shape = type_.shape or () if isinstance(type_, TensorType) else ()
            if node.op == COUNTS and isinstance(axis, int) and -len(shape) <= axis < len(shape):
                size = shape[axis]
                count = size if isinstance(size, int) else count
            elif OpRole.SPREAD in spec.roles and operands:
                count = self.distinct(next(iter(operands)))
            elif spec.family in (Family.ELEMENTWISE, Family.COMPARISON) or OpRole.CONVERT in spec.roles:
                wide = [one for one in operands if self.elements(one) > 1]
                if len(wide) == 1 and self.distinct(wide[0]) > 1:
                    count = min(count, self.distinct(wide[0]))
        self._distinct[root] = count
        return count

    def _is_free(self, node: Node) -> bool:
        return node.outputs[0] in self.numbers or super()._is_free(node)

    def _constant(self, value: Value) -> float | None:
        """Return the number that all elements are."""
        root = self.root(value)
        while root not in self.numbers and root.node is not None and plays(root.node, OpRole.SPREAD):
            spread = next(iter(root.node.inputs), None)
            if spread is None:
                break
            root = self.root(spread)
        if root in self.numbers:
            return self.numbers[root]
        data = self._literal(root)
        number = data.values[0] if data is not None and len(data.values) == 1 else None
        return float(number) if isinstance(number, int | float) else None


def _is_barrier(node: Node | None) -> bool:
    """Return whether a node keeps the compiler from joining what is computed behind it with the same before it."""
    return node is not None and node.op == BARRIER


class _Counter:
    """Work of the graphs of a program on one device."""

    def __init__(self, types: Inferred, costs: Costs, sharding: Sharding | None) -> None:
        self._types, self._costs, self._sharding = types, costs, sharding
        self.unknown = ""
        """Why the work is not known."""
        self._wide: set[tuple[Value, Step | None]] = set()
        """Narrow floats that have been brought into f32, with the kernel that does; None where products read them."""
        self._added = {} if sharding is None else {one.node: one.devices for one in sharding.exchanges if one.node in sharding.partial}

    def of_graph(self, graph: Graph, around: _Simplified | None = None) -> Work:
        """Return the sum over a graph: of its branches the dearest, bodies of loops once."""
        body = _Simplified(graph, self._types, (), around)
        if self._sharding is not None:
            body.parts = self._sharding.parts
        flops: Dim = 0
        functions: Dim = 0
        for node in body.steps:
            if not node.regions and node.outputs and (node.outputs[0] in body.roots or node.outputs[0] in body.numbers):
                continue
            if node.regions:
                inside = [self.of_graph(region, body) for region in node.regions]
                once: Work = (dim_max(*(one[0] for one in inside)), dim_max(*(one[1] for one in inside)))
                times = 1
            else:
                once, times = self._of_node(node, body), len(body.into[node])
                flops = flops + self._brought_wide(node, body)
            flops, functions = flops + once[0] * times, functions + once[1] * times
        return flops, functions

    def _is_mask(self, node: Node, body: Body) -> bool:
        """Return whether truth values become numbers that are only multiplied, which is a choice, or a call's places become i32."""
        source = node.inputs[0]
        if source is None or (source.node is not None and source.node.op == LARGEST):
            return source is not None
        type_, users = self._types.type_of(source), body.users.get(node.outputs[0], [])
        is_truth = isinstance(type_, TensorType) and type_.dtype is DType.BOOL
        return is_truth and bool(users) and all(user is not None and plays(user, OpRole.MULTIPLY) for user in users)

    def _of_node(self, node: Node, body: _Simplified) -> Work:
        if node.op.startswith(_LIBRARY):
            return -1, 0
        cost = self._costs.by_node.get(node)
        if cost is None or spec_of(node) is None:
            self.unknown = "the cost of an operator is not known"
            return 0, 0
        if not node.outputs:
            return 0, 0
        output = node.outputs[0]
        readers = [user for place in node.outputs[1:] for user in place.users or ()]
        if node.op == LARGEST and any(isinstance(user, Node) and body.into.get(user) for user in readers):
            return -1, 0  # a call, as places are wanted; else values are sorted
        functions = cost.transcendental
        if node.op in EXPANDED_WORK:
            flops, functions = (self._elements(output) * number for number in EXPANDED_WORK[node.op])
        else:
            flops = self._flops(node, cost, body)
        if len(node.outputs) == 1 and (distinct := body.distinct(output)) < body.elements(output):
            flops, functions = (number * distinct // body.elements(output) for number in (flops, functions))
        parts, added = body.parts(output), self._added.get(node, 1)
        whole, functions = self._part(flops, parts * added), self._part(functions, parts)
        return (whole + self._part(self._elements(output), parts) if added > 1 else whole), functions

    def _flops(self, node: Node, cost: Cost, body: _Simplified) -> Dim:
        """Return what is no transcendental function."""
        output, flops = node.outputs[0], cost.flops - cost.transcendental
        spec = spec_of(node)
        roles, family = (frozenset(), None) if spec is None else (spec.roles, spec.family)
        first = node.inputs[0] if node.inputs else None
        if node.op == LARGEST:
            count = self._elements(first or output)
            return count * ((count - 1).bit_length() if isinstance(count, int) else 1)
        if OpRole.CONVERT in roles:
            return 0 if self._is_mask(node, body) else self._elements(output)
        if node.op == BITS_AS:
            return self._elements(output)
        if flops == 0:
            return flops
        if family is Family.CONTRACTION and not body.is_product(node):
            return cost.macs  # nothing is added up: the compiler multiplies
        groups = node.attrs.get("batch_groups")
        if isinstance(groups, int) and groups > 1:  # all groups with all, what is not wanted made zero, and added up
            return flops * groups + self._elements(output) * (3 * groups - 1)
        if node.op == SCATTERED:
            return self._scattered(node)
        if node.op == _FOURIER:
            return self._fourier(node)
        if family is Family.REDUCTION and first is not None and flops == self._elements(first):
            return flops - self._elements(output)  # the first element of each sum is not added
        by = node.inputs[1] if OpRole.DIVIDE in roles and len(node.inputs) == 2 else None
        if by is not None and 1 < body.distinct(by) < body.elements(output):
            return flops + body.distinct(by)  # reciprocals, by which is multiplied
        return flops

    def _part(self, number: Dim, parts: int) -> Dim:
        """Return what one device has of it."""
        if parts == 1 or isinstance(number, int):
            return -(-number // parts) if isinstance(number, int) else number
        part = exact_div(number, parts)
        if part is None:
            self.unknown = "what a device has of an open size is not known"
        return 0 if part is None else part

    def _elements(self, value: Value) -> Dim:
        type_ = self._types.type_of(value)
        count = type_.numel if isinstance(type_, TensorType) else None
        if count is None or (isinstance(count, SymDim) and count.is_unknown):
            self.unknown = "a size is not known"
            return 0
        return count

    def _scattered(self, node: Node) -> Dim:
        """Look for the largest element of each window with its place, and add to what is there."""
        source, kernel, type_ = node.inputs[1], node.attrs.get("kernel"), self._types.type_of(node.outputs[0])
        sizes = [size for size in kernel if isinstance(size, int)] if isinstance(kernel, tuple) else []
        work = node.attrs.get("work", 1)
        axes = len(type_.shape or ()) if isinstance(type_, TensorType) else 0
        each = (math.prod(sizes) - 1) * (_CHOOSES + axes) + (work if isinstance(work, int) else 1)
        return self._elements(source) * each if source is not None else 0

    def _fourier(self, node: Node) -> Dim:
        """Count a transform by the elements of its operand and its lengths."""
        lengths, source = node.attrs.get("sizes"), node.inputs[0]
        sizes = [size for size in lengths if isinstance(size, int)] if isinstance(lengths, tuple) else []
        if source is None or not isinstance(lengths, tuple) or len(sizes) < len(lengths) or min(sizes, default=0) < 1:
            self.unknown = "a length of a Fourier transform is not known"
            return 0
        return self._elements(source) * _BUTTERFLY * math.prod(size.bit_length() - 1 for size in sizes)

    def _brought_wide(self, node: Node, body: Body) -> Dim:
        """Count elements that are brought into f32 and back, as narrow floats are not computed with on a CPU: of an operand once in each
        kernel, and once for all products."""
        cost, spec = self._costs.by_node.get(node), spec_of(node)
        if cost is None or spec is None or cost.flops == 0 or OpRole.CONVERT in spec.roles or node.op.startswith(_LIBRARY):
            return 0
        kernels: Iterable[Step | None] = (None,) if body.is_product(node) else body.into[node]
        found: Dim = 0
        operands = {body.root(value) for value in node.inputs if value is not None}
        for value in (one for one in operands if self._is_narrow(one) and body.breadth(one) != 0):
            spread = value.node is not None and plays(value.node, OpRole.SPREAD) and value.node.inputs[0]
            for kernel in kernels:
                if (value, kernel) not in self._wide:
                    self._wide.add((value, kernel))
                    found = found + self._part(self._elements(spread or value), body.parts(value))  # of a repeated value what is repeated
        for value in (one for one in node.outputs if self._is_narrow(one)):
            found = found + self._part(self._elements(value), body.parts(value)) * len(body.into[node])
        return found

    def _is_narrow(self, value: Value) -> bool:
        type_ = self._types.type_of(value)
        return isinstance(type_, TensorType) and type_.dtype.is_float and (type_.dtype.bits or COMPUTED) < COMPUTED


def _exchanges(plan: FusedPlan) -> tuple[Table, ...]:
    rows = [(one.node.name, one.kind, one.nbytes, one.devices) for one in plan.exchanges]
    columns = ["at:node", "exchange", "bytes:bytes", "devices:count"]
    return (Table.of(rows, columns=columns, title="exchanged between devices"),) if rows else ()


def _sharding(ctx: PassContext) -> Sharding | None:
    program = ctx.program
    return Sharding(program.graph, ctx.get(Shapes), program.mesh, program.cuts) if program.mesh else None


def _cost_analysis(ctx: PassContext) -> dict[str, object]:
    """Return what `cost_analysis()` would say; unknown where the cost of an operator is."""
    counter = _Counter(ctx.get(Shapes), ctx.get(NodeCosts()), _sharding(ctx))
    work, note = counter.of_graph(ctx.program.graph), counter.unknown
    return {
        name: Quantity(None if note else dim_cell(number), Provenance.UNKNOWN if note else Provenance.MODELLED, note=note)
        for name, number in zip(_WORK, work, strict=True)
    }


@dataclass(frozen=True)
class XlaMemory(Analysis[FusedPlan]):
    """Predict what XLA's CPU compiler says of a program: bytes of arguments, results and temporaries, and FLOPs."""

    name: ClassVar[str] = "xla-memory"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    def compute(self, graph: Graph, ctx: PassContext) -> FusedPlan:
        types, program = ctx.get(Shapes), ctx.program
        if program.assigned is not None:
            return assigned(graph, program.assigned)
        plan = plan_fused(graph, types, program.aliased, _sharding(ctx), _Simplified)
        plan.devices = math.prod(program.mesh.values())
        return plan

    def report(self, result: FusedPlan, ctx: PassContext) -> Report:
        rows = [
            (
                value.name if value.node is None else value.node.name,
                str(value.node.loc) if value.node is not None and value.node.loc is not None else "",
                *(one.size, one.born, one.dies),
                "result" if one.is_output else "in a result" if one.is_shared else "",
            )
            for one, value in ((one, one.tenants[-1][0]) for one in result.storages)
        ]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={**result.summary(), **_cost_analysis(ctx)},
            units={_WORK[0]: Kind.FLOPS, _WORK[1]: Kind.COUNT},
            notes=(result.note, _COUNT_NOTE),
            tables=(
                *_exchanges(result),
                Table.of(rows, columns=["at:node", "line", "size:bytes", "born:index", "dies:index", "lies"], title="buffers"),
            ),
        )
