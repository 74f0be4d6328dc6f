"""What a piece of code opens, and a stop for code that does not end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_active: list[list[str]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _active and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _active[-1].append(os.path.realpath(os.fsdecode(arguments[0])))


# Hooks stay until the process ends, so there is one, and it listens only while somebody watches.
sys.addaudithook(_hook)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Real paths of the files that are opened inside, whatever Python function opens them."""
    paths: list[str] = []
    _active.append(paths)
    try:
        yield paths
    finally:
        _active.pop()


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in code that computes for longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {seconds} CPU seconds")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
