"""`irscope run`."""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from irscope.cli.args import FORMATS, add_amount, add_model_arguments, add_output_arguments, group_of, open_from, selection, write_answer
from irscope.devices import find_device
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import ExitCode, LoadError, PassError, UsageError
from irscope.files import is_recording, write_stream
from irscope.frontends.zoo.names import is_pattern
from irscope.ir.graph import paused_gc
from irscope.ir.printer import print_program
from irscope.ir.program import Assumed
from irscope.passes.graph.transforms import Verify
from irscope.passkit.base import Analysis, Pass, Transform
from irscope.passkit.instruments import DumpOnChange, Instrument, SkipPasses, Timing
from irscope.passkit.manager import PassResult
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import PassRegistry, default_registry
from irscope.report.card import Card
from irscope.report.options import RenderOptions
from irscope.report.printable import one_line
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.text import render as render_text
from irscope.session import Model, Results
from irscope.tools.config import DEFAULT, Chosen, chosen_device
from irscope.weights.schemes import SCHEMES, parse_scheme

_MOST_DIAGNOSTICS = 20
"""A hostile or broken file can give one for each of its nodes."""
_FEW_DIAGNOSTICS = 4
"""Beside a card, which counts them."""


_NOT_KNOWN = "IRS333"
"""The sizes of the model are not known as far as a pass would need them; its section says so, and that is no failure of a page."""


class Command:
    """Print what a model is, whether it fits and what it costs on one screen; or run passes over it and print their reports.

    Without --passes the answer is the card: the device is --device, else this machine's GPU, else what `irscope config` has set,
    else h200. `irscope MODEL` is short for that; --all prints every report of the default passes instead. A recording has a card too.

    Several models, or a pattern such as 'models/*.onnx' or 'timm:vit_tiny*', are a table with a row for each; --sweep batch=1,8 crosses
    them with sizes. A model that cannot be analysed is a row with its error.

    A pipeline is a list of passes with options: shapes,liveness{top=5},./my_pass.py:Mine{threshold=0.5}
    `irscope passes` lists the passes. A pass that is named by file is code, and runs; model files never do.

    Exit codes: 0 done, 1 findings at or above --fail-on or of verify, 2 usage, 3 the model cannot be read, 4 a pass failed,
    5 partial result (one of several models could not be analysed; some weights could not be read; with --strict: something is unknown
    or was guessed), 130 interrupted, 143 terminated.
    """

    examples = (
        ("irscope model.onnx", "what is it, does it fit on the GPU here, and what does it cost?"),
        ("irscope model.onnx --as nf4", "what would the weights take in 4 bits, and what does rounding lose?"),
        ("irscope run run.jsonl", "what did a recorded run take, and how far can that be trusted?"),
        ("irscope run model.onnx model.pt2 --sort peak", "which of several models takes least, and does each fit?"),
        ("irscope run --passes flops,bytes model.onnx", "what does each node, module and operator cost?"),
        (
            "irscope run --passes liveness,explain-peak --device rtx4090 model.pt2",
            "what holds memory at the peak, and what would lower it?",
        ),
        (
            "irscope run --passes shapes --bind batch=8,length=128 model.onnx",
            "what are the shapes once every size is a number, and which are unknown?",
        ),
        (
            "irscope run --passes roofline,energy --device l4 --format json model.pt2",
            "how fast can it be on an L4, for how much energy, as data for a script?",
        ),
    )
    common = ("--device", "--bind", "--input", "--passes", "--all", "--as", "--sweep", "--sort", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        default = "shapes,params,flops,liveness, for files without a graph params"
        parser.add_argument("--passes", default="", metavar="PIPELINE", help=f"what to run, in place of the card; `default` is {default}")
        parser.add_argument("--all", dest="passes", action="store_const", const="default", help="the same as --passes default")
        parser.add_argument(
            "--as",
            dest="store_as",
            default="",
            metavar="SCHEME",
            help=f"what weights would take in few bits: {', '.join(SCHEMES)}, with settings as in int4{{group=64}}",
        )
        add_model_arguments(parser, many=True)
        add_output_arguments(parser, (*FORMATS, "layers-json"), plots="memory over the run, and every other curve of the reports")
        add_amount(parser, "--jobs", default=1, help="several models: how many to analyse at once; default: 1")
        parser.add_argument("--fail-on", choices=("note", "warning", "error"), help="exit with 1 when a diagnostic is at least this bad")
        passes = group_of(parser, "passes as they run")
        passes.add_argument("--timing", action="store_true", help="time by pass on stderr, analyses marked (A)")
        passes.add_argument("--dump-ir", metavar="FOLDER", help="write the graph there after each change")
        add_print_after(parser)
        passes.add_argument("--verify-each", action="store_true", help="check the graph after every transform")
        parser.add_argument(
            "--sweep",
            action="append",
            default=[],
            metavar="NAME=SIZES",
            help="peak memory over sizes of a symbol, such as batch=1..128; several models: each at these sizes",
        )
        parser.add_argument("--explain", default="", metavar="NODE", help="where the numbers of one node come from, with --passes flops")
        parser.add_argument(
            "--grid",
            default=DEFAULT_GRID,
            metavar="GRID",
            help="whose power carbon is for in html and md-issue: a country such as DEU, or grams of CO2 per kWh; default: %(default)s",
        )
        passes.add_argument("--skip", default="", metavar="NAME,...", help="leave these transforms out")

    def run(self, args: argparse.Namespace) -> int:
        _refuse_model_file(args)
        if len(args.model) > 1 or is_pattern(args.model[0]):
            from irscope.cli.many import run_many

            return run_many(args)
        (args.model,) = args.model
        if is_recording(Path(args.model)):
            return _print_recording(args)
        _leave_collecting()
        registry = default_registry()
        passes = _asked_for(args, registry)
        selection(args)
        timing = Timing()
        instruments = _instruments(args, timing)
        open_sizes = _sizes_in(args.sweep)
        chosen = chosen_device(args.device) if _shows_card(args) else None
        is_card_alone = chosen is not None and args.format == "text"
        is_page = chosen is not None and args.format in PAGES
        if chosen is not None and is_card_alone and not (args.strict or args.fail_on):
            with paused_gc():
                model = open_from(args, open_sizes=open_sizes, instruments=instruments, verify_each=args.verify_each)
                return _print_card(model, chosen, args, timing)
        model = open_from(args, open_sizes=open_sizes, instruments=instruments, verify_each=args.verify_each)
        card, further = _card_of(model, chosen, args.store_as) if chosen is not None else (None, ())
        if is_page and card is not None:
            # A model card is two pages: the card is all of it.
            reports = page_passes(args.grid) if args.format != "md" else ""
            model, passes = at_stated_sizes(model, card), parse_pipeline(reports, registry) if reports else ()
        if args.passes in ("", "default") and not model.program.has_graph:
            # The other passes need a graph, which this file does not have; the frontend has said so.
            passes = (*parse_pipeline("params", registry), *(one for one in passes if one.name == "store-as"))
        # Transforms change the model: the header is about the file, and says what was made of it.
        as_read = model.info() if any(isinstance(one, Transform) for one in passes) else None
        session, in_session, remarks = _default_session(args, model, () if card is not None else passes)
        models = dict.fromkeys(in_session, session or model)
        done, failure = _run_all(model, passes, goes_on=is_page, models=models, shows_graphs=args.print_after_all)
        results = Results(done, model.manager.settings)
        document = _with_taken(model.document(results), session, " and ".join(_SESSION_PASSES[name] for name in in_session))
        if as_read is not None and document.model is not None:
            document = replace(document, model=_as_it_was(as_read, document.model))
        if is_page and passes:
            document = with_graph(document, model, args.grid)
        if failure is None or is_page:
            document = replace(document, card=card, reports=() if is_card_alone else (*document.reports, *further))
        if done or failure is None:
            write_answer(document, args)
        diagnostics = [diagnostic for report in results.reports for diagnostic in report.diagnostics]
        # On a terminal the report has just shown them; twice on one screen is once too often.
        shown_already = args.format == "text" and not is_card_alone and args.output is None and sys.stdout.isatty()
        report_diagnostics([*model.diagnostics, *remarks, *([] if shown_already else diagnostics)], args.verbose)
        if args.timing:
            _print_timing(timing, document)
        if failure is not None:
            raise failure
        # Nobody asked a page for all of its passes: where one leaves something out, that is said there.
        asked = tuple(replace(report, partial=False) for report in results.reports) if is_page else results.reports
        return _exit_code(args, model, asked, [*model.diagnostics, *diagnostics])


def _leave_collecting() -> None:
    """Let the process end without a search for garbage: of a large model that takes longer than all else that is done in the end."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


_SESSION_PASSES: Final = {"ort-memory": "memory", "time": "time"}
"""Predict what ONNX Runtime says of a session: its profile, and its time where kernels of its own were measured. All others are about the
file as written, on the device of the card."""


def _default_session(
    args: argparse.Namespace, model: Model, passes: Sequence[Pass]
) -> tuple[Model | None, Collection[str], Sequence[Diagnostic]]:
    """Return the model as a session of ONNX Runtime on a processor has it, with the passes that predict what such a session counts: with
    its usual optimisations, and on no GPU that nobody named. None where no pass asks for it.
    """
    if not model.is_for_sessions or not all(isinstance(one, Analysis) for one in passes):
        return None, (), ()
    settings = model.manager.settings
    if settings.chosen == DEFAULT:
        settings = replace(settings, device="", chosen="")
    device = find_device(settings.device) if settings.device else None
    wanted = [one.name for one in passes if one.name in _SESSION_PASSES]
    if device is None or not model.times_a_session(device) or args.ort_level is not None:
        wanted = [name for name in wanted if name != "time"]
    if args.sweep or (device is not None and device.kind != "cpu") or not wanted:
        return None, (), ()
    try:
        return model.as_session("all" if args.ort_level is None else model.options.ort_level, settings), wanted, ()
    except LoadError as error:
        asked = " and ".join(_SESSION_PASSES[name] for name in wanted)
        remark = f"{asked} of the file as written, without optimisations: {error.message}"
        return None, (), (Diagnostic(Severity.NOTE, "IRS176", remark),)


def _as_it_was(before: ModelInfo, after: ModelInfo) -> ModelInfo:
    """Return what the header says where transforms ran: the model as it was read, and what they left of it."""
    known = replace(after, nodes=before.nodes, parameters=before.parameters, parameter_bytes=before.parameter_bytes, unsized=before.unsized)
    return known if after == known else replace(known, changed=f"{after.nodes or 0:,} after the transforms")


def _with_taken(document: Document, session: Model | None, subject: str) -> Document:
    """Return the document with what a session takes for granted, for these numbers of it, beyond what the model does."""
    if session is None or document.model is None:
        return document
    known = document.model.assumed
    further = [replace(guess, why=f"for {subject}: {guess.why}") for guess in session.program.assumed if guess not in known]
    return replace(document, model=replace(document.model, assumed=(*known, *further)))


def _run_all(
    model: Model, passes: Iterable[Pass], *, goes_on: bool, models: Mapping[str, Model], shows_graphs: bool = False
) -> tuple[list[PassResult], PassError | None]:
    """Return the results of passes, some by name about other `models`, and the first failure, after which others run where that is wanted:
    its section says so then."""
    done: list[PassResult] = []
    failure: PassError | None = None
    model.manager.planned = passes = tuple(passes)
    for one in passes:
        try:
            done.append(models.get(one.name, model).manager.run_one(one))
            if shows_graphs and isinstance(one, Transform):
                print_after(model, one, done[-1].value)
        except PassError as error:
            # What other passes found is still worth having.
            if not goes_on:
                return done, error
            done.append(PassResult(one, None, Report(one.name, one.text, headline=(f"not computed: {error}",))))
            if error.code != _NOT_KNOWN:
                failure = failure or error
    return done, failure


def add_print_after(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows the graph on its way through a pipeline."""
    parser.add_argument("--print-after-all", "--dump-ir-after-all", action="store_true", help="print after each transform, on stderr")


def print_after(model: Model, subject: Transform, changed: bool) -> None:
    """Print the graph that a transform left on stderr, below a comment that names it."""
    said = "changed the graph" if changed else "changed nothing"
    write_stream(sys.stderr, [f"# ----- after {one_line(subject.text)}, which {said}\n", print_program(model.program)])


def _instruments(args: argparse.Namespace, timing: Timing) -> list[Instrument]:
    """Return what looks on while passes run."""
    instruments: list[Instrument] = [timing]
    if args.dump_ir:
        instruments.append(DumpOnChange(Path(args.dump_ir)))
    if args.skip:
        instruments.append(SkipPasses(frozenset(args.skip.split(","))))
    return instruments


def _shows_card(args: argparse.Namespace) -> bool:
    """Return whether nobody asked for certain passes, nor for anything of their reports."""
    if any((args.passes, args.sweep, args.explain, args.dump_ir, args.skip)):
        return False
    # A page has all reports anyway.
    return args.format in PAGES or (not any((args.plot, args.sort, args.filter)) and args.top is None and args.rows is None)


def _card_of(model: Model, chosen: Chosen, store_as: str) -> tuple[Card, tuple[Report, ...]]:
    """Return the card, and reports that it has beside those of passes."""
    # Not at the top: --help, and passes that are asked for, do without all that it looks up.
    from irscope.tools.card import card_and_stored, make_card

    if not store_as:
        return make_card(model, chosen), ()
    card, report = card_and_stored(model, chosen, store_as)
    return card, (report,)


def _print_card(model: Model, chosen: Chosen, args: argparse.Namespace, timing: Timing) -> int:
    """Print the card alone. What is to be said about the model comes first, so that the card is what a screen shows in the end."""
    card, _ = _card_of(model, chosen, args.store_as)
    report_diagnostics(card.diagnostics, args.verbose, _FEW_DIAGNOSTICS)
    document = Document(model=model.info(), card=card)
    write_answer(document, args)
    if args.timing:
        _print_timing(timing, document)
    if card.failure is not None:
        raise card.failure
    return ExitCode.OK


def _print_recording(args: argparse.Namespace) -> int:
    """Print the card of a run that was recorded: where its time and its memory went, and how far that can be trusted."""
    from irscope.recording import read_recording
    from irscope.tools.recorded import recording_document

    if args.passes or args.sweep or args.explain:
        hint = "`irscope compare MODEL RECORDING`"
        raise UsageError("passes are about models, and this is a recording of a run", where=args.model, hint=hint)
    write_answer(recording_document(read_recording(Path(args.model)), args.device, args.rows), args)
    return ExitCode.OK


def _refuse_model_file(args: argparse.Namespace) -> None:
    """A report in a file that is called a model would be taken for one."""
    if args.output and Path(args.output).suffix.lower() in (".onnx", ".pt2"):
        passes = "fold,dce" if args.passes == "default" else args.passes
        hint = f"`irscope export --passes '{passes}' {' '.join(args.model)} -o {args.output}` writes the model as transforms leave it"
        raise UsageError("`run` writes reports, and this is the name of a model", code="IRS339", where=str(args.output), hint=hint)


def _sizes_in(sweep: list[str]) -> dict[str, list[int]]:
    """Return the sizes that --sweep gives, by the names that it has for symbols."""
    if not sweep:
        return {}
    from irscope.passes.memory.points import sizes_in

    return sizes_in([",".join(sweep)])


def _sweeps(sweep: list[str], passes: str, registry: PassRegistry) -> tuple[Pass, ...]:
    """Return the pass that --sweep adds; it has the lifetimes of the liveness that runs with it."""
    if not sweep:
        return ()
    from irscope.passes.memory.curve import Curve
    from irscope.passes.memory.liveness import Liveness

    models = [one.model for one in parse_pipeline(passes, registry) if isinstance(one, Liveness)]
    return (Curve(over=",".join(sweep), model=models[-1] if models else "auto"),)


def _asked_for(args: argparse.Namespace, registry: PassRegistry) -> tuple[Pass, ...]:
    """Return the passes that the arguments name, and those that other arguments bring along."""
    if args.format == "layers-json" and args.passes in ("", "default"):
        args.passes = "layers"
    pipeline = args.passes or "default"
    if args.store_as:
        parse_scheme(args.store_as)  # before anything is read
    passes = (*parse_pipeline(pipeline, registry), *_sweeps(args.sweep, pipeline, registry))
    if args.store_as and not _shows_card(args):
        from irscope.passes.weights.store_as import StoreAs

        passes = (*passes, StoreAs(scheme=args.store_as))
    return _explaining(passes, args.explain) if args.explain else passes


def _explaining(passes: Iterable[Pass], node: str) -> tuple[Pass, ...]:
    """Return the passes that can explain a node, told to do so."""
    able = tuple(
        replace(one, explain=node)  # type: ignore[call-arg]  # the field is looked for
        for one in passes
        if any(field.name == "explain" for field in fields(one))
    )
    if not able:
        raise UsageError("none of these passes can explain a node", code="IRS402", hint="try `--passes flops`")
    return able


def report_diagnostics(diagnostics: Iterable[Diagnostic], verbose: int, most: int = _MOST_DIAGNOSTICS) -> None:
    """Diagnostics on stderr, the most severe first; notes, and more than some warnings, only for those who asked for more."""
    said = dict.fromkeys(
        one
        for diagnostic in diagnostics
        for one in (diagnostic, *(diagnostic.others if verbose else ()))
        if one.severity > Severity.NOTE or verbose
    )
    shown = sorted(said, key=lambda remark: -remark.severity)
    limit = len(shown) if verbose else most
    sys.stderr.writelines(f"{one_line(str(diagnostic))}\n" for diagnostic in shown[:limit])
    if len(shown) > limit:
        sys.stderr.write(f"irscope: {len(shown) - limit:,} more diagnostics (-v shows all)\n")


def _print_timing(timing: Timing, document: Document) -> None:
    report = Report("timing", tables=(timing.table(),))
    write_stream(
        sys.stderr, render_text(Document(document.version, document.model, (report,)), RenderOptions.for_stream(sys.stderr, rows=0))
    )


def strict_code(args: argparse.Namespace, models: Sequence[Model], reports: Sequence[Report] = ()) -> ExitCode:
    """Return how a command ends that --strict holds for: in part only, and saying so, where something is unknown or was guessed."""
    if not args.strict:
        return ExitCode.OK
    incomplete = [report.pass_name for report in reports if report.coverage and report.coverage.known < report.coverage.total]
    guesses = dict.fromkeys(assumed for model in models for assumed in model.program.guesses)
    said = [f"{', '.join(dict.fromkeys(incomplete))} left something unknown"] if incomplete else []
    said_of = [*(model.diagnostics for model in models), *(report.diagnostics for report in reports)]
    wrong = [diagnostic for diagnostics in said_of for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    said += [f"errors of the model, first {wrong[0].code}: {wrong[0].message}"] if wrong else []
    said += dict.fromkeys(report.inferred for report in reports if report.inferred)
    said += [f"assumed {'; '.join(guess.text for guess in guesses)}"] if guesses else []
    for line in said:
        sys.stderr.write(one_line(f"irscope: error IRS540: --strict: {line}") + "\n")
    return ExitCode.PARTIAL if said else ExitCode.OK


def _exit_code(args: argparse.Namespace, model: Model, reports: Sequence[Report], diagnostics: Iterable[Diagnostic]) -> int:
    worst = max((diagnostic.severity for diagnostic in diagnostics), default=None)
    if args.fail_on and worst is not None and worst >= Severity[args.fail_on.upper()]:
        return ExitCode.FINDINGS
    if any(report.pass_name == Verify.name and report.diagnostics for report in reports):
        return ExitCode.FINDINGS
    return strict_code(args, [model], reports) or (ExitCode.PARTIAL if any(report.partial for report in reports) else ExitCode.OK)


# What a page about a model shows beside its card: the passes that it runs, at which sizes, and the drawing of the graph.

PAGES: Final = ("html", "md", "md-issue")
"""Formats that show the whole of a model where nobody asked for certain passes."""
DEFAULT_GRID: Final = "WORLD"
"""Whose grid the power comes from where nobody says: the mean of the world, whose source the table of carbon names."""


def page_passes(grid: str) -> str:
    """Return the pipeline, with carbon for a country's grid or so many grams of CO2 for each kWh."""
    return f"modules,liveness,explain-peak,flops,roofline,energy{{{_grid_option(grid)}}},advise,params,shapes"


def _grid_option(grid: str) -> str:
    try:
        return f"grid={float(grid):g}"
    except ValueError:
        return f"country={grid}"


def at_stated_sizes(model: Model, card: Card) -> Model:
    """Return the model with numbers for the sizes that the card is for; as it is where it cannot be read again."""
    wanted = {size.symbol: size.size for size in card.sizes if size.is_assumed}
    if not wanted:
        return model
    try:
        found = model.rebound(wanted)
    except UsageError:
        return model
    found.manager.settings = model.manager.settings
    found.manager.instruments = model.manager.instruments
    return found


def with_graph(document: Document, model: Model, grid: str) -> Document:
    """Return the document of a page: with the drawing of the graph, and what was taken for granted."""
    from irscope.tools.export import graph_drawing  # not at the top, where every run would import what draws

    taken = Assumed("grid", grid, "mean of the world; --grid GRID", is_guess=False)
    info = document.model if grid != DEFAULT_GRID else replace(document.model, assumed=(*document.model.assumed, taken))
    drawing = graph_drawing(model) if model.program.has_graph and len(model.graph) else None
    return replace(document, model=info, drawing=drawing)
