"""How the ONNX reader refuses a model: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from irscope.errors import LoadError

UNREADABLE = "IRS140"
NOT_ONNX = "IRS141"
BAD_GRAPH = "IRS142"
CYCLE = "IRS143"
BAD_TENSOR = "IRS144"
BAD_LOCATION = "IRS145"
BAD_FUNCTION = "IRS146"
TOO_LARGE = "IRS147"
BAD_INPUT_OPTION = "IRS148"

UNSORTED = "IRS150"
VERSION = "IRS151"
FOREIGN = "IRS152"
MISUSED = "IRS153"
BAD_DIM = "IRS154"
INPUT_WITH_VALUE = "IRS155"
MISSING_DATA = "IRS156"
TRAINING_INFO = "IRS157"

_LONGEST_NAME = 80


def short(name: str) -> str:
    """A name from the file as one printable word of bounded length, for messages."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}..."
    return name if name.isprintable() else name.encode("unicode_escape", "backslashreplace").decode("ascii")


def refuse(code: str, message: str, where: str = "", hint: str = "") -> LoadError:
    """The error to raise for a model that cannot be analysed."""
    return LoadError(message, code=code, where=where, hint=hint)
