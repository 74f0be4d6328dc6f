"""Engines that run an audit: processes with limits on this machine, or the same processes held by a cluster's actors.

No engine schedules by itself: batches are given out while there is room, and come back as they are done."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.processes import Pipe, Worker
from irscope.tools.audit.sources import Item
from irscope.tools.audit.worker import Found, Setup, failure, serve

Answer: TypeAlias = "str | Found"
"""Of the tasks "key" and "analyse"."""

ENGINES: Final = ("local", "ray")
_MOST_JOBS: Final = 512
_MODELS_PER_PROCESS: Final = 400
"""After so many a process is replaced by a fresh one: what models leave in memory goes with it."""
_PATIENCE, _GRACE = 4.0, 30.0
"""A model may take so many times its CPU time on the clock, and so many seconds more: a busy machine is not the model's fault."""
_TRIES: Final = 3
"""Number of attempts at a model whose process was killed from outside, which says nothing of the model."""
_PER_ACTOR: Final = 2
"""Batches that an actor of a cluster has at once: the second is there when the first is done."""
_TRIES_OF_BATCH: Final = 5
"""Most tries of a batch whose machine is gone."""
_PRELOADED: Final = ("irscope.tools.audit.worker", "irscope.frontends.onnx")
"""Modules that processes have imported before they begin, where the system can copy a process that has."""
_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)


@immutable
class Batch:
    """Models that go to one process together."""

    task: str
    """key or analyse."""
    items: tuple[Item, ...]


@dataclass(slots=True)
class Slot:
    """One process that models are given to, with what to do when it dies, hangs, or takes too much."""

    setup: Setup
    target: Callable[[Pipe, Setup], None] = serve
    """Function that the process runs."""
    now: tuple[str, float] | None = None
    """The model that is being looked at, and since when: for whoever shows progress."""
    deaths: int = 0
    _process: Worker | None = None
    _done: int = 0

    def run(self, batch: Batch) -> list[Answer]:
        """Return what was found about each item of a batch, in its order."""
        answers: dict[int, Answer] = {}
        tries: dict[int, int] = {}
        while len(answers) < len(batch.items):
            left = [number for number in range(len(batch.items)) if number not in answers]
            at = self._run_some(batch, left, answers)
            if at is None:
                continue
            # Its process died while it was looked at.
            tries[at] = tries.get(at, 0) + 1
            reason, found = self._death(batch.items[at])
            if reason != "killed" or tries[at] >= _TRIES:
                answers[at] = "" if batch.task == "key" else found
        self.now = None
        self._done += len(batch.items)
        if self._done >= _MODELS_PER_PROCESS:
            self.close()
        return [answers[number] for number in range(len(batch.items))]

    def _run_some(self, batch: Batch, left: list[int], answers: dict[int, Answer]) -> int | None:
        """Give items to the process and take its answers until all are there; else the item that it died with."""
        pipe = self._started()
        at = left[0]
        try:
            pipe.send((batch.task, [batch.items[number] for number in left]))
            for _ in range(2 * len(left)):
                if not pipe.poll(self._seconds_left()):
                    self.close(0)
                    answers[at] = "" if batch.task == "key" else self._late()
                    return None
                kind, *rest = pipe.recv()
                at = left[rest[0]]
                if kind == "begin":
                    self.now = (batch.items[at].uri, time.monotonic())
                else:
                    answers[at] = rest[1]
                    self.now = None
        except (EOFError, OSError):
            return at if at not in answers else next(number for number in left if number not in answers)
        return None

    def _seconds_left(self) -> float:
        since = time.monotonic() if self.now is None else self.now[1]
        return max(0.1, since + _GRACE + _PATIENCE * self.setup.seconds - time.monotonic())

    def _late(self) -> Found:
        self.now = None
        return failure("time", "IRS723", f"was not done after {_GRACE + _PATIENCE * self.setup.seconds:.0f} s on the clock")

    def _death(self, item: Item) -> tuple[str, Found]:
        """Return the reason why the process ended, and the entry for the model it was at."""
        self.deaths += 1
        process, self._process = self._process, None
        self.now, self._done = None, 0
        code = 0 if process is None else process.end(5)
        if code == -getattr(signal, "SIGXCPU", 24):
            return "time", failure("time", "IRS723", f"takes more than the {self.setup.seconds:g} s of CPU time that one model may")
        name = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else f"exit code {code}"
        if -code in _FROM_OUTSIDE:
            return "killed", failure(
                "killed", "IRS723", f"its process was killed {_TRIES} times ({name}), by the system for want of memory or by somebody"
            )
        return "crash", failure("crash", "IRS723", f"its process ended ({name})")

    def _started(self) -> Pipe:
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = Worker(self.target, self.setup, "irscope-audit", _PRELOADED)
        return self._process.pipe

    def close(self, patience: float = 2) -> None:
        """End the process, which may have so many seconds for it when it is idle."""
        if self._process is not None:
            self._process.end(patience)
        self._process, self._done = None, 0


# -- engines -----------------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """A place where batches run."""

    name: str
    slots: int
    """Batches that run at once."""

    def submit(self, batch: Batch) -> None:
        """Give out a batch."""

    def completed(self, seconds: float) -> list[tuple[Batch, list[Answer]]]:
        """Batches that are done, waiting for one at most so long."""

    def running(self) -> list[tuple[str, float]]:
        """Models that are looked at now, each with the seconds since it was begun, as far as that is known."""

    def close(self) -> None:
        """Stop, now."""


def make_engine(name: str, setup: Setup, jobs: int, address: str = "") -> Engine:
    """Return the engine of a name; UsageError where it is none or cannot be had."""
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"--jobs is 1 to {_MOST_JOBS}", code="IRS721")
    if name == "local":
        return LocalEngine(setup, jobs)
    if name == "ray":
        return RayEngine(setup, jobs, address)
    raise UsageError(f"there is no engine {name!r}", code="IRS721", hint=f"engines: {', '.join(ENGINES)}")


@dataclass
class LocalEngine:
    """Processes of this machine, each watched by a thread."""

    setup: Setup
    slots: int
    name: str = "local"
    _pending: dict[Future[list[Answer]], Batch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = [Slot(self.setup) for _ in range(self.slots)]
        self._free = list(self._slots)
        self._threads = ThreadPoolExecutor(self.slots, "audit")

    def submit(self, batch: Batch) -> None:
        self._pending[self._threads.submit(self._run, batch)] = batch

    def _run(self, batch: Batch) -> list[Answer]:
        slot = self._free.pop()
        try:
            return slot.run(batch)
        finally:
            self._free.append(slot)

    def completed(self, seconds: float) -> list[tuple[Batch, list[Answer]]]:
        done, _ = wait(self._pending, timeout=seconds, return_when=FIRST_COMPLETED)
        return [(self._pending.pop(one), one.result()) for one in done]

    def running(self) -> list[tuple[str, float]]:
        now = time.monotonic()
        return [(found[0], now - found[1]) for slot in self._slots if (found := slot.now) is not None]

    def close(self) -> None:
        for waiting in self._pending:
            waiting.cancel()
        for slot in self._slots:
            with suppress(OSError, ValueError):
                slot.close(0)
        self._threads.shutdown(wait=False, cancel_futures=True)


class RayEngine:
    """Actors of a Ray cluster, each with one process of its own, so that limits hold and a crash costs the actor nothing.

    With an address an existing cluster is used, else one is started on this machine and ended again. Files are read where the actors are.
    """

    name = "ray"

    def __init__(self, setup: Setup, jobs: int, address: str) -> None:
        try:
            self._ray: Any = import_module("ray")
        except ImportError as error:
            raise UsageError("the engine needs Ray", code="IRS721", hint="pip install ray pyarrow fsspec") from error
        self.setup = setup
        self.slots = jobs
        self._owns = not self._ray.is_initialized()
        if self._owns:
            try:
                # Its own lines would stand between those of the progress.
                self._ray.init(
                    address=address or "local",
                    num_cpus=None if address else jobs,
                    log_to_driver=False,
                    include_dashboard=False,
                    logging_level="error",
                )
            except Exception as error:  # of its own kinds, and of the network's
                said = str(error).strip().partition("\n")[0]
                raise UsageError(f"Ray cannot be reached: {said}", code="IRS721", where=address) from error
        self._remote = self._ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._starting: dict[Any, Any] = {}
        """Actors that the cluster has no room for yet, by what says that one is there."""
        self._loads: dict[Any, int] = {}
        """Actors that are there, with how many batches each has."""
        self._queue: deque[tuple[Batch, int]] = deque()
        self._pending: dict[Any, tuple[Batch, Any, int]] = {}
        """Batches that actors have, and how often each was given out."""
        self._since: dict[Any, float] = {}
        for _ in range(jobs):
            self._start()

    def _start(self) -> None:
        actor = self._remote.remote(self.setup)
        self._starting[actor.is_there.remote()] = actor

    def submit(self, batch: Batch) -> None:
        self._queue.append((batch, 1))
        self._give_out()

    def _give_out(self) -> None:
        """Give waiting batches to the actors with the fewest; one that is not there yet gets none, since it may never be."""
        while self._queue and self._loads:
            actor = min(self._loads, key=lambda load: self._loads[load])
            if self._loads[actor] >= _PER_ACTOR:
                return
            batch, tries = self._queue.popleft()
            reference = actor.run.remote(batch)
            self._loads[actor] += 1
            self._pending[reference] = (batch, actor, tries)
            self._since[reference] = time.monotonic()

    def completed(self, seconds: float) -> list[tuple[Batch, list[Answer]]]:
        waited = [*self._pending, *self._starting]
        ready, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(waited, num_returns=1, timeout=seconds)
        found: list[tuple[Batch, list[Answer]]] = []
        for reference in ready:
            if reference in self._starting:
                self._there(reference)
            elif (answers := self._answers(reference)) is not None:
                found.append(answers)
        self._give_out()
        return found

    def _there(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        with suppress(self._ray.exceptions.RayError):  # its machine went before it came
            self._ray.get(reference)
            self._loads[actor] = 0
            return
        self._start()

    def _answers(self, reference: Any) -> tuple[Batch, list[Answer]] | None:
        """Return what came of a batch; None where its machine is gone, which says nothing of the models: it is given out again."""
        batch, actor, tries = self._pending.pop(reference)
        del self._since[reference]
        try:
            answers: list[Answer] = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            if self._loads.pop(actor, None) is not None:
                self._start()
            if tries < _TRIES_OF_BATCH:
                self._queue.appendleft((batch, tries + 1))
                return None
            said = str(error).strip().partition("\n")[0]
            lost = failure("engine", "IRS723", f"its machine was lost {tries} times: {said}")
            return batch, ["" if batch.task == "key" else lost for _ in batch.items]
        if actor in self._loads:
            self._loads[actor] -= 1
        return batch, answers

    def running(self) -> list[tuple[str, float]]:
        now = time.monotonic()
        return [(self._pending[one][0].items[0].uri, now - since) for one, since in self._since.items()]

    def close(self) -> None:
        if self._owns:
            with suppress(Exception):
                self._ray.shutdown()


class _Actor:
    """Lives in a worker of Ray's."""

    def __init__(self, setup: Setup) -> None:
        self._slot = Slot(setup)

    def is_there(self) -> bool:
        """Answers as soon as the cluster has given it a place."""
        return True

    def run(self, batch: Batch) -> list[Answer]:
        return self._slot.run(batch)


def default_jobs() -> int:
    """Processors that this process may use."""
    found: Sequence[int] | set[int] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return max(1, len(found))
