"""Models that passes changed, written again with their weights, in the format that they were read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.files import write_text
from irscope.frontends.load import load_program
from irscope.frontends.rewriting import Original
from irscope.immutable import immutable
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.passes.cost.flops import Flops
from irscope.passes.exports.pictures import Amounts, node_notes
from irscope.passkit.base import Transform
from irscope.passkit.manager import PassResult, Runnable
from irscope.report.boxes import BoxTree
from irscope.session import Model
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_values

WRITERS: Final[Mapping[str, tuple[str, str]]] = {
    "onnx": ("irscope.frontends.onnx.writer", ".onnx"),
    "pt2": ("irscope.frontends.exported.writer", ".pt2"),
}
"""What writes a format again, and what its files end in."""
_SMALL: Final = 4096
"""Bytes of weights that are compared by value."""


@immutable(slots=False)
class Rewritten:
    """A model that was written."""

    files: list[Path]
    nodes: tuple[int, int]
    """Of the main graph, before and after."""
    results: Sequence[PassResult]


def rewrite(
    model: Model, passes: Runnable | Sequence[Runnable], target: Path, *, external: bool = False, annotate: bool = False
) -> Rewritten:
    """Run transforms over a model, which was opened with `keep_calls`, and write what it is then.

    `annotate`: nodes of an .onnx file get what they cost as metadata, which Netron shows.
    """
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
            f"a changed {suffix} file stays one, which {target.name!r} is no name for",
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

    notes = None
    if annotate:
        tree = BoxTree.of(program)
        notes = node_notes(tree, Amounts.of(tree, model.manager.get(Flops())))
    files = writer.write_changed(original, target, external=external, check=check, notes=notes, method=model.options.method)
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


# ----------------------------------------------------------------------------------------------------
# Whether two programs compute the same, node by node.


def difference(one: Program, names: Mapping[Value, str], other: Program) -> str:
    """Where the results of two programs come to differ in operators, attributes or what they read; empty where they do not.

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
