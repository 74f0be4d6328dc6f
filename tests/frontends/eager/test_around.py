"""Programs that are not the one analysed: what runs around a module is named and makes numbers assumed, or is refused in one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

import irscope  # noqa: E402
from irscope.cli.main import main  # noqa: E402
from irscope.errors import IrscopeError  # noqa: E402
from irscope.session import Model  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))


X = torch.zeros(8, 64)


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _compiled_inside() -> nn.Module:
    module = net()
    module[0] = torch.compile(module[0])
    return module


def _compiled_in_place() -> nn.Module:
    module = net()
    module.compile()
    return module


def _compiled_forward() -> nn.Module:
    module = net()
    module.forward = torch.compile(module.forward)  # type: ignore[method-assign]  # as users do it
    return module


double: Callable[[Tensor], Tensor]


class CallsCompiled(nn.Module):
    """Its forward names a function that is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return double(self.layer(x))


def _calls_compiled() -> nn.Module:
    global double
    double = torch.compile(lambda x: x * 2)  # made here: Dynamo takes seconds to import, in each process that collects the tests
    return CallsCompiled()


def _hooked(register: str, hook: Callable[..., Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        module = net()
        getattr(module[0], register)(hook)
        return module

    return make


def _adds(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out * 2


WARNED: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "compiled": (lambda: torch.compile(net()), "torch.compile", "eager"),
    "compiled inside": (_compiled_inside, "torch.compile replaces 0;", "eager"),
    "compiled in place": (_compiled_in_place, "torch.compile", "eager"),
    "compiled forward": (_compiled_forward, "torch.compile", "eager"),
    "calls compiled": (_calls_compiled, "torch.compile", "eager"),
    "DDP": (lambda: nn.parallel.DistributedDataParallel(net()), "DistributedDataParallel", "one process"),
    "DataParallel": (lambda: nn.DataParallel(net()), "DataParallel", "one process"),
    "forward hook": (_hooked("register_forward_hook", _adds), "forward hooks on 0 ", "with hooks"),
    "forward pre-hook": (_hooked("register_forward_pre_hook", lambda module, args: None), "forward hooks on 0 ", "with hooks"),
    "partial hook": (_hooked("register_forward_hook", functools.partial(_adds)), "forward hooks on 0 ", "with hooks"),
}


def _said(model: Model, words: str, value: str) -> None:
    (one,) = model.program.guesses
    assert (one.what, words in one.why, one.value.startswith(value)) == ("execution", True, True), one
    (diagnostic,) = (diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS199")
    assert words in diagnostic.message
    # Everything that depends on how the model runs is assumed; its weights are what they are.
    found = {report.pass_name: report.to_json() for report in model.run("params,flops").reports}
    assert found["flops"]["provenance"]["total_flops"] == "assumed"
    assert "assumed" not in found["params"]["provenance"].values()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("name", WARNED)
def test_what_is_not_analysed_is_named(name: str) -> None:
    make, words, value = WARNED[name]
    # For a CUDA device what is compiled runs compiled; what is generated for a CPU is not followed.
    _said(irscope.capture(make(), X, device="cpu" if value == "eager" else "cuda"), words, value)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("name", ["compiled", "DDP"])
def test_training_names_it_too(name: str) -> None:
    make, words, value = WARNED[name]
    # For a CUDA device what is compiled runs compiled; what is generated for a CPU is not followed.
    model = irscope.capture_training(make(), (X,), device="epyc-7763" if value == "eager" else "")
    (one,) = model.program.guesses
    assert words in one.why and one.value.startswith(value)
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS199"]


def test_hooks_of_gradients_are_lost_and_said_to_be() -> None:
    module = net()
    module[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    (one,) = irscope.capture_training(module, (X,)).program.guesses
    assert one.value == "without hooks of parameters" and "0.weight" in one.why
    assert not irscope.capture(module, X).program.guesses


def test_hooks_on_all_modules() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        (one,) = irscope.capture(net(), X).program.guesses
    finally:
        handle.remove()
    assert "all modules" in one.why


@pytest.mark.parametrize(
    "reparametrise",
    [
        nn.utils.weight_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
    ids=["weight_norm", "parametrisation", "spectral_norm", "pruning"],
)
def test_torchs_own_hooks_are_operators_like_any_other(reparametrise: Callable[[nn.Module], object]) -> None:
    module = net().eval()
    reparametrise(module[0])
    model = irscope.capture(module, X)
    assert not model.program.assumed and not model.diagnostics


def _fully_sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    module = net()
    fully_shard(module)
    return module


def _wrapped_by_fsdp() -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return nn.Sequential(FullyShardedDataParallel(net(), device_id=torch.device("cpu")))


def _tensor_parallel() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    return parallelize_module(net(), init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})


class AlignDevicesHook:
    """As accelerate's, of which only the name counts."""


def _placed_by_device_map() -> nn.Module:
    module: Any = net()
    module[0]._hf_hook = AlignDevicesHook()
    return module  # type: ignore[no-any-return]  # a module


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "fully_shard": (_fully_sharded, "the module is sharded by fully_shard"),
    "FSDP": (_wrapped_by_fsdp, "module 0 is sharded by FSDP"),
    "tensor parallel": (_tensor_parallel, "0.weight is a DTensor"),
    "device_map": (_placed_by_device_map, "module 0 has a hook of accelerate (AlignDevicesHook, as device_map leaves it)"),
}


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("how", [lambda module: irscope.capture(module, X), lambda module: irscope.capture_training(module, (X,))])
def test_modules_in_parts_are_refused_in_one_line(name: str, how: Callable[[nn.Module], object]) -> None:
    make, words = REFUSED[name]
    with pytest.raises(IrscopeError) as caught:
        how(make())
    assert (caught.value.code, caught.value.exit_code) == ("IRS191", 2)
    assert words in caught.value.message and caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("group")
def test_inputs_in_parts_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    with pytest.raises(IrscopeError, match="an input is a DTensor"):
        irscope.capture(net(), distribute_tensor(X, init_device_mesh("cpu", (1,))))


@pytest.mark.usefixtures("group")
def test_a_checkpoint_in_parts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "part.pth"
    torch.save({**_fully_sharded().state_dict(), "step": torch.zeros(3)}, path)
    assert main(["run", str(path)]) == 3
    said = capsys.readouterr().err
    assert "IRS161" in said and "DTensors" in said and said.count("\n") == 1


class Odd(Tensor):
    """A tensor around another that cannot be made anew."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Odd:
        made: Odd = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> Odd:
        raise AttributeError("no layout")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Odd(args[0].inner) if func is torch.ops.aten.detach.default else NotImplemented


def test_tensors_that_cannot_be_made_without_data_are_refused() -> None:
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(Odd(torch.zeros(4, 4)), requires_grad=False)
    with pytest.raises(IrscopeError, match="tensors of Odd cannot be made without data") as caught:
        irscope.capture(module, torch.zeros(1, 4))
    assert caught.value.code == "IRS191"


SCRIPT = """
import torch
from torch import nn

def build():
    return torch.compile(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))), (torch.zeros(4, 8),)
"""


def test_the_command_line_says_it_and_strict_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    plan = ["train-plan", "--device", "epyc-7763", "--passes", "training", f"{script}:build"]
    assert main(plan) == 0
    out, err = capsys.readouterr()
    assert "assumed: execution=eager (torch.compile replaces the whole module" in out
    assert "* assumed" in out
    assert "warning IRS199" in err
    assert main([*plan, "--strict"]) == 5
    assert "IRS540: --strict: assumed execution=eager" in capsys.readouterr().err


def test_a_graph_of_kernels_in_place_of_a_forward() -> None:
    module = net()
    # As torch.cuda.make_graphed_callables leaves it, which needs a device.
    code = "def forward(*args):\n    return inner(*args)\n"
    home: dict[str, Any] = {"__name__": "torch.cuda.graphs", "inner": module.forward}
    exec(code, home)
    module.forward = home["forward"]
    (one,) = irscope.capture(module, X).program.guesses
    assert "CUDA graph" in one.why


def test_plain_modules_are_plain() -> None:
    model = irscope.capture(net(), X)
    assert not model.program.assumed and not model.diagnostics


def test_the_loss_that_nobody_named_is_said() -> None:
    model = irscope.capture_training(net(), (X,))
    assert [(guess.what, guess.value, guess.is_guess) for guess in model.program.assumed] == [("loss", "cross-entropy", False)]
    assert not irscope.capture_training(net(), (X,), loss="mean").program.assumed


def test_rows_that_a_step_takes_for_granted_are_said() -> None:
    class Finds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.nonzero().float()).sum()

    model = irscope.capture_training(Finds(), (torch.empty(20, 20, device="meta"),))
    assert [(assumption.what, assumption.is_guess) for assumption in model.program.assumed] == [("rows of nonzero", True)]
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS193"]


def test_recurrent_layers_without_their_library_are_assumed() -> None:
    model = irscope.capture_training(nn.LSTM(4, 4), (torch.zeros(3, 2, 4),), loss=lambda out: out[0].sum())
    assert [(assumption.what, assumption.is_guess) for assumption in model.program.assumed] == [("recurrent layers", True)]
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS380"]
