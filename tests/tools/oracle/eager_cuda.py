"""Predicted counters of the CUDA allocator beside recorded ones: 33 models and five published ones.

`python -m tests.tools.oracle.eager_cuda` exports what was not exported before and prints both tables as Markdown; with `--further`, that of
53 models that were recorded after the rules were written.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import json
import os
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.memory.tape import Bytes
from irscope.passes.graph.transforms import Annotate
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from tests.tools.zoo.export import SparseFile, cache_folder
from tests.tools.zoo.models import cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision

DATA = Path(__file__).parents[2] / "data" / "eager_cuda"
COUNTERS = ("requested", "allocated", "reserved")
MOMENTS = ("before", "cold", "warm")
MIB = 1 << 20


def on_one_stream(requested: int, allocated: int, reserved: int) -> Bytes:
    """Counters of a run on one stream, where all that is active is allocated."""
    return Bytes(requested, allocated, active=allocated, reserved=reserved)


@dataclass(frozen=True)
class Case:
    """One recorded model."""

    key: str
    """What its file is named after."""
    recorded: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.recorded["spec"]
        return found

    @property
    def package(self) -> str:
        return "torchvision" if self.spec["model"].startswith("torchvision:") else "transformers"

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    @property
    def name(self) -> str:
        shape = next(iter(self.spec["inputs"].values()))[0]
        attention = f", {self.spec['attn']} attention" if self.spec.get("attn") else ""
        return f"{self.spec['model'].partition(':')[2]} {'x'.join(map(str, shape))} {self.spec['dtype']}{attention}"

    def truth(self, moment: str) -> Bytes:
        """What was counted."""
        counted = self.recorded["base"] if moment == "before" else self.recorded["runs"][MOMENTS.index(moment) - 1]
        sizes = [counted[f"{counter}_bytes"] for counter in COUNTERS]
        return on_one_stream(*(size if isinstance(size, int) else size["peak"] for size in sizes))


@functools.cache
def cases() -> tuple[Case, ...]:
    """All recorded models."""
    lines = (DATA / "torch-2.13.0-sm90.jsonl").read_text(encoding="utf-8").splitlines()
    specs = json.loads((DATA / "suite.json").read_text(encoding="utf-8"))
    return tuple(
        Case(f"{number:02d}", {**json.loads(line), "spec": spec}) for number, (line, spec) in enumerate(zip(lines, specs, strict=True))
    )


@functools.cache
def further_cases() -> tuple[Case, ...]:
    """Models that were recorded after the rules were written."""
    lines = (DATA / "further.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Case(f"further-{number:02d}", json.loads(line)) for number, line in enumerate(lines))


def published() -> dict[str, dict[str, float]]:
    """What a physical card showed, in MiB."""
    found: dict[str, dict[str, float]] = json.loads((DATA / "published.json").read_text(encoding="utf-8"))["measured"]
    return found


def exported(case: Case) -> Path:
    """The model's file, made now if it was not made before."""
    key = hashlib.sha256(f"{json.dumps(case.spec, sort_keys=True)} {version(case.package)}".encode()).hexdigest()[:10]
    path = cache_folder() / "eager_cuda" / f"{case.key}-{key}.pt2"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _export(case.spec)
        with SparseFile(partial) as file:
            torch.export.save(program, file)
        partial.replace(path)
        torch._dynamo.reset()
        gc.collect()
    return path


def built(spec: dict[str, Any]) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model with the arguments it was recorded with."""
    dtype = getattr(torch, spec["dtype"])
    model = _model(spec).to(dtype)
    inputs = {
        name: torch.zeros(*shape, dtype=dtype if getattr(torch, kind).is_floating_point else getattr(torch, kind))
        for name, (shape, kind) in spec["inputs"].items()
    }
    return (model, tuple(inputs.values()), {}) if spec.get("positional") else (model, (), {**inputs, **spec.get("call", {})})


def _export(spec: dict[str, Any]) -> Any:
    model, args, kwargs = built(spec)
    return torch.export.export(model, args, kwargs)


def _model(spec: dict[str, Any]) -> nn.Module:
    kind, name = spec["model"].split(":")
    if importlib.util.find_spec("torchvision") is not None:
        # transformers imports it wherever it finds it.
        load_torchvision()
    with cheap_weights():
        if kind == "torchvision":
            models = load_torchvision().models
            options: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
            if name.startswith(("fcn", "deeplab", "lraspp")):
                options["weights_backbone"] = None
            made: nn.Module = models.get_model(name, weights=None, **options).eval()
            return made
        transformers = importlib.import_module("transformers")
        config = getattr(transformers, spec["config"])(**spec.get("kw", {}))
        if spec.get("attn"):
            config._attn_implementation = spec["attn"]
        made = getattr(transformers, name)(config).eval()
        return made


def predicted(path: Path, device: str = "h200", torch_version: str = "2.13") -> DeviceMemory:
    """What irscope says from the file alone."""
    manager = Manager(load_program(path, LoadOptions(), DiagnosticSink()), settings=Settings(device=device, torch=torch_version))
    manager.apply(Annotate())
    return manager.get(CudaMemory())


def counted(memory: DeviceMemory, moment: str) -> Bytes:
    """A moment of a prediction."""
    assert memory.central is not None, memory.reason
    return memory.central.before if moment == "before" else memory.central[moment].peak


def errors(case: Case, memory: DeviceMemory) -> dict[tuple[str, str], float]:
    """Relative errors by moment and counter."""
    found: dict[tuple[str, str], float] = {}
    for moment in MOMENTS:
        for counter in COUNTERS:
            found[moment, counter] = getattr(counted(memory, moment), counter) / getattr(case.truth(moment), counter) - 1
    return found


def asked(memory: DeviceMemory) -> list[int]:
    """Requests of the first forward in order: bytes requested, and bytes given back below zero."""
    tape, numbers = memory.tape, memory.sizes
    assert tape is not None and numbers is not None, memory.reason
    forward = tape.events[: tape.starts[tape.spans[0].end]]
    sizes = (numbers[event] if event >= 0 else -numbers[~event] for event in forward)
    return [size for size in sizes if size]


def check_activations(memory: DeviceMemory) -> None:
    """Fail where what passes for activations is the parameters: then a prediction is right for the wrong reason, or wrong."""
    assert memory.basis is not None and memory.central is not None
    parameters = sum(load.size for load in memory.basis.load if load.kind == "parameter" and type(load.size) is int)
    for forward in memory.central.outcomes:
        assert forward.peak.requested - memory.central.before.requested != parameters, "activations equal to the parameters"


def _print_recorded(shown: tuple[Case, ...]) -> None:
    print("| model | before | cold: allocated | error | reserved | error | warm: allocated | error | requested, cold and warm |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for case in shown:
        if not case.installed:
            print(f"| {case.name} | {case.package} is not installed |")
            continue
        memory = predicted(exported(case))
        off = errors(case, memory)
        before, cold, warm = (counted(memory, moment) for moment in MOMENTS)
        _row(
            case.name,
            f"{before.allocated:,}",
            f"{cold.allocated:,}",
            _error(off["cold", "allocated"]),
            f"{cold.reserved:,}",
            _error(off["cold", "reserved"]),
            f"{warm.allocated:,}",
            _error(off["warm", "allocated"]),
            ", ".join(_error(off[moment, "requested"]) for moment in ("cold", "warm")),
        )


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def _error(off: float) -> str:
    return "exact" if off == 0 else f"{off:+.3%}"


def _print_published() -> None:
    print("\n| model | baseline | published | peak | published | error | reserved | published | modelled |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, shown in published().items():
        case = next(case for case in cases() if case.spec["model"] == f"torchvision:{name}")
        if not case.installed:
            continue
        memory = predicted(exported(case), "rtx3090")
        before, cold = counted(memory, "before"), counted(memory, "cold")
        modelled = memory.moments.modelled if memory.moments is not None else 0
        _row(
            name,
            f"{before.allocated / MIB:.2f}",
            f"{shown['baseline']:.2f}",
            f"{cold.allocated / MIB:.2f}",
            f"{shown['peak']:.2f}",
            f"{cold.allocated / MIB / shown['peak'] - 1:+.2%}",
            f"{cold.reserved / MIB:.0f}",
            f"{shown['reserved']:.0f}",
            f"{modelled / MIB:.2f}",
        )


if __name__ == "__main__":
    _print_recorded(further_cases() if "--further" in sys.argv else cases())
    _print_published()
