"""Finding devices: those that come with irscope, of plugins, of a user, and this machine once it is calibrated; the target of a run."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import os
import re
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Protocol

from irscope.amounts import BYTES, parse_memory
from irscope.devices.profile import DeviceProfile, parse_profile, read_profile
from irscope.devices.releases import DEFAULT_RELEASE, RELEASES, Release, release_named
from irscope.errors import UsageError
from irscope.files import config_folder
from irscope.immutable import immutable
from irscope.plugins import plugins

ENTRY_POINT_GROUP = "irscope.devices"
THIS_MACHINE = {"this": "this", "host": "this", "thisgpu": "this-gpu"}
"""Names that stand for the calibration of the machine irscope runs on."""


def find_device(text: str) -> DeviceProfile:
    """Return the device of a name, an alias or a JSON file, or one with another size of memory: h100:96GiB. Raises UsageError that lists
    what is known."""
    name, size = parted(text)
    if size:
        sold = find_device(name)
        if (memory := parse_memory(size)) < _LEAST_MEMORY:
            raise UsageError(f"no device has {size} of memory", code="IRS336", where=text, hint=BYTES.hint)
        return replace(sold, memory_bytes=memory, title=f"{sold.title} with {size}", sources={**sold.sources, "memory": "as was asked for"})
    key = _comparable_name(text)
    if key in THIS_MACHINE:
        return _this_machine(THIS_MACHINE[key])
    profile = _built_in().get(key)
    if profile is not None:
        return profile
    if text.endswith(".json") or "/" in text or os.sep in text:
        return read_profile(Path(text))
    names = _with_plugins()
    if key in names:
        return names[key]
    near = difflib.get_close_matches(key, names, n=1)
    guess = f"did you mean {names[near[0]].name!r}? " if near else ""
    hint = f"{guess}devices: {', '.join(device_names())}; or the path of a device file"
    raise UsageError(f"there is no device {text!r}", code="IRS420", hint=hint)


def parted(text: str) -> tuple[str, str]:
    """Return a device's name and the size of memory behind it, which may be empty: h100:96GiB."""
    name, _, size = text.rpartition(":")
    return (name, size) if name and size[:1].isdigit() else (text, "")


def with_memory(name: str, size: str) -> str:
    """Return what --device takes for a device with a size of memory."""
    return f"{parted(name)[0]}:{size}" if size else name


_LEAST_MEMORY: Final = 1 << 20
"""Bytes: a size without a unit is a slip."""


def device_names() -> tuple[str, ...]:
    """Return names of every device, those of plugins included, in the order of the alphabet."""
    return tuple(profile.name for profile in all_devices())


def all_devices() -> tuple[DeviceProfile, ...]:
    """Return every device that has a name, in the order of the alphabet."""
    return tuple(sorted({profile.name: profile for profile in _with_plugins().values()}.values(), key=lambda one: one.name))


def catalogued(name: str) -> DeviceProfile | None:
    """Return the profile of a device by the name that its driver gives it: the one whose short name has the most words of it."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    profiles = [profile for profile in all_devices() if set(profile.name.split("-")) <= words]
    return max(profiles, key=lambda profile: len(profile.name.split("-")), default=None)


def calibration_file(name: str) -> Path:
    """Return the record that `irscope calibrate` writes for the processor ("this") or the GPU ("this-gpu")."""
    return config_folder() / f"{name}.json"


def _this_machine(name: str) -> DeviceProfile:
    path = calibration_file(name)
    if not path.is_file():
        raise UsageError("this machine has not been measured", code="IRS422", hint="`irscope calibrate` does it in 10 seconds")
    return read_profile(path)


@functools.cache
def _built_in() -> dict[str, DeviceProfile]:
    """Profiles that come with irscope, by every key that finds them."""
    found: dict[str, DeviceProfile] = {}
    _add_folder(found, files("irscope.devices").joinpath("data"), "irscope")
    return found


@functools.cache
def _with_plugins() -> dict[str, DeviceProfile]:
    """Return those and the profiles of installed packages; an entry point names a package that holds device files."""
    found = dict(_built_in())
    for plugin in plugins(ENTRY_POINT_GROUP):
        try:
            folder = files(plugin.module)
        except Exception as error:  # whatever a package raises when it is imported
            raise UsageError(f"devices of {plugin.owner} cannot be read: {type(error).__name__}: {error}", code="IRS101") from error
        _add_folder(found, folder, plugin.owner)
    return found


def _add_folder(found: dict[str, DeviceProfile], folder: Traversable, owner: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if not entry.name.endswith(".json"):
            continue
        profile = _read_entry(entry, owner)
        for key in dict.fromkeys(map(_comparable_name, (profile.name, *profile.aliases))):
            other = found.setdefault(key, profile)
            if other is not profile:
                raise UsageError(f"device {key!r} is both {other.title} and {profile.title} of {owner}", code="IRS602")


def _read_entry(entry: Traversable, owner: str) -> DeviceProfile:
    return parse_profile(entry.read_bytes(), f"{owner}:{entry.name}")


def _comparable_name(text: str) -> str:
    """Return how names are compared: "NVIDIA GeForce RTX 3090" and "rtx3090" are the same."""
    key = "".join(letter for letter in text.lower() if letter.isalnum())
    for word in ("nvidia", "geforce"):
        key = key.replace(word, "")
    return key or text.lower()


# What a run is analysed for: a device, a version of torch and its allocator's options.

DEFAULT_DEVICE = "h200"
DEFAULT_PROCESSOR = "xeon-8480"
"""The processor that is taken where one is needed and nobody names it."""
_VERSION_LINE = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"](\d+)\.(\d+)", re.M)


@functools.lru_cache(maxsize=1)
def installed_torch() -> tuple[int, int] | None:
    """Return the version of the torch that is installed, from its file: importing it would take seconds."""
    try:
        spec = importlib.util.find_spec("torch")
        text = Path(spec.origin).with_name("version.py").read_text("utf-8") if spec is not None and spec.origin else ""
    except (ImportError, OSError, ValueError):
        return None
    numbers = _VERSION_LINE.search(text)
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))


def default_torch() -> tuple[tuple[int, int], str]:
    """Return the version that is taken where nobody names one, and why: that of the installed torch, or the newest known one below it."""
    there = installed_torch()
    if there is None or there == DEFAULT_RELEASE.version:
        return DEFAULT_RELEASE.version, "default"
    known = [version for version in RELEASES if version <= there]
    if there in known:
        return there, "installed"
    taken = known[-1] if known else min(RELEASES)
    return taken, f"installed is {there[0]}.{there[1]}, whose rules are not known"


SNAPSHOT_DEVICE: Final = "irscope_device"
SNAPSHOT_TORCH: Final = "irscope_torch"
"""Among the settings of a snapshot: what was simulated."""


@immutable(slots=False)
class Target:
    """Device, torch and allocator options that a prediction is for."""

    device: DeviceProfile
    torch: tuple[int, int] = DEFAULT_RELEASE.version
    alloc_conf: str = ""
    """Text of PYTORCH_CUDA_ALLOC_CONF; empty for the defaults."""
    cudnn_attention: bool = False
    """Whether PyTorch may let cuDNN do attention, as it prefers to on devices of capability 9.0 and 10.0; the size of the workspace is
    then unknown. Otherwise as after `torch.backends.cuda.enable_cudnn_sdp(False)`."""

    @property
    def rules(self) -> str:
        """Return what decides besides the device: "torch 2.13, expandable_segments:True"."""
        return f"torch {self.release.name}" + (f", {self.alloc_conf}" if self.alloc_conf else "")

    @property
    def text(self) -> str:
        """For headings: "NVIDIA H200, torch 2.13"."""
        return f"{self.device.title}, {self.rules}"

    def to_json(self) -> dict[str, str]:
        """Return what documents and summaries say of it; the allocator's options where there are any."""
        conf = {"alloc_conf": self.alloc_conf} if self.alloc_conf else {}
        return {"device": self.device.name, "torch": self.release.name, **conf}

    def snapshot_settings(self) -> dict[str, object]:
        """Return the settings of a memory snapshot, as PyTorch writes them, with what they hold on."""
        return {
            "PYTORCH_CUDA_ALLOC_CONF": self.alloc_conf,
            "expandable_segments": self.is_expandable,
            SNAPSHOT_DEVICE: self.device.name,
            SNAPSHOT_TORCH: self.release.name,
        }

    @property
    def is_expandable(self) -> bool:
        """Return whether segments grow in place."""
        return "expandable_segments:true" in self.alloc_conf.lower()

    @property
    def release(self) -> Release:
        return RELEASES[self.torch]


class TargetSettings(Protocol):
    """The part of a run's settings that names a target."""

    @property
    def device(self) -> str: ...

    @property
    def torch(self) -> str: ...


def target_of(settings: TargetSettings) -> Target:
    """Return the target that settings name, with defaults for what they leave open."""
    return Target(find_device(settings.device or DEFAULT_DEVICE), torch_version(settings.torch), getattr(settings, "alloc_conf", ""))


def torch_version(text: str) -> tuple[int, int]:
    """Return a version such as 2.13 or 2.13.0+cu130; empty for the default. Raises UsageError for one whose rules are not known."""
    return release_named(text).version if text else default_torch()[0]
