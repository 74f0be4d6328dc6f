"""Named models with open sizes against the same models at numbers: the formulas are of what runs, not of what an exporter makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import irscope  # noqa: E402
from irscope.cli.main import main  # noqa: E402
from irscope.errors import IrscopeError  # noqa: E402
from irscope.frontends.zoo import load  # noqa: E402
from irscope.frontends.zoo.names import Name  # noqa: E402
from irscope.frontends.zoo.recipes import Recipe, Wanted  # noqa: E402
from irscope.ir.dims import bind  # noqa: E402
from irscope.ir.dtypes import DType  # noqa: E402
from irscope.passes.memory.cuda import CudaMemory  # noqa: E402
from irscope.passes.memory.curve import simulator  # noqa: E402
from irscope.passes.memory.liveness import Liveness  # noqa: E402
from irscope.passes.memory.points import Points  # noqa: E402

pytestmark = pytest.mark.torch

SIZES = (1, 2, 3, 16, 33, 200)
WORDS = (
    Wanted("ids", ("batch", "seq"), DType.I64, "ids", 100, keyword=True),
    Wanted("mask", ("batch", "seq"), DType.I64, "ones", keyword=True),
)
IMAGE = (Wanted("x", ("batch", 3, 32, 32)),)


class Cache:
    """What a package returns that torch.export does not know."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values


class Decoder(nn.Module):
    """Leaves a mask out that masks nothing, as transformers does."""

    def __init__(self, cached: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.project = nn.Linear(64, 192)
        self.head = nn.Linear(64, 100)
        self.cached = cached

    def forward(self, ids: Tensor, mask: Tensor) -> object:
        x = self.embed(ids)
        q, k, v = (one.unflatten(-1, (4, 16)).transpose(1, 2) for one in self.project(x).chunk(3, -1))
        wide = None if mask.all() else mask[:, None, None, :].bool()
        mixed = functional.scaled_dot_product_attention(q, k, v, wide, is_causal=wide is None)
        found = self.head(mixed.transpose(1, 2).flatten(2))
        return {"logits": found, "past": Cache(k, v)} if self.cached else found


class Padded(nn.Module):
    """Kernels in C++ that take open sizes to be numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(self.conv(functional.pad(x, (0, 1, 0, 1))), scale_factor=2.0, mode="bilinear")


class SequenceFirst(nn.Module):
    """Copies that a batch of one does without."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(2).permute(1, 0, 2).contiguous() * 2).sum(0)


class Counted(nn.Module):
    """A size that values decide."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return ids[:, : int(mask[0].sum())].float().exp()


class Repeated(nn.Module):
    """A loop over an axis."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return torch.stack([ids[:, place] * mask[:, place] for place in range(ids.shape[1])])


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, tuple[Wanted, ...]], str]:
    def give(module: nn.Module, wanted: tuple[Wanted, ...]) -> str:
        def find(name: Name) -> Recipe:
            return Recipe(module.eval, lambda _: wanted, {"seq": 16})

        monkeypatch.setattr(load, "find_recipe", find)
        return "timm:made"

    monkeypatch.setattr(load, "_version", lambda package: "0")
    monkeypatch.setattr("irscope.frontends.zoo.packages.check_installed", lambda text: None)
    return give


@pytest.mark.parametrize(
    ("made", "wanted", "symbol"),
    [
        (Decoder, WORDS, "batch"),
        (Decoder, WORDS, "seq"),
        (lambda: Decoder(cached=True), WORDS, "seq"),
        (Padded, IMAGE, "batch"),
        (SequenceFirst, IMAGE, "batch"),
    ],
)
def test_formulas_are_of_what_runs(
    named: Callable[..., str], monkeypatch: pytest.MonkeyPatch, made: Callable[[], nn.Module], wanted: tuple[Wanted, ...], symbol: str
) -> None:
    monkeypatch.setattr(load, "_exported", None)
    model = irscope.load(named(made(), wanted), open_sizes=[symbol])
    assert model.program.symbols[symbol].bounds[0] == 1
    assert model.program.observed is not None and model.program.observed.holds(model.graph)
    replayed = simulator(model.manager, "auto")
    assert replayed is not None
    for size in SIZES:
        if size < model.program.formulas_from[symbol] and made is SequenceFirst:
            continue
        alone = model.rebound({symbol: size})
        central = alone.manager.get(CudaMemory()).central
        assert central is not None
        (counted,) = replayed.counted(Points({symbol: [size]}, {}))
        assert [counted[run].peak for run in ("cold", "warm")] == [central[run].peak for run in ("cold", "warm")]
    flops = model.rebound({symbol: 33}).run("flops")["flops"].value.total.flops
    assert model.run("flops")["flops"].value.total.flops is not None and isinstance(flops, int)


def test_a_mask_that_masks_nothing_takes_nothing(named: Callable[..., str]) -> None:
    model = irscope.load(named(Decoder(), WORDS), open_sizes=["seq"])
    assert "seq**2" not in str(model.manager.get(Liveness()).peak)


@pytest.mark.parametrize("module", [Counted(), Repeated()])
def test_what_fixes_a_size_is_not_taken_for_a_formula(named: Callable[..., str], module: nn.Module) -> None:
    with pytest.raises(IrscopeError) as caught:
        irscope.load(named(module, WORDS), open_sizes=["seq"])
    assert caught.value.code == "IRS673"


def test_sweeps_from_one_are_right_where_formulas_do_not_hold(named: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    name = named(SequenceFirst(), IMAGE)
    model = irscope.load(name, open_sizes=["batch"])
    for command, key in (
        (["sweep", name, "--over", "batch=1..3"], "activation_peak_bytes"),
        (["run", name, "--sweep", "batch=1..3"], "reserved_bytes"),
    ):
        assert main([*command, "--format", "json"]) == 0
        table = json.loads(capsys.readouterr().out)["reports"][-1]["tables"][0]
        keys = [column["key"] for column in table["columns"]]
        rows = [dict(zip(keys, row, strict=True)) for row in table["rows"]]
        assert [row["batch"] for row in rows] == [1, 2, 3]
        for row in rows:
            alone = model.rebound({"batch": row["batch"]})
            assert row["activation_peak_bytes"] == alone.manager.get(Liveness()).peak
            central = alone.manager.get(CudaMemory()).central
            assert central is not None
            if key == "reserved_bytes":
                assert row[key] == central.worst("reserved")
    # A batch of one is not copied: the formula, which is of larger ones, would count the copy.
    assert model.rebound({"batch": 1}).manager.get(Liveness()).peak != bind(model.manager.get(Liveness()).peak, {"batch": 1})


@pytest.mark.parametrize(
    ("over", "code"), [("batch=0,1", "IRS671"), ("batch=4..1", "IRS331"), ("batch=1,batch=2", "IRS331"), ("batch=x", "IRS331")]
)
@pytest.mark.parametrize("command", [["sweep", "--over"], ["run", "--sweep"]])
def test_sizes_are_checked_before_anything_runs(
    named: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], over: str, code: str
) -> None:
    name = named(Decoder(), WORDS)
    monkeypatch.setattr(load, "find_recipe", None)
    assert main([*command, over, name]) == 2
    assert code in capsys.readouterr().err
