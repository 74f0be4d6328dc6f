"""Which operators XLA's CPU compiler computes in one kernel.

What goes to its library (YNNPACK) comes first, by the rules of LibraryRewriter and ynn_support: from the last operator to the first, a sum,
an extreme or a convolution takes in what it reads where nothing else reads that, and what reads it where that is one operator, as long as
the library has the operators. Then comes fusion: InstructionFusion goes from the last operator to the first and has each take in what it
reads, as long as nothing dear is computed twice (ShouldFuse), nothing that reads much is in several kernels (ComputeGloballyUnfusible),
and no kernel has an operator emitted too often (FusionNodeIndexingEvaluation). CpuInstructionFusion adds when concatenations and reductions
stay by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from irscope.ir.graph import Node, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.general import LIBRARY_OPERATORS, LIBRARY_REDUCTIONS, LIBRARY_WINDOWS, PADDED
from irscope.ops.registry import roles_of, spec_of
from irscope.ops.spec import Family
from irscope.passes.lifetimes.values import FUSED, Values

_EMITTED: Final = 15
"""Most times that a kernel may have an operator emitted (kAllowedCodeDuplication)."""
_REDUCTIONS: Final = 5
"""A kernel with more reductions takes in no further one (kMaxReductionsInFusion)."""
_PARTS: Final = 8
"""Operands of a concatenation that is fused, at most (kMaxConcatenateArguments)."""
_LONG: Final = 128
"""Elements of a last axis from which a concatenation along it stays by itself."""
_PATHS: Final = 2000
"""Operators that are looked at for a path, at most."""

Step: TypeAlias = Node | tuple[str, object, object]
"""An operator; ("as", VALUE, SHAPE), a value under other sizes; ("copy", PRODUCT, PLACE), an operand that is brought into another order."""


class Fusion:
    """The kernels of one graph."""

    def __init__(self, body: Values) -> None:
        self._body = body
        self._reads: dict[Step, dict[Step, None]] = {}
        self._users: dict[Step, dict[Step | None, None]] = {}
        """The readers of each result at this time; None for the results of the graph."""
        self._inside: dict[Step, dict[Step, int]] = {}
        """Values that kernels of several operators read, and how many of them read each."""
        self._read_graph()
        self._order = self._from_results()
        self._place = {step: place for place, step in enumerate(self._order)}
        for step in self._reads:
            if step not in self._place:
                self._leave_step(step)  # nothing needs it
        self._held = self._unfusible()
        self.kernels: dict[Node, dict[Step, None]] = {}
        """The kernels in which each operator is computed, by the operator that makes their result."""
        self._fuse_all()

    def _read_graph(self) -> None:
        body = self._body
        for node in body.steps:
            if not node.outputs or (len(node.outputs) == 1 and node.outputs[0] in body.roots and not node.regions):
                continue
            reads: dict[Step, None] = {}
            for value in body.reads(node):
                made = self._maker(value)
                if made is None:
                    continue
                places = [place for place, one in enumerate(node.inputs[:2]) if one is value and body.is_copied(node, place)]
                for place in places:
                    self._enter_step(("copy", node, place), {made: None})
                    reads["copy", node, place] = None
                if not places:
                    reads[self._as_read(value, made, body.flattens(node, body.root(value)))] = None
            self._enter_step(node, reads)
        for value in body.graph.outputs:
            made = self._maker(value)
            if made is not None:
                self._users.setdefault(self._as_read(value, made, False), {})[None] = None

    def _from_results(self) -> list[Step]:
        """Return what is needed in the order in which a walk from the results, first operands first, leaves it."""
        found: dict[Step, None] = {}
        ends = [step for step in self._reads if isinstance(step, Node) and (step.regions or spec_of(step) is None)]
        made = [self._as_read(value, node, False) for value in self._body.graph.outputs if (node := self._maker(value)) is not None]
        waiting = [(step, False) for step in reversed([*made, *ends])]
        while waiting:
            step, is_left = waiting.pop()
            if is_left:
                found[step] = None
            elif step not in found:
                waiting.append((step, True))
                waiting.extend((read, False) for read in reversed(self._reads[step]) if read not in found)
        return list(found)

    def _enter_step(self, step: Step, reads: dict[Step, None]) -> None:
        self._reads[step] = reads
        for read in reads:
            self._users.setdefault(read, {})[step] = None

    def _maker(self, value: Value) -> Node | None:
        """Return the node of this graph that makes a value."""
        node = self._body.root(value).node
        return node if node is not None and node in self._body.place else None

    def _as_read(self, value: Value, made: Node, is_flat: bool) -> Step:
        """Return a value as it is read: under other sizes, it is an operator of its own."""
        if not is_flat and not self._body.is_reshaped(value):
            return made
        type_ = self._body.types.type_of(value)
        step: Step = ("as", self._body.root(value), "flat" if is_flat else type_.shape if isinstance(type_, TensorType) else None)
        if step not in self._reads:
            self._enter_step(step, {made: None})
        return step

    def _is_fusible(self, step: Step) -> bool:
        """Return whether an operator can be computed in the kernel of another one."""
        if not isinstance(step, Node):
            return step[0] == "as"
        spec = spec_of(step)
        return (
            spec is not None
            and self._body.family(step) in FUSED
            and len(step.outputs) == 1
            and OpRole.WRITE_PART not in spec.roles
            and step not in self._body.library
            and not self._is_apart(step)
        )

    def _may_take(self, user: Step | None, step: Step) -> bool:
        """Return whether an operator computes another one in its kernel, if nothing speaks against it."""
        if user is None or not self._is_fusible(step) or (len(self._body.graph.outputs) == 1 and None in self._users[step]):
            return False
        if not isinstance(user, Node):
            return True
        made = step if isinstance(step, Node) else step[1]
        value = made.outputs[0] if isinstance(made, Node) else made
        return isinstance(value, Value) and not self._is_apart(user) and self._body.takes(user, value) and not self._body.multiplies(user)

    def _is_apart(self, node: Node) -> bool:
        """Return whether a concatenation stays by itself, as it has many operands or joins long rows."""
        roles, type_ = roles_of(node), self._body.types.type_of(node.outputs[0])
        if OpRole.CONCATENATE not in roles or not isinstance(type_, TensorType) or not type_.shape:
            return False
        axis, last = node.attrs.get("axis"), len(type_.shape) - 1
        size = type_.shape[last]
        return len(node.inputs) > _PARTS or (axis in (last, -1) and last > 0 and isinstance(size, int) and size >= _LONG)

    def _is_dear(self, step: Step) -> bool:
        if not isinstance(step, Node):
            return False
        spec = spec_of(step)
        if spec is None or spec.family is Family.REDUCTION or self._body.is_dear(step, spec):
            return True
        return spec.family is Family.INDEXING and OpRole.LOOKUP in spec.roles and self._body.elements(step.outputs[0]) > 1

    def _is_widening(self, step: Step) -> bool:
        """Return whether elements become larger, which is always done again."""
        if not isinstance(step, Node) or OpRole.CONVERT not in roles_of(step) or step.inputs[0] is None:
            return False
        return self._body.size(step.inputs[0]) < self._body.size(step.outputs[0])

    def _would_repeat(self, step: Step) -> bool:
        return len(self._users[step]) > 1 and self._is_dear(step) and not self._is_widening(step)

    def _reuses(self, user: Step, step: Step) -> bool:
        """Return whether an operator reads elements of another one several times (ReusesOperandElements)."""
        return isinstance(user, Node) and OpRole.SPREAD in roles_of(user)

    def _sizes_of(self, step: Step) -> object:
        if not isinstance(step, Node):
            return step[2]
        type_ = self._body.types.type_of(step.outputs[0]) if step.outputs else None
        return type_.shape if isinstance(type_, TensorType) else None

    def _keeps_places(self, user: Step, step: Step) -> bool:
        """Return whether an operator reads elements at the places at which it makes its own, so that they are emitted once for both."""
        if isinstance(user, Node):
            return OpRole.TRANSPOSE in roles_of(user) or self._sizes_of(user) == self._sizes_of(step)
        return user[0] == "copy" or self._sizes_of(user) == self._sizes_of(step)

    def _breaks(self, step: Step) -> bool:
        """Return whether an operator begins a block of code, behind which nothing is known of what was computed (OpInvalidatesCache)."""
        if not isinstance(step, Node):
            return False
        spec, roles = spec_of(step), roles_of(step)
        return step.op == PADDED or OpRole.CONCATENATE in roles or (spec is not None and spec.family is Family.REDUCTION)

    def _unfusible(self) -> set[Step]:
        """Return operators of several operands that stay by themselves, as not all that reads them can compute them on all paths."""
        held: set[Step] = set()
        for step in reversed(self._order):
            users = self._users.get(step)
            if not isinstance(step, Node) or not users or not self._is_fusible(step) or self._body.is_unary(step):
                continue
            if not all(self._may_take(user, step) for user in users) or not self._on_all_paths(step, users, held):
                held.add(step)
        return held

    def _on_all_paths(self, step: Step, users: dict[Step | None, None], held: set[Step]) -> bool:
        """Return whether what lies between an operator and those that read it can be computed in their kernels as well."""
        ends = [user for user in users if user is not None]
        if self._is_dear(step) and (len(users) > 1 or any(self._reuses(user, step) for user in ends)):
            return False
        if len(ends) < 2:
            return True
        first, last = self._place[step], max(self._place[user] for user in ends)
        if last - first > _PATHS:
            return False
        order = self._order[first + 1 : last + 1]
        reached: set[Step] = {step}
        for one in order:
            if any(read in reached for read in self._reads[one]):
                reached.add(one)
        wanted = set(ends)
        for one in reversed(order):
            if one not in wanted:
                continue
            for read in self._reads[one]:
                if read not in reached:
                    continue
                if (
                    read in held
                    or not self._may_take(one, read)
                    or self._would_repeat(read)
                    or (self._is_dear(read) and self._reuses(one, read))
                ):
                    return False
                wanted.add(read)
        return True

    def _fuse_all(self) -> None:
        """Let each operator, from the last one, take in what it reads, and what that reads."""
        inside: dict[Step, list[Step]] = {}
        for step in reversed(self._order):
            if self._users.get(step):
                inside[step] = self._grown(step)
            elif isinstance(step, Node) and (step.regions or spec_of(step) is None):
                inside[step] = [step]
        for root, members in inside.items():
            made = root[1] if isinstance(root, tuple) else root
            kernel: Step = root
            if isinstance(made, Value) and len(members) > 1 and isinstance(made.node, Node):
                kernel = (
                    root if made.node in inside or made.node in self.kernels.get(made.node, {}) else made.node
                )  # stored under other sizes
            for member in members:
                if isinstance(member, Node):
                    self.kernels.setdefault(member, {})[kernel] = None

    def _leave_step(self, step: Step) -> None:
        for read in self._reads[step]:
            self._users[read].pop(step, None)

    def _grown(self, root: Step) -> list[Step]:
        """Return the operators of a kernel."""
        members = [root]
        reads = dict.fromkeys(self._reads[root], 1)
        seats: dict[Step, set[Step]] = {read: {root} for read in reads}
        """For what is read, the operators that have places of their own at which they read it."""
        emitted: dict[Step, int] = {root: 1}
        reused = {read for read in reads if self._reuses(root, read)}
        while True:
            for step in sorted(reads, key=self._place.__getitem__, reverse=True):
                if self._may_grow(members, step, step in reused):
                    count = sum(emitted[seat] for seat in seats[step])
                    if len(members) == 1 or not self._is_emitted_often(step, count, reads[step]):
                        break
            else:
                break
            members.append(step)
            emitted[step], own = count, seats.pop(step)
            del reads[step], self._users[step][root]
            if step in reused:
                reused.remove(step)
                reused.update(self._reads[step])
            for read in self._reads[step]:
                reads[read] = reads.get(read, 0) + 1
                seats.setdefault(read, set()).update(own if self._keeps_places(step, read) else {step})
                self._users[read][root] = None
                if self._reuses(step, read):
                    reused.add(read)
            if not self._users[step]:
                self._leave_step(step)
        self._inside[root] = reads
        return members

    def _may_grow(self, members: list[Step], step: Step, is_reused: bool) -> bool:
        root = members[0]
        if step in self._held or self._would_repeat(step) or (is_reused and self._is_dear(step)):
            return False
        if len(members) == 1 or (isinstance(root, Node) and self._body.writes_over(root, step)):
            return self._may_take(root, step)
        if not self._is_fusible(step) or (len(self._body.graph.outputs) == 1 and None in self._users[step]):
            return False
        return not self._reduces(step) or sum(map(self._reduces, members)) <= _REDUCTIONS

    def _reduces(self, step: Step) -> bool:
        spec = spec_of(step) if isinstance(step, Node) else None
        return spec is not None and spec.family is Family.REDUCTION

    def _is_emitted_often(self, step: Step, count: int, own: int) -> bool:
        if isinstance(step, Node) and OpRole.SPREAD in roles_of(step):
            return False
        readers = own + sum(self._inside[user].get(step, 1) if user in self._inside else 1 for user in self._users[step] if user) - 1
        readers += None in self._users[step]
        return count > _EMITTED or (self._breaks(step) and (count > 1 or readers > 1))


_LEAST: Final = 4096
"""Elements of the result or of an operand below which the library is not used (kMinElements)."""
_LEAST_AXIS: Final = 8
"""The size that an axis of a product has at least."""
_LEAST_CHANNELS: Final = 16
"""More channels than these a convolution has."""
_AXES: Final = 4
"""Axes of an image with channels."""
_MOST: Final = 64
"""Operators of one kernel."""


@dataclass(frozen=True, slots=True)
class Library:
    """Finds the kernels of one graph. `users`, `root` and `is_copied` say what reads a value, where it lies, and which operands of products
    are brought into another order."""

    place: dict[Node, int]
    users: dict[Value, list[Node | None]]
    root: Callable[[Value], Value]
    type_of: Callable[[Value], object]
    is_copied: Callable[[Node, int], bool]

    def kernels(self) -> dict[Node, Node]:
        """Return the operators that are in a kernel, with the one that makes its result."""
        found: dict[Node, Node] = {}
        for start in reversed(self.place):
            if start in found or not self._starts(start):
                continue
            members, last = [start], start
            while len(members) < _MOST:
                added = self._above(members, found)
                if added is None:
                    added = self._below(last, members, found)
                    last = added or last
                if added is None:
                    break
                members.append(added)
            found.update(dict.fromkeys(members, last))
        return found

    def _starts(self, node: Node) -> bool:
        return (node.op in LIBRARY_REDUCTIONS or node.op == LIBRARY_WINDOWS) and self._has(node)

    def _above(self, members: list[Node], found: dict[Node, Node]) -> Node | None:
        """Return an operator that members alone read."""
        for node in members:
            for place, value in enumerate(node.inputs):
                if value is None or self.is_copied(node, place):
                    continue
                root = self.root(value)
                made = root.node
                if made is None or made not in self.place or made in found or made in members:
                    continue
                if all(user in members for user in self.users.get(root, [])) and self._has(made):
                    return made
        return None

    def _below(self, last: Node, members: list[Node], found: dict[Node, Node]) -> Node | None:
        """Return the one operator that reads the result."""
        users = self.users.get(self.root(last.outputs[0]), [])
        user = users[0] if len(users) == 1 else None
        if user is None or user in found or user in members or not self._has(user):
            return None
        if self._divides(user, self.root(last.outputs[0])):
            return None  # a division by what is repeated multiplies by its reciprocal
        copied = any(
            value is not None and self.root(value) is self.root(last.outputs[0]) and self.is_copied(user, place)
            for place, value in enumerate(user.inputs)
        )
        return None if copied else user

    def _divides(self, user: Node, value: Value) -> bool:
        """Return whether a value that is too small for the library is repeated to be divided by."""
        own = self.type_of(value)
        if isinstance(own, TensorType) and _count(own) >= _LEAST:
            return False
        while OpRole.SPREAD in roles_of(user):
            value = self.root(user.outputs[0])
            users = self.users.get(value, [])
            if len(users) != 1 or users[0] is None:
                return False
            user = users[0]
            if OpRole.DIVIDE in roles_of(user):
                return user.inputs[1] is not None and self.root(user.inputs[1]) is value
        return False

    def _has(self, node: Node) -> bool:
        """Return whether the library has an operator, for these sizes and element types."""
        spec, types = spec_of(node), [self.type_of(value) for value in (*node.inputs, *node.outputs) if value is not None]
        if spec is None or node.regions or len(node.outputs) != 1 or not all(_is_float(type_) for type_ in types):
            return False
        if OpRole.SPREAD in spec.roles:
            axes = node.attrs.get("axes")
            return isinstance(axes, tuple) and list(axes) == sorted(axes)
        if spec.family is Family.CONTRACTION and len(node.inputs) > 1:
            return self._has_product(node)
        if spec.family is Family.CONVOLUTION:
            return self._has_convolution(node)
        if node.op == LIBRARY_WINDOWS and not _is_tiled(node):
            return False
        is_there = node.op in LIBRARY_OPERATORS or node.op in LIBRARY_REDUCTIONS or node.op == LIBRARY_WINDOWS
        return is_there and any(isinstance(type_, TensorType) and _count(type_) >= _LEAST for type_ in types)

    def _sizes(self, node: Node) -> list[tuple[int, ...]]:
        return [_sizes_of(self.type_of(value)) for value in (*node.inputs[:2], node.outputs[0]) if value is not None]

    def _has_product(self, node: Node) -> bool:
        first, second, made = self._sizes(node)
        if len(made) < 2 or len(first) < 2 or len(second) < 2:
            return False
        return made[-1] != 1 and made[-2] != 1 and max(first[-1], *made[-2:]) >= _LEAST_AXIS

    def _has_convolution(self, node: Node) -> bool:
        x, kernel, made = self._sizes(node)
        of_x, of_w, of_y = orders = [_numbers(node, name) for name in ("axes_x", "axes_w", "axes_y")]
        if len(x) != _AXES or any(sorted(order) != [*range(_AXES)] for order in orders):
            return False
        if node.attrs.get("batch_groups", 1) != 1 or _is_stretched(node):
            return False
        if max(x[of_x[1]], made[of_y[1]]) <= _LEAST_CHANNELS:
            return False
        return all(made[y] <= x[at] and kernel[w] <= x[at] for at, w, y in zip(of_x[2:], of_w[2:], of_y[2:], strict=True))


def _is_tiled(node: Node) -> bool:
    """Return whether windows lie side by side."""
    kernel = _numbers(node, "kernel")
    return kernel == (_numbers(node, "strides") or (1,) * len(kernel)) and not any(_numbers(node, "pads")) and not _is_stretched(node)


def _is_stretched(node: Node) -> bool:
    """Return whether elements of a window, or of what it goes over, stand apart."""
    return any(size > 1 for name in ("dilations", "spread") for size in _numbers(node, name))


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    """Return a list among the attributes, empty where it is not there."""
    held = node.attrs.get(name)
    return tuple(number for number in held if isinstance(number, int)) if isinstance(held, tuple) else ()


def _is_float(type_: object) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.is_float and type_.dtype.bits in (32, 64)


def _count(type_: TensorType) -> int:
    return type_.numel if isinstance(type_.numel, int) else 0


def _sizes_of(type_: object) -> tuple[int, ...]:
    shape = type_.shape if isinstance(type_, TensorType) else None
    return tuple(size if isinstance(size, int) else _LEAST for size in shape or ())
