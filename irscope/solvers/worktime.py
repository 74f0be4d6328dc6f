"""Time limit of a search: in CPU seconds of its own thread, so that a busy machine makes it later and no worse."""

from __future__ import annotations

import time


class WorkTime:
    """A number of CPU seconds that run down while the thread that made it computes."""

    def __init__(self, seconds: float) -> None:
        self.began = time.thread_time()
        self._end = self.began + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 where more was used."""
        return self._end - time.thread_time()

    @property
    def used(self) -> float:
        """Seconds since the start."""
        return time.thread_time() - self.began

    def over(self) -> bool:
        """Return whether all of it is used."""
        return self.left < 0

    def part(self, share: float) -> WorkTime:
        """Return a share of what is left, which runs down with it."""
        return WorkTime(max(0.0, self.left) * share)
