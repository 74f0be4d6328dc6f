"""Settings that a user made once for all runs, and the device of an answer where none was named."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from irscope.devices import DeviceProfile, find_device
from irscope.devices.catalogue import DEFAULT_DEVICE, DEFAULT_PROCESSOR, parted, with_memory
from irscope.errors import UsageError
from irscope.files import as_output_error, config_folder, make_folder, read_regular, write_text
from irscope.immutable import immutable
from irscope.ir.program import Program, Runtime
from irscope.jsoncodec import Misfit, loads
from irscope.passkit.settings import Settings
from irscope.processes import output_of_tool

if TYPE_CHECKING:
    from irscope.session import Model

KEYS: Final[Mapping[str, str]] = {"device": "device that memory and time are predicted for, as --device takes it"}
"""Everything that can be set, with what it means."""
_PROC = Path("/proc/driver/nvidia/gpus")
_PATIENCE = 3.0
"""Seconds that a driver may take to answer."""


def config_file() -> Path:
    """Return where the settings are kept. It need not exist."""
    return config_folder() / "config.json"


def read_config() -> dict[str, str]:
    """Return what was set. Raises UsageError, with the file's name, where it cannot be read."""
    path = config_file()
    try:
        content = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"the settings cannot be read: {error.strerror or error}", code="IRS426", where=str(path)) from error
    try:
        found = loads(content)
    except Misfit as error:
        raise _broken(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _broken(path, "is not a JSON object")
    for key, value in found.items():
        if key not in KEYS:
            raise _broken(path, f"sets {key!r}, which is not a setting")
        if not isinstance(value, str):
            raise _broken(path, f"sets {key} to {json.dumps(value)}, which is not text")
    return {str(key): str(value) for key, value in found.items()}


def _broken(path: Path, what: str) -> UsageError:
    hint = f"mend or delete the file; settings: {', '.join(KEYS)}"
    return UsageError(what, code="IRS426", where=str(path), hint=hint)


def configured_device(named: str) -> str:
    """Return the device that is named, else the one that was set once, whatever GPU is here; empty for the default."""
    return named or read_config().get("device", "")


def set_config(key: str, value: str) -> None:
    """Set one thing for all runs; an empty value unsets it. Raises UsageError for what is not a setting, and for a device that is none."""
    check_key(key)
    if value and key == "device":
        name, size = parted(value)
        value = with_memory(find_device(name).name if not _is_path(name) else str(Path(name).resolve()), size)
        find_device(value)
    settings = read_config()
    settings.pop(key, None)
    if value:
        settings[key] = value
    path = config_file()
    if settings:
        make_folder(path.parent)
        write_text(path, [json.dumps(settings, indent=2, sort_keys=True) + "\n"])
    else:
        with as_output_error(path):
            path.unlink(missing_ok=True)


def check_key(key: str) -> None:
    """Raise UsageError for a key that is not a setting."""
    if key not in KEYS:
        raise UsageError(f"there is no setting {key!r}", code="IRS425", hint=f"settings: {', '.join(KEYS)}")


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text or os.sep in text


@immutable
class Chosen:
    """A device, and why it is this one."""

    device: DeviceProfile
    reason: str
    name: str
    """Value of --device for it."""
    is_to_be_named: bool = False
    """True where other commands would take another device unless this one is named."""

    @property
    def short(self) -> str:
        """Return the reason in a word or two, empty where somebody named it."""
        return "" if self.reason.startswith(_NAMED) else self.reason.partition(",")[0].removeprefix("the ")


def chosen_device(named: str = "") -> Chosen:
    """Return the device that somebody named, else this machine's GPU, else the one that was set once, else the default; always with the
    reason.
    """
    if named:
        return Chosen(find_device(named), _NAMED, named, is_to_be_named=True)
    unlisted = ""
    title = local_gpu()
    if title:
        profile = _device_of(title)
        if profile is not None:
            return Chosen(profile, "this machine's GPU", profile.name, is_to_be_named=True)
        unlisted = f"this machine's {title} is not in irscope's list"
    configured = read_config().get("device", "")
    if configured:
        return Chosen(_configured(configured), f"set by irscope config{f', as {unlisted}' if unlisted else ''}", configured)
    return Chosen(find_device(DEFAULT_DEVICE), f"the default, as {unlisted or 'there is no GPU here'}", DEFAULT_DEVICE)


def device_for(named: str) -> str:
    """Return what --device takes for the device that `chosen_device` finds; empty for the default."""
    chosen = chosen_device(named)
    return chosen.name if chosen.name != DEFAULT_DEVICE or named else ""


def settings_for(
    named: str = "", torch: str = "", alloc_conf: str = "", *, ort: str = "", strict: bool = False, is_session: bool = False
) -> Settings:
    """Return the settings to open a model with before its kind is known; `target_settings` completes them. A session of ONNX Runtime is
    optimised for its device, so that needs one.
    """
    chosen = chosen_device(named)
    found = Settings(device=chosen.name, chosen="" if named else chosen.short, torch=torch, alloc_conf=alloc_conf, ort=ort, strict=strict)
    return found if named or is_session or chosen.name != DEFAULT_DEVICE else replace(found, device="", chosen="")


def target_settings(program: Program, settings: Settings, chosen: Chosen | None = None) -> Settings:
    """Return what all answers about a program are for: the one place where a device is taken for what nobody named, so that the card, every
    pass, every command, the UI and scripts have the same. `chosen` is the device of who has chosen one already."""
    if chosen is None:
        chosen = chosen_device("" if settings.chosen else settings.device or program.metadata.get("target", ""))
    chosen = chosen_for(program, chosen)
    if settings.device == chosen.name:
        return settings
    # Without a name passes take the default, but for sessions of ONNX Runtime, which would be on a processor then.
    if not settings.device and chosen.name == DEFAULT_DEVICE and program.traits.runtime is not Runtime.ONNXRUNTIME:
        return settings
    return replace(settings, device=chosen.name, chosen=chosen.short)


def targeted(model: Model) -> Model:
    """Return the model, its settings completed."""
    model.manager.settings = target_settings(model.program, model.manager.settings)
    return model


def chosen_of(settings: Settings, device: str = "") -> Chosen:
    """Return the device that was named, else that of settings, with the reason why it is this one."""
    return chosen_device(device or ("" if settings.chosen else settings.device))


def chosen_for(program: Program, chosen: Chosen) -> Chosen:
    """Return the device for generated code: that of its kind where nobody named one, as the code runs on no other; else it is said."""
    kinds = program.metadata.get("device", "") if program.traits.is_plan else ""
    if kinds not in ("cpu", "cuda") or (kinds == "cpu") == (chosen.device.kind == "cpu"):
        return chosen
    kind = "a processor" if kinds == "cpu" else "a GPU"
    if chosen.reason == _NAMED:
        return replace(chosen, reason=f"{chosen.reason}, but the code was compiled for {kind}")
    name = DEFAULT_PROCESSOR if kinds == "cpu" else DEFAULT_DEVICE
    return Chosen(find_device(name), f"the default, as the code was compiled for {kind}", name, is_to_be_named=True)


_NAMED: Final = "named by --device"
DEFAULT: Final = "default"
"""The short reason for the device that is taken where nothing tells one."""


def _configured(name: str) -> DeviceProfile:
    try:
        return find_device(name)
    except UsageError as error:
        hint = "`irscope config --unset device`, or set another"
        raise UsageError(f"{name!r}, the device that it sets, is unknown", code="IRS426", where=str(config_file()), hint=hint) from error


def _device_of(title: str) -> DeviceProfile | None:
    try:
        return find_device(title)
    except UsageError:
        return None


def local_gpu() -> str:
    """Return the name of this machine's first GPU as its driver gives it; empty where there is none that programs may use.

    NVIDIA's management library is asked where its package is installed, else what the driver shows in /proc, else its tool. torch is
    not imported.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if not first or first.startswith("-"):
        return ""
    number = int(first) if first.isdecimal() else 0
    if importlib.util.find_spec("pynvml") is not None:
        from irscope.measure.machine import NAMELESS_GPU, cuda_device

        name = cuda_device(f"cuda:{number}").name
        if name != NAMELESS_GPU:
            return name
    names = _names_in_proc() or _names_of_tool()
    return names[min(number, len(names) - 1)] if names else ""


def _names_in_proc() -> list[str]:
    """Return the names of NVIDIA's GPUs that the driver shows, in the order of their addresses; this alone costs next to nothing."""
    names: list[str] = []
    try:
        for folder in sorted(_PROC.iterdir()):
            for line in (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition(":")
                if key.strip() == "Model" and value.strip():
                    names.append(value.strip())
    except OSError:
        return names
    return names


def _names_of_tool() -> list[str]:
    """Return the same from nvidia-smi, which is there where /proc is not: on Windows and in its subsystem for Linux."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    output = output_of_tool(tool, ["--query-gpu=name", "--format=csv,noheader"], _PATIENCE)
    return [line.strip() for line in output.splitlines() if line.strip()]
