"""Live modules as programs: what is recorded, what is left alone, and what is said where it does not work."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import irscope  # noqa: E402
from irscope.errors import IrscopeError  # noqa: E402
from irscope.ir.graph import Role  # noqa: E402
from irscope.ir.types import TensorType  # noqa: E402

pytestmark = pytest.mark.torch


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seen: list[Tensor] = []
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x)
        self.last = x
        self.scale = nn.Parameter(torch.ones(8, device=x.device))
        return self.layer(x).relu_() * self.scale + random.random()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("table", torch.arange(5))

    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        y = self.block(x)
        y = self.block(y) if twice else y
        return self.norm(y)


def test_the_module_is_left_as_it_was() -> None:
    net = Net().train()
    net.block.register_forward_hook(lambda *_: None)
    tensors = {name: (id(one), one.clone()) for name, one in (*net.named_parameters(), *net.named_buffers())}
    names = {path: sorted(vars(inner)) for path, inner in net.named_modules()}
    numbers, drawn = torch.get_rng_state(), random.getstate()
    irscope.capture(net, torch.ones(4, 8))
    assert {name: id(one) for name, one in (*net.named_parameters(), *net.named_buffers())} == {
        name: number for name, (number, _) in tensors.items()
    }
    assert all(torch.equal(one, tensors[name][1]) for name, one in (*net.named_parameters(), *net.named_buffers()))
    assert {path: sorted(vars(inner)) for path, inner in net.named_modules()} == names
    assert net.training and net.block.calls == 0 and net.block.seen == [] and len(net.block._forward_hooks) == 1
    assert torch.equal(torch.get_rng_state(), numbers) and random.getstate() == drawn
    assert net(torch.ones(4, 8)).device.type == "cpu"


def test_it_is_left_so_after_an_error_too() -> None:
    net = Net()
    with pytest.raises(IrscopeError):
        irscope.capture(net, torch.ones(4, 9))
    assert net.block.calls == 0
    assert net(torch.ones(4, 8)).device.type == "cpu"


def test_roles_scopes_and_lines() -> None:
    model = irscope.capture(Net().eval(), torch.ones(4, 8), twice=True)
    graph = model.graph
    assert model.program.format == "module"
    assert [(value.name, value.role) for value in graph.inputs] == [("x", Role.INPUT)]
    assert [value.name for value in graph.weights if value.role is Role.PARAMETER] == [
        "block.layer.weight",
        "block.layer.bias",
        "norm.weight",
        "norm.bias",
    ]
    linears = [node for node in graph if node.op == "nn.linear"]
    assert [node.scope.path for node in linears] == ["block/layer", "block#1/layer"]
    assert [node.scope.cls for node in linears] == ["Linear", "Linear"]
    loc = linears[0].loc
    assert loc is not None and loc.statement == "return self.layer(x).relu_() * self.scale + random.random()"
    assert loc.caller is not None and loc.caller.statement == "y = self.block(x)"
    assert loc.file == __file__
    relu = next(node for node in graph if node.op == "nn.relu")
    assert relu.attrs["inplace"] == 0


def _weights(kind: str) -> tuple[nn.Module, Tensor]:
    if kind == "real":
        return nn.Linear(16, 4), torch.ones(2, 16)
    if kind == "meta":
        return nn.Linear(1 << 18, 1 << 17, device="meta"), torch.empty(2, 1 << 18, device="meta")
    with FakeTensorMode():
        return nn.Linear(1 << 18, 1 << 17), torch.empty(2, 1 << 18)


@pytest.mark.parametrize("kind", ["real", "meta", "fake"])
def test_weights_need_not_be_there(kind: str) -> None:
    """The two large ones would take 128 GiB."""
    layer, x = _weights(kind)
    model = irscope.capture(layer, x)
    summary = irscope.run(model, "params,liveness")["params"].report().summary
    assert summary["bytes"] == sum(value.numel() * 4 for value in layer.parameters())


class Looks(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if mask.all():
            return x * 2
        return x[mask[0]].exp()


def test_branches_follow_from_real_arguments() -> None:
    yes = irscope.capture(Looks(), torch.ones(3), torch.ones(2, 3, dtype=torch.bool))
    assert yes.graph.outputs[0].node is not None and yes.graph.outputs[0].node.op == "math.mul"
    no = irscope.capture(Looks(), torch.ones(3), torch.tensor([[True, False, True], [True, True, True]]))
    exp = no.graph.outputs[0]
    assert isinstance(exp.type, TensorType) and exp.type.shape == (2,)
    assert not no.diagnostics


def _fails(module: Any, *args: Any) -> IrscopeError:
    with pytest.raises(IrscopeError) as caught:
        irscope.capture(module, *args)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_branch_that_cannot_be_decided_names_the_line_and_what_to_pass() -> None:
    error = _fails(Looks(), torch.ones(3), torch.ones(2, 3, dtype=torch.bool, device="meta"))
    assert (error.code, error.exit_code) == ("IRS188", 3)
    assert error.where.startswith(f"{__file__}:")
    assert "if mask.all():" in error.message
    assert "for mask" in error.hint


def test_a_size_that_is_guessed_is_said_so() -> None:
    class Finds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.nonzero().sum(0)

    model = irscope.capture(Finds(), torch.empty(20, 20, device="meta"))
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS193"]
    assert "rows of nonzero taken to be 256" in model.diagnostics[0].message
    assert [(guess.what, guess.value, guess.is_guess) for guess in model.program.assumed] == [("rows of nonzero", "256", True)]
    exact = irscope.capture(Finds(), torch.eye(20))
    assert not exact.diagnostics and not exact.program.assumed
    found = next(node for node in exact.graph if node.op == "tensor.nonzero").outputs[0].type
    assert isinstance(found, TensorType) and found.shape == (20, 2)


def test_other_failures() -> None:
    error = _fails(nn.Sequential(nn.ReLU(), nn.Linear(3, 4)), torch.ones(2, 5))
    assert (error.code, error.exit_code, error.where) == ("IRS189", 3, "module 1 (Linear)")
    assert _fails(lambda x: x, torch.ones(2)).code == "IRS191"
    assert _fails(nn.LazyLinear(4), torch.ones(2, 5)).code == "IRS191"
    assert _fails(torch.jit.script(nn.ReLU()), torch.ones(2)).code == "IRS191"
    with pytest.raises(IrscopeError, match="no device"):
        irscope.capture(nn.ReLU(), torch.ones(2), device="h2000")


@pytest.mark.parametrize(("kind", "hidden"), [("LSTM", 2), ("GRU", 1), ("RNN", 1)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_are_one_operator(kind: str, hidden: int, batch_first: bool) -> None:
    layer = getattr(nn, kind)(8, 16, num_layers=2, bidirectional=True, batch_first=batch_first)
    x = torch.ones(5, 3, 8)
    expected = layer(x)
    model = irscope.capture(layer, x)
    outputs = [value.type for value in model.graph.outputs]
    shapes = [tuple(expected[0].shape), *[tuple(expected[1][0].shape if hidden == 2 else expected[1].shape)] * hidden]
    assert [type_.shape for type_ in outputs if isinstance(type_, TensorType)] == shapes
    recurrent = [node for node in model.graph if node.op.startswith("rnn.")]
    assert len(recurrent) == 1
    assert [value.name for value in recurrent[0].inputs if value is not None and value.role is Role.PARAMETER] == [
        name for name, _ in layer.named_parameters()
    ]


@pytest.mark.parametrize(
    ("dtype", "head", "device", "label"),
    [
        (torch.bfloat16, 64, "h200", "logsumexp"),
        (torch.bfloat16, 60, "h200", "padded queries"),
        (torch.float32, 64, "h200", ""),
        (torch.float32, 63, "h200", "scores"),
        (torch.float64, 64, "h200", "scores"),
    ],
)
def test_attention_takes_the_path_of_the_device(dtype: torch.dtype, head: int, device: str, label: str) -> None:
    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            q = x.transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(q, q, q)

    model = irscope.capture(Attends(), torch.empty(2, 32, 4, head, dtype=dtype), device=device)
    labels = irscope.run(model, "cuda-memory", device=device)["cuda-memory"].value.tape.labels
    assert label in labels if label else not {"logsumexp", "scores"} & set(labels)
    result = model.graph.outputs[0].type
    assert isinstance(result, TensorType)
    # The fused kernels lay heads side by side; a product of matrices does not.
    assert (result.layout is None) == (label == "scores")


def test_results_are_found_in_containers_and_objects() -> None:
    class Kept:
        def __init__(self, *tensors: Tensor) -> None:
            self.layers = [{"keys": tensor} for tensor in tensors]

    class Returns(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            y = x.exp()
            return {"y": (y, None), "cache": Kept(x.sin(), y), "again": y}

    model = irscope.capture(Returns(), torch.ones(3))
    assert [value.name for value in model.graph.outputs] == ["exp", "sin"]
