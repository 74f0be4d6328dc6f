"""What stands behind a code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeDoc:
    """What a code means and what its reader can do about it."""

    title: str
    text: str
