"""Diagnostics: what a pass or a frontend has to say about a model without giving up on it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from irscope.immutable import immutable

_MOST_OTHERS = 1000
"""Repeats of a remark that are kept for those who ask for them."""


class Severity(enum.IntEnum):
    """The weight of a diagnostic; `--fail-on` compares these."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def text(self) -> str:
        return self.name.lower()


@immutable
class Diagnostic:
    """One remark; `node` names the operation, `location` the place in the model's source."""

    severity: Severity
    code: str
    message: str
    node: str = ""
    location: str = ""
    hint: str = ""
    count: int = 1
    others: list[Diagnostic] = field(default_factory=list, compare=False, repr=False)
    """The first of those that it also counts, where they say something else."""

    def __str__(self) -> str:
        place = " ".join(part for part in (self.location, f"({self.node})" if self.node else "") if part)
        head = f"{place}: " if place else ""
        tail = f" (and {self.count - 1} more like it{'; -v shows them' if self.others else ''})" if self.count > 1 else ""
        hint = f" [{self.hint}]" if self.hint else ""
        return f"{head}{self.severity.text} {self.code}: {self.message}{hint}{tail}"


def few(names: Sequence[str], most: int, rest: str) -> str:
    """Return the first names, and how many more there are; `rest` says what shows those."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more ({rest})" if len(names) > most else "")


class DiagnosticSink:
    """Collects diagnostics; repeats of one code about one subject are counted, not listed."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic, *, about: str = "") -> None:
        """Record a diagnostic; those that share code and `about` (default: its node) become one with a count."""
        key = (diagnostic.code, about or diagnostic.node or diagnostic.message)
        first = self._found.get(key)
        if first is None:
            self._found[key] = diagnostic
            return
        if len(first.others) < _MOST_OTHERS and str(diagnostic) != str(replace(first, count=1)):
            first.others.append(diagnostic)
        self._found[key] = replace(first, count=first.count + diagnostic.count)

    def warn(self, code: str, message: str, *, node: str = "", hint: str = "", about: str = "") -> None:
        self.add(Diagnostic(Severity.WARNING, code, message, node, hint=hint), about=about)

    def note(self, code: str, message: str, *, node: str = "", hint: str = "", about: str = "") -> None:
        self.add(Diagnostic(Severity.NOTE, code, message, node, hint=hint), about=about)

    def error(self, code: str, message: str, *, node: str = "", hint: str = "", about: str = "") -> None:
        self.add(Diagnostic(Severity.ERROR, code, message, node, hint=hint), about=about)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    @property
    def worst(self) -> Severity | None:
        return max((d.severity for d in self), default=None)
