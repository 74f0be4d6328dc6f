"""Lays two models side by side, or a model and a recording of a real run.

`compare_models` and `compare_recording` give what is the same and what is not as objects, `model_comparison` and
`run_comparison` the document that is printed.
"""

from __future__ import annotations

from irscope.comparing import present, runpresent
from irscope.comparing.document import FORMATS, SCHEMA, Comparison
from irscope.comparing.document import write as write_comparison
from irscope.comparing.models import ModelComparison, compare_models
from irscope.comparing.opening import compare_with, open_for
from irscope.comparing.runs import RunComparison, compare_recording
from irscope.ir.graph import paused_gc

__all__ = [
    "FORMATS",
    "SCHEMA",
    "Comparison",
    "ModelComparison",
    "RunComparison",
    "compare_models",
    "compare_recording",
    "compare_with",
    "model_comparison",
    "open_for",
    "run_comparison",
    "write_comparison",
]


def model_comparison(compared: ModelComparison, *, everything: bool = False) -> Comparison:
    """The document of two models; `everything` lists what is equal too."""
    a, b = compared.a.model, compared.b.model
    with paused_gc():
        made = present.report(compared, everything=everything)
        return Comparison("models", a.info(), b.info(), b.marked(a.marked(made)), tuple(present.headline(compared)))


def run_comparison(compared: RunComparison) -> Comparison:
    """The document of a model and a recording."""
    model = compared.side.model
    return Comparison(
        "recording",
        model.info(),
        runpresent.recording_json(compared),
        model.marked(runpresent.report(compared)),
        tuple(runpresent.headline(compared)),
        runpresent.recording_line(compared, " · "),
    )
