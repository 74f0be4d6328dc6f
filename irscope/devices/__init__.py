"""Devices that memory, time and energy are meant for: a catalogue of data files, and the target a run is analysed for."""

from __future__ import annotations

from irscope.devices.catalogue import Target, device_names, find_device, target_of
from irscope.devices.profile import DeviceProfile, Figure

__all__ = ["DeviceProfile", "Figure", "Target", "device_names", "find_device", "target_of"]
