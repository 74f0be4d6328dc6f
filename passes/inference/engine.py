"""The engine of the `shapes` pass: types and small values of every node, in program order, never giving up on the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from irscope.budget import OverBudget, spend
from irscope.immutable import immutable, mutable
from irscope.ir.bind import bindable_elements, element_stem
from irscope.ir.dims import Dim, SymDim, symbol, unknown
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr, Facet, Graph, Node, Role, Value
from irscope.ir.places import Blob, Literal, Scalar
from irscope.ir.program import Program, Relation
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, ScalarType, TensorType, Type
from irscope.ops.facts import Control
from irscope.ops.reals import Real
from irscope.ops.registry import find_op
from irscope.ops.spec import SIZES, Item, Known, Lists, OpCall, OpSpec, RuleContext, RuleError, WatchedValues
from irscope.ops.values import MAX_ELEMENTS, from_bytes, has_reals, is_symbolic, objects, settle, static_shape, to_array

SYMBOLIC_ELEMENTS = 64
"""Integer tensors up to this size get a symbol per element when a shape depends on them, and what is computed from symbols is followed
element by element up to it: shapes are made of few elements, while a mask spread over heads and positions has thousands, each with a
cause of its own."""
MAX_REGION_DEPTH = 100

DecidedBy: TypeAlias = str | tuple[Value, ...]
"""Origin of an unknown: values of the graph, or a rule's own words for it (`OpCall.unknown`)."""


@mutable(slots=True, eq=False)
class Reason:
    """The reason why something is unknown: the node it began at, in words, and what decides it."""

    node: str
    text: str
    values: tuple[Value, ...] = ()
    """Values whose elements decide it."""
    sizes: tuple[Value, ...] = ()
    """Values whose sizes decide it."""
    fix: str = ""
    """The options of the command line that make it known; empty where none does."""
    root: Reason | None = None
    """The first cause, where this is only what follows from another."""
    decided_by: str = ""
    """The model's inputs that decide it, in words."""

    @property
    def first(self) -> Reason:
        """Return the first cause."""
        return self.root or self


@immutable
class Assumption:
    """Two sizes taken to be related because an operator requires it."""

    left: Dim
    right: Dim
    node: str
    why: str
    relation: Relation = Relation.EQUAL
    is_certain: bool = True
    """True where the node runs whenever the model does: it is in no branch or loop."""


@mutable(slots=True, eq=False)
class Branch:
    """The bodies that a node with a condition runs."""

    taken: int | None
    """Its place among the bodies; None where the condition is not known, or not the same whenever the node runs."""
    why: str
    reason: Reason | None = None
    """Reason that decides it, where it is not known."""


@immutable
class Problem:
    """A node whose rule could not be applied; `fault` says whether the model contradicts itself or irscope has a bug."""

    node: Node
    text: str
    fault: str


class Fact(NamedTuple):
    """Knowledge about a value besides its type."""

    known: Known | None = None
    items: tuple[Item, ...] | None = None


NO_FACT = Fact()


@mutable
class Inferred:
    """Everything the engine found."""

    types: dict[Value, Type] = field(default_factory=dict)
    """Types of node results and region arguments; what graphs declare keeps its own type."""
    values: dict[Value, Known] = field(default_factory=dict)
    lists: dict[Value, tuple[Item, ...]] = field(default_factory=dict)
    """Elements of lists whose length is known."""
    reasons: dict[str, Reason] = field(default_factory=dict)
    """By the text of an unknown symbol."""
    rank_reasons: dict[Value, Reason] = field(default_factory=dict)
    """For values whose rank or element type is unknown."""
    assumptions: list[Assumption] = field(default_factory=list)
    fitting: list[Assumption] = field(default_factory=list)
    """Sizes that others have to hold, as images their windows: too many to list."""
    problems: list[Problem] = field(default_factory=list)
    foreign: dict[str, int] = field(default_factory=dict)
    """Operators without a record, with the number of nodes."""
    trips: dict[Node, Dim] = field(default_factory=dict)
    """Trip count of each loop, scan or map."""
    branches: dict[Node, Branch] = field(default_factory=dict)
    idle: set[Node] = field(default_factory=set)
    """Nodes in branches that are not taken."""
    given: set[str] = field(default_factory=set)
    """Unknown sizes, by their text, that a user gave a number."""
    kinds: dict[Graph, tuple[int, list[object]]] = field(default_factory=dict)
    """The kinds of nodes of whole graphs, and the version of the topology that they are of: see `kinds_of`."""

    def kinds_of(self, graph: Graph) -> Iterable[object]:
        """Return for each node of this level, in order, what stands for its kind: the very same for nodes without regions that have one
        operator, equal attributes and equal types of operands and results. None for a node that may be like no other."""
        version, kinds = self.kinds.get(graph, (None, []))
        return kinds if version == graph.versions[Facet.TOPOLOGY] and len(kinds) == len(graph) else repeat(None, len(graph))

    def type_of(self, value: Value | None) -> Type:
        """Return the best known type of a value; of an absent operand nothing is known."""
        return UNKNOWN_TYPE if value is None else self.types.get(value, value.type)


_AT_ONCE: Final = 100
"""Nodes for which the budget is asked at once."""
_CONTROLS: dict[Control, Callable[[Inference, Node], list[Type]]] = {}
_LISTS: list[Callable[[Inference, Node, OpCall, list[Type]], Lists]] = []


def define_regions(
    controls: Mapping[Control, Callable[[Inference, Node], list[Type]]], lists: Callable[[Inference, Node, OpCall, list[Type]], Lists]
) -> None:
    """Register the rules of control flow and lists. They run bodies in an inference: their module calls this when it is imported."""
    _CONTROLS.update(controls)
    _LISTS.append(lists)


class Answer(NamedTuple):
    """Answer of an operator's rules for one use of it, where they noted nothing about the node or its values alone."""

    types: tuple[Type, ...]
    values: tuple[Known | None, ...]
    known: WatchedValues
    """Elements of the operands. Answers that follow from them are found by their identity, so they must stay."""


class Mark(NamedTuple):
    """Numbers of notes about a model at some time."""

    problems: int
    assumptions: int
    foreign: dict[str, int]


class Inference(RuleContext):
    """One run over a program."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self._seen = program.watched is not None
        """True where results have the types that they had in a run."""
        self.found = Inferred()
        self.depth = 0
        self._node: Node | None = None
        self._explained: Reason | None = None
        self._assumed: set[tuple[Dim, Dim, Relation, bool]] = set()
        self._faulty: set[Node] = set()
        self._possible: dict[TensorType, bool] = {}
        self.keeps_answers = True
        """True where rules see nothing of a node but its operator, attributes, types and elements, so that like nodes have like results."""
        self._answers: dict[Hashable, Answer | dict[Hashable, Answer]] = {}
        """By what the results of a node follow from. Where also elements of operands decide them, by their identities behind that."""
        self._attrs: dict[int, Hashable] = {}
        """Key of a node's attributes, by their identity: frontends let like nodes share them."""
        self._attr_numbers: dict[Hashable, int] = {}
        self._literals: dict[tuple[Type, bytes], Known] = {}
        """Each distinct constant once: like nodes then have the very same operands."""
        self._integers: dict[tuple[Type, tuple[Scalar, ...]], Known] = {}
        """The same by what stands in the graph."""
        self._kinds: list[object] = []
        """Of the nodes of the graph that is inferred."""
        self._looked = WatchedValues([])
        """Elements of the operands of the node that was inferred last by a rule."""
        self._remarks = 0
        """Number of times that a rule stated or asked something about a single node or value."""
        self.after_body: Callable[[Node, int], None] | None = None
        """Called after each inference of a body that a control node runs, with the node and the number of the step."""

    def run(self, nodes: Callable[[Graph], Iterable[Node]] = iter) -> Inferred:
        """Infer the main graph and every function."""
        for value, elements in bindable_elements(self.program).items() if self.program.given else ():
            if any(str(element) in self.program.given for element in elements) and self.may_be_symbolic(value):
                self.symbolic_value(value)
        self.graph(self.program.graph, nodes)
        for function in self.program.functions.values():
            self.graph(function, nodes)
        inferred = self.found
        for node, branch in inferred.branches.items():
            for place, region in enumerate(node.regions):
                if branch.taken is not None and place != branch.taken:
                    inferred.idle.update(region.walk())
        return inferred

    def graph(self, graph: Graph, nodes: Callable[[Graph], Iterable[Node]] = iter) -> None:
        """Infer the nodes of a graph or region, whose arguments have their types."""
        self._know_weights(graph)
        if not self.depth:
            # They hold for the sizes that were noted in one graph, and while it is not changed.
            self._answers.clear()
            self._attrs.clear()
            self._kinds = []
            self.found.kinds[graph] = graph.versions[Facet.TOPOLOGY], self._kinds
        # A region may not run: what its sizes say about their symbols holds only inside.
        outer = self.sizes
        self.sizes = set(outer)
        infer = self._like_another if not self.depth and self.keeps_answers else self.node
        charged = 0
        for done, node in enumerate(nodes(graph)):
            if done == charged:
                charged += min(_AT_ONCE, max(1, len(graph) - done))
                spend(20 * (charged - done), "inference of types")
            infer(node)
        self.sizes = outer

    def _know_weights(self, graph: Graph) -> None:
        """Keep the elements of small constants."""
        found, data = self.found.values, graph.data
        with np.errstate(all="ignore"):
            for weight in graph.weights:
                stored = data.get(weight)
                if isinstance(stored, Literal) and isinstance(weight.type, TensorType):
                    known = self._constant(stored.values, weight.type)
                    if known is not None:
                        found[weight] = known

    def _constant(self, values: tuple[Scalar, ...], type_: TensorType) -> Known | None:
        """Return values that stand in the graph as an array, the same one for equal ones; None where they contradict their type, as a text
        written by hand may."""
        dtype = type_.dtype
        if dtype.is_integer:
            # However they are written, what is equal is the same number.
            known = self._integers.get((type_, values))
            if known is not None:
                return known
        plain = _FLOATS.get(dtype)
        if (
            plain is not None
            and all([type(value) is float for value in values])
            and (len(values),) == type_.shape
            and len(values) <= MAX_ELEMENTS
        ):
            known = np.array(values, plain)
        elif not _fits(type_):
            return None
        else:
            try:
                known = to_array(values, type_)
            except (ValueError, TypeError, OverflowError):
                return None
            if known is None or known.dtype == object:
                return known
        known = self._literals.setdefault((type_, known.tobytes()), known)
        if dtype.is_integer:
            self._integers[type_, values] = known
        return known

    def node(self, node: Node) -> None:
        """Infer one node; whatever goes wrong costs only its own results."""
        outer = self._node
        self._node, self._explained = node, None
        if self.depth:
            # What a region's earlier inference knew about its values may not hold now.
            for output in node.outputs:
                self.forget(output)
        spec = find_op(node.op)
        if spec is None:
            self._found(node, self._foreign(node))
        elif spec.control is not None:
            self._found(node, self._control(_CONTROLS[spec.control], node))
        else:
            self._found(node, self._infer(node, spec))
        self._node = outer

    def _like_another(self, node: Node) -> None:
        """Infer a node, unless one like it was inferred before: in deep models most are like one of the first layer."""
        elements: list[int] = []
        key = self._key(node, elements)
        answer = self._answers.get(key)
        if type(answer) is dict:
            answer = answer.get(tuple(elements))
        if answer is not None:
            self._take(node, answer)  # type: ignore[arg-type]  # there are no dictionaries in dictionaries
            self._kinds.append(None if node.regions else answer)
            return
        remarks, sizes = self._remarks, len(self.sizes)
        self.node(node)
        kind: Answer | None = None
        if key is not None and remarks == self._remarks and sizes == len(self.sizes) and is_plain(node):
            kind = self._keep_answer(node, key, elements)
        self._kinds.append(None if node.regions else kind)

    def _keep_answer(self, node: Node, key: Hashable, elements: list[int]) -> Answer:
        types, values = self.found.types, self.found.values
        answer = Answer(tuple([types[value] for value in node.outputs]), tuple([values.get(value) for value in node.outputs]), self._looked)
        others: Answer | dict[Hashable, Answer] = self._answers.setdefault(key, {}) if elements and self._looked.is_looked_at else answer
        if type(others) is dict:
            others[tuple(elements)] = answer
        else:
            self._answers[key] = answer
        return answer

    def _found(self, node: Node, types: list[Type]) -> None:
        """Keep the types of a node's results."""
        if any(type(one) is TensorType and not self._is_possible(one) for one in types):
            types = self._give_up(node, "a result would have a negative size, or more elements than a machine can address", "model")
        found = self.found.types
        for output, type_ in zip(node.outputs, types, strict=False):
            if self._seen:
                type_ = _as_seen(type_, output.type)
            found[output] = type_
            if type(type_) is not TensorType:
                continue
            if type_.shape is None or type_.dtype is DType.UNKNOWN:
                self._remarks += 1
                self._inherit_reason(node, output)
            for size in type_.shape or ():
                if type(size) is SymDim:
                    self.note_size(size)

    def _key(self, node: Node, elements: list[int]) -> Hashable:
        """Return the key that determines the results of a node, without known elements of operands, whose identities are added to
        `elements`; None where that cannot be a key."""
        types, values = self.found.types, self.found.values
        attrs = self._attrs.get(id(node.attrs), 0)
        if attrs == 0:
            attrs = self._attrs_number(node.attrs)
        if attrs is None:
            return None
        key: list[Hashable] = [node.op, len(self.sizes), attrs]
        for value in node.inputs:
            if value is None:
                key.append(None)
            else:
                key.append(types.get(value) or value.type)
                known = values.get(value)
                if known is not None:
                    key.append(1)
                    elements.append(id(known))
        key.append(0)
        for output in node.outputs:
            key.append(output.type)
        return tuple(key)

    def _attrs_number(self, attrs: Mapping[str, Attr]) -> int | None:
        """Return a number for attributes that is that of no others; None where they cannot be told apart."""
        # As text too: 1, True and 1.0 are equal. A formula's text does not tell its bounds.
        key = (repr(attrs), *attrs.values())
        try:
            number: int | None = self._attr_numbers.setdefault(key, len(self._attr_numbers) + 1)
        except TypeError:
            number = None
        self._attrs[id(attrs)] = number
        return number

    def _take(self, node: Node, answer: Answer) -> None:
        """Take the results that a node like this one had."""
        types, values = self.found.types, self.found.values
        for output, type_, known in zip(node.outputs, answer.types, answer.values, strict=True):
            types[output] = type_
            if known is not None:
                values[output] = known

    def _is_possible(self, type_: TensorType) -> bool:
        found = self._possible.get(type_)
        if found is None:
            found = self._possible[type_] = type_.is_possible
        return found

    def step(self, node: Node, number: int) -> None:
        """Notify the listener that the types of a body are now those of one step of `node`."""
        if self.after_body is not None:
            self.after_body(node, number)

    # -- operators ---------------------------------------------------------------------------------------------

    def _infer(self, node: Node, spec: OpSpec) -> list[Type]:
        found = self.found
        known_types = found.types
        types = [None if value is None else known_types.get(value, value.type) for value in node.inputs]
        call = OpCall(spec, types, node.attrs, self._known_of(node), [output.type for output in node.outputs], self)
        try:
            inferred = list(spec.infer_types(call))
            if len(inferred) < len(node.outputs):
                inferred.extend([UNKNOWN_TENSOR] * (len(node.outputs) - len(inferred)))
            if spec.evaluate is not None and not spec.random:
                self._evaluate(node, spec, call, inferred)
            if spec.items is not None:
                spec.items(_LISTS[0](self, node, call, inferred))
        except RuleError as error:
            return self._give_up(node, str(error), "model")
        except OverBudget:
            raise
        except Exception as error:  # one rule's bug must cost one node, not the model
            return self._give_up(node, f"{type(error).__name__}: {error}", "rule")
        return inferred

    def _known_of(self, node: Node) -> WatchedValues:
        """Return what is known of the elements of operands."""
        values = self.found.values
        self._looked = WatchedValues([None if value is None else values.get(value) for value in node.inputs])
        return self._looked

    def _give_up(self, node: Node, text: str, fault: str) -> list[Type]:
        self._remarks += 1
        if node not in self._faulty:
            self._faulty.add(node)
            self.found.problems.append(Problem(node, text, fault))
        self._explained = Reason(node.name, text)
        return [UNKNOWN_TENSOR] * len(node.outputs)

    def _foreign(self, node: Node) -> list[Type]:
        """Return the types that the file declares for an operator without a record."""
        self.found.foreign[node.op] = self.found.foreign.get(node.op, 0) + 1
        self._explained = Reason(node.name, f"irscope does not know the operator {node.op}; docs/add-an-operator.md shows how to add it")
        return [output.type for output in node.outputs]

    def _control(self, control: Callable[[Inference, Node], list[Type]], node: Node) -> list[Type]:
        if self.depth >= MAX_REGION_DEPTH:
            return self._give_up(node, f"regions are nested deeper than {MAX_REGION_DEPTH}", "model")
        self.depth += 1
        try:
            types = control(self, node)
            return types if len(types) >= len(node.outputs) else self._give_up(node, "its regions return fewer values", "model")
        except RuleError as error:
            return self._give_up(node, str(error), "model")
        except OverBudget:
            raise
        except Exception as error:  # as above: the model must survive it
            return self._give_up(node, f"{type(error).__name__}: {error}", "rule")
        finally:
            self.depth -= 1

    def _evaluate(self, node: Node, spec: OpSpec, call: OpCall, inferred: list[Type]) -> None:
        known = self._looked.items  # whether elements are known is part of the key, so this is no look at them
        if spec.needs_values:
            present = [(value, one) for value, one in zip(node.inputs, known, strict=True) if value is not None]
            if present and not any(one is not None for _, one in present):
                return
            if any(one is None and not self.may_be_symbolic(value) for value, one in present):
                return
        shapes = [_value_shape(type_) for type_ in inferred]
        count = sum(math.prod(shape) for shape in shapes if shape is not None)
        if any(shape is None for shape in shapes) or count > MAX_ELEMENTS:
            return
        if count > SYMBOLIC_ELEMENTS and any(one is not None and is_symbolic(one) for one in known):
            return
        assert spec.evaluate is not None
        call.results = inferred
        try:
            answer = spec.evaluate(call)
        except TypeError:
            if not any(one is not None and has_reals(one) for one in known):
                raise
            # Floats made of sizes are not numbers: what a rule has no case for stays unknown.
            return
        if answer is None:
            return
        # numpy's functions make scalars of arrays without axes.
        arrays = answer if isinstance(answer, list | tuple) else (np.asarray(answer),)
        for output, array, shape in zip(node.outputs, arrays, shapes, strict=False):
            if array is not None and array.shape == shape:
                self._know(output, array)

    def _know(self, value: Value, known: Known) -> None:
        """Keep elements; those that are objects though none is a symbol, since one beside them was, become numbers of the type."""
        type_ = self.found.type_of(value)
        if has_reals(known) and all(isinstance(one, Real) and not one.is_known for one in known.flat):
            return
        if known.dtype == object and isinstance(type_, TensorType) and type_.dtype.is_integer:
            known = settle(known, type_.dtype)
        self.found.values[value] = known

    # -- what rules ask ----------------------------------------------------------------------------------------

    def value_of(self, call: OpCall, index: int) -> Known | None:
        """Return a symbol for each element of a small integer operand."""
        assert self._node is not None
        value = self._node.inputs[index]
        if value is None:
            return None
        if value.declared_in is not None and value not in self.found.values:
            self._remarks += 1
            self._read_weight(value, value.declared_in)
        found = self.found.values.get(value)
        return self.symbolic_value(value) if found is None and self.may_be_symbolic(value) else found

    def _read_weight(self, weight: Value, graph: Graph) -> None:
        """Values of a weight that stands packed in the graph, read only when a rule asks."""
        data = graph.data.get(weight)
        if isinstance(data, Blob) and isinstance(weight.type, TensorType) and _fits(weight.type):
            known = from_bytes(data.data, weight.type)
            if known is not None:
                self.found.values[weight] = known

    def symbolic_value(self, value: Value) -> Known:
        """Return the symbols for the elements of a small integer tensor, the same whenever it is asked for."""
        known = self.found.values.get(value)
        if known is None:
            type_ = self.found.type_of(value)
            shape = static_shape(type_)
            assert shape is not None
            self._remarks += 1
            symbols = objects(self._element_symbols(value, math.prod(shape)), shape)
            # Elements may have been bound, or there may be none at all.
            known = self.found.values[value] = settle(symbols, type_.dtype) if isinstance(type_, TensorType) else symbols
        return known

    def _element_symbols(self, value: Value, count: int) -> list[Dim]:
        type_ = self.found.type_of(value)
        low, high = (0, 1) if isinstance(type_, TensorType) and type_.dtype is DType.BOOL else (None, None)
        if value.role is not Role.INPUT or value.name is None:
            source = value.name or (value.node.name if value.node else "a region's argument")
            return [self.fresh(f"it depends on the values of {source}", "", low, high) for _ in range(count)]
        stem = element_stem(value.name)
        scalar = isinstance(type_, TensorType) and type_.shape == ()
        elements: list[Dim] = []
        for index in range(count):
            name = stem if scalar else f"{stem}_{index}"
            bound = self.program.given.get(name)
            elements.append(bound if bound is not None else symbol(name, low, high))
        return elements

    def fact(self, value: Value | None) -> Fact:
        """Return what is known of a value besides its type."""
        return NO_FACT if value is None else Fact(self.found.values.get(value), self.found.lists.get(value))

    def learn(self, value: Value, fact: Fact) -> None:
        """Replace what is known of a value besides its type."""
        self.forget(value)
        if fact.known is not None:
            self._know(value, fact.known)
        if fact.items is not None:
            self.found.lists[value] = fact.items

    def forget(self, value: Value) -> None:
        """Drop what is known of a value besides its type."""
        self.found.values.pop(value, None)
        self.found.lists.pop(value, None)

    def mark(self) -> Mark:
        """Return what is noted about the model so far, for `retract`."""
        found = self.found
        return Mark(len(found.problems), len(found.assumptions), dict(found.foreign))

    def retract(self, mark: Mark) -> None:
        """Take back problems, assumptions and unknown operators noted since: they are in code that does not run."""
        found = self.found
        for problem in found.problems[mark.problems :]:
            self._faulty.discard(problem.node)
        for assumed in found.assumptions[mark.assumptions :]:
            self._assumed.discard((assumed.left, assumed.right, assumed.relation, assumed.is_certain))
        del found.problems[mark.problems :], found.assumptions[mark.assumptions :]
        found.foreign = mark.foreign

    def may_be_symbolic(self, value: Value) -> bool:
        type_ = self.found.types.get(value, value.type)
        if type(type_) is not TensorType or type_.shape is None or type_.dtype.kind not in _INTEGERS:
            return False
        shape = static_shape(type_)
        return shape is not None and math.prod(shape) <= SYMBOLIC_ELEMENTS

    def fresh(self, reason: str, decided_by: DecidedBy, lo: int | None, hi: int | None) -> Dim:
        """Return a new unknown size, blamed on the node whose rule asks; the number that a user gave it."""
        if lo is not None and hi is not None and lo > hi:
            raise RuleError(f"{reason}, and would have to be at least {lo} and at most {hi}")
        self._remarks += 1
        name = f"u{self._fresh}"
        self._fresh += 1
        given = self.program.given.get(f"?{name}")
        if given is not None:
            self.found.given.add(f"?{name}")
            if (lo is not None and given < lo) or (hi is not None and given > hi):
                raise RuleError(f"?{name} cannot be {given}: it is {f'at least {lo}' if hi is None else f'from {lo} to {hi}'}")
            return given
        made = unknown(name, lo, hi)
        self.found.reasons[str(made)] = self.reason(reason, decided_by)
        return made

    @property
    def made(self) -> int:
        """Return how many unknowns there are so far."""
        return self._fresh

    def is_made_since(self, name: str, since: int) -> bool:
        """Return whether an unknown, by its text, is one of those made after the first so many; those of the file never are."""
        return name.startswith("?u") and name[2:].isdigit() and name in self.found.reasons and int(name[2:]) >= since

    def assume(self, left: Dim, right: Dim, why: str, relation: Relation = Relation.EQUAL) -> None:
        """Record once how two sizes are related."""
        if relation in (Relation.BROADCAST, Relation.FITS) and any(isinstance(one, SymDim) and one.is_unknown for one in (left, right)):
            return  # a size that depends on data says nothing of those that a user may choose
        if (left, right, relation, not self.depth) in self._assumed:
            return
        self._remarks += 1
        self._assumed.add((left, right, relation, not self.depth))
        made = Assumption(left, right, self._node.name if self._node else "", why, relation, is_certain=not self.depth)
        if relation is not Relation.FITS:
            self.found.assumptions.append(made)
        elif made.is_certain:
            self.found.fitting.append(made)

    def explain(self, reason: str, decided_by: DecidedBy) -> None:
        """Note why the results of the current node have no rank."""
        self._remarks += 1
        self._explained = self.reason(reason, decided_by)

    def reason(self, text: str, decided_by: DecidedBy) -> Reason:
        """Return why something of the current node is not known."""
        node = self._node
        if node is None or not decided_by:
            return Reason(node.name if node is not None else "", text)
        if not isinstance(decided_by, str):
            return Reason(node.name, text, decided_by)
        given = tuple(value for value in node.inputs if value is not None)
        if decided_by == SIZES:
            return Reason(node.name, text, sizes=given)
        return Reason(node.name, text, tuple(value for name in decided_by.split(",") for value in _operands(node, name)))

    def _inherit_reason(self, node: Node, output: Value) -> None:
        reasons = self.found.rank_reasons
        made = self._in_bodies(node, output)
        if made is not None:
            reasons[output] = made
            return
        if self._explained is None:
            for value in node.inputs:
                if value is not None and value in reasons:
                    reasons[output] = reasons[value]
                    return
            for value in node.inputs:
                type_ = self.found.type_of(value) if value is not None else None
                if value is not None and value.node is None and isinstance(type_, TensorType) and type_.shape is None:
                    label = value.name or "an input"
                    reasons[output] = Reason(label, f"the file does not say how many axes {label} has", sizes=(value,))
                    return
        reasons[output] = self._explained or Reason(node.name, f"the rule of {node.op} cannot tell the shape from what is known")

    def _in_bodies(self, node: Node, output: Value) -> Reason | None:
        """Return why a result of a node with bodies has no rank, where the value that a body makes it of has none."""
        reasons = self.found.rank_reasons
        place = next((index for index, value in enumerate(node.outputs) if value is output), 0)
        for region in node.regions:
            # A loop's body also yields whether to go on, before the values of its results.
            at = place + max(0, len(region.outputs) - len(node.outputs))
            if at < len(region.outputs) and region.outputs[at] in reasons and lacks_rank(self.found.type_of(region.outputs[at])):
                return reasons[region.outputs[at]]
        return None


def is_plain(node: Node) -> bool:
    """Return whether an operator's rule makes types and elements of its results and no more."""
    spec = find_op(node.op)
    return spec is not None and spec.control is None and spec.items is None


def lacks_rank(type_: Type) -> bool:
    """Return whether nothing is known of a tensor's sizes, or not even its element type."""
    return isinstance(type_, TensorType) and (type_.shape is None or type_.dtype is DType.UNKNOWN)


def _operands(node: Node, name: str) -> Iterator[Value]:
    """Yield what a node has as the operand of this name; the last one of a schema may be a list."""
    spec = find_op(node.op)
    place = spec.operand_index.get(name) if spec is not None else None
    if spec is None or place is None:
        return
    end = None if spec.schema.operands[place].variadic else place + 1
    yield from (value for value in node.inputs[place:end] if value is not None)


def _as_seen(inferred: Type, seen: Type) -> Type:
    """Return the type that a result had in a run, where rules cannot tell sizes that depend on data."""
    if not isinstance(seen, TensorType) or not seen.is_static or (isinstance(inferred, TensorType) and inferred.is_static):
        return inferred
    return seen


_FLOATS = {DType.F16: np.float16, DType.F32: np.float32, DType.F64: np.float64}
_INTEGERS = frozenset({DTypeKind.INT, DTypeKind.UINT, DTypeKind.BOOL})


def _value_shape(type_: Type) -> tuple[int, ...] | None:
    """Return the shape of an array that holds the values of this type."""
    return () if isinstance(type_, ScalarType) else static_shape(type_)


def _fits(type_: TensorType) -> bool:
    shape = static_shape(type_)
    return shape is not None and math.prod(shape) <= MAX_ELEMENTS
