"""Peaks and live sets from a file against the storages of real runs, to the byte."""

from __future__ import annotations

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


@pytest.fixture(params=list(MODELS), ids=lambda made: made.__name__)
def case(request: pytest.FixtureRequest) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    return request.param().eval(), MODELS[request.param]()


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


def test_eager(case: tuple[Any, tuple[Any, ...]], tmp_path: Path) -> None:
    model, args = case
    program = read("exported", save_exported(tmp_path / "model.pt2", model, args))
    timeline = Manager(program).get(Liveness())
    assert timeline.model == "eager"
    check(timeline, record_module(model, args), parameter_bytes(program))


def test_graph_executor(case: tuple[Any, tuple[Any, ...]], tmp_path: Path) -> None:
    model, args = case
    path = save_exported(tmp_path / "model.pt2", model, args)
    program = read("exported", path)
    module = torch.export.load(path).module()
    constants = [item for item in vars(module).values() if isinstance(item, torch.Tensor)]
    truth = record(module, args, lambda: [*module.parameters(), *module.buffers(), *constants])
    check(Manager(program).get(Liveness(model="ssa")), truth, parameter_bytes(program))
    check(Manager(program).get(Liveness(model="jit")), truth, parameter_bytes(program))


def test_eager_from_a_trace(case: tuple[Any, tuple[Any, ...]], tmp_path: Path) -> None:
    """A trace tells which line ran, and not what it says: a variable that is bound again later under its name cannot be known."""
    model, args = case
    program = read("torchscript", save_traced(tmp_path / "model.pt", model, args))
    manager = Manager(program)
    predicted = measure(program.graph, manager.get(Ranges(model="eager")), manager.get(Alias())).peak
    truth = record_module(model, args).peak
    if isinstance(model, Locals):
        assert predicted == pytest.approx(truth, rel=0.05)
    else:
        assert predicted == truth


def test_torchscript_interpreter(case: tuple[Any, tuple[Any, ...]], tmp_path: Path) -> None:
    model, args = case
    path = save_traced(tmp_path / "model.pt", model, args)
    program = read("torchscript", path)
    module = torch.jit.load(path)
    truth = record(module, args, lambda: [*module.parameters(), *module.buffers()])
    timeline = Manager(program).get(Liveness(model="jit"))
    assert timeline.undecided == 0
    assert timeline.peak == truth.peak
