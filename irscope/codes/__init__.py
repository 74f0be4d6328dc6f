"""Every diagnostic and error code, one record each: the source of `irscope explain` and docs/codes.md.

One module a range: 1xx reading a model, 2xx shapes, 3xx aliasing, memory, schedules and training,
4xx cost, weights, recordings and comparisons, 5xx passes, 6xx usage, 9xx irscope itself.
"""

from __future__ import annotations

from typing import Final

from irscope.codes import cost, memory, own, passes, reading, shapes, usage
from irscope.codes.record import CodeDoc

__all__ = ["CODES", "CodeDoc"]

CODES: Final[dict[str, CodeDoc]] = {
    **reading.CODES,
    **shapes.CODES,
    **memory.CODES,
    **cost.CODES,
    **passes.CODES,
    **usage.CODES,
    **own.CODES,
}
