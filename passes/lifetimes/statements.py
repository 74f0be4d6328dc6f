"""Variables that source statements bind, read from one line of Python as stack traces keep it."""

from __future__ import annotations

import re
from functools import lru_cache

_TARGETS = re.compile(
    r"^(?P<targets>\(?\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*(?:\s*,\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*)*\s*,?\s*\)?)"
    r"\s*(?::\s*[^=]+?)?\s*(?P<operator>[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)"
)
_LONGEST = 500
_ITEM = re.compile(r"""^[rbuf]?(?P<key>"[^"]*"|'[^']*')\s*:""")


@lru_cache(maxsize=65536)
def targets_of(statement: str) -> tuple[str, ...]:
    """Names that a statement binds, in order; empty where it binds none or its first line is not what is kept."""
    statement = statement[:_LONGEST]
    item = _ITEM.match(statement)
    if item is not None:
        return (item["key"],)
    found = _TARGETS.match(statement)
    if found is None or not statement[: found.start("operator") if found["operator"] else found.end() - 1][-1:].isspace():
        # Without a space it is an argument of a call that goes over several lines.
        return ()
    names = [name.strip().lstrip("*") for name in found["targets"].strip("() ").split(",")]
    return tuple(name for name in names if name)
