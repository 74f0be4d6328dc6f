"""Damaged and hostile files: one clear error each, nothing executed, little memory."""

from __future__ import annotations

import io
import pickle
import random
import sys
import zipfile
from pathlib import Path

import pytest

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends import exported, torchscript
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import Stub, read_pickle

READERS = {"pt2": exported, "pt": torchscript, "save": checkpoint}


class Evil:
    """Unpickled the ordinary way this would write a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, (f"open({str(self.canary)!r}, 'w').close()",))


def archive(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in entries.items():
            file.writestr(f"m/{name}", data)
    return path


def load(kind: str, path: Path) -> None:
    READERS[kind].load(path, LoadOptions(), DiagnosticSink())


def refusal(kind: str, path: Path) -> str | None:
    """What a reader says against a file; None where it reads it."""
    try:
        load(kind, path)
    except LoadError as error:
        return str(error)
    return None


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickles_execute_nothing(protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    data = pickle.dumps({"weight": Evil(canary), "text": "kept"}, protocol)
    found = read_pickle(data, "m")
    assert isinstance(found.root, dict)
    assert isinstance(found.root["weight"], Stub)
    assert found.root["text"] == "kept"
    assert list(found.foreign) in (["builtins.exec"], ["__builtin__.exec"])
    for name in ("data.pkl", "constants.pkl", "traced_inputs.pkl"):
        path = archive(tmp_path / f"{name}.pt", {"data.pkl": data, "constants.pkl": data, "version": b"3", name: data})
        for kind in ("pt", "save"):
            with pytest.raises(LoadError):
                load(kind, path)
    assert not canary.exists()


def test_plain_data_survives() -> None:
    data = {"a": [1, -2, 3.5, None, True], "b": ("x", b"y", 2**70), 3: {"n": -(2**40)}, "größe": "ü\n\\"}
    for protocol in range(6):
        assert read_pickle(pickle.dumps(data, protocol), "m").root == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x02]q\x00.", ""),
        (b"\x80\x02]q\x00", "cut off"),
        (b"\x80\x02X\xff\xff\xff\x7fshort.", "cut off"),
        (b"\x80\x02\x8b\x04\x20\x00\x00" + b"\x01" * 0x2004 + b".", "absurd size"),
        (b"I" + b"9" * 5000 + b"\n.", "breaks the rules"),
        (b"\x80\x02\x82\x01.", "uses the opcode EXT1"),
        (b"Pid\n.", "uses the opcode PERSID"),
        (b"\x80\x02h\x05.", "never made"),
        (b"\x80\x02\xff.", "breaks the rules"),
        (b"\x80\x020.", "takes more from its stack"),
        (b"(lp0\n" + b"c" + b"x" * 20_000, "cut off"),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("is_part", [False, True], ids=["whole", "part of a file"])
def test_pickles_that_break_the_rules(data: bytes, said: str, is_part: bool) -> None:
    def read() -> None:
        if is_part:
            read_pickle(memoryview(b"before" + data + b"..." + bytes(30_000)), "m", 6, len(data))
        else:
            read_pickle(data, "m")

    if not said:
        read()
        return
    with pytest.raises(LoadError, match=said) as caught:
        read()
    assert caught.value.code == "IRS133"


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "m/../../evil", "C:/evil", "m\\evil"], ids=["up", "root", "inside", "drive", "back"]
)
def test_unsafe_names_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as file:
        info = zipfile.ZipInfo("placeholder")
        info.filename = name
        file.writestr(info, b"x")
    with pytest.raises(LoadError, match="unsafe name"):
        Archive(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("m/models/model.json", "w", force_zip64=True) as entry:
        block = bytes(1 << 20)
        for _ in range(300):
            entry.write(block)
    with pytest.raises(LoadError, match="more than irscope reads"):
        load("pt2", path)


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.pt2", {"models/model.json": b"{}", "archive_format": b"pt2"})
    data = bytearray(path.read_bytes())
    first = data.find(b"PK\x01\x02")
    second = data.find(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    path.write_bytes(data)
    with pytest.raises(LoadError, match="overlap"):
        Archive(path)


DOCUMENTS = (
    "[" * 100_000,
    '{"schema_version": {"major": 8, "minor": 20}}',
    "null",
    "{}",
    '"x"',
    '{"schema_version": {"major": 3, "minor": 1}}',
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_json_of_another_form(document: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "m.pt2", {"models/model.json": document.encode(), "archive_format": b"pt2"})
    with pytest.raises(LoadError):
        load("pt2", path)


BODIES = {
    "loop": "while True:\n      x = x",
    "recursion": "return (self).forward(x, )",
    "list": "y = torch.mul([0], 10000000000)\n    return x",
    "power": "y = 2 ** 100000000\n    return x",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_code_that_does_not_end(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.frontends.torchscript.interpreter._MOST_STEPS", 10_000)
    root = io.BytesIO()
    root.write(b"\x80\x02c__torch__\nM\n)\x81}b.")
    code = f"class M(Module):\n  __parameters__ = []\n  def forward(self: __torch__.M,\n    x: int=1) -> Tensor:\n    {body}\n"
    path = archive(tmp_path / "m.pt", {"data.pkl": root.getvalue(), "constants.pkl": b"\x80\x02).", "code/__torch__.py": code.encode()})
    with pytest.raises(LoadError):
        load("pt", path)


@pytest.mark.torch
@pytest.mark.parametrize("kind", READERS)
def test_truncated_and_mutated_files(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.frontends.torch.helpers import save_exported, save_traced
    from tests.frontends.torch.models import SAMPLES

    model, args = SAMPLES["mlp"].model(), SAMPLES["mlp"].inputs()
    path = tmp_path / "m"
    if kind == "pt2":
        save_exported(tmp_path / "m.pt2", model, args).rename(path)
    elif kind == "pt":
        save_traced(path, model, args)
    else:
        torch.save(model.state_dict(), path)
    whole = path.read_bytes()
    source = random.Random(7)
    for turn in range(150):
        data = bytearray(whole)
        if turn % 3 == 0:
            data = data[: source.randrange(16, len(data))]
        else:
            for _ in range(source.randrange(1, 6)):
                data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(data)
        message = refusal(kind, path)
        assert message is None or (message and "\n" not in message)


@pytest.mark.torch
def test_reading_never_imports_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import subprocess

    from tests.frontends.torch.helpers import save_exported, save_traced
    from tests.frontends.torch.models import SAMPLES

    model, args = SAMPLES["mlp"].model(), SAMPLES["mlp"].inputs()
    save_exported(tmp_path / "m.pt2", model, args)
    save_traced(tmp_path / "m.pt", model, args)
    code = (
        "import sys; from pathlib import Path; from irscope.diagnostics import DiagnosticSink\n"
        "from irscope.frontends.base import LoadOptions\n"
        "from irscope.frontends import exported, torchscript\n"
        "exported.load(Path('m.pt2'), LoadOptions(), DiagnosticSink()); torchscript.load(Path('m.pt'), LoadOptions(), DiagnosticSink())\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
