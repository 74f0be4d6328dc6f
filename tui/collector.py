"""Keeps Python's garbage collector from repeated full passes over a large model, which would delay the handling of keys."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = 0.001
"""The interpreter's switch interval, in seconds, so that the worker yields to the UI."""
_state = {"aside": False}


@contextmanager
def quiet_collector() -> Iterator[None]:
    """While the UI runs, long-lived objects are frozen (gc.freeze), and threads switch more often."""
    before = sys.getswitchinterval()
    _state["aside"] = True
    set_aside()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        _state["aside"] = False
        sys.setswitchinterval(before)
        gc.unfreeze()


def set_aside() -> None:
    """Freeze all present objects: a model and its results stay until another is opened."""
    if _state["aside"]:
        gc.freeze()


def free_dropped() -> None:
    """Collect garbage among objects created since the last freeze."""
    if _state["aside"]:
        gc.collect()


def look_again() -> None:
    """A model was dropped: collect it, and freeze the rest."""
    if _state["aside"]:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
