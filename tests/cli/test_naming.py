"""One way of naming a model for every command: files, folders, names of packages, functions and classes of a user's file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import irscope
from irscope.cli.main import main
from irscope.errors import LoadError, UsageError
from irscope.frontends.zoo import names, packages
from irscope.frontends.zoo.names import definitions, is_name, is_script, parse_name
from tests.cli.test_bad_input import MODEL
from tests.tui.driving import start_headless

SCRIPT = """
import torch
from torch import nn
import beside_it

print("talk of the script")

class MyNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.wide = nn.Linear(8, width)

    def forward(self, x):
        return self.wide(x).relu()

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)

    def forward(self, ids, mask, scale=1.0):
        return self.embed(ids) * mask.unsqueeze(-1) * scale

def build(batch=2, width=4):
    return MyNet(width), torch.zeros(batch, 8)

def only_module():
    return MyNet()

def by_name():
    return {"module": Words(), "inputs": {"ids": torch.randint(0, 50, (3, 5)), "mask": torch.ones(3, 5)}}

def plain_argument():
    return Words(), (torch.randint(0, 50, (3, 5)), torch.ones(3, 5), 2.0)

def fails():
    raise KeyError("oops")

def reads_values():
    net = MyNet(100_000)
    assert float(net.wide.weight.abs().sum()) > 0
    return net, torch.zeros(2, 8)

def leaves():
    raise SystemExit(3)

def number():
    return 5

def needs(width):
    return MyNet(width)

net = MyNet()
_hidden = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one model of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside_it.py").write_text("")
    (tmp_path / "model.irs").write_text(MODEL)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text(json.dumps({"architectures": ["Words"], "model_type": "words"}))
    return tmp_path


def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a package that is not installed."""
    from torch import nn

    from irscope.frontends.zoo import load
    from irscope.frontends.zoo.recipes import Recipe, Wanted

    def find(name: names.Name) -> Recipe:
        return Recipe(lambda: nn.Linear(8, 4).eval(), lambda module: [Wanted("input", ("batch", 8))])

    monkeypatch.setattr(load, "find_recipe", find)
    monkeypatch.setattr(load, "_installed_version", lambda package: "0")
    monkeypatch.setattr(names, "_package_of", lambda folder: names.configured_by(folder))
    monkeypatch.setattr(packages, "_need", lambda package: None)


KINDS = {
    "a function": ("train.py:build", ""),
    "a function with options": ("./train.py:build{width=6,batch=3}", ""),
    "a class": ("train.py:MyNet", "--input batch,8"),
    "a module": ("train.py:net", "--input x=f32[batch,8]"),
    "a name": ("timm:small", ""),
    "a folder": ("hub", ""),
    "a folder with options": ("./hub{layers=2}", ""),
}
COMMANDS = {
    "run": "run --passes flops,liveness MODEL",
    "run with a sweep": "run --passes stats --sweep batch=1,2 MODEL",
    "show": "show MODEL",
    "fit": "fit --memory 64MiB MODEL",
    "sweep": "sweep --over batch=1,2,4 MODEL",
    "compare": "compare MODEL MODEL",
    "compare-flops": "compare-flops --against torch MODEL --bind batch=2",
    "export": "export -o out.pt2 MODEL --bind batch=2",
    "export a timeline": "export -o out.json MODEL --bind batch=2",
    "train-plan": "train-plan MODEL",
    "ops": "ops --coverage MODEL",
}


FIT_TAKES = ("a function with options", "a name")
"""Kinds with which `fit` is tried in the normal run: it looks at each of a hundred thousand sizes, whatever the kind."""
PAIRS = [
    pytest.param(line, *model, id=f"{kind}-{name}", marks=[pytest.mark.full] if name == "fit" and kind not in FIT_TAKES else [])
    for kind, model in KINDS.items()
    for name, line in COMMANDS.items()
]


@pytest.mark.torch
@pytest.mark.parametrize(("command", "model", "inputs"), PAIRS)
def test_every_command_takes_every_kind(
    command: str, model: str, inputs: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    _stand_in(monkeypatch)
    if "batch=2" in command and "--bind" in command and inputs:
        inputs = inputs.replace("batch", "2")
        command = command.replace(" --bind batch=2", "")
    if command.startswith("train-plan") and inputs:
        inputs = inputs.replace("batch", "2")
    words = [word for part in command.split() for word in ([model] if part == "MODEL" else [part])]
    code = main([*words, *inputs.split()])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "Traceback" not in err and "talk of the script" not in out


@pytest.mark.torch
@pytest.mark.usefixtures("forked_recorder")
def test_record_takes_a_function(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main(["record", "train.py:build", "--repeats", "1", "--warmup", "0", "-o", "run.jsonl"]) == 0
    assert main(["compare", "train.py:build", "run.jsonl"]) == 0
    assert "talk of the script" not in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.parametrize(("model", "inputs"), KINDS.values(), ids=KINDS.keys())
def test_the_tui_takes_every_kind(model: str, inputs: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    _stand_in(monkeypatch)
    noted: list[Path] = []
    monkeypatch.setattr("irscope.tui.picker.note_opened", noted.append)
    opened = start_headless(monkeypatch)
    assert main(["tui", model, *inputs.split()]) == 0
    assert len(opened[0][0].graph.inputs) == 1
    assert noted == ([Path(model)] if model == "hub" else [])


def _file(kind: str, folder: Path, inputs: int = 1) -> Path:
    """A model that adds its inputs, f32[2,3] each, and a rectifier."""
    torch = pytest.importorskip("torch")

    class Two(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is imported where it is installed
        def forward(self, x, y):  # type: ignore[no-untyped-def]  # TorchScript reads annotations
            return (x + y).relu()

    module, args = (torch.nn.ReLU() if inputs == 1 else Two()), (torch.zeros(2, 3),) * inputs
    path = folder / f"sum.{kind}"
    if kind == "pt2":
        torch.export.save(torch.export.export(module, args), path)
    elif kind == "trace":
        torch.jit.save(torch.jit.trace(module, args), path)
    elif kind == "script":
        torch.jit.save(torch.jit.script(module), path)
    elif kind == "onnx":
        import onnx
        from onnx import helper

        names = ["x", "y"][:inputs]
        nodes = [helper.make_node("Sum", names, ["s"]), helper.make_node("Relu", ["s"], ["z"])]
        given = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in names]
        graph = helper.make_graph(nodes, "sum", given, [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph), path)
    else:
        head = "".join(f"  input %{name}: f32[2,3]\n" for name in ("x", "y")[:inputs])
        body = "math.add(%x, %y)" if inputs == 2 else "nn.relu(%x)"
        path.write_text(f"irscope 1\ngraph @main {{\n{head}  %z: f32[2,3] = {body}\n  return %z\n}}\n")
    return path


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["onnx", "pt2", "trace", "script", "irs"])
def test_sizes_need_no_name_where_there_is_one_input(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(kind, tmp_path)
    for text, type_ in {"5,3": "f32[5,3]", "[5,3]": "f32[5,3]", "5x3": "f32[5,3]", "f16[5,3]": "f16[5,3]", "0=5,3": "f32[5,3]"}.items():
        name, _, sizes = text.rpartition("=")
        assert str(irscope.load(path, inputs={name: sizes}).graph.inputs[0].type).partition("<")[0] == type_
    assert main(["run", "--passes", "stats", "--input", "5,3", str(path)]) == 0
    if kind != "script":
        # Sizes alone are one for each axis that the file declares.
        assert main(["run", "--passes", "stats", "--input", "5,3,1", str(path)]) == 2
        assert "has 2 axes, not 3" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["onnx", "pt2", "trace", "irs"])
def test_with_several_inputs_a_line_names_them(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(kind, tmp_path, inputs=2)
    assert main(["run", "--passes", "stats", "--input", "5,3", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "the model has 2 inputs" in said and "inputs: x, y" in said
    assert main(["run", "--passes", "stats", "--input", "x=5,3", "--input", "y=5,3", str(path)]) == 0


def _inputs(text: str, **more: object) -> list[str]:
    pytest.importorskip("torch")
    return [f"{value.name}={value.type}".partition("<")[0] for value in irscope.load(text, **more).graph.inputs]  # type: ignore[arg-type]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "more", "inputs"),
    [
        ("train.py:build", {}, ["x=f32[2,8]"]),
        ("train.py:build{batch=5}", {}, ["x=f32[5,8]"]),
        ("train.py:build{batch=5}", {"bind": {"batch": 7}}, ["x=f32[7,8]"]),
        ("train.py:build", {"open_sizes": ["batch"]}, ["x=f32[batch,8]"]),
        ("train.py:build", {"inputs": {"": "3,2,8"}}, ["x=f32[3,2,8]"]),
        ("train.py:build{dtype=bf16}", {}, ["x=bf16[2,8]"]),
        ("train.py:by_name", {"bind": {"batch": 4}}, ["ids=i64[4,5]", "mask=f32[4,5]"]),
        ("train.py:plain_argument", {}, ["ids=i64[3,5]", "mask=f32[3,5]"]),
        ("train.py:Words", {"inputs": {"ids": "i64[2,6]", "mask": "2,6"}}, ["ids=i64[2,6]", "mask=f32[2,6]"]),
        ("train.py:Words", {"inputs": {"0": "i64[2,6]", "1": "2,6"}}, ["ids=i64[2,6]", "mask=f32[2,6]"]),
        ("train.py:reads_values", {}, ["x=f32[2,8]"]),
    ],
)
def test_inputs_of_a_users_model(text: str, more: dict[str, object], inputs: list[str], here: Path) -> None:
    assert _inputs(text, **more) == inputs


@pytest.mark.torch
def test_sizes_say_where_they_come_from(here: Path) -> None:
    pytest.importorskip("torch")
    (found,) = irscope.load("train.py:build").program.assumed
    assert (found.text, found.is_guess) == ("batch=2 (build(); --bind batch=N)", False)
    assert not irscope.load("train.py:build", bind={"batch": 2}).program.assumed


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        ("train.py:MyNet", 2, "--input x=f32[1,3,224,224]"),
        ("train.py:Words --input 2,5", 2, "--input ids=i64[1,128]"),
        ("train.py:by_name --input 2,5", 2, "the model has 2 inputs"),
        ("train.py:only_module", 2, "says nothing of its inputs (x)"),
        ("train.py:build{widht=3}", 2, "takes (batch=2, width=4)"),
        ("train.py:needs", 2, "missing a required argument: 'width'"),
        ("train.py:build --bind seq=3", 2, "sizes, with their defaults: batch (2)"),
        ("train.py:fails", 3, "train.py:37: fails() fails: KeyError: 'oops'"),
        ("train.py:leaves", 3, "it ends the process (3)"),
        ("train.py:number", 3, "must return a module, or module and inputs"),
        ("train.py:nothing", 3, "there are build, MyNet, Words, only_module"),
        ("absent.py:build", 3, "there is no such file"),
    ],
)
def test_what_gives_no_model(arguments: str, exit_code: int, words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main(["run", "--passes", "stats", *arguments.split()]) == exit_code
    said = [line for line in capsys.readouterr().err.splitlines() if line != "talk of the script"]
    assert len(said) == 1 and words in said[0]


def _files(folder: Path) -> None:
    (folder / "run.jsonl").write_text('{"schema": "irscope.recording/1"}\n')
    (folder / "snapshot.pickle").write_bytes(b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\rdevice_traces\x94]\x94u.")
    (folder / "two").mkdir()
    for name in ("a.onnx", "b.onnx"):
        (folder / "two" / name).write_bytes(b"\x08\x08")


NO_MODELS = {
    "a recording": ("run.jsonl", 3, "run.jsonl"),
    "a snapshot": ("snapshot.pickle", 3, "`irscope explain snapshot.pickle`"),
    "a script": ("train.py", 3, "train.py:build, train.py:MyNet"),
    "a folder with models": ("two", 3, "name the model file: two/a.onnx, two/b.onnx"),
    "a folder above": (".", 3, "name the model file: model.irs"),
    "a configuration alone": ("hub", 3, "pip install torch transformers"),
    "a misspelt file": ("modle.irs", 3, "did you mean model.irs?"),
    "a model of the hub": ("org/model-7b", 3, "hf download org/model-7b --local-dir model-7b"),
    "a misspelt package": ("torchvison:resnet50", 2, "did you mean torchvision:resnet50?"),
    "a bare word": ("resnet50", 2, "torchvision:resnet50, timm:resnet50, transformers:resnet50"),
}


@pytest.mark.parametrize(
    "command", ["run", "show", "fit", "sweep --over batch=1", "compare-flops", "train-plan", "record", "ops --coverage"]
)
@pytest.mark.parametrize(("text", "exit_code", "words"), NO_MODELS.values(), ids=NO_MODELS.keys())
def test_every_command_says_what_to_type(
    command: str,
    text: str,
    exit_code: int,
    words: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command in ("train-plan", "record") and text == "train.py":
        pytest.skip("it runs a whole script")
    _files(here)
    monkeypatch.setattr(packages, "is_installed", lambda package: False)
    monkeypatch.setattr(names, "_package_of", lambda folder: "")
    assert main([*command.split(), text]) == exit_code
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and words in err


def test_a_bare_word_is_asked_about(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"torchvision": ["resnet50"], "timm": ["resnet50", "vit_tiny"], "transformers": ["gpt2"]}
    monkeypatch.setattr(packages, "is_installed", lambda package: True)
    monkeypatch.setattr(packages, "names_of", lambda package: known[package])
    for text, said in {
        "resnet50": "did you mean torchvision:resnet50 or timm:resnet50?",
        "resnet50{num_classes=3}": "did you mean torchvision:resnet50{num_classes=3} or timm:resnet50{num_classes=3}?",
        "gpt2": "did you mean transformers:gpt2?",
        "resnet51": "near: torchvision:resnet50, timm:resnet50",
    }.items():
        assert main(["run", text]) == 2
        assert capsys.readouterr().err.rstrip().endswith(f"({said})")


def test_a_model_is_no_program(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("train.py:build", "model.irs"):
        assert main(["simulate", text]) == 2
        assert f"`irscope train-plan {text}`" in capsys.readouterr().err


def _shard(path: Path, **tensors: int) -> None:
    at, header = 0, {}
    for name, count in tensors.items():
        header[name] = {"dtype": "F32", "shape": [count], "data_offsets": [at, at + 4 * count]}
        at += 4 * count
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def test_a_folder_of_shards_is_its_index(here: Path) -> None:
    hub = here / "hub"
    _shard(hub / "model-1.safetensors", a=8)
    _shard(hub / "model-2.safetensors", b=2)
    places = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (hub / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    model = irscope.load(hub) if names._package_of(hub) == "" else irscope.load(hub / "model.safetensors.index.json")
    assert model.info().parameters == 10


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["model.safetensors", "consolidated.safetensors"], "model.safetensors"),
        (["pytorch_model.bin", "training_args.bin"], "pytorch_model.bin"),
        (["model.onnx", "model_quantized.onnx"], "model.onnx"),
        (["net.onnx"], "net.onnx"),
        (["other.safetensors"], "other.safetensors"),
    ],
)
def test_which_file_of_a_folder(files: list[str], chosen: str, here: Path) -> None:
    for name in files:
        (here / "hub" / name).touch()
    assert names.file_in(here / "hub").name == chosen


def test_folders_that_say_too_little(here: Path) -> None:
    (here / "hub" / "a.onnx").touch()
    (here / "hub" / "b.onnx").touch()
    with pytest.raises(LoadError, match=r"hub/a\.onnx, .*hub/b\.onnx"):
        names.file_in(here / "hub")
    (here / "hub" / "config.json").write_text("[" * 100_000)
    assert not names.configured_by(here / "hub")


def test_links_out_of_a_folder_are_not_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "elsewhere").mkdir()
    _shard(here / "elsewhere" / "secret.safetensors", a=8)
    (here / "elsewhere" / "config.json").write_text('{"model_type": "words"}')
    hub = here / "hub"
    (hub / "config.json").unlink()
    (hub / "config.json").symlink_to(here / "elsewhere" / "config.json")
    assert not names.configured_by(hub)
    (hub / "model.safetensors").symlink_to(here / "elsewhere" / "secret.safetensors")
    assert main(["run", "hub"]) == 3
    assert "'model.safetensors' is outside the folder of the model" in capsys.readouterr().err


def test_a_folder_of_timm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "hub" / "config.json").write_text(json.dumps({"architecture": "resnet18", "num_classes": 10}))
    monkeypatch.setattr(names, "_package_of", lambda folder: names.configured_by(folder))
    found = parse_name("hub{in_chans=1}")
    assert (found.package, found.model, dict(found.options)) == ("timm", "resnet18", {"in_chans": 1, "num_classes": 10})


def test_what_is_a_name(here: Path) -> None:
    assert is_script("train.py:build") and is_script("./a b/train.py:My{x=1}") and not is_script("timm:x")
    assert is_name("timm:x") and not is_name("train.py") and not is_name("model.irs")
    (here / "train.py:build").write_text(MODEL)
    assert not is_name("train.py:build")
    with pytest.raises(UsageError):
        parse_name("model.irs")


def test_definitions_are_found_without_running(here: Path) -> None:
    found = definitions(here / "train.py")
    assert found[:4] == ["build", "MyNet", "Words", "only_module"]
    assert "needs" not in found and "_hidden" not in found
    (here / "broken.py").write_text("def (:")
    assert definitions(here / "broken.py") == []
