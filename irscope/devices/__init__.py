"""Devices that memory, time and energy are meant for: a catalogue of data files, and the target a run is analysed for."""

from __future__ import annotations

from irscope.devices.catalogue import device_names, find_device
from irscope.devices.profile import DeviceProfile, Figure
from irscope.devices.target import Target, target_of

__all__ = ["DeviceProfile", "Figure", "Target", "device_names", "find_device", "target_of"]
