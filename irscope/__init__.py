"""irscope reads a model file into one dataflow IR and tells what the model costs, without running it."""

from __future__ import annotations

from irscope._version import __version__
from irscope.lazy import lazily

TYPE_CHECKING = False  # that of typing, whose import would be most of the time in which Ctrl-C is a traceback
if TYPE_CHECKING:
    from irscope.api import (
        Card,
        IrscopeError,
        Report,
        Table,
        analysis,
        apply_checkpoints,
        capture,
        capture_training,
        card,
        derived_weight,
        fit,
        fit_generation,
        generate,
        load,
        plan_checkpoints,
        record,
        register,
        rewrite,
        run,
        scheduled,
        simulate,
        transform,
    )

__all__ = [
    "Card",
    "IrscopeError",
    "Report",
    "Table",
    "__version__",
    "analysis",
    "apply_checkpoints",
    "capture",
    "capture_training",
    "card",
    "derived_weight",
    "fit",
    "fit_generation",
    "generate",
    "load",
    "plan_checkpoints",
    "record",
    "register",
    "rewrite",
    "run",
    "scheduled",
    "simulate",
    "transform",
]


__getattr__ = lazily(__name__, dict.fromkeys(__all__, "irscope.api"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
