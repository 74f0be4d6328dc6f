"""Peaks of the zoo's models against real runs.

`python -m tests.tools.oracle.zoo [--form concrete,traced] [--model eager,ssa] [--filter text]` prints them.

Real runs are made once and kept on disk beside the exports.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.passes.graph.alias import Alias
from irscope.passes.lifetimes.timeline import Timeline, measure
from irscope.passes.lifetimes.traced import Ranges
from irscope.passkit.manager import Manager
from tests.tools.oracle.storages import Recording, Storage, record, record_module
from tests.tools.zoo.export import Exported, cache_folder, exported
from tests.tools.zoo.models import catalogue

Model = Literal["eager", "ssa"]

# A sample of each package: one model a family, or a few where they differ.
TORCHVISION = tuple([
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "fcn_resnet50", "googlenet", "inception_v3", "mc3_18", "mnasnet1_0",
    "mobilenet_v2", "mobilenet_v3_small", "mvit_v1_b", "regnet_x_800mf", "regnet_y_400mf", "resnet18", "resnet50", "shufflenet_v2_x1_0",
    "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32",
])  # fmt: skip
TRANSFORMERS = tuple([
    "albert", "bart", "bert", "clip", "convnext", "deit", "dinov2", "distilbert", "electra", "gemma", "gpt2", "gpt_neo", "llama",
    "mistral", "opt", "phi3", "qwen2", "roberta", "segformer", "swin", "t5", "vit", "whisper",
])  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model in one form under one model of lifetimes."""

    name: str
    form: str
    model: Model
    predicted: int = 0
    truth: int = 0
    refused: str = ""

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of the truth."""
        return self.predicted / self.truth - 1 if self.truth else float(self.predicted != 0)

    def line(self) -> str:
        """One row of the table."""
        said = self.refused[:100] if self.refused else f"{self.predicted:14,} {self.truth:14,} {self.error:+9.3%}"
        return f"{self.name:42} {self.form:9} {self.model:6} {said}"


@contextmanager
def masks_as_in(form: str) -> Iterator[None]:
    """While it exports or traces, transformers makes attention masks that a run leaves out when nothing is masked; make them too."""
    if importlib.util.find_spec("transformers") is None:
        yield
        return
    from transformers import masking_utils  # type: ignore[import-not-found,unused-ignore]  # optional

    with pytest.MonkeyPatch.context() as patch:
        for name in ("is_tracing",) if form == "traced" else ("is_torchdynamo_exporting", "is_tracing"):
            patch.setattr(masking_utils, name, lambda *args: True)
        yield


def truth(found: Exported, model: Model) -> Recording:
    """Storages of a real run: of the Python model, or of the exported graph."""
    kept = cache_folder() / "storages" / f"{model}-{found.form}" / f"{found.path.stem}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        recording = _eager(found) if model == "eager" else _graph(found)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(asdict(recording)), encoding="utf-8")
        partial.replace(kept)
    return _read(kept)


def _read(path: Path) -> Recording:
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in ("storages", "at_peak"):
        found[key] = [Storage(**one) for one in found[key]]
    return Recording(**found)


def _eager(found: Exported) -> Recording:
    model = found.entry.make()
    with masks_as_in(found.form):
        return record_module(model, found.entry.inputs(found.entry.batch))


def _graph(found: Exported) -> Recording:
    args = found.entry.inputs(found.entry.batch)
    if found.form in ("traced", "scripted"):
        script = torch.jit.load(found.path)
        return record(script, args, lambda: [*script.parameters(), *script.buffers()])
    module: Any = torch.export.load(found.path).module()
    constants = [item for item in vars(module).values() if isinstance(item, torch.Tensor)]
    return record(module, args, lambda: [*module.parameters(), *module.buffers(), *constants])


def timeline(found: Exported, model: Model) -> Timeline:
    """What irscope says of an exported file."""
    program = load_program(found.path, LoadOptions(), DiagnosticSink())
    manager = Manager(program)
    return measure(program.graph, manager.get(Ranges(model=model)), manager.get(Alias()))


def compare(name: str, form: str, model: Model) -> Row:
    """One row of the table."""
    found = exported(catalogue()[name], form)
    if found.refused:
        return Row(name, form, model, refused=f"refused by the exporter: {found.refused}")
    try:
        real = truth(found, model).peak
        measured = timeline(found, model)
        said = measured.peak
        if said == measured.resident.get("parameter"):
            return Row(name, form, model, refused="ERROR activations equal to the parameters")
    except Exception as error:  # a crash is a finding too
        return Row(name, form, model, refused=f"ERROR {type(error).__name__}: {error}")
    return Row(name, form, model, said if isinstance(said, int) else 0, real)


def summary(rows: list[Row]) -> str:
    """Exact and worst over the rows of one form and model."""
    taken = [row for row in rows if not row.refused]
    exact = sum(row.predicted == row.truth for row in taken)
    worst = max(taken, key=lambda row: abs(row.error), default=None)
    broken = sum(row.refused.startswith("ERROR") for row in rows)
    said = f"{exact} of {len(taken)} exact ({exact / max(len(taken), 1):.1%}), {broken} errors"
    return f"{said}; worst {worst.name} {worst.error:+.3%}" if worst is not None else said


def main() -> None:
    """Print the table; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.oracle.zoo", description=__doc__)
    parser.add_argument("--filter", default="", help="only models with one of these texts in their name, separated by commas")
    parser.add_argument("--form", default="concrete,traced", help="concrete (.pt2) and traced (TorchScript)")
    parser.add_argument("--model", default="eager", help="eager and ssa")
    parser.add_argument("--all", action="store_true", help="print the exact ones too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    texts = arguments.filter.split(",")
    for name in catalogue():
        if not any(text in name for text in texts):
            continue
        for form in arguments.form.split(","):
            for model in arguments.model.split(","):
                row = compare(name, form, model)
                rows.append(row)
                if arguments.all or row.refused or row.predicted != row.truth:
                    print(row.line(), flush=True)
        gc.collect()
    for form in arguments.form.split(","):
        for model in arguments.model.split(","):
            mine = [row for row in rows if (row.form, row.model) == (form, model)]
            print(f"{form} {model}: {summary(mine)}")


if __name__ == "__main__":
    main()
