"""PyTorch files of 3.2 GB beside small twins of the same structure: CPU seconds and memory of `irscope run`.

`python -m benchmarks.torch_big` prints the table. The files are sparse: their weights are holes that take no space on the disk.
GPT-2's `.pt2`, exported on the spot where transformers is installed, is measured too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).parents[1]
LAYERS = 32
SMALL, BIG = 50, 5000
"""Features of a layer: 32 layers of 5,000 by 5,000 are 3.2 GB."""
LIMIT_SECONDS, LIMIT_MB = 0.5, 100
"""What the big file may take more than its twin."""
GPT2_SECONDS = 0.3
_FREE_BYTES = 5 << 30
_FAR = 0xFFFFFFFF
"""Offsets beyond this stand in fields of 64 bits."""


@functools.cache
def _checksum_of_zeros(size: int) -> int:
    block = bytes(1 << 20)
    found = 0
    for start in range(0, size, len(block)):
        found = zlib.crc32(block[: size - start], found)
    return found


# -- files with holes --------------------------------------------------------------------------------------------


@dataclass
class _Entry:
    name: bytes
    crc: int
    size: int
    offset: int


class SparseZip:
    """Writes stored entries as PyTorch does, aligned to 64 bytes; weights are skipped, which leaves zeros."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: list[_Entry] = []

    def add(self, name: str, data: bytes) -> None:
        """An entry with contents."""
        self._start(name, zlib.crc32(data), len(data))
        self._file.write(data)

    def add_hole(self, name: str, size: int) -> None:
        """An entry of zeros that are not written."""
        self._start(name, _checksum_of_zeros(size), size)
        self._file.seek(size, 1)

    def _start(self, name: str, crc: int, size: int) -> None:
        offset = self._file.tell()
        encoded = name.encode()
        pad = -(offset + 34 + len(encoded)) % 64
        self._entries.append(_Entry(encoded, crc, size, offset))
        self._file.write(struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, crc, size, size, len(encoded), 4 + pad))
        self._file.write(encoded + struct.pack("<2H", 0x4246, pad) + bytes(pad))

    def close(self) -> None:
        """Write the directory."""
        start = self._file.tell()
        for entry in self._entries:
            far = entry.offset > _FAR
            extra = struct.pack("<2HQ", 1, 8, entry.offset) if far else b""
            fields = (45, 45, 0, 0, 0, 0, entry.crc, entry.size, entry.size, len(entry.name), len(extra), 0, 0, 0, 0)
            self._file.write(struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *fields, _FAR if far else entry.offset) + entry.name + extra)
        end = self._file.tell()
        count = len(self._entries)
        if start > _FAR:
            self._file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, end - start, start))
            self._file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        self._file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, end - start, min(start, _FAR), 0))


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _int(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _tensor(key: str, size: int) -> bytes:
    """A square matrix as torch pickles it."""
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(key) + _text("cpu") + _int(size * size) + b"tQ"
    shape = _int(size) + _int(size) + b"\x86" + _int(size) + _int(1) + b"\x86"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + b"\x89ccollections\nOrderedDict\n)RtR"


def _weights(size: int) -> bytes:
    return b"".join(_text(f"w{index}") + _tensor(str(index), size) for index in range(LAYERS))


def write_state_dict(path: Path, size: int) -> None:
    """A checkpoint."""
    with path.open("wb") as file:
        archive = SparseZip(file)
        archive.add("model/version", b"3\n")
        archive.add("model/data.pkl", b"\x80\x02}(" + _weights(size) + b"u.")
        for index in range(LAYERS):
            archive.add_hole(f"model/data/{index}", 4 * size * size)
        archive.close()


def write_torchscript(path: Path, size: int) -> None:
    """A traced chain of linear layers."""
    lines = ["class M(Module):", f"  __parameters__ = [{''.join(f'{chr(34)}w{index}{chr(34)}, ' for index in range(LAYERS))}]"]
    lines += [f"  w{index} : Tensor" for index in range(LAYERS)] + ["  def forward(self: __torch__.M,", "    x: Tensor) -> Tensor:"]
    lines += [f"    x = torch.relu(torch.linear(x, self.w{index}))" for index in range(LAYERS)] + ["    return x", ""]
    shape = _int(1) + _int(size) + b"\x86" + _int(size) + _int(1) + b"\x86"
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + _int(0) + b"tQ"
    example = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + b"\x89ccollections\nOrderedDict\n)RtR"
    with path.open("wb") as file:
        archive = SparseZip(file)
        archive.add("model/data.pkl", b"\x80\x02c__torch__\nM\n)\x81}(" + _weights(size) + b"ub.")
        archive.add("model/version", b"3\n")
        archive.add("model/constants.pkl", b"\x80\x02).")
        archive.add("model/traced_inputs.pkl", b"\x80\x02}" + _text("forward") + b"(" + example + b"ts.")
        archive.add("model/code/__torch__.py", "\n".join(lines).encode())
        for index in range(LAYERS):
            archive.add_hole(f"model/data/{index}", 4 * size * size)
        archive.close()


def write_pt2(path: Path, size: int) -> None:
    """A program of linear layers in the form that torch.export writes."""

    def meta(*sizes: int) -> dict[str, Any]:
        strides = (sizes[1], 1)
        return {
            "dtype": 7,
            "sizes": [{"as_int": n} for n in sizes],
            "requires_grad": False,
            "device": {"type": "cpu", "index": None},
            "strides": [{"as_int": n} for n in strides],
            "storage_offset": {"as_int": 0},
            "layout": 7,
        }

    def tensor(name: str) -> dict[str, Any]:
        return {"as_tensor": {"name": name}}

    names = [f"p_w{index}" for index in range(LAYERS)]
    nodes: list[dict[str, Any]] = []
    values = {name: meta(size, size) for name in names} | {"x": meta(1, size)}
    last = "x"
    for index, name in enumerate(names):
        for op, arguments in ((f"linear_{index}", (("input", None), ("weight", name))), (f"relu_{index}", (("self", None),))):
            inputs = [{"name": key, "arg": tensor(given or last), "kind": 1} for key, given in arguments]
            target = f"torch.ops.aten.{op.partition('_')[0]}.default"
            nodes.append({"target": target, "inputs": inputs, "outputs": [tensor(op)], "metadata": {}})
            values[op] = meta(1, size)
            last = op
    inputs = [{"parameter": {"arg": {"name": name}, "parameter_name": name[2:]}} for name in names]
    signature = {
        "input_specs": [*inputs, {"user_input": {"arg": tensor("x")}}],
        "output_specs": [{"user_output": {"arg": tensor(last)}}],
    }
    graph = {"inputs": [tensor(name) for name in (*names, "x")], "outputs": [tensor(last)], "nodes": nodes, "tensor_values": values}
    module = {"graph": graph, "signature": signature}
    document = {"graph_module": module, "schema_version": {"major": 8, "minor": 20}, "range_constraints": {}}
    kept = {"is_param": True, "use_pickle": False, "tensor_meta": meta(size, size)}
    config = {name[2:]: {"path_name": f"weight_{index}", **kept} for index, name in enumerate(names)}
    with path.open("wb") as file:
        archive = SparseZip(file)
        archive.add("model/archive_format", b"pt2")
        archive.add("model/models/model.json", json.dumps(document).encode())
        archive.add("model/data/weights/model_weights_config.json", json.dumps({"config": config}).encode())
        for index in range(LAYERS):
            archive.add_hole(f"model/data/weights/weight_{index}", 4 * size * size)
        archive.close()


def write_safetensors(path: Path, size: int) -> None:
    """A header and a hole."""
    each = 4 * size * size
    header = {
        f"w{index}": {"dtype": "F32", "shape": [size, size], "data_offsets": [index * each, (index + 1) * each]} for index in range(LAYERS)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + LAYERS * each)


FORMATS: dict[str, Callable[[Path, int], None]] = {
    "TorchScript": write_torchscript,
    "pt2": write_pt2,
    "state dict": write_state_dict,
    "safetensors": write_safetensors,
}


def why_not(folder: Path) -> str:
    """Why big files cannot be made here; empty where they can."""
    if shutil.disk_usage(folder).free < _FREE_BYTES:
        return "less than 5 GiB are free"
    probe = folder / "probe"
    with probe.open("wb") as file:
        file.truncate(64 << 20)
    taken = getattr(probe.stat(), "st_blocks", 1 << 20) * 512
    probe.unlink()
    return "" if taken < 8 << 20 else "the file system has no holes"


# -- measuring ---------------------------------------------------------------------------------------------------

_CHILD = """
import json, resource, sys
from irscope.cli.main import main
code = main(["run", "--format", "json", "-o", sys.argv[2], "--passes", "shapes,params,liveness", sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"code": code, "cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}))
"""


def measure(path: Path) -> dict[str, Any]:
    """CPU seconds and peak memory of a run in a process of its own, with the report."""
    report = path.with_suffix(".report")
    done = subprocess.run([sys.executable, "-c", _CHILD, str(path), str(report)], capture_output=True, text=True, cwd=ROOT, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["report"] = json.loads(report.read_text())
    return found


def twins(form: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The small and the big file of a format, measured; the big one is gone afterwards."""
    found = []
    for size in (SMALL, BIG):
        path = folder / f"model{size}"
        FORMATS[form](path, size)
        try:
            found.append(measure(path))
        finally:
            path.unlink()
    return found[0], found[1]


def gpt2(folder: Path) -> float | None:
    """CPU seconds to load GPT-2's `.pt2` and infer every shape, imports apart; None without transformers."""
    from tests.tools.zoo.torchvision_shim import load_torchvision

    try:
        import torch

        # transformers looks at torchvision, whose usual wheel does not import beside a torch without CUDA.
        with contextlib.suppress(ImportError):
            load_torchvision()
        from transformers import GPT2Config, GPT2Model
    except ImportError:
        return None
    path = folder / "gpt2.pt2"
    model = GPT2Model(GPT2Config(use_cache=False)).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 128, dtype=torch.int64),)), path)
    code = (
        "import sys, time, irscope.frontends.exported, irscope.passes.inference.shapes; from pathlib import Path\n"
        "from irscope.session import open_model; from irscope.ops.registry import find_op; find_op('nn.linear')\n"
        "started = time.process_time(); model = open_model(Path(sys.argv[1])); print(time.process_time() - started)"
    )
    done = [subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT, check=True) for _ in range(3)]
    return min(float(one.stdout) for one in done)


def main() -> None:
    """Measure and print; nothing here passes or fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reason = why_not(folder)
        print(f"3.2 GB; limit: {LIMIT_SECONDS} s and {LIMIT_MB} MB more than the small twin {reason and f'(skipped: {reason})'}")
        for form in FORMATS if not reason else ():
            small, big = twins(form, folder)
            more = f"{big['cpu'] - small['cpu']:+6.2f} s  {big['mb'] - small['mb']:+6.0f} MB"
            print(f"  {form:12} {big['cpu']:6.2f} s  {big['mb']:6.0f} MB   {more}")
        taken = gpt2(folder)
        if taken is not None:
            print(f"GPT-2's .pt2, loaded and shapes inferred: {taken:.2f} s   target {GPT2_SECONDS} s")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
