"""Buffers of a program that a compiler fuses, as XLA's CPU compiler does: what is fused has no buffer, what is left is packed.

Rules are those of the compiler's fusion as far as they are simple: operators that compute or move element by element go into the kernels
that read them, unless that would compute something dear twice; products, convolutions, sorting and loops are kernels of their own;
a kernel may write over an operand of its size that nothing reads later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_
from typing import Final

from irscope.immutable import mutable
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import control_of, roles_of, spec_of
from irscope.ops.spec import Family
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.kernels import Fusion, Library, Step
from irscope.passes.lifetimes.lives import read_values
from irscope.passes.lifetimes.packed import ALIGNMENT, FusedPlan, Storage, height, heights, packed, sum_nested
from irscope.passes.lifetimes.sharded import Sharding
from irscope.passes.lifetimes.values import COMPUTED, Values, is_convolution

_POINTER: Final = 8
_INDEX: Final = 4
_BLOCK: Final = 16
_ADDED_AT_ONCE: Final = 30 << 20
"""Bytes of partial sums that are added over devices in one kernel, at most (the threshold of AllReduceCombiner)."""
SCATTERED: Final = "reduce.scatter_windows"


@mutable
class Kernel:
    """A kernel: the values, or copies of values, that it reads and makes."""

    node: Node
    reads: dict[object, None]
    makes: list[tuple[object, int]]

    __hash__ = object.__hash__


class Body(Values):
    """One graph: what is fused, what has a buffer, and when."""

    def __init__(
        self, graph: Graph, types: Inferred, states: Iterable[tuple[Value, Value]] = (), around: Body | None = None, is_loose: bool = False
    ) -> None:
        """`states` are the arguments in whose memory a result lies, each with its result."""
        super().__init__(graph, types, around)
        self.states = list(states)
        self.fused: set[Node] = set()
        self.into: dict[Node, dict[Step, None]] = {}
        """The kernels in which each node is computed, by the nodes that make their results."""
        self._members: dict[Node, list[Node]] = {}
        self._leaves: dict[tuple[Node, Step], frozenset[Value]] = {}
        self._copies: set[object] = set()
        """Copies of operands in another order that an earlier kernel makes."""
        self._first: dict[Node, frozenset[object]] = {}
        """Copies over which nodes write, as their operand is still read."""
        self.is_loose = is_loose
        """True where nothing is fused, and nothing written over: for an upper bound."""
        if not is_loose:
            self.library = Library(self.place, self.users, self.root, self.types.type_of, self.is_copied).kernels()
            self._fuse()

    def _fuse(self) -> None:
        self.into = Fusion(self).kernels
        for node in self.steps:
            if node in self.library:
                self.into[node] = {self.library[node]: None}
            if node not in self.into.setdefault(node, {}):
                self.fused.add(node)

    def has_buffer(self, node: Node) -> bool:
        """Return whether a node's results are stored."""
        return node not in self.fused and bool(node.outputs)

    def leaves(self, node: Node, kernel: Step | None = None) -> frozenset[Value]:
        """Return stored values that a node reads, through what is computed in the same kernel; without one, in its own."""
        kernel = kernel or node
        found = self._leaves.get((node, kernel))
        if found is None:
            parts: set[Value] = set()
            for value in self.reads(node):
                root = self.root(value)
                made = root.node
                if made is not None and kernel in self.into.get(made, ()):
                    parts |= self.leaves(made, kernel)
                else:
                    parts.add(root)
            found = self._leaves[node, kernel] = frozenset(parts)
        return found

    def kernels(self) -> list[Kernel]:
        """Kernels in the order in which they become ready, first in, first out: arguments before them, and what reads several when the
        last of them is there (BFScheduler of XLA)."""
        made: list[Kernel] = []
        for node, last in self.library.items():
            self._members.setdefault(last, []).append(node)
        for node in self.steps:
            if self.has_buffer(node) and (node.regions or not all(output in self.roots for output in node.outputs)):
                made.extend(self._kernels_of(node))
        if not self.is_loose:
            made = self._added_at_once(self._copied_first(made))
        readers: dict[object, list[Kernel]] = {}
        missing: dict[int, int] = {}
        for kernel in sorted(made, key=lambda kernel: self._is_swapped(kernel.node)):
            missing[id(kernel)] = len(kernel.reads)
            for value in kernel.reads:
                readers.setdefault(value, []).append(kernel)
        self._order_readers(readers)
        own = {value for kernel in made for value, _ in kernel.makes}
        outside = [value for value in readers if value not in own]
        inputs = {value: place for place, value in enumerate(self.graph.inputs)}
        outside.sort(key=lambda value: inputs.get(value, -1) if isinstance(value, Value) else -1)
        queue: list[object] = [*outside, *(kernel for kernel in made if not kernel.reads)]
        order: list[Kernel] = []
        for entry in queue:  # which grows
            if isinstance(entry, Kernel):
                order.append(entry)
                values: Iterable[object] = [value for value, _ in entry.makes]
            else:
                values = (entry,)
            for value in values:
                for kernel in readers.get(value, ()):
                    missing[id(kernel)] -= 1
                    if missing[id(kernel)] == 0:
                        queue.append(kernel)
        return order

    def _copied_first(self, kernels: list[Kernel]) -> list[Kernel]:
        """Have what is written over copied, where it is an argument or something may read it later (CopyInsertion)."""
        makers, before, readers = _ancestors(kernels)
        results = {self.root(value) for value in self.graph.outputs}
        states = {argument for argument, _ in self.states}
        found: list[Kernel] = []
        for step, kernel in enumerate(kernels):
            for value in self._changed(kernel.node) if kernel.makes and kernel.makes[0][0] in kernel.node.outputs else ():
                is_read = value in results or any(one != step and not before[step] >> one & 1 for one in readers.get(value, ()))
                if value in kernel.reads and value not in states and (is_read or value not in makers):
                    copy = ("copy", kernel.node, value)
                    found.append(Kernel(kernel.node, {value: None}, [(copy, self.size(value))]))
                    kernel.reads = {copy if read is value else read: None for read in kernel.reads}
                    self._first[kernel.node] = self._first.get(kernel.node, frozenset()) | {copy}
            found.append(kernel)
        return found

    def _changed(self, node: Node) -> list[Value]:
        """Return the operands over which a node writes."""
        if OpRole.WRITE_PART in roles_of(node):
            return [self.root(value) for value in self.reads(node)[:1]]
        if control_of(node) is not Control.LOOP or not node.regions:
            return []
        region = node.regions[0]
        triples = zip(node.inputs[2:], region.inputs[2:], region.outputs[1:], strict=False)
        return [self.root(state) for state, argument, result in triples if state is not None and result is not argument]

    def _order_readers(self, readers: dict[object, list[Kernel]]) -> None:
        """Order the readers of a reshape or copy as a walk from the results finds them: those that were the same are the first one's."""
        places = self._from_results()
        for value, those in readers.items():
            if not isinstance(value, Value) or all(self.flattens(kernel.node, value) for kernel in those):
                those.sort(key=lambda kernel: places.get(kernel.node, 0))

    def _from_results(self) -> dict[Node, int]:
        """Return nodes in the order in which a walk from the results, first operands first, leaves them."""
        found: dict[Node, int] = {}
        waiting = [(value.node, False) for value in reversed(self.graph.outputs)]
        while waiting:
            node, is_left = waiting.pop()
            if node is None or node in found or node not in self.place:
                continue
            if is_left:
                found[node] = len(found)
                continue
            waiting.append((node, True))
            waiting.extend((value.node, False) for value in reversed(node.inputs) if value is not None and value.node not in found)
        return found

    def _is_swapped(self, node: Node) -> bool:
        """Return whether only another order of the result's axes is read, so that the compiler made a product with its operands
        exchanged."""
        users = [user for output in node.outputs[:1] for user in output.users or () if isinstance(user, Node)]
        return self.is_product(node) and any(made in self.roots for user in users for made in user.outputs[:1])

    def _kernels_of(self, node: Node) -> list[Kernel]:
        """Return the kernel of a node, and those that the compiler has before it."""
        reads: dict[object, None] = {value: None for value in sorted(self.leaves(node), key=self._order)}
        makes: list[tuple[object, int]] = [(output, self.size(output)) for output in node.outputs if output not in self.roots]
        before = [*self._gathers(node, reads), *self._operand_copies(node, reads)]
        inner: list[tuple[object, int]] = []
        spec = spec_of(node)
        if spec is not None and self.multiplies(node) and makes:
            if self._widened(node) and self._wide_result(makes[0]) > makes[0][1]:
                inner.append((("product", node, 0), self._wide_result(makes[0])))
            elif is_convolution(node) and self._is_made_turned(node):
                inner.append((("product", node, 2), makes[0][1]))
        elif spec is not None and node.op == SCATTERED and makes:
            before, reads = self._scattered(node, reads)
        elif control_of(node) is Control.LOOP and not self.is_loose:
            table: tuple[str, Node, int] = ("tuple", node, 0)
            before.append(Kernel(node, reads, [(table, _POINTER * self._carried(node))]))
            reads = {table: None, **reads}
        if node in self.partial and makes:
            inner.append((("product", node, 1), makes[0][1]))
        for made in inner:
            before.append(Kernel(node, reads, [made]))
            reads = {made[0]: None}
        return [*before, Kernel(node, reads, makes)]

    def _added_at_once(self, kernels: list[Kernel]) -> list[Kernel]:
        """Add partial sums that do not need one another over the devices in one kernel (AllReduceCombiner of XLA)."""
        sums = [step for step, one in enumerate(kernels) if one.node in self.partial and ("product", one.node, 1) in one.reads]
        before = _ancestors(kernels)[1] if len(sums) > 1 else []
        groups: list[list[int]] = []
        for step in sums:
            for group in groups if before else ():
                is_near = self.partial[kernels[group[0]].node] == self.partial[kernels[step].node]
                size = sum(size for other in (*group, step) for _, size in kernels[other].makes)
                if is_near and size <= _ADDED_AT_ONCE and not any(before[step] >> other & 1 for other in group):
                    group.append(step)
                    break
            else:
                groups.append([step])
        joined: list[Kernel | None] = [*kernels]
        for group in (group for group in groups if len(group) > 1):
            members, last = [kernels[step] for step in group], kernels[group[-1]].node
            makes = [(("tuple", last, 1), _POINTER * len(group)), *(made for member in members for made in member.makes)]
            for step in group:
                joined[step] = None
            joined[group[-1]] = Kernel(last, {read: None for member in members for read in member.reads}, makes)
        made = [one for one in joined if one is not None]
        return kernels if _has_cycle(made) else made

    def _gathers(self, node: Node, reads: dict[object, None]) -> Iterator[Kernel]:
        """Return the kernels that gather operands from all devices, once for all that read them, and have the node read what they make."""
        for place, size in self.gathered.get(node, {}).items():
            root = self.root(node.inputs[place] or node.outputs[0])
            sources = self.leaves(root.node, node) if root.node is not None and node in self.into.get(root.node, ()) else (root,)
            if (whole := ("gathered", root)) not in self._copies:
                self._copies.add(whole)
                yield Kernel(node, dict.fromkeys(sources), [(whole, size)])
            for source in sources:
                reads.pop(source, None)
            reads[whole] = None

    def _operand_copies(self, node: Node, reads: dict[object, None]) -> list[Kernel]:
        """Return the kernels that bring operands of products into another order or element type, and have the node read what they make."""
        before: list[Kernel] = []
        for each in (one for one in self._members.get(node, [node]) if self.is_product(one) or is_convolution(one)):
            wide = self._widened(each)
            for place, value in enumerate(each.inputs[:2]):
                root = None if value is None else self.root(value)
                if root is None or not self.is_copied(each, place):
                    continue
                copy, size = self._copy(each, place, value), self.size(root) * (wide or 1)
                made = root.node
                kernel: Step = ("copy", each, place)
                sources = self.leaves(made, kernel) if made is not None and kernel in self.into.get(made, ()) else (root,)
                if copy not in self._copies:
                    self._copies.add(copy)
                    before.append(Kernel(each, dict.fromkeys(sources), [(copy, size)]))
                for source in (root, *sources):
                    reads.pop(source, None)
                reads[copy] = None
            for place, value in enumerate(each.inputs[:2]):  # an operand may be both as it is and copied
                if value is not None and not self.is_copied(each, place) and (root := self.root(value)).node not in self.fused:
                    reads[root] = None
        return before

    def _carried(self, node: Node) -> int:
        """Return how many values a loop has in its table of pointers: its counter, its states, and what it reads of those around it."""
        states = {self.root(value) for value in node.inputs[2:] if value is not None}
        outside = {self.root(value) for value in read_values(node) if value.role is not Role.CONSTANT} - states
        inner = {value for region in node.regions for one in region.walk() for value in one.outputs}
        inner |= {value for region in node.regions for body in region.graphs() for value in body.inputs}
        return 1 + len(node.inputs[2:]) + len(outside - inner - set(node.inputs[:2]))

    def _scattered(self, node: Node, reads: dict[object, None]) -> tuple[list[Kernel], dict[object, None]]:
        """Return the nodes that the compiler makes of a scatter by windows: numbers of places along each axis, the place of each window's
        element among them, and a scatter (SelectAndScatterExpander)."""
        x, source = node.inputs[0], node.inputs[1]
        type_ = self.types.type_of(x)
        rank = len(type_.shape or ()) if isinstance(type_, TensorType) else 0
        if x is None or source is None:
            return [], reads
        wide, narrow = _INDEX * self.elements(x), _INDEX * self.elements(source)
        axes = [("axis", node, axis) for axis in range(rank)]
        places: tuple[str, Node, int] = ("places", node, 0)
        chosen: tuple[str, Node, int] = ("chosen", node, 0)
        before = [Kernel(node, {}, [(axis, wide)]) for axis in axes]
        before.append(Kernel(node, {self.root(x): None, **dict.fromkeys(axes)}, [(chosen, narrow * (rank + 1))]))
        before.append(Kernel(node, {chosen: None}, [(places, narrow * rank)]))
        start: tuple[str, Node, int] = ("start", node, 0)
        before.append(Kernel(node, {}, [(start, self.size(node.outputs[0]))]))
        return before, {start: None, places: None, **{read: None for read in reads if read is not self.root(x)}}

    def _order(self, value: Value) -> tuple[int, int]:
        return (self.place.get(value.node, -1) if value.node is not None else -1, value.index)

    def _copy(self, node: Node, place: int, value: Value | None) -> object:
        """Return what is the same for copies of an operand in the same order, of which the compiler makes one."""
        return "copy", self.root(value) if value is not None else None, self._turned(node, place), str(self.types.type_of(value))

    def _wide_result(self, made: tuple[object, int]) -> int:
        type_ = self.types.type_of(made[0]) if isinstance(made[0], Value) else None
        bits = (type_.dtype.bits if isinstance(type_, TensorType) else None) or COMPUTED
        return made[1] * max(1, COMPUTED // bits)

    def _is_made_turned(self, node: Node) -> bool:
        """Return whether a convolution's result is stored in another order of axes than batch, space, channels, in which it is made."""
        order = node.attrs.get("axes_y")
        if not isinstance(order, tuple) or len(order) < 3:
            return False
        axes = [axis for axis in order if isinstance(axis, int)]
        is_taken = all(user is not None and self.takes(user, node.outputs[0]) for user in self.users.get(node.outputs[0], []))
        return not is_taken and [axes[0], *axes[2:], axes[1]] != sorted(axes)

    def _written_over(self, node: Node, kernel: Step | None = None) -> frozenset[object]:
        """Stored values of which the kernel reads each element where it writes one: it may lie where they did."""
        kernel = kernel or node
        spec = spec_of(node)
        if spec is None or self.is_loose:
            return frozenset()
        if node.op == SCATTERED:
            return frozenset({("start", node, 0)})
        if control_of(node) is Control.LOOP or spec.family is Family.SORTING:
            return frozenset(self.root(value) for value in node.inputs if value is not None) | self._first.get(node, frozenset())
        if OpRole.WRITE_PART in spec.roles:
            return frozenset(self.root(value) for value in self.reads(node)[:1]) | self._first.get(node, frozenset())
        if spec.family not in (Family.ELEMENTWISE, Family.COMPARISON) and OpRole.CONVERT not in spec.roles:
            return frozenset()
        users = self.users.get(node.outputs[0], [])
        if users and all(self.flattens(user, node.outputs[0]) for user in users):
            return frozenset()
        found: set[object] = set()
        others: set[object] = set()
        for value in node.inputs:
            root = None if value is None else self.root(value)
            if root is None:
                continue
            made = root.node
            if made is not None and kernel in self.into.get(made, ()):
                inner = frozenset() if self.is_reshaped(value) else self._written_over(made, kernel)
                found |= inner
                others |= self.leaves(made, kernel) - inner
            else:
                (others if self.is_reshaped(value) or self._is_flattened(made) else found).add(root)
        return frozenset(found - others)

    def _is_flattened(self, node: Node | None) -> bool:
        """Return whether a product is one of matrices, whose result its readers take in its own axes."""
        if node is None or not self.is_product(node):
            return False
        return self._axes_of(node.outputs[0]) > len(self._axes(node, 0)[0]) + 2

    def _last_reads(self, kernels: Sequence[Kernel], results: Iterable[Value]) -> dict[object, int]:
        """Return the last kernel that reads each value; what the graph returns is read behind the last one."""
        last: dict[object, int] = {}
        for step, kernel in enumerate(kernels):
            for read in kernel.reads:
                last[read] = step
        for result in results:
            for leaf in self.leaves(result.node) if result.node is not None and result.node in self.fused else (result,):
                last[leaf] = len(kernels)
        return last

    def plan(self, is_main: bool) -> FusedPlan:
        """Storages of this graph's results, in order."""
        found = FusedPlan([])
        kernels = self._keep_states(self.kernels(), found)
        found.steps, found.kernels = [kernel.node for kernel in kernels], len(kernels)
        results = {self.root(value) for value in self.graph.outputs}
        last = self._last_reads(kernels, results)
        end = len(kernels)
        owner: dict[object, Storage] = {}
        for step, kernel in enumerate(kernels):
            node = kernel.node
            if node.regions:
                found.nested[step] = self._inside(node)
            elif kernel.makes and kernel.makes[0][0] is node.outputs[0] and self._is_scan(node):
                found.inside[step] = self.size(node.outputs[0]) + -(-self.size(node.outputs[0]) // _BLOCK)
            over = self._written_over(node)
            dying = [read for read in kernel.reads if read in over and last.get(read) == step and read in owner]
            for made, size in kernel.makes:
                until = end if made in results else last.get(made, step)
                for read in dying:
                    owner[read].is_passed = owner[read].size == size
                if made in found.over:
                    found.busy[found.over[made]] = (last.get(found.over[made], 0), step)
                    continue
                taken = next((read for read in dying if owner[read].size == size and not owner[read].is_output), None)
                if taken is not None:
                    dying.remove(taken)
                    storage = owner[taken]
                    storage.dies, storage.is_passed = until, False
                else:
                    storage = Storage(size, step, until, [])
                    found.storages.append(storage)
                if isinstance(made, Value):
                    storage.tenants.append((made, step))
                owner[made] = storage
                storage.is_output = is_main and made in results
        for storage in found.storages:
            if not storage.tenants:
                storage.tenants.append((kernels[storage.born].node.outputs[0], storage.born))
        found.unsized = self.unsized
        return found

    def _keep_states(self, kernels: list[Kernel], found: FusedPlan) -> list[Kernel]:
        """Lay results of a loop, and those of donated arguments, where the argument is. Return the kernels with those that copy an argument
        first, as it may be read when its result has been made (CopyInsertion)."""
        makers, before, readers = _ancestors(kernels)
        copies: list[Kernel] = []
        for argument, result in self.states:
            made = self.root(result)
            if made not in makers or made in found.over or self.size(argument) != self.size(made):
                continue
            found.over[made] = argument
            step = makers[made]
            own, node = readers.get(argument, []), kernels[step].node
            if any(not before[step] >> reader & 1 for reader in own) or (step in own and argument not in self._written_over(node)):
                copy = ("copy", argument)
                copies.append(Kernel(node, {argument: None}, [(copy, self.size(argument))]))
                for reader in own:
                    kernels[reader].reads = {copy if read is argument else read: None for read in kernels[reader].reads}
        return copies + kernels

    def _is_scan(self, node: Node) -> bool:
        """Return whether a window from the border on is a scan in blocks, whose parts are stored before they are added."""
        kernel, pads = node.attrs.get("kernel"), node.attrs.get("pads")
        if not isinstance(kernel, tuple) or not isinstance(pads, tuple) or len(node.outputs) != 1:
            return False
        reach = max((size for size in kernel if isinstance(size, int)), default=1)
        return reach > _BLOCK and sum(size for size in pads if isinstance(size, int)) == reach - 1

    def _inside(self, node: Node) -> list[FusedPlan]:
        """Return the plans of the regions of a node."""
        found: list[FusedPlan] = []
        is_loop = control_of(node) is Control.LOOP
        for region in node.regions:
            pairs = zip(region.inputs[2:], region.outputs[1:], strict=False) if is_loop else ()
            states = [(argument, result) for argument, result in pairs if argument not in self.roots]
            plan = type(self)(region, self.types, states, self, self.is_loose).plan(is_main=not is_loop)
            self.unsized.extend(plan.unsized)
            found.append(plan)
        return found


def _ancestors(kernels: Sequence[Kernel]) -> tuple[dict[object, int], list[int], dict[object, list[int]]]:
    """Return the kernel that makes each value, all that are before each kernel, itself included, as bits, and those that read a value."""
    makers = {made: step for step, kernel in enumerate(kernels) for made, _ in kernel.makes}
    before: list[int] = []
    readers: dict[object, list[int]] = {}
    for step, kernel in enumerate(kernels):
        above = {makers[read] for read in kernel.reads if read in makers}
        before.append(reduce(or_, (before[maker] for maker in above), 1 << step))
        for read in kernel.reads:
            readers.setdefault(read, []).append(step)
    return makers, before, readers


def _has_cycle(kernels: Sequence[Kernel]) -> bool:
    """Return whether kernels wait for one another."""
    makers = {made: step for step, kernel in enumerate(kernels) for made, _ in kernel.makes}
    waits = {step: {makers[read] for read in kernel.reads if read in makers} for step, kernel in enumerate(kernels)}
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return True
    return False


def plan_fused(
    graph: Graph, types: Inferred, aliased: Sequence[tuple[int, int]], sharding: Sharding | None = None, kind: type[Body] = Body
) -> FusedPlan:
    """Return the buffers of a program, and sums of them; of a sharded one on one device."""
    pairs = [
        (graph.inputs[argument], graph.outputs[result])
        for argument, result in aliased
        if argument < len(graph.inputs) and result < len(graph.outputs)
    ]
    body = kind(graph, types, pairs)
    if sharding is not None:
        body.parts, body.partial, body.gathered = sharding.parts, sharding.partial, sharding.gathered
    plan = body.plan(is_main=True)
    shared = {} if sharding is None else sharding.shared
    results = [shared.get(value, body.size(value)) for value in graph.outputs]
    plan.temporary = height(packed(plan, body.size)) + sum(map(body.size, shared))
    sum_nested(plan)
    plan.arguments = sum(body.size(value) for value in graph.inputs)
    plan.constants = sum(body.size(value) for value in graph.weights)
    plan.outputs = sum(results) + (_POINTER * len(results) if len(results) > 1 else 0)
    plan.aliased = sum(results[result] for _, result in aliased if result < len(results))
    products = [storage.size for storage in plan.storages if not storage.is_output and body.is_product(storage.tenants[0][0].node)]
    largest = max(products, default=0)
    plan.low = largest if largest > max(results, default=0) else 0
    is_known = all(spec_of(node) is not None for node in graph.walk())
    plan.high = max(plan.temporary + ALIGNMENT * len(shared), _most(graph, types, pairs, results, body.parts)) if is_known else None
    if sharding is not None:
        plan.exchanges = sharding.exchanges
    return plan


def _most(
    graph: Graph, types: Inferred, pairs: Sequence[tuple[Value, Value]], results: Sequence[int], parts: Callable[[Value], int]
) -> int:
    """Return the most that any order takes that is near: nothing is fused or written over, and each operand is brought into another
    order."""
    loose = Body(graph, types, is_loose=True)
    loose.parts = parts
    plan = loose.plan(is_main=True)
    sum_nested(plan)
    own = [storage for storage in plan.storages if not storage.is_output]
    copies = sum(loose.size(argument) for argument, _ in pairs)
    within = {step: 2 * size for step, size in plan.inside.items()}
    scalars = ALIGNMENT * sum(len(node.regions) + 1 for node in graph.walk() if node.regions)
    return max(heights(own, within, len(plan.steps)), default=0) + copies + max(results, default=0) + scalars
