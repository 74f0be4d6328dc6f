"""Captures of live models beside recordings: `python -m tests.tools.oracle.capture` prints the table of 33 recorded models.

`--further` takes the 53 models that were recorded later, `--zoo` captures every model of torchvision and of the transformers package.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from irscope.errors import IrscopeError
from irscope.frontends.eager.record import Op, Tensor
from irscope.frontends.eager.values import Values
from irscope.passes.inference.shapes import Shapes
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.session import Model, capture_model
from tests.tools.oracle.eager_cuda import COUNTERS, MOMENTS, Case, asked, built, cases, errors, further_cases
from tests.tools.zoo.models import catalogue

SECONDS = 60
"""After which the capture of one model is given up."""


@dataclass(frozen=True)
class Captured:
    """One recorded model, captured."""

    case: Case
    memory: DeviceMemory
    seconds: float
    """Of processor time."""

    @property
    def events(self) -> list[int]:
        """Requests of the first forward in order: bytes requested, and bytes given back below zero."""
        return asked(self.memory)

    @property
    def differs_at(self) -> int | None:
        """The first event that was recorded otherwise, where events were recorded."""
        recorded = self.case.recorded.get("events", self.events)
        place = next((place for place, (ours, theirs) in enumerate(zip(self.events, recorded, strict=False)) if ours != theirs), None)
        return place if place is not None or len(self.events) == len(recorded) else min(len(self.events), len(recorded))


@contextmanager
def reads_give_zeros() -> Iterator[None]:
    """Whatever a model reads from the device is zero: the recordings were made on a device that computes nothing."""

    def zero(values: Values, op: Op) -> Any:
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            return op.func(*[_zeros(item) for item in op.args])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Values, "result", zero)
        yield


def _zeros(item: Any) -> Any:
    if not isinstance(item, Tensor):
        return item
    return torch.zeros(item.shape, dtype=torch.bool if item.dtype.text == "bool" else torch.int64)


def captured(case: Case) -> Captured:
    """Capture a recorded model on a pretended H200."""
    model, args, kwargs = built(case.spec)
    start = time.process_time()
    with reads_give_zeros():
        made = capture_model(model, args, kwargs, device="h200")
    seconds = time.process_time() - start
    return Captured(case, made.manager.get(CudaMemory()), seconds)


def _print_recorded(shown: tuple[Case, ...]) -> None:
    print("| model | seconds | events | largest error: requested | allocated | reserved |")
    print("|---|---:|---|---:|---:|---:|")
    streams = [case for case in shown if "events" in case.recorded]
    equal, off = 0, dict.fromkeys(COUNTERS, 0)
    for case in shown:
        one = captured(case)
        found = errors(case, one.memory)
        worst = {counter: max((found[moment, counter] for moment in MOMENTS), key=abs) for counter in COUNTERS}
        at = one.differs_at
        equal += case in streams and at is None
        for counter in COUNTERS:
            off[counter] += abs(worst[counter]) > 0.005
        events = f"{len(one.events)} equal" if at is None else f"differs at {at} of {len(case.recorded['events'])}"
        if case not in streams:
            events = "not recorded"
        cells = ["exact" if worst[counter] == 0 else f"{worst[counter]:+.3%}" for counter in COUNTERS]
        print(f"| {case.name} | {one.seconds:.1f} | {events} | {' | '.join(cells)} |", flush=True)
        gc.collect()
    print(f"\n{equal} of {len(streams)} recorded streams equal; more than 0.5 % off: {off}")


@dataclass(frozen=True)
class Attempt:
    """One model of the zoo, captured."""

    name: str
    package: str
    seconds: float
    model: Model | None
    refused: str = ""

    @property
    def problems(self) -> list[str]:
        """Nodes for which the rules of shapes failed, or say something else than what ran."""
        if self.model is None:
            return []
        found = self.model.manager.get(Shapes)
        return [f"{problem.node.name}: {problem.text}" for problem in found.problems]


def attempt(name: str) -> Attempt:
    """Capture a model of the zoo; a failure is an answer too."""
    entry = catalogue()[name]
    module, args = entry.make(), entry.inputs(entry.batch)
    start = time.process_time()
    try:
        with _given_up():
            model = capture_model(module, args)
    except (IrscopeError, TimeoutError) as error:
        return Attempt(name, entry.package, time.process_time() - start, None, str(error))
    return Attempt(name, entry.package, time.process_time() - start, model)


@contextmanager
def _given_up() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _print_zoo() -> None:
    found: dict[str, list[Attempt]] = {}
    for name in catalogue():
        one = attempt(name)
        found.setdefault(one.package, []).append(one)
        if one.refused or one.problems or one.seconds > 5:
            print(f"{name}: {one.seconds:.1f} s {one.refused} {' '.join(one.problems)}", flush=True)
        gc.collect()
    for package, tried in found.items():
        done = [one for one in tried if not one.refused]
        slowest = max(tried, key=lambda one: one.seconds)
        print(f"{package}: {len(done)} of {len(tried)} captured, the slowest {slowest.name} in {slowest.seconds:.1f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--zoo" in sys.argv:
        _print_zoo()
    else:
        _print_recorded(further_cases() if "--further" in sys.argv else cases())
