"""What a run is analysed for: a device, a version of torch and its allocator's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from irscope.devices.catalogue import find_device
from irscope.devices.profile import DeviceProfile
from irscope.errors import UsageError

TORCH_VERSIONS: tuple[tuple[int, int], ...] = ((2, 8), (2, 9), (2, 10), (2, 11), (2, 12), (2, 13), (2, 14), (2, 15))
"""Versions whose rules irscope knows."""
DEFAULT_DEVICE = "h200"
DEFAULT_TORCH = (2, 13)


@dataclass(frozen=True)
class Target:
    """Device, torch and allocator options that a prediction is for."""

    device: DeviceProfile
    torch: tuple[int, int] = DEFAULT_TORCH
    alloc_conf: str = ""
    """Text of PYTORCH_CUDA_ALLOC_CONF; empty for the defaults."""
    cudnn_attention: bool = False
    """Whether PyTorch may let cuDNN do attention, as it prefers to on devices of capability 9.0 and 10.0; the size of the workspace is
    then unknown. Otherwise as after `torch.backends.cuda.enable_cudnn_sdp(False)`."""

    @property
    def text(self) -> str:
        """For headings: "NVIDIA H200, torch 2.13"."""
        conf = f", {self.alloc_conf}" if self.alloc_conf else ""
        return f"{self.device.title}, torch {self.torch[0]}.{self.torch[1]}{conf}"


class TargetSettings(Protocol):
    """The part of a run's settings that names a target."""

    @property
    def device(self) -> str: ...

    @property
    def torch(self) -> str: ...


def target_of(settings: TargetSettings) -> Target:
    """The target that settings name, with defaults for what they leave open."""
    return Target(find_device(settings.device or DEFAULT_DEVICE), torch_version(settings.torch), getattr(settings, "alloc_conf", ""))


def torch_version(text: str) -> tuple[int, int]:
    """A version such as 2.13 or 2.13.0+cu130; empty for the default. Raises UsageError for one whose rules are not known."""
    if not text:
        return DEFAULT_TORCH
    numbers = text.strip().removeprefix("v").split("+")[0].split(".")
    if len(numbers) >= 2 and all(part.isascii() and part.isdigit() for part in numbers[:2]):
        found = (int(numbers[0]), int(numbers[1]))
        if found in TORCH_VERSIONS:
            return found
    known = ", ".join(f"{major}.{minor}" for major, minor in TORCH_VERSIONS)
    raise UsageError(f"the rules of torch {text!r} are not known", code="IRS641", hint=f"versions: {known}")
