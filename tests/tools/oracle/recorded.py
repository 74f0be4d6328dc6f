"""Records four large models with PyTorch and ONNX Runtime and counts the nodes found again: `python -m tests.tools.oracle.recorded`.

ResNet-50, ViT-B/16, BERT and GPT-2 in their usual sizes, with random weights. Exports are kept in the cache of `python -m tests.tools.zoo`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import irscope
from irscope.cli.main import main as irscope_main
from irscope.ir.graph import Role
from irscope.recording import Recording, figures, peak_of, read_recording, without_workspaces
from tests.tools.zoo.export import cache_folder
from tests.tools.zoo.torchvision_shim import load_torchvision


@dataclass(frozen=True)
class Recorded:
    """A model with its recording."""

    model: Path
    recording: Recording
    seconds: float

    @property
    def nodes(self) -> int:
        """Nodes that run: exporters also write constants."""
        return len(self.labels)

    @property
    def labels(self) -> set[str]:
        program = irscope.load(self.model).program
        return {node.name for node in program.graph if any(output.role is Role.TEMPORARY for output in node.outputs)}

    @property
    def found(self) -> int:
        """Nodes of the file that the recording names."""
        mapping = self.recording.mapping
        if mapping is not None:
            return mapping.mapped + len(mapping.folded)
        return len(self.labels & {source for op in self.recording.ops for source in op.sources})


def _vision(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    return load_torchvision().models.get_model(name).eval(), (torch.randn(1, 3, 224, 224),)


def _language(name: str, **sizes: int) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    load_torchvision()  # transformers imports it where it is installed
    import transformers

    config = getattr(transformers, f"{name}Config")(**sizes)
    config.use_cache = False
    model = getattr(transformers, f"{name}Model")(config).eval()
    return model, (torch.ones(1, 128, dtype=torch.int64),)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]] = {
    "resnet50": lambda: _vision("resnet50"),
    "vit_b_16": lambda: _vision("vit_b_16"),
    "bert": lambda: _language("Bert"),
    "gpt2": lambda: _language("GPT2"),
}


def exported(name: str, form: str) -> Path:
    """The model in a file, made once."""
    path = cache_folder() / "recorded" / f"{name}.{form}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model, args = MODELS[name]()
        if form == "pt2":
            torch.export.save(torch.export.export(model, args), path)
        else:
            torch.onnx.export(model, args, path, dynamo=True, verbose=False)
    return path


def record(model: Path, *options: str) -> Recorded:
    """Record with the command that users have."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "recording.jsonl"
        started = time.perf_counter()
        code = irscope_main(["record", "--trust", str(model), "-o", str(target), "--repeats", "5", "--threads", "1", *options])
        assert code == 0
        return Recorded(model, read_recording(target), time.perf_counter() - started)


def table(names: list[str]) -> Iterator[str]:
    """A row for each model and executor."""
    yield "| model | executor | nodes | found again | operators that ran | plain | profiled | peak beyond the model | without workspaces |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in names:
        for form in ("pt2", "onnx"):
            one = record(exported(name, form))
            recording = one.recording
            nodes = recording.mapping.nodes if recording.mapping is not None else one.nodes
            plain, profiled = recording.times("plain"), recording.times("profiled")
            assert plain is not None and profiled is not None
            counter = "requested"
            peak = figures(recording, "warm", counter).delta
            share = f"{one.found} ({100 * one.found / nodes:.1f} %)"
            bare = peak_of(without_workspaces(recording.run("warm"))).bytes
            times = f"{plain.median_us / 1e3:.1f} ms | {profiled.median_us / 1e3:.1f} ms"
            yield f"| {name} | {recording.header.executor} | {nodes} | {share} | {len(recording.ops)} | {times} | {peak:,} | {bare:,} |"


def main() -> None:
    """Record and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    for line in table(parser.parse_args().models):
        print(line)


if __name__ == "__main__":
    main()
