"""Lays two models side by side, or a model and a recording of a real run.

`compare_models` and `compare_recording` give what is the same and what is not as objects, `model_comparison` and
`run_comparison` the document that is printed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from irscope.errors import LoadError, UsageError
from irscope.files import is_recording
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import is_name
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program
from irscope.ir.spelling import parse_type
from irscope.ir.types import TensorType, Type
from irscope.passkit.settings import Settings
from irscope.recording import Recording, read_recording
from irscope.report.report import Document
from irscope.session import Model, open_model, stated_sizes
from irscope.tools.compare.document import comparison_document
from irscope.tools.compare.model_report import model_report
from irscope.tools.compare.models import ModelComparison, compare_models
from irscope.tools.compare.run_report import recording_json, recording_parts, run_report
from irscope.tools.compare.runs import RunComparison, compare_recording, settings_of

__all__ = [
    "ModelComparison",
    "RunComparison",
    "compare_compiled",
    "compare_models",
    "compare_recording",
    "compare_with",
    "model_comparison",
    "open_for",
    "run_comparison",
]


def model_comparison(compared: ModelComparison, *, everything: bool = False) -> Document:
    """Return the document of two models; `everything` lists what is equal too."""
    a, b = compared.a.model, compared.b.model
    with paused_gc():
        report = b.marked(a.marked(model_report(compared, everything=everything)))
        return comparison_document("models", a.info(), b.info(), report)


def run_comparison(compared: RunComparison) -> Document:
    """Return the document of a model and a recording."""
    model = compared.side.model
    report = model.marked(run_report(compared))
    return comparison_document("recording", model.info(), recording_json(compared.recording), report, recording_parts(compared.recording))


_INPUTS_DO_NOT_FIT: Final = ("IRS148", "IRS623")
"""Error codes of inputs that the model does not have, or not with this type."""


def open_for(
    path: Path, recording: Recording, options: LoadOptions | None = None, settings: Settings | None = None, *, as_in_file: bool = False
) -> Model:
    """Return the model of a file with the inputs, sizes, device and version of a recording; what the user gives goes first.

    Where ONNX Runtime optimised the graph, the model is the graph that it is predicted to have run, unless it is to be `as_in_file`.
    """
    given = options or LoadOptions()
    optimised = recording.header.executor.startswith("ort") and recording.header.settings.get("graph_optimization", "all") != "none"
    if optimised and not as_in_file and given.ort_level == "off":
        given = replace(given, ort_level="all")
    header = recording.header.model
    inputs = dict(given.inputs)
    bind = dict(given.bind)
    if not inputs and not bind:
        inputs = {value.name: parse_type(value.type) for value in header.inputs if value.name}
        # Types of inputs leave no symbol open; sizes alone stand where a recording has no inputs.
        bind = {} if inputs else dict(header.bind)
    wanted = settings_of(recording, settings or Settings())
    bits = recording.header.settings.get("vector_bits")
    if isinstance(bits, int) and not wanted.device:
        given = replace(given, ort_vector_bits=bits)
    try:
        if recording.header.settings.get("fixed_sizes") == "" and not given.inputs and not bind:
            # The session learned the sizes with the inputs, and planned without them.
            opened = open_model(path, replace(given, inputs={}, bind={}), settings=wanted)
            opened = opened.rebound(_sizes_by_inputs(opened.program.symbols, opened.program, list(inputs.values())))
            if [value.type for value in opened.program.graph.inputs] == list(inputs.values()):
                return opened
        return open_model(path, replace(given, inputs=inputs, bind=bind), settings=wanted)
    except (UsageError, LoadError) as error:
        if error.code not in _INPUTS_DO_NOT_FIT or given.inputs or given.bind or not inputs:
            raise
        message = f"this recording is of a different model ({header.name}): its inputs do not fit {path}: {error.message}"
        raise LoadError(message, code="IRS661", where=recording.path, hint="give the model that was recorded") from error


def compare_with(model: Model, other: Path) -> ModelComparison | RunComparison:
    """Lay a file beside a model that is open: another model, or a recording of this one."""
    if not is_recording(other):
        second = _at_sizes_of(model, open_model(other, replace(model.options, bind={}), settings=model.manager.settings))
        _share(model, second)
        return compare_models(model, second)
    recording = read_recording(other)
    path = model.program.path
    is_there = is_name(path) or Path(path).is_file()
    opened = open_for(Path(path), recording, model.options, model.manager.settings, as_in_file=True) if is_there else model
    _share(model, opened)
    return compare_recording(opened, recording)


def _at_sizes_of(model: Model, other: Model) -> Model:
    """Return the other model at the sizes of the first: by name, else as the inputs of the first have them; else its own example's."""
    sizes = {size.symbol: size.size for size in stated_sizes(other.program, {}) if size.is_open and not model.program.symbols}
    sizes |= _sizes_by_inputs(sizes, other.program, [value.type for value in model.program.graph.inputs])
    sizes |= {name: size for name, size in model.options.bind.items() if name in other.program.symbols}
    try:
        return other.rebound(sizes) if sizes else other
    except (UsageError, LoadError):
        return other


def _sizes_by_inputs(symbols: Container[str], program: Program, types: Sequence[Type]) -> dict[str, int]:
    """Return the sizes of those symbols with which the inputs of the program, in their order, have these types."""
    sizes: dict[str, int] = {}
    for value, given in zip(program.graph.inputs, types, strict=False):
        shapes = [one.shape for one in (value.type, given) if isinstance(one, TensorType) and one.shape is not None]
        if len(shapes) == 2 and len(shapes[0]) == len(shapes[1]):
            sizes |= {str(dim): size for dim, size in zip(*shapes, strict=True) if str(dim) in symbols and isinstance(size, int)}
    return sizes


def compare_compiled(model: Model) -> ModelComparison:
    """Lay a program as it runs eagerly beside what torch.compile makes of it; the model is either of them."""
    from irscope.tools.lowered import compiled_of, eager_of

    if "compiled" in model.program.metadata:
        return compare_models(eager_of(model), model)
    return compare_models(model, compiled_of(model))


def _share(model: Model, other: Model) -> None:
    """Progress and cancellation of one reach the other."""
    if other is not model:
        other.manager.cancelled = model.manager.cancelled
        other.manager.instruments[:] = model.manager.instruments
