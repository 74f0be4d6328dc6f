"""A priority queue of requests to the worker, which processes one at a time; independent of Textual."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from irscope.errors import IrscopeError

NOW, SOON, LATER = 0, 10, 20


@dataclass(frozen=True)
class Request:
    """A request. `answer` runs in the worker's thread and touches no widget; `take` and `fail` run on the UI's thread."""

    key: str
    """Identifies the request: a queued one is not queued twice."""
    answer: Callable[[], Any]
    take: Callable[[Any], None]
    fail: Callable[[IrscopeError], None]
    urgency: int = SOON
    """The priority: smaller comes first; requests of one priority are processed in order."""


class Queue:
    """The queue, safe to use from any thread."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._waiting: dict[str, Request] = {}
        self._current: Request | None = None
        self._is_working = False
        self._is_closed = False

    def put(self, request: Request) -> bool:
        """Queue a request; True when a worker has to be started because there is none."""
        with self._lock:
            if self._is_closed or (self._current is not None and self._current.key == request.key):
                return False
            before = self._waiting.get(request.key)
            # Queued again, a request keeps its place unless its priority has risen.
            if before is None or request.urgency < before.urgency:
                self._waiting[request.key] = request
            else:
                self._waiting[request.key] = replace(request, urgency=before.urgency)
            start, self._is_working = not self._is_working, True
            return start

    def next(self) -> Request | None:
        """The next request for the worker; None when there is none and the worker has to end."""
        with self._lock:
            self._current = None
            if not self._is_closed:
                self._cancelled.clear()
            if self._is_closed or not self._waiting:
                self._is_working = False
                return None
            key = min(self._waiting, key=lambda one: self._waiting[one].urgency)
            self._current = self._waiting.pop(key)
            return self._current

    @property
    def current(self) -> str:
        """The key of the current request."""
        current = self._current
        return "" if current is None else current.key

    @property
    def is_idle(self) -> bool:
        """Whether the queue is empty and the worker idle."""
        return self._current is None and not self._waiting

    def is_asked(self, key: str) -> bool:
        """Whether a request is queued or being processed."""
        return key in self._waiting or self.current == key

    def stop(self, key: str) -> bool:
        """Cancel a request; True if it was there."""
        with self._lock:
            if self._waiting.pop(key, None) is not None:
                return True
            if self._current is not None and self._current.key == key:
                self._cancelled.set()
                return True
            return False

    def clear(self) -> list[Request]:
        """Clear the queue, returning its requests, and cancel the current one, which then fails."""
        with self._lock:
            dropped = list(self._waiting.values())
            self._waiting.clear()
            if self._current is not None:
                self._cancelled.set()
            return dropped

    def close(self) -> None:
        """Stop for good."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            self._cancelled.set()
