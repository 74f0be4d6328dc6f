"""Random number generators of the simulated device: their states, and no numbers."""

from __future__ import annotations

import secrets
import struct
from typing import Any, Final

import torch

_HOST: Final = torch.Generator
_DEFAULT_SEED: Final = 67280421310721
"""As in c10/core/GeneratorImpl.h."""
_STATE: Final = struct.Struct("<qq")
"""Seed and offset, as CUDAGeneratorImpl::get_state lays them out."""


class DeviceGenerator(torch.Generator):
    """A Philox generator: to the dispatcher one of the host, which a kernel never asks for numbers."""

    def __new__(cls, device: torch.device, seed: int = _DEFAULT_SEED) -> Any:
        """A generator of a device."""
        return _HOST.__new__(cls)

    def __init__(self, device: torch.device, seed: int = _DEFAULT_SEED) -> None:
        self._device, self._seed, self._offset = device, seed, 0

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    def manual_seed(self, seed: int) -> torch.Generator:
        self._seed, self._offset = int(seed), 0
        return self

    def seed(self) -> int:
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> torch.Tensor:
        return torch.tensor(list(_STATE.pack(_signed(self._seed), self._offset)), dtype=torch.uint8, device="cpu")

    def set_state(self, state: torch.Tensor) -> torch.Generator:  # type: ignore[override, unused-ignore]
        if state.device.type != "cpu" or state.dtype is not torch.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        seed, self._offset = _STATE.unpack(bytes(state.tolist()[: _STATE.size]).ljust(_STATE.size, b"\0"))
        self._seed = seed % (1 << 64)
        return self

    def graphsafe_get_state(self) -> torch.Generator:
        return self

    def graphsafe_set_state(self, state: torch.Generator) -> torch.Generator:
        return self.set_state(state.get_state())

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> torch.Generator:
        self._offset = offset
        return self

    def clone_state(self) -> torch.Generator:
        made: DeviceGenerator = DeviceGenerator(self._device, self._seed)
        return made.set_offset(self._offset)


def _signed(seed: int) -> int:
    return seed - (1 << 64) if seed >= 1 << 63 else seed


class _Kind(type):
    """`torch.Generator` as programs call it: of the host, or of the device."""

    def __call__(cls, device: Any = "cpu") -> Any:
        where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return DeviceGenerator(where) if where.type == "cuda" else _HOST(where)

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, _HOST)


def install_generators(devices: int) -> None:
    """Generators of the simulated devices."""
    package: Any = torch
    package.Generator = _Kind("Generator", (), {})
    package.cuda.default_generators = tuple(DeviceGenerator(torch.device("cuda", number)) for number in range(devices))
