"""The CUDA device that is not there: while the context lasts, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import irscope  # noqa: E402
from irscope.frontends.eager import pretend  # noqa: E402
from irscope.frontends.eager.pretend import find_slots, pretended_cuda  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch knows CUDA"),
]
PACKAGE = Path(torch.__file__).parent


def test_tensors_are_on_the_device_and_nothing_stays_behind() -> None:
    before = torch._C._accelerator_getAccelerator()
    asked = torch.cuda.get_device_capability
    with pretended_cuda() as device, FakeTensorMode():
        made = torch.empty(2, 3, device=device) @ torch.empty(3, 2, device=device)
        assert device == "cuda"
        assert made.device.type == "cuda"
        assert torch.cuda.get_device_capability() == (9, 0)
    assert torch._C._accelerator_getAccelerator() == before
    assert torch.cuda.get_device_capability is asked
    with pytest.raises(Exception, match=r"CUDA|cuda"):
        torch.empty(2, device="cuda")


def test_an_error_inside_takes_the_device_away_too() -> None:
    with pytest.raises(KeyError), pretended_cuda(), pretended_cuda():
        raise KeyError
    assert torch._C._accelerator_getAccelerator() is None


def test_a_backward_works_after_one_on_the_cpu() -> None:
    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    with pretended_cuda(), FakeTensorMode(), torch.autograd.set_multithreading_enabled(False):
        layer = nn.Linear(4, 4, device="cuda")
        layer(torch.empty(2, 4, device="cuda")).sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.device.type == "cuda"


def test_headers_and_the_known_order_agree() -> None:
    shipped, known = find_slots(PACKAGE), find_slots(PACKAGE / "nowhere")
    assert shipped.guard["getStream"] == known.guard["getStream"] == 5
    for name in ("type", "getStream", "destroyEvent", "record", "block"):
        assert shipped.guard[name] == known.guard[name], name
    for name in ("isBuilt", "hasPrimaryContext"):
        assert shipped.hooks[name] == known.hooks[name], name


def test_without_the_device_the_model_is_captured_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.empty(2, 4, 64, 32, dtype=torch.float16)
    expected = irscope.capture(Attends(), x)
    monkeypatch.setattr(pretend, "_patch", lambda: "it was taken away")
    model = irscope.capture(Attends(), x)
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS187"]
    assert "it was taken away" in model.diagnostics[0].message
    for found in (expected, model):
        memory = irscope.run(found, "cuda-memory", device="h200")["cuda-memory"].value
        assert [node.op for node in found.graph] == ["nn.sdpa"]
        assert "logsumexp" in memory.tape.labels


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_are_trained_without_a_card(kind: type[nn.RNNBase]) -> None:
    model = irscope.capture_training(kind(8, 16, batch_first=True), torch.randn(4, 5, 8), loss="mean")
    for report in model.run("training,flops").reports:
        assert report.coverage is not None
        assert report.coverage.known == report.coverage.total
