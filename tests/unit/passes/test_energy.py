"""Joules and grams are intervals of stated constants times stated amounts."""

from __future__ import annotations

from typing import Any

import pytest

from irscope.devices.catalogue import all_devices, find_device
from irscope.errors import UsageError
from irscope.ir.parser import parse_program
from irscope.passes.cost.energy import Energy, Spent, constants
from irscope.passkit.manager import Manager
from irscope.report.report import Report
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
    assert germany.grams is not None
    low, high = germany.grams
    joules = germany.joules
    assert joules[1] is not None and high is not None
    assert low == pytest.approx(joules[0] / 3.6e6 * 1.2 * 381) and high == pytest.approx(joules[1] / 3.6e6 * 1.2 * 381)
    assert everywhere.grams is None, "nobody said whose grid it is"
    assert spent(device="h200", grid=100.0).grams is not None
    with pytest.raises(UsageError, match=r"no grid 'atlantis'.*DEU"):
        spent(country="atlantis")


@pytest.mark.parametrize("options", [{"runs": 0}, {"slower": 0.5}, {"pue": 0.9}, {"grid": -1.0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spent(**options)


def test_runs_add_up() -> None:
    once, often = spent(device="h200").joules, spent(device="h200", runs=1000).joules
    assert often == (pytest.approx(1000 * once[0]), pytest.approx(1000 * (once[1] or 0)))


def test_numbers_are_numbers_within_their_intervals() -> None:
    [result] = Manager(product(64, 64, 64)).run([Energy(device="a100", country="DEU")])
    report = result.report()
    found: Any = report.to_json()
    for key in ("joules", "watts", "flops_per_joule", "grams_of_co2"):
        low, high = found["intervals"][key]
        number = found["summary"][key]
        assert isinstance(number, float) and isinstance(low, float) and isinstance(high, float)
        assert 0 < low < number < high and found["provenance"][key] == "modelled"
    _, inputs, carbon = report.tables
    assert all(row[-2] and row[-1] for table in (inputs, carbon) for row in table.rows()), "each constant has a source and a date"


def test_watts_and_flops_per_joule_agree_with_joules_and_seconds() -> None:
    found = spent(device="h200")
    low, high = found.joules
    least, most = found.watts
    assert high is not None and most is not None
    assert least * found.seconds <= low and most <= found.device.power.hi  # type: ignore[union-attr]  # an H200 has a figure
    assert least * found.seconds * found.slower <= high
    assert found.flops_per_joule == (pytest.approx(2 * 1024**3 / high), pytest.approx(2 * 1024**3 / low))


def test_joules_by_class_add_up_to_the_whole() -> None:
    report = reported("%r: ?[*] = nn.relu(%h)\n  %y: ?[*] = nn.softmax(%r) {axis=1}")
    rows = list(report.tables[0].rows())
    assert sorted(str(row[0]) for row in rows) == ["contraction", "elementwise", "softmax"]
    joules: Any = report.summary["joules"]
    for end in ("value", "lo", "hi"):
        assert sum(getattr(row[-1], end) for row in rows) == pytest.approx(getattr(joules, end))


def test_without_a_country_carbon_is_unknown_and_says_why() -> None:
    found: Any = reported("%y: ?[*] = nn.relu(%h)").to_json()
    assert found["summary"]["grams_of_co2"] is None and "country" in found["remarks"]["grams_of_co2"]
    assert any("country=DEU" in note for note in found["notes"])


def test_energy_with_nodes_that_nobody_knows_has_no_upper_end() -> None:
    report = reported("%y: ?[*] = acme.mystery(%h)")
    joules: Any = report.summary["joules"]
    assert joules.lo > 0 and joules.hi is None
    (unknown,) = [row for row in report.tables[0].rows() if row[0] == "unknown"]
    assert [getattr(cell, "shown", cell) for cell in unknown] == ["unknown", 1, None, None, None]


def reported(body: str) -> Report:
    head = "irscope 1\ngraph @main {\n  input %x: f32[64,64]\n  param %w: f32[64,64]\n  %h: ?[*] = nn.linear(%x, %w)\n"
    return Manager(parse_program(f"{head}  {body}\n  return %y\n}}\n")).run([Energy(device="h200")])[0].report()
