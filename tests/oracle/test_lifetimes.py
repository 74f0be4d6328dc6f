"""Peaks and live sets from a file against the storages of real runs, to the byte."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import irscope  # noqa: E402
from irscope.cli.main import main  # noqa: E402
from irscope.ir.program import Program  # noqa: E402
from irscope.passes.graph.alias import Alias  # noqa: E402
from irscope.passes.lifetimes.timeline import Timeline, measure  # noqa: E402
from irscope.passes.lifetimes.traced import Ranges  # noqa: E402
from irscope.passes.memory.liveness import Liveness  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from irscope.report.values import Provenance, Quantity  # noqa: E402
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


# ----------------------------------------------------------------------------------------------------
# What Python keeps in ways that a file does not show.


def _conv() -> Any:
    return torch.nn.Conv2d(8, 8, 3, padding=1)


class Layers(torch.nn.Module):
    """Layers in a row, whose results are kept somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_conv() for _ in range(6))


class InDict(Layers):
    def forward(self, x: Any) -> Any:
        found = {}
        for place, layer in enumerate(self.layers):
            x = layer(x)
            found[place] = x
        return x


class InDictByItem(Layers):
    def forward(self, x: Any) -> Any:
        found = {}
        for place, layer in enumerate(self.layers):
            found[place] = layer(x)
            x = found[place]
        return x


class Appended(Layers):
    def forward(self, x: Any) -> Any:
        found = []
        for layer in self.layers:
            found.append(layer(x))
            x = found[-1]
        return x


class InTuple(Layers):
    def forward(self, x: Any) -> Any:
        hidden: tuple[Any, ...] = ()
        for layer in self.layers:
            hidden = (*hidden, x)
            x = layer(x)
        return x


class InAttribute(Layers):
    def forward(self, x: Any) -> Any:
        self.saved = []
        for layer in self.layers:
            x = layer(x)
            self.saved.append(x)
        return x


class Popped(Layers):
    def forward(self, x: Any) -> Any:
        first, second, third, fourth, *_ = self.layers
        skips = []
        x = first(x)
        skips.append(x)
        x = second(x)
        skips.append(x)
        x = third(torch.cat([x, skips.pop()], 1)[:, :8])
        return fourth(torch.cat([x, skips.pop()], 1)[:, :8])


class WithoutBlanks(Layers):
    # fmt: off
    def forward(self, x: Any) -> Any:
        a=self.layers[0](x)
        b=self.layers[1](a)
        c=self.layers[2](b)
        d=self.layers[3](c)
        return self.layers[4](d) + 1
    # fmt: on


KEEPERS = (InDict, InDictByItem, Appended, InTuple, InAttribute, Popped, WithoutBlanks)
SHOWN = (InDictByItem, Appended, WithoutBlanks)
"""Those of which the lines that make tensors show what keeps them."""


@pytest.mark.parametrize("kind", ["exported", "torchscript"])
@pytest.mark.parametrize("made", KEEPERS, ids=lambda made: made.__name__)
def test_what_python_holds_is_within_the_interval(made: Any, kind: str, tmp_path: Path) -> None:
    model, args = made().eval(), (torch.zeros(1, 8, 16, 16),)
    truth = record_module(model, args).peak
    if hasattr(model, "saved"):
        del model.saved
    save, name = (save_exported, "model.pt2") if kind == "exported" else (save_traced, "model.pt")
    timeline = Manager(read(kind, save(tmp_path / name, model, args))).get(Liveness())
    assert timeline.peak_by_lives is not None
    low, high = timeline.peak_by_lives
    assert low <= truth <= high and low <= timeline.peak <= high
    if made in SHOWN and kind == "exported":
        assert timeline.peak == truth


def test_modelled_lives_are_marked_and_running_the_file_is_exact(tmp_path: Path) -> None:
    path = save_exported(tmp_path / "model.pt2", InDict().eval(), (torch.zeros(1, 8, 16, 16),))
    model = irscope.load(path)
    activations = irscope.run(model, "liveness")["liveness"].report().summary["activation_peak_bytes"]
    assert isinstance(activations, Quantity) and activations.provenance is Provenance.MODELLED
    assert irscope.run(model, "liveness{model=ssa}")["liveness"].report().summary["activation_peak_bytes"] == 2 * 8 * 16 * 16 * 4
    card = irscope.card(model, device="epyc-7763")
    assert card.memory.peak.provenance is Provenance.MODELLED
    assert card.memory.as_file is not None and card.memory.as_file[0].provenance is Provenance.EXACT


def test_strict_refuses_modelled_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save_exported(tmp_path / "model.pt2", InDict().eval(), (torch.zeros(1, 8, 16, 16),)))
    assert main(["run", "--strict", "--passes", "liveness", path]) == 5
    assert "live ranges are modelled by lines of source" in capsys.readouterr().err
    assert main(["run", "--strict", "--passes", "liveness{model=ssa}", path]) == 0
