"""Every diagnostic and error code. codes.json has their texts: what `irscope explain` prints and docs/codes.md shows.

1xx reading a model, 2xx shapes, 3xx aliasing, memory, schedules and training, 4xx cost, weights, recordings and comparisons, 5xx passes,
6xx usage, 9xx irscope itself.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from typing import Final

from irscope.immutable import immutable


@immutable
class CodeDoc:
    """The meaning of a code, and what its reader can do about it."""

    title: str
    text: str


def _read() -> dict[str, CodeDoc]:
    data = pkgutil.get_data("irscope", "codes.json")
    assert data is not None
    return {code: CodeDoc(**texts) for code, texts in json.loads(data).items()}


CODES: Final[Mapping[str, CodeDoc]] = _read()
"""In order."""
