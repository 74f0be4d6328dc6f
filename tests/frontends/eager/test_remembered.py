"""Results of operators that are found again by what their arguments look like: the same as if they were dispatched, and never stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from irscope.devices import target_of  # noqa: E402
from irscope.frontends.eager import fakes  # noqa: E402
from irscope.frontends.eager.fakes import Remembered, _tensors  # noqa: E402
from irscope.frontends.eager.record import Record, Tensor  # noqa: E402
from irscope.frontends.eager.recorder import Recorder  # noqa: E402
from irscope.frontends.eager.running import bench  # noqa: E402
from irscope.frontends.eager.steps import record_steps  # noqa: E402
from irscope.passkit.settings import Settings  # noqa: E402
from irscope.training import StepSetup  # noqa: E402

pytestmark = pytest.mark.torch
TARGET = target_of(Settings(device="h200"))


class Work(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8, device="meta"))
        self._work = work

    def forward(self, x: Any) -> Any:
        return self._work(x * self.weight)


def recorded(work: Callable[[Any], Any], *, grad: bool = False) -> Record:
    with bench(Work(work), [torch.empty(8, 8, device="meta")], grad=grad, target=TARGET) as ready:
        return ready.record()


def results(record: Record, name: str) -> list[Tensor]:
    """The first results of the operators of a name, in order."""
    return [op.results[0] for op in record.ops if op.name == name]


def meta(item: Any) -> Any:
    if not isinstance(item, torch.Tensor):
        return [type(item), *(meta(one) for one in item)] if isinstance(item, list | tuple) else item
    size, keys = item.untyped_storage().nbytes(), torch._C._dispatch_keys(item).raw_repr()
    return (type(item), item.dtype, item.shape, item.stride(), item.storage_offset(), item.fake_device, size, item.requires_grad, keys)


def shared(item: Any, args: Any, kwargs: Any) -> Any:
    """The arguments that each result is, and those whose memory it shares."""
    if isinstance(item, list | tuple):
        return [shared(one, args, kwargs) for one in item]
    if item is None:
        return None
    own = item.untyped_storage()._cdata
    given = list(_tensors(args, kwargs))
    return [place for place, one in given if one is item], [place for place, one in given if one.untyped_storage()._cdata == own]


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operator was dispatched."""
    counter: Counter[str] = Counter()
    dispatch = Recorder._dispatched

    def counted(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
        counter[func.name().removeprefix("aten::")] += 1
        return dispatch(recorder, func, args, kwargs)

    monkeypatch.setattr(Recorder, "_dispatched", counted)
    return counter


def transformer(layers: int) -> nn.Module:
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


@pytest.mark.parametrize("autocast", ["", "bf16"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_what_is_found_again_is_what_the_operator_makes(optimizer: str, autocast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again, hits = Remembered.again, Counter[str]()

    def checked(remembered: Any, key: Any, args: Any, kwargs: Any) -> Any:
        found = again(remembered, key, args, kwargs)
        if found is not NotImplemented:
            hits[key[0].name()] += 1
            made = key[0](*args, **kwargs)
            assert meta(made) == meta(found)
            assert shared(made, args, kwargs) == shared(found, args, kwargs)
        return found

    monkeypatch.setattr(Remembered, "again", checked)
    record_steps(transformer(2), (torch.empty(2, 4, 32, device="meta"),), {}, StepSetup(optimizer=optimizer, autocast=autocast), TARGET)
    assert hits.total() > 300
    assert {"aten::view", "aten::t", "aten::native_layer_norm", "aten::native_dropout", "aten::mm"} <= hits.keys()


def test_layers_that_look_alike_are_dispatched_once(dispatched: Counter[str]) -> None:
    x = torch.empty(2, 4, 32, device="meta")
    dispatches = []
    for layers in (3, 12):
        dispatched.clear()
        record_steps(transformer(layers), (x,), {}, StepSetup(optimizer="sgd"), TARGET)
        dispatches.append(dict(dispatched))
    assert dispatches[0] == dispatches[1]


@pytest.mark.parametrize("grad", [False, True])
def test_settings_that_decide_what_is_made(grad: bool) -> None:
    def work(x: Any) -> Any:
        made = [torch.full((2,), 1.5, device=x.device)]
        torch.set_default_dtype(torch.float64)
        try:
            made.append(torch.full((2,), 1.5, device=x.device))
        finally:
            torch.set_default_dtype(torch.float32)
        return [x, *made, x.sum(0, dtype=torch.float64), x.sum(0)]

    record = recorded(work, grad=grad)
    assert [str(result.dtype) for result in results(record, "full")] == ["f32", "f64"]
    assert [str(result.dtype) for result in results(record, "sum")] == ["f64", "f32"]


def test_numbers_that_are_equal_and_of_different_types() -> None:
    def work(x: Any) -> Any:
        whole = x.to(torch.int32)
        return [whole * 2, whole * 2.0, whole * True, whole * 2]

    assert [str(result.dtype) for result in results(recorded(work), "mul")[1:]] == ["i32", "f32", "i32", "i32"]


def test_strides_and_offsets_are_looked_at() -> None:
    def work(x: Any) -> Any:
        return [x[2:].reshape(-1), x.t()[2:].reshape(-1)]

    record = recorded(work)
    product = results(record, "mul")[0]
    as_it_lies, copied = results(record, "reshape")
    assert as_it_lies.storage is product.storage and as_it_lies.offset == 16
    assert copied.storage is not product.storage and copied.offset == 0


def test_what_gives_a_tensor_other_memory_is_done_each_time() -> None:
    def work(x: Any) -> Any:
        made = []
        for _ in range(3):
            one = torch.empty(4, device=x.device)
            one.resize_(16)
            two = torch.empty(0, device=x.device)
            two.set_(one)
            made.append((one + 1, two + 1))
        return made

    made = results(recorded(work), "add")
    assert [one.shape for one in made] == [(16,)] * 6


def test_sizes_that_depend_on_values_are_asked_each_time() -> None:
    steps: list[tuple[int, ...]] = []

    def work(x: Any) -> Any:
        for found in ([True, False, True], [True, True, True], [False, False, True]):
            steps.append(tuple(torch.tensor(found).nonzero().shape))
        return x

    recorded(work)
    assert steps == [(2, 1), (3, 1), (1, 1)]


def test_other_modes_are_told_of_each_operator() -> None:
    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.seen += func is torch.ops.aten.relu.default
            return func(*args, **(kwargs or {}))

    def within(x: Any) -> Any:
        with Counting():
            return [torch.relu(x) for _ in range(5)]

    recorded(within)
    assert Counting.seen == 5
    Counting.seen = 0
    with Counting():
        recorded(lambda x: [torch.relu(x) for _ in range(5)])
    assert Counting.seen >= 5


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "_MOST", 16)
    most = []
    learn = Remembered.learn

    def learned(one: Any, *args: Any) -> None:
        learn(one, *args)
        most.append(len(one._made))

    monkeypatch.setattr(Remembered, "learn", learned)
    record = recorded(lambda x: [x + number / 100 for number in range(100)])
    assert len(results(record, "add")) == 100
    assert max(most) == 16
