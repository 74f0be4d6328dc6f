"""Joules and grams are intervals of stated constants times stated amounts."""

from __future__ import annotations

from typing import Any

import pytest

from irscope.devices.catalogue import all_devices, find_device
from irscope.devices.energy import constants
from irscope.errors import UsageError
from irscope.passes.energy import Energy, Spent
from irscope.passkit.manager import Manager
from irscope.report.values import Quantity
from tests.unit.passes.test_roofline import product


def spent(**options: Any) -> Spent:
    return Manager(product(1024, 1024, 1024, "bf16")).get(Energy(**options))


def test_the_parts_are_amounts_times_constants() -> None:
    found, known = spent(device="h200"), constants()
    parts = {term.name: term for term in found.terms}
    flops, moved = 2 * 1024**3, 3 * 2 * 1024**2
    assert parts["arithmetic bf16"].amount == (flops, flops) and parts["caches"].amount == (moved, moved)
    assert parts["main memory"].amount == (moved, moved), "inputs and outputs are all there is"
    low = flops * known.arithmetic["bf16"].lo + moved * (known.memory["gpu"].lo + known.cache.lo) + found.seconds * 73.7
    assert found.joules[0] == pytest.approx(low)


def test_the_high_end_of_arithmetic_is_the_whole_chip_at_its_peak() -> None:
    h200 = find_device("h200")
    figure = constants().flop(h200, "bf16")
    assert figure is not None and figure.hi == pytest.approx(700 / 989.4e12)


@pytest.mark.parametrize("device", [device for device in all_devices() if device.power is not None], ids=lambda device: device.name)
def test_the_interval_is_one_and_agrees_with_the_rated_power(device: Any) -> None:
    """A run at its bound, at rated power, lies between a hundredth of the high end and a hundred times the low one."""
    found = spent(device=device.name)
    low, high = found.joules
    assert high is not None and 0 < low < high
    rated = device.power.hi * found.seconds
    assert low / 100 < rated < high * 100


def test_a_device_without_power_has_no_upper_end() -> None:
    low, high = spent(device="tpu-v5e").joules
    assert low > 0 and high is None


def test_carbon_needs_a_country() -> None:
    everywhere, germany = spent(device="h200"), spent(device="h200", country="deu", pue=1.2)
    low, high = germany.grams
    joules = germany.joules
    assert joules[1] is not None and high is not None
    assert low == pytest.approx(joules[0] / 3.6e6 * 1.2 * 381) and high == pytest.approx(joules[1] / 3.6e6 * 1.2 * 381)
    assert everywhere.carbon[0].lo == 41 and everywhere.carbon[0].hi == 713
    assert spent(device="h200", grid=100.0).carbon[0].hi == 100
    with pytest.raises(UsageError, match=r"no grid 'atlantis'.*DEU"):
        spent(country="atlantis")


@pytest.mark.parametrize("options", [{"runs": 0}, {"slower": 0.5}, {"pue": 0.9}, {"grid": -1.0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spent(**options)


def test_runs_add_up() -> None:
    once, often = spent(device="h200").joules, spent(device="h200", runs=1000).joules
    assert often == (pytest.approx(1000 * once[0]), pytest.approx(1000 * (once[1] or 0)))


def test_no_number_stands_alone() -> None:
    [result] = Manager(product(64, 64, 64)).run([Energy(device="a100")])
    report = result.report()
    for key in ("joules", "grams_of_co2"):
        cell = report.summary[key]
        assert isinstance(cell, Quantity) and cell.interval is not None and " to " in str(cell.value)
    inputs, carbon = report.tables
    assert all(row[-2] and row[-1] for table in (inputs, carbon) for row in table.rows()), "each constant has a source and a date"
