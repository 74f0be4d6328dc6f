"""References held by Python frames: a module call holds its inputs, a function its local variables."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from irscope.immutable import mutable
from irscope.ir.graph import Node, Value
from irscope.ir.places import Loc, Scope
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays
from irscope.passes.graph.alias import written_operand
from irscope.passes.lifetimes.lives import Facts, Hold, Holds

_METHOD = re.compile(r"\bself\.(\w+)\(").findall
_PUTS_IN_LIST = re.compile(r"^[A-Za-z_]\w*\.(?:append|appendleft|extend|insert|setdefault)\(").match
_PUTS_IN_CACHE = re.compile(r"\b\w*(?:past|cache)\w*\.update\(").search
_LONGEST = 500
_ATTENTION = ("attn", "attention", "weights", "probs", "scores")
"""Names of attention's second result."""


@mutable(slots=True)
class _Frame:
    """One open call of a module's forward function."""

    scope: Scope
    loc: Loc | None = None
    """The current statement."""
    since: int = 0
    """The first step of that statement."""
    before: int = 0
    """The first step of the statement before it."""
    child: Scope | None = None
    """The call that the statement made last."""
    called: list[str] = field(default_factory=list)
    """Modules that the statement has called."""
    lead: int = 0
    """Steps of the statement before it called the first."""
    names: dict[str, list[Value]] = field(default_factory=dict)
    """Storages by the variable that holds them."""
    places: dict[str, str] = field(default_factory=dict)
    """Where each variable was bound."""
    spare: list[Value] = field(default_factory=list)
    """Further results of a call that the current statement may have received and that have no reader."""
    offered: dict[str, list[Value]] = field(default_factory=dict)
    """The variables of the function that returned last, when it returned."""
    returned: list[Value] = field(default_factory=list)
    """Such further results that the function may return itself."""
    kept: list[Value] = field(default_factory=list)
    """Storages that a list references, independently of the variable they were bound to."""
    seen: set[str] = field(default_factory=set)
    """Identifiers of the statements so far that may be variables."""
    pending: dict[Value, Loc] = field(default_factory=dict)
    """Results of lines without an assignment: parts of a statement, or its last line."""
    nameless: dict[Value, Loc] = field(default_factory=dict)
    """Those of them bound to variables whose names the file does not show; a later use may reveal the name."""


def call_spans(steps: Sequence[Node]) -> dict[Scope, tuple[int, int]]:
    """First and last step of each module call."""
    spans: dict[Scope, tuple[int, int]] = {}
    start = 0
    for step, node in enumerate(steps):
        if step + 1 < len(steps) and steps[step + 1].scope is node.scope:
            continue
        scope: Scope | None = node.scope
        while scope is not None:
            first, _ = spans.get(scope, (start, step))
            spans[scope] = (first, step)
            scope = scope.parent
        start = step + 1
    return spans


def held_by_calls(facts: Facts, reads: Iterable[tuple[int, Value]]) -> dict[Value, Hold]:
    """Arguments of a module call live until it returns."""
    spans = call_spans(facts.steps)
    holds = Holds()
    for step, storage in reads:
        born = facts.born.get(storage)
        if born is None:
            continue
        outermost: Scope | None = None
        scope: Scope | None = facts.steps[step].scope
        # A tensor defined after a call began is no argument of it, nor of the calls around it.
        while scope is not None and scope.parent is not None and spans[scope][0] > born:
            outermost = scope
            scope = scope.parent
        if outermost is not None:
            holds.add(storage, spans[outermost][1], "call", outermost.path)
    return holds.found


_WITHOUT_VARIABLES = frozenset({"Sequential", "torch.nn.modules.container.Sequential"})
"""Modules whose forward keeps nothing but the result of the module before. Files name classes with or without where they are from."""
_SETS_ATTRIBUTE = re.compile(r"\bself\.[\w.]+(?:\[[^\]]*\])?\s*=(?!=)").search


def longest_holds(facts: Facts) -> dict[Value, Hold]:
    """Until when a tensor may live, whatever lists, dicts and tuples keep it: the innermost call around its definition and its uses
    returns, and with it goes the last function that has a reference. What a module keeps in an attribute lives on."""
    spans = call_spans(facts.steps)
    last = len(facts.steps) - 1
    outside: dict[tuple[Scope, Scope], Scope] = {}
    kept: dict[Loc, bool] = {}
    holds = Holds()
    for storage, born in facts.born.items():
        node = facts.steps[born]
        around = node.scope
        for step, _ in facts.uses[storage]:
            if step <= last and (other := facts.steps[step].scope) is not around:
                pair = (around, other)
                if pair not in outside:
                    outside[pair] = _call_around(around, other)
                around = outside[pair]
        if node.loc is not None and node.loc not in kept:
            kept[node.loc] = _is_kept_in_attribute(node.loc)
        if node.loc is not None and kept[node.loc]:
            holds.add(storage, last, "local", "an attribute of a module")
        elif around.cls not in _WITHOUT_VARIABLES:
            holds.add(storage, spans[around][1], "call", around.path)
    return holds.found


def _call_around(scope: Scope, other: Scope) -> Scope:
    """Return the innermost call that both are part of."""
    while scope is not other:
        deeper, rest = (scope, other) if scope.depth >= other.depth else (other, scope)
        if deeper.parent is None:
            return deeper
        scope, other = deeper.parent, rest
    return scope


def _is_kept_in_attribute(loc: Loc) -> bool:
    """Return whether a statement on the way to a node assigns to an attribute of a module."""
    at: Loc | None = loc
    while at is not None:
        if _SETS_ATTRIBUTE(at.statement[:_LONGEST]):
            return True
        at = at.caller
    return False


class Locals:
    """Follows the executed statements and the bindings of their variables."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._open: list[_Frame] = []
        self._holds = Holds()
        self._chains: dict[tuple[Scope, Loc], tuple[tuple[Scope, Loc], ...]] = {}

    def holds(self) -> dict[Value, Hold]:
        """Until when variables keep each storage alive."""
        steps = self._facts.steps
        for step, node in enumerate(steps):
            if node.loc is not None:
                self._step(step, self._chain(node.scope, node.loc))
        last = len(steps) - 1
        while self._open:
            self._close(last)
        return self._holds.found

    def _chain(self, scope: Scope, loc: Loc) -> tuple[tuple[Scope, Loc], ...]:
        """Return the calls that are open at a node, outermost first, each with its statement."""
        chain = self._chains.get((scope, loc))
        if chain is None:
            frames: list[Loc] = []
            at: Loc | None = loc
            while at is not None:
                frames.append(at)
                at = at.caller
            scopes: list[Scope] = []
            inner: Scope | None = scope
            while inner is not None:
                scopes.append(inner)
                inner = inner.parent
            chain = tuple(zip(reversed(scopes), reversed(frames), strict=False))
            self._chains[scope, loc] = chain
        return chain

    def _step(self, step: int, chain: tuple[tuple[Scope, Loc], ...]) -> None:
        kept = 0
        for frame, (scope, _) in zip(self._open, chain, strict=False):
            if frame.scope is not scope:
                break
            kept += 1
        while len(self._open) > kept:
            self._close(step - 1)
        for depth, (frame, (_, loc)) in enumerate(zip(self._open, chain, strict=False)):
            child = chain[depth + 1][0] if depth + 1 < len(chain) else None
            if frame.loc is None or (frame.loc.line, frame.loc.file) != (loc.line, loc.file):
                self._begin(frame, loc, step)
            elif _runs_again(frame, child):
                # An iteration of a loop begins with as many operators before the call as the first one did.
                self._begin(frame, loc, max(step - frame.lead, frame.since + 1))
            _enter(frame, child, step)
        for depth in range(kept, len(chain)):
            scope, loc = chain[depth]
            made = _Frame(scope, loc, step)
            self._open.append(made)
            _enter(made, chain[depth + 1][0] if depth + 1 < len(chain) else None, step)

    def _begin(self, frame: _Frame, loc: Loc, step: int) -> None:
        """End one statement before this step, and begin the next."""
        self._bind(frame, step - 1)
        frame.loc, frame.before, frame.since, frame.called = loc, frame.since, step, []
        self._begin_bound(frame, loc, step)

    def _begin_bound(self, frame: _Frame, loc: Loc, step: int) -> None:
        """An assignment starts at its first line: results of lines above it are bound to variables, if they have a reader."""
        if not frame.pending or not targets_of(loc.statement):
            return
        for storage, made in list(frame.pending.items()):
            if made.line < loc.line and made.file == loc.file:
                del frame.pending[storage]
                if step <= self._facts.last_use(storage) < len(self._facts.steps):
                    frame.nameless[storage] = made

    def _close(self, step: int) -> None:
        frame = self._open.pop()
        self._hold_hidden(frame, step)
        if frame.spare and frame.loc is not None and frame.loc.statement.startswith("return "):
            frame.returned = frame.spare
        if self._open:
            self._open[-1].offered = frame.names
            if frame.returned:
                self._open[-1].spare = frame.returned
        for name, storages in frame.names.items():
            self._release(frame, name, storages, step)
        for storage in frame.kept:
            self._holds.add(storage, step, "local", f"a list in {_path(frame)}")

    def _release(self, frame: _Frame, name: str, storages: list[Value], step: int) -> None:
        for storage in storages:
            self._holds.add(storage, step, "local", f"local variable `{name}` at {frame.places[name]}")

    def _is_collected(self, storage: Value, end: int) -> bool:
        """Return whether tensors that are no longer bound to a variable are concatenated later: then a list keeps them."""
        last = self._facts.last_use(storage)
        return end < last < len(self._facts.steps) and plays(self._facts.steps[last], OpRole.CONCATENATE, OpRole.STACK)

    def _hold_hidden(self, frame: _Frame, end: int) -> None:
        """A statement that calls a function whose lines the file does not show: results of operators are local variables there."""
        if frame.loc is None or any(_is_named(name, frame.loc) for name in frame.called):
            return
        steps = self._facts.steps
        direct = [step for step in range(frame.since, end + 1) if steps[step].scope is frame.scope]
        if any(function_name(steps[step]) in frame.loc.statement for step in direct):
            return
        function = HiddenFunction(self._facts, direct, end, _place(frame))
        function.hold(self._holds)
        frame.spare = function.spare or frame.spare

    def _bind(self, frame: _Frame, end: int) -> None:
        """A statement has ended: its variables are rebound to its results, which drops their old references."""
        self._hold_hidden(frame, end)
        names = targets_of(frame.loc.statement) if frame.loc is not None else ()
        if frame.loc is not None:
            self._look_at(frame, frame.loc, names, end)
        if not names:
            frame.spare = []
            return
        results = self._results(frame.since, end)
        if not frame.spare and len(names) > len(results) > 0:
            frame.spare = self._also_returned(frame, names[len(results) :])
        if frame.spare and (len(names) > len(results) or _holds_several(names)):
            results.append(frame.spare)
            # What one layer of several returns besides its output, a model returns only where it is asked to.
            if not (frame.called and _is_item(frame.called[-1])):
                frame.returned = frame.spare
        frame.spare = []
        if _holds_several(names):
            self._unpacked(frame, names[0], results, end)
        for name, storages in _shared_out(names, results):
            container, bracket, _ = name.partition("[")
            if not bracket:
                old = frame.names.get(name, [])
                self._release(frame, name, old, end)
                frame.kept.extend(storage for storage in old if storage not in storages and self._is_collected(storage, end))
                # The last of the names is the one that was bound last.
                frame.names.pop(name, None)
                frame.names[name], frame.places[name] = storages, _place(frame)
            elif written_operand(self._facts.steps[end]) is None:
                is_replaced = frame.loc is not None and frame.loc.statement.count(name) > 1
                items = self._kept_items(frame, container, end) if is_replaced else frame.names.get(container, [])
                frame.names[container] = [*items, *storages]
                frame.places.setdefault(container, _place(frame))

    def _look_at(self, frame: _Frame, loc: Loc, names: Sequence[str], end: int) -> None:
        """Note what follows from the identifiers of a statement."""
        self._name(frame, loc, names, end)
        if _PUTS_IN_CACHE(loc.statement):
            self._keep_in_cache(frame, end)
        if _PUTS_IN_LIST(loc.statement):
            frame.kept.extend(storage for group in self._results(frame.since, end) for storage in group)
        elif not names:
            frame.pending.update((storage, loc) for group in self._results(frame.since, end) for storage in group)

    def _keep_in_cache(self, frame: _Frame, end: int) -> None:
        """A cache of keys and values that the model does not return lives as long as the function that iterates over the layers."""
        owner = next((one for one in self._open if one.called and _is_item(one.called[-1])), frame)
        owner.kept.extend(storage for group in self._results(frame.since, end) for storage in group)

    def _name(self, frame: _Frame, loc: Loc, names: Sequence[str], end: int) -> None:
        """A use of a variable of unknown name reveals the name: an identifier that is new, or that the statement rebinds."""
        words = variables_in(loc.statement)
        for storage, made in list(frame.nameless.items()):
            if not any(frame.since <= used <= end for used, _ in self._facts.uses[storage]):
                continue
            new = [word for word in words if word not in frame.seen]
            told = new if len(new) == 1 else [name for name in names if name in words] if not new else []
            name = told[0] if told else f"of line {made.line}"
            del frame.nameless[storage]
            frame.names.setdefault(name, []).append(storage)
            frame.places.setdefault(name, _place_of(made))
        other = [word for word in words if word not in frame.seen and word not in frame.names]
        if len(other) == 1 and names and is_whole(loc.statement):
            self._name_again(frame, other[0], words, end)
        frame.seen.update(words, names)

    def _name_again(self, frame: _Frame, other: str, words: Sequence[str], end: int) -> None:
        """A use of a variable's value by a new identifier: an assignment without an operator has bound it (an alias)."""
        read = [
            storage
            for name, storages in frame.names.items()
            if name not in words
            for storage in storages
            if any(frame.since <= used <= end for used, _ in self._facts.uses[storage])
        ]
        if read:
            frame.names[other] = read
            frame.places.setdefault(other, _place(frame))

    def _also_returned(self, frame: _Frame, names: Sequence[str]) -> list[Value]:
        """Return what a call may have returned to variables without a reader: a variable of the same name there, or attention weights."""
        if any(word in name for name in names for word in _ATTENTION):
            for storages in frame.offered.values():
                if any(storage.node is not None and plays(storage.node, OpRole.SOFTMAX) for storage in storages):
                    return storages
        return next((frame.offered[name] for name in names if frame.offered.get(name)), [])

    def _unpacked(self, frame: _Frame, target: str, results: list[list[Value]], end: int) -> None:
        """A loop's statement that reads what its last round made, under a name that the file shows no binding of: it was taken from
        the results. The variable that was bound last of those that the round before read had the name until then."""
        before = frame.names.get(target)
        if not before or not results or not any(frame.since <= used <= end for earlier in before for used, _ in self._facts.uses[earlier]):
            return
        for name, storages in reversed(frame.names.items()):
            last = max((self._facts.last_use(storage) for storage in storages), default=-1)
            if name != target and frame.before <= last < frame.since:
                self._release(frame, name, storages, frame.since - 1)
                frame.names[name] = []
                return

    def _kept_items(self, frame: _Frame, container: str, end: int) -> list[Value]:
        """Items of a list that are not replaced, where a statement reads the item that it assigns. Which item that is is not recorded;
        it is taken to be one whose last use is here."""
        items = frame.names.get(container, [])
        replaced = [item for item in items if frame.since <= self._facts.last_use(item) <= end]
        if replaced:
            self._release(frame, container, replaced, end)
        return [item for item in items if item not in replaced]

    def _results(self, start: int, end: int) -> list[list[Value]]:
        """Return the storages of a statement's results: what is used after it, and its last result."""
        facts = self._facts
        found: dict[Value, None] = {}
        for step in range(start, end + 1):
            outputs = facts.steps[step].outputs
            read_later = [output for output in outputs if facts.last_read.get(output, -1) > end]
            found.update(dict.fromkeys(read_later if read_later or step < end else outputs))
        groups: dict[tuple[Value, ...], None] = {}
        for value in found:
            storages = tuple(storage for storage in facts.aliases.storages(value) if storage in facts.born)
            groups[storages] = None
        return [list(group) for group in groups if group]


def _holds_several(names: tuple[str, ...]) -> bool:
    """Return whether a statement's single target is named as tuples of results usually are."""
    return len(names) == 1 and names[0].endswith("outputs")


def _runs_again(frame: _Frame, child: Scope | None) -> bool:
    """Return whether a call begins another iteration of a loop: the statement does not name its module, or has called it before."""
    if child is None or child is frame.child or not frame.called or _calls_method(frame):
        return False
    if child.name in frame.called:
        return True
    stem = _stem(child.name)
    in_row = not stem.strip(".") or any(_stem(name) == stem for name in frame.called)
    return in_row and frame.loc is not None and not _is_named(child.name, frame.loc)


def _calls_method(frame: _Frame) -> bool:
    """Return whether a statement calls a method of the module that in turn calls the modules: the statement is then no loop."""
    found = _methods(frame.loc.statement) if frame.loc is not None else frozenset()
    return bool(found) and frame.called[0].partition(".")[0] not in found


@lru_cache(maxsize=65536)
def _methods(statement: str) -> frozenset[str]:
    """Return the names of the module's own attributes that a statement calls."""
    return frozenset(_METHOD(statement[:_LONGEST]))


def _is_item(name: str) -> bool:
    """Return whether a module is one of a list."""
    return name.rpartition(".")[2].isdigit()


def _stem(name: str) -> str:
    """Return a module's name without its number."""
    return name.rpartition(".")[2].rstrip("0123456789")


def _is_named(name: str, loc: Loc) -> bool:
    """Return whether a statement calls a module by its own name; items of containers have none."""
    attribute = name.rstrip("0123456789").rstrip(".").rpartition(".")[2]
    last = name.rpartition(".")[2]
    return f".{last}" in loc.statement or (attribute != "" and f".{attribute}" in loc.statement)


def _place(frame: _Frame) -> str:
    """File name and line of the current statement, without the folder."""
    return "" if frame.loc is None else _place_of(frame.loc)


def _place_of(loc: Loc) -> str:
    return f"{loc.file.replace(chr(92), '/').rpartition('/')[2]}:{loc.line}"


def _path(frame: _Frame) -> str:
    return frame.scope.path or "forward"


def _enter(frame: _Frame, child: Scope | None, step: int) -> None:
    if child is not None and child is not frame.child:
        if not frame.called:
            frame.lead = step - frame.since
        frame.called.append(child.name)
    frame.child = child


def _shared_out(names: tuple[str, ...], results: list[list[Value]]) -> list[tuple[str, list[Value]]]:
    """Return which variable is bound to which results: in order, the rest to the last."""
    if len(names) == 1:
        return [(names[0], [storage for group in results for storage in group])]
    shared = [(name, results[index] if index < len(results) else []) for index, name in enumerate(names)]
    if len(results) > len(names):
        name, first = shared[-1]
        shared[-1] = (name, [*first, *(storage for group in results[len(names) :] for storage in group)])
    return shared


# Live ranges of local variables in functions whose lines the file does not record (their operators are attributed to the caller).


class HiddenFunction:
    """The operators that one statement runs beside those of the modules it calls."""

    def __init__(self, facts: Facts, direct: Sequence[int], end: int, place: str) -> None:
        self._facts = facts
        self._direct = direct
        """Their steps."""
        self._end = end
        self._by = f"a local variable of a function called at {place}"
        self._scope = facts.steps[direct[0]].scope if direct else None
        self._alike: dict[object, list[int]] = {}
        """Steps by type and shape of their results."""
        self.spare: list[Value] = []
        """Values that the function may return besides those with a reader: the last of its variables, without another reference."""

    def hold(self, holds: Holds) -> None:
        """Record until when its variables keep its results alive."""
        made = [(step, output) for step in self._direct for output in self._facts.steps[step].outputs]
        for step, output in made:
            self._alike.setdefault(_likeness(output), []).append(step)
        for step, output in made:
            self._hold_given(holds, output, step)
            self._hold_converted(holds, output)
            self._hold_waiting(holds, output, step)

    def _hold_given(self, holds: Holds, value: Value, step: int) -> None:
        """Operands of a module, a matrix product or a projection were bound to a variable."""
        for used, _ in self._facts.uses.get(value, ()):
            if not step < used <= self._end:
                continue
            node = self._facts.steps[used]
            if node.scope is not self._scope or (plays(node, OpRole.MATRIX_PRODUCT) and not _is_normalized(value)):
                holds.add(value, self._end, "local", self._by)
                if self._facts.last_use(value) <= self._end:
                    self.spare = [value]
            elif plays(node, OpRole.LINEAR_LAYER):
                holds.add(value, self._bound_again(value, used), "local", self._by)

    def _hold_waiting(self, holds: Holds, value: Value, step: int) -> None:
        """A result is bound to a variable if, before its use, operators run on which that use does not depend."""
        used = self._readers(value)
        if not used or not step + 1 < used[0] <= self._end or not self._runs_between(step, used[0]):
            return
        last = self._facts.last_use(value)
        if last > self._end:
            return
        # The result of an operator with one tensor operand is usually bound to the operand's name.
        if len([value for value in self._facts.steps[last].inputs if value is not None]) > 1:
            holds.add(value, self._bound_again(value, last), "local", self._by)

    def _hold_converted(self, holds: Holds, value: Value) -> None:
        """A softmax with an immediate cast is one statement, whose variable is rebound only after both."""
        used, steps = self._readers(value), self._facts.steps
        if len(used) != 1 or used[0] >= min(self._end, len(steps) - 1):
            return
        reader, after = steps[used[0]], steps[used[0] + 1]
        if plays(reader, OpRole.SOFTMAX) and plays(after, OpRole.CONVERT) and after.inputs[0] is reader.outputs[0]:
            holds.add(value, used[0] + 1, "local", self._by)

    def _readers(self, value: Value) -> list[int]:
        """Return the steps that read a value itself, not a view of it."""
        return [step for step, read in self._facts.uses.get(value, ()) if read is value]

    def _runs_between(self, step: int, reader: int) -> bool:
        """Return whether something runs between two steps on which the second does not depend."""
        needed = set(self._facts.steps[reader].inputs)
        for between in range(reader - 1, step, -1):
            node = self._facts.steps[between]
            if not any(output in needed for output in node.outputs):
                return True
            needed.update(node.inputs)
        return False

    def _bound_again(self, value: Value, used: int) -> int:
        """Return the step after which a variable is most likely rebound: that of the next result of the same size, from its use on."""
        steps = self._alike[_likeness(value)]
        place = bisect_left(steps, used)
        return steps[place] if place < len(steps) else self._end


def function_name(node: Node) -> str:
    """Return how source code spells a call of the operator."""
    return f"{node.source.rpartition('::')[2].partition('.')[0]}("


def _is_normalized(value: Value) -> bool:
    """Return whether functional.normalize made a value, whose result is mostly used where it is made."""
    node = value.node
    norm = node.inputs[1] if node is not None and plays(node, OpRole.DIVIDE) and len(node.inputs) > 1 else None
    return norm is not None and norm.node is not None and norm.node.source.startswith("aten::expand")


def _likeness(value: Value) -> object:
    type_ = value.type
    return (type_.dtype, type_.shape) if isinstance(type_, TensorType) else type_


# Variables that source statements bind, read from one line of Python as stack traces keep it.

_TARGETS = re.compile(
    r"^(?P<targets>\(?\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*(?:\s*,\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*)*\s*,?\s*\)?)"
    r"\s*(?::\s*[^=]+?)?\s*(?P<operator>[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)"
)
_WORD = re.compile(r"(?<![\w.\"'])([A-Za-z_]\w*)(?!\w|\s*\(|\s*=(?!=)|[\"'])").findall
_NO_VARIABLES = frozenset({
    "self", "torch", "nn", "F", "math", "np", "return", "if", "else", "not", "and", "or", "in", "is", "for", "lambda", "None", "True",
    "False",
})  # fmt: skip
_ITEM = re.compile(r"""^[rbuf]?(?P<key>"[^"]*"|'[^']*')\s*:""")


@lru_cache(maxsize=65536)
def targets_of(statement: str) -> tuple[str, ...]:
    """Return the names that a statement binds, in order; empty where it binds none or its first line is not what is kept."""
    statement = statement[:_LONGEST]
    item = _ITEM.match(statement)
    if item is not None:
        return (item["key"],)
    match = _TARGETS.match(statement)
    if match is None:
        return ()
    is_spaced = statement[: match.start("operator") if match["operator"] else match.end() - 1][-1:].isspace()
    if not is_spaced and (not is_whole(statement) or statement.rstrip().endswith(",")):
        # Without a space it is an argument of a call that goes over several lines, unless nothing goes on after it.
        return ()
    names = [name.strip().lstrip("*") for name in match["targets"].strip("() ").split(",")]
    return tuple(name for name in names if name)


@lru_cache(maxsize=65536)
def variables_in(statement: str) -> tuple[str, ...]:
    """Identifiers that a statement may read as variables, each once: no called names, and no attributes."""
    words = _WORD(statement[:_LONGEST].partition("  # ")[0])
    return tuple(dict.fromkeys(word for word in words if word not in _NO_VARIABLES))


@lru_cache(maxsize=65536)
def is_whole(statement: str) -> bool:
    """Return whether a statement ends on the line that is shown."""
    text = statement.partition("  # ")[0].rstrip()
    return len(statement) < _LONGEST and not text.endswith("\\") and all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
