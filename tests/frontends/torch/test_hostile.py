"""Files that want to do harm or use up the machine: nothing of them runs, the command line says one line."""

from __future__ import annotations

import io
import json
import pickle
import random
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends import exported, torchscript
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import Stub, read_pickle
from tests.tables import every

# Damaged and hostile files: one clear error each, nothing executed, little memory.

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
    unpickled = read_pickle(data, "m")
    assert isinstance(unpickled.root, dict)
    assert isinstance(unpickled.root["weight"], Stub)
    assert unpickled.root["text"] == "kept"
    assert list(unpickled.foreign) in (["builtins.exec"], ["__builtin__.exec"])
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


_FOUR_NUMBERS = b"ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQI0\n(I4\nt(%stI00\nNtR."
"""A tensor along one axis, with the strides that are put in."""


@every(
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
        (_FOUR_NUMBERS % b"I1\n", ""),
        (_FOUR_NUMBERS % b"", "breaks the rules"),
    ],
    ids=range(13),
)
@every("is_part", [False, True], ids=["whole", "part of a file"])
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


@pytest.mark.slow
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
    from tests.tools.torch_files.helpers import save_exported, save_traced
    from tests.tools.torch_files.models import SAMPLES

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

    from tests.tools.torch_files.helpers import save_exported, save_traced
    from tests.tools.torch_files.models import SAMPLES

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


# Hostile files through the command line: one clear line, nothing executed, at most 200 MB of memory, no hang.

MOST_MB = 200
SECONDS = 240
"""Longer than any of these takes on a busy machine: it ends what would never end, and times nothing."""

MODULE = b"\x80\x02c__torch__\nM\n)\x81}b."
CONSTANTS = b"\x80\x02)."
HEAD = "class M(Module):\n  __parameters__ = []\n  def forward(self: __torch__.M,\n    x: int=1) -> Tensor:\n"


def packed(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED, folder: str = "m/") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in entries.items():
            file.writestr(f"{folder}{name}", data)
    return buffer.getvalue()


def script(body: str, method: int = zipfile.ZIP_STORED) -> bytes:
    """A TorchScript archive whose `forward` has this body, a line of it with four spaces in front."""
    code = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
    return packed({"data.pkl": MODULE, "constants.pkl": CONSTANTS, "code/__torch__.py": code.encode()}, method)


def renamed(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for inner in ("m/data.pkl", "placeholder"):
            info = zipfile.ZipInfo(inner)
            info.filename = name if inner == "placeholder" else inner
            file.writestr(info, b"x")
    return buffer.getvalue()


def with_field(offset: int, value: int, width: int = 4) -> bytes:
    """A state dict's archive in which a field of the last entry of the directory is another."""
    data = bytearray(packed({"data.pkl": b"\x80\x02}.", "data/0": bytes(400)}))
    start = data.rfind(b"PK\x01\x02") + offset
    data[start : start + width] = value.to_bytes(width, "little")
    return bytes(data)


def overlapping() -> bytes:
    data = bytearray(packed({"data.pkl": b"\x80\x02}.", "data/0": bytes(400)}))
    first, second = data.find(b"PK\x01\x02"), data.rfind(b"PK\x01\x02")
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    return bytes(data)


def bomb(entry: str, block: bytes, count: int, before: bytes = b"") -> bytes:
    """An archive in which one entry unpacks to `count` blocks."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("data.pkl", "constants.pkl", "archive_format", "code/__torch__.py"):
            if name != entry and (name != "archive_format" or entry.startswith("models/")):
                file.writestr(f"m/{name}", {"data.pkl": MODULE, "constants.pkl": CONSTANTS}.get(name, b"pt2"))
        with file.open(f"m/{entry}", "w", force_zip64=True) as target:
            target.write(before)
            for _ in range(count):
                target.write(block)
    return buffer.getvalue()


def tower(levels: int) -> bytes:
    """A pickle of a tuple that holds another one twice, and so on: 2^levels items in a few bytes."""
    return b"\x80\x02K\x01" + b"".join(b"q%c0h%ch%c\x86" % (i, i, i) for i in range(levels)) + b"."


def reference(kind: str, call: bytes) -> bytes:
    """A state dict with a call in it."""
    body = b"\x80\x02}(X\x01\x00\x00\x00w" + call + b"u."
    if kind == "legacy":
        return (
            b"".join(pickle.dumps(item, 2) for item in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})) + body + pickle.dumps([], 2)
        )
    if kind == "script":
        return packed({"data.pkl": body, "constants.pkl": body, "traced_inputs.pkl": body, "code/__torch__.py": b""})
    return packed({"data.pkl": body, "version": b"3"})


def tensors(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


FILES: dict[str, Callable[[], bytes]] = {
    "a bomb in JSON": lambda: bomb("models/model.json", bytes(1 << 20), 300),
    "a bomb of small lists": lambda: bomb("models/model.json", b"[]," * 300_000, 60, b"["),
    "a bomb in a pickle": lambda: bomb("data.pkl", b"}" * (1 << 20), 60, b"\x80\x02"),
    "a bomb in code": lambda: bomb("code/__torch__.py", b"x=1\n" * (1 << 18), 20),
    "dense code": lambda: packed({"data.pkl": MODULE, "constants.pkl": CONSTANTS, "code/__torch__.py": b"x=1\n" * 2_000_000}),
    "a pickle of empty dictionaries": lambda: packed({"data.pkl": b"\x80\x02" + b"}" * 1_000_000}),
    "an absolute name": lambda: renamed("/etc/passwd"),
    "a name that goes up": lambda: renamed("m/../../evil"),
    "a name of another system": lambda: renamed("C:/evil"),
    "a name that is not text": lambda: packed({"data.pkl": b"x"}).replace(b"m/data.pkl", b"m/dat\xff.pkl"),
    "entries that overlap": overlapping,
    "an entry larger than the file": lambda: with_field(20, 1 << 30),
    "two sizes": lambda: with_field(24, 10_000),
    "an entry beyond the end": lambda: with_field(42, 1 << 30),
    "a packing nobody knows": lambda: with_field(10, 99, 2),
    "a wrong checksum": lambda: packed({"data.pkl": b"\x80\x02}."}).replace(b"\x80\x02}.", b"\x80\x02].", 1),
    "no directory": lambda: packed({"data.pkl": b"\x80\x02}."})[:-10],
    "JSON of a hundred thousand levels": lambda: packed({"models/model.json": b"[" * 100_000, "archive_format": b"pt2"}),
    "JSON that is not UTF-8": lambda: packed({"models/model.json": b'{"a": "\xff\xfe"}', "archive_format": b"pt2"}),
    "code that is not UTF-8": lambda: packed({"data.pkl": MODULE, "constants.pkl": CONSTANTS, "code/__torch__.py": b"# \xff\xfe\n"}),
    "a header that is not UTF-8": lambda: tensors(b'{"\xff": {"dtype": "F32", "shape": [], "data_offsets": [0, 0]}}'),
    "a header of a hundred thousand levels": lambda: tensors(b'{"a":' + b"[" * 100_000),
    "a header longer than the file": lambda: struct.pack("<Q", 1 << 39) + b"{}",
    "a tensor of 2^60 elements": lambda: tensors({"w": {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]}}),
    "an index that leaves its folder": lambda: b'{"weight_map": {"w": "../../etc/passwd"}}',
    "a tower as constants": lambda: packed(
        {"data.pkl": MODULE, "constants.pkl": tower(60), "code/__torch__.py": HEAD.encode() + b"    pass\n"}
    ),
    "a tower in the module": lambda: packed(
        {
            "data.pkl": b"\x80\x02c__torch__\nM\n)\x81}(X\x01\x00\x00\x00t" + tower(60)[2:-1] + b"ub.",
            "constants.pkl": CONSTANTS,
            "code/__torch__.py": HEAD.encode() + b"    pass\n",
        }
    ),
    "code without end": lambda: script("while True:\n  x = x"),
    "recursion": lambda: script("return (self).forward(x, )"),
    "a power": lambda: script("y = 2 ** 100000000\nreturn y"),
    "squares of squares": lambda: script("y = 3\nfor i in range(100):\n  y = torch.mul(y, y)\nreturn y"),
    "a long shift": lambda: script("return torch.__lshift__(1, 10000000000)"),
    "lists of lists": lambda: script("y = [0]\nfor i in range(100):\n  y = torch.add(y, y)\nreturn y"),
    "a long text": lambda: script('y = "aa"\nfor i in range(100):\n  y = torch.replace(y, "a", y)\nreturn y'),
    "a list without end": lambda: script("y = [0]\nfor i in range(100000000000):\n  z = torch.append(y, i)\nreturn y"),
    "a tower of tuples": lambda: script("y = (1, 1)\nfor i in range(60):\n  y = (y, y)\nreturn y"),
    "towers compared": lambda: script(
        "y = (1, 1)\nz = (1, 1)\nfor i in range(60):\n  y = (y, y)\n  z = (z, z)\nif torch.eq(y, z):\n  pass\nreturn y"
    ),
    "a deep expression": lambda: script("return " + "(" * 150 + "x" + " + x" * 30_000 + ")" * 150),
    "a file that the code asks for": lambda: script('return torch.from_file("/etc/passwd", True, 10)[10 ** 3]'),
}
READ_WITHOUT_HARM = {"a file that the code asks for", "a tower as constants", "a tower in the module"}


HUNGRY = [
    name
    for name in FILES
    if any(word in name for word in ("bomb", "dense", "pickle", "tower", "lists", "text", "squares", "a list", "deep"))
]


def judged(name: str, code: int, err: str) -> None:
    if code != 3:
        assert name in READ_WITHOUT_HARM and code == 0, err
        return
    assert err.startswith("irscope: error IRS1") and err.count("\n") == 1, err


@pytest.mark.parametrize("name", [name for name in FILES if name not in HUNGRY])
def test_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(FILES[name]())
    code = main(["run", "--passes", "shapes,params", str(path)])
    judged(name, code, capsys.readouterr().err)


def within(child: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", child, str(path)], capture_output=True, text=True, timeout=SECONDS)


MEASURED = (
    "import resource, sys; from irscope.cli.main import main\n"
    "import irscope.session, irscope.frontends.exported, irscope.frontends.torchscript, irscope.frontends.files.checkpoint\n"
    "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "code = main(['run', '--passes', 'shapes,params', sys.argv[1]])\n"
    "print(); print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)\n"
)


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF"), reason="needs the memory peak of a process")
# A list without end takes all of the 10 CPU s that reading may take.
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name == "a list without end")) for name in HUNGRY])
def test_one_line_and_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(FILES[name]())
    done = within(MEASURED, path)
    code, grown = done.stdout.split("\n")[-2].split()
    judged(name, int(code), done.stderr)
    assert float(grown) < MOST_MB


CALLS = {
    "os.system": b"cposix\nsystem\nX%s\x85R",
    "os.system by its other name": b"cos\nsystem\nX%s\x85R",
    "builtins.eval": b"c__builtin__\neval\nX%s\x85R",
    "builtins.exec": b"cbuiltins\nexec\nX%s\x85R",
    "numpy": b"cnumpy.testing._private.utils\nrunstring\nX%s}\x86R",
    "subprocess": b"csubprocess\ncheck_output\nX%s\x85R",
    "an object with a state": b"cbuiltins\nexec\nX%s\x85\x81}b",
}


@pytest.mark.parametrize("kind", ["zip", "legacy", "script"])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_in_a_pickle_is_executed(name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    canary = tmp_path / "canary"
    command = f"touch {canary}" if "system" in name or name == "subprocess" else f"open({str(canary)!r}, 'w').close()"
    text = struct.pack("<I", len(command)) + command.encode()
    path = tmp_path / "model.pt"
    path.write_bytes(reference(kind, CALLS[name].replace(b"%s", text)))
    assert main(["run", "--passes", "params", str(path)]) == 3
    err = capsys.readouterr().err
    assert err.startswith("irscope: error IRS1") and err.count("\n") == 1, err
    assert not canary.exists()


def test_the_canary_would_sing(tmp_path: Path) -> None:
    """The pickles above do execute where pickles are executed: else the test above would show nothing."""
    canary = tmp_path / "canary"
    command = f"open({str(canary)!r}, 'w').close()"
    text = struct.pack("<I", len(command)) + command.encode()
    pickle.loads(b"\x80\x02" + CALLS["builtins.exec"].replace(b"%s", text) + b".")
    assert canary.exists()
