"""Where operands come from: a cache that still holds them, or main memory.

A model runs again and again. What it reads was last touched some bytes ago: by the node that made it, or, for a weight, in the run
before. The smallest level that holds all that was touched since then is the one it can come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.devices.profile import DeviceProfile
from irscope.ir.graph import Node, Value

Size = Callable[[Value], int]


class Reuse:
    """Follows a run over the storages of a model and says at which rate each operand can be had."""

    def __init__(self, device: DeviceProfile, storage: Callable[[Value], Value], size: Size, whole: int) -> None:
        self.device = device
        self.storage = storage
        self.size = size
        self.whole = whole
        """Bytes of all storages that a run touches."""
        self._touched = 0
        self._last: dict[Value, int] = {}

    def read_seconds(self, node: Node, amount: int) -> float | None:
        """The least time to read so many bytes of a node's operands; None where the device's bandwidth is unknown."""
        operands = [self.storage(value) for value in dict.fromkeys(node.inputs) if value is not None]
        sizes = [self.size(value) for value in operands]
        together = sum(sizes)
        if not together:
            return self._seconds(amount, self.whole)
        total = 0.0
        for operand, size in zip(operands, sizes, strict=True):
            seconds = self._seconds(amount * size / together, self._distance(operand) + size)
            if seconds is None:
                return None
            total += seconds
        return total

    def write_seconds(self, node: Node, amount: int) -> float | None:
        """The least time to write so many bytes of results, into memory that was just freed."""
        return self._seconds(amount, amount)

    def touch(self, node: Node) -> None:
        """Note that a node has run."""
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                storage = self.storage(value)
                if storage not in self._last:
                    self._touched += self.size(storage)
                self._last[storage] = self._touched

    def _distance(self, storage: Value) -> int:
        last = self._last.get(storage)
        return self.whole if last is None else self._touched - last

    def _seconds(self, amount: float, working_set: float) -> float | None:
        for level in self.device.levels:
            if level.size is not None and working_set <= level.size:
                return amount / level.bandwidth.hi
        bandwidth = self.device.bandwidth
        return None if bandwidth is None else amount / bandwidth.hi


def total_size(nodes: Sequence[Node], storage: Callable[[Value], Value], size: Size) -> int:
    """Bytes of every storage that the nodes touch, each once."""
    touched = {storage(value): None for node in nodes for value in (*node.inputs, *node.outputs) if value is not None}
    return sum(map(size, touched))
