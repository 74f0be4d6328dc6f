"""Models written again with their weights, in the format that they were read from: with what passes changed, or in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.files import TemporaryFolder, write_text
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.nodefile import as_program, graph_module, open_file, reordered, save_program
from irscope.frontends.load import NodeFile, load_program, open_nodes
from irscope.frontends.rewriting import Original
from irscope.immutable import immutable
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.passes.order.schedule import Schedule, Scheduled
from irscope.passkit.base import Transform
from irscope.passkit.manager import PassResult, Runnable
from irscope.session import Model, open_model
from irscope.solvers.graphs import sorted_by
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.solve import best_order
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_values

if TYPE_CHECKING:
    import torch


WRITERS: Final[Mapping[str, tuple[str, str]]] = {
    "onnx": ("irscope.frontends.onnx.writer", ".onnx"),
    "pt2": ("irscope.frontends.exported.writer", ".pt2"),
}
"""Writer of each format, and the suffix of its files."""
_SMALL: Final = 4096
"""Bytes of weights that are compared by value."""


@immutable(slots=False)
class Rewritten:
    """A model that was written."""

    files: list[Path]
    nodes: tuple[int, int]
    """Of the main graph, before and after."""
    results: Sequence[PassResult]


def rewrite(model: Model, passes: Runnable | Sequence[Runnable], target: Path, *, external: bool = False) -> Rewritten:
    """Run transforms over a model, which was opened with `keep_calls`, and write what it is then."""
    program = model.program
    if target.suffix.lower() == ".irs":
        return _write_text_form(model, passes, target)
    if program.format not in WRITERS:
        raise UsageError(
            f"a model read as {program.format} is not written again",
            code="IRS368",
            where=program.path,
            hint="an .onnx or .pt2 file is; -o FILE.irs writes the graph as text",
        )
    name, suffix = WRITERS[program.format]
    if target.suffix.lower() != suffix:
        raise UsageError(
            f"a changed {suffix} file stays one; {target.name!r} has another suffix",
            code="IRS357",
            hint=f"`-o {target.stem}{suffix}`, or .irs for the graph as text",
        )
    if target.resolve() == Path(program.path).resolve():
        raise UsageError(
            "the changed model would take the place of the original", code="IRS361", where=str(target), hint="name another file"
        )
    if program.given:
        raise UsageError(
            f"a model cannot be written for one value of an input: {', '.join(f'{key}={value}' for key, value in program.given.items())}",
            code="IRS368",
            hint="leave them out of --bind; sizes may be given",
        )
    writer = import_module(name)
    before = len(program.graph)
    original = Original.of(program)
    results = _transformed(model, passes)

    def check(path: Path, names: Mapping[Value, str]) -> None:
        _check(program, path, model, names)

    files = writer.write_changed(original, target, external=external, check=check, method=model.options.method)
    return Rewritten(files, (before, len(program.graph)), results)


def _transformed(model: Model, passes: Runnable | Sequence[Runnable]) -> Sequence[PassResult]:
    """Run transforms; UsageError where an analysis is among them."""
    results = model.manager.run(passes) if passes else []
    other = next((result.subject for result in results if not isinstance(result.subject, Transform)), None)
    if other is not None:
        raise UsageError(f"{other.name} changes nothing: the passes of a model to write are transforms", code="IRS368")
    return results


def _write_text_form(model: Model, passes: Runnable | Sequence[Runnable], target: Path) -> Rewritten:
    """Write what transforms leave of any model in the text form; the weights stay where they are."""
    before = len(model.program.graph)
    results = _transformed(model, passes)
    write_text(target, [print_program(model.program)])
    return Rewritten([target], (before, len(model.program.graph)), results)


def _check(program: Program, path: Path, model: Model, names: Mapping[Value, str]) -> None:
    """Read what was written and compare it with what was meant."""
    # Sizes that were given are now those of its inputs.
    again = load_program(path, replace(model.options, bind={}, inputs={}), DiagnosticSink())
    found = difference(program, names, again)
    if found:
        raise UsageError(
            f"what would be written does not read as the changed graph: {found}",
            code="IRS368",
            hint="this is a fault of irscope: please report it with the model's operators and the passes",
        )


# Whether two programs compute the same, node by node.


def difference(one: Program, names: Mapping[Value, str], other: Program) -> str:
    """Return where the results of two programs begin to differ in operators, attributes or what they read; empty where they do not.

    Order, names of results and nodes that nothing reads do not matter. `names` are those of weights of the first in the second.
    """
    keys: dict[object, int] = {}
    first = _Numbering(one, names, keys)
    second = _Numbering(other, {}, keys)
    ends = [first.run(), second.run()]
    if len(ends[0]) != len(ends[1]):
        return f"{len(ends[1])} results instead of {len(ends[0])}"
    known = set(second.number.values())
    for value, (mine, theirs) in zip(one.graph.outputs, zip(*ends, strict=True), strict=True):
        if mine != theirs:
            lost = next((node for node in one.graph if any(output.users for output in node.outputs) and first.of(node) not in known), None)
            return f"the result {value.name or '?'} is another" if lost is None else f"node {lost.name} ({lost.op}) comes out otherwise"
    return ""


class _Numbering:
    """The same number for what is computed alike from the same."""

    def __init__(self, program: Program, names: Mapping[Value, str], keys: dict[object, int]) -> None:
        self.program = program
        self.names = names
        self.keys = keys
        self.number: dict[Value, int] = {}

    def run(self) -> list[int]:
        for at, value in enumerate(self.program.graph.inputs):
            self._give(value, ("input", at))
        with WeightFiles(self.program.path) as files:
            for weight in self.program.weights():
                self._give(weight, ("weight", weight.type.dtype, weight.type.shape, self._content(weight, files)))
        self._body(self.program.graph, 0)
        return [self.number[value] for value in self.program.graph.outputs]

    def of(self, node: Node) -> int:
        return self.number[node.outputs[0]] if node.outputs else -1

    def _content(self, weight: Value, files: WeightFiles) -> object:
        """Return what tells a weight from others of its type: the values of a small one, else the name."""
        size = weight.type.nbytes
        if isinstance(size, int) and size <= _SMALL:
            try:
                stored = stored_values(weight.type, weight.graph.data.get(weight) if weight.graph is not None else None, files)
                content = bytearray(stored.bytes)
                files.read_into(stored.source, 0, memoryview(content))
                return bytes(content)
            except Unreadable:
                pass
        return self.names.get(weight, weight.name)

    def _give(self, value: Value, key: object) -> None:
        self.number[value] = self.keys.setdefault(key, len(self.keys))

    def _body(self, graph: Graph, depth: int) -> None:
        for node in graph:
            regions = []
            for at, region in enumerate(node.regions):
                for index, value in enumerate(region.inputs):
                    self._give(value, ("argument", depth, at, index))
                self._body(region, depth + 1)
                regions.append(tuple(self.number[value] for value in region.outputs))
            reads = tuple(-1 if value is None else self.number[value] for value in node.inputs)
            while reads and reads[-1] == -1:
                reads = reads[:-1]
            if node.op == "view.alias":
                self.number[node.outputs[0]] = reads[0]
                continue
            attrs = tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))
            for at, output in enumerate(node.outputs):
                self._give(output, (node.op, attrs, reads, tuple(regions), at))


@immutable(slots=False)
class FileOrder:
    """An order of a file's nodes, and what it needs."""

    order: tuple[int, ...]
    """Numbers of the file's nodes; those that stand for nothing the schedule knows run as soon as they can."""
    before: int
    """Bytes alive at the peak in the order as written."""
    after: int
    bound: int
    """No order needs less."""
    unsized: int = 0
    """Tensors whose size is not known: they count as nothing, so that the peaks are only lower limits."""

    @property
    def moved(self) -> int:
        """Return the number of nodes that stand at another place than before."""
        return sum(place != number for place, number in enumerate(self.order))

    @property
    def is_new(self) -> bool:
        return bool(self.moved)

    @property
    def verdict(self) -> str:
        """Return the benefit of the order, in one sentence."""
        if self.unsized:
            return f"{self.unsized} tensors have no known size and do not count: with them, the order may not be better"
        if self.after == self.before:
            proven = "proven best" if self.after <= self.bound else "the best that was found"
            return f"reordering does not help here: the order as written is {proven}"
        if self.after <= self.bound:
            return "no order needs less: proven"
        return f"at most {self.after / self.bound - 1:.1%} above the lower bound of every order" if self.bound else "no bound is known"


def file_order(model: Model, nodes: NodeFile, schedule: Schedule) -> FileOrder:
    """Return the order for the nodes of the file that the model was read from."""
    if schedule.model == "eager":
        raise UsageError(
            "the program in a file frees tensors after their last use, which is not what model=eager stands for",
            code="IRS359",
            hint="leave model out",
        )
    origins = list(model.program.origins)
    found = model.manager.get(schedule)
    return _file_order(found, _file_numbers(model, found, origins), nodes, schedule)


def _file_numbers(model: Model, found: Scheduled, origins: Sequence[int]) -> list[int]:
    """Return for each operator of the schedule, the file's node; those behind the end stand for what the file does without a node."""
    graph = model.graph
    after = max(origins, default=-1) + 1
    numbers = {node: origins[at] if at < len(origins) else after for at, node in enumerate(graph)}
    return [numbers[node] for node in found.draft.nodes]


def _file_order(found: Scheduled, numbers: list[int], nodes: NodeFile, schedule: Schedule) -> FileOrder:
    problem = found.draft.problem
    count = len(nodes.needs)
    members: dict[int, list[int]] = {}
    for op, number in enumerate(numbers):
        members.setdefault(number, []).append(op)
    last = members.pop(count, [])
    files = list(members)
    groups = Groups([*members.values(), *([last] if last else [])])
    as_written = list(range(len(groups.members)))
    wanted = found.ordering.order if found.is_new else range(len(problem))
    best = group_order(problem, groups, wanted, schedule.seconds, schedule.seed) if found.is_new else as_written
    before_all = problem.peak(range(len(problem)))
    order = _with_rest([files[group] for group in best if group < len(files)], members, problem.before, numbers, nodes)
    peak = problem.peak([op for number in order for op in members.get(number, ())] + last)
    if peak >= before_all or (found.limit is not None and not found.limit.allows(_expanded(order, members, last))):
        order, peak = list(range(count)), before_all
    return FileOrder(tuple(order), before_all, peak, found.ordering.bound, len(found.draft.unsized))


def _expanded(order: Sequence[int], members: dict[int, list[int]], last: list[int]) -> list[int]:
    return [op for number in order for op in members.get(number, ())] + last


def _with_rest(
    order: Sequence[int], members: dict[int, list[int]], before: Sequence[Sequence[int]], numbers: Sequence[int], nodes: NodeFile
) -> list[int]:
    """Return the order with the file's other nodes: each runs as soon as it can."""
    keys = [-1] * len(nodes.needs)
    for place, number in enumerate(order):
        keys[number] = place
    needs = [set(need) for need in nodes.needs]
    for number, ops in members.items():
        needs[number].update(numbers[earlier] for op in ops for earlier in before[op])
        needs[number].discard(number)
    return sorted_by(keys, [tuple(sorted(need)) for need in needs])


def write_reordered(model: Model, nodes: NodeFile, found: FileOrder, target: Path) -> list[Path]:
    """Write a copy of the file with its nodes in that order; returns the files written."""
    if target.resolve() == Path(model.program.path).resolve():
        raise UsageError(
            "the reordered model would take the place of the original", code="IRS361", where=str(target), hint="name another file"
        )
    return nodes.write(found.order, target)


def open_nodes_of(model: Model) -> NodeFile:
    """Return the nodes of the file that the model was read from."""
    return open_nodes(Path(model.program.path), model.options.method)


# Orders in which some operators stay together: those that one node of the file was lowered to.


@immutable(slots=False)
class Groups:
    """Operators of a problem in groups; the operators of one run one after the other, in the order as written."""

    members: list[list[int]]
    """Groups in an order that is valid as it stands."""

    def expanded(self, order: Sequence[int]) -> list[int]:
        """Return an order of groups as one of operators."""
        return [op for group in order for op in self.members[group]]

    @property
    def are_single(self) -> bool:
        """Return whether each operator is a group of its own."""
        return all(len(group) == 1 for group in self.members)


def contracted(problem: OrderProblem, groups: Groups) -> OrderProblem:
    """Return the problem of ordering the groups. What a group makes and drops again is its workspace, with all else that it touches
    alive.
    """
    group_of = {op: number for number, group in enumerate(groups.members) for op in group}
    before: list[set[int]] = [set() for _ in groups.members]
    for op, earlier in enumerate(problem.before):
        before[group_of[op]].update(group_of[predecessor] for predecessor in earlier)
    inner: list[list[Storage]] = [[] for _ in groups.members]
    storages: list[Storage] = []
    for storage in problem.storages:
        touches = sorted({group_of[op] for op in storage.touches})
        if len(touches) == 1 and len(groups.members[touches[0]]) > 1 and not storage.is_input and not storage.is_output:
            inner[touches[0]].append(storage)
        else:
            storages.append(Storage(storage.size, tuple(touches), storage.is_input, storage.is_output))
    workspace: list[int] = []
    for number, group in enumerate(groups.members):
        before[number].discard(number)
        place = {op: at for at, op in enumerate(group)}
        inside = [Storage(storages.size, tuple(place[op] for op in storages.touches)) for storages in inner[number]]
        alone = order_problem([()] * len(group), inside, [problem.workspace[op] for op in group])
        workspace.append(max(alone.needs(range(len(group))), default=0))
    found = order_problem(before, storages, workspace)
    return OrderProblem(found.before, found.storages, found.workspace, problem.base)


def group_order(problem: OrderProblem, groups: Groups, wanted: Sequence[int], seconds: float, seed: int) -> list[int]:
    """Return the order of groups that needs least: near an order of operators that is known to be good, or from a new search."""
    place = {op: at for at, op in enumerate(wanted)}
    last = [max(place[op] for op in group) for group in groups.members]
    whole = contracted(problem, groups)
    near = sorted_by(last, whole.before)
    if groups.are_single:
        return near
    order = best_order(whole, seconds, seed).order
    return min((near, order), key=lambda order: problem.peak(groups.expanded(order)))


# Torch modules and exported programs with the order of operators that needs least memory.


@immutable(slots=False)
class ScheduledProgram:
    """A program in its new order, with the peak before and after."""

    program: torch.export.ExportedProgram
    """With the original's weights; `torch.export.save` writes it."""
    order: FileOrder

    @property
    def module(self) -> torch.fx.GraphModule:
        """Return what runs the program: it lets go of each value after its last use."""
        return graph_module(self.program)

    @property
    def peak_before_bytes(self) -> int:
        return self.order.before

    @property
    def peak_after_bytes(self) -> int:
        return self.order.after

    @property
    def lower_bound_bytes(self) -> int:
        return self.order.bound

    @property
    def proven_optimal(self) -> bool:
        return self.order.after <= self.order.bound

    def save(self, path: str | Path) -> None:
        """Write a `.pt2` file."""
        save_program(self.program, Path(path))


def scheduled(
    subject: torch.nn.Module | torch.export.ExportedProgram,
    *args: Any,
    bind: Mapping[str, int] | None = None,
    seconds: float = 10,
    seed: int = 0,
    latency: str = "",
    **kwargs: Any,
) -> ScheduledProgram:
    """Return the module or exported program with its operators in the order that needs least memory. A module is exported for its
    arguments.

    `bind` gives sizes of symbols for which the order is to be good; it is valid for all.
    """
    program = as_program(subject, args, kwargs)
    with TemporaryFolder() as folder:
        path = Path(folder) / "model.pt2"
        save_program(program, path)
        model = open_model(path, LoadOptions(bind=dict(bind or {})))
        found = file_order(model, open_file(path), Schedule(seconds=seconds, seed=seed, latency=latency))
    return ScheduledProgram(reordered(program, found.order) if found.is_new else program, found)
