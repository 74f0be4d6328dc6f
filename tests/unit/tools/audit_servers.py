"""What processes of an audit could do wrong: each function stands in for `serve`, and misbehaves at an item that is named so."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from irscope.tools.audit.worker import Found, Setup, failure, limit_next


def misbehaving(pipe: Connection[Any, Any], setup: Setup) -> None:
    """Answers for every item, but does what the item's name says: abort, hang, hog, spin, die, die-once:FILE."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            _, items = pipe.recv()
            for number, item in enumerate(items):
                pipe.send(("begin", number))
                limit_next(item, setup)
                try:
                    _misbehave(item.uri)
                    pipe.send(("done", number, Found({"status": "ok", "reason": None})))
                except MemoryError:
                    pipe.send(("done", number, failure("memory", "", "")))


def _misbehave(what: str) -> None:
    if what == "abort":
        os.abort()
    elif what == "hang":
        time.sleep(600)
    elif what == "hog":
        [bytearray(1 << 28) for _ in range(64)]
    elif what == "spin":
        while True:
            pass
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what.startswith("die-once:"):
        mark = Path(what.partition(":")[2])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
