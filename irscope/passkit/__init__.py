"""What passes are made of, and what runs them.

A pass derives from `Analysis` (it computes something) or `Transform` (it changes the graph); `@analysis` and `@transform` make one of a
function. `register` gives it a name. A `Manager` runs passes over a program and keeps results as long as they hold; as `PassContext` it
is what a pass asks for the results of others.
"""

from __future__ import annotations

from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.decorators import analysis, transform
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.manager import Manager, PassResult
from irscope.passkit.registry import PassEntry, default_registry, register
from irscope.passkit.settings import Settings

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
