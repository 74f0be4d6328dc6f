"""Codes 9xx: irscope itself."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS900": CodeDoc("An error inside irscope", "This is a bug. Please report it with the reproducer or the output of --debug."),
}
