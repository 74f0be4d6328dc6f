"""What scripts import: `irscope.load`, `irscope.run`, and what a pass of one's own needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError
from irscope.fitting import Fit, fit
from irscope.frontends.base import LoadOptions
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.ir.typetext import parse_type
from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.decorators import analysis, transform
from irscope.passkit.settings import Settings
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Series, Table
from irscope.session import Model, Results, check_target, open_model

__all__ = [
    "Analysis",
    "Column",
    "Coverage",
    "Diagnostic",
    "Fit",
    "Graph",
    "IrscopeError",
    "Model",
    "Node",
    "Pass",
    "PassContext",
    "Report",
    "Results",
    "Series",
    "Severity",
    "Table",
    "TensorType",
    "Transform",
    "Type",
    "Value",
    "analysis",
    "fit",
    "load",
    "run",
    "transform",
]


def load(
    path: str | PathLike[str],
    inputs: Mapping[str, str | Type] | None = None,
    bind: Mapping[str, int] | None = None,
) -> Model:
    """Read a model file. `inputs` gives types, as "f32[1,3,224,224]"; `bind` gives sizes of symbols."""
    types = {name: parse_type(given) if isinstance(given, str) else given for name, given in (inputs or {}).items()}
    return open_model(Path(path), LoadOptions(inputs=types, bind=dict(bind or {})))


def run(model: Model, passes: str | Sequence[Pass] = "default", device: str = "", torch: str = "", alloc_conf: str = "") -> Results:
    """Run passes over a loaded model; results by pass name.

    `device`, `torch` and `alloc_conf` (what PYTORCH_CUDA_ALLOC_CONF holds) say what memory and time are meant for.
    """
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf)
    check_target(settings)
    model.manager.settings = settings
    return model.run(passes)
