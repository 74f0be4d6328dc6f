"""irscope reads a model file into one dataflow IR and tells what the model costs, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope._version import __version__

if TYPE_CHECKING:
    from irscope.api import (
        IrscopeError,
        Report,
        Table,
        analysis,
        apply_checkpoints,
        capture,
        capture_training,
        fit,
        load,
        plan_checkpoints,
        record,
        register,
        run,
        scheduled,
        simulate,
        transform,
    )

__all__ = [
    "IrscopeError",
    "Report",
    "Table",
    "__version__",
    "analysis",
    "apply_checkpoints",
    "capture",
    "capture_training",
    "fit",
    "load",
    "plan_checkpoints",
    "record",
    "register",
    "run",
    "scheduled",
    "simulate",
    "transform",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use: `import irscope` itself stays as cheap as an empty module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from irscope import api

    value: object = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
