"""Captures of live models against recordings of real runs, and against what their files tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irscope.passes.memory.cuda import CudaMemory  # noqa: E402
from irscope.session import capture_model  # noqa: E402
from tests.tools.oracle.capture import Captured, attempt, captured  # noqa: E402
from tests.tools.oracle.capture_vs_file import NAMES, compare  # noqa: E402
from tests.tools.oracle.eager_cuda import (  # noqa: E402
    COUNTERS,
    DATA,
    MOMENTS,
    Case,
    cases,
    check_activations,
    counted,
    errors,
    further_cases,
)
from tests.tools.oracle.fused_models import FUSED  # noqa: E402
from tests.tools.oracle.held_models import HELD  # noqa: E402
from tests.tools.oracle.models import MODELS  # noqa: E402
from tests.tools.zoo.models import catalogue  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = ("torchvision:resnet18", "torchvision:squeezenet1_1", "hf:DistilBertModel")
"""Models that are made in a second."""


@pytest.mark.parametrize("model", QUICK)
def test_quick_models_ask_for_what_a_run_asked_for(model: str) -> None:
    case = next(case for case in cases() if case.spec["model"] == model)
    if not case.installed:
        pytest.skip(f"{case.package} is not installed")
    _check_exact(captured(case))


def _check_exact(one: Captured) -> None:
    check_activations(one.memory)
    assert one.events == one.case.recorded["events"]
    for moment in MOMENTS:
        assert counted(one.memory, moment) == one.case.truth(moment), moment


def _recorded_modules() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "small.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("recorded", _recorded_modules(), ids=lambda recorded: recorded["model"])
def test_small_modules_are_exact(recorded: dict[str, Any]) -> None:
    make, args = next(pair for pair in {**MODELS, **FUSED, **HELD}.items() if pair[0].__name__ == recorded["model"])
    memory = capture_model(make().eval(), args(), device="h200").manager.get(CudaMemory())
    for moment, counters in zip(MOMENTS, (recorded["base"], *recorded["runs"]), strict=True):
        shown = {counter: counters[f"{counter}_bytes"] for counter in COUNTERS}
        expected = {counter: size if isinstance(size, int) else size["peak"] for counter, size in shown.items()}
        assert {counter: getattr(counted(memory, moment), counter) for counter in COUNTERS} == expected, moment


@pytest.mark.full
def test_all_recorded_models() -> None:
    _need_all()
    streams, off = 0, dict.fromkeys(COUNTERS, 0)
    for case in cases():
        one = captured(case)
        check_activations(one.memory)
        streams += one.events == case.recorded["events"]
        for (moment, counter), error in errors(case, one.memory).items():
            if abs(error) > 0.005:
                off[counter] += 1
                print(case.name, moment, counter, f"{error:+.3%}")
    assert streams >= 0.85 * len(cases())
    assert off["requested"] == 0
    assert max(off["allocated"], off["reserved"]) <= 0.1 * len(MOMENTS) * len(cases())


@pytest.mark.full
@pytest.mark.parametrize("case", further_cases(), ids=lambda case: case.name)
def test_models_recorded_later(case: Case) -> None:
    _need_all()
    one = captured(case)
    check_activations(one.memory)
    for key, error in errors(case, one.memory).items():
        assert abs(error) <= 0.005, key


@pytest.mark.full
def test_every_model_of_the_zoo_is_captured() -> None:
    refused, problems = {}, {}
    for name in catalogue():
        one = attempt(name)
        if one.refused:
            refused[name] = one.refused
        if one.problems:
            problems[name] = one.problems
    for package in ("torchvision", "transformers"):
        mine = [name for name, entry in catalogue().items() if entry.package == package]
        failed = [name for name in mine if name in refused]
        print(package, len(mine), failed)
        assert not (package == "torchvision" and failed), {name: refused[name] for name in failed}
        assert package != "transformers" or not mine or len(mine) - len(failed) >= 40
    assert not problems


@pytest.mark.full
def test_files_and_live_models_agree() -> None:
    _need_all()
    pairs = [pair for name in NAMES if (pair := compare(name)) is not None]
    differ = [pair.line() for pair in pairs if pair.error != 0]
    print("\n".join(differ))
    assert len(pairs) >= 40
    assert all(abs(pair.error) <= 0.02 for pair in pairs), differ


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_0", "gpt_neo", "vit"])
def test_a_few_files_and_live_models_agree(name: str) -> None:
    if name not in catalogue():
        pytest.skip("torchvision or transformers is not installed")
    pair = compare(name)
    assert pair.error == 0, pair.line()


def _need_all() -> None:
    if not all(case.installed for case in cases()):
        pytest.skip("torchvision and transformers are not installed")
