"""A session of ONNX Runtime on a GPU beside its plan: where kernels run, what lies in its arena, and what is not certain of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field

from irscope.devices.profile import DeviceProfile
from irscope.immutable import mutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Role
from irscope.passes.ort.plan import Launch
from irscope.passes.ort.simulated import OrtFigures
from irscope.report.values import Provenance, Quantity, derived, largest


@mutable(slots=True)
class CudaSession:
    """Memory of a session on the GPU besides the plan."""

    kernels: int
    """Kernels on the GPU."""
    on_cpu: list[Launch]
    copies: int
    host_weights: int
    """Bytes of weights on the CPU."""
    device: DeviceProfile
    limit: int | None
    """gpu_mem_limit"""
    resident: dict[str, Dim | None] = field(default_factory=dict)
    """Bytes of weights and inputs in the GPU's arena, by role."""
    declared: dict[str, list[str]] = field(default_factory=dict)
    """Their names."""
    find_host: Callable[[], OrtFigures | None] = lambda: None
    """Simulates the arena of the CPU."""
    find_ends: Callable[[], list[OrtFigures]] = list
    """Simulates the GPU's arena in other cases that are possible: weights loaded in other orders, and the most that kernels may take."""
    open_: str = ""
    """Why there is no upper end."""
    why: str = ""
    """Why there is an interval."""
    scratch: Quantity = field(default_factory=lambda: Quantity(0))
    """The most that a kernel takes while it runs."""
    shortage: str = ""
    """Description of what does not fit, where something does not."""
    _ends: list[OrtFigures] | None = field(default=None, init=False)
    _host: OrtFigures | None = field(default=None, init=False)

    @property
    def ends(self) -> list[OrtFigures]:
        """Return the other cases; simulated when somebody first asks."""
        if self._ends is None:
            self._ends = self.find_ends()
        return self._ends

    @property
    def host(self) -> OrtFigures | None:
        """Return the arena of the CPU; simulated when somebody first asks."""
        if self._host is None:
            self._host = self.find_host()
        return self._host

    @property
    def weights(self) -> int:
        """Bytes of weights on the GPU."""
        return sum(size for role, size in self.resident.items() if role != Role.INPUT.value and isinstance(size, int))

    @property
    def room(self) -> int | None:
        """Return the most that the arena may take."""
        bounds = [bound for bound in (self.limit, self.device.room_bytes) if bound is not None]
        return min(bounds, default=None)

    def predicted(self, figures: OrtFigures, counter: str) -> int:
        """Return the value of that, without the cases that are possible besides."""
        return max(_counter(figures, "cold", counter), _counter(figures, "warm", counter))

    def worst(self, figures: OrtFigures, counter: str) -> Quantity:
        """Return the larger peak of both runs."""
        return largest([self.counter(figures, "cold", counter), self.counter(figures, "warm", counter)])

    def fits(self, figures: OrtFigures) -> Quantity:
        """Return whether the arena finds room; modelled where that differs within what is possible."""
        reserved, room = self.worst(figures, "reserved"), self.room
        low, high = reserved.ends
        is_sure = (
            room is None or (self.shortage and low is not None and low > room) or (not self.shortage and high is not None and high <= room)
        )
        return Quantity(not self.shortage) if is_sure else derived(not self.shortage, reserved)

    def counter(self, figures: OrtFigures, moment: str, counter: str) -> Quantity:
        """Return one counter of the GPU's arena: exact as asked for, else within what the order of loading and cuDNN may make of it."""
        value = _counter(figures, moment, counter)
        if counter == "requested":
            return Quantity(value)
        found = [value, *(_counter(end, moment, counter) for end in self.ends)]
        if self.open_ and moment != "before":
            return Quantity(value, Provenance.MODELLED, note=self.open_, lo=min(found))
        if min(found) == max(found):
            return Quantity(value)
        return Quantity(value, Provenance.MODELLED, note=self.why, lo=min(found), hi=max(found))

    @property
    def operators_on_cpu(self) -> str:
        """Operators that run on the CPU, the most frequent first, with how often."""
        counts = Counter(launch.name for launch in self.on_cpu)
        return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.most_common())


def _counter(figures: OrtFigures, moment: str, counter: str) -> int:
    at = figures.before if moment == "before" else getattr(figures, moment).peak
    return int(getattr(at, counter))
