"""What any file meets first: recognition by content, wrong files, limits of work and memory."""

from __future__ import annotations

import importlib
import json
import pickle
import random
import re
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from irscope.budget import DEFAULT_SECONDS, Allowance, OverBudget, claim, reading, spend
from irscope.cli.main import main
from irscope.codes import CODES
from irscope.errors import LoadError
from irscope.frontends.detect import KINDS, detect
from irscope.session import open_model

# Every kind of file is recognised by its content, whatever it is called, and without a heavy import.


def zipped(*names: str, folder: str = "model/") -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(f"{folder}{name}", b"x")
    return buffer.getvalue()


LEGACY = b"".join(pickle.dumps(item, 2) for item in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {}, []))
FILES: dict[str, bytes] = {
    "irs": b"# a comment\n\nirscope 1\ngraph @main {\n}\n",
    "stablehlo": b"// a comment\n#loc = loc(unknown)\nmodule @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n",
    "onnx": b"\x08\x0a\x12\x07pytorch\x3a\x00",
    "pt2": zipped("archive_format", "models/model.json", "data.pkl"),
    "inductor": b"# AOT ID: ['0_inference']\nfrom ctypes import c_void_p\n",
    "aoti": zipped("archive_format", "data/aotinductor/model/a.wrapper.cpp", "data/aotinductor/model/a.wrapper.so"),
    "torchscript": zipped("data.pkl", "constants.pkl", "code/__torch__.py", "version"),
    "torch-save": zipped("data.pkl", "data/0", "version"),
    "torch-save-legacy": LEGACY,
    "safetensors": struct.pack("<Q", 2) + b"{}",
    "checkpoint-index": b' {"metadata": {"note": "' + b"x" * 10_000 + b'"}, "weight_map": {}}',
    "adapter": b' {"note": "' + b"x" * 10_000 + b'", "peft_type": "LORA"}',
    "torchscript-lite": zipped("data.pkl", "constants.pkl", "bytecode.pkl"),
    "gguf": b"GGUF\x03\x00\x00\x00",
    "tflite": b"\x1c\x00\x00\x00TFL3" + bytes(20),
    "executorch": b"\x1c\x00\x00\x00ET12" + bytes(20),
    "tensorrt": b"ftrt" + bytes(60),
}
OTHER_FORMS = {
    "pt2 of the older layout": ("pt2", zipped("serialized_exported_program.json", "version", folder="")),
    "mobile TorchScript as a flatbuffer": ("torchscript-lite", b"\x1c\x00\x00\x00PTMF" + bytes(20)),
    "onnx that begins with the graph": ("onnx", b"\x3a\x00"),
}


def kind_of(path: Path) -> str:
    try:
        return detect(path).name
    except LoadError as error:
        refused = error
    assert refused.code == "IRS104", refused
    kind = refused.message.removeprefix("a ").partition(" file has no reader")[0]
    assert refused.hint == KINDS[kind].advice
    return kind


def test_a_file_of_every_kind_is_here() -> None:
    assert set(FILES) == set(KINDS)
    assert len(FILES) == 17


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ""])
@pytest.mark.parametrize("kind", FILES)
def test_kinds_are_told_by_content(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(FILES[kind])
    assert kind_of(path) == kind


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_other_forms(form: str, tmp_path: Path) -> None:
    kind, content = OTHER_FORMS[form]
    path = tmp_path / "model"
    path.write_bytes(content)
    assert kind_of(path) == kind


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "IRS102"),
        (b"\x89PNG\r\n\x1a\n", "IRS103"),
        (b"{}", "IRS103"),
        (zipped("word/document.xml", folder=""), "IRS103"),
        (zipped("data.pkl", "constants.pkl")[:-30], "IRS130"),
        (b"PK\x03\x04", "IRS130"),
    ],
    ids=["empty", "picture", "other JSON", "other zip", "cut-off zip", "start of a zip"],
)
def test_what_is_no_model(content: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(LoadError) as caught:
        detect(path)
    assert caught.value.code == code


def test_the_documentation_names_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "frontends.md").read_text(encoding="utf-8")
    firsts = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", page, re.M)
    assert {name for first in firsts for name in re.findall(r"[\w-]+", first)} == set(KINDS)
    assert set(re.findall(r"IRS\d{3}", page)) <= set(CODES)


def test_detecting_imports_nothing_heavy(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(FILES["torchscript"])
    code = (
        "import sys; from pathlib import Path; from irscope.frontends.detect import detect; detect(Path(sys.argv[1]));"
        "print(sorted({'numpy', 'onnx', 'torch', 'zipfile'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Whatever goes wrong while a file is read is the file's fault: exit code 3 and the file's place, never an error of irscope.

MODELS = Path(__file__).parents[2] / "samples" / "models"
FRONTENDS = {"onnx": "cnn.onnx", "exported": "net.pt2", "torchscript": "net.pt", "files.text": "../tagger.irs"}


@pytest.mark.parametrize(("frontend", "name"), FRONTENDS.items())
def test_an_unexpected_error_of_a_reader(
    frontend: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (MODELS / name).exists():
        pytest.skip("the sample needs torch")

    def load(*args: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(importlib.import_module(f"irscope.frontends.{frontend}"), "load", load)
    assert main(["run", str(MODELS / name)]) == 3
    err = capsys.readouterr().err
    assert "IRS107" in err and "a value is invalid" in err and str(MODELS / name) in err and f"{Path(__file__).stem}:" in err


def _mutated(item: Any, chance: random.Random) -> Any:
    """The same JSON with one place, found by going down at random, replaced by something of another kind."""
    if isinstance(item, dict) and item and chance.random() < 0.85:
        key = chance.choice(list(item))
        if chance.random() < 0.1:
            return {other: value for other, value in item.items() if other != key}
        return {**item, key: _mutated(item[key], chance)}
    if isinstance(item, list) and item and chance.random() < 0.85:
        at = chance.randrange(len(item))
        return [*item[:at], _mutated(item[at], chance), *item[at + 1 :]]
    return chance.choice([None, -1, 10**30, "x", "", [], {}, [[]], {"as_int": None}, True, 1.5, "9" * 50])


@pytest.mark.parametrize("seed", range(60))
def test_configs_of_exported_programs_are_checked(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (MODELS / "net.pt2").exists():
        pytest.skip("the sample needs torch")
    chance = random.Random(seed)
    target = tmp_path / "net.pt2"
    with zipfile.ZipFile(MODELS / "net.pt2") as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("_config.json"):
                data = json.dumps(_mutated(json.loads(data), chance)).encode()
            copy.writestr(name, data)
    assert main(["run", "--passes", "params{values}", str(target)]) in (0, 3, 5)
    err = capsys.readouterr().err
    assert "IRS900" not in err and "IRS107" not in err


# One budget of work and memory for a whole load: hostile files end within it with one line that names the construct.

ROOT = Path(__file__).parents[2]
EXTRA = 3.0
"""CPU seconds for imports and between two looks at the clock."""


def run(path: Path, *options: str) -> tuple[int, float]:
    started = time.process_time()
    return main(["run", "--passes", "stats", *options, str(path)]), time.process_time() - started


def checkpoint(path: Path, pickle: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle)
        archive.writestr("a/version", "3\n")
    return path


def doubled(times: int) -> bytes:
    """A tuple that holds one tuple twice, and so on: as text it is exponentially long."""
    code = b"\x80\x02)q\x00"
    for index in range(times):
        code += b"h%ch%c\x86q%c" % (index, index, index + 1)
    return code


SHARED = doubled(60)
LAST = b"h\x3c"
PICKLES = {
    "text of shared tuples": (SHARED + b"c_codecs\nencode\n" + LAST + b"\x85R.", "IRS161"),
    "a device of shared tuples": (SHARED + b"ctorch\ndevice\n" + LAST + b"\x85R.", "IRS161"),
    "a global named by shared tuples": (SHARED + LAST + LAST + b"\x93.", "IRS161"),
    "a storage of shared tuples": (SHARED + b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + LAST + LAST + b"K\x04tQ.", "IRS161"),
    "keys of shared tuples": (SHARED + b"}" + LAST + b"Ns.", "IRS161"),
    "copies of a list": (b"\x80\x02(" + b"N" * 100_000 + b"lq\x00" + b"cbuiltins\nlist\nh\x00\x85R" * 20_000 + b".", "IRS106"),
    "a deep list": (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "IRS160"),
}


@pytest.mark.parametrize(("pickle", "code"), PICKLES.values(), ids=PICKLES)
def test_pickles(pickle: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, seconds = run(checkpoint(tmp_path / "x.pt", pickle), "--budget", "1s,300MB")
    err = capsys.readouterr().err
    assert exit_code == 3 and code in err and err.count("\n") == 1
    assert seconds < 1 + EXTRA


@pytest.mark.slow
def test_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ",".join("+".join(f"(a+b+c+d+e+{start + index})**13" for index in range(300)) for start in (0, 1000, 2000))
    symbols = "".join(f"symbol {name} [1,*]\n" for name in "abcde")
    path = tmp_path / "x.irs"
    path.write_text(f"irscope 1\n{symbols}graph @main {{\n  input %x: f32[{sizes}]\n  %y = nn.relu(%x)\n  return %y\n}}\n")
    exit_code, seconds = run(path, "--budget", "1s")
    err = capsys.readouterr().err
    assert exit_code == 3 and "IRS106" in err and "a formula of sizes" in err and "--budget" in err
    assert seconds < 1 + EXTRA


ENDLESS = "the model's code"
CODE = {
    "an endless loop": ("i = 0\n  while True:\n    i = i + 1\n  return x", ENDLESS),
    "lists": ("y = [1]\n  for i in range(2000000):\n    y = y + y[:100000]\n    y = y[:900000]\n  return x", ENDLESS),
    "nodes": ("for i in range(1000000000):\n    x = x + 1\n  return x", ENDLESS),
    "unbind": ("return torch.unbind(x)[0]", "parts"),
    "chunk": ("return torch.chunk(x, 1000000000)[0]", "parts"),
    "split": ("return torch.split(x, 1)[0]", "parts"),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CODE)
def test_code(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    body, what = CODE[name]
    # torch knows a class by its name.
    module = type(f"Hostile{name.title().replace(' ', '')}", (torch.jit.ScriptModule,), {})()
    module.define(f"def forward(self, x):\n  {body}\n")
    module.save(str(tmp_path / "x.pt"))
    exit_code, seconds = run(tmp_path / "x.pt", "--budget", "1s,400MB", "--input", "x=f32[1000000000]")
    err = capsys.readouterr().err
    assert exit_code == 3 and err.startswith("irscope: error IRS1") and what in err, err
    assert seconds < 1 + EXTRA


def test_the_budget_is_one_for_the_whole_load() -> None:
    def work(what: str) -> None:
        ends = time.thread_time() + 0.04
        while time.thread_time() < ends:
            spend(1000, what)

    with reading("model", 0, Allowance(seconds=0.05)):
        work("the first half")
        with pytest.raises(OverBudget, match=r"more than 0\.05 CPU s: the second half") as error:
            work("the second half")
    assert error.value.exit_code == 3 and error.value.where == "model"


def test_bytes_are_refused_before_they_are_taken() -> None:
    with reading("model", 1_000_000, Allowance()):
        claim(400_000_000, "a list")
        with pytest.raises(OverBudget, match="would take 600 MB: a list"):
            claim(600_000_000, "a list")


def test_without_a_budget_nothing_is_refused() -> None:
    claim(10**15, "a list")
    spend(10**15, "a loop")


@pytest.mark.parametrize(
    "path", sorted([*(ROOT / "samples").glob("*.irs"), *(ROOT / "samples" / "models").glob("*.*")]), ids=lambda path: path.name
)
def test_honest_files_stay_far_below(path: Path) -> None:
    open_model(path)  # imports count for the first that is read
    with reading(str(path), path.stat().st_size) as budget:
        open_model(path)
        assert budget.used_share < 0.1


def test_the_option_raises_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "samples" / "mlp.irs"
    assert main(["run", "--budget", "60s,4GB", str(path)]) == 0
    assert main(["run", "--budget", "2min", str(path)]) == 0
    capsys.readouterr()
    assert main(["run", "--budget", "much", str(path)]) == 2
    assert "IRS336" in capsys.readouterr().err
    assert DEFAULT_SECONDS == 10


# Files of other programs are called by their name, with what to do.

_ITEM = b"\x12\x2a\x0a\x13\x0a\x05image\x12\x0aimage desc"
FOREIGN_FILES: dict[str, tuple[bytes, str, str]] = {
    "model.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98765\n", "Git LFS pointer", "IRS103"),
    "page.onnx": (b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>", "HTML page", "IRS103"),
    "small.html": (b"<html lang='en'><body>404</body></html>", "HTML page", "IRS103"),
    "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5", "IRS104"),
    "model.xml": (b'<?xml version="1.0"?>\n<net name="resnet" version="11">\n<layers>', "OpenVINO", "IRS104"),
    "model.bin": (b"\x3f" * 40, "model.xml, an OpenVINO model", "IRS103"),
    "other.xml": (b'<?xml version="1.0"?>\n<config/>', "XML file", "IRS103"),
    "model.mlmodel": (b"\x08\x05" + _ITEM, "Core ML", "IRS104"),
    "saved_model.pb": (b"\x08\x01\x12\xa0\x06\x0a\x10\x2a\x05serve" + bytes(20), "SavedModel", "IRS104"),
    "frozen.pb": (b"\x0a\x1b\x0a\x05input\x12\x0bPlaceholder" + bytes(8), "TensorFlow graph", "IRS104"),
    "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3", "PDF", "IRS103"),
    "array.npy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}", "NumPy", "IRS103"),
    "arrays.npz": (zipped("a.npy", "b.npy", folder=""), "NumPy", "IRS103"),
    "model.keras": (zipped("config.json", "model.weights.h5", folder=""), "Keras", "IRS104"),
    "package.zip": (zipped("Data/com.apple.CoreML/model.mlmodel", folder=""), "Core ML", "IRS104"),
    "models.zip": (zipped("readme.txt", "nets/model.onnx", folder=""), "nets/model.onnx", "IRS103"),
    "some.zip": (zipped("a.txt", "b.txt", "c.txt", folder=""), "a.txt, b.txt and 1 more (all: unzip -l some.zip)", "IRS103"),
    "model.so": (b"\x7fELF\x02\x01\x01" + bytes(40), "compiled library", "IRS104"),
    "model.onnx.gz": (b"\x1f\x8b\x08\x00" + bytes(20), "compressed", "IRS103"),
    "model.tar": (b"model.onnx".ljust(257, b"\0") + b"ustar\x0000" + bytes(250), "tar archive", "IRS103"),
    "tree.pkl": (pickle.dumps({"trees": 3}, 4), "pickle", "IRS103"),
    "config.json": (b'{"model_type": "llama"}', "JSON", "IRS103"),
}


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_files_of_other_programs_are_named(name: str, tmp_path: Path) -> None:
    content, said, code = FOREIGN_FILES[name]
    path = tmp_path / name
    (tmp_path / "model.xml").touch()
    path.write_bytes(content)
    with pytest.raises(LoadError) as refused:
        detect(path)
    assert refused.value.code == code and said in str(refused.value) and refused.value.hint


@pytest.mark.parametrize(
    ("inside", "content", "said"),
    [
        ("Data/com.apple.CoreML/model.mlmodel", "model.mlmodel", "Core ML"),
        ("coremldata.bin", "model.mlmodel", "Core ML"),
        ("saved_model.pb", "saved_model.pb", "SavedModel"),
    ],
)
def test_folders_of_other_programs_are_named(inside: str, content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mlpackage" / inside
    path.parent.mkdir(parents=True)
    path.write_bytes(FOREIGN_FILES[content][0])
    with pytest.raises(LoadError) as refused:
        open_model(str(tmp_path / "model.mlpackage"))
    assert refused.value.code == "IRS104" and said in str(refused.value)


def test_weights_that_are_pointers_are_named_too(tmp_path: Path) -> None:
    pointer = FOREIGN_FILES["model.onnx"][0]
    (tmp_path / "model-00001.safetensors").write_bytes(pointer)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model-00001.safetensors"}}')
    with pytest.raises(LoadError, match="Git LFS pointer"):
        open_model(index)
