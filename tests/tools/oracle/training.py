"""Predicted peaks of training steps beside recorded ones: `python -m tests.tools.oracle.training [--models a,b] [--further] [--simulate]`.

With `--simulate` the loop itself runs under `irscope.simulate`, every case in a process of its own; else a step is captured and predicted.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irscope.memory.tape import Bytes
from irscope.passes.training.memory import StepMemory, TrainingMemory
from tests.forked import python
from tests.tools.oracle.eager_cuda import on_one_stream
from tests.tools.oracle.training_truth import expand

DATA = Path(__file__).parents[2] / "data" / "training" / "torch-2.13.0-sm90.jsonl"
COUNTERS = ("requested", "allocated", "reserved")
FIGURE = ("sgd", "adamw")


@dataclass(frozen=True)
class Case:
    """One recorded model under one setting."""

    recorded: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.recorded['model']}-{self.recorded['setting']}"

    def truth(self, step: int) -> Bytes:
        """Peaks of a step."""
        counted = self.recorded["steps"][step]
        return on_one_stream(*(counted[f"{counter}_bytes"]["peak"] for counter in COUNTERS))

    @property
    def events(self) -> list[int]:
        """Signed sizes of the steady step; empty where they were not kept."""
        return expand(self.recorded["events"]) if "events" in self.recorded else []


@functools.cache
def cases() -> dict[str, Case]:
    """All recorded ones by key."""
    return {case.key: case for case in (Case(json.loads(line)) for line in DATA.read_text("utf-8").splitlines())}


def predict(case: Case) -> tuple[StepMemory, float]:
    """What irscope says, from a live module on; with the seconds that took."""
    import torch

    import irscope
    from tests.tools.oracle.training_models import SETTINGS, build

    setting = next(one for one in SETTINGS if one.name == case.recorded["setting"])
    torch.set_num_threads(1)
    trained = build(case.recorded["model"])
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = irscope.capture_training(
            trained.module,
            trained.kwargs or trained.args,
            loss=trained.objective,
            optimizer=setting.build_optimizer,
            set_to_none=setting.set_to_none,
            accumulate=setting.accumulate,
            autocast=setting.autocast,
        )
        memory: StepMemory = model.manager.get(TrainingMemory())
    return memory, time.monotonic() - started


def simulate(case: Case) -> tuple[Bytes, float]:
    """What the loop itself says under simulation, in its last step; with the seconds that took."""
    started = time.monotonic()
    code = "import json, sys; from tests.tools.oracle.training_truth import simulated; print(json.dumps(simulated(*sys.argv[1:])))"
    done = python(code, case.recorded["model"], case.recorded["setting"])
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    counted = json.loads(done.stdout.splitlines()[-1])[-1]
    return on_one_stream(*(counted[f"{counter}_bytes"]["peak"] for counter in COUNTERS)), time.monotonic() - started


def main() -> None:
    """The table as Markdown."""
    from tests.tools.oracle.training_models import FURTHER, MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", default=",".join(FIGURE))
    parser.add_argument("--models", default="")
    parser.add_argument("--further", action="store_true", help="models that no rule was made with")
    how = {"action": "store_const", "const": simulate, "default": _steady}
    parser.add_argument("--simulate", dest="by", help="run the loop itself under irscope.simulate", **how)
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    names = chosen.models.split(",") if chosen.models else list(FURTHER if chosen.further else MODELS)
    settings = [case.recorded["setting"] for case in cases().values()] if chosen.settings == "all" else chosen.settings.split(",")
    print("| model | setting | requested | error | allocated | error | reserved | error | seconds |\n|---|---|--:|--:|--:|--:|--:|--:|--:|")
    exact = total = 0
    for name in names:
        for setting in dict.fromkeys(settings):
            case = cases().get(f"{name}-{setting}")
            if case is None:
                continue
            try:
                found, seconds = chosen.by(case)
            except Exception as error:  # the table goes on
                print(f"| {name} | {setting} | {type(error).__name__}: {str(error)[:80]} |", flush=True)
                continue
            truth = case.truth(-1)
            cells = [f"{getattr(truth, counter):,} | {_off(getattr(found, counter), getattr(truth, counter))}" for counter in COUNTERS]
            print(f"| {name} | {setting} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)
            total += 1
            exact += found == truth
    print(f"\n{exact} of {total} exact in all three counters", file=sys.stderr)


def _steady(case: Case) -> tuple[Bytes, float]:
    memory, seconds = predict(case)
    return memory.steady.peak, seconds


def _off(found: int, truth: int) -> str:
    return "exact" if found == truth else f"{found / truth - 1:+.3%}"


if __name__ == "__main__":
    main()
