"""Hostile files through the command line: one clear line, nothing executed, at most 200 MB of memory, no hang."""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope.cli.main import main

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


@pytest.mark.parametrize("name", FILES)
def test_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(FILES[name]())
    code = main(["run", "--passes", "shapes,params", str(path)])
    err = capsys.readouterr().err
    if code != 3:
        assert name in READ_WITHOUT_HARM and code == 0, err
        return
    assert err.startswith("irscope: error IRS1") and err.count("\n") == 1, err


def within(child: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", child, str(path)], capture_output=True, text=True, timeout=SECONDS)


MEASURED = (
    "import resource, sys; from irscope.cli.main import main\n"
    "import irscope.session, irscope.frontends.exported, irscope.frontends.torchscript, irscope.frontends.files.checkpoint\n"
    "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "code = main(['run', '--passes', 'shapes,params', sys.argv[1]])\n"
    "print(); print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)\n"
)
HUNGRY = [
    name
    for name in FILES
    if any(word in name for word in ("bomb", "dense", "pickle", "tower", "lists", "text", "squares", "without end", "deep"))
]


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF"), reason="needs the memory peak of a process")
@pytest.mark.parametrize("name", HUNGRY)
def test_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(FILES[name]())
    done = within(MEASURED, path)
    code, grown = done.stdout.split("\n")[-2].split()
    assert code in ("0", "3"), done.stderr
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
