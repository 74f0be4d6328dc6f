"""Work of the compiler: graphs and their kernels as Inductor scheduled them, graph breaks and recompilations as Dynamo reports them."""

from __future__ import annotations

import contextlib
import importlib
import math
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from irscope.devices.releases import DEFAULT_RELEASE
from irscope.frontends.simulation.settings import uses_of_compiler
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES

_PLACE: Final = re.compile(r'File "([^"]+)", line (\d+)')
_SKIPPED: Final = re.compile(r"frame skipped: (\S+) \((.+?) line (\d+)\)")
INDUCTOR: Final = "inductor"
COMPARED: Final = DEFAULT_RELEASE.name
"""The version of torch whose compiler was compared with what its CUDA build counts."""
_MADE, _REUSED = "empty_strided_cuda(", "# reuse"
"""Marks in generated code: it takes memory, and a buffer takes the place of one that is no longer needed."""
_CALLS: Final = re.compile(r"\s+(?:\w+ = )?(?:\w+\.run\(|extern_kernels\.\w+\(|torch\.ops\.[\w.]+\()")
"""Call of a kernel in generated code."""
_TRANSCENDENTAL: Final = re.compile(
    r"exp|exp2|expm1|sqrt|rsqrt|cos|sin|lgamma|erf|cosh|sinh|acos|acosh|asin|asinh|atan2|atan|atanh|erfc|erfinv|hypot|log|"
    r"log10|log2|log1p|tan|tanh|sigmoid|pow|digamma"
)
_ELEMENTWISE: Final = re.compile(
    r"add|sub|mul|truediv|floordiv|truncdiv|div_rn|mul_rn|mod|fmod|remainder|neg|abs|relu|minimum|maximum|reciprocal|square|"
    r"fma|where|eq|ne|lt|gt|le|ge|logical_and|logical_not|logical_or|logical_xor|and_|or_|xor|bitwise_and|bitwise_not|"
    r"bitwise_or|bitwise_xor|lshift|rshift|bitwise_left_shift|bitwise_right_shift|isinf|isnan|round|floor|ceil|trunc|sign|"
    r"signbit|copysign|rand|randn|randint64"
)
_MOVES: Final = re.compile(
    r"load|store|store_reduction|output|constant|load_seed|index_expr|value_expr|to_dtype|to_dtype_bitcast|identity|"
    r"indirect_indexing|masked|get_index|trunc_to_int|ceil_to_int|floor_to_int|round_to_int|check_bounds|set_indirect0|"
    r"set_indirect1|set_indirect2|set_indirect3"
)
"""Operations of Inductor's loops, as its `OpsHandler` names them, by what irscope counts them as: these are none."""
_REDUCTIONS: Final[Mapping[str, Mapping[str, int]]] = {
    **{kind: {"reduction": 1} for kind in ("sum", "max", "min", "prod", "any", "xor_sum", "argmax", "argmin")},
    # A running mean and the sum of squares around it: difference, mean, difference, product, sum.
    **{kind: {"elementwise": 3, "reduction": 2} for kind in ("welford_reduce", "welford_combine")},
    # The maximum so far, and the sum of the powers of e below it.
    "online_softmax_reduce": {"elementwise": 1, "transcendental": 1, "reduction": 2},
}


@dataclass
class Part:
    """One operator of a graph that is in a kernel."""

    node: str
    """Its name in the graph."""
    operator: str
    line: str
    module: str = ""
    call: str = ""
    """The call of the program that it is of, as Dynamo names it: batch_norm_1 is the second batch_norm of the graph."""


@dataclass
class Kernel:
    """A kernel that was generated, or a call of a library's."""

    name: str
    generated: bool
    operators: tuple[str, ...]
    """Operators that were fused into it."""
    lines: tuple[str, ...]
    """Where the program says so."""
    bytes: int | None
    """Read and written, as Inductor counts them."""
    flops: int | None
    dtype: str
    parts: tuple[Part, ...] = ()
    """Every operator by itself, with its line."""
    modules: tuple[str, ...] = ()
    """Whose operators they are."""
    counts: tuple[tuple[str, int], ...] | None = None
    """Operations of the generated loops by class of FLOPs; None where they do something that is not counted."""


@dataclass
class Buffer:
    """Memory of the generated code: a row of its plan."""

    name: str
    bytes: int | None
    made: str
    """allocated, in place of another, or by the library that is called."""
    kernel: str
    """The first that writes it."""
    instead: str = ""
    """The buffer whose place it takes."""
    freed: str = ""
    """The kernel after which it is no longer needed; empty where it is returned."""
    heir: str = ""
    """The buffer that takes its place then."""


@dataclass
class Saved:
    """A tensor that the forward keeps for the backward besides its inputs, and why it is not recomputed."""

    operator: str
    line: str
    bytes: int | None
    """At the size that the graph was made for."""
    why: str = ""


@dataclass
class RecomputedTensor:
    """A tensor that the backward recomputes instead."""

    operator: str
    line: str
    bytes: int | None
    """That are not kept for it."""
    why: str
    kernels: tuple[str, ...] = ()
    """Of the backward, which do so."""


@dataclass
class Graph:
    """One graph that was compiled."""

    part: str
    """forward, backward or inference; graph where the backend is not Inductor."""
    line: str
    kernels: list[Kernel] = field(default_factory=list)
    buffers: int = 0
    reused: int = 0
    saved: list[Saved] = field(default_factory=list)
    recomputed: list[RecomputedTensor] = field(default_factory=list)
    plan: list[Buffer] = field(default_factory=list)
    backend: str = INDUCTOR
    operators: int = 0
    """Of a graph whose kernels nobody knows."""
    text: str = field(default="", repr=False)
    """The generated code."""

    @property
    def is_followed(self) -> bool:
        """Return whether its kernels and buffers are known."""
        return self.backend == INDUCTOR

    def sites(self) -> dict[int, Kernel]:
        """Return the kernel that each line of the code calls; empty where they cannot be told apart."""
        lines = [number for number, line in enumerate(self.text.splitlines(), 1) if _CALLS.match(line)]
        return dict(zip(lines, self.kernels, strict=True)) if len(lines) == len(self.kernels) else {}


@dataclass
class Event:
    """Something that makes a compiled program slower: a graph break, a recompilation, a limit."""

    what: str
    line: str
    cause: str
    count: int = 1
    across: int | None = None
    """Bytes of what the graph before a break had to hand to one after it, the most in one run; None where no graph was before it."""


@dataclass
class Compilations:
    """All of it."""

    graphs: list[Graph] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    not_compared: str = ""
    """The version of torch, where its compiler was not compared with that of a CUDA build."""

    def to_json(self) -> dict[str, Any]:
        """Return all but the generated code."""
        return {
            "graphs": [{key: value for key, value in asdict(graph).items() if key != "text"} for graph in self.graphs],
            "events": [asdict(event) for event in self.events],
            "not_compared": self.not_compared,
        }


# What the partitioner decided: which results the forward keeps, which the backward computes anew.

_PARTITION: Final = "irscope_partition"
"""Where a node of a graph says which partition it came from."""
_AGAIN: Final = "irscope_recomputed"
"""Where a node of the backward says that the forward has it too."""
_DEAR, _RANDOM, _NOT_LISTED = "compute intensive op", "random op", "not in recomputable allowlist"
_WHY: Final[Mapping[str, str]] = {
    _DEAR: "dear to compute",
    _NOT_LISTED: "not among the operators that may be recomputed",
    "materialized in backward": "the backward needs it in memory",
    "reduction op": "a quarter of its operands or less",
    _RANDOM: "random numbers",
    "marked MUST_SAVE": "a policy of the program says so",
    "too far from backward": "too far from the backward",
    "non-builtin op": "an operator of the program's own",
    "": "used far apart, or at the end of a long chain",
}
"""Reasons of `solve_min_cut` in torch/_functorch/partitioners.py, which gives them to its edges."""
_CUT: Final = "minimum cut: the rest is computed from it"
_BUDGET: Final = "activation memory budget"


@dataclass
class _Decisions:
    """The decisions about one joint graph."""

    why: dict[str, str]
    recomputed: dict[str, RecomputedTensor]


class Reasons:
    """Follows the partitioner of AOTAutograd."""

    def __init__(self) -> None:
        self._found: dict[int, _Decisions] = {}
        self._cuts: dict[int, tuple[Any, dict[str, str], frozenset[str]]] = {}
        """By identity of the list that a minimum cut returned, which is kept: reasons, and what the budget lets be computed anew."""

    def install(self) -> None:
        """Listen to `solve_min_cut`, to the choice among several cuts, and to the two graphs that come of it."""
        module: Any = importlib.import_module("torch._functorch.partitioners")
        solve, choose, extract = module.solve_min_cut, module.choose_saved_values_set, module._extract_fwd_bwd_modules
        chosen: list[tuple[dict[str, str], frozenset[str]]] = []

        def solved(joint: Any, info: Any, options: Any, dont_ban: Any = None) -> Any:
            networks: Any = importlib.import_module("networkx")
            cut, seen = networks.minimum_cut, []

            def listening(graph: Any, *args: Any, **kwargs: Any) -> Any:
                seen.append(graph)
                return cut(graph, *args, **kwargs)

            networks.minimum_cut = listening
            try:
                made = solve(joint, info, options, dont_ban)
            finally:
                networks.minimum_cut = cut
            why = _why_saved(made[0], seen[-1]) if seen else {}
            self._cuts[id(made[0])] = (made[0], why, frozenset(one.name for one in dont_ban or ()))
            return made

        def choice(*args: Any, **kwargs: Any) -> Any:
            made = choose(*args, **kwargs)
            _, why, free = self._cuts.get(id(made), (None, {}, frozenset()))
            self._cuts.clear()
            chosen[:] = [(why, free)]
            return made

        def extracted(joint: Any, saved: Any, *args: Any, **kwargs: Any) -> Any:
            forward, backward = extract(joint, saved, *args, **kwargs)
            why, free = chosen.pop() if chosen else ({}, frozenset())
            self._note(forward, backward, why, free)
            return forward, backward

        module.solve_min_cut, module.choose_saved_values_set, module._extract_fwd_bwd_modules = solved, choice, extracted

    def _note(self, forward: Any, backward: Any, why: dict[str, str], free: frozenset[str]) -> None:
        number = len(self._found)
        names = {node.name for node in forward.graph.nodes if node.op == "call_function"}
        again = {}
        for node in backward.graph.nodes:
            node.meta[_PARTITION] = number
            value = node.meta.get("val")
            if node.op == "call_function" and node.name in names and isinstance(value, torch.Tensor) and not _aliases(node):
                policy = getattr(node.meta.get("recompute"), "name", "")
                reason = (
                    "checkpoint" if policy.endswith("_RECOMPUTE") else _BUDGET if node.name in free else "cheap, and fewer bytes are kept"
                )
                again[node.name] = RecomputedTensor(operator_of(node), place_of(node), _tensor_bytes(value), reason)
                node.meta[_AGAIN] = node.name
        for node in forward.graph.nodes:
            node.meta[_PARTITION] = number
        self._found[number] = _Decisions(why, again)

    def of(self, nodes: Iterable[Any]) -> _Decisions | None:
        """Return the decisions that a graph with these nodes is of."""
        number = next((node.meta[_PARTITION] for node in nodes if _PARTITION in node.meta), None)
        return None if number is None else self._found.get(number)

    def clear(self) -> None:
        """Forget them."""
        self._found.clear()
        self._cuts.clear()


def _why_saved(saved: Iterable[Any], graph: Any) -> dict[str, str]:
    """Return the reason for which each saved node, or the operator whose result it is a part of, may not be computed again."""
    found = {}
    kinds: Any = importlib.import_module("torch._functorch.partitioners").get_default_op_list()
    for node in saved:
        banned, above = None, node
        while banned is None:
            edge = graph.get_edge_data("source", f"{above.name}_in")
            if edge is not None:
                banned = str(edge.get("reason", "")).removeprefix("cannot recompute").removeprefix(": ")
            elif above.op == "call_function" and above.all_input_nodes and _aliases(above):
                above = above.all_input_nodes[0]
            else:
                break
        if banned == _NOT_LISTED:
            banned = _DEAR if kinds.is_compute_intensive(above) else _RANDOM if kinds.is_random(above) else banned
        found[node.name] = _CUT if banned is None else _WHY.get(banned, banned)
    return found


def _aliases(node: Any) -> bool:
    """Return whether a node is an alias of another one: a view, or a part of a tuple."""
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(one.alias_info is not None for one in schema.returns)


def _tensor_bytes(value: torch.Tensor) -> int | None:
    number = _number(value.numel())
    return None if number is None else number * value.element_size()


def _number(size: Any) -> int | None:
    """Return a size that may be a symbol: what it was when the graph was made."""
    found = size if isinstance(size, int) else getattr(size.node, "hint", None)
    return int(found) if isinstance(found, int) else None


class Graphs:
    """Notes every graph that Inductor generates code for."""

    def __init__(self, graphs: list[Graph], uses: dict[str, Any]) -> None:
        """`uses` gets the settings that hold when code is generated."""
        self.found, self._uses = graphs, uses
        self.reasons = Reasons()
        self._open: list[_Written] = []

    def install(self) -> None:
        """Listen to the generation of code."""
        self.reasons.install()
        lowering: Any = importlib.import_module("torch._inductor.graph").GraphLowering
        wrapper: Any = importlib.import_module("torch._inductor.codegen.wrapper").PythonWrapperCodegen
        codegen, passes, call = lowering.codegen, wrapper.run_wrapper_ir_passes, wrapper.generate_kernel_call
        virtual: Any = importlib.import_module("torch._inductor.virtualized").V

        def generated(graph: Any) -> Any:
            self._open.append(_Written())
            try:
                made = codegen(graph)
            finally:
                written = self._open.pop()
            if any(device == "cuda" for device in graph.device_types):
                self.found.append(_read_graph_code(graph, made[0].value, written, self.reasons.of(graph.module.graph.nodes)))
                self._uses.update(uses_of_compiler())
            return made

        def planned(self_: Any, *args: Any, **kwargs: Any) -> Any:
            places = [getattr(line, "scheduler_node_index", None) for line in self_.lines]
            made = passes(self_, *args, **kwargs)
            if self._open:
                # What a version of Inductor writes otherwise is left out: reading it must not end the program.
                with contextlib.suppress(Exception):
                    self._open[-1].lines(self_.lines, places, virtual.graph)
            return made

        def called(self_: Any, kernel_name: str, *args: Any, **kwargs: Any) -> Any:
            node = getattr(getattr(virtual.graph, "scheduler", None), "current_node", None)
            if self._open and node is not None:
                self._open[-1].names.setdefault(id(node), str(kernel_name))
            return call(self_, kernel_name, *args, **kwargs)

        lowering.codegen, wrapper.run_wrapper_ir_passes, wrapper.generate_kernel_call = generated, planned, called


class _Written:
    """Operations on buffers in the code of one graph, noted as it was written."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """Kernels by the identity of the scheduler's node."""
        self.buffers: dict[str, tuple[Buffer, int, int | None]] = {}
        """With the scheduler's nodes that make and that free it."""

    def lines(self, lines: Sequence[Any], places: Sequence[int | None], graph: Any) -> None:
        """Follow planned lines; `places` are the scheduler's nodes that they were written for."""
        at = 0
        for number, line in enumerate(lines):
            place = places[number] if number < len(places) else None
            at = at if place is None else place
            kind = type(line).__name__
            if kind == "AllocateLine":
                self._make(line.node, "allocated", at, graph)
            elif kind == "ReuseLine":
                self._make(line.reused_as, "reuse", at, graph).instead = line.node.get_name()
                self._end(line.node, at, graph, line.reused_as.get_name())
            elif kind in ("FreeIfNotReusedLine", "FreeLine") and not getattr(line, "is_reused", False):
                self._end(line.node, at, graph)

    def _make(self, node: Any, made: str, at: int, graph: Any) -> Buffer:
        buffer = Buffer(node.get_name(), _bytes_of(node, graph), made, "")
        self.buffers[buffer.name] = (buffer, at, None)
        return buffer

    def _end(self, node: Any, at: int, graph: Any, heir: str = "") -> None:
        name = node.get_name()
        if name in graph.graph_inputs or type(getattr(node, "layout", None)).__name__ == "MultiOutputLayout":
            return
        if name not in self.buffers:
            self._make(node, "library", -1, graph)
        buffer, begin, _ = self.buffers[name]
        buffer.heir = heir
        self.buffers[name] = buffer, begin, at


def _bytes_of(node: Any, graph: Any) -> int | None:
    try:
        number = graph.sizevars.optimization_hint(graph.get_allocation_storage_size(node), fallback=0)
        return int(number) * int(node.get_dtype().itemsize)
    except Exception:  # what has no layout of its own
        return None


def _read_graph_code(graph: Any, text: str, written: _Written, decisions: _Decisions | None) -> Graph:
    """Read the code of a graph, and leave out what another version of Inductor writes otherwise: reading it must not end the program."""
    try:
        return _graph(graph, text, written, decisions)
    except Exception as error:
        return Graph(f"not read ({type(error).__name__})", "", buffers=text.count(_MADE), reused=text.count(_REUSED))


def _graph(graph: Any, text: str, written: _Written, decisions: _Decisions | None) -> Graph:
    part = "backward" if graph.is_backward else "inference" if graph.is_inference else "forward"
    nodes = list(graph.module.graph.nodes)
    places = [place for place in map(place_of, nodes) if place]
    made = Graph(part, places[0] if places else "", buffers=text.count(_MADE), reused=text.count(_REUSED), text=text)
    known = decisions if decisions is not None else _Decisions({}, {})
    names: dict[int, str] = {}
    makers: dict[str, str] = {}
    for number, node in enumerate(graph.scheduler.nodes):
        kernel = _kernel(node, written.names.get(id(node), ""))
        if kernel is None:
            # A result of a call is of the kernel that was called.
            given = getattr(node.get_nodes()[0].node, "inputs", ())
            maker = makers.get(given[0].get_name(), "") if given and type(node.get_nodes()[0].node).__name__ == "MultiOutput" else ""
            makers.update((name, maker) for name in node.get_buffer_names() if maker)
            continue
        names[number] = kernel.name
        makers.update((name, kernel.name) for name in node.get_buffer_names())
        made.kernels.append(kernel)
        if part == "backward":
            for again in dict.fromkeys(origin.meta[_AGAIN] for origin in _origins(node) if origin.meta.get(_AGAIN) in known.recomputed):
                one = known.recomputed[again]
                one.kernels = (*dict.fromkeys((*one.kernels, kernel.name)),)
    for buffer, begin, end in written.buffers.values():
        # What is only written through, as by kernels of the program's own, is there for the next kernel.
        buffer.kernel = makers.get(buffer.name) or next((names[name] for name in names if name >= begin >= 0), "")
        buffer.freed = "" if end is None else names.get(end, names.get(end - 1, ""))
        made.plan.append(buffer)
    if part == "forward":
        made.saved = list(_saved(nodes[-1], known.why))
    elif part == "backward":
        made.recomputed = list(known.recomputed.values())
    return made


def _origins(node: Any) -> Iterable[Any]:
    return dict.fromkeys(origin for node in node.get_nodes() if node.node is not None for origin in node.node.get_origins())


def _kernel(node: Any, called: str) -> Kernel | None:
    origins = _origins(node)
    parts = tuple(Part(one.name, name, place_of(one), _module(one), _call(one)) for one in origins if (name := operator_of(one)))
    operators = tuple(dict.fromkeys(part.operator for part in parts))
    first = node.get_nodes()[0].node
    # A copy into another layout, as of weights for convolutions, is a kernel that no operator of the program asked for.
    is_kernel = operators or (called and not node.is_extern())
    if type(node).__name__ == "NopKernelSchedulerNode" or type(first).__name__ == "MultiOutput" or not is_kernel:
        return None  # nothing runs: a result of a call is given a name
    lines = tuple(dict.fromkeys(part.line for part in parts if part.line))
    dtype = getattr(getattr(first, "layout", None), "dtype", torch.float32)
    name = (getattr(first, "python_kernel_name", None) if node.is_extern() else "") or called
    return Kernel(
        str(name or "_".join(one.partition(".")[0] for one in operators)[:60]),
        not node.is_extern(),
        operators,
        lines,
        _of(node.get_read_write_buffers_sizes),
        _of(node.estimate_flops),
        str(NAMED_DTYPES.get(str(dtype).removeprefix("torch."), "")),
        parts,
        tuple(dict.fromkeys(filter(None, map(_module, origins)))),
        _of(lambda: _counted(node)),
    )


def _counted(node: Any) -> tuple[tuple[str, int], ...] | None:
    """Return the operations of generated loops for each element, by class of FLOPs."""
    found = dict.fromkeys(("matmul", "elementwise", "transcendental", "reduction"), 0)
    for one in node.get_nodes():
        if one.is_template():
            found["matmul"] += one.estimate_flops()
            continue
        if getattr(getattr(one.node, "data", None), "output_index", 0):
            continue  # of one reduction with several results
        size = math.prod(int(size) for sizes in one._body.sizes for size in sizes)
        for name, count in one._body.op_counts.items():
            if name == "reduction":
                for kind, times in _REDUCTIONS[one.node.data.reduction_type].items():
                    found[kind] += times * size * count
            elif _TRANSCENDENTAL.fullmatch(name):
                found["transcendental"] += size * count
            elif _ELEMENTWISE.fullmatch(name):
                found["elementwise"] += size * count
            elif not _MOVES.fullmatch(name):
                return None
    return tuple(found.items())


def _of(function: Any) -> Any:
    try:
        found = function()
    except Exception:  # an estimate of Inductor's own, which not every node has
        return None
    return found if isinstance(found, int | tuple) else None


def operator_of(origin: Any) -> str:
    target = origin.meta.get("original_aten") or origin.target
    return target.name().removeprefix("aten::") if hasattr(target, "name") else ""


def place_of(node: Any) -> str:
    """Return the program's line behind a node; its module where only torch's own code says it."""
    matches = _PLACE.findall(node.meta.get("stack_trace") or "")
    if matches:
        return f"{matches[-1][0]}:{matches[-1][1]}"
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return re.sub(r"L\['\w+'\]\.?|_modules", "", str(modules[-1][0])).strip(".").join(("module ", "")) if modules else ""


def _module(node: Any) -> str:
    """Return the path of the module behind a node: of "L['self']._modules['layers'][0].up" it is "layers.0.up"."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    path = re.sub(r"^L\['\w+'\](\.__self__)?|_modules|_orig_mod", "", str(modules[-1][0])) if modules else ""
    return ".".join(re.findall(r"\w+", path))


def _call(node: Any) -> str:
    """Return the call of the program behind a node."""
    calls = node.meta.get("source_fn_stack") or ()
    return str(calls[-1][0]) if calls else ""


def _saved(output: Any, why: Mapping[str, str]) -> Iterator[Saved]:
    shown = output.meta.get("user_visible_output_idxs", ())
    seen = set()
    for place, node in enumerate(output.args[0]):
        value = getattr(node, "meta", {}).get("val")
        if place in shown or node is None or not isinstance(value, torch.Tensor) or node.op == "placeholder" or value.device.type != "cuda":
            continue
        storage = value.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            yield Saved(operator_of(node), place_of(node), _number(storage.nbytes()), why.get(node.name, ""))


class Breaks:
    """Follows what graphs before a break hand to graphs after it."""

    def __init__(self, graphs: list[Graph], number_of: Callable[[torch.Tensor], tuple[int, int] | None]) -> None:
        """`number_of` tells which allocation a tensor is in, by a number that none has again, and its bytes."""
        self._graphs, self._number_of = graphs, number_of
        self.across: dict[tuple[str, str], int] = {}
        """The most by break: its line and its cause."""
        self._made: dict[int, tuple[_Run, int]] = {}

    def install(self) -> None:
        """Listen to the graphs that Dynamo gives to backends."""
        kind: Any = importlib.import_module("torch._dynamo.output_graph").OutputGraph
        compiled = kind.call_user_compiler

        def call_user_compiler(output: Any, module: Any, inputs: Any) -> Any:
            backend = _backend(output.compiler_fn)
            if backend != INDUCTOR:
                nodes = list(module.graph.nodes)
                line = next((place for place in map(place_of, nodes) if place), "")
                count = sum(node.op.startswith("call_") for node in nodes)
                self._graphs.append(Graph("graph", line, backend=backend, operators=count))
            function = compiled(output, module, inputs)
            reason = output.compile_subgraph_reason
            stops = _where(reason) if reason is not None and reason.graph_break else None

            def run(*args: Any) -> Any:
                self._enter(args)
                made = function(*args)
                if stops is not None:
                    self._leave(stops, made)
                return made

            return run

        kind.call_user_compiler = call_user_compiler

    def _enter(self, args: Iterable[Any]) -> None:
        if not self._made:
            return
        for argument in args:
            piece = self._piece(argument)
            if piece is not None and piece[0] in self._made:
                run, size = self._made[piece[0]]
                run.taken[piece[0]] = size
                self.across[run.key] = max(self.across.get(run.key, 0), sum(run.taken.values()))

    def _leave(self, key: tuple[str, str], made: Any) -> None:
        run = _Run(key)
        self.across.setdefault(key, 0)
        for number, (other, _) in list(self._made.items()):
            if other.key == key:
                del self._made[number]
        for one in made if isinstance(made, tuple | list) else (made,):
            piece = self._piece(one)
            if piece is not None:
                self._made[piece[0]] = run, piece[1]

    def _piece(self, one: Any) -> tuple[int, int] | None:
        return self._number_of(one) if type(one) in (torch.Tensor, torch.nn.Parameter) and one.is_cuda else None

    def clear(self) -> None:
        """Forget them."""
        self.across.clear()
        self._made.clear()


class _Run:
    """One run of a graph that ends at a break, and what of its results other graphs have taken."""

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.taken: dict[int, int] = {}


def _backend(function: Any) -> str:
    """Return the backend that a program gave to `torch.compile`."""
    for _ in range(8):
        name = getattr(function, "compiler_name", None)
        if name:
            return str(name)
        below = getattr(function, "_torchdynamo_orig_backend", None) or getattr(function, "_torchdynamo_orig_callable", None)
        if below is None:
            break
        function = below
    return str(getattr(function, "__name__", type(function).__name__))


def _where(reason: Any) -> tuple[str, str]:
    """Line and cause of a graph break."""
    stack = list(reason.user_stack)
    return f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "", _first(reason.reason)


def forget() -> None:
    """Make Dynamo forget what it compiled before in this process, and what it counts of that, which it would tell once more."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    torch.compiler.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()


def events(across: Mapping[tuple[str, str], int]) -> list[Event]:
    """Graph breaks, recompilations and limits so far; `across` has what is handed over each break, by line and cause."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    counter: Counter[tuple[str, str, str]] = Counter()
    for one in utils.graph_break_reasons:
        counter["graph break", *_where(one)] += 1
    causes = {cause for _, _, cause in counter}
    for kind, what in (("graph_break", "graph break"), ("unimplemented", "left as it is")):
        for reason, count in utils.counters[kind].items():
            # A break within a loop, or in a function that cannot be resumed: the last cause is why the whole function is left.
            last = _first(reason.rpartition("another graph break occurred: ***")[2])
            skipped = _SKIPPED.search(reason)
            if last not in causes and (kind == "graph_break" or skipped is not None):
                counter[what, f"{skipped[2]}:{skipped[3]} ({skipped[1]})" if skipped is not None else "", last] += count
    where = ""
    for record in utils.get_compilation_metrics():
        if record.co_filename is None and record.recompile_reason:
            counter["limit of recompilations", where, f"it is not compiled any more: {_first(record.recompile_reason)}"] += 1
            continue
        if record.co_filename is not None:
            where = f"{record.co_filename}:{record.co_firstlineno}"
        if record.recompile_reason:
            counter["recompilation", where, _first(record.recompile_reason)] += 1
    return [Event(*key, count, across.get(key[1:]) if key[0] == "graph break" else None) for key, count in counter.items()]


def _first(text: str) -> str:
    lines = [line.strip() for line in str(text).strip().splitlines() if line.strip()]
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    return (lines[0] + (f": {explained}" if explained else ""))[:200] if lines else ""


_TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_VERBOSE: Final = (
    "Developer debug context", "Set TORCHDYNAMO_VERBOSE", "The above exception was", "For more details about", "Hint:", "For debugging",
    "Caused by:", "consider using data-dependent friendly", "args[",
)  # fmt: skip
_MORE: Final = ' For more information, run with TORCH_LOGS="+dynamic".'
_CODE: Final = re.compile(r"from user code|Found from *:|User stack:", re.IGNORECASE)
"""Before the program's lines."""
_COMPILERS: Final = ("torch._dynamo.exc", "torch._inductor.exc", "torch.fx.experimental.symbolic_shapes")


def explained(error: BaseException) -> tuple[str, str] | None:
    """Return a compiler's error in one line, and the program's line that it is about; None for other errors."""
    if not type(error).__module__.startswith(_COMPILERS):
        return None
    said, _, code = _CODE.sub("\0", str(error).replace(_MORE, ""), count=1).partition("\0")
    lines = [line.strip() for line in _until(said.splitlines())]
    text = " ".join(line.removeprefix("Explanation: ").removeprefix("- ") + ("." if line[-1:].isalnum() else "") for line in lines if line)
    got = re.search(r"[:,] got (\w+\(.*\))", text)
    if got is not None:
        text = f"{lines[0]}: {got[1]}"
    places = [place for place in _PLACE.findall(code) if not place[0].startswith(_TORCH)]
    return f"{type(error).__name__}: {text}"[:300].rstrip("."), f"{places[-1][0]}:{places[-1][1]}" if places else ""


def _until(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.strip().startswith(_VERBOSE):
            return
        yield line
