"""How much work and memory a model file may cost while it is read: one budget for the whole load, shared by every reader.

A file is hostile until proven otherwise. Whatever it can repeat, nest or multiply calls `spend` with the work it is about to do, and
`claim` with the memory it is about to take; both do nothing where no budget is in force. Honest files stay far below:
docs/security.md has figures of the samples and of generated graphs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import ClassVar, Final

from irscope.errors import LoadError
from irscope.immutable import immutable

DEFAULT_SECONDS: Final = 10.0
"""CPU seconds for a file whose structure is small."""
SECONDS_PER_MEGABYTE: Final = 4.0
"""More for each megabyte of structure (text, JSON, messages; not weights): an ONNX graph of 100,050 nodes takes 0.12."""
DEFAULT_BYTES: Final = 500_000_000
"""Memory beyond ten times the file's size."""
BYTES_PER_FILE_BYTE: Final = 10
FOLDER_SECONDS: Final = 40.0
"""CPU seconds for a model that an installed package makes of a folder's configuration and that runs without data."""
FOLDER_BYTES: Final = 3_000_000_000
FEWER_LAYERS: Final = "correct its number of layers, or set it: {num_hidden_layers=32}"
_MORE: Final = "--budget 60s,4GB allows more"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
BETWEEN_LOOKS: Final = 20_000
"""Units of work, each about a microsecond, between two looks at the clock and at memory."""


@immutable
class Allowance:
    """Limits that a user sets; None stands for the default."""

    seconds: float | None = None
    bytes: int | None = None


class OverBudget(LoadError):
    """The file needs more work or memory than a model has any use for."""

    default_code: ClassVar[str] = "IRS106"


class Budget:
    """The rest of an allowance for one load."""

    def __init__(self, where: str, file_bytes: int, allowance: Allowance, hint: str) -> None:
        self._where = where
        self._hint = hint
        self._seconds = DEFAULT_SECONDS if allowance.seconds is None else allowance.seconds
        self._grows = allowance.seconds is None
        self._bytes = DEFAULT_BYTES + BYTES_PER_FILE_BYTE * file_bytes if allowance.bytes is None else allowance.bytes
        self._started = time.thread_time()
        self._resident = resident_bytes()
        self._until_look = BETWEEN_LOOKS

    @property
    def used_share(self) -> float:
        """The larger of the shares of time and of memory that were used."""
        seconds, taken = self._used()
        return max(seconds / self._seconds, taken / self._bytes)

    def admit(self, structure_bytes: int) -> None:
        """More time for more structure that is about to be read."""
        if self._grows:
            self._seconds += structure_bytes * SECONDS_PER_MEGABYTE / 1e6

    def spend(self, work: int, what: str) -> None:
        """Count work; OverBudget where too much time or memory is gone."""
        self._until_look -= work
        if self._until_look < 0:
            self._until_look = BETWEEN_LOOKS
            seconds, taken = self._used()
            if seconds > self._seconds:
                raise self._over(f"takes more than {self._seconds:.3g} CPU s", what)
            if taken > self._bytes:
                raise self._over(f"takes more than {self._bytes / 1e6:,.0f} MB", what)

    def claim(self, count: int, what: str) -> None:
        """Refuse bytes that are not there to be had, before they are taken."""
        if count > self._bytes:
            raise self._over(f"would take {count / 1e6:,.0f} MB", what)
        self.spend(count >> 6, what)

    def _used(self) -> tuple[float, int]:
        return time.thread_time() - self._started, resident_bytes() - self._resident

    def _over(self, how_much: str, what: str) -> OverBudget:
        return OverBudget(f"reading it {how_much}: {what}", where=self._where, hint=self._hint)


_BUDGET: ContextVar[Budget | None] = ContextVar("irscope budget", default=None)


_TELL: ContextVar[Callable[[str], None] | None] = ContextVar("irscope stage", default=None)


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Have the stages of a load told to a function."""
    token = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(token)


def stage(what: str) -> None:
    """Say what a load does now, to whoever shows it: compiling may take a minute."""
    tell = _TELL.get()
    if tell is not None:
        tell(what)


@contextmanager
def reading(where: str, file_bytes: int, allowance: Allowance | None = None, hint: str = "") -> Iterator[Budget]:
    """Put a budget in force for what is read in the block."""
    hint = hint or f"the file is damaged or hostile; if you know where it comes from, {_MORE}"
    made = Budget(where, file_bytes, allowance or Allowance(), hint)
    token = _BUDGET.set(made)
    try:
        yield made
    finally:
        _BUDGET.reset(token)


def making(folder: str, allowance: Allowance | None = None) -> AbstractContextManager[object]:
    """Put a budget in force, where none is, for a model that a folder's configuration describes; only with an allowance an option raises
    it."""
    if _BUDGET.get() is not None or not os.path.isdir(folder):
        return nullcontext()
    given = allowance or Allowance()
    hint = FEWER_LAYERS if allowance is None else f"{FEWER_LAYERS}; {_MORE}"
    return reading(folder, 0, Allowance(given.seconds or FOLDER_SECONDS, given.bytes or FOLDER_BYTES), hint)


def admit(structure_bytes: int) -> None:
    """Tell the budget in force how much structure is about to be read."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.admit(structure_bytes)


def spend(work: int, what: str) -> None:
    """Count work, in microseconds or so, against the budget in force; `what` names the construct that takes it."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.spend(work, what)


def claim(count: int, what: str) -> None:
    """Ask the budget in force for bytes that are about to be taken."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.claim(count, what)


def resident_bytes() -> int:
    """Return the memory that this process has in use, as far as the system tells; elsewhere the most that it had."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
