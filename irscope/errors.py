"""Errors a user may see, each with a code that `irscope explain` knows and an exit code."""

from __future__ import annotations

import enum
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """Exit codes of the process; the table in docs/cli.md is checked against this one."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    LOAD = 3
    PASS = 4
    PARTIAL = 5
    INTERRUPTED = 130
    TERMINATED = 143


class IrscopeError(Exception):
    """Anything irscope reports as one line: what, where and what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.PASS
    default_code: ClassVar[str] = "IRS900"

    def __init__(self, message: str, *, code: str | None = None, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{hint}"


class UsageError(IrscopeError):
    """The command line, an option or a Python call asks for something that does not exist."""

    exit_code = ExitCode.USAGE
    default_code = "IRS600"


class PipelineError(UsageError):
    """A pipeline text that does not parse, or names an unknown pass or option."""

    default_code = "IRS601"


class OutputError(UsageError):
    """The answer could not be written where the user asked."""

    default_code = "IRS610"


class LoadError(IrscopeError):
    """A model that cannot be read."""

    exit_code = ExitCode.LOAD
    default_code = "IRS100"


class VerifyError(LoadError):
    """A graph that breaks the rules of the IR."""

    default_code = "IRS120"


class PassError(IrscopeError):
    """A pass that failed on a graph it should have handled."""

    exit_code = ExitCode.PASS
    default_code = "IRS500"


class Cancelled(IrscopeError):
    """A long computation that was cancelled by the user."""

    exit_code = ExitCode.INTERRUPTED
    default_code = "IRS530"


def form_problem(error: BaseException) -> str:
    """Return in words how a file differs from its form, by the exception that a reader of it raised."""
    match error:
        case IrscopeError():
            return error.message
        case KeyError():
            return f"it lacks {str(error.args[0])[:60]!r}" if error.args else "it lacks an entry"
        case IndexError():
            return "a list is shorter than it has to be"
        case UnicodeError():
            return "a text is not UTF-8"
        case OverflowError() | RecursionError() | MemoryError():
            return "a number is too large, or it nests too deeply"
        case ValueError() if "integer string conversion" in str(error):  # of Python, which reads 4,300 digits
            return "a number has thousands of digits"
        case TypeError() | AttributeError():
            return "a value has the wrong type"
        case ValueError() | ArithmeticError():
            return "a value is invalid"
    return "it cannot be read"
