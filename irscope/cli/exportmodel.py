"""What `irscope export` writes of the model itself: a named one as a file, or a file with its nodes in another order."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from irscope.cli.args import load_options
from irscope.errors import ExitCode, UsageError
from irscope.files import write_text
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import is_name
from irscope.frontends.zoo.packages import check_installed
from irscope.ir.printer import print_program
from irscope.passes.order.reorder import Reorder
from irscope.passes.order.schedule import Schedule
from irscope.passes.ort.order import OrtOrder, verdict
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry
from irscope.report.units import Kind, humanise
from irscope.session import Model
from irscope.tools.reorder import FileOrder, file_order, open_nodes_of, write_reordered

MODEL_KINDS = ("onnx", "pt2", "pt")


def export_named_model(text: str, options: LoadOptions, target: Path) -> ExitCode:
    """Write a named model, and say so."""
    if not is_name(text):
        raise UsageError(
            f"only a model by name is exported to {target.suffix}, and {text!r} is none",
            code="IRS678",
            hint="`--schedule` writes a file's nodes in another order; for example `irscope export torchvision:resnet50 -o resnet50.onnx`",
        )
    check_installed(text)
    from irscope.frontends.zoo.load import export_named

    files = export_named(text, options, target)
    sys.stderr.write("weights are random\n" + "".join(f"wrote {path}\n" for path in files))
    return ExitCode.OK


@contextmanager
def as_file(args: argparse.Namespace, target: Path) -> Iterator[None]:
    """Let the arguments name a file: a named model is exported for that first."""
    if not is_name(args.model) or target.suffix.lower() not in (".onnx", ".pt2"):
        yield
        return
    check_installed(args.model)
    from irscope.frontends.zoo.load import export_named

    with tempfile.TemporaryDirectory(prefix="irscope-") as folder:
        path = Path(folder) / target.name
        export_named(args.model, load_options(args), path)
        args.model, args.input, args.bind = str(path), [], []
        yield


def schedule_of(options: str) -> Schedule:
    """The pass that --schedule and its options stand for."""
    text = options.strip().removeprefix("{").removesuffix("}").replace(",", " ")
    [found] = parse_pipeline(f"schedule{{{text}}}", default_registry())
    assert isinstance(found, Schedule)
    return found


def export_reordered(model: Model, schedule: Schedule, target: Path) -> ExitCode:
    """Find the order, write the file, and say what that is worth."""
    if target.suffix.lower() == ".irs":
        return _export_text(model, schedule, target)
    nodes = open_nodes_of(model)
    if target.suffix.lower() != nodes.suffix:
        raise UsageError(
            f"a reordered {nodes.suffix} file stays one, which {target.name!r} is no name for",
            code="IRS357",
            hint=f"`-o {target.stem}{nodes.suffix}`",
        )
    found = file_order(model, nodes, schedule)
    files = write_reordered(model, nodes, found, target)
    sys.stderr.write("".join(f"{line}\n" for line in _lines(model, found, schedule, files)))
    return ExitCode.OK


def _export_text(model: Model, schedule: Schedule, target: Path) -> ExitCode:
    """The graph in the text form, its nodes reordered; any model has one."""
    options = {key: getattr(schedule, key) for key in ("model", "seconds", "seed", "latency", "inputs")}
    ordering = model.manager.get(schedule).ordering
    before, after = ordering.as_written, ordering.peak
    [done] = model.run([Reorder(**options)]).items_in_order
    moved = done.report().summary.get("moved", 0)
    write_text(target, print_program(model.program))
    said = f"peak as written {_size(before)}, reordered {_size(after)}; {moved} of {len(model.graph)} nodes stand at another place"
    sys.stderr.write(f"{said}\nwrote {target}\n")
    return ExitCode.OK


def _size(size: int) -> str:
    return humanise(size, Kind.BYTES)


def _lines(model: Model, found: FileOrder, schedule: Schedule, files: list[Path]) -> list[str]:
    said = [
        f"peak as written {_size(found.before)}, reordered {_size(found.after)}; {found.verdict}",
        f"{found.moved} of {len(found.order)} nodes stand at another place",
    ]
    if model.program.format == "onnx":
        orders = model.manager.get(OrtOrder(seconds=schedule.seconds, seed=schedule.seed))
        said.append(f"in ONNX Runtime: {verdict(orders)}")
    return [*said, *(f"wrote {path}" for path in files)]
