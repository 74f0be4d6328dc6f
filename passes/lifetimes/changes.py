"""Source changes that shorten lifetimes, and the peak after each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from irscope.immutable import immutable, mutable
from irscope.ir.dim_arrays import Numbers
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Value
from irscope.ir.places import Loc
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, plays, spec_of
from irscope.ops.spec import Family
from irscope.passes.graph.alias import Aliases, written_operand
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import Hold, LiveRange

IN_PLACE, RELEASE, UNWRAP, COPY, SCRATCH, NARROW = "in place", "del", "unwrap", "copy", "scratch", "element type"

_WITH_UNDERSCORE = """
relu relu6 leaky_relu elu selu celu silu mish hardtanh hardswish hardsigmoid threshold rrelu dropout add sub mul div true_divide
sigmoid tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal neg abs pow floor ceil round trunc frac sin cos tan
erf erfc clamp clamp_min clamp_max masked_fill addcmul addcdiv lerp logit remainder fmod
"""
_WRITABLE = frozenset(_WITH_UNDERSCORE.split())
"""Operators of torch that have a form which writes over its first operand."""
_EXACT, _LAYOUT, _REWRITE = "exact", "if the layout allows", "needs a rewrite"
_NARROWER = {DType.F32: 2, DType.F64: 2}


@immutable(slots=False)
class Edit:
    """One storage whose live range would change."""

    storage: int
    """By its place in the list of ranges."""
    dies: int | None = None
    """The new end of its live range."""
    over: int | None = None
    """The storage that it would overwrite."""
    factor: int = 1
    """Its bytes divided by this."""


@mutable(eq=False)
class Change:
    """Edits that one change of the source makes, wherever that line runs."""

    kind: str
    what: str
    sure: str
    """Confidence that the change is possible."""
    node: Node | None
    edits: list[Edit] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Steps that then need no scratch memory."""


class Heights:
    """Bytes alive at each step, with and without changes."""

    def __init__(self, ranges: Sequence[LiveRange], sizes: Numbers, inside: Mapping[int, int], steps: int) -> None:
        self.steps = steps
        self.sizes = sizes
        self.born = np.array([life.born for life in ranges], dtype=np.intp)
        self.dies = np.array([life.dies for life in ranges], dtype=np.intp)
        self.inside = inside

    def alive(self, changes: Iterable[Change] = ()) -> Numbers:
        """Bytes at each step once the changes are made."""
        sizes, dies, inside = self.sizes, self.dies, dict(self.inside)
        edits: list[Edit] = []
        for change in changes:
            edits.extend(change.edits)
            for step in change.steps:
                inside.pop(step, None)
        if edits:
            sizes, dies = sizes.copy(), dies.copy()
            self._apply(edits, sizes, dies)
        change_at = np.zeros(self.steps + 1, dtype=sizes.dtype)
        np.add.at(change_at, self.born, sizes)
        np.subtract.at(change_at, np.minimum(dies + 1, self.steps), sizes)
        alive: Numbers = np.cumsum(change_at[: self.steps])
        for step, size in inside.items():
            alive[step] += size
        return alive

    def touches(self, change: Change, step: int) -> bool:
        """Return whether a change concerns a storage that is alive at a step."""
        return step in change.steps or any(self.born[edit.storage] <= step <= self.dies[edit.storage] for edit in change.edits)

    def _apply(self, edits: list[Edit], sizes: Numbers, dies: Numbers) -> None:
        for edit in edits:
            sizes[edit.storage] //= edit.factor
            if edit.dies is not None:
                dies[edit.storage] = min(dies[edit.storage], edit.dies)
        roots: dict[int, int] = {}
        for edit in sorted((edit for edit in edits if edit.over is not None), key=lambda edit: int(self.born[edit.storage])):
            assert edit.over is not None
            root = roots.get(edit.over, edit.over)
            roots[edit.storage] = root
            dies[root] = max(dies[root], dies[edit.storage])
            sizes[edit.storage] = 0


class Finder:
    """Collects the changes that could be made, grouped by the line of source that would change."""

    def __init__(self, steps: Sequence[Node], ranges: Sequence[LiveRange], aliases: Aliases, types: Inferred, *, torch: bool) -> None:
        self._steps = steps
        self._ranges = ranges
        self._aliases = aliases
        self._types = types
        self._torch = torch
        self._index = {life.value: place for place, life in enumerate(ranges)}
        self._found: dict[tuple[object, ...], Change] = {}

    def changes(self, inside: Mapping[int, int]) -> list[Change]:
        """Return every change, ordered by the first step it concerns."""
        for step, node in enumerate(self._steps):
            self._over_operand(step, node)
            if plays(node, OpRole.LAYS_OUT):
                self._without_copy(step, node)
            if step in inside and factors_of(node) is not None:
                what = f"operands of {node.op.rpartition('.')[2]} that need no copy"
                self._add(SCRATCH, node, what, _LAYOUT).steps.append(step)
        for place, one in enumerate(self._ranges):
            for hold in one.holds:
                if hold.until > one.last_use:
                    self._earlier(place, one, hold)
        return [*self._found.values(), *self.narrower()]

    def narrower(self) -> list[Change]:
        """Half the width for every tensor of more than 16 bits, where there is one."""
        change = Change(NARROW, "half the width: f16 or bf16", "changes results", None)
        for place, one in enumerate(self._ranges):
            type_ = self._types.type_of(one.value)
            factor = _NARROWER.get(type_.dtype, 1)
            if factor > 1:
                change.edits.append(Edit(place, factor=factor))
        return [change] if change.edits else []

    def _add(self, kind: str, node: Node, what: str, sure: str) -> Change:
        # One line of source is one change however often it runs; without a line each node stands for itself.
        key = (kind, node.source, _line(node.loc)) if node.loc is not None else (kind, node)
        change = self._found.get(key)
        if change is None:
            change = self._found[key] = Change(kind, what, sure, node)
        return change

    def _over_operand(self, step: int, node: Node) -> None:
        """An elementwise result may reuse the storage of an operand that is dead afterwards."""
        spec = spec_of(node)
        if spec is None or spec.family is not Family.ELEMENTWISE or len(node.outputs) != 1 or written_operand(node) is not None:
            return
        name = node.source.rpartition("::")[2].partition(".")[0]
        if self._torch and name not in _WRITABLE:
            return
        made = self._index.get(node.outputs[0])
        if made is None:
            return
        for operand in node.inputs[:1] if self._torch and name not in ("add", "mul") else node.inputs:
            taken = self._replaceable(operand, node.outputs[0], step)
            if taken is not None:
                what = f"{name or node.op} over {_name(operand)}: {_spelling(name, node)}"
                self._add(IN_PLACE, node, what, _EXACT).edits.append(Edit(made, over=taken))
                return

    def _replaceable(self, operand: Value | None, result: Value, step: int) -> int | None:
        """Return the storage of an operand that could hold the result: of the same size, not shared with a larger tensor, and last used
        here."""
        if operand is None:
            return None
        place = self._index.get(self._aliases.storage(operand))
        old, new = self._types.type_of(operand), self._types.type_of(result)
        if place is None or not isinstance(old, TensorType) or not isinstance(new, TensorType):
            return None
        one = self._ranges[place]
        if len(self._aliases.storages(operand)) > 1 or one.last_use != step or one.is_output:
            return None
        return place if (old.dtype, old.shape) == (new.dtype, new.shape) and old.nbytes == one.size else None

    def _without_copy(self, step: int, node: Node) -> None:
        made = self._index.get(node.outputs[0]) if node.outputs else None
        operand = node.inputs[0] if node.inputs else None
        source = None if operand is None else self._index.get(self._aliases.storage(operand))
        if made is None or source is None or self._ranges[made].size != self._ranges[source].size:
            return
        what = f"no copy by {node.source.rpartition('::')[2].partition('.')[0] or node.op}"
        self._add(COPY, node, what, _LAYOUT).edits.append(Edit(made, over=source))

    def _earlier(self, place: int, life: LiveRange, hold: Hold) -> None:
        """A storage that a reference keeps after its last use is freed right after it; other references stay."""
        rest = max((other.until for other in life.holds if other is not hold), default=0)
        dies = max(life.last_use, rest)
        if dies >= hold.until:
            return
        last = self._steps[life.last_use]
        if hold.kind == "call":
            what, sure = f"drop the input of {hold.by} inside it", _REWRITE
            # Every call of one module is one line of its caller; the class is what would change.
            key: tuple[object, ...] = (UNWRAP, _module_key(hold))
        else:
            variable = hold.by.removeprefix("local variable ")
            what, sure = f"del {variable}" if variable != hold.by else f"empty {hold.by}", _EXACT
            key = (RELEASE, hold.by)
        change = self._found.get(key)
        if change is None:
            change = self._found[key] = Change(UNWRAP if hold.kind == "call" else RELEASE, what, sure, last)
        change.edits.append(Edit(place, dies=dies))


def _line(loc: Loc | None) -> tuple[object, ...]:
    """Return the line of source, and the innermost that is not torch's own."""
    if loc is None:
        return ()
    user = user_line(loc)
    return (loc.file, loc.line, user.file, user.line)


def user_line(loc: Loc) -> Loc:
    """Return the innermost line of a place that is no part of torch's modules, where there is one."""
    at: Loc | None = loc
    while at is not None:
        if "/torch/nn/" not in at.file.replace("\\", "/"):
            return at
        at = at.caller
    return loc


def _module_key(hold: Hold) -> str:
    """Calls of modules whose paths differ only in numbers count as one."""
    return "/".join("*" if part.isdecimal() else part.rstrip("0123456789") for part in hold.by.split("/"))


def _spelling(name: str, node: Node) -> str:
    if not name:
        return "in place"
    return "inplace=True" if node.scope.cls and name in node.scope.cls.lower() else f"{name}_()"


def _name(value: Value | None) -> str:
    return "its operand" if value is None or not value.name else value.name
