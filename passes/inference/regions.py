"""Types through control flow: branches are joined, loop state is widened to a fixpoint, short known loops are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from irscope.ir.dims import Dim, SymDim, bind, bounds, dim_max, equal
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import (
    UNKNOWN_TENSOR,
    UNKNOWN_TYPE,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    optional,
    sequence,
    tensor,
    tuple_of,
)
from irscope.ops.facts import Control
from irscope.ops.spec import Item, Known, OpCall, RuleError
from irscope.ops.values import is_symbolic
from irscope.passes.inference.engine import NO_FACT, Branch, DecidedBy, Fact, Inference, define_regions

UNROLL_LIMIT = 64
"""A loop of known trip count up to this is run step by step, so that state whose shape changes stays exact."""
WIDENING_LIMIT = 64
ENDLESS = 2**31 - 1
"""A trip count from this on is none."""


def _outputs(engine: Inference, region: Graph) -> list[Type]:
    return [engine.found.type_of(value) for value in region.outputs]


def _known_scalar(engine: Inference, value: Value | None) -> int | None:
    """Return a scalar value if it is a plain number."""
    if value is None:
        return None
    known = engine.found.values.get(value)
    if known is None and value.role is Role.INPUT and engine.may_be_symbolic(value):
        # A user may have bound it.
        known = engine.symbolic_value(value)
    if known is None or known.size != 1 or is_symbolic(known):
        return None
    return int(known.reshape(-1)[0])


# -- if, call --------------------------------------------------------------------------------------------------------


def infer_if(engine: Inference, node: Node) -> list[Type]:
    """Infer both branches, and return the one that a known condition takes, or the only one that the sizes allow, else the join."""
    decider = node.inputs[0] if node.inputs else None
    if decider is not None and decider not in engine.found.values and engine.may_be_symbolic(decider):
        # What data decides can be given as well.
        engine.symbolic_value(decider)
    condition = _known_scalar(engine, decider)
    if condition is not None and len(node.regions) == 2:
        return _infer_taken(engine, node, 0 if condition else 1, f"its condition is {'true' if condition else 'false'}")
    marks = [engine.mark()]
    for region in node.regions:
        engine.graph(region)
        marks.append(engine.mark())
    failed = [after.problems > before.problems for before, after in pairwise(marks)]
    decided_by = tuple(value for value in node.inputs[:1] if value is not None)
    if len(node.regions) == 2 and failed[0] != failed[1] and _contradicts(engine, marks[failed[1]].problems, marks[failed[1] + 1].problems):
        # Where a branch cannot run, a model that runs takes the other.
        engine.retract(marks[0])
        return _infer_taken(engine, node, int(failed[0]), "the other branch contradicts the sizes")
    why = "it depends on which branch is taken"
    _note_branch(engine, node, Branch(None, why, engine.reason(why, decided_by)))
    branches = [_outputs(engine, region) for region in node.regions]
    joined = branches[0] if branches else []
    for branch in branches[1:]:
        joined = [join(engine, a, b, why, decided_by=decided_by) for a, b in zip(joined, branch, strict=False)]
    return joined


def _contradicts(engine: Inference, first: int, last: int) -> bool:
    return all(problem.fault == "model" for problem in engine.found.problems[first:last])


def _note_branch(engine: Inference, node: Node, branch: Branch) -> None:
    """Note which branch a node takes; none is known where it is not the same each time the node runs."""
    before = engine.found.branches.get(node)
    if before is not None and before.taken != branch.taken and engine.depth > 1:
        branch = Branch(None, "it is not the same at each step", before.reason or branch.reason)
    engine.found.branches[node] = branch


def _infer_taken(engine: Inference, node: Node, place: int, why: str) -> list[Type]:
    """Return the branch that runs. The other one is inferred for readers only: what is wrong in it does not matter."""
    taken, other = node.regions[place], node.regions[1 - place]
    _note_branch(engine, node, Branch(place, why))
    mark = engine.mark()
    engine.graph(other)
    engine.retract(mark)
    engine.graph(taken)
    for output, value in zip(node.outputs, taken.outputs, strict=False):
        engine.learn(output, engine.fact(value))
    return _outputs(engine, taken)


def infer_call(engine: Inference, node: Node) -> list[Type]:
    """Return a function's body with this call's argument types."""
    callee = engine.program.functions.get(str(node.attrs.get("callee")))
    if callee is None:
        raise RuleError(f"there is no function {node.attrs.get('callee')!r}")
    _set_arguments(engine, callee, [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in node.inputs])
    engine.graph(callee)
    engine.step(node, 0)
    return _outputs(engine, callee)


def _set_arguments(engine: Inference, region: Graph, types: Sequence[Type], facts: Sequence[Fact] = ()) -> None:
    for index, (argument, type_) in enumerate(zip(region.inputs, types, strict=False)):
        engine.found.types[argument] = type_
        engine.learn(argument, facts[index] if index < len(facts) else NO_FACT)


# -- loops -----------------------------------------------------------------------------------------------------------


_NO_LIMIT = frozenset({2**31 - 1, 2**63 - 1})
"""Trip counts that exporters write for a loop that its condition alone ends, such as tf2onnx for a while loop."""


def infer_loop(engine: Inference, node: Node) -> list[Type]:
    """`cf.loop`: inputs (trip count, condition, state...); the body takes (iteration, condition, state...)
    and yields (condition, state..., one value per step and scan output...)."""
    (body,) = node.regions
    trip, condition, *state = node.inputs
    count = _known_scalar(engine, trip)
    if count in _NO_LIMIT:
        trip = count = None
    first = 1 if condition is None else _known_scalar(engine, condition)
    if first == 0:
        count = 0
    ran = _run_loop(engine, node, body, count, first is not None) if count is not None or first is not None else None
    if ran is not None:
        return ran
    # The body runs only while the condition holds; without one, the inputs of the body are unknown.
    truth = NO_FACT if condition is None else Fact(np.asarray(True))
    made = engine.made
    decided_by = tuple(value for value in (trip, condition) if value is not None)
    types = _fixpoint(engine, body, state, [(_COUNTER, NO_FACT), (_TRUTH, truth)], [], 1, decided_by)
    results = _outputs(engine, body)
    steps: Dim
    if trip is not None and first == 1 and _condition_stays_true(engine, body):
        steps = _trip_dim(engine, trip)
    else:
        # Exporters of loops that only their condition ends write the largest number.
        steps = engine.fresh("it is the number of times a loop runs", decided_by, 0, None if count is None or count >= ENDLESS else count)
    engine.found.trips[node] = steps
    # A step's result and the state it began with are of different times, so they get unknowns of their own.
    scanned = renewed(engine, results[1 + len(state) :], made)
    return [*renewed(engine, types, made), *(_stacked_type(type_, steps) for type_ in scanned)]


def _trip_dim(engine: Inference, trip: Value) -> Dim:
    element = engine.symbolic_value(trip).reshape(-1).tolist()[0] if engine.may_be_symbolic(trip) else None
    if isinstance(element, int | SymDim):
        return element if (bounds(element)[0] or -1) >= 0 else dim_max(0, element)
    return engine.fresh("it is the number of times a loop runs", "", 0, None)


def _condition_stays_true(engine: Inference, body: Graph) -> bool:
    if not body.outputs:
        return False
    if len(body.inputs) > 1 and body.outputs[0] is body.inputs[1]:
        return True
    return _known_scalar(engine, body.outputs[0]) == 1


def _run_loop(engine: Inference, node: Node, body: Graph, count: int | None, known_condition: bool) -> list[Type] | None:
    """Run a loop step by step while its condition is known; None when that cannot be done."""
    if not known_condition or (count is not None and UNROLL_LIMIT < count < ENDLESS):
        return None
    state = node.inputs[2:]
    types = [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in state]
    facts = [engine.fact(value) for value in state]
    rows: list[list[tuple[Type, Fact]]] = []
    alive = count != 0
    while alive and len(rows) != count:
        if len(rows) >= UNROLL_LIMIT:
            return None
        step, truth = Fact(np.asarray(len(rows), np.int64)), Fact(np.asarray(True))
        _set_arguments(engine, body, [_COUNTER, _TRUTH, *types], [step, truth, *facts])
        engine.graph(body)
        engine.step(node, len(rows))
        going_on = _known_scalar(engine, body.outputs[0])
        if going_on is None:
            return None
        results = [(engine.found.type_of(value), engine.fact(value)) for value in body.outputs[1:]]
        types, facts = [type_ for type_, _ in results[: len(state)]], [fact for _, fact in results[: len(state)]]
        rows.append(results[len(state) :])
        alive = bool(going_on)
    engine.found.trips[node] = len(rows)
    for output, fact in zip(node.outputs, facts, strict=False):
        engine.learn(output, fact)
    if rows:
        for at, output in enumerate(node.outputs[len(state) :]):
            engine.learn(output, Fact(_stack([row[at][1].known for row in rows])))
        elements = [[row[at][0] for row in rows] for at in range(len(rows[0]))]
    else:
        # The body never runs; its types are inferred all the same so that a reader sees them.
        _set_arguments(engine, body, [_COUNTER, _TRUTH, *types])
        engine.graph(body)
        elements = [[type_] for type_ in _outputs(engine, body)[1 + len(state) :]]
    return [
        *types,
        *(_stacked_type(reduce(lambda a, b: join(engine, a, b, "steps of a loop disagree"), each), len(rows)) for each in elements),
    ]


_COUNTER = tensor(DType.I64, ())
_TRUTH = tensor(DType.BOOL, ())


def _stack(parts: Sequence[Known | None]) -> Known | None:
    """Return the values of all steps as one array, None where a step's are unknown or differ in shape."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(part.shape != known[0].shape for part in known):
        return None
    return np.stack(known)


def _stacked_type(element: Type, steps: Dim) -> Type:
    if not isinstance(element, TensorType):
        return UNKNOWN_TENSOR
    return tensor(element.dtype, None if element.shape is None else (steps, *element.shape), element.device)


def _fixpoint(
    engine: Inference,
    body: Graph,
    state: Sequence[Value | None],
    lead: Sequence[tuple[Type, Fact]],
    tail: Sequence[Type],
    skip: int,
    decided_by: DecidedBy = "",
) -> list[Type]:
    """State types that one more step does not change. The body takes (lead..., state..., tail...); its state follows `skip` results."""
    current = [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in state]
    lead_types, lead_facts = [type_ for type_, _ in lead], [fact for _, fact in lead]
    lasting: list[Fact] = []
    first: list[Fact] = []
    for position, value in enumerate(state):
        argument, result = len(lead) + position, skip + position
        untouched = result < len(body.outputs) and argument < len(body.inputs) and body.outputs[result] is body.inputs[argument]
        fact = engine.fact(value)
        # A state that every step hands on untouched keeps its value; a list that begins empty is told to the first step.
        lasting.append(fact if untouched else NO_FACT)
        first.append(fact if untouched or fact.items == () else NO_FACT)
    widened: set[Dim] = set()
    why = "it changes from step to step of a loop"
    facts = first
    for _ in range(WIDENING_LIMIT):
        _set_arguments(engine, body, [*lead_types, *current, *tail], [*lead_facts, *facts])
        engine.graph(body)
        after = _outputs(engine, body)[skip : skip + len(current)]
        joined = [
            b if fact.items == () and isinstance(b, SequenceType) else join(engine, a, b, why, widened, decided_by)
            for a, b, fact in zip(current, after, facts, strict=False)
        ]
        if facts == lasting and all(a is b for a, b in zip(joined, current, strict=False)):
            return current
        current = joined + current[len(joined) :]
        facts = lasting
    raise RuleError("the types of the loop's state do not settle")


def _unchanged(engine: Inference, node: Node, body: Graph, state: Sequence[Value | None], slices: Sequence[Type]) -> list[Type]:
    """State types of a scan, which every step must leave as they are; sizes that a step spells otherwise are taken as equal."""
    current = [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in state]
    _set_arguments(engine, body, [*current, *slices])
    engine.graph(body)
    settled = [_agreed(engine, a, b) for a, b in zip(current, _outputs(engine, body), strict=False)]
    if any(type_ is None for type_ in settled):
        raise RuleError(f"{node.op}: a step changes the shape or element type of the state")
    final = [type_ for type_ in settled if type_ is not None]
    if any(a is not b for a, b in zip(final, current, strict=False)):
        _set_arguments(engine, body, [*final, *slices])
        engine.graph(body)
    return final


def _agreed(engine: Inference, before: Type, after: Type) -> Type | None:
    """Return the one type of a state before and after a step; None where the two cannot be the same."""
    if before is after or not (isinstance(before, TensorType) and isinstance(after, TensorType)):
        return before
    if DType.UNKNOWN not in (before.dtype, after.dtype) and before.dtype is not after.dtype:
        return None
    dtype = after.dtype if before.dtype is DType.UNKNOWN else before.dtype
    if before.shape is None or after.shape is None:
        return tensor(dtype, after.shape if before.shape is None else before.shape, before.device)
    if len(before.shape) != len(after.shape):
        return None
    sizes: list[Dim] = []
    for old, new in zip(before.shape, after.shape, strict=True):
        verdict = equal(old, new)
        if verdict is False:
            return None
        if verdict is None:
            engine.assume(old, new, "cf.scan: every step leaves the shape of the state as it is")
        is_better = isinstance(old, SymDim) and (not isinstance(new, SymDim) or (old.is_unknown and not new.is_unknown))
        sizes.append(new if is_better else old)
    return tensor(dtype, sizes, before.device)


def infer_scan(engine: Inference, node: Node) -> list[Type]:
    """`cf.scan`: inputs (state..., sequences...); the body takes (state..., slices...) and yields (state..., results per step...)."""
    (body,) = node.regions
    scanned = int(node.attrs.get("num_scan_inputs", 0))
    types = [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in node.inputs]
    state, sequences = node.inputs[: len(types) - scanned], types[len(types) - scanned :]
    in_axes = tuple(node.attrs.get("input_axes") or (0,) * scanned)
    steps: Dim | None = None
    slices: list[Type] = []
    for type_, axis in zip(sequences, in_axes, strict=False):
        if type_.shape is None:
            slices.append(UNKNOWN_TENSOR)
            continue
        place = axis % len(type_.shape)
        if steps is None or (isinstance(steps, SymDim) and isinstance(type_.shape[place], int)):
            steps = type_.shape[place]
        slices.append(tensor(type_.dtype, type_.shape[:place] + type_.shape[place + 1 :], type_.device))
    if steps is None:
        steps = engine.fresh("it is the number of steps of a scan over a tensor of unknown rank", "", 0, None)
    engine.found.trips[node] = steps
    made = engine.made
    final = _unchanged(engine, node, body, state, slices)
    outside = renewed(engine, [*final, *_outputs(engine, body)[len(state) :]], made)
    final, results = outside[: len(state)], outside[len(state) :]
    out_axes = tuple(node.attrs.get("output_axes") or (0,) * len(results))
    stacked: list[Type] = []
    for type_, axis in zip(results, out_axes, strict=False):
        if type_.shape is None:
            stacked.append(_stacked_type(type_, steps))
            continue
        place = axis % (len(type_.shape) + 1)
        stacked.append(tensor(type_.dtype, (*type_.shape[:place], steps, *type_.shape[place:]), type_.device))
    return [*final, *stacked]


def infer_map(engine: Inference, node: Node) -> list[Type]:
    """`cf.map`: the body runs for each element of the first sequence, other sequences in step, other values as they are."""
    (body,) = node.regions
    types = [engine.found.type_of(value) if value else UNKNOWN_TENSOR for value in node.inputs]
    facts = [engine.fact(value) for value in node.inputs]
    lengths = {len(fact.items) for fact in facts if fact.items is not None}
    unrolled = len(lengths) == 1 and 0 < max(lengths) <= UNROLL_LIMIT
    if len(lengths) == 1:
        engine.found.trips[node] = max(lengths)
    if unrolled and all(fact.items is not None for fact, type_ in zip(facts, types, strict=True) if isinstance(type_, SequenceType)):
        return _map_items(engine, node, types, facts, lengths.pop())
    made = engine.made
    arguments = [type_.element if isinstance(type_, SequenceType) else type_ for type_ in types]
    facts = [NO_FACT if isinstance(type_, SequenceType) else fact for type_, fact in zip(types, facts, strict=True)]
    _set_arguments(engine, body, arguments, facts)
    engine.graph(body)
    return [sequence(type_) for type_ in renewed(engine, _outputs(engine, body), made)]


def _map_items(engine: Inference, node: Node, types: Sequence[Type], facts: Sequence[Fact], length: int) -> list[Type]:
    """Run the body for each of the elements, which are known one by one."""
    (body,) = node.regions
    rows: list[list[Item]] = []
    for place in range(length):
        items = [Item(type_, fact.known) if fact.items is None else fact.items[place] for type_, fact in zip(types, facts, strict=True)]
        _set_arguments(engine, body, [item.type for item in items], [Fact(item.known) for item in items])
        engine.graph(body)
        engine.step(node, place)
        rows.append([Item(engine.found.type_of(value), engine.found.values.get(value)) for value in body.outputs])
    results: list[Type] = []
    for at, output in enumerate(node.outputs):
        column = tuple(row[at] for row in rows)
        engine.learn(output, Fact(items=column))
        results.append(sequence(reduce(lambda a, b: join(engine, a, b, "elements of the list differ"), [item.type for item in column])))
    return results


CONTROLS: dict[Control, Callable[[Inference, Node], list[Type]]] = {
    Control.BRANCH: infer_if,
    Control.CALL: infer_call,
    Control.LOOP: infer_loop,
    Control.SCAN: infer_scan,
    Control.MAP: infer_map,
}


# The most precise type that covers several: for branches, steps of a loop, and elements of a list.


def join(engine: Inference, left: Type, right: Type, why: str, widened: set[Dim] | None = None, decided_by: DecidedBy = "") -> Type:
    """Return the most precise type that covers both. With `widened`, sizes made unknown once stay as they are: a loop's fixpoint ends."""
    if left is right:
        return left
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        dtype = left.dtype if left.dtype is right.dtype else DType.UNKNOWN
        if left.shape is None or right.shape is None or len(left.shape) != len(right.shape):
            engine.explain(why, decided_by)
            return tensor(dtype, None, left.device)
        return tensor(
            dtype, [_join_dim(engine, a, b, why, widened, decided_by) for a, b in zip(left.shape, right.shape, strict=True)], left.device
        )
    if isinstance(left, SequenceType) and isinstance(right, SequenceType):
        return sequence(join(engine, left.element, right.element, why, widened, decided_by))
    if isinstance(left, OptionalType) and isinstance(right, OptionalType):
        return optional(join(engine, left.element, right.element, why, widened, decided_by))
    if isinstance(left, TupleType) and isinstance(right, TupleType) and len(left.elements) == len(right.elements):
        return tuple_of(join(engine, a, b, why, widened, decided_by) for a, b in zip(left.elements, right.elements, strict=True))
    engine.explain(why, decided_by)
    return UNKNOWN_TYPE


def _join_dim(engine: Inference, left: Dim, right: Dim, why: str, widened: set[Dim] | None, decided_by: DecidedBy) -> Dim:
    if left == right:
        return left
    if widened is not None:
        if left not in widened:
            left = engine.fresh(why, decided_by, 0, None)
            widened.add(left)
        return left
    (low, high), (other_low, other_high) = bounds(left), bounds(right)
    lo = min(low, other_low) if low is not None and other_low is not None else 0
    hi = max(high, other_high) if high is not None and other_high is not None else None
    return engine.fresh(why, decided_by, max(lo, 0), hi)


def renewed(engine: Inference, types: Sequence[Type], since: int = 0) -> list[Type]:
    """Return the types with new unknowns in place of those made after the first `since`: what was the same within one step of a loop, or
    for one element of a list, need not be the same for another."""
    names: dict[str, Dim] = {}
    return [_renewed(engine, type_, since, names) for type_ in types]


def _renewed(engine: Inference, type_: Type, since: int, names: dict[str, Dim]) -> Type:
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.is_static:
            return type_
        return type_.with_shape([_renewed_dim(engine, dim, since, names) for dim in type_.shape])
    if isinstance(type_, SequenceType):
        return sequence(_renewed(engine, type_.element, since, names))
    if isinstance(type_, OptionalType):
        return optional(_renewed(engine, type_.element, since, names))
    if isinstance(type_, TupleType):
        return tuple_of([_renewed(engine, member, since, names) for member in type_.elements])
    return type_


def _renewed_dim(engine: Inference, dim: Dim, since: int, names: dict[str, Dim]) -> Dim:
    if not isinstance(dim, SymDim) or not dim.is_unknown:
        return dim
    for old in dim.symbols():
        name = str(old)
        if name not in names and old.is_unknown and engine.is_made_since(name, since):
            reason = engine.found.reasons.get(name)
            made = engine.fresh(reason.text if reason else "", "", *bounds(old))
            if reason is not None:
                engine.found.reasons[str(made)] = reason
            names[name] = made
    return bind(dim, names)


# Lists whose elements are known one by one: the types of all of them, not only what they have in common.

MOST_ITEMS = 256
"""Longer lists are known only by what their elements have in common."""


class KnownLists:
    """Interface of an operator's rule for lists, for one node (`irscope.ops.spec.Lists`)."""

    def __init__(self, engine: Inference, node: Node, call: OpCall, inferred: list[Type]) -> None:
        call.results = inferred
        self.call = call
        self._engine = engine
        self._node = node
        self._inferred = inferred

    @property
    def items(self) -> tuple[Item, ...] | None:
        """Elements of the first operand; None where they are not known one by one."""
        first = self._node.inputs[0] if self._node.inputs else None
        return None if first is None else self._engine.found.lists.get(first)

    def operand(self, index: int) -> Item | None:
        """Return an operand as the element of a list; None where it is absent."""
        value = self._node.inputs[index] if index < len(self._node.inputs) else None
        return None if value is None else Item(self._engine.found.type_of(value), self._engine.found.values.get(value))

    def join(self, types: Sequence[Type]) -> Type:
        """Return what the types of several elements have in common."""
        return reduce(lambda a, b: join(self._engine, a, b, "elements of the list differ"), types)

    def is_list(self, items: tuple[Item, ...]) -> None:
        """Let the first result be the list of these elements."""
        if len(items) > MOST_ITEMS:
            return
        self._engine.learn(self._node.outputs[0], Fact(items=items))
        if items:
            self._inferred[0] = sequence(self.join([item.type for item in items]))

    def is_operand(self) -> None:
        """Let the first result be the list that the first operand is."""
        if self.items is not None:
            self._engine.learn(self._node.outputs[0], Fact(items=self.items))

    def is_item(self, index: int, item: Item) -> None:
        """Let a result be that element."""
        self._inferred[index] = item.type
        self._engine.learn(self._node.outputs[index], Fact(item.known))

    def is_any(self, index: int) -> None:
        """Let a result be one element of which nobody knows which: its unknown sizes are its own."""
        self._inferred[index : index + 1] = renewed(self._engine, self._inferred[index : index + 1])


define_regions(CONTROLS, KnownLists)
