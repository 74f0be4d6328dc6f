"""Recorded training steps: of a model in a loop of irscope's own, and of scripts as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from irscope.errors import PassError  # noqa: E402  # only where torch is installed
from irscope.measure.record.process import record_in_process  # noqa: E402
from irscope.measure.record.request import Loop, Options, Request  # noqa: E402
from irscope.recording import ModelRecord, Recording, peak_of, read_recording, without_workspaces  # noqa: E402
from irscope.tools.capture import STEP_FACTORY  # noqa: E402
from irscope.tools.recorded import peak_parts, recording_report, spent_of, time_tables  # noqa: E402
from irscope.training import StepOptions, StepSetup  # noqa: E402
from tests.forked import python  # noqa: E402

MODEL = """
import torch
from torch import nn

def build(batch: int = 4):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    return net, (torch.randn(batch, 3, 8, 8),), None, lambda parameters: torch.optim.AdamW(parameters)
"""
LOOP = """
import sys
import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(int(sys.argv[1])):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
print("ran to its end", file=sys.stderr)
"""


def of_model(tmp_path: Path, step: StepOptions | None = None) -> Recording:
    script = tmp_path / "model.py"
    script.write_text(MODEL)
    name = f"{script}:build"
    request = Request(
        ModelRecord(name, "module", str(script)),
        Options(repeats=2, warmup=2, threads=1),
        str(tmp_path / "r.jsonl"),
        factory=STEP_FACTORY,
        loop=Loop(step=step or StepOptions()),
    )
    return record_in_process(request)


def of_script(tmp_path: Path, text: str, *arguments: str, stop: bool = False, warmup: int = 2) -> Recording:
    script = tmp_path / "loop.py"
    script.write_text(text)
    options = Options(repeats=2, warmup=warmup, threads=1)
    request = Request(
        ModelRecord("loop", "program", str(script)), options, str(tmp_path / "r.jsonl"), loop=Loop(str(script), arguments, stop=stop)
    )
    return record_in_process(request)


@pytest.mark.slow
def test_bytes_of_a_step_are_those_that_are_predicted_for_the_processor(tmp_path: Path) -> None:
    """Two ways to the same bytes: the step run with values, and captured without any."""
    from irscope.frontends.base import LoadOptions
    from irscope.passkit.settings import Settings
    from irscope.tools.capture import open_training
    from irscope.tools.train import memory_of

    found = of_model(tmp_path)
    assert found.complete and found.is_step and not found.problems
    model = open_training(f"{tmp_path / 'model.py'}:build", LoadOptions(), StepSetup(), Settings(device="epyc-7763"))
    predicted = memory_of(model)
    before = found.counter("before")
    assert before is not None and before.requested is not None
    assert before.requested.current == predicted.before.requested
    assert sum(one.bytes for one in found.held) == predicted.steps[-2].after.requested
    for run, step, base in (("cold", 0, before.requested.current), ("warm", -1, predicted.steps[-2].after.requested)):
        assert base + peak_of(without_workspaces(found.run(run))).bytes == predicted.steps[step].peak.requested
    # A step leaves what it found.
    assert sum(event.bytes for event in found.run("warm")) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("forked_recorder")
def test_every_operator_has_its_phase_module_line_and_time(tmp_path: Path) -> None:
    found = of_model(tmp_path)
    assert {op.phase for op in found.ops} == {"forward", "backward", "optimizer"}
    order = [op.phase for op in found.ops]
    assert order == sorted(order, key=["forward", "backward", "optimizer"].index)
    (backward,) = (op for op in found.ops if op.op == "aten::convolution_backward")
    assert backward.scope == "0" and backward.phase == "backward"
    assert all(op.time is not None and op.time.n == 2 for op in found.ops)
    kinds = {event.category for event in found.run("warm")}
    assert {"gradient", "activation", "temporary"} <= kinds


@pytest.mark.usefixtures("forked_recorder")
def test_a_script_runs_as_it_is_and_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = of_script(tmp_path, LOOP, "12")
    assert "ran to its end" in capfd.readouterr().err
    assert found.complete and [op.code for op in found.ops if op.op == "aten::addmm"] == ["loop.py:11", "loop.py:11"]
    (backward,) = (op for op in found.ops if op.op == "aten::threshold_backward")
    assert (backward.phase, backward.scope, backward.code) == ("backward", "1", "loop.py:11")
    assert found.ops[0].phase == "data"
    assert found.times("plain") is not None and found.times("profiled") is not None


@pytest.mark.usefixtures("forked_recorder")
def test_a_script_is_ended_where_that_is_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = of_script(tmp_path, LOOP, "100000", stop=True)
    assert found.complete and "ran to its end" not in capfd.readouterr().err


@pytest.mark.usefixtures("forked_recorder")
def test_a_script_without_steps_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PassError, match="ended without a step") as caught:
        of_script(tmp_path, "import torch\ntorch.ones(3).sum()\n")
    assert caught.value.code == "IRS483"


@pytest.mark.usefixtures("forked_recorder")
def test_too_few_steps_are_said(tmp_path: Path) -> None:
    found = of_script(tmp_path, LOOP, "2")
    assert not found.complete and "step 3 is the first that is recorded" in found.problems[-1].text
    found = of_script(tmp_path, LOOP, "5", warmup=0)
    assert found.ops and "of 2 were timed" in found.problems[-1].text


@pytest.mark.usefixtures("forked_recorder")
def test_a_script_that_fails_leaves_what_was_recorded(tmp_path: Path) -> None:
    text = LOOP.replace("    x = torch.randn(8, 16)\n", "    x = torch.randn(8, 16 if step < 6 else 3)\n")
    found = of_script(tmp_path, text, "100")
    assert not found.complete and found.ops and "RuntimeError" in found.problems[-1].text


@pytest.mark.usefixtures("forked_recorder")
def test_backwards_without_an_optimizer_and_forwards_alone_are_steps_too(tmp_path: Path) -> None:
    by_hand = LOOP.replace("optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\n", "").replace(
        "    optimizer.zero_grad()\n", ""
    )
    by_hand = by_hand.replace("    optimizer.step()\n", "    with torch.no_grad():\n        [p.sub_(p.grad) for p in net.parameters()]\n")
    assert {op.phase for op in of_script(tmp_path, by_hand, "20").ops} >= {"forward", "backward"}
    inference = LOOP.split("optimizer =")[0] + "for _ in range(20):\n    with torch.no_grad():\n        net(torch.randn(8, 16))\n"
    found = of_script(tmp_path, inference)
    assert found.complete and {op.phase for op in found.ops} == {"data", "forward"}


def test_a_full_disk_does_not_end_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What was written before stands, and the script goes on."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    options = "Options(repeats=2)"
    program = (
        "import irscope.measure.record.sink as sink, irscope.measure.record.torchsteps as steps\n"
        "from irscope.measure.record.request import *\nfrom irscope.recording import ModelRecord\nfrom irscope.errors import OutputError\n"
        "class Full(sink.Sink):\n"
        "    def add(self, line):\n"
        "        if line.line == 'event': raise OutputError('No space left on device')\n"
        "        super().add(line)\n"
        f"loop = Loop({str(script)!r}, ('12',))\n"
        f"request = Request(ModelRecord('loop', 'program', {str(script)!r}), {options}, {str(tmp_path / 'r.jsonl')!r}, loop=loop)\n"
        "try:\n    steps.record_loop(request, loop, Full(request.target))\nexcept OutputError as error: print('told:', error)\n"
    )
    ended = python(program)
    assert "ran to its end" in ended.stderr and "told: No space left" in ended.stdout, ended.stderr
    found = read_recording(tmp_path / "r.jsonl")
    assert found.held and found.ops and not found.complete


@pytest.mark.usefixtures("forked_recorder")
def test_tables_of_a_recorded_step_add_up(tmp_path: Path) -> None:
    found = of_model(tmp_path)
    spent = spent_of(found, "epyc-7763")
    assert spent is not None and spent.total == pytest.approx(spent.within + spent.between)
    tables = list(time_tables(spent))
    assert [table.title for table in tables][1:] == ["time by phase", "time by type of operator", "time by module"]
    for table in (*tables, *time_tables(spent, top=0)):
        times = [cell.value if hasattr(cell, "value") else cell for cell in table.cells("time")]
        assert sum(times[:-1]) == pytest.approx(times[-1]) == pytest.approx(spent.total)
    assert any("more (--rows 0)" in str(name) for name in tables[0].cells("operator"))
    assert not any("more" in str(name) for name in next(time_tables(spent, top=0)).cells("operator"))
    parts = peak_parts(found)
    warm = found.counter("warm")
    assert warm is not None and warm.requested is not None and sum(parts.values()) == warm.requested.peak
    report = recording_report(found, "epyc-7763")
    assert report.summary["efficiency"].value > 0  # type: ignore[attr-defined]


@pytest.mark.usefixtures("forked_recorder")
def test_a_program_that_is_killed_leaves_the_memory_of_its_step(tmp_path: Path) -> None:
    text = LOOP.replace("    optimizer.step()\n", "    optimizer.step()\n    if step == 6:\n        import os; os.kill(os.getpid(), 9)\n")
    found = of_script(tmp_path, text, "100")
    assert not found.complete and "SIGKILL" in found.problems[-1].text
    assert found.ops and found.held and found.run("warm") and any(op.code for op in found.ops)
