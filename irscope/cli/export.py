"""`irscope export`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from irscope.amounts import BYTES, COUNT
from irscope.cli.args import add_amount, add_model_arguments, add_output_file, amount_of, load_options, open_from
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode, UsageError
from irscope.files import TemporaryFolder, write_binary, write_text
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import is_name, is_script
from irscope.frontends.zoo.packages import check_installed
from irscope.ir.printer import print_program
from irscope.ir.program import Runtime
from irscope.passes.exports import AllocatorLog, allocations_of, chrome_trace, requests_of, snapshot_bytes, steps_table
from irscope.passes.memory.cuda import CudaMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.order.plan import Plan, address_map, minimalloc_csv, plan_json
from irscope.passes.order.schedule import Schedule, ScheduleModel
from irscope.passes.order.transforms import Reorder
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.ort.order import OrtOrder, verdict
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry
from irscope.report.options import RenderOptions
from irscope.report.printable import one_line
from irscope.report.renderers import renderer
from irscope.report.report import Document, Report
from irscope.report.units import bytes_text
from irscope.session import Model, open_model
from irscope.tools.export import COLOURINGS, PICTURE_KINDS, View, picture
from irscope.tools.rewrite import FileOrder, Rewritten, file_order, open_nodes_of, rewrite, write_reordered

_TIMELINE_KINDS = ("pickle", "json", "csv")
_PLAN_KINDS = ("json", "csv", "svg")
KINDS = (*PICTURE_KINDS, *_TIMELINE_KINDS)
_PLAN_LIFETIMES: dict[str, ScheduleModel] = {"auto": "ssa", "ssa": "ssa", "jit": "jit", "eager": "eager"}


class Command:
    """Write a picture of a graph, a model by name, a changed or reordered model, or predicted memory for another viewer.

    The suffix of the file selects what is written.

    .svg and .html are pictures of the graph, modules within modules; in the page they fold and unfold.
    --depth 2 opens two levels of modules, --around NODE --hops 3 draws the neighbourhood of a node, --colour flops colours by cost.

    .onnx, .pt2 and .pt (a trace) are for models by name, such as torchvision:resnet50: with random weights, and with the inputs they
    were exported for beside them, in FILE.inputs.npz. --bind batch=8 and --input give sizes; names in them stay open.

    .pickle is a snapshot as torch.cuda.memory._dump_snapshot writes it: https://pytorch.org/memory_viz shows it, block by block.
    .json is a Chrome trace with counters, module calls and nodes: https://ui.perfetto.dev shows it. .csv is a table, a row a node.

    Every size has to be a number: --bind batch=8. Models that PyTorch's allocator does not run have no segments and blocks: what is
    written are sizes as they are requested. --lifetimes eager pretends that PyTorch runs them.

    --plan writes what the pass plan says: .csv is MiniMalloc's table, .json the same with the height of the arena, .svg a map of
    addresses over time. --plan scheduled takes the order that needs least memory.

    --passes fold-batch-norm,dce writes the model itself, .onnx or .pt2, as transforms leave it, with its weights; what no pass touched is
    copied as it is. .irs is the graph of any model as text, without weights.

    --schedule writes the model itself, .onnx or .pt2, with its nodes in the order that needs least memory. Nothing else in it changes.
    Its results are the same in every runtime; --schedule=seconds=30,latency=5% are options of the pass.
    """

    examples = (
        ("irscope export --bind batch=8,length=128 -o timeline.json model.onnx", "which tensors live when, in Perfetto?"),
        (
            "irscope export --bind batch=8,length=128 --plan -o plan.svg model.onnx",
            "where would every tensor lie in one arena, as a picture?",
        ),
        ("irscope export torchvision:resnet50 -o resnet50.onnx", "a model by name as a file?"),
    )
    common = ("--output", "--kind", "--passes", "--schedule", "--plan", "--depth", "--around", "--colour", "--bind", "--input")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser)
        add_output_file(parser, required=True, help="the file; its suffix selects what is written")
        parser.add_argument("--kind", choices=KINDS, help="what to write, for other names of files")
        parser.add_argument(
            "--lifetimes", choices=("auto", "ssa", "eager", "jit", "ort", "xla"), default="auto", help="lifetime model, as in liveness"
        )

        parser.add_argument(
            "--plan", nargs="?", choices=("written", "scheduled"), const="written", help="the arena's plan instead of the timeline"
        )
        parser.add_argument(
            "--passes",
            metavar="PIPELINE",
            help="the model's own file as these transforms leave it, with its weights; '' copies it node by node",
        )
        parser.add_argument("--external-data", action="store_true", help="with --passes: weights of an .onnx file in a file beside it")
        parser.add_argument(
            "--schedule",
            nargs="?",
            const="",
            metavar="OPTIONS",
            help="reorder the model's file for the least memory; options of the pass schedule, such as seconds=30,latency=5%%",
        )
        pictures = parser.add_argument_group("pictures of the graph")
        pictures.add_argument(
            "--depth", type=amount_of(COUNT), metavar="N", help="levels of modules that are open; default: as is readable"
        )
        pictures.add_argument("--around", default="", metavar="NODE", help="only what is near this node or module")
        pictures.add_argument("--hops", type=amount_of(COUNT), default=2, metavar="N", help="how near, in edges; default: 2")
        pictures.add_argument(
            "--colour", "--color", choices=COLOURINGS, default="class", help="class of the operator, or a share of the model"
        )
        parser.add_argument("--alignment", type=amount_of(BYTES), default=64, metavar="BYTES", help="of offsets in the plan")
        add_amount(parser, "--seconds", default=10, help="time to search for the plan")

    def run(self, args: argparse.Namespace) -> int:
        path = Path(args.output)
        kind = args.kind or path.suffix.removeprefix(".").lower()
        if args.passes is not None or (kind == "irs" and not args.plan and args.schedule is None):
            return self._rewrite(args, path)
        if args.schedule is not None:
            return self._reorder(args, path)
        if kind in MODEL_KINDS and not args.plan:
            return export_named_model(args.model, load_options(args), path)
        if kind in PICTURE_KINDS and not args.plan:
            return self._draw(args, path, kind)
        kinds = _PLAN_KINDS if args.plan else (*PICTURE_KINDS, *_TIMELINE_KINDS, *MODEL_KINDS)
        if kind not in kinds:
            raise UsageError(
                f"{path.name!r} does not say what to write", code="IRS339", hint=f"end it in .{', .'.join(kinds)}, or give --kind"
            )
        model = open_from(args)
        report_diagnostics(model.diagnostics, args.verbose)
        if args.plan:
            write_text(path, _plan_lines(model, args, kind))
        elif kind == "csv":
            write_text(path, _csv(model, args.lifetimes))
        else:
            log = _allocator_log(model, args.lifetimes)
            if kind == "pickle":
                write_binary(path, [snapshot_bytes(log)])
            else:
                write_text(path, [json.dumps(chrome_trace(log), separators=(",", ":")), "\n"])
        sys.stderr.write(f"wrote {path}\n")
        return strict_code(args, [model])

    def _draw(self, args: argparse.Namespace, path: Path, kind: str) -> int:
        model = open_from(args)
        report_diagnostics(model.diagnostics, args.verbose)
        text, notes = picture(model, kind, View(args.colour, args.depth, args.around, args.hops))
        write_text(path, text)
        sys.stderr.write("".join(f"{one_line(note)}\n" for note in notes) + f"wrote {path}\n")
        return strict_code(args, [model])

    def _rewrite(self, args: argparse.Namespace, target: Path) -> int:
        if args.plan or args.kind:
            raise UsageError("--passes writes a model, no plan and no timeline", code="IRS339", hint="leave --plan and --kind out")
        with as_file(args, target):
            model = open_from(args, keep_calls=target.suffix.lower() != ".irs")
            report_diagnostics(model.diagnostics, args.verbose)
            done = rewrite(model, args.passes or "", target, external=args.external_data)
            sys.stderr.write("".join(f"{line}\n" for line in _rewritten_lines(done)))
            return strict_code(args, [model])

    def _reorder(self, args: argparse.Namespace, target: Path) -> int:
        schedule = schedule_of(args.schedule)
        if args.plan or args.kind:
            raise UsageError("--schedule writes a model, no plan and no timeline", code="IRS339", hint="leave --plan and --kind out")
        with as_file(args, target):
            model = open_from(args)
            report_diagnostics(model.diagnostics, args.verbose)
            return export_reordered(model, schedule, target) or strict_code(args, [model])


def _rewritten_lines(done: Rewritten) -> Iterator[str]:
    """Yield what became of the model."""
    for result in done.results:
        counts = {key: amount for key, amount in result.report().summary.items() if key != "changed"}
        yield f"{result.subject.name}: {', '.join(f'{key} {amount}' for key, amount in counts.items()) or 'nothing to count'}"
    before, after = done.nodes
    yield f"{after} nodes, {before} before"
    yield from (f"wrote {path}" for path in done.files)


def _plan_lines(model: Model, args: argparse.Namespace, kind: str) -> Iterable[str]:
    lifetimes = _PLAN_LIFETIMES.get(args.lifetimes)
    if lifetimes is None:
        raise UsageError(f"a plan cannot follow --lifetimes {args.lifetimes}", code="IRS339", hint="ssa, jit or eager")
    planned = model.manager.get(Plan(args.alignment, args.seconds, args.plan, lifetimes))
    if kind == "svg":
        return address_map(planned)
    return [minimalloc_csv(planned) if kind == "csv" else plan_json(planned, args.alignment)]


def _allocator_log(model: Model, lifetimes: str) -> AllocatorLog:
    """Return what the allocator does; for models that PyTorch's allocator does not run, what is asked for."""
    memory = model.manager.get(CudaMemory(model=lifetimes))  # type: ignore[arg-type]  # argparse has checked it
    if memory.sizes is not None:
        return allocations_of(memory)
    log = requests_of(model.manager.get(Liveness(model=lifetimes)))  # type: ignore[arg-type]
    sys.stderr.write(f"sizes as requested, without an allocator: {memory.reason}\n")
    return log


def _csv(model: Model, lifetimes: str) -> Iterable[str]:
    timeline = model.manager.get(Liveness(model=lifetimes))  # type: ignore[arg-type]  # argparse has checked it
    memory = model.manager.get(CudaMemory(model=lifetimes)) if timeline.model != "ort" else None  # type: ignore[arg-type]
    report = Report("timeline", tables=(steps_table(timeline, memory),))
    return renderer("csv")(Document("", model.info(), (model.marked(report),)), RenderOptions())


# What `irscope export` writes of the model itself: a named one as a file, or a file with its nodes in another order.

MODEL_KINDS = ("onnx", "pt2", "pt")


def export_named_model(text: str, options: LoadOptions, target: Path) -> ExitCode:
    """Write a named model, and say so."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} is not a model by name, and only those are exported to {target.suffix}",
            code="IRS678",
            hint="`--passes` writes a file as transforms leave it, `--schedule` its nodes in another order; "
            "for example `irscope export torchvision:resnet50 -o resnet50.onnx`",
        )
    check_installed(text)
    from irscope.frontends.zoo.load import export_named

    files = export_named(text, options, target)
    said = "" if is_script(text) else "weights are random\n"
    sys.stderr.write(said + "".join(f"wrote {path}\n" for path in files))
    return ExitCode.OK


@contextmanager
def as_file(args: argparse.Namespace, target: Path) -> Iterator[None]:
    """Let the arguments name a file: a named model is exported for that first."""
    if not is_name(args.model) or target.suffix.lower() not in (".onnx", ".pt2"):
        yield
        return
    check_installed(args.model)
    from irscope.frontends.zoo.load import export_named

    with TemporaryFolder() as folder:
        path = Path(folder) / target.name
        export_named(args.model, load_options(args), path)
        args.model, args.input, args.bind = str(path), [], []
        yield


def schedule_of(options: str) -> Schedule:
    """Return the pass that --schedule and its options stand for."""
    text = options.strip().removeprefix("{").removesuffix("}")
    [schedule] = parse_pipeline(f"schedule{{{text}}}", default_registry())
    assert isinstance(schedule, Schedule)
    return schedule


def export_reordered(model: Model, schedule: Schedule, target: Path) -> ExitCode:
    """Find the order, write the file, and say what that is worth."""
    if target.suffix.lower() == ".irs":
        return _export_text(model, schedule, target)
    nodes = open_nodes_of(model)
    if target.suffix.lower() != nodes.suffix:
        raise UsageError(
            f"a reordered {nodes.suffix} file stays one; {target.name!r} has another suffix",
            code="IRS357",
            hint=f"`-o {target.stem}{nodes.suffix}`",
        )
    found = file_order(model, nodes, schedule)
    files = write_reordered(model, nodes, found, target)
    sys.stderr.write("".join(f"{line}\n" for line in _order_lines(model, found, schedule, files)))
    return ExitCode.OK


def _export_text(model: Model, schedule: Schedule, target: Path) -> ExitCode:
    """Write the graph in the text form, its nodes reordered; any model has one."""
    options = {key: getattr(schedule, key) for key in ("model", "seconds", "seed", "latency", "inputs")}
    ordering = model.manager.get(schedule).ordering
    before, after = ordering.as_written, ordering.peak
    [done] = model.run([Reorder(**options)]).items_in_order
    moved = done.report().summary.get("moved", 0)
    write_text(target, [print_program(model.program)])
    said = (
        f"peak as written {bytes_text(before)}, reordered {bytes_text(after)}; {moved} of {len(model.graph)} nodes stand at another place"
    )
    sys.stderr.write(f"{said}\nwrote {target}\n")
    return ExitCode.OK


def _order_lines(model: Model, found: FileOrder, schedule: Schedule, files: list[Path]) -> list[str]:
    said = [
        f"peak as written {bytes_text(found.before)}, reordered {bytes_text(found.after)}; {found.verdict}",
        f"{found.moved} of {len(found.order)} nodes stand at another place",
    ]
    if model.program.traits.runtime is Runtime.ONNXRUNTIME:
        orders = model.manager.get(OrtOrder(seconds=schedule.seconds, seed=schedule.seed))
        said.append(f"in ONNX Runtime without graph optimisations: {verdict(orders)}")
        if orders.is_new:
            said.extend(_in_a_default_session(model, files[0]))
    return [*said, *(f"wrote {path}" for path in files)]


def _in_a_default_session(model: Model, reordered: Path) -> Iterator[str]:
    """Yield what a session with its optimisations asks for with the file as written and as reordered: it changes the graph of both."""
    options = replace(model.options, ort_level="all")
    opened = (open_model(path, options, settings=model.manager.settings) for path in (Path(model.program.path), reordered))
    figures = [model.manager.get(OrtMemory()).figures for model in opened]
    before, after = (None if figure is None else figure.cold.peak.requested for figure in figures)
    if before is not None and after is not None:
        saved = f"{1 - after / before:.1%} less" if after < before else "no less"
        yield f"in a default session, after its optimisations: {bytes_text(before)} as written, {bytes_text(after)} reordered, {saved}"
