"""Training loops under `irscope simulate`, beside what PyTorch's CUDA build counted in the same loops, and where they taught something."""

from __future__ import annotations

import json
import sys

import pytest

from tests.forked import python
from tests.tools.oracle.training import cases, predict, simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

PLAIN = ("mlp", "unet", "lstm", "encoder")
QUICK = ("mlp-adamw", "unet-sgd")
FIGURE = ("sgd", "adamw")


@pytest.mark.parametrize("key", QUICK)
def test_the_steady_step_is_the_recorded_one(key: str) -> None:
    found, _ = simulate(cases()[key])
    assert found == cases()[key].truth(-1)


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key, case in cases().items() if case.recorded["setting"] in FIGURE and key not in QUICK])
def test_every_model_of_the_figure(key: str) -> None:
    name = key.rpartition("-")[0]
    if name not in PLAIN:
        pytest.importorskip("torchvision")
    if name in ("bert", "gpt2", "llama", "t5", "distilbert", "qwen2", "opt"):
        pytest.importorskip("transformers")
    found, _ = simulate(cases()[key])
    assert found == cases()[key].truth(-1)


TOLD = """
import json, sys
import irscope
from tests.tools.oracle.training_truth import Loop
def run():
    loop = Loop(*sys.argv[1:])
    for _ in range(3):
        loop.step()
steady = irscope.simulate(run, device="h200").steps[-1]
print(json.dumps([steady.by_category, steady.phases]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["mlp-adamw", "mlp-sgd-zeroed", "unet-momentum-x2"])
def test_a_captured_step_tells_the_same_categories_and_phases(key: str) -> None:
    case = cases()[key]
    done = python(TOLD, case.recorded["model"], case.recorded["setting"])
    assert done.returncode == 0, done.stderr
    by_category, phases = json.loads(done.stdout.splitlines()[-1])
    captured, _ = predict(case)
    assert {kind: size for kind, size in by_category.items() if size} == {
        kind: size.value for kind, size in captured.at_peak().items() if size.value
    }
    assert phases == {phase: size.value for phase, size in captured.phase_peaks().items()}


MADE_OUTSIDE = """
import json
import irscope, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x):
        return self.layer(x) * torch.rand(64, 64, device="cuda")
def run():
    with torch.device("cuda"):
        net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        x, target = torch.randn(64, 64, device="cuda"), torch.zeros(64, 64).to("cuda")
        nn.functional.mse_loss(net(x).half().float(), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        del x, target
print(json.dumps(irscope.simulate(run, device="h200").steps[-1].by_category))
"""


def test_what_a_program_makes_outside_of_its_modules_is_input() -> None:
    """The two inputs, made on the device and copied there, no cast of a result; the model's own noise is kept for the backward."""
    done = python(MADE_OUTSIDE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["input"] == 2 * 64 * 64 * 4
    assert found["parameter"] == 64 * 64 * 4 + 64 * 4
    assert found["activation"] >= 64 * 64 * 4


REQUESTS = """
import json
import irscope
from tests.frontends.simulation.test_training import {name}
tape = irscope.simulate({name}, device="h200").tape
print(json.dumps([tape.sizes[event] if event >= 0 else -tape.sizes[~event] for event in tape.events]))
"""


def requests(name: str) -> list[int]:
    """What a function of this file asks for and gives back, in order, as signed sizes."""
    done = python(REQUESTS.format(name=name))
    assert done.returncode == 0, done.stderr
    return [size for size in json.loads(done.stdout.splitlines()[-1]) if size]


def a_gradient_that_was_copied() -> None:
    import torch

    first, factor = (torch.nn.Parameter(torch.empty(64, 8, 512, device="cuda")) for _ in range(2))
    x = first * 2
    turned = x.exp().transpose(0, 1).reshape(-1).view(8, 64, 512).transpose(0, 1)
    ((turned + x) * factor).sum().backward()


@pytest.mark.slow
def test_a_gradient_that_was_copied_is_added_to_in_place() -> None:
    """As PyTorch's CUDA build does: the gradient of the sum, once it was copied for the transposed operand, has no other holder."""
    size = 64 * 8 * 512 * 4
    asked = requests("a_gradient_that_was_copied")
    assert asked.count(size) == 13  # seven in the forward; 14 where the gradient takes memory of its own


def losses_of_positions() -> None:
    import torch

    scores = torch.empty(2, 10, 300, device="cuda")
    labels = torch.zeros(2, 300, dtype=torch.long, device="cuda")
    torch.nn.functional.nll_loss(scores, labels, reduction="none")


@pytest.mark.slow
def test_losses_of_positions_come_after_the_sum_of_the_weights() -> None:
    asked = requests("losses_of_positions")
    assert asked[asked.index(4) + 1] == 2400


def dropped_attention() -> None:
    import torch

    q = torch.empty(2, 4, 32, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1)


@pytest.mark.slow
def test_the_second_random_state_of_attention_replaces_the_first() -> None:
    asked = requests("dropped_attention")
    at = asked.index(8)
    assert asked[at - 1 : at + 3] == [16, 8, 16, -16]


def optimizers_without_a_shape_function() -> None:
    import torch

    weight = torch.nn.Parameter(torch.empty(1000, device="cuda"))
    for optimizer in (torch.optim.SGD([weight], momentum=0.9, fused=True), torch.optim.Adagrad([weight], fused=True)):
        weight.grad = torch.empty_like(weight)
        optimizer.step()


def test_an_operator_that_only_writes_needs_no_shape_function() -> None:
    # The weight, Adagrad's count of steps and sum, a gradient, the momentum, another gradient.
    assert [size for size in requests("optimizers_without_a_shape_function") if size > 0] == [4000, 4, 4000, 4000, 4000, 4000]


def attention_of_one_head_of_keys() -> None:
    import torch

    q, k = (torch.empty(2, heads, 100, 16, dtype=torch.bfloat16, device="cuda") for heads in (4, 1))
    mask = torch.ones(2, 1, 100, 100, dtype=torch.bool, device="cuda")
    with torch.no_grad():
        torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)


@pytest.mark.slow
def test_a_mask_of_truth_values_is_made_additive_in_the_type_of_the_queries() -> None:
    assert 2 * 100 * 100 * 2 in requests("attention_of_one_head_of_keys")


def grouped_product_in_f32() -> None:
    import torch

    rows, weights = torch.empty(12, 64, device="cuda"), torch.empty(4, 64, 32, device="cuda")
    torch.nn.functional.grouped_mm(rows, weights, offs=torch.tensor([3, 6, 9, 12], dtype=torch.int32, device="cuda"))


@pytest.mark.slow
def test_grouped_products_run_in_any_element_type() -> None:
    assert 12 * 32 * 4 in requests("grouped_product_in_f32")
