"""Reordered files and modules against real runs: equal results, and peaks as predicted, to the byte."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import irscope  # noqa: E402
from irscope.errors import UsageError  # noqa: E402
from tests.tools.oracle.branching_models import BRANCHING, Branches, Choices, picture, sequence  # noqa: E402
from tests.tools.oracle.models import MODELS  # noqa: E402
from tests.tools.oracle.reordered import GAINING, OTHERS, compare, zoo_rows  # noqa: E402
from tests.tools.oracle.storages import record  # noqa: E402
from tests.tools.torch_files.helpers import save_exported  # noqa: E402

pytestmark = pytest.mark.torch

ALL = {**MODELS, **BRANCHING}
OTHER = [pytest.param(cls, marks=pytest.mark.full) for cls in MODELS]


@pytest.mark.parametrize("cls", [*BRANCHING, *OTHER], ids=lambda made: made.__name__)
def test_files(cls: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    args = ALL[cls]()
    path = save_exported(tmp_path / "model.pt2", cls().eval(), args)
    row = compare(cls.__name__, path, args, tmp_path, seconds=2)
    assert row.equal
    assert (row.before, row.after) == (row.measured_before, row.measured_after)
    assert row.bound <= row.after <= row.before


@pytest.mark.slow
def test_some_of_them_gain() -> None:
    gains = {}
    for cls, inputs in BRANCHING.items():
        torch.manual_seed(0)
        found = scheduled(cls().eval(), *inputs())
        gains[cls.__name__] = found.peak_before_bytes - found.peak_after_bytes
    assert sum(gain > 0 for gain in gains.values()) >= 4, gains


def scheduled(*args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return irscope.scheduled(*args, seconds=2, **options)


def test_a_module_and_its_exported_program(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args = Branches().eval(), picture()
    expected = model(*args)
    program = torch.export.export(model, args)
    for subject, given in ((model, args), (program, ())):
        found = scheduled(subject, *given)
        assert found.proven_optimal and found.lower_bound_bytes == found.peak_after_bytes < found.peak_before_bytes
        module = found.module
        found.program.graph_module.graph.lint()
        assert torch.equal(module(*args), expected)
        assert record(module, args, lambda run=module: [*run.parameters(), *run.buffers()]).peak == found.peak_after_bytes
        # The interpreter lets go of values as the generated code does.
        runner = torch.fx.Interpreter(module)
        assert torch.equal(runner.run(*args), expected)
        assert record(runner.run, args, lambda run=module: [*run.parameters(), *run.buffers()]).peak == found.peak_after_bytes
    found.save(tmp_path / "scheduled.pt2")
    assert torch.equal(torch.export.load(tmp_path / "scheduled.pt2").module()(*args), expected)


def test_sizes_stay_open() -> None:
    """The order is found for one size, and valid for all."""
    torch.manual_seed(0)
    model, batch = Branches().eval(), torch.export.Dim("batch", max=64)
    program = torch.export.export(model, picture(), dynamic_shapes=({0: batch},))
    found = scheduled(program, bind={"batch": 4})
    assert found.order.is_new
    for size in (2, 5):
        x = torch.rand(size, 3, 32, 32)
        assert torch.equal(found.module(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("decomposed", [False, True])
def test_graphs_inside_sizes_and_state(decomposed: bool) -> None:
    torch.manual_seed(0)
    batch, length = torch.export.Dim("batch", max=9), torch.export.Dim("length", max=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Choices().eval(), sequence(), dynamic_shapes=({0: batch, 1: length},))
        program = program.run_decompositions() if decomposed else program
    found = scheduled(program, bind={"batch": 2, "seq": 24})
    assert found.order.is_new
    for size in (3, 4):
        x = torch.rand(size, 7, 16)
        results = []
        for one in (program.module(), found.module):
            one.runs.zero_()
            results.append((one(x), one.runs.clone()))
        assert all(map(torch.equal, *results))
        assert results[0][1] == 1


def test_what_has_no_graph_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        irscope.scheduled(Branches())
    assert caught.value.code == "IRS362"
    with pytest.raises(UsageError) as caught:
        irscope.scheduled(print)  # type: ignore[arg-type]  # what users do
    assert caught.value.code == "IRS362"


@pytest.mark.full
def test_zoo() -> None:
    rows = list(zoo_rows([*GAINING, *OTHERS]))
    if len(rows) < 15:
        pytest.skip("torchvision and transformers are not installed")
    assert not [row.name for row in rows if not row.exact or not row.equal]
    gains = {row.name for row in rows if row.after < row.before}
    assert gains >= {"regnet_y_16gf", "resnext101_32x8d", "swin_t", "gpt2", "layoutlm"} & {row.name for row in rows}
