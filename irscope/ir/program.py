"""A whole model: its main graph, functions, symbols and where it came from."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain
from typing import Final, Literal

from irscope.diagnostics import Diagnostic
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim, only_size
from irscope.ir.graph import Attr, Facet, Graph, Node, Role, Value, paused_gc, runs
from irscope.ir.places import Scope
from irscope.ir.types import MapType, OptionalType, SequenceType, TensorType, TupleType, Type

# When a run of the model made each storage and when it let go of it: known for models that were watched, not for files.


@immutable
class Life:
    """One storage that the run made; positions count the nodes of the main graph."""

    born: int
    died: int | None
    """The last node at whose end it was still there; None where it outlived the run."""
    rank: int
    """The place among all storages that were let go of: several may go after one node."""
    size: Dim
    """Bytes of the whole storage, which may be more than those of the value that had it first."""


@immutable(slots=False)
class Observed:
    """Lifetimes and sizes that hold until the graph's nodes, their attributes or its declarations change."""

    graph: Graph
    versions: tuple[int, ...]
    """The graph's versions when it was recorded, those that it depends on."""
    lives: Mapping[Value, Life]
    """By the value that had the storage first."""
    storages: Mapping[Value, Value]
    """For each result the value that had its storage first: a result, or something that the graph declares."""
    requests: object = None
    """Requests to the device's allocator (irscope.passes.memory.tapes.Requests), where they are known and not derived."""

    def holds(self, graph: Graph) -> bool:
        """Return whether it still says how this graph runs."""
        return graph is self.graph and observed_versions(graph) == self.versions


def observed_versions(graph: Graph) -> tuple[int, ...]:
    """Versions of what decides which storages a run makes. Types of results are not among them: inference writes those."""
    return tuple(graph.versions[facet] for facet in (Facet.TOPOLOGY, Facet.ATTRS, Facet.DECLARED))


# Weights in few bits, as quantisers store them: several tensors for one weight.


class Relation(enum.Enum):
    """Relation between two sizes that holds wherever a model runs; the value is put between them."""

    EQUAL = "is"
    BROADCAST = "broadcasts with"
    """They are equal, or one of them is 1."""
    AT_MOST = "is at most"
    """Above, floats do not hold every whole number; the model runs all the same."""
    FITS = "fits into"
    """The first is not larger."""


@immutable
class Constraint:
    """Two sizes that a node relates: at others the model does not run."""

    left: Dim
    right: Dim
    relation: Relation
    why: str
    """The operator and what it requires, with the node."""

    @property
    def names(self) -> frozenset[str]:
        """Return the symbols that both sizes are made of."""
        sizes = (one for one in (self.left, self.right) if isinstance(one, SymDim))
        return frozenset(str(each) for size in sizes for each in size.symbols())

    def holds(self, left: int, right: int) -> bool:
        """Return whether two numbers are related in that way."""
        if self.relation is Relation.BROADCAST:
            return left == right or 1 in (left, right)
        return left <= right if self.relation is Relation.FITS else left == right

    def __str__(self) -> str:
        return f"{self.why}: {self.left} {self.relation.value} {self.right}"


@immutable
class OnlySize:
    """The one size of a symbol for which a node's operands fit together."""

    size: int | None
    """None where there is none."""
    why: str
    """The node and what has to be equal there."""

    def text(self, symbol: str) -> str:
        """Return it in words."""
        return f"{symbol} {'can have no size' if self.size is None else f'can only be {self.size}'}: {self.why}"


@immutable
class PackedPart:
    """Purpose of one tensor of a quantised weight."""

    scheme: str
    of: str
    """The weight that it is a part of."""
    parameters: int
    """Parameters that it counts for: all of them at its codes, none at scales and other tensors beside them."""


# What runs a model, and what its file says of that: passes ask this, not which format a program was read from.


class Runtime(enum.Enum):
    """Software that usually runs a model."""

    UNKNOWN = "unknown"
    TORCH = "torch"
    ONNXRUNTIME = "onnxruntime"
    XLA = "xla"


class LocalNames(enum.Enum):
    """Source of the names of Python's local variables, which hold tensors longer than their last use."""

    SOURCE = "source"
    """Nodes say which lines of Python made them, so the lines can be read."""
    LINES = "lines"
    """Which lines ran is known, not their text: where a variable's name is unknown, its live range is modelled."""


@immutable
class Traits:
    """Properties of a model's run, and what its file leaves open; a frontend sets them for its programs. The defaults promise nothing."""

    runtime: Runtime = Runtime.UNKNOWN
    lifetimes: Literal["ssa", "eager", "ort", "xla"] = "ssa"
    """The lifetime model that `auto` means: when a run lets go of a tensor."""
    local_names: LocalNames = LocalNames.SOURCE
    follows_strides: bool = False
    """The file has no strides of results: they follow from those of the inputs, operator by operator."""
    is_exported: bool = False
    """The nodes are those that torch.export wrote, and Python runs some of its modules otherwise: fused, without needless masks."""
    is_session: bool = False
    """The nodes are those that a session of ONNX Runtime has after its optimisations, in the order in which it runs them."""
    is_plan: bool = False
    """When storages are made, shared and let go of is what the file says, for any sizes."""
    opens_inputs: bool = False
    """An input's size may be given anew or left open: the nodes do not repeat the sizes of an export."""


EXPORTED: Final = Traits(Runtime.TORCH, "eager", is_exported=True)
TORCHSCRIPT: Final = Traits(Runtime.TORCH, "eager", LocalNames.LINES, follows_strides=True, opens_inputs=True)
CAPTURED: Final = Traits(Runtime.TORCH, "eager")
COMPILED: Final = Traits(Runtime.TORCH, "eager", is_plan=True)
"""The buffer plan that a compiler wrote, with the births and deaths of its buffers."""
ONNX: Final = Traits(Runtime.ONNXRUNTIME, "ort", opens_inputs=True)
XLA: Final = Traits(Runtime.XLA, "xla")
"""A program that XLA compiles: it fuses operators and packs what is left."""
LIVE: Final = ("module", "compiled")
"""Formats of programs that were captured from live modules."""
FORMAT_TRAITS: Final[Mapping[str, Traits]] = {
    "irs": Traits(opens_inputs=True),
    "pt2": EXPORTED,
    "torchscript": TORCHSCRIPT,
    "module": CAPTURED,
    "onnx": ONNX,
    "inductor": COMPILED,
    "aoti": COMPILED,
    "stablehlo": XLA,
}
"""Traits that the text form need not repeat, as they follow from the format that a program was read from."""


# A whole model: its main graph, functions, symbols and where it came from.

TRAINS: Final = "trains"
"""Key in the metadata of a module that a function returned with an optimizer: the name stands for a training."""
GENERATES: Final = "generates"
"""Key in the metadata of a language model whose class generates text."""
WEIGHTS: Final = "weights"
"""Subject of an assumption about weights."""


@immutable
class Assumed:
    """Something that a prediction depends on and that was not specified, with the value that was assumed."""

    what: str
    """Subject of the assumption: an input, a size, the way the model runs."""
    value: str
    """Assumed value."""
    why: str = ""
    """Where the value comes from, and how to say another."""
    is_guess: bool = True
    """True where nothing vouches for it, so that every number that depends on it is assumed too. A documented default is no guess."""

    @property
    def is_about_weights(self) -> bool:
        """Return whether the weights themselves may be others, not only what is done with them."""
        return self.what == WEIGHTS

    @property
    def text(self) -> str:
        """In a line."""
        return f"{self.what}={self.value}{f' ({self.why})' if self.why else ''}"


@immutable
class Called:
    """A call of one of PyTorch's operators that a node was made of, as the file or the run made it."""

    operator: str
    """As "linear.default"; with its namespace where that is not ATen's."""
    args: Mapping[str, Attr | Value]
    """By name, defaults included: values, numbers, formulas, texts, element types, tuples of these."""


@immutable
class FileNode:
    """A node of the model's file, with what it was lowered to."""

    inputs: tuple[Value | None, ...]
    """Values of its operands."""
    nodes: tuple[Node, ...]


@immutable(slots=False)
class FileNodes:
    """Origin of a program, so that it can be written again: the nodes of the file's main graph, by number, and its names."""

    nodes: Sequence[FileNode]
    names: Mapping[str, Value | None]
    """Values by the names of the file's main graph."""


@immutable
class Assigned:
    """A value that a compiler gave memory: a result of a node, by their numbers, with the last step that needs it."""

    step: int
    output: int
    nbytes: int
    dies: int
    lies: Literal["temporary", "result", "inside"]
    """In memory of temporaries, as a result, or in memory of a result or a donated argument that is not used then."""


@immutable
class Assignment:
    """Memory as a compiler assigned it, in bytes."""

    buffers: tuple[Assigned, ...]
    steps: int
    """Nodes of the graph that it is of; once a pass has erased some it no longer holds."""
    arguments: int
    constants: int
    outputs: int
    aliased: int
    temporary: int


@mutable
class Program:
    """A whole model: frontends return it and passes work on it."""

    graph: Graph
    functions: dict[str, Graph] = field(default_factory=dict)
    """Bodies that `cf.call` nodes name; a call that can be inlined is better inlined by the frontend."""
    symbols: dict[str, SymDim] = field(default_factory=dict)
    """Named sizes that a user may bind, with their bounds."""
    format: str = "irs"
    """onnx, pt2, torchscript, irs, checkpoint, module or compiled; for people. Passes ask the traits."""
    path: str = ""
    given: dict[str, int] = field(default_factory=dict)
    """Integers a user bound that are no sizes: elements of small integer inputs, as "k" or "k_0"."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Facts that the file gives about itself: producer, opsets, versions."""
    origins: Sequence[int] = ()
    """For each node of the main graph as it was read, the number of the file's node that it stands for; nodes that the file does not
    have come last. Empty where a frontend does not say. Passes that change the graph do not keep it."""

    assumed: list[Assumed] = field(default_factory=list)
    """Assumptions about the run: what was not specified, and the value that was assumed."""
    only_sizes: dict[str, OnlySize] = field(default_factory=dict)
    """Symbols for which the graph allows one size alone, as nodes contradict every other."""
    constraints: tuple[Constraint, ...] = ()
    """Requirements that nodes which always run put on sizes that are formulas of named symbols."""
    has_graph: bool = True
    """True where it is known what runs; False for files of weights alone, of which everything but the weights is unknown."""
    training: object = None
    """A captured training (irscope.training.Trace), of whose last step the graph is; None for a forward."""
    packed: dict[Value, PackedPart] = field(default_factory=dict)
    """Weights that hold others in few bits, or are a part of that."""
    declared: dict[Value, Type] = field(default_factory=dict)
    """Types of the main graph's inputs and results as an ONNX file has them, before sizes were bound."""
    misstated: tuple[Diagnostic, ...] = ()
    """Types that a text states for results and that inference contradicts; the graph has the inferred ones."""
    uncounted: str = ""
    """Why nobody knows how many parameters there are; empty where it is known. Bytes are known all the same."""
    formulas_from: dict[str, int] = field(default_factory=dict)
    """Symbols that may be smaller than the formulas were found for: for each the size from which on they hold."""
    conditions: tuple[tuple[Dim, Dim], ...] | None = None
    """Pairs of which the first is less than the second at all sizes at which these nodes are known to run, but for views that are taken in
    other ways; besides, sizes are within the limits of the symbols and not below `formulas_from`. None where nothing is known."""
    examples: dict[str, int] = field(default_factory=dict)
    """Sizes that symbols had in the run that the file was made from, where it tells."""
    short_names: dict[str, str] = field(default_factory=dict)
    """Short names of symbols and what they stand for, as they were before any symbol was bound; `irscope.ir.bind.short_names` has them."""
    calls: dict[Node, Called] = field(default_factory=dict)
    """The calls that nodes were made of, where they were asked for (`LoadOptions.keep_calls`)."""
    file_nodes: FileNodes | None = None
    """The file's nodes and names, where they were asked for (`LoadOptions.keep_calls`) and the format has them."""
    aliased: tuple[tuple[int, int], ...] = ()
    """Inputs that are donated to a result, by their numbers: the caller gives them up, and the result lies where the input did."""
    mesh: dict[str, int] = field(default_factory=dict)
    """Devices along each axis of a mesh, for a program that runs sharded on all of them."""
    cuts: dict[Value, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """For inputs and results of a sharded program: the axes of the mesh that cut each of their axes."""
    assignment: Assignment | None = None
    """Buffers that a compiler assigned, where its own account of them was read."""
    traits: Traits = field(default_factory=Traits)
    """Properties of its run, and what its file leaves open."""
    observed: Observed | None = None
    """When a run made and dropped storages, for models that were watched while they ran."""
    bound: dict[str, str] = field(default_factory=dict)
    """Symbols that were given a size, by their names and by what people call such a size."""

    @property
    def root(self) -> Scope:
        """The scope of the model itself."""
        return self.graph.scope

    @property
    def only_numbers(self) -> dict[str, int]:
        """The sizes of symbols that can have one alone."""
        return {name: only.size for name, only in self.only_sizes.items() if only.size is not None}

    @property
    def table_sizes(self) -> dict[str, tuple[int, Constraint]]:
        """Symbols that are 1 or the length of what they are broadcast with, as of a table of positions, with that length."""
        sizes: dict[str, tuple[int, Constraint]] = {}
        for constraint in self.constraints:
            solved = only_size(constraint.left, constraint.right) if constraint.relation is Relation.BROADCAST else None
            if solved is not None and solved[1] is not None and solved[0] not in self.only_sizes:
                sizes.setdefault(solved[0], (solved[1], constraint))
        return sizes

    @property
    def watched(self) -> Observed | None:
        """Return what was observed, while it holds for the graph as it is now."""
        return self.observed if self.observed is not None and self.observed.holds(self.graph) else None

    @property
    def assigned(self) -> Assignment | None:
        """Return what a compiler assigned, while the graph has the nodes that it is of."""
        return self.assignment if self.assignment is not None and self.assignment.steps == len(self.graph) else None

    def facts(self) -> dict[str, Attr]:
        """Return the facts that are not what they usually are."""
        usual, found = Program(self.graph), {name: getattr(self, name) for name in FACTS if name != "assignment"}
        facts = {
            name: tuple(item.items()) if isinstance(item, dict) else item for name, item in found.items() if item != getattr(usual, name)
        }
        if self.assigned is not None:
            facts["assignment"] = tuple((name, getattr(self.assigned, name)) for name in _SUMS)
        return facts

    def value_facts(self) -> dict[Value, dict[str, Attr]]:
        """Return the facts of those values that have any."""
        facts: dict[Value, dict[str, Attr]] = {value: {"cut": cut} for value, cut in self.cuts.items()}
        for source, result in self.aliased:
            facts.setdefault(self.graph.inputs[source], {})["donated"] = result
        for value, part in self.packed.items():
            facts.setdefault(value, {})["packed"] = (part.scheme, part.of, part.parameters)
        nodes = [] if self.assigned is None else list(self.graph)
        for one in () if self.assigned is None else self.assigned.buffers:
            facts.setdefault(nodes[one.step].outputs[one.output], {})["assigned"] = (one.nbytes, one.dies, one.lies)
        for value, said in self.declared.items():
            if said is not value.type and not (value.node and is_unstated(said)):
                facts.setdefault(value, {})["stated"] = said
        return facts

    def bodies(self) -> Iterator[Graph]:
        """Yield the main graph, then the functions, each with its regions."""
        yield from self.graph.graphs()
        for function in self.functions.values():
            yield from function.graphs()

    def changeable(self) -> Iterator[Graph]:
        """Yield the bodies that transforms may change: a file's own nodes are written again with their regions as they were read."""
        return (body for body in self.bodies() if body.owner is None or self.file_nodes is None)

    def weights(self) -> Iterator[Value]:
        """Yield every declared parameter, buffer and constant."""
        for body in self.bodies():
            yield from body.weights

    @property
    def guesses(self) -> tuple[Assumed, ...]:
        """Return what was assumed without anything that vouches for it."""
        return tuple(assumption for assumption in self.assumed if assumption.is_guess)

    @property
    def node_count(self) -> int:
        return sum(len(body) for body in self.bodies())

    def parameters(self) -> Iterator[Value]:
        return (weight for weight in self.weights() if weight.role is Role.PARAMETER)


# Facts of which neither nodes nor types tell, as the text form has them: of the program, and of a value, in the spelling of attributes.

_SUMS: Final = ("arguments", "constants", "outputs", "aliased", "temporary")
_PLACES: Final = ("temporary", "result", "inside")


def _is_table(item: Attr) -> bool:
    return isinstance(item, tuple) and all(map(partial(_are, (str, int)), item)) and len(dict(item)) == len(item)


def _are(kinds: Sequence[type], item: Attr) -> bool:
    """Return whether an item is a tuple of these kinds, of numbers that are not negative."""
    return isinstance(item, tuple) and [*map(type, item)] == [*kinds] and all(type(one) is not int or one >= 0 for one in item)


def _is_cut(item: Attr) -> bool:
    return isinstance(item, tuple) and all(isinstance(axes, tuple) and all(isinstance(axis, str) for axis in axes) for axes in item)


FACTS: Final[Mapping[str, Callable[[Attr], bool]]] = {
    "has_graph": lambda item: isinstance(item, bool),
    "uncounted": lambda item: isinstance(item, str),
    "formulas_from": _is_table,
    "mesh": lambda item: _is_table(item) and all(size > 0 for _, size in item),
    "assignment": lambda item: _is_table(item) and tuple(name for name, _ in item) == _SUMS,
}
"""Facts of a program: its fields of that name, tables as pairs, and the sums of what a compiler assigned."""
VALUE_FACTS: Final[Mapping[str, Callable[[Attr], bool]]] = {
    "cut": _is_cut,
    "donated": lambda item: type(item) is int and item >= 0,
    "packed": partial(_are, (str, str, int)),
    "assigned": lambda item: _are((int, int, str), item) and item[2] in _PLACES,
    "stated": lambda item: isinstance(item, Type),
}
"""Facts of a value: the axes of the mesh that cut each of its axes, the number of the result that it is donated to, the scheme of a packed
weight with the weight that it is of and its parameters, the bytes, the last step and the place that a compiler gave it, and the type that
the file states, which a session plans by."""


def state_facts(program: Program, facts: Mapping[str, Attr], of_values: Mapping[Value, Mapping[str, Attr]]) -> str:
    """Give a program the facts that a text states. Return what contradicts the graph, else nothing."""
    for name, item in facts.items():
        if name != "assignment":
            setattr(program, name, dict(item) if isinstance(item, tuple) else item)
    graph, made = program.graph, {name: {value: of[name] for value, of in of_values.items() if name in of} for name in VALUE_FACTS}
    program.cuts, program.declared = made["cut"], made["stated"]
    for value, cut in program.cuts.items():
        strange = [axis for axis in chain(*cut) if axis not in program.mesh]
        rank = len(value.type.shape) if isinstance(value.type, TensorType) and value.type.shape is not None else len(cut)
        if strange or len(cut) > rank:
            return f"the mesh has no axis {strange[0]!r}" if strange else f"a value of {rank} axes is cut along {len(cut)}"
    places = {value: place for place, value in enumerate(graph.inputs)}
    if any(value not in places or result >= len(graph.outputs) for value, result in made["donated"].items()):
        return "only an input is donated, to a result that the graph has"
    program.aliased = tuple((places[value], result) for value, result in made["donated"].items())
    program.packed = {value: PackedPart(*part) for value, part in made["packed"].items()}
    results = {value: (step, place) for step, node in enumerate(graph) for place, value in enumerate(node.outputs)}
    if not results.keys() >= made["assigned"].keys() or bool(made["assigned"]) != ("assignment" in facts):
        return "memory is assigned to results of the graph's own nodes, and the facts have the sums of it"
    if "assignment" in facts:
        buffers = tuple(Assigned(*results[value], *given) for value, given in made["assigned"].items())
        program.assignment = Assignment(buffers, len(graph), **dict(facts["assignment"]))
    return ""


# Results of which a file states no shape. A text states those of all; the line `meta "inferred"` names the ones that the file did not.

INFERRED: Final = "inferred"
ALL_RESULTS: Final = "*"


def is_unstated(type_: Type) -> bool:
    """Return whether a declaration says nothing of a shape."""
    return isinstance(type_, TensorType) and type_.shape is None


def state_no_more(program: Program) -> None:
    """Take types that a text states for inferred ones where it says that they are."""
    names = program.metadata.pop(INFERRED, "")
    if not names:
        return
    try:
        wanted = None if names == ALL_RESULTS else {str(name) for name in json.loads(names)}
    except (ValueError, TypeError):
        return
    for node in program.graph:
        for output in node.outputs:
            if isinstance(output.type, TensorType) and (wanted is None or output.name in wanted):
                program.declared[output] = output.type.with_shape(None)


# Another program like one: to be bound to sizes, which takes less than to read the file again.


def copied(program: Program) -> Program | None:
    """Return the same program made of graphs of its own; results of the main graph have the types its file declares again, where it kept
    them. None for what holds more than graphs and lifetimes: training steps, and the calls or nodes of a file."""
    seen = program.observed
    is_more = seen is not None and (seen is not program.watched or seen.requests is not None)
    if is_more or program.training is not None or program.calls or program.file_nodes is not None:
        return None
    values: dict[Value, Value] = {}
    with paused_gc():
        graph = _copied_graph(program.graph, values, program.declared)
        functions = {name: _copied_graph(function, values, program.declared) for name, function in program.functions.items()}
    if seen is not None:
        lives = {values[value]: life for value, life in seen.lives.items()}
        seen = Observed(graph, observed_versions(graph), lives, {values[one]: values[first] for one, first in seen.storages.items()})
    return replace(
        program,
        graph=graph,
        functions=functions,
        observed=seen,
        symbols=dict(program.symbols),
        formulas_from=dict(program.formulas_from),
        given=dict(program.given),
        metadata=dict(program.metadata),
        assumed=list(program.assumed),
        packed={values[value]: part for value, part in program.packed.items()},
        cuts={values[value]: cut for value, cut in program.cuts.items()},
        declared={values[value]: type_ for value, type_ in program.declared.items()},
    )


def _copied_graph(graph: Graph, values: dict[Value, Value], declared: Mapping[Value, Type]) -> Graph:
    """Return a graph with its regions; `values` gets what became of each value."""
    made = Graph(graph.name, scope=graph.scope)
    todo = [(graph, made)]
    while todo:
        old, new = todo.pop()
        for value in old.inputs:
            values[value] = new.add_input(value.type, value.name, value.role)
        for weight in old.weights:
            values[weight] = new.add_weight(weight.type, weight.name, weight.role, old.data.get(weight))
        for weight, is_trained in old.trainable.items():
            new.trainable[values[weight]] = is_trained
        for node in old:
            outputs = node.outputs
            inputs = [None if value is None else values[value] for value in node.inputs]
            if len(outputs) == 1:
                (output,) = outputs
                types: Sequence[Type] = (declared.get(output, output.type),)
                names: Sequence[str | None] = (output.name,)
            else:
                types = [declared.get(output, output.type) for output in outputs]
                names = [output.name for output in outputs]
            copy = new.append(node.op, inputs, types, node.attrs, names=names, scope=node.scope, loc=node.loc, source=node.source)
            if len(outputs) == 1:
                values[output] = copy.outputs[0]
            else:
                values.update(zip(outputs, copy.outputs, strict=True))
            for region in node.regions:
                todo.append((region, new.add_region(copy, region.name)))
        new.set_outputs([values[value] for value in old.outputs])
    return made


# Which tensor types and symbols a program mentions.

PLAIN_ATTRS = frozenset({bool, int, float, complex, str, type(None)})
"""Types of attribute values that hold nothing else; most attributes are of these."""


@immutable
class Mentions:
    """Tensor types and symbols in the types and attributes of a program, each once, in order of first occurrence."""

    tensors: list[TensorType]
    symbols: list[SymDim]


def mentions(program: Program) -> Mentions:
    """Return the tensor types and symbols in a program, also those inside other types and inside attributes."""
    tensors: dict[TensorType, None] = {}
    dims: dict[SymDim, None] = {}
    for item in _types_and_sizes(program):
        if isinstance(item, SymDim):
            dims[item] = None
            continue
        for tensor in _tensors_within(item):
            tensors[tensor] = None
            strides = tensor.layout if isinstance(tensor.layout, tuple) else ()
            dims.update([(size, None) for size in (*(tensor.shape or ()), *strides) if isinstance(size, SymDim)])
    return Mentions(list(tensors), list(dict.fromkeys(symbol for dim in dims for symbol in dim.symbols())))


def _types_and_sizes(program: Program) -> list[Type | SymDim]:
    """Return types of values, and types and sizes in attributes."""
    types: dict[Type | SymDim, None] = {}
    for body in program.bodies():
        types.update([(value.type, None) for value in body.inputs])
        types.update([(value.type, None) for value in body.weights])
        for node in body:
            for value in node.outputs:
                types[value.type] = None
            if node.attrs:
                for attr in node.attrs.values():
                    if type(attr) not in PLAIN_ATTRS:
                        types.update(dict.fromkeys(_parts(attr)))
    return list(types)


def _parts(attr: Attr) -> list[Type | SymDim]:
    """Return the types and sizes in an attribute, however nested."""
    parts: list[Type | SymDim] = []
    todo: list[Attr] = [attr]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple | list):
            todo.extend([part for part in item if type(part) not in PLAIN_ATTRS])
        elif isinstance(item, SymDim | Type):
            parts.append(item)
    return parts


def _tensors_within(type_: Type) -> list[TensorType]:
    """Return the tensor types that a type consists of."""
    tensor_types: list[TensorType] = []
    todo = [type_]
    while todo:
        item = todo.pop()
        if isinstance(item, TensorType):
            tensor_types.append(item)
        elif isinstance(item, SequenceType | OptionalType):
            todo.append(item.element)
        elif isinstance(item, TupleType):
            todo.extend(item.elements)
        elif isinstance(item, MapType):
            todo.append(item.value)
    return tensor_types


# What a program holds, facet by facet, in numbers: whether one has changed.


def facet_contents(program: Program) -> tuple[int, ...]:
    """Return a number for each facet that is another one after anything of that facet was changed."""
    totals = [0] * len(Facet)
    numbers: dict[Value | None, int] = {None: -1}

    def note(facet: Facet, *items: object) -> None:
        totals[facet] = hash((totals[facet], items))

    def define(value: Value) -> None:
        numbers[value] = len(numbers)
        note(Facet.TYPES if value.node is not None else Facet.DECLARED, value.type, value.role)
        note(Facet.NAMES, value.name)

    for body in (program.graph, *program.functions.values()):
        for run in runs(body):
            graph = run.graph
            if run.opens:
                note(Facet.TOPOLOGY, graph, graph.scope, len(graph.inputs), len(graph.weights))
                note(Facet.NAMES, graph.name)
                for value in (*graph.inputs, *graph.weights):
                    define(value)
                    note(Facet.ATTRS, graph.data.get(value), graph.trainable.get(value))
            for node in run.nodes:
                for value in node.outputs:
                    define(value)
                # By identity: hashing a location would go through all its callers.
                place = (node.scope, id(node.loc), node.source)
                reads = [numbers.get(value, -2) for value in node.inputs]
                note(Facet.TOPOLOGY, node.op, *reads, len(node.outputs), len(node.regions), *place)
                note(Facet.ATTRS, *[(key, repr(value)) for key, value in node.attrs.items()])
            if run.closes:
                note(Facet.TOPOLOGY, *[numbers.get(value, -2) for value in graph.outputs])
    return tuple(totals)
