"""Peaks and live sets from a file against the storages of real runs, to the byte."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irscope.ir.program import Program  # noqa: E402
from irscope.passes.graph.alias import Alias  # noqa: E402
from irscope.passes.lifetimes.ranges import Ranges  # noqa: E402
from irscope.passes.lifetimes.timeline import Timeline, measure  # noqa: E402
from irscope.passes.memory.liveness import Liveness  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from tests.tools.oracle.models import MODELS, Locals  # noqa: E402
from tests.tools.oracle.storages import Recording, record, record_module  # noqa: E402
from tests.tools.torch_files.helpers import read, save_exported, save_traced  # noqa: E402

pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Case:
    """A model with its files and its eager run, each made once."""

    model: Any
    args: tuple[Any, ...]
    folder: Path

    @cached_property
    def exported(self) -> Path:
        return save_exported(self.folder / "model.pt2", self.model, self.args)

    @cached_property
    def traced(self) -> Path:
        return save_traced(self.folder / "model.pt", self.model, self.args)

    @cached_property
    def eager(self) -> Recording:
        return record_module(self.model, self.args)


@pytest.fixture(scope="module", params=list(MODELS), ids=lambda made: made.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.manual_seed(0)
    return Case(request.param().eval(), MODELS[request.param](), tmp_path_factory.mktemp("lifetimes"))


def check(timeline: Timeline, truth: Recording, parameters: int) -> None:
    """The peak, and the sizes of all that is alive there."""
    inside = timeline.inside.get(timeline.peak_step, 0)
    living = [one.size for one in timeline.living(timeline.peak_step)]
    assert timeline.peak == truth.peak
    # Parameters must not pass for activations: here the two are never the same.
    assert timeline.peak != parameters
    assert sum(living) + inside == truth.peak
    if not inside:
        assert sorted(living) == sorted(storage.size for storage in truth.at_peak)


def parameter_bytes(program: Program) -> int:
    return sum(weight.type.nbytes for weight in program.weights())


def test_eager(case: Case) -> None:
    program = read("exported", case.exported)
    timeline = Manager(program).get(Liveness())
    assert timeline.model == "eager"
    check(timeline, case.eager, parameter_bytes(program))


def test_graph_executor(case: Case) -> None:
    program = read("exported", case.exported)
    module = torch.export.load(case.exported).module()
    constants = [item for item in vars(module).values() if isinstance(item, torch.Tensor)]
    truth = record(module, case.args, lambda: [*module.parameters(), *module.buffers(), *constants])
    check(Manager(program).get(Liveness(model="ssa")), truth, parameter_bytes(program))
    check(Manager(program).get(Liveness(model="jit")), truth, parameter_bytes(program))


def test_eager_from_a_trace(case: Case) -> None:
    """A trace tells which line ran, and not what it says: a variable that is bound again later under its name cannot be known."""
    program = read("torchscript", case.traced)
    manager = Manager(program)
    predicted = measure(program.graph, manager.get(Ranges(model="eager")), manager.get(Alias())).peak
    truth = case.eager.peak
    if isinstance(case.model, Locals):
        assert predicted == pytest.approx(truth, rel=0.05)
    else:
        assert predicted == truth


def test_torchscript_interpreter(case: Case) -> None:
    program = read("torchscript", case.traced)
    module = torch.jit.load(case.traced)
    truth = record(module, case.args, lambda: [*module.parameters(), *module.buffers()])
    timeline = Manager(program).get(Liveness(model="jit"))
    assert timeline.undecided == 0
    assert timeline.peak == truth.peak
