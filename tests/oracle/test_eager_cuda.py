"""Counters of PyTorch's CUDA allocator, predicted from files alone, against recorded ones."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.tools.oracle.eager_cuda import (  # noqa: E402
    COUNTERS,
    DATA,
    MIB,
    MOMENTS,
    Case,
    asked,
    cases,
    check_activations,
    counted,
    errors,
    exported,
    further_cases,
    predicted,
    published,
)
from tests.tools.oracle.fused_models import FUSED  # noqa: E402
from tests.tools.oracle.held_models import HELD  # noqa: E402
from tests.tools.oracle.models import MODELS  # noqa: E402
from tests.tools.torch_files.helpers import save_exported  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = ("torchvision:resnet18", "torchvision:squeezenet1_1", "torchvision:mobilenet_v3_small", "torchvision:alexnet", "hf:DistilBertModel")
"""Models that are exported in a second."""


def _of(model: str) -> Case:
    case = next(case for case in cases() if case.spec["model"] == model)
    if not case.installed:
        pytest.skip(f"{case.package} is not installed")
    return case


def test_all_models_are_recorded() -> None:
    assert len(cases()) == 33


@pytest.mark.parametrize("model", QUICK)
def test_quick_models_are_exact(model: str) -> None:
    case = _of(model)
    memory = predicted(exported(case))
    check_activations(memory)
    for moment in MOMENTS:
        assert counted(memory, moment) == case.truth(moment), moment


def _recorded_modules() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "small.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("recorded", _recorded_modules(), ids=lambda recorded: recorded["model"])
def test_small_modules_are_exact(recorded: dict[str, Any], tmp_path: Path) -> None:
    make, args = next(pair for pair in {**MODELS, **FUSED, **HELD}.items() if pair[0].__name__ == recorded["model"])
    memory = predicted(save_exported(tmp_path / "model.pt2", make().eval(), args()))
    check_activations(memory)
    for moment, counters in zip(MOMENTS, (recorded["base"], *recorded["runs"]), strict=True):
        shown = {counter: counters[f"{counter}_bytes"] for counter in COUNTERS}
        expected = {counter: size if isinstance(size, int) else size["peak"] for counter, size in shown.items()}
        assert {counter: getattr(counted(memory, moment), counter) for counter in COUNTERS} == expected, moment


def test_sizes_of_the_events_in_order() -> None:
    case = _of("torchvision:squeezenet1_1")
    memory = predicted(exported(case))
    # What dies in one statement dies in an order that no counter tells.
    assert _sorted_frees(asked(memory)) == _sorted_frees(case.recorded["events"])


def _sorted_frees(events: list[int]) -> list[int]:
    found: list[int] = []
    run: list[int] = []
    for event in (*events, 0):
        if event < 0:
            run.append(event)
            continue
        found.extend(sorted(run))
        found.append(event)
        run = []
    return found[:-1]


@pytest.mark.parametrize("name", ["alexnet", "mobilenet_v3_small"])
def test_published_peaks_of_small_models(name: str) -> None:
    _check_published(name, 0.01)


@pytest.mark.full
@pytest.mark.parametrize(("name", "within"), [("vgg16", 0.01), ("resnet50", 0.005 * 109.37), ("resnet101", 0.005 * 181.98)])
def test_published_peaks_with_modelled_workspace(name: str, within: float) -> None:
    _check_published(name, within)


def _check_published(name: str, within: float) -> None:
    memory = predicted(exported(_of(f"torchvision:{name}")), "rtx3090")
    shown = published()[name]
    assert abs(counted(memory, "before").allocated / MIB - shown["baseline"]) < 0.01
    assert abs(counted(memory, "cold").allocated / MIB - shown["peak"]) < within
    assert abs(counted(memory, "cold").reserved / MIB - shown["reserved"]) <= 2


@pytest.mark.full
@pytest.mark.parametrize("recorded", [cases, further_cases], ids=lambda recorded: recorded.__name__)
def test_all_recorded_models(recorded: Callable[[], tuple[Case, ...]]) -> None:
    if any(importlib.util.find_spec(package) is None for package in ("torchvision", "transformers")):
        pytest.skip("torchvision and transformers are not installed")
    found: dict[str, dict[tuple[str, str], float]] = {}
    for case in recorded():
        memory = predicted(exported(case))
        check_activations(memory)
        found[case.name] = errors(case, memory)
    for moment in MOMENTS:
        for counter, enough, worst in (("requested", 0.0, 0.01), ("allocated", 0.005, 0.02), ("reserved", 0.005, 0.02)):
            off = {name: one[moment, counter] for name, one in found.items() if abs(one[moment, counter]) > enough}
            print(moment, counter, {name: f"{error:+.3%}" for name, error in off.items()})
            assert len(off) <= 0.1 * len(found), (moment, counter, off)
            assert max(map(abs, off.values()), default=0) <= worst, (moment, counter, off)
