"""The result of torch.compile on a model, node by node: the kernels beside the nodes of the program as it runs eagerly."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from irscope.errors import UsageError
from irscope.frontends.zoo.names import is_name
from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays
from irscope.passes.cost.count import Certainty, Costs, NodeCosts
from irscope.passes.cost.roofline import Roofline
from irscope.passes.training.memory import trace_in
from irscope.report.cardtext import counted
from irscope.report.units import Kind, humanise
from irscope.session import Model, open_model

if TYPE_CHECKING:
    from irscope.frontends.simulation.compilations import Compilations, Kernel

_SAME_CALL: Final[Mapping[str, str]] = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "cross_entropy": "cross_entropy_loss",
    "iadd": "add",
    "imul": "mul",
    "isub": "sub",
    "matmul_": "matmul",
}
"""Dynamo's names of calls that PyTorch's dispatcher names differently."""


_READ: Final = "inductor."
"""Prefix of operators that are kernels in code that Inductor generated, or unknown calls of it."""


def eager_of(model: Model) -> Model:
    """Return the program of a compiled model as it runs eagerly, at the same sizes. Raises UsageError where that cannot be read."""
    is_step = model.program.training is not None
    if is_step or not is_name(model.program.path):
        raise UsageError(
            f"{'the step' if is_step else 'the program'} as it runs eagerly is not there: kernels are shown alone",
            code="IRS396",
            hint="`irscope tui --compile NAME` reads both",
        )
    return _read_again(model, is_compiled=False)


def compiled_of(model: Model) -> Model:
    """Return what torch.compile makes of a model by name, at the same sizes. Raises UsageError for any other."""
    if not is_name(model.program.path) or model.program.training is not None:
        raise UsageError(
            "torch.compile is for a model by name, or for ./train.py:build, without its step of training",
            code="IRS396",
            hint="`irscope tui --compile NAME`; `irscope simulate` runs a training loop that compiles",
        )
    return _read_again(model, is_compiled=True)


def _read_again(model: Model, *, is_compiled: bool) -> Model:
    found = open_model(Path(model.program.path), replace(model.options, compile=is_compiled), settings=model.manager.settings)
    found.manager.cancelled = model.manager.cancelled
    found.manager.instruments[:] = model.manager.instruments
    return found


def compilations_of(model: Model) -> Compilations | None:
    """Return what the compiler did, where it ran here."""
    holder = model.program.observed if model.program.training is None else trace_in(model.program)
    found = None if holder is None else getattr(holder.requests, "compiled", None)
    return cast("Compilations | None", found)


def is_generated(node: Node) -> bool:
    """Return whether Inductor generated the kernel that a node calls: it ran here, or was read from generated code."""
    return plays(node, OpRole.GENERATED) or node.op.startswith(_READ)


@immutable(slots=False)
class Step:
    """A node that does something: an operator of the eager program, or a kernel of the compiled one."""

    node: Node
    moved: int | None
    """Bytes read and written; None where they are not known."""
    seconds: float | None
    """The least time by roofline."""

    @property
    def name(self) -> str:
        """Its kernel's name, else its own."""
        found = self.node.attrs.get("kernel")
        if isinstance(found, str) and found:
            return found
        return self.node.op.partition(".")[2] if is_generated(self.node) else self.node.name

    @property
    def line(self) -> str:
        """Return where the program says so; its module where only torch's own code does."""
        loc = self.node.loc
        return f"{loc.file}:{loc.line}" if loc is not None else f"module {self.node.scope.module}" if self.node.scope.module else ""


@immutable(slots=False)
class KernelStep(Step):
    """A kernel with what was fused into it."""

    kernel: Kernel | None
    graph: int | None
    """The number of the graph that it is in; None for what runs outside of what was compiled, or where nobody tells."""
    eager: tuple[int, ...]
    """Nodes of the eager program whose work it does, or some of it, by their place."""

    @property
    def is_generated(self) -> bool:
        """Return whether Inductor generated it; else it is a call of a library."""
        return is_generated(self.node)

    @property
    def operators(self) -> Sequence[tuple[str, str, int]]:
        """Return what is in it: operator, line, and how many nodes of the compiler's graph that is."""
        if self.kernel is not None:
            return [(*key, count) for key, count in Counter((part.operator, part.line) for part in self.kernel.parts).items()]
        names, lines = self.node.attrs.get("operators", self.node.attrs.get("origins")), self.node.attrs.get("lines")
        said = [line for line in lines if isinstance(line, str)] if isinstance(lines, tuple) else []
        if not isinstance(names, tuple):
            return [(self.node.source.rpartition("::")[2] or self.node.op, self.line, 1)]
        return [(str(name), said[0] if len(said) == 1 else "" if said else self.line, 1) for name in names] + (
            [("lines", ", ".join(said), 1)] if len(said) > 1 else []
        )


class Lowered:
    """A compiled program beside its eager one."""

    def __init__(self, model: Model, eager: Model | None, why: str = "") -> None:
        self.model = model
        self.found = compilations_of(model)
        self.why = why
        """Reason why there is no eager program."""
        self.eager: list[Step] = [] if eager is None else [Step(*step) for step in _steps(eager)]
        """Nodes that do something, in order."""
        self.kernels: list[KernelStep] = list(self._matched(list(_steps(model))))

    @cached_property
    def kernels_of(self) -> Mapping[int, Sequence[int]]:
        """Return for each node of the eager program, by its place, the kernels that do its work."""
        kernels: defaultdict[int, list[int]] = defaultdict(list)
        for place, kernel in enumerate(self.kernels):
            for one in kernel.eager:
                kernels[one].append(place)
        return kernels

    def _matched(self, steps: Sequence[tuple[Node, int | None, float | None]]) -> Iterator[KernelStep]:
        known = [] if self.found is None else [(number, one) for number, graph in enumerate(self.found.graphs) for one in graph.kernels]
        places = self._places()
        at = 0
        for node, moved, seconds in steps:
            place = next((index % len(known) for index in range(at, at + len(known)) if _is_of(node, known[index % len(known)][1])), None)
            if place is None:
                yield KernelStep(node, moved, seconds, None, None, self._alone(node))
                continue
            at = place + 1
            graph, kernel = known[place]
            own = {places[key] for part in kernel.parts if (key := (graph, part.module, part.call)) in places}
            yield KernelStep(node, moved, seconds, kernel, graph, tuple(sorted(own)))

    def _alone(self, node: Node) -> tuple[int, ...]:
        """A node that runs as it does in eager is the one of the same module with the same operator, if there is one such."""
        same = [
            place
            for place, one in enumerate(self.eager)
            if one.node.source == node.source and one.node.scope.path == node.scope.path and one.node.source
        ]
        return (same[0],) if len(same) == 1 else ()

    def _places(self) -> dict[tuple[int, str, str], int]:
        """Return the eager node of each call in the compiler's graphs: in a module the calls of a name are in the same order in both.

        Where their numbers differ, nobody can tell which is which, so that none is named.
        """
        calls: defaultdict[tuple[str, str], dict[tuple[int, int, str], tuple[int, str, str]]] = defaultdict(dict)
        for number, graph in enumerate([] if self.found is None else self.found.graphs):
            for part in (part for kernel in graph.kernels for part in kernel.parts if part.call):
                name, place = _call(part.call)
                calls[part.module, name][number, place, part.call] = (number, part.module, part.call)
        eager: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for at, one in enumerate(self.eager):
            eager[one.node.scope.module, _operator(one.node)].append(at)
        places: dict[tuple[int, str, str], int] = {}
        for key, several in calls.items():
            if len(several) == len(eager[key]):
                places.update(zip((several[member] for member in sorted(several)), eager[key], strict=True))
        return places

    # -- what it comes to --------------------------------------------------------------------------------------

    @property
    def headline(self) -> list[str]:
        """Counts and sums before and after, and where compiling stops, a line each."""
        generated = sum(kernel.is_generated for kernel in self.kernels)
        made = f"{generated:,} generated, {counted(len(self.kernels) - generated, 'call')} of libraries"
        if not self.eager:
            moved = _total([kernel.moved for kernel in self.kernels])
            lines = [f"{counted(len(self.kernels), 'kernel')}: {made}; bytes moved {moved}", *([self.why] if self.why else [])]
        else:
            lines = [f"{counted(len(self.eager), 'node')} of eager are {counted(len(self.kernels), 'kernel')}: {made}", self._sums()]
        return [*lines, *self._stops()]

    def _sums(self) -> str:
        before, after = ([one.moved for one in side] for side in (self.eager, self.kernels))
        said = f"bytes moved {_total(before)} -> {_total(after)}"
        whole = sum(earlier or 0 for earlier in before)
        if None not in before and None not in after and whole:
            said += f" ({sum(later or 0 for later in after) / whole - 1:+.1%})"
        times = [[one.seconds for one in side] for side in (self.eager, self.kernels)]
        if all(None not in side for side in times):
            a, b = (humanise(sum(cast("list[float]", side)), Kind.SECONDS) for side in times)
            said += f", least time ~{a} -> ~{b}"
        return said

    def _stops(self) -> Iterator[str]:
        if self.found is None:
            return
        others = sorted({graph.backend for graph in self.found.graphs if not graph.is_followed})
        if others:
            yield f"backend {', '.join(others)}: its kernels are not known here; its results are counted"
        if not self.found.graphs:
            yield "torch.compile met nothing that it compiles: what runs is eager"
        kinds: Counter[str] = Counter()
        for event in self.found.events:
            kinds[event.what] += event.count
        for what in ("graph break", "recompilation"):
            kinds.setdefault(what, 0)
        yield "; ".join(counted(count, kind) if not kind.startswith("limit") else kind for kind, count in sorted(kinds.items()))
        for event in self.found.events:
            yield f"{event.what} at {event.line}: {event.cause}" if event.line else f"{event.what}: {event.cause}"


def _steps(model: Model) -> Iterator[tuple[Node, int | None, float | None]]:
    """Yield the nodes that do something, with the bytes that they move and their least time."""
    costs: Costs = model.manager.get(NodeCosts())
    bounds = model.manager.get(Roofline())
    seconds = {node.node: None if node.reason else bounds.seconds_of(node) for node in bounds.nodes}
    for node in model.graph:
        if costs.certainty.get(node) is Certainty.FREE:
            continue
        cost = costs.by_node.get(node)
        moved = None if cost is None or node in costs.partial or cost.read is None or cost.written is None else cost.read + cost.written
        yield node, moved if isinstance(moved, int) else None, seconds.get(node)


def _total(several: Sequence[int | None]) -> str:
    unknown = several.count(None)
    said = humanise(sum(member or 0 for member in several), Kind.BYTES)
    return f"at least {said} ({unknown:,} not known)" if unknown else said


def _is_of(node: Node, kernel: Kernel) -> bool:
    """Return whether a node of the compiled program is a call of a kernel."""
    if is_generated(node):
        return kernel.generated and kernel.name == node.attrs.get("kernel")
    return not kernel.generated and _operator(node) in {_plain(one) for one in (*kernel.operators, kernel.name.rpartition(".")[2])}


def _operator(node: Node) -> str:
    """Return what PyTorch calls it."""
    return _plain(node.source.rpartition("::")[2] or node.op.rpartition(".")[2])


def _plain(name: str) -> str:
    found = name.partition(".")[0]
    return found.rstrip("_") or found


def _call(name: str) -> tuple[str, int]:
    """Return a call by the name of its operator, and the place among those of the graph: of batch_norm_1 that is batch_norm and 1."""
    match = re.fullmatch(r"(.+?)(?:_(\d+))?", name)
    assert match is not None
    own = match[1].rstrip("_") or match[1]
    return _SAME_CALL.get(own, own), int(match[2] or 0)
