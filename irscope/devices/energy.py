"""Constants of energy and carbon, each an interval with its source."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from irscope.devices.profile import DeviceProfile, Figure

PICO = 1e-12


@dataclass(frozen=True)
class Constants:
    """What a joule is made of."""

    arithmetic: Mapping[str, Figure]
    """Joules a FLOP by element type: the arithmetic alone."""
    cache: Figure
    """Joules a byte."""
    memory: Mapping[str, Figure]
    """Joules a byte of main memory by kind of device."""
    idle_share: Figure
    """Part of the rated power that an idle device draws."""
    pue: Figure
    """Power that a data centre draws for each watt of its machines."""
    grids: Mapping[str, Figure]
    """Grams of CO2 equivalent a kWh by country."""

    def idle_power(self, device: DeviceProfile) -> Figure | None:
        """Watts of an idle device: its own figure, else a share of its rated power."""
        if device.idle_power is not None:
            return device.idle_power
        if device.power is None:
            return None
        share = self.idle_share
        return Figure(device.power.lo * share.lo, device.power.hi * share.hi, share.source, share.date)

    def flop(self, device: DeviceProfile, dtype: str) -> Figure | None:
        """Joules a FLOP: from the arithmetic alone to the rated power spread over the peak rate."""
        alone = self.arithmetic.get(dtype)
        rate = device.matrix.get(dtype)
        if alone is None:
            return None
        if device.power is None or rate is None:
            return alone
        whole = device.power.hi / rate.lo
        if whole <= alone.lo:
            # The chip is newer than the constants: what it needs at full load, with everything, is all that is known.
            return Figure(whole / 10, whole, f"a tenth to all of {device.title}'s rated power at its peak rate", device.power.date)
        return Figure(alone.lo, max(whole, alone.lo), f"{alone.source}; at most {device.title}'s rated power at its peak rate", alone.date)


@functools.cache
def constants() -> Constants:
    """The constants that come with irscope."""
    data: dict[str, Any] = json.loads(files("irscope.devices").joinpath("energy.json").read_text(encoding="utf-8"))
    sources: dict[str, dict[str, str]] = data["sources"]

    def figure(entry: Mapping[str, Any], scale: float = 1.0) -> Figure:
        named = [sources[key] for key in entry["source"]]
        how = f" ({entry['how']})" if "how" in entry else ""
        text = "; ".join(source["text"] for source in named) + how
        return Figure(entry["lo"] * scale, entry["hi"] * scale, text, max(source["date"] for source in named))

    grid = [sources[key] for key in data["grams_source"]]
    return Constants(
        {dtype: figure(entry, PICO) for dtype, entry in data["arithmetic_pj"].items()},
        figure(data["cache_pj_per_byte"], PICO),
        {kind: figure(entry, PICO) for kind, entry in data["memory_pj_per_byte"].items()},
        figure(data["idle_share"]),
        figure(data["pue"]),
        {name: Figure(grams, grams, grid[0]["text"], grid[0]["date"]) for name, grams in data["grams_per_kwh"].items()},
    )
