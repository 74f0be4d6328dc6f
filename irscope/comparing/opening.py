"""Opening what is compared: another model, or a recording with the model as it was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from irscope.comparing.expected import settings_of
from irscope.comparing.models import ModelComparison, compare_models
from irscope.comparing.runs import RunComparison, compare_recording
from irscope.errors import LoadError, UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.named.names import is_name
from irscope.ir.typetext import parse_type
from irscope.passkit.settings import Settings
from irscope.recording import Recording, is_recording, read_recording
from irscope.session import Model, open_model

_INPUTS_DO_NOT_FIT: Final = ("IRS148", "IRS623")
"""Error codes of inputs that the model does not have, or not with this type."""


def open_for(path: Path, recording: Recording, options: LoadOptions | None = None, settings: Settings | None = None) -> Model:
    """The model of a file with the inputs, sizes, device and version of a recording; what the user gives goes first."""
    given = options or LoadOptions()
    header = recording.header.model
    inputs = dict(given.inputs)
    bind = dict(given.bind)
    if not inputs and not bind:
        inputs = {one.name: parse_type(one.type) for one in header.inputs if one.name}
        # Types of inputs leave no symbol open; sizes alone stand where a recording has no inputs.
        bind = {} if inputs else dict(header.bind)
    wanted = settings_of(recording, settings or Settings())
    try:
        return open_model(path, replace(given, inputs=inputs, bind=bind), settings=wanted)
    except (UsageError, LoadError) as error:
        if error.code not in _INPUTS_DO_NOT_FIT or given.inputs or given.bind or not inputs:
            raise
        message = f"this recording is of another model ({header.name}): its inputs do not fit {path}: {error.message}"
        raise LoadError(message, code="IRS661", where=recording.path, hint="give the model that was recorded") from error


def compare_with(model: Model, other: Path) -> ModelComparison | RunComparison:
    """Lay a file beside a model that is open: another model, or a recording of this one."""
    if not is_recording(other):
        second = open_model(other, model.options, settings=model.manager.settings)
        _share(model, second)
        return compare_models(model, second)
    recording = read_recording(other)
    path = model.program.path
    is_there = is_name(path) or Path(path).is_file()
    opened = open_for(Path(path), recording, model.options, model.manager.settings) if is_there else model
    _share(model, opened)
    return compare_recording(opened, recording)


def _share(model: Model, other: Model) -> None:
    """Progress and cancellation of one reach the other."""
    if other is not model:
        other.manager.cancelled = model.manager.cancelled
        other.manager.instruments[:] = model.manager.instruments
