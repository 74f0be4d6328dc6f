"""What passes are made of, and what runs them.

A pass derives from `Analysis` (it computes something) or `Transform` (it changes the graph); `@analysis` and `@transform` make one of a
function. `register` gives it a name. A `Manager` runs passes over a program and keeps results as long as they hold; as `PassContext` it
is what a pass asks for the results of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope.lazy import lazily
from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.decorators import analysis, transform
from irscope.passkit.registry import PassEntry, default_registry, register
from irscope.passkit.settings import Settings

if TYPE_CHECKING:
    from irscope.passkit.instruments import Instrument, PassEvent
    from irscope.passkit.manager import Manager, PassResult

__all__ = [
    "Analysis",
    "Instrument",
    "Manager",
    "Pass",
    "PassContext",
    "PassEntry",
    "PassEvent",
    "PassResult",
    "Settings",
    "Transform",
    "analysis",
    "default_registry",
    "register",
    "transform",
]

# Passes are written and listed without what runs them.
__getattr__ = lazily(
    __name__,
    {
        "Instrument": "irscope.passkit.instruments",
        "Manager": "irscope.passkit.manager",
        "PassEvent": "irscope.passkit.instruments",
        "PassResult": "irscope.passkit.manager",
    },
)
