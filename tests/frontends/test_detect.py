"""Every kind of file is recognised by its content, whatever it is called, and without a heavy import."""

from __future__ import annotations

import pickle
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from irscope.codes import CODES
from irscope.errors import LoadError
from irscope.frontends.detect import KINDS, detect


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
    "onnx": b"\x08\x0a\x12\x07pytorch\x3a\x00",
    "pt2": zipped("archive_format", "models/model.json", "data.pkl"),
    "torchscript": zipped("data.pkl", "constants.pkl", "code/__torch__.py", "version"),
    "torch-save": zipped("data.pkl", "data/0", "version"),
    "torch-save-legacy": LEGACY,
    "safetensors": struct.pack("<Q", 2) + b"{}",
    "checkpoint-index": b' {"metadata": {"note": "' + b"x" * 10_000 + b'"}, "weight_map": {}}',
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
    assert len(FILES) == 13


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
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.M)) == set(KINDS)
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
