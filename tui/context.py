"""What the numbers of all screens are for: sizes, the device, when tensors are freed, and which run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from irscope.devices import DeviceProfile, find_device
from irscope.devices.catalogue import DEFAULT_DEVICE
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.report.card import StatedSize
from irscope.report.cardtext import sizes_text
from irscope.report.printable import display_width
from irscope.report.units import Kind, humanise
from irscope.tools.config import DEFAULT
from irscope.tui.amounts import Binding

if TYPE_CHECKING:
    from irscope.passes.lifetimes.timeline import ShownRun
    from irscope.passes.memory.curve import LifetimeModel

Target: TypeAlias = "tuple[str, LifetimeModel, ShownRun]"
"""Parameters of memory besides sizes: the device, the lifetime model, and the run."""
LIFETIMES: Final[Mapping[LifetimeModel, str]] = {
    "auto": "auto: as the file's own runtime does it",
    "ssa": "ssa: a tensor is freed right after its last use",
    "eager": "eager: as Python's frames do it",
    "jit": "jit: as TorchScript's interpreter does it",
    "ort": "ort: as ONNX Runtime's planner does it",
    "xla": "xla: as XLA's CPU compiler packs what it does not fuse",
}
"""Lifetime models."""
RUNS: Final[Mapping[ShownRun, str]] = {
    "worst": "the run that needs more memory",
    "first": "first run: what libraries and the allocator take once is requested in it",
    "steady": "steady run: as every run after the first",
}
"""Which run of the model its memory is shown for."""
PUT_IN: Final = "put in"
"""Who stated a size that was typed in the UI."""
_BY_USER: Final = frozenset({PUT_IN, "--bind"})


@immutable(slots=False)
class Context:
    """One for all screens; each of them asks anew when it changes. `Session.change` changes it."""

    of_model: tuple[StatedSize, ...] = ()
    """The sizes of the model as it was opened, and who stated each."""
    binding: Binding = field(default_factory=Binding)
    """Sizes that were typed in place of symbols."""
    device: str = ""
    """As --device takes it; empty for the default."""
    chosen: str = ""
    """Why it is this one, where nobody named it."""
    lifetime: LifetimeModel = "auto"
    run: ShownRun = "worst"

    @cached_property
    def sizes(self) -> tuple[StatedSize, ...]:
        """Return every size that the numbers are for, and who stated it."""
        env = self.binding.env
        return tuple(replace(one, size=env[one.symbol], source=PUT_IN) if one.symbol in env else one for one in self.of_model)

    @cached_property
    def complete(self) -> Binding:
        """Return a number for every symbol of the model: what was typed, else the file's example, else the smallest. For what needs
        numbers."""
        return self.completed(self.binding)

    def completed(self, binding: Binding) -> Binding:
        """Return the same with other sizes typed."""
        env = binding.env
        open_sizes = {one.symbol: env.get(one.symbol, one.size) for one in self.of_model if one.is_open or one.symbol in env}
        return binding if open_sizes == env else Binding({**open_sizes, **env})

    def like(self, other: Context) -> Context:
        """Return the same as another that belonged to the same model, as far as it has its symbols."""
        names = {one.symbol for one in self.of_model if one.is_open}
        kept = {name: size for name, size in other.binding.env.items() if name in names}
        return replace(other, of_model=self.of_model, binding=Binding(kept))

    def with_target(self, device: str | None = None, lifetime: LifetimeModel | None = None, run: ShownRun | None = None) -> Context:
        """Return the same for another device, lifetime model or run."""
        return replace(
            self,
            device=self.device if device is None else device,
            chosen=self.chosen if device is None else "",
            lifetime=lifetime or self.lifetime,
            run=run or self.run,
        )

    @property
    def assumed(self) -> str:
        """Return the sizes that nobody stated, as `batch=1, length=1`; empty where there are none."""
        return ", ".join(f"{one.symbol}={one.size}" for one in self.sizes if one.is_open)

    @property
    def typed(self) -> str:
        """Return the sizes that a user has stated, as they are typed: on the command line and in the UI."""
        return " ".join(f"{one.symbol}={one.size}" for one in self.sizes if one.source in _BY_USER)

    @property
    def profile(self) -> DeviceProfile | None:
        """Return the device, with its memory; None where its file is gone."""
        try:
            return find_device(self.device or DEFAULT_DEVICE)
        except UsageError:
            return None

    @property
    def liveness(self) -> str:
        """Return the pass that answers for when tensors are freed and for the run."""
        options = [f"model={self.lifetime}"] if self.lifetime != "auto" else []
        options += [f"run={self.run}"] if self.run != "worst" else []
        return f"liveness{{{' '.join(options)}}}" if options else "liveness"

    @property
    def target(self) -> Target:
        """Return the parameters of memory besides sizes."""
        return self.device, self.lifetime, self.run

    def words(self, width: int, apart: int = 3) -> list[str]:
        """Return the context for the header in so many columns: sizes with who stated them, the device with its memory, lifetimes, and the
        run.

        Where the room is short, words that say least go first: who chose the device, and what an exporter calls a size. Then sizes go, from
        the last; how many is said. Nothing is cut within a word.
        """
        found: list[str] = []
        for sizes, is_brief in self._forms():
            found = [*([sizes] if sizes else []), *self._target_words(is_brief)]
            if sum(map(display_width, found)) + apart * len(found) <= width:
                break
        return found

    def _forms(self) -> Iterator[tuple[str, bool]]:
        """Yield the sizes as text and whether the rest is to be brief, the longest first."""
        sizes = self.sizes
        yield sizes_text(sizes, _BY_USER), False
        yield sizes_text(sizes, _BY_USER), True
        sizes = tuple(replace(one, role="", symbol=one.short or one.symbol, short="") for one in sizes)
        for shown in range(len(sizes), 0, -1):
            more = f" +{len(sizes) - shown} more (c)" if shown < len(sizes) else ""
            yield f"{sizes_text(sizes[:shown], _BY_USER)}{more}", True

    def _target_words(self, is_brief: bool) -> Iterator[str]:
        profile = self.profile
        if profile is not None:
            is_default = not is_brief and (not self.device or self.chosen == DEFAULT)
            yield f"{device_text(profile)}{' (default)' if is_default else ''}"
        if self.lifetime != "auto":
            yield f"{self.lifetime} lifetimes"
        if self.run != "worst":
            yield f"{self.run} run"


def device_text(profile: DeviceProfile) -> str:
    """Return a device with its memory."""
    return profile.name if profile.memory_bytes is None else f"{profile.name} {humanise(profile.memory_bytes, Kind.BYTES)}"
