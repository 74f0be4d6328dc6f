"""Models made by name: captured like real ones, with open sizes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

import irscope
from irscope.cli.main import main
from irscope.errors import IrscopeError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo import load
from irscope.frontends.zoo.names import Name
from irscope.frontends.zoo.recipes import Recipe, Wanted
from irscope.ir.dims import bind
from irscope.ir.dtypes import DType
from irscope.passes.memory.cuda import CudaMemory
from irscope.passes.memory.curve import simulator
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import Points
from tests.tools.oracle.storages import record_module

# Named models without any package: a recipe of the tests' own stands in for what a package offers.

pytestmark = pytest.mark.torch

NAME = "timm:words"


class Words(nn.Module):
    """A tied embedding, a buffer that its own code looks into, and a large layer."""

    def __init__(self, wide: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(300, 32)
        self.wide = nn.Linear(32, wide)
        self.back = nn.Linear(wide, 32)
        self.head = nn.Linear(32, 300, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(4))
        self.rates = torch.linspace(0, 1, 3).tolist()[: int(self.steps[2])]

    def forward(self, ids: Tensor, scale: Tensor) -> Tensor:
        x = self.embed(ids) * scale.unsqueeze(1)
        for rate in self.rates:
            x = x + self.back(torch.relu(self.wide(x))) * rate
        return self.head(x)


@pytest.fixture(autouse=True)
def _recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: Name) -> Recipe:
        options: dict[str, Any] = dict(name.options)
        dtype = {"bf16": DType.BF16}.get(str(options.pop("dtype", "")))
        wanted = (Wanted("ids", ("batch", "seq"), DType.I64, "ids", 300, keyword=True), Wanted("scale", ("batch", 32), keyword=True))
        return Recipe(lambda: Words(**options).eval(), lambda module: wanted, {"seq": 6}, dtype)

    monkeypatch.setattr(load, "find_recipe", find)
    monkeypatch.setattr("irscope.frontends.zoo.packages.check_installed", lambda text: None)
    monkeypatch.setattr("irscope.cli.export.check_installed", lambda text: None)
    monkeypatch.setattr(load, "_installed_version", lambda package: "0")


def inputs(model: irscope.api.Model) -> list[str]:
    return [str(value.type) for value in model.graph.inputs]


def test_it_is_captured_with_what_python_keeps() -> None:
    model = irscope.load(NAME, bind={"batch": 2})
    assert model.info().path == NAME and model.info().format == "module"
    # The embedding is one tensor, though two layers have it.
    assert model.info().parameters == sum(value.numel() for value in Words().parameters())
    assert [text.split("]")[0] for text in inputs(model)] == ["i64[2,6", "f32[2,32"]
    made = load.make_named(NAME, LoadOptions(bind={"batch": 2}), hollow=False)
    _, kwargs = made.arguments(real=True)
    truth = record_module(Positional(made.module), tuple(kwargs.values())).peak
    assert model.run("liveness")["liveness"].report().summary["activation_peak_bytes"] == truth


class Positional(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor, scale: Tensor) -> Tensor:
        return self.inner(ids, scale)  # type: ignore[no-any-return]  # a module's call has no type


def test_large_weights_have_no_values() -> None:
    module = load.make_named(f"{NAME}{{wide=100000}}", LoadOptions()).module
    assert module.wide.weight.is_meta and not module.steps.is_meta
    model = irscope.load(f"{NAME}{{wide=100000}}")
    assert model.info().parameters == 300 * 32 + 65 * 100_000 + 32


def test_element_types() -> None:
    model = irscope.load(f"{NAME}{{dtype=bf16}}")
    assert {weight.type.dtype for weight in model.program.parameters()} == {DType.BF16}
    assert inputs(model)[1].startswith("bf16[")
    assert irscope.load(NAME, inputs={"scale": "f16[1,32]"}).info().parameter_bytes == 2 * irscope.load(NAME).info().parameters


def test_open_sizes_are_symbols() -> None:
    model = irscope.load(NAME, open_sizes=["batch", "seq"])
    assert [text.split("]")[0] for text in inputs(model)] == ["i64[batch,seq", "f32[batch,32"]
    assert set(model.program.symbols) == {"batch", "seq"}
    assert model.info().parameters == irscope.load(NAME).info().parameters
    at_two = irscope.load(NAME, bind={"batch": 2, "seq": 5}).run("flops")["flops"].report().summary["total_flops"]
    total = model.rebound({"batch": 2, "seq": 5}).run("flops")["flops"].report().summary["total_flops"]
    assert total == at_two
    named = irscope.load(NAME, inputs={"ids": "i64[n,6]", "scale": "f32[n,32]"})
    assert set(named.program.symbols) == {"n"}


def test_fit_and_sweep_open_what_they_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", NAME, "--memory", "64MiB", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest"] > 10
    assert main(["sweep", NAME, "--over", "seq=4,8", "--format", "json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--bind", "length=3"], "IRS671"),
        (["--bind", "batch=0"], "IRS671"),
        (["--input", "x=f32[1]"], "IRS623"),
        (["--method", "other"], "IRS623"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, *arguments]) == 2
    said = capsys.readouterr().err
    assert code in said and said.count("\n") == 1


def test_a_model_that_cannot_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{NAME}{{nope=1}}"]) == 3
    assert "IRS197" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_exported_files_run_with_the_inputs_beside_them(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / f"words{suffix}"
    assert main(["export", NAME, "-o", str(target), "--bind", "batch=3"]) == 0
    assert "weights are random" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, f"{target.name}.inputs.npz"]
    with np.load(f"{target}.inputs.npz") as arrays:
        found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    assert {name: tuple(array.shape) for name, array in found.items()} == {"ids": (3, 6), "scale": (3, 32)}
    module = torch.export.load(target).module() if suffix == ".pt2" else torch.jit.load(target)
    torch.manual_seed(0)
    assert torch.allclose(module(**found), Words().eval()(**found), atol=1e-5)
    with zipfile.ZipFile(target) as archive:
        [described] = [name for name in archive.namelist() if name.endswith("irscope.inputs")]
        assert json.loads(archive.read(described))[0] == {"name": "ids", "dtype": "i64", "shape": [3, 6]}
    read = irscope.load(target)
    assert [text.split("]")[0] for text in inputs(read)] == ["i64[3,6", "f32[3,32"]


def test_exported_to_onnx_with_an_open_size(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    target = tmp_path / "words.onnx"
    assert main(["export", NAME, "-o", str(target), "--input", "ids=i64[batch,6]", "--input", "scale=f32[batch,32]"]) == 0
    model = onnx.load(target)
    [described] = [json.loads(prop.value) for prop in model.metadata_props if prop.key == "irscope.inputs"]
    assert [one["name"] for one in described] == [info.name for info in model.graph.input] == ["ids", "scale"]
    assert len(irscope.load(target).program.symbols) == 1


def test_a_named_model_is_reordered_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "words.pt2"
    assert main(["export", NAME, "--schedule=seconds=1", "-o", str(target)]) == 0
    assert "reordering does not help here" in capsys.readouterr().err
    assert target.exists()


def test_refusals_of_export(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Path(__file__).parents[3] / "samples" / "mlp.irs"
    assert main(["export", str(sample), "-o", str(tmp_path / "x.onnx")]) == 2
    assert "IRS678" in capsys.readouterr().err
    assert main(["export", NAME, "-o", str(tmp_path / "gone" / "x.pt2")]) == 2
    assert "does not exist" in capsys.readouterr().err
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    assert main(["export", NAME, "-o", str(tmp_path / "x.pt2")]) == 2
    assert "IRS677" in capsys.readouterr().err
    with pytest.raises(IrscopeError):
        irscope.load(NAME, open_sizes=["nope"])
    assert list(tmp_path.iterdir()) == []


# Named models with open sizes against the same models at numbers: the formulas are of what runs, not of what an exporter makes of it.

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

    monkeypatch.setattr(load, "_installed_version", lambda package: "0")
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


class Branching(nn.Module):
    """Other code for large batches."""

    def forward(self, x: Tensor) -> Tensor:
        return x.exp().relu() if x.shape[0] * 2 <= 40 else x.relu()


class Scaled(nn.Module):
    """A number that follows from a size and is not a size."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 / x.shape[0])


class Looking(nn.Module):
    """A decision by values that another size may have otherwise."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return ids.float().exp() if (ids > 2).any() else ids.float()


@pytest.mark.parametrize(
    ("made", "wanted", "conditions", "same", "apart"),
    [
        (Decoder, WORDS, (), (2, 3, 33), (1,)),
        (SequenceFirst, IMAGE, (), (2, 3, 33), (1,)),
        (Branching, IMAGE, (), (2, 20), (1, 21, 33)),
        (Scaled, IMAGE, None, (), (1, 2, 33)),
        (Looking, WORDS, None, (), (1, 2, 33)),
        (Padded, IMAGE, None, (), (2, 33)),
    ],
)
def test_one_capture_serves_the_sizes_that_take_its_path(
    named: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[], nn.Module],
    wanted: tuple[Wanted, ...],
    conditions: object,
    same: tuple[int, ...],
    apart: tuple[int, ...],
) -> None:
    model = irscope.load(named(made(), wanted), open_sizes=["batch"])
    assert (model.program.conditions is None) == (conditions is None)
    captures: list[int] = []
    real = load.capture_module

    def counted(*args: Any, **kwargs: Any) -> Any:
        captures.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(load, "capture_module", counted)
    for size in (*same, *apart):
        captures.clear()
        found = model.numbers_at({"batch": size})
        assert len(captures) == (size in apart)
        alone = model.rebound({"batch": size})
        assert found.manager.get(Liveness()).peak == alone.manager.get(Liveness()).peak
        central, expected = found.manager.get(CudaMemory()).central, alone.manager.get(CudaMemory()).central
        assert central is not None and expected is not None and central.outcomes == expected.outcomes
        assert found.program.observed is not None and found.program.observed.holds(found.graph)
    assert model.program.observed is not None and model.program.observed.holds(model.graph)


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
