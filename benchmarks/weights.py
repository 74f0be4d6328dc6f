"""How fast weights are read: gigabytes a CPU second, beside what memory and numpy can do at all and what a naive program takes.

`python -m benchmarks.weights` prints the table. All is measured in one run, one after the other: machines differ and are noisy.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from benchmarks.measurement import Measurement
from irscope.ir.dtypes import DType
from irscope.ir.places import FileRegion
from irscope.weights.scan import Options, scan
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import Stored, axes_of

SIZE = 1 << 29
"""Bytes of the fp32 weights."""
_WINDOW = 1 << 18
_RUNS = 3


@dataclass(frozen=True)
class Speed:
    """The fastest of a few runs: amounts a CPU second and a second, in 1e9."""

    name: str
    cpu: float
    wall: float
    unit: str = "GB"
    target: float | None = None


def best(name: str, amount: float, work: Callable[[], object], unit: str = "GB", target: float | None = None, runs: int = _RUNS) -> Speed:
    """Speeds of some work."""
    cpu = wall = float("inf")
    for _ in range(runs):
        started, began = perf_counter(), process_time()
        work()
        cpu, wall = min(cpu, process_time() - began), min(wall, perf_counter() - started)
    return Speed(name, amount / cpu / 1e9, amount / wall / 1e9, unit, target)


def make(folder: Path) -> dict[str, tuple[Path, DType]]:
    """Normal weights, as they come out of an initialisation, in three types."""
    random = np.random.default_rng(0)
    paths = {"f32": (folder / "f32.bin", DType.F32), "bf16": (folder / "bf16.bin", DType.BF16), "f16": (folder / "f16.bin", DType.F16)}
    with paths["f32"][0].open("wb") as f32, paths["bf16"][0].open("wb") as bf16, paths["f16"][0].open("wb") as f16:
        for _ in range(SIZE >> 26):
            x = (random.standard_normal(1 << 24) * 0.02).astype(np.float32)
            f32.write(x.tobytes())
            bf16.write((x.view(np.uint32) >> 16).astype(np.uint16).tobytes())
            f16.write(x.astype(np.float16).tobytes())
    return paths


def _read(path: Path, touch: Callable[[np.ndarray[tuple[int], np.dtype[np.float32]]], object]) -> None:
    """Read a file window by window into one buffer, and do something with each window."""
    buffer = np.empty(_WINDOW // 4, np.float32)
    with path.open("rb", buffering=0) as file:
        while file.readinto(memoryview(buffer).cast("B")):
            touch(buffer)


def ceilings(path: Path) -> list[Speed]:
    """What no program that looks at every byte can beat here."""
    speeds = [
        best("read into a buffer", SIZE, lambda: _read(path, lambda x: None)),
        best("read and np.maximum", SIZE, lambda: _read(path, np.maximum.reduce)),
        best("read and np.sum", SIZE, lambda: _read(path, np.add.reduce)),
    ]
    x = np.fromfile(path, np.float32)
    y = np.empty_like(x)
    speeds.append(best("copy of memory", SIZE, lambda: np.copyto(y, x)))
    return speeds


def peers(path: Path) -> list[Speed]:
    """Programs that people write, on a part of the weights."""
    x = np.fromfile(path, np.float32, SIZE >> 5)

    def plainly() -> object:
        mean, std = x.mean(), x.std()
        z = (x - mean) / std
        return [
            mean, std, x.min(), x.max(), np.abs(x).max(), np.abs(x).sum(), np.linalg.norm(x), (z**3).mean(), (z**4).mean(), (x == 0).sum(),
            (np.abs(x) < 1e-6).sum(), np.isnan(x).sum(), np.isinf(x).sum(), (np.abs(x - mean) > 6 * std).sum(),
        ]  # fmt: skip

    speeds = [
        best("numpy: 14 statistics, naively", x.nbytes, plainly),
        best("numpy: std", x.nbytes, lambda: x.std()),
        best("numpy: histogram of 256 bins", x.nbytes, lambda: np.histogram(x, 256)),
    ]
    try:
        import torch
    except ImportError:
        return speeds
    torch.set_num_threads(1)
    t = torch.from_numpy(x)

    def naive() -> object:
        mean, std = t.mean(), t.std()
        z = (t - mean) / std
        return [
            mean, std, t.min(), t.max(), t.abs().max(), t.abs().sum(), t.norm(), (z**3).mean(), (z**4).mean(), (t == 0).sum(),
            (t.abs() < 1e-6).sum(), t.isnan().sum(), t.isinf().sum(), ((t - mean).abs() > 6 * std).sum(),
        ]  # fmt: skip

    speeds.append(best("torch: 14 statistics, naively", x.nbytes, naive))
    speeds.append(best("torch: histc of 256 bins", x.nbytes, lambda: torch.histc(t, 256)))
    return speeds


def speeds_of_irscope(paths: dict[str, tuple[Path, DType]]) -> list[Speed]:
    """irscope's own speeds."""
    speeds: list[Speed] = []
    with WeightFiles(str(paths["f32"][0])) as files:

        def work(kind: str, options: Options) -> Callable[[], object]:
            path, dtype = paths[kind]
            size = os.path.getsize(path)
            shape = (size * 8 // (dtype.bits or 8) >> 12, 1 << 12)
            tensor = Stored(dtype, shape[0] * shape[1], files.find(FileRegion(str(path), 0, size)), axes_of(shape))
            return lambda: scan([tensor], files, options)

        for threads in (1, 2):
            name = f"{threads} thread{'s' * (threads > 1)}"
            fast, full = Options(histogram=False, threads=threads), Options(threads=threads)
            speeds.append(best(f"fp32 without histogram, {name}", SIZE, work("f32", fast), target=2.0))
            speeds.append(best(f"fp32, {name}", SIZE, work("f32", full), target=1.2))
            for kind in ("bf16", "f16"):
                speeds.append(best(f"{kind}, {name}", SIZE / 4, work(kind, full), "G elements", 0.8))
    return speeds


def measure() -> Iterator[Measurement]:
    """For the benchmark of everything: rates on the wall beside a plain read of the same file by one thread, and those of CPU time."""
    importlib.import_module("irscope.weights.powers")  # as where its machine code is kept, which is compiled for 2 GB and more
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder))
        made, read = speeds_of_irscope(paths), ceilings(paths["f32"][0])[0]
        naive = [peer for peer in peers(paths["f32"][0]) if "naively" in peer.name]
        for speed in made:
            yield Measurement(f"weights: {speed.name}", speed.wall, f"{speed.unit}/s", "plain read by one thread", speed.wall / read.wall)
            yield Measurement(
                f"weights: {speed.name}, a CPU second", speed.cpu, f"{speed.unit} a CPU s/s", "plain read", speed.cpu / read.cpu
            )
        full = next(speed for speed in made if speed.name == "fp32, 1 thread")
        for peer in naive:
            yield Measurement("weights: fp32, 1 thread, a CPU second", full.cpu, "GB a CPU s/s", peer.name, full.cpu / peer.cpu)


def main() -> None:
    """Measure and print; nothing here passes or fails."""
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder))
        print(f"\nweights, {SIZE >> 20} MiB of fp32, warm, 1e9 a CPU second (and a second)")
        made = speeds_of_irscope(paths)
        for title, speeds in (("irscope", made), ("ceilings", ceilings(paths["f32"][0])), ("peers", peers(paths["f32"][0]))):
            print(f"  {title}")
            for speed in speeds:
                target = f"   target {speed.target}" if speed.target else ""
                print(f"    {speed.name:36} {speed.cpu:6.2f} ({speed.wall:5.2f}) {speed.unit}{target}")
        single, double = made[: len(made) // 2], made[len(made) // 2 :]
        print("  two threads against one, wall time (target 1.6 where both processors are free)")
        for one, two in zip(single, double, strict=True):
            print(f"    {one.name:36} {two.wall / one.wall:6.2f}")


if __name__ == "__main__":
    main()
