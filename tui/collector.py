"""Keeps Python's garbage collector from looking through a large model again and again while keys are to be answered at once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = 0.001
"""Seconds after which a worker has to let the UI go on."""
_state = {"aside": False}


@contextmanager
def quiet_collector() -> Iterator[None]:
    """For as long as the UI runs, objects that stay are set aside, and threads take turns more often."""
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
    """Look no more at what there is now: a model and the answers about it stay until something else is opened."""
    if _state["aside"]:
        gc.freeze()


def free_dropped() -> None:
    """Free what was made since objects were last set aside and is no more needed."""
    if _state["aside"]:
        gc.collect()


def look_again() -> None:
    """A model was dropped: free it, and set the rest aside."""
    if _state["aside"]:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
