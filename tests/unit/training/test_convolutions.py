"""One rule for the workspace of a convolution, in a forward pass and in training, and intervals for what no recording tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from irscope.devices import Target, find_device
from irscope.devices.profile import WorkspaceRule
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import Drop, MemoryEvent, OpCall, Result, Take, Workspace, memory_events
from irscope.report.values import Provenance

RTX = Target(find_device("rtx4090"))
H200 = Target(find_device("h200"))
RULE = WorkspaceRule(2, 1, 3, "a test", "2026")
FITTED = replace(H200, device=replace(find_device("h200"), workspaces={"convolution": {"f32": RULE}}))
X, W, Y = tensor(DType.F32, (2, 8, 16, 16)), tensor(DType.F32, (4, 8, 3, 3)), tensor(DType.F32, (2, 4, 16, 16))
GIVEN, FILTERS, MADE = (int(str(one.nbytes)) for one in (X, W, Y))
FORWARD, OF_INPUT, OF_FILTERS = (f"cuDNN workspace{end}" for end in ("", ", gradient of the input", ", gradient of the filters"))


def asked(op: str, source: str, target: Target, **attrs: object) -> list[MemoryEvent]:
    spec = find_op(op)
    assert spec is not None
    types = ([X, W, None], [Y]) if op == "nn.conv" else ([Y, X, W], [X, W])
    if op == "nn.conv_transpose":
        types = [Y, W, None], [X]
    given = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1, **attrs}
    return list(memory_events(OpCall(spec, types[0], given, (), types[1], source=source), target))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "size", "most"),
    [
        (RTX, GIVEN + FILTERS, GIVEN + FILTERS + MADE),
        (H200, 0, GIVEN + FILTERS + MADE),
        (FITTED, 2 * GIVEN + FILTERS + 3 * MADE, 2 * GIVEN + FILTERS + 3 * MADE),
    ],
)
def test_a_forward_convolution(target: Target, size: int, most: int) -> None:
    (workspace,) = [one for one in asked("nn.conv", "aten::conv2d", target) if isinstance(one, Workspace)]
    assert (workspace.label, workspace.size, workspace.most) == (FORWARD, size, most)


@pytest.mark.parametrize("target", [RTX, H200, FITTED])
def test_gradients_have_an_interval_each_and_a_name(target: Target) -> None:
    events = asked("grad.conv", "aten::convolution_backward", target)
    assert [(one.label, one.size, one.most) for one in events if isinstance(one, Workspace)] == [
        (OF_INPUT, 0, GIVEN + FILTERS + MADE),
        (OF_FILTERS, 0, GIVEN + FILTERS + MADE),
    ]
    # Each comes once its own result has memory.
    assert [type(one) for one in events] == [Result, Workspace, Result, Workspace]


def test_what_is_transposed_is_the_gradient_of_an_input_and_the_other_way_round() -> None:
    (workspace,) = [one for one in asked("nn.conv_transpose", "aten::conv_transpose2d", RTX) if isinstance(one, Workspace)]
    assert (workspace.label, workspace.size) == (OF_INPUT, 0)
    made = asked("grad.conv", "aten::convolution_backward", RTX, transposed=True)
    assert [one.label for one in made if isinstance(one, Workspace)] == [FORWARD, OF_FILTERS]


def test_the_workspace_is_there_while_copies_of_operands_are() -> None:
    last = tensor(DType.F32, (2, 8, 16, 16), "", (2048, 1, 128, 8))
    spec = find_op("nn.conv")
    assert spec is not None
    call = OpCall(spec, [last, W, None], {"strides": (1, 1), "groups": 1}, (), [Y], source="aten::conv2d")
    assert [type(one) for one in memory_events(call, H200)] == [Result, Take, Workspace, Drop]


def _module() -> Any:
    """A convolution of cuDNN's, and one for which PyTorch has a kernel of its own."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(32, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten())


@pytest.mark.torch
class TestSteps:
    """The same module as a forward pass and as a training step."""

    @staticmethod
    def model(device: str) -> Any:
        torch = pytest.importorskip("torch")
        import irscope
        from irscope.passkit.settings import Settings

        model = irscope.capture_training(_module(), torch.zeros(2, 32, 16, 16), optimizer="sgd")
        model.manager.settings = Settings(device=device)
        return model

    @pytest.mark.parametrize("device", ["rtx4090", "h200"])
    def test_both_ask_for_the_same(self, device: str) -> None:
        torch = pytest.importorskip("torch")
        import irscope
        from irscope.passes.memory.cuda import CudaMemory
        from irscope.passes.memory.steps import TrainingMemory

        trained = self.model(device)
        step = trained.manager.get(TrainingMemory()).tape
        captured = irscope.capture(_module(), torch.zeros(2, 32, 16, 16))
        captured.manager.settings = trained.manager.settings
        forward = captured.manager.get(CudaMemory(model="eager")).tape
        steps = len(trained.manager.get(TrainingMemory()).steps)
        tapes = [
            Counter((tape.labels[slot], tape.sizes[slot], spread.high) for slot, spread in tape.spreads.items()) for tape in (forward, step)
        ]
        once, often = ({key: count for key, count in tape.items() if key[0] == FORWARD} for tape in tapes)
        assert len(once) == 1 and {key: count * steps for key, count in once.items()} == often
        assert {label for label, _, _ in tapes[1]} >= {FORWARD, OF_FILTERS}

    def test_counters_of_steps_are_modelled(self) -> None:
        model = self.model("rtx4090")
        (report,) = model.run("training").reports
        found = report.to_json()
        modelled = {key for key, where in found["provenance"].items() if where == "modelled"}
        steps = {f"{step}.{counter}" for step in ("first_step", "steady_step") for counter in ("requested", "allocated", "reserved")}
        assert steps <= modelled and "device_peak.workspace" in modelled
        assert not any(key.startswith("before.") or key in ("device_peak.parameter", "after.requested") for key in modelled)
        assert any("cuDNN workspace, gradient of the filters" in note for note in found["notes"])
        (series,) = found["series"]
        assert [column["key"] for column in series["y"] if column.get("provenance") == Provenance.MODELLED.value] == [
            "workspace",
            "rounding",
        ]
