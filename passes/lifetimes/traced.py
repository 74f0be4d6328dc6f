"""Bindings of Python variables while a model was traced: the archive records which line of which function ran, not its text.

A tensor that one line makes and another reads was in a variable of their function. Which variables a line binds again is not
in the file: names that the tracer saw tell it for some, for the others it is modelled.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from irscope.immutable import mutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Role, Value, paused_gc
from irscope.ir.places import CALLED_MODULE, Loc, Scope
from irscope.ir.program import LocalNames, Program, Traits
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import Family, OpCall
from irscope.passes.graph.alias import Alias, Strides, written_operand
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.frames import Locals, held_by_calls, longest_holds
from irscope.passes.lifetimes.lives import Body, Facts, Hold, LiveRange, alive_bytes, as_observed, inner_peaks, label_of
from irscope.passes.lifetimes.xla import XlaMemory
from irscope.passes.ort import OrtPlan
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.patterns.walk import family
from irscope.passes.sizes import size_cell
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table

_MOST_LINES = 3
"""Lines from a statement to the body of a loop that follows it."""
_NUMBER = re.compile(r"\.\d+$")


@mutable(eq=False, slots=True)
class _Variable:
    """A tensor bound to a variable of a function across statements."""

    value: Value
    call: Call
    bound: int
    """The step that defines it, or the first of the function for an argument."""
    reads: list[Run]
    name: str = ""
    """Its name, where the tracer saw it in this function."""
    slots: list[tuple[Run, tuple[int, int]]] = field(default_factory=list)
    """Each statement's first use of it: how many steps from the statement's beginning, and which operand."""
    heir: _Variable | None = None
    """Variable that the same line uses in the next iteration of a loop."""


class TracedLocals:
    """Until when variables keep each storage alive."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._calls = calls_of(facts.steps)
        self._step_of = {node: step for step, node in enumerate(facts.steps)}
        self._variables: dict[tuple[Value, Call], _Variable] = {}
        self._holds: dict[Value, Hold] = {}
        self._same: dict[Value, Value] = {}
        self._read_by: dict[Run, list[_Variable]] = {}
        self._ending: dict[int, int] = {}
        """Number of variables whose only use is one statement, by that statement."""

    def holds(self) -> dict[Value, Hold]:
        """Return the longest-lived reference to each storage."""
        self._find_all()
        self._note_same()
        if self._same:
            self._find_all()
        self._note_binds()
        self._note_heirs()
        for variable in self._variables.values():
            if not self._is_given(variable) and not self._is_temporary(variable):
                self._ending[id(variable.reads[-1])] = self._ending.get(id(variable.reads[-1]), 0) + 1
        for variable in self._variables.values():
            if self._is_given(variable) or not self._is_temporary(variable):
                self._hold(variable)
        self._hold_accumulated()
        return self._holds

    def _hold_accumulated(self) -> None:
        """A concatenation with an empty tensor is the first entry of an accumulating object, such as a cache of keys and values."""
        end = len(self._facts.steps) - 1
        for node in self._facts.steps:
            if plays(node, OpRole.CONCATENATE) and any(_is_empty(value) for value in node.inputs):
                self._hold_to(node.outputs[0], end, f"an object that accumulates the results of {node.name}")

    def _hold_to(self, value: Value, end: int, by: str) -> None:
        for storage in self._facts.aliases.storages(value):
            known = self._holds.get(storage)
            if storage in self._facts.born and (known is None or known.until < end):
                self._holds[storage] = Hold(end, "local", by)

    def _find_all(self) -> None:
        for _, call in self._variables:
            for run in call.runs:
                run.makes.clear()
        self._variables.clear()
        for storage, uses in self._facts.uses.items():
            if storage in self._facts.born:
                self._find(uses)
        for (_, call), variable in self._variables.items():
            made = call.run_at(variable.bound)
            if any(run is not made for run in variable.reads):
                made.makes.append(variable.value)

    def _note_binds(self) -> None:
        calls = dict.fromkeys(call for _, call in self._variables)
        for call in calls:
            for place, run in enumerate(call.runs):
                run.place = place
                call.times[run.line] = call.times.get(run.line, 0) + 1
                if run.makes:
                    keys: list[int | str] = [run.line, *(name for value in run.makes if (name := self._name_in(value, call)))]
                    for key in dict.fromkeys(keys):
                        call.binds.setdefault(key, []).append(place)

    def _note_heirs(self) -> None:
        """A line that uses one tensor in one iteration of a loop and a later one in the next uses one variable, rebound in between."""
        for variable in self._variables.values():
            for run in variable.reads:
                self._read_by.setdefault(run, []).append(variable)
        known: dict[tuple[Call, int, tuple[int, int]], tuple[Run, _Variable]] = {}
        reads = [(run, slot, variable) for variable in self._variables.values() for run, slot in variable.slots]
        for run, slot, variable in sorted(reads, key=lambda read: read[0].first):
            key = (variable.call, run.line, slot)
            before = known.get(key)
            if before is not None and not self._is_given(variable):
                last, old = before
                if old.value is not variable.value and last.first <= variable.bound and old.reads[-1].first <= variable.bound:
                    old.heir = variable
            known[key] = (run, variable)

    def _is_given(self, variable: _Variable) -> bool:
        """Return whether the tensor is an argument of the function."""
        return self._born(variable) < variable.call.first

    def _is_temporary(self, variable: _Variable) -> bool:
        """Return whether the only use of a tensor is in the statement that defines it."""
        made = variable.call.run_at(variable.bound)
        return all(run is made for run in variable.reads)

    def _find(self, uses: Sequence[tuple[int, Value]]) -> None:
        """Record in which functions the values of a storage are bound to variables."""
        named: set[Value] = set()
        for step, read in uses:
            value = self._tensor(read)
            if step >= len(self._calls) or value.node is None:
                continue
            reader = self._calls[step]
            maker = self._maker(value)
            if reader is None or maker is None:
                continue
            common, given = common_call(maker[1], reader)
            inputs = self._facts.steps[step].inputs
            operand = inputs.index(read) if read in inputs else -1
            if common is not None:
                self._read(value, common, maker[0], step, operand)
            for call in given:
                self._read(value, call, call.first, step, operand)
            if value not in named:
                named.add(value)
                variable = self._variables.get((value, reader))
                if variable is not None and value.name:
                    variable.name = _NUMBER.sub("", value.name)

    def _tensor(self, value: Value) -> Value:
        """Return the value that is the same object in Python."""
        while (operand := self._same.get(value)) is not None:
            value = operand
        return value

    def _note_same(self) -> None:
        """Operators that are no-ops return their operand itself, which the tracer then names as the result."""
        for (value, call), variable in self._variables.items():
            node = value.node
            if (
                self._is_given(variable)
                or node is None
                or not plays(node, OpRole.RETURNS_OPERAND)
                or written_operand(node) is not None
                or not node.inputs
            ):
                continue
            operand = node.inputs[0]
            if operand is None or self._facts.aliases.storage(operand) is not self._facts.aliases.storage(value):
                continue
            # In a statement that defines something else this is an intermediate result, bound to no variable.
            makes = call.run_at(variable.bound).makes
            if any(self._facts.aliases.storage(other) is not self._facts.aliases.storage(value) for other in makes):
                self._same[value] = operand

    def _maker(self, value: Value) -> tuple[int, Call] | None:
        step = self._step_of.get(value.node) if value.node is not None else None
        call = self._calls[step] if step is not None else None
        return (step, call) if step is not None and call is not None else None

    def _read(self, value: Value, call: Call, bound: int, step: int, operand: int) -> None:
        variable = self._variables.get((value, call))
        if variable is None:
            variable = self._variables[value, call] = _Variable(value, call, bound, [])
        run = call.run_at(step)
        if not variable.reads or variable.reads[-1] is not run:
            variable.reads.append(run)
            variable.slots.append((run, (step - run.first, operand)))

    def _hold(self, variable: _Variable) -> None:
        call = variable.call
        made = call.run_at(variable.bound)
        end = self._returned_until(variable, self._until(variable))
        place = f"{call.file.replace(chr(92), '/').rpartition('/')[2]}:{made.line}"
        by = f"local variable `{variable.name}` at {place}" if variable.name else f"a local variable, its name unknown, at {place}"
        self._hold_to(variable.value, end, by)

    def _returned_until(self, variable: _Variable, end: int) -> int:
        """Attention weights computed in a separate function are returned beside its result: modelled, since the trace drops values without
        a use. They are bound to a variable in the module's function and in its caller."""
        call = variable.call
        if end < call.last or call.scope is not None or call.caller is None or not self._is_softmax(variable.value):
            return end
        steps = self._facts.steps
        readers = (node for node in steps[variable.bound + 1 : call.last + 1] if variable.value in node.inputs)
        is_read = any(plays(node, OpRole.MATRIX_PRODUCT) for node in readers)
        if not is_read or any(plays(node, OpRole.LINEAR_LAYER) for node in steps[call.first : call.last + 1]):
            return end
        module = call.caller
        return max(end, module.caller.last if module.scope is not None and module.caller is not None else module.last)

    def _is_softmax(self, value: Value) -> bool:
        node = value.node
        while node is not None and plays(node, OpRole.RETURNS_OPERAND) and node.inputs and node.inputs[0] is not None:
            node = node.inputs[0].node
        return node is not None and plays(node, OpRole.SOFTMAX)

    def _born(self, variable: _Variable) -> int:
        return self._step_of[variable.value.node] if variable.value.node is not None else -1

    def _until(self, variable: _Variable) -> int:
        """Return the last step before a variable drops its reference."""
        call, last = variable.call, variable.reads[-1]
        made = call.run_at(variable.bound)
        if variable.heir is not None:
            return call.last if self._has_alias(variable) else call.run_at(variable.heir.bound).last
        if self._is_rebound(variable, last):
            return last.last
        keys: list[int | str] = [variable.name]
        if self._born(variable) >= call.first:
            keys.append(made.line)
        places = [place for key in keys if (place := _after(call.binds.get(key, ()), last.place)) is not None]
        return call.runs[min(places)].last if places else call.last

    def _has_alias(self, variable: _Variable) -> bool:
        """Return whether the initial value of a loop has a second name: the first tensor of its type, followed by statements without
        operators, such as `hidden = embedded`."""
        call, made = variable.call, variable.call.run_at(variable.bound)
        maker = self._maker(variable.value)
        if maker is None or maker[1] is call or self._continues(variable, made):
            return False
        before = [made, *(run for run in variable.reads if call.times[run.line] == 1)]
        last = max(before, key=lambda run: run.place)
        following = call.runs[last.place + 1 : variable.reads[-1].place + 1]
        if any(call.times[run.line] == 1 for run in following):
            return True
        return bool(following) and following[0].line - last.line > _MOST_LINES

    def _adds_to_given(self, result: Value, variable: _Variable) -> bool:
        """Return whether a tensor and an argument of the function are combined, in this order: `hidden = attended + hidden`."""
        maker = self._maker(variable.value)
        operands = result.node.inputs if result.node is not None and plays(result.node, OpRole.ADD) else ()
        if _is_pointwise(variable.value.node):
            # It was defined by a scale or a sum, which usually rebind their operand.
            return False
        if maker is None or maker[1] is variable.call or len(operands) < 2:
            return False
        first, given = operands[:2]
        if first is None or given is None or self._tensor(first) is not variable.value:
            return False
        step = self._step_of.get(given.node, variable.call.first) if given.node is not None else -1
        is_given = step < variable.call.first and (given.node is not None or given.role is Role.INPUT)
        is_same = any(self._is_itself(variable.value, other.value) for other in self._read_by.get(variable.call.run_at(variable.bound), ()))
        return is_given and not is_same and given.type.shape == variable.value.type.shape

    def _likely_name(self, variable: _Variable) -> str:
        """Return the name of the one variable of the same type with its last use in the statement that defines a tensor: it was rebound
        there."""
        if variable.name:
            return variable.name
        made, kind = variable.call.run_at(variable.bound), _likeness_of(variable.value)
        ended = (other for other in self._read_by.get(made, ()) if other.reads[-1] is made and not self._is_given(other))
        read = [other for other in ended if _likeness_of(other.value) == kind]
        return read[0].name if len(read) == 1 and read[0] is not variable else ""

    def _later_name(self, value: Value, call: Call) -> str:
        """Return the name of a tensor, or of the result of a no-op on it in a separate statement."""
        variable = self._variables.get((value, call))
        if variable is None or variable.name:
            return variable.name if variable is not None else ""
        names = {self._name_in(other, call) for run in variable.reads for other in run.makes if self._is_itself(other, value)}
        return next(iter(names)) if len(names) == 1 else ""

    def _is_itself(self, value: Value, operand: Value) -> bool:
        """Return whether one value is a no-op's result on the other."""
        node = value.node
        return node is not None and plays(node, OpRole.RETURNS_OPERAND) and bool(node.inputs) and node.inputs[0] is operand

    def _continues(self, variable: _Variable, made: Run) -> bool:
        """Return whether the statement that defines a tensor uses another of the same type."""
        kind = _likeness_of(variable.value)
        if any(other is not variable and _likeness_of(other.value) == kind for other in self._read_by.get(made, ())):
            return True
        # Inputs of the model do not count: the first operand is the data of an operator, the others may be weights.
        working = (node for node in self._facts.steps[made.first : made.last + 1] if family(node) is not Family.VIEW)
        firsts = (node.inputs[0] for node in working if node.inputs)
        return any(first is not None and first.role is Role.INPUT and _likeness_of(first) == kind for first in firsts)

    def _name_in(self, value: Value, call: Call) -> str:
        variable = self._variables.get((value, call))
        return variable.name if variable is not None else ""

    def _is_rebound(self, variable: _Variable, run: Run) -> bool:
        results = [value for value in run.makes if value is not variable.value]
        if not results:
            return False
        if all(self._is_itself(value, variable.value) for value in results) and not self._continues(
            variable, variable.call.run_at(variable.bound)
        ):
            return False
        names = {self._name_in(value, variable.call) for value in results}
        if variable.name and "" not in names:
            return variable.name in names
        likely, probable = self._likely_name(variable), {self._later_name(value, variable.call) for value in results}
        if likely and "" not in probable and likely not in probable:
            return False
        if any(self._adds_to_given(result, variable) for result in results):
            return False
        # A line rebinds no more variables than it has results; which one of several is not recorded.
        if len(variable.reads) > 1 or self._ending.get(id(run), 0) > len(results):
            return False
        return any(result.type.dtype is variable.value.type.dtype for result in results) and not self._waits(variable, run)

    def _waits(self, variable: _Variable, run: Run) -> bool:
        """Return whether other statements ran between the definition of a tensor and a loop: then it is not only the loop's initial
        value."""
        made = variable.call.run_at(variable.bound)
        return variable.call.times[run.line] > 1 and run.place - made.place > 1


def _after(places: Sequence[int], place: int) -> int | None:
    """Return the first of ascending positions after a given one."""
    found = bisect_right(places, place)
    return places[found] if found < len(places) else None


def _likeness_of(value: Value) -> object:
    type_ = value.type
    return (type_.dtype, len(type_.shape)) if type_.shape is not None else value


def _is_pointwise(node: Node | None) -> bool:
    spec = spec_of(node) if node is not None else None
    return spec is not None and spec.family is Family.ELEMENTWISE and OpRole.RETURNS_OPERAND not in spec.roles


def _is_empty(value: Value | None) -> bool:
    """Return whether a tensor is `torch.tensor([])`, which joins with tensors of any rank."""
    return value is not None and value.type.shape == (0,)


# The Python call stack and the executed statements of a traced model, reconstructed from the source locations in the archive.


@mutable(eq=False, slots=True)
class Run:
    """One execution of a statement of a function."""

    line: int
    first: int
    last: int
    place: int = 0
    """Number of statements of the function that were executed before."""
    makes: list[Value] = field(default_factory=list)
    """Its results that later statements of the function use."""


@mutable(eq=False, slots=True)
class Call:
    """One call of a Python function."""

    file: str
    function: str
    caller: Call | None
    scope: Scope | None
    """The module that was called; None for other functions."""
    first: int
    last: int
    depth: int
    runs: list[Run] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    child: Scope | None = None
    """The module that the current statement called last."""
    binds: dict[int | str, list[int]] = field(default_factory=dict)
    """Indices of the executions that bind a variable, by line and name."""
    times: dict[int, int] = field(default_factory=dict)
    """Number of executions of each line."""

    def run_at(self, step: int) -> Run:
        """Return the statement that ran at a step."""
        low, high = 0, len(self.runs) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.runs[middle].first <= step:
                low = middle
            else:
                high = middle - 1
        return self.runs[low]


def calls_of(steps: Sequence[Node]) -> list[Call | None]:
    """Return the innermost call at each step; None where the file does not record it."""
    return _Calls(steps).found


class _Calls:
    """Tracks the call stack from step to step."""

    def __init__(self, steps: Sequence[Node]) -> None:
        self.found: list[Call | None] = []
        self._open: list[Call] = []
        for step, node in enumerate(steps):
            if node.loc is None or node.loc.statement:
                self.found.append(None)
                continue
            self._step(step, _frames(node.loc), node.scope)
            self.found.append(self._open[-1] if self._open else None)

    def _step(self, step: int, frames: list[Loc], scope: Scope) -> None:
        scopes = _scopes(frames, scope)
        kept = 0
        for call, frame, called in zip(self._open, frames, scopes, strict=False):
            if (call.file, call.function) != (frame.file, frame.function) or call.scope is not called:
                break
            if kept and self._open[kept - 1].runs[-1].line != frames[kept - 1].line:
                break
            if called is None and _begins_again(call, frame.line):
                break
            kept += 1
        del self._open[kept:]
        for frame, called in zip(frames[kept:], scopes[kept:], strict=True):
            caller = self._open[-1] if self._open else None
            self._open.append(Call(frame.file, frame.function, caller, called, step, step, len(self._open)))
        for call, frame, child in zip(self._open, frames, [*self._open[1:], None], strict=True):
            call.last = step
            _advance(call, frame.line, step, child.scope if child is not None else None)


def _begins_again(call: Call, line: int) -> bool:
    """Return whether a function that belongs to no module starts again at its first line: then a loop in its caller calls it again."""
    return call.runs[0].line == line != call.runs[-1].line


def _advance(call: Call, line: int, step: int, child: Scope | None) -> None:
    runs = call.runs
    before, call.child = call.child, child or call.child
    if runs and runs[-1].line == line:
        if child is None or before is None or not _is_next_round(before, child):
            runs[-1].last = step
        else:
            runs.append(Run(line, step, step))
        return
    first = step
    if line not in call.lines:
        # An earlier line that follows later ones and was not executed before ends a statement that spans them.
        while runs and runs[-1].line > line:
            first = runs.pop().first
    call.lines.add(line)
    runs.append(Run(line, first, step))


def _is_next_round(before: Scope, child: Scope) -> bool:
    """Return whether a call of a module by the line that called another begins the next iteration of a loop."""
    if before is child:
        return False
    if before.name == child.name:
        return True
    stem, _, number = child.name.rpartition(".")
    return number.isdecimal() and before.name.rpartition(".")[0] == stem


def _frames(loc: Loc) -> list[Loc]:
    locs: list[Loc] = []
    at: Loc | None = loc
    while at is not None:
        locs.append(at)
        at = at.caller
    locs.reverse()
    return locs


def _scopes(frames: list[Loc], scope: Scope) -> list[Scope | None]:
    """Return the module call that each frame begins."""
    scopes: list[Scope] = []
    inner: Scope | None = scope
    while inner is not None:
        scopes.append(inner)
        inner = inner.parent
    scopes.reverse()
    rest = iter(scopes)
    return [next(rest, None) if frame.function.startswith(CALLED_MODULE) else None for frame in frames]


def common_call(maker: Call, reader: Call) -> tuple[Call | None, list[Call]]:
    """Return the innermost call that contains definition and use, and the calls inside it to which the value was passed."""
    given: list[Call] = []
    above: Call | None = maker
    below: Call | None = reader
    while above is not below:
        if below is not None and (above is None or below.depth >= above.depth):
            given.append(below)
            below = below.caller
        elif above is not None:
            above = above.caller
    return below, given


@mutable
class Lifetimes:
    """Storages of the main graph."""

    model: str
    steps: list[Node]
    ranges: list[LiveRange]
    inside: dict[int, Dim]
    """Bytes that only exist within a step: what its regions make, and what a composite operator drops again."""
    unsized: list[Value]
    undecided: int
    """Results that share or copy depending on strides that are not known."""
    unsized_ranges: list[LiveRange] = field(default_factory=list)
    """When storages of unknown size live; their sizes are unknown within the limits there are, and no sum counts them."""
    is_modelled: bool = False
    """True where live ranges are what the lines of a file suggest, where Python may keep tensors in ways that it does not show."""

    @property
    def deaths(self) -> list[int]:
        """Return the last step of each storage."""
        return [one.dies for one in (*self.ranges, *self.unsized_ranges)]

    def alive(self) -> list[Dim]:
        """Return the bytes alive at each step."""
        return alive_bytes(self.ranges, self.inside, len(self.steps))


@dataclass(frozen=True)
class Ranges(Analysis[Lifetimes]):
    """Compute the live range of each storage: its first and last step."""

    name: ClassVar[str] = "ranges"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"] = "auto"
    """Lifetime model, which says when tensors are freed: ssa and jit after the last use, eager as Python's frames do, ort as ONNX
    Runtime does, xla as XLA's CPU compiler packs what it does not fuse; auto follows the file."""
    undecided: Literal["copy", "share"] = "copy"
    """Treatment of a result where unknown strides decide between a view and a copy."""
    held: Literal["likely", "least", "most"] = "likely"
    """How long tensors live where that is modelled: as names in the file suggest, until their last use, or until the call ends that
    they are made and used in."""

    def compute(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        with paused_gc():
            return self._lifetimes(graph, ctx)

    def _lifetimes(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        program = ctx.program
        model = self.resolved(program.traits)
        if model == "ort":
            return _of_plan(ctx.get(OrtMemory()))
        if model == "xla":
            fused = ctx.get(XlaMemory())
            if not fused.unsized:
                inside: dict[int, Dim] = {**fused.inside}
                return Lifetimes("xla", fused.steps, fused.ranges(), inside, [], 0)
            model = "ssa"  # which formulas of sizes can be made for
        types = ctx.get(Shapes)
        aliases = ctx.get(Alias(undecided=self.undecided))
        unsized: list[Value] = []
        peaks = inner_peaks(program, aliases, types, unsized)
        body = Body(list(ctx.each(graph, "live ranges", len(graph))), aliases, types, unsized)
        body.read(graph.outputs)
        holds: list[dict[Value, Hold]] = []
        is_modelled = self.is_modelled(program)
        if model == "eager" and not (is_modelled and self.held == "least"):
            facts = body.facts()
            holds.append(held_by_calls(facts, body.reads()))
            # TorchScript's own variables are not those of the Python that it was made from.
            names = TracedLocals if program.traits.local_names is LocalNames.LINES else Locals
            holds.append(names(facts).holds())
            if is_modelled and self.held == "most":
                holds.append(longest_holds(facts))
        inside = {}
        for step, node in enumerate(body.steps):
            size = _hidden(node, types, aliases.strides) + peaks.get(node, 0)
            if size != 0:
                inside[step] = size
        ranges = body.ranges(holds)
        if model == "eager" and program.watched is not None:
            ranges = as_observed(ranges, program.watched, body.steps)
        undecided = len(aliases.undecided)
        return Lifetimes(model, body.steps, ranges, inside, unsized, undecided, body.unsized_ranges(holds), is_modelled)

    def resolved(self, traits: Traits) -> str:
        """Return the model, where auto follows the file."""
        return traits.lifetimes if self.model == "auto" else self.model

    def is_modelled(self, program: Program) -> bool:
        """Return whether live ranges rest on what lines of source say: nobody watched the run, and no compiler wrote them down."""
        return self.resolved(program.traits) == "eager" and program.watched is None and not program.traits.is_plan

    def report(self, result: Lifetimes, ctx: PassContext) -> Report:
        every = (*result.ranges, *result.unsized_ranges)
        rows = [(label_of(one.value), size_cell(one.size), one.born, one.dies, one.last_use, one.held_by) for one in every]
        columns = ["storage:value", "size:bytes", "born:index", "dies:index", "last_use:index", "held_by:node"]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"model": result.model, "storages": len(every), "undecided": result.undecided},
            tables=(Table.of(rows, columns=columns, title="storages"),),
        )


MODELLED_LIVES = "live ranges are modelled by lines of source"
"""Why a peak that depends on what Python holds is modelled, in a few words."""


def other_lives(ctx: PassContext, model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"], likely: Lifetimes) -> list[Lifetimes]:
    """Return the shortest and the longest live ranges there may be, where they are modelled; nothing where no tensor's differs."""
    if not likely.is_modelled:
        return []
    found = [ctx.get(Ranges(model=model, held="least")), ctx.get(Ranges(model=model, held="most"))]
    return found if any(one.deaths != likely.deaths for one in found) else []


def _of_plan(plan: OrtPlan) -> Lifetimes:
    """Lifetimes as ONNX Runtime plans them: the steps are its kernels in its order."""
    steps = plan.steps
    inside = {step: size for step, node in enumerate(steps) if (size := plan.inside.get(node, 0)) != 0}
    return Lifetimes("ort", steps, plan.ranges, inside, plan.unsized, 0, plan.unsized_ranges)


def _hidden(node: Node, types: Inferred, strides: Strides) -> Dim:
    spec = spec_of(node)
    if spec is None or spec.intermediates is None:
        return 0
    operands = [None if value is None else strides.type_of(value) for value in node.inputs]
    results = [types.type_of(output) for output in node.outputs]
    return spec.intermediate_bytes(OpCall(spec, operands, node.attrs, (), results, source=node.source))
