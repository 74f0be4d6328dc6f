"""Counters of the CUDA allocator for models that the rules were not written from."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from tests.tools.oracle.eager_cuda import DATA, MOMENTS, Case, check_activations, counted, errors, exported, predicted  # noqa: E402

pytestmark = pytest.mark.torch


class Setting(NamedTuple):
    """Where models were recorded, and how many of them are exact."""

    file: str
    device: str
    torch: str
    least: int
    """The least number of records."""
    exact: float
    worst: float


SETTINGS = (
    Setting("heldout-2.13-sm90.jsonl", "h200", "2.13", 195, 0.92, 0.06),
    Setting("heldout-2.11-sm90.jsonl", "h200", "2.11", 20, 0.95, 0.01),
    Setting("heldout-2.15-sm90.jsonl", "h200", "2.15", 20, 0.95, 0.01),
    Setting("heldout-2.13-sm80.jsonl", "a100", "2.13", 8, 0.95, 0.01),
)
QUICK = ("torchvision:vgg13_bn", "torchvision:mnasnet0_5", "hf:DistilBertForSequenceClassification", "hf:OPTModel")


def _cases(file: str) -> list[Case]:
    return [Case("heldout", json.loads(line)) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("model", QUICK)
def test_quick_models_are_exact(model: str) -> None:
    case = next(case for case in _cases(SETTINGS[0].file) if case.spec["model"] == model)
    if not case.installed:
        pytest.skip(f"{case.package} is not installed")
    memory = predicted(exported(case))
    check_activations(memory)
    for moment in MOMENTS:
        assert counted(memory, moment) == case.truth(moment), moment


@pytest.mark.full
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.file)
def test_heldout_models(setting: Setting) -> None:
    cases = _cases(setting.file)
    assert len(cases) >= setting.least
    if not all(case.installed for case in cases):
        pytest.skip("torchvision and transformers are not installed")
    found: dict[str, dict[tuple[str, str], float]] = {}
    for case in cases:
        memory = predicted(exported(case), setting.device, setting.torch)
        check_activations(memory)
        found[case.name] = errors(case, memory)
    off = {name: {key: f"{error:+.3%}" for key, error in one.items() if error} for name, one in found.items() if any(one.values())}
    print(f"{setting.file}: {len(found) - len(off)} of {len(found)} exact; {off}")
    assert len(off) <= (1 - setting.exact) * len(found), off
    assert max(abs(error) for one in found.values() for error in one.values()) <= setting.worst, off
    # Activations as asked for are within 1 % on nearly all.
    wide = [name for name, one in found.items() if any(abs(one[moment, "requested"]) > 0.01 for moment in MOMENTS)]
    assert len(wide) <= 0.05 * len(found), wide
