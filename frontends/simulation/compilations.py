"""What the compiler did: graphs and their kernels as Inductor scheduled them, graph breaks and recompilations as Dynamo tells them."""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from irscope.frontends.simulation.partitions import Partition
from irscope.frontends.simulation.settings import uses_of_compiler
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES

_PLACE: Final = re.compile(r'File "([^"]+)", line (\d+)')
_SKIPPED: Final = re.compile(r"frame skipped: (\S+) \((.+?) line (\d+)\)")
_MADE, _REUSED = "empty_strided_cuda(", "# reuse"
"""How the generated code says that it takes memory, and that a buffer takes the place of one that is no longer needed."""
_CALLS: Final = re.compile(r"\s+(?:\w+ = )?(?:\w+\.run\(|extern_kernels\.\w+\(|torch\.ops\.[\w.]+\()")
"""How it calls a kernel."""
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
class Kernel:
    """A kernel that was generated, or a call of a library's."""

    name: str
    generated: bool
    operators: tuple[str, ...]
    """What was fused into it."""
    lines: tuple[str, ...]
    """Where the program says so."""
    bytes: int | None
    """Read and written, as Inductor counts them."""
    flops: int | None
    dtype: str
    modules: tuple[str, ...] = ()
    """Whose operators they are."""
    counts: tuple[tuple[str, int], ...] | None = None
    """Operations of the generated loops by class of FLOPs; None where they do something that is not counted."""


@dataclass
class Graph:
    """One graph that Inductor compiled."""

    part: str
    """forward, backward or inference."""
    line: str
    kernels: list[Kernel] = field(default_factory=list)
    buffers: int = 0
    reused: int = 0
    saved: list[tuple[str, str, int]] = field(default_factory=list)
    """What the forward keeps for the backward besides its inputs: operator, line, bytes."""
    text: str = field(default="", repr=False)
    """The generated code."""

    def sites(self) -> dict[int, Kernel]:
        """Which kernel each line of the code calls; empty where they cannot be told apart."""
        lines = [number for number, line in enumerate(self.text.splitlines(), 1) if _CALLS.match(line)]
        return dict(zip(lines, self.kernels, strict=True)) if len(lines) == len(self.kernels) else {}


@dataclass
class Event:
    """Something that makes a compiled program slower: a graph break, a recompilation, a limit."""

    what: str
    line: str
    cause: str
    count: int = 1


@dataclass
class Compilations:
    """All of it."""

    graphs: list[Graph] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """All but problems for solvers."""
        return {
            "graphs": [{key: value for key, value in asdict(one).items() if key != "text"} for one in self.graphs],
            "events": [asdict(one) for one in self.events],
            "partitions": [one.to_json() for one in self.partitions],
            "orders": [one.to_json() for both in self.partitions for one in (both.forward, both.backward) if one is not None],
        }


def followed(found: list[Graph], uses: dict[str, Any]) -> None:
    """Note every graph that Inductor generates code for, and the settings that hold then."""
    kind: Any = importlib.import_module("torch._inductor.graph").GraphLowering
    original = kind.codegen

    def codegen(graph: Any) -> Any:
        made = original(graph)
        if any(device == "cuda" for device in graph.device_types):
            found.append(_read(graph, made[0].value))
            uses.update(uses_of_compiler())
        return made

    kind.codegen = codegen


def _read(graph: Any, text: str) -> Graph:
    """What another version of Inductor tells otherwise is left out: reading it must not end the program."""
    try:
        return _graph(graph, text)
    except Exception as error:
        return Graph(f"not read ({type(error).__name__})", "", buffers=text.count(_MADE), reused=text.count(_REUSED))


def _graph(graph: Any, text: str) -> Graph:
    part = "backward" if graph.is_backward else "inference" if graph.is_inference else "forward"
    nodes = list(graph.module.graph.nodes)
    places = [place for place in map(place_of, nodes) if place]
    made = Graph(part, places[0] if places else "", buffers=text.count(_MADE), reused=text.count(_REUSED), text=text)
    for node in graph.scheduler.nodes:
        kernel = _kernel(node)
        if kernel is not None:
            made.kernels.append(kernel)
    if part == "forward":
        made.saved = list(_saved(nodes[-1]))
    return made


def _kernel(node: Any) -> Kernel | None:
    origins = dict.fromkeys(origin for one in node.get_nodes() if one.node is not None for origin in one.node.get_origins())
    operators = tuple(dict.fromkeys(filter(None, map(operator_of, origins))))
    first = node.get_nodes()[0].node
    if type(node).__name__ == "NopKernelSchedulerNode" or type(first).__name__ == "MultiOutput" or not operators:
        return None  # nothing runs: a result of a call is given a name
    lines = tuple(dict.fromkeys(filter(None, map(place_of, origins))))
    dtype = getattr(getattr(first, "layout", None), "dtype", torch.float32)
    called = getattr(first, "python_kernel_name", None) if node.is_extern() else None
    name = str(called or "_".join(("triton", *(one.partition(".")[0] for one in operators)))[:60])
    return Kernel(
        name,
        not node.is_extern(),
        operators,
        lines,
        _of(node.get_read_write_buffers_sizes),
        _of(node.estimate_flops),
        str(NAMED_DTYPES.get(str(dtype).removeprefix("torch."), "")),
        tuple(dict.fromkeys(filter(None, map(_module, origins)))),
        _of(lambda: _counted(node)),
    )


def _counted(node: Any) -> tuple[tuple[str, int], ...] | None:
    """What generated loops compute: their operations for each element, by class of FLOPs."""
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
    """The program's line behind a node; its module where only torch's own code says it."""
    found = _PLACE.findall(node.meta.get("stack_trace") or "")
    if found:
        return f"{found[-1][0]}:{found[-1][1]}"
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return re.sub(r"L\['\w+'\]\.?|_modules", "", str(modules[-1][0])).strip(".").join(("module ", "")) if modules else ""


def _module(node: Any) -> str:
    """The path of the module behind a node: of "L['self']._modules['layers'][0].up" it is "layers.0.up"."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    path = re.sub(r"^L\['\w+'\]|_modules|_orig_mod", "", str(modules[-1][0])) if modules else ""
    return ".".join(re.findall(r"\w+", path))


def _saved(output: Any) -> Iterator[tuple[str, str, int]]:
    shown = output.meta.get("user_visible_output_idxs", ())
    seen = set()
    for place, node in enumerate(output.args[0]):
        value = getattr(node, "meta", {}).get("val")
        if place in shown or node is None or not isinstance(value, torch.Tensor) or node.op == "placeholder" or value.device.type != "cuda":
            continue
        storage = value.untyped_storage()
        size: Any = storage.nbytes()
        if isinstance(size, int) and storage._cdata not in seen:
            seen.add(storage._cdata)
            yield operator_of(node), place_of(node), size


def events() -> list[Event]:
    """Graph breaks, recompilations and limits so far."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    found: Counter[tuple[str, str, str]] = Counter()
    for one in utils.graph_break_reasons:
        stack = list(one.user_stack)
        found["graph break", f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "", _first(one.reason)] += 1
    told = {cause for _, _, cause in found}
    for kind, what in (("graph_break", "graph break"), ("unimplemented", "left as it is")):
        for reason, count in utils.counters[kind].items():
            # A break within a loop, or in a function that cannot be resumed: the last cause is why the whole function is left.
            last = _first(reason.rpartition("another graph break occurred: ***")[2])
            skipped = _SKIPPED.search(reason)
            if last not in told and (kind == "graph_break" or skipped is not None):
                found[what, f"{skipped[2]}:{skipped[3]} ({skipped[1]})" if skipped is not None else "", last] += count
    where = ""
    for record in utils.get_compilation_metrics():
        if record.co_filename is None and record.recompile_reason:
            found["limit of recompilations", where, f"it is not compiled any more: {_first(record.recompile_reason)}"] += 1
            continue
        if record.co_filename is not None:
            where = f"{record.co_filename}:{record.co_firstlineno}"
        if record.recompile_reason:
            found["recompilation", where, _first(record.recompile_reason)] += 1
    return [Event(*key, count) for key, count in found.items()]


def _first(text: str) -> str:
    lines = [line.strip() for line in str(text).strip().splitlines() if line.strip()]
    explained = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    return (lines[0] + (f": {explained}" if explained else ""))[:200] if lines else ""


_VERBOSE: Final = (
    "Developer debug context",
    "Set TORCHDYNAMO_VERBOSE",
    "The above exception was",
    "For more details about",
    "Hint:",
    "For debugging",
)


def explained(error: BaseException) -> tuple[str, str] | None:
    """What a compiler's error says in one line, and the program's line that it is about; None for other errors."""
    if not type(error).__module__.startswith(("torch._dynamo.exc", "torch._inductor.exc")):
        return None
    said, _, code = str(error).partition("from user code")
    lines = [line.strip() for line in _until(said.splitlines())]
    text = " ".join(line.removeprefix("Explanation: ") + ("." if line[-1:].isalnum() else "") for line in lines if line)
    got = re.search(r"[:,] got (\w+\(.*\))", text)
    if got is not None:
        text = f"{lines[0]}: {got[1]}"
    places = _PLACE.findall(code)
    return f"{type(error).__name__}: {text}"[:300].rstrip("."), f"{places[-1][0]}:{places[-1][1]}" if places else ""


def _until(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.strip().startswith(_VERBOSE):
            return
        yield line
