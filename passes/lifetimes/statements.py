"""Variables that source statements bind, read from one line of Python as stack traces keep it."""

from __future__ import annotations

import re
from functools import lru_cache

_TARGETS = re.compile(
    r"^(?P<targets>\(?\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*(?:\s*,\s*[*A-Za-z_][\w.]*(?:\[[^\]=]*\])*)*\s*,?\s*\)?)"
    r"\s*(?::\s*[^=]+?)?\s*(?P<operator>[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)"
)
_LONGEST = 500
_WORD = re.compile(r"(?<![\w.\"'])([A-Za-z_]\w*)(?!\w|\s*\(|\s*=(?!=)|[\"'])").findall
_NO_VARIABLES = frozenset(
    {
        "self",
        "torch",
        "nn",
        "F",
        "math",
        "np",
        "return",
        "if",
        "else",
        "not",
        "and",
        "or",
        "in",
        "is",
        "for",
        "lambda",
        "None",
        "True",
        "False",
    }
)
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


@lru_cache(maxsize=65536)
def variables_in(statement: str) -> tuple[str, ...]:
    """Identifiers that a statement may read as variables, each once: no called names, and no attributes."""
    words = _WORD(statement[:_LONGEST].partition("  # ")[0])
    return tuple(dict.fromkeys(word for word in words if word not in _NO_VARIABLES))


@lru_cache(maxsize=65536)
def is_whole(statement: str) -> bool:
    """Whether a statement ends on the line that is shown."""
    text = statement.partition("  # ")[0].rstrip()
    return len(statement) < _LONGEST and not text.endswith("\\") and all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
