"""Fit the efficiencies of kernels to published times, and tell how far predictions are off on families of models that were left out.

    python -m benchmarks.times times.csv --cache FOLDER [--most 300] [--compiled 1] [--write]

`times.csv` has the columns device, work (infer, train), mode, precision, layout, model, image, batch, step_ms of the tables that
github.com/huggingface/pytorch-image-models keeps in results/; timm must be installed. Kernels of a row are kept in FOLDER: a capture takes
a second, the fit some minutes. Of rows of `torch.compile` on GPUs, whose captures take up to some minutes, `--compiled` of each family of
models are taken: those with the fewest kernels. Tables of training were measured without fused attention: TIMM_FUSED_ATTN=0 in the
environment, and rows of training alone in the file.
"""

from __future__ import annotations

import argparse
import csv
import functools
import gzip
import json
import math
import pickle
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import irscope
from irscope.devices import find_device
from irscope.passes.cost import clock as clocks
from irscope.passes.cost.clock import STEPPED, Columns, Machine, clock_of, durations, names_of
from irscope.passes.cost.count import NodeCosts
from irscope.passes.cost.kernels import MATRIX, Kernel, KernelClass
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.time import Timer
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes

FILE = Path(__file__).parents[1] / "irscope" / "devices" / "efficiency.json"
OTHERWISE = re.compile("rep|mobileone|ecaresnext50t")
"""Models that were measured after their branches had been merged, or that have another definition today."""
FAST_NORMS = ("rtx-3090", "rtx-4090")
"""Devices whose tables were measured with timm's --fast-norm, under which norms stay in f16 under autocast. No table says so: with group
norms in f32 regnety_040_sgn would be faster on an RTX 4090 (296 ms at batch 1,024) than its bytes allow (418 ms), and on a 5090 it takes
397 ms."""
ANOTHER = re.compile(".*_xp_")
"""Models that are predicted, but that no fit sees: their RMS norms are converted to f32 in today's torch."""
REACHED = 0.93
"""The largest share of a printed bandwidth that kernels reach of what is far larger than the cache."""
COMPILED = "compiled"
Group: TypeAlias = tuple[str, str, str]
STEP = 1.03
"""Factor by which a share is moved to see what follows from it."""
KNEE = 0.03
"""Relative errors above count linearly, as a model that is another one today must not decide."""


def family(model: str) -> str:
    """Models whose rows are never in a fit and its test at once."""
    return re.split(r"[_\d]", re.sub(r"^(tf_|legacy_|eca_|gluon_|seresnext)", "", model))[0]


# -- kernels of rows -------------------------------------------------------------------------------------------------------


def is_compiled(row: Mapping[str, str]) -> bool:
    """Return whether a row is of kernels that Inductor generates; those of processors are predicted from the eager program."""
    return row["mode"] == "compile" and find_device(row["device"]).kind == "gpu"


def group_of(row: Mapping[str, str]) -> Group:
    """Return device, work and layout; Inductor chooses layouts itself."""
    return row["device"], row["work"], COMPILED if is_compiled(row) else row["layout"]


def captured(row: Mapping[str, str]) -> Any:
    import timm
    import torch
    from torch import nn

    name, image, batch, trains = row["model"], int(row["image"]), int(row["batch"]), row["work"] == "train"
    with torch.device("meta"):
        try:
            module = timm.create_model(name, img_size=image)
        except TypeError:
            module = timm.create_model(name)
        x, target = torch.empty(batch, 3, image, image), torch.empty(batch, dtype=torch.long)
    for part in module.modules():
        if row["device"] in FAST_NORMS and not trains and hasattr(part, "_fast_norm"):
            part._fast_norm = True
    if row["layout"] == "nhwc":
        module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    class Measured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any, target: Any = None) -> Any:
            if trains:
                return nn.functional.cross_entropy(self.module(x), target)
            with torch.autocast("cuda", dtype=torch.float16, enabled=row["precision"] == "amp f16"):
                return self.module(x)

    if trains:
        options = {"nesterov": True, "weight_decay": 1e-5}
        made = Measured().train()
        return irscope.capture_training(
            made, (x, target), optimizer="momentum", optimizer_options=options, autocast="f16", device=row["device"]
        )
    with torch.inference_mode():
        if is_compiled(row):
            return irscope.capture(torch.compile(Measured().eval()), x, device=row["device"])
        return irscope.capture(Measured().eval(), x, device="cuda" if find_device(row["device"]).kind == "gpu" else "cpu")


@dataclass
class Counted:
    """A row of the table as it is predicted."""

    kernels: list[tuple[Kernel, float]]
    """Each with the bytes that it reads from the cache; none where the model cannot be captured."""
    least: float = 0.0
    """The bound of the device, in seconds."""


def counted(row: Mapping[str, str], cache: Path) -> Counted:
    """Return the kernels and the bound of a row."""
    device, work, layout = group_of(row)
    path = cache / "-".join([row["model"], row["image"], row["batch"], layout, work, device])
    if not path.is_file():
        found = Counted([])
        try:
            manager = captured(row).manager
            clock = clock_of(find_device(row["device"]))
            assert clock is not None
            entries = manager.get(NodeCosts()).entries
            timer = Timer(clock, manager.get(Shapes()), manager.get(Alias()))
            kernels, near = timer.described(entries, [None] * len(entries))
            known = [(kernel, read) for kernel, read in zip(kernels, near, strict=True) if kernel is not None]
            found = Counted(known, manager.get(Roofline(device=row["device"])).least)
        except Exception as error:  # a model that timm no longer has, or that nobody can capture
            print(f"{row['model']}: {type(error).__name__}: {error}")
        path.write_bytes(pickle.dumps(found))
    return pickle.loads(path.read_bytes())


@dataclass
class Rows:
    """Rows of one device and layout: each of their kernels once, with how often each row has it."""

    machine: Machine
    columns: Columns
    row: np.ndarray
    kernel: np.ndarray
    times: np.ndarray
    real: np.ndarray
    families: np.ndarray
    models: list[str]
    least: np.ndarray

    @functools.cached_property
    def alike(self) -> np.ndarray:
        """True for rows that a fit may see."""
        return np.array([ANOTHER.match(model) is None for model in self.models])

    @classmethod
    def of(cls, device: str, rows: Sequence[tuple[Mapping[str, str], Counted]]) -> Rows:
        clock = clock_of(find_device(device))
        assert clock is not None
        numbers: dict[tuple[Kernel, float], int] = {}
        counts: dict[tuple[int, int], int] = {}
        for place, (_, found) in enumerate(rows):
            for one in found.kernels:
                key = (place, numbers.setdefault(one, len(numbers)))
                counts[key] = counts.get(key, 0) + 1
        pairs = np.array(list(counts))
        return cls(
            clock.machine,
            Columns.of([kernel for kernel, _ in numbers], [near for _, near in numbers]),
            pairs[:, 0],
            pairs[:, 1],
            np.array(list(counts.values()), dtype=float),
            np.array([float(row["step_ms"]) / 1e3 for row, _ in rows]),
            np.array([family(row["model"]) for row, _ in rows]),
            [row["model"] for row, _ in rows],
            np.array([found.least for _, found in rows]),
        )

    def predicted(self, table: Mapping[str, float]) -> np.ndarray:
        seconds = durations(self.columns, self.machine, table)
        return np.bincount(self.row, seconds[self.kernel] * self.times, len(self.real))

    @functools.cached_property
    def of_class(self) -> dict[str, tuple[Columns, np.ndarray, np.ndarray]]:
        """By class of efficiencies, the kernels that it decides, with rows and kernels of the pairs that have them."""
        found = {}
        for name in {name for kind in KernelClass if kind for name in names_of(kind)}:
            chosen = _chosen(self.columns, name)
            if chosen.any():
                part = Columns(**{field.name: getattr(self.columns, field.name)[chosen] for field in fields(Columns)})
                found[name] = part, np.flatnonzero(chosen[self.kernel]), np.cumsum(chosen) - 1
        return found

    def slope(self, table: Mapping[str, float], name: str, whole: np.ndarray) -> np.ndarray:
        """Return by how much the logarithm of each row's time, `whole`, grows with that of a share."""
        moved = {**table, name: table[name] * STEP}
        kind = name.rpartition(".")[0]
        if not kind:
            return np.asarray(np.log(self.predicted(moved) / whole) / math.log(STEP))
        if kind not in self.of_class:
            return np.zeros(len(whole))
        part, pairs, numbers = self.of_class[kind]
        change = durations(part, self.machine, moved) - durations(part, self.machine, table)
        more = np.bincount(self.row[pairs], change[numbers[self.kernel[pairs]]] * self.times[pairs], len(whole))
        return np.asarray(np.log1p(more / whole) / math.log(STEP))


def _chosen(columns: Columns, name: str) -> np.ndarray:
    """Return which kernels a class of efficiencies decides: those that add a bias have that of broadcast operands too."""
    base, _, last = name.partition(".")
    kind = KernelClass[base.upper()]
    chosen = columns.kind == kind
    if len(names_of(kind)) > 1:
        chosen = chosen & (columns.last == bool(last))
    return chosen | (columns.added > 0) if kind is KernelClass.MIXED else chosen


# -- the fit ---------------------------------------------------------------------------------------------------------------


FIXED = {"product.bandwidth": 0.88, "tile": 64.0}
"""Shares that no fit changes: products with a large batch do not tell how fast few rows are read by all weights; cuBLAS's kernels for
batched products of 16 bits have tiles from 64 by 64."""
_GUESSED = {
    "cache": 1.7, "overlap": 4.0, "start": 2e-6, "depth": 48.0, "wave": 0.8, "edge": 13.0, "unaligned": 0.2,
    "pooling.bandwidth": 0.5, "strided.bandwidth": 0.5, "strided.rate": 0.005, "pooling.rate": 0.19, "pooling.last.rate": 0.18,
    "depthwise.rate": 0.06, "depthwise_own.rate": 0.045, "depthwise.last.rate": 0.25, "product.rate": 1.1, "batched.rate": 0.5,
    "pointwise.bandwidth": 0.7, "pointwise.rate": 0.9, "convolution.bandwidth": 0.6, "convolution.rate": 0.9, "convolution.last.rate": 1.1,
    "stem.bandwidth": 0.6, "stem.rate": 0.35, "grouped.bandwidth": 0.5, "grouped.rate": 0.9, "attention.rate": 1.0,
    "masked_attention.bandwidth": 0.5, "masked_attention.rate": 1.0,
}  # fmt: skip


def first_guess(*, is_gpu: bool = True) -> dict[str, float]:
    """Shares that every fit is held near: what streams reaches nine tenths of the bandwidth, what computes about the printed peak."""
    table = {"cache": 2.5, "overlap": 3.0, "start": 2e-6, "depth": 32.0, "wave": 0.5, "edge": 20.0, "unaligned": 1e-4, "tile": 32.0}
    for kind in KernelClass:
        for name in names_of(kind) if kind else ():
            table[f"{name}.bandwidth"] = 0.88 if is_gpu else 0.8
            if kind in MATRIX | STEPPED:
                table[f"{name}.rate"] = 0.7 if kind in MATRIX else 0.2 if kind is not KernelClass.STRIDED else 1.0
    return {**table, **_GUESSED, **FIXED} if is_gpu else table


def limited(table: dict[str, float], most: float) -> dict[str, float]:
    """Shares within what can be: a bandwidth above `most` is no device's; on a processor it is what a compiler fuses."""
    limits = {"start": (1e-6, 1e-4), "overlap": (1.0, 8.0), "wave": (0.05, 1.5), "unaligned": (1e-4, 1.5)}
    for name, share in table.items():
        low, high = limits.get(name, (1e-4, most if name.endswith("bandwidth") else 1.6 if name.endswith("rate") else 1e4))
        table[name] = min(max(share, low), high)
    return table


def fitted(parts: Sequence[tuple[Rows, np.ndarray]], prior: Mapping[str, float], weight: float, most: float = REACHED) -> dict[str, float]:
    """Shares of least relative error on the chosen rows, by damped Gauss-Newton steps in logarithms; `weight` holds them at the prior."""
    table, damping, pull = limited(dict(prior), most), 1e-3, (weight * KNEE) ** 2
    names = [name for name in table if name not in FIXED]
    prior = dict(table)

    def residuals(of: Mapping[str, float]) -> np.ndarray:
        return np.concatenate([np.log(rows.predicted(of) / rows.real)[chosen] for rows, chosen in parts])

    def slopes_of(of: Mapping[str, float]) -> np.ndarray:
        whole = [rows.predicted(of) for rows, _ in parts]
        columns = [
            np.concatenate([rows.slope(of, name, seconds)[chosen] for (rows, chosen), seconds in zip(parts, whole, strict=True)])
            for name in names
        ]
        return np.array(columns).T

    def away(of: Mapping[str, float]) -> np.ndarray:
        return np.array([math.log(of[name] / prior[name]) for name in names])

    def cost(of: Mapping[str, float], error: np.ndarray) -> float:
        return float((KNEE**2 * (np.sqrt(1 + (error / KNEE) ** 2) - 1)).sum() + pull * (away(of) ** 2).sum())

    error = residuals(table)
    least = cost(table, error)
    for _ in range(40):
        slopes = slopes_of(table)
        weights = 1 / np.sqrt(1 + (error / KNEE) ** 2)
        normal, right = (slopes * weights[:, None]).T @ slopes, -(slopes * weights[:, None]).T @ error - pull * away(table)
        for _ in range(6):
            damped = normal + np.diag(pull + damping + damping * np.diag(normal))
            step = np.clip(np.linalg.solve(damped, right), -0.7, 0.7)
            moved = {name: table[name] * math.exp(by) for name, by in zip(names, step, strict=True)}
            tried = limited({**table, **moved}, most)
            found = residuals(tried)
            if (total := cost(tried, found)) < least:
                break
            damping *= 10
        else:
            return table
        gain, table, error, least, damping = (least - total) / least, tried, found, total, max(damping * 0.3, 1e-7)
        if gain < 1e-4:
            break
    return table


def left_out(parts: Sequence[Rows], prior: Mapping[str, float], weight: float, most: float = REACHED) -> list[np.ndarray]:
    """Predictions of each row by a fit without its family."""
    families = sorted({name for rows in parts for name in rows.families})
    folds = dict(zip(families, np.random.RandomState(0).permutation(len(families)) % 5, strict=True))
    result = [np.zeros(len(rows.real)) for rows in parts]
    for fold in range(5):
        inside = [rows.alike & np.array([folds[name] != fold for name in rows.families]) for rows in parts]
        table = fitted(list(zip(parts, inside, strict=True)), prior, weight, most)
        for found, rows in zip(result, parts, strict=True):
            outside = np.array([folds[name] == fold for name in rows.families])
            found[outside] = rows.predicted(table)[outside]
    return result


def interval(ratios: Sequence[np.ndarray]) -> list[float]:
    """2.5 % to each side, on average over layouts: families that were left out then are inside in 90 to 97 of 100 rows of each."""
    ends = np.mean([np.quantile(one, (0.025, 0.975)) for one in ratios], axis=0)
    holds = [f"{np.mean((one >= ends[0]) & (one <= ends[1])):.1%}" for one in ratios]
    print(f"    real of predicted: {ends[0]:.3g} to {ends[1]:.3g}, which holds for {', '.join(holds)} of families left out")
    return [float(f"{end:.3g}") for end in ends]


def told(what: str, rows: Rows, predicted: np.ndarray) -> None:
    error = np.abs(predicted / rows.real - 1)
    worst = sorted(range(len(error)), key=lambda place: -abs(math.log(predicted[place] / rows.real[place])))[:10]
    print(f"{what}: {len(error)} rows, median {np.median(error):.1%}, 90 % within {np.quantile(error, 0.9):.1%}")
    print("   ", ", ".join(f"{rows.models[place]} {predicted[place] / rows.real[place]:.2f}" for place in worst))
    beaten = np.flatnonzero(rows.least > rows.real)
    models = ", ".join(rows.models[place] for place in beaten)
    print(
        f"    least time {np.median(rows.least / rows.real):.2f} of the real one, longer in {len(beaten)} ({len(beaten) / len(error):.1%})",
        models,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--most", type=int, default=0, help="rows of each device, work and layout; default: all")
    parser.add_argument("--compiled", type=int, default=0, help="compiled rows of each family and GPU; default: none")
    parser.add_argument("--write", action="store_true", help=f"write the tables to {FILE.name}")
    args = parser.parse_args(arguments)
    args.cache.mkdir(parents=True, exist_ok=True)
    with (gzip.open if args.times.suffix == ".gz" else open)(args.times, "rt") as file:
        listed = [row for row in csv.DictReader(file) if not OTHERWISE.match(row["model"])]
    groups: dict[Group, list[dict[str, str]]] = {}
    for row in listed:
        groups.setdefault(group_of(row), []).append(row)
    parts: dict[Group, Rows] = {}
    lengths: dict[tuple[str, str], int] = {}
    for group, rows in sorted(groups.items(), key=lambda group: group[0][2] == COMPILED):
        chosen = random.Random(7).sample(rows, args.most) if 0 < args.most < len(rows) else rows
        if group[2] == COMPILED:
            chosen = fewest(rows, lengths, args.compiled)
        known = [(row, found) for row in chosen if (found := counted(row, args.cache)).kernels]
        lengths.update({(row["model"], row["image"]): len(found.kernels) for row, found in known})
        if known:
            parts[group] = Rows.of(group[0], known)
    write(fit_all(parts), args.write)


def fewest(rows: Iterable[dict[str, str]], lengths: Mapping[tuple[str, str], int], number: int) -> list[dict[str, str]]:
    """Return so many rows of each family: those with the fewest kernels as they run eagerly, whose captures are the shortest."""
    families: dict[str, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: lengths.get((row["model"], row["image"]), math.inf)):
        families.setdefault(family(row["model"]), []).append(row)
    return [row for members in families.values() for row in members[:number]]


def everything(parts: Iterable[Rows]) -> list[tuple[Rows, np.ndarray]]:
    return [(rows, rows.alike) for rows in parts]


def fit_all(parts: Mapping[Group, Rows]) -> dict[str, Any]:
    """Fit each device near what is expected of all, and training beside its inference."""
    shown: dict[str, Any] = {}
    for device in dict.fromkeys(key[0] for key in parts if key[1] == "infer"):
        is_gpu = find_device(device).kind == "gpu"
        keys = [key for key in parts if key[0] == device and key[1] == "infer"]
        own = [parts[key] for key in keys]
        prior, weight, most = first_guess(is_gpu=is_gpu), 10.0 if is_gpu else 1.0, REACHED if is_gpu else 6.0
        table, predicted = fitted(everything(own), prior, weight, most), left_out(own, prior, weight, most)
        for key, rows, found in zip(keys, own, predicted, strict=True):
            told(" ".join((*key, "families left out")), rows, found)
            told(" ".join(key), rows, rows.predicted(table))
        spread = {}
        for work in ("eager", COMPILED):
            ratios = [
                rows.real / found
                for key, rows, found in zip(keys, own, predicted, strict=True)
                if (key[2] == COMPILED) == (work == COMPILED)
            ]
            if ratios:
                spread[work] = interval(ratios)
        shown[device] = {"shares": table, "spread": spread}
    ratios = []
    for key, rows in parts.items():
        if key[1] == "infer" and (clock := without(key[0], shown)) is not None:
            found = replace(rows, machine=clock.machine).predicted(clock.table)
            told(" ".join((*key, "by", clock.fitted_on)), rows, found)
            ratios.append(rows.real / found)
    if ratios:
        low, high = (choose(np.quantile(found, part) for found in ratios) for choose, part in ((min, 0.05), (max, 0.95)))
        holds = ", ".join(f"{np.mean((found >= low) & (found <= high)):.1%}" for found in ratios)
        print(f"devices left out: real of predicted {low:.3g} to {high:.3g}, which holds for {holds}")
    for key, rows in parts.items():
        if key[1] == "train":
            clock = clock_of(find_device(key[0]), "training")
            assert clock is not None
            [found] = left_out([rows], clock.table, 10.0)
            told(" ".join(key), rows, found)
            shown.setdefault(key[0], {})["training"] = fitted(everything([rows]), clock.table, 10.0), interval([rows.real / found])
    return shown


def without(device: str, shown: Mapping[str, Any]) -> clocks.Clock | None:
    """Return the clock that a device would have if no time of it were known: by the shares just fitted to others."""
    tables = {
        name: replace(table, shares=shown[name]["shares"])
        for name, table in clocks.constants().tables.items()
        if name in shown and name != device and table.capability and find_device(device).kind == "gpu"
    }
    return clock_of(find_device(device), tables=tables) if tables else None


def write(shown: Mapping[str, Any], keep: bool) -> None:
    """Put shares and intervals into the file of constants; what else is there stays."""
    if not keep:
        return
    data = json.loads(FILE.read_text())
    for device, found in shown.items():
        entry = data["tables"][device]
        if "shares" in found:
            entry["shares"] = {name: float(f"{share:.3g}") for name, share in found["shares"].items()}
            entry["spread"].update(found["spread"])
        if "training" in found:
            table, entry["spread"]["training"] = found["training"]
            rounded = {name: float(f"{share:.3g}") for name, share in table.items()}
            entry["by_work"] = {"training": {name: share for name, share in rounded.items() if share != entry["shares"][name]}}
    FILE.write_text(json.dumps(data, indent=1))
    clocks.constants.cache_clear()


if __name__ == "__main__":
    main()
