"""Graphs to be ordered, built like networks of the literature: operators, the storages they make, and their sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from irscope.solvers.order.problem import OrderProblem, Storage, order_problem


class Network:
    """Operators in the order in which they are written; each makes one tensor, which lives until its last reader has run."""

    def __init__(self) -> None:
        self._before: list[set[int]] = []
        self._sizes: list[int] = []
        self._readers: list[list[int]] = []

    def op(self, inputs: Sequence[int], elements: int) -> int:
        """A new operator that reads the results of others and makes so many numbers of 4 bytes."""
        op = len(self._before)
        self._before.append(set(inputs))
        self._sizes.append(4 * elements)
        self._readers.append([])
        for one in inputs:
            self._readers[one].append(op)
        return op

    def problem(self) -> OrderProblem:
        """What is to be ordered; nobody reads the results of the last operators, which are kept."""
        storages = [
            Storage(size, (op, *readers), is_output=not readers)
            for op, (size, readers) in enumerate(zip(self._sizes, self._readers, strict=True))
        ]
        return order_problem(self._before, storages)


def small_world(count: int, degree: int, chance: float, rng: random.Random) -> list[tuple[int, int]]:
    """Edges of Watts and Strogatz's random graph, from the smaller number to the larger one: a ring, some of whose edges lead elsewhere."""
    linked: list[set[int]] = [set() for _ in range(count)]
    for step in range(1, degree // 2 + 1):
        for index in range(count):
            linked[index].add((index + step) % count)
            linked[(index + step) % count].add(index)
    for step in range(1, degree // 2 + 1):
        for index in range(count):
            other = (index + step) % count
            if rng.random() >= chance or len(linked[index]) >= count - 1:
                continue
            elsewhere = rng.choice([node for node in range(count) if node != index and node not in linked[index]])
            linked[index].discard(other)
            linked[other].discard(index)
            linked[index].add(elsewhere)
            linked[elsewhere].add(index)
    return sorted({(min(index, other), max(index, other)) for index in range(count) for other in linked[index]})


def _random_wiring(net: Network, source: int, count: int, elements: int, rng: random.Random) -> int:
    """One stage of RandWire: each node sums what it is given, then convolves it."""
    inputs: list[list[int]] = [[] for _ in range(count)]
    read: set[int] = set()
    for start, end in small_world(count, 4, 0.75, rng):
        inputs[end].append(start)
        read.add(start)
    made: list[int] = []
    for found in inputs:
        operands = [made[one] for one in found] or [source]
        total = operands[0] if len(operands) == 1 else net.op(operands, elements)
        made.append(net.op([total], elements))
    return net.op([made[index] for index in range(count) if index not in read], elements)


def randwire(count: int, seed: int, stages: int = 1) -> OrderProblem:
    """RandWire WS(count, 4, 0.75), 78 channels; each further stage has half the resolution and twice the channels."""
    net, rng = Network(), random.Random(seed)
    side, channels = 28, 78
    result = net.op([], side * side * channels)
    for _ in range(stages):
        result = _random_wiring(net, result, count, side * side * channels, rng)
        side, channels = side // 2, channels * 2
    return net.problem()


def randwire_nodes(count: int, seed: int) -> OrderProblem:
    """The same wiring with one operator a node, whose results have random sizes."""
    net, rng = Network(), random.Random(seed)
    inputs: list[list[int]] = [[] for _ in range(count)]
    for start, end in small_world(count, 4, 0.75, rng):
        inputs[end].append(start)
    source = net.op([], rng.randrange(1 << 16, 1 << 19))
    made: list[int] = []
    for found in inputs:
        made.append(net.op([made[one] for one in found] or [source], rng.randrange(1 << 16, 1 << 19)))
    return net.problem()


def _separable(net: Network, source: int, before: int, elements: int, kernels: int = 2) -> int:
    """Depthwise and pointwise convolution, twice; the first one may lower the resolution."""
    result = net.op([source], before)
    result = net.op([result], elements)
    for _ in range(kernels - 1):
        result = net.op([net.op([result], elements)], elements)
    return result


def nasnet_normal(net: Network, previous: int, current: int, elements: int) -> int:
    """NASNet-A's normal cell."""
    older, newer = net.op([previous], elements), net.op([current], elements)

    def sep(source: int) -> int:
        return _separable(net, source, elements, elements)

    def add(one: int, other: int) -> int:
        return net.op([one, other], elements)

    def pool(source: int) -> int:
        return net.op([source], elements)

    first = add(sep(newer), newer)
    second = add(sep(older), sep(newer))
    third = add(pool(newer), older)
    fourth = add(pool(older), pool(older))
    fifth = add(sep(older), sep(older))
    return net.op([older, first, second, third, fourth, fifth], 6 * elements)


def nasnet_reduction(net: Network, previous: int, current: int, elements: int) -> int:
    """NASNet-A's reduction cell: `elements` are those of one of its four results, a quarter of the pixels with twice the channels."""
    older, newer = net.op([previous], 2 * elements), net.op([current], 2 * elements)

    def sep(source: int, before: int) -> int:
        return _separable(net, source, before, elements)

    def add(one: int, other: int) -> int:
        return net.op([one, other], elements)

    def pool(source: int) -> int:
        return net.op([source], elements)

    half = elements // 2
    first = add(sep(older, half), sep(newer, half))
    second = add(pool(newer), sep(older, half))
    third = add(pool(newer), sep(older, half))
    fourth = add(pool(newer), sep(first, elements))
    fifth = add(pool(first), second)
    return net.op([second, third, fourth, fifth], 4 * elements)


def nasnet_cell(*, reduction: bool) -> OrderProblem:
    """One cell of NASNet-A between its two inputs and its result."""
    net = Network()
    elements = 28 * 28 * 44
    one, other = net.op([], 6 * elements), net.op([], 6 * elements)
    (nasnet_reduction if reduction else nasnet_normal)(net, one, other, elements)
    return net.problem()


def nasnet(repeats: int = 4, filters: int = 44) -> OrderProblem:
    """NASNet-A: a stem, then three times a reduction cell and `repeats` normal ones."""
    net = Network()
    side = 56
    previous = current = net.op([], side * side * filters)
    for _ in range(3):
        side //= 2
        previous, current = current, nasnet_reduction(net, previous, current, side * side * filters)
        for _ in range(repeats):
            previous, current = current, nasnet_normal(net, previous, current, side * side * filters)
        filters *= 2
    return net.problem()


def _darts_normal(net: Network, previous: int, current: int, elements: int) -> int:
    older, newer = net.op([previous], elements), net.op([current], elements)

    def sep(source: int) -> int:
        return _separable(net, source, elements, elements)

    def add(one: int, other: int) -> int:
        return net.op([one, other], elements)

    first = add(sep(older), sep(newer))
    second = add(sep(older), sep(newer))
    third = add(sep(newer), older)
    fourth = add(older, _separable(net, first, elements, elements, kernels=1))
    return net.op([first, second, third, fourth], 4 * elements)


def _darts_reduction(net: Network, previous: int, current: int, elements: int) -> int:
    older, newer = net.op([previous], 2 * elements), net.op([current], 2 * elements)

    def pool(source: int) -> int:
        return net.op([source], elements)

    def add(one: int, other: int) -> int:
        return net.op([one, other], elements)

    first = add(pool(older), pool(newer))
    second = add(first, pool(newer))
    third = add(pool(older), first)
    fourth = add(first, pool(newer))
    return net.op([first, second, third, fourth], 4 * elements)


def darts(cells: int = 14) -> OrderProblem:
    """DARTS-V2 with reductions at a third and two thirds of its cells."""
    net = Network()
    side, filters = 28, 48
    previous = net.op([], side * side * filters)
    current = net.op([previous], side * side * filters)
    for cell in range(cells):
        reduces = cell in (cells // 3, 2 * cells // 3)
        if reduces:
            side, filters = side // 2, filters * 2
        make = _darts_reduction if reduces else _darts_normal
        previous, current = current, make(net, previous, current, side * side * filters)
    net.op([net.op([current], 4 * filters)], 1000)
    return net.problem()


def inception(blocks: int = 9) -> OrderProblem:
    """Blocks of four branches, as in Inception v3."""
    net = Network()
    current = net.op([], 299 * 299 * 3)
    for width, depth in ((149, 32), (147, 32), (147, 64), (73, 64), (73, 80), (71, 192), (35, 192)):
        current = net.op([current], width * width * depth)
    side, channels = 35, 192
    for block in range(blocks):
        if block in (3, 7):
            side = side // 2
        pixels = side * side
        branches = [net.op([current], pixels * 64)]
        for depth in (2, 3):
            result = current
            for _ in range(depth):
                result = net.op([result], pixels * 96)
            branches.append(result)
        branches.append(net.op([net.op([current], pixels * channels)], pixels * 64))
        channels = 64 + 96 + 96 + 64
        current = net.op(branches, pixels * channels)
    net.op([net.op([current], channels)], 1000)
    return net.problem()


def unet(depth: int = 4) -> OrderProblem:
    """Down and up again, with what was there on the way down."""
    net = Network()
    side, channels = 128, 32
    current = net.op([], side * side * 3)
    kept: list[int] = []
    for level in range(depth + 1):
        elements = side * side * channels
        current = net.op([net.op([current], elements)], elements)
        if level < depth:
            kept.append(current)
            side, channels = side // 2, channels * 2
            current = net.op([current], side * side * channels // 2)
    for skip in reversed(kept):
        side, channels = side * 2, channels // 2
        elements = side * side * channels
        joined = net.op([net.op([current], elements), skip], 2 * elements)
        current = net.op([net.op([joined], elements)], elements)
    net.op([current], side * side * 2)
    return net.problem()


def unet_nested(depth: int = 4) -> OrderProblem:
    """UNet++: every node of the triangle reads all nodes before it in its row, and the one below."""
    net = Network()
    rows: list[list[int]] = [[] for _ in range(depth + 1)]
    source = net.op([], 128 * 128 * 3)
    for column in range(depth + 1):
        for row in range(depth + 1 - column):
            side, channels = 128 >> row, 32 << row
            elements = side * side * channels
            if column == 0:
                above = source if row == 0 else net.op([rows[row - 1][0]], side * side * channels // 2)
                joined = above
            else:
                up = net.op([rows[row + 1][column - 1]], elements)
                joined = net.op([*rows[row], up], (column + 1) * elements)
            rows[row].append(net.op([joined], elements))
    net.op([rows[0][-1]], 128 * 128 * 2)
    return net.problem()


def densenet(blocks: Sequence[int] = (6, 12, 24, 16), growth: int = 32) -> OrderProblem:
    """DenseNet-121: each layer reads the concatenation of all before it in its block."""
    net = Network()
    side, channels = 56, 64
    current = net.op([net.op([], 112 * 112 * channels)], side * side * channels)
    for at, layers in enumerate(blocks):
        for _ in range(layers):
            narrow = net.op([current], side * side * 4 * growth)
            new = net.op([narrow], side * side * growth)
            channels += growth
            current = net.op([current, new], side * side * channels)
        if at < len(blocks) - 1:
            channels //= 2
            side //= 2
            current = net.op([net.op([current], 4 * side * side * channels)], side * side * channels)
    net.op([net.op([current], channels)], 1000)
    return net.problem()


def hrnet(modules: Sequence[int] = (1, 2, 2)) -> OrderProblem:
    """Branches of several resolutions that are mixed after each module."""
    net = Network()
    side, channels = 64, 32
    branches = [net.op([net.op([], 128 * 128 * 64)], side * side * channels)]
    for stage, repeats in enumerate(modules):
        width = stage + 2
        branches.append(net.op([branches[-1]], (side >> (width - 1)) ** 2 * (channels << (width - 1))))
        for _ in range(repeats):
            branches = _mixed(net, [_block(net, branch, level, side, channels) for level, branch in enumerate(branches)], side, channels)
    net.op(branches[:1], side * side * 17)
    return net.problem()


def _block(net: Network, source: int, level: int, side: int, channels: int) -> int:
    elements = (side >> level) ** 2 * (channels << level)
    return net.op([source, net.op([net.op([source], elements)], elements)], elements)


def _mixed(net: Network, branches: Sequence[int], side: int, channels: int) -> list[int]:
    found = []
    for level in range(len(branches)):
        elements = (side >> level) ** 2 * (channels << level)
        parts = [branch if at == level else net.op([branch], elements) for at, branch in enumerate(branches)]
        found.append(net.op(parts, elements))
    return found


def layered(count: int, width: int, seed: int = 0, reach: int = 0, most: int = 2, skips: float = 0.1) -> OrderProblem:
    """Random layers of up to `width` operators that read up to `most` of the layer before and, now and then, older results.

    Sizes are 1 KiB to 1 MiB. Without a reach older results are at most a few layers away.
    """
    net, rng = Network(), random.Random(seed)
    older: list[int] = []
    layer: list[int] = []
    made = 0
    while made < count:
        inputs: list[set[int]] = [set() for _ in range(rng.randint(1, width))]
        for one in inputs:
            if layer:
                one.update(rng.sample(layer, min(len(layer), rng.randint(1, most))))
            if older and rng.random() < skips:
                one.add(older[-rng.randint(1, min(len(older), reach or 4 * width))])
        for result in layer:
            if not any(result in one for one in inputs):
                rng.choice(inputs).add(result)
        older += layer
        layer = [net.op(sorted(one), int(2 ** rng.uniform(8, 18))) for one in inputs]
        made += len(layer)
    net.op(layer, 256)
    return net.problem()


LITERATURE: dict[str, Callable[[], OrderProblem]] = {
    "RandWire WS(32), seed 0": lambda: randwire(32, 0),
    "RandWire WS(32), seed 1": lambda: randwire(32, 1),
    "RandWire WS(32), seed 2": lambda: randwire(32, 2),
    "RandWire by node, random sizes": lambda: randwire_nodes(32, 0),
    "RandWire WS(64)": lambda: randwire(64, 0),
    "RandWire, 3 stages of WS(32)": lambda: randwire(32, 0, stages=3),
    "NASNet-A normal cell": lambda: nasnet_cell(reduction=False),
    "NASNet-A reduction cell": lambda: nasnet_cell(reduction=True),
    "NASNet-A N=4": nasnet,
    "DARTS-V2 L=14": darts,
    "Inception-like": inception,
    "U-Net": unet,
    "UNet++": unet_nested,
    "DenseNet-121": densenet,
    "HRNet-like": hrnet,
    "RandWire WS(48)": lambda: randwire(48, 0),
}
STRESS: dict[str, Callable[[], OrderProblem]] = {
    "RandWire WS(96)": lambda: randwire(96, 0),
    "RandWire WS(128)": lambda: randwire(128, 0),
}
