"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from irscope.amounts import COUNT, RATE, SECONDS, Measure, parse_bytes, read_amount, read_size
from irscope.budget import Allowance
from irscope.errors import UsageError
from irscope.files import is_stream, link_target, refuse_link, write_stream, write_text
from irscope.frontends.base import SOLE, LoadOptions
from irscope.frontends.zoo.names import is_name
from irscope.ir.bind import asked_and_bound
from irscope.ir.spelling import parse_input_type
from irscope.ir.types import Type
from irscope.passkit.instruments import Progress
from irscope.passkit.settings import Settings
from irscope.report.options import RenderOptions
from irscope.report.picture import Panel
from irscope.report.plot import check_plot, write_plot
from irscope.report.printable import printable
from irscope.report.renderers import offered_formats, report_panels, write_document
from irscope.report.report import Document
from irscope.report.select import Selection, parse_filter, select
from irscope.tools.config import configured_device, settings_for, targeted

if TYPE_CHECKING:
    from irscope.session import Model
    from irscope.training import StepOptions

FORMATS = ("text", "json", "csv", "html", "md", "md-issue")


def amount_of(measure: Measure) -> Callable[[str], int | float]:
    """Return what argparse converts the text of an option with."""

    def convert(text: str) -> int | float:
        found = read_amount(text, measure)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not {measure.what}; {measure.hint}")
        return found

    return convert


AMOUNTS: Final[Mapping[str, tuple[Measure, str]]] = {
    "--link": (RATE, "B/S"),
    "--seconds": (SECONDS, "S"),
    "--time": (SECONDS, "S"),
    **dict.fromkeys(("--steps", "--world", "--local", "--most-ranks", "--of-device"), (COUNT, "N")),
    **dict.fromkeys(("--jobs", "--batch", "--prompt", "--new", "--accepted"), (COUNT, "N")),
}
"""Measure of each option that is an amount, and its form in help: the same in every command that has the option."""


def add_amount(parser: argparse._ActionsContainer, name: str, *, help: str, default: int | float | None = None) -> None:
    """Add an option of AMOUNTS."""
    measure, metavar = AMOUNTS[name]
    parser.add_argument(name, type=amount_of(measure), default=default, metavar=metavar, help=help)


MODEL_OPTIONS, DEVICE_OPTIONS, OUTPUT_OPTIONS, STEP_OPTIONS = "model and inputs", "device and runtime", "output", "the step"
"""Titles of groups of options that several commands share."""


def group_of(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the group of options with this title, added where the parser does not have it yet."""
    return next((group for group in parser._action_groups if group.title == title), None) or parser.add_argument_group(title)


def add_model_arguments(
    parser: argparse.ArgumentParser,
    *,
    many: bool = False,
    optional: bool = False,
    reading_budget: Sequence[str] = ("--budget", "--reading-budget"),
    memory: bool = True,
) -> None:
    """MODEL and what a user may say about it. `memory` is False for a command whose --memory is not the device's."""
    count = "?" if optional else "+" if many else None
    parser.add_argument(
        "model", metavar="MODEL", nargs=count, help="file, torchvision:NAME, ./train.py:build, hub folder; `irscope zoo` lists names"
    )
    add_input_arguments(parser, reading_budget)
    inputs, device = group_of(parser, MODEL_OPTIONS), group_of(parser, DEVICE_OPTIONS)
    inputs.add_argument(
        "--ops", action="append", default=[], metavar="FILE.py", help="a script with records of operators of one's own, in OPS; it is code"
    )
    inputs.add_argument("--use-torch", action="store_true", help="ask an installed torch for the types of operators irscope does not know")
    device.add_argument(
        "--device",
        default="",
        help="device to predict for, as rtx4090 or h100:96GiB; or a file that describes one; default: see irscope config, else h200",
    )
    if memory:
        add_memory_argument(parser)
    device.add_argument("--torch", default="", metavar="VERSION", help="version of torch to predict memory for; default: 2.13")
    device.add_argument(
        "--ort", default="", metavar="VERSION", help="version of ONNX Runtime, as 1.20; default: the installed one, else the newest known"
    )
    device.add_argument(
        "--alloc-conf", default="", metavar="OPTIONS", help="options of PyTorch's allocator, such as expandable_segments:True"
    )
    group_of(parser, OUTPUT_OPTIONS).add_argument(
        "--strict", action="store_true", help="anything unknown or guessed is an error: exit code 5"
    )
    group_of(parser, OUTPUT_OPTIONS).add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr")


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the memory of the device."""
    group_of(parser, DEVICE_OPTIONS).add_argument(
        "--memory",
        dest="device_memory",
        default="",
        metavar="SIZE",
        help="memory of the device, such as 96GiB; default: what it is sold with",
    )


def add_input_arguments(parser: argparse.ArgumentParser, reading_budget: Sequence[str] = ("--budget", "--reading-budget")) -> None:
    """Add the options on a model's inputs. `reading_budget` are flags, for a command whose --budget is about something else."""
    inputs = group_of(parser, MODEL_OPTIONS)
    inputs.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]TYPE",
        help="type of an input, such as x=f32[1,3,224,224]; may be given again; 1,3,224,224 where there is one input",
    )
    inputs.add_argument("--bind", action="append", default=[], metavar="NAME=N,...", help="sizes of symbols, such as batch=8,seq=128")
    inputs.add_argument(
        "--base", default="", metavar="MODEL", help="the folder or name of the model that an adapter's folder goes on top of"
    )
    inputs.add_argument(
        "--trust-remote-code", action="store_true", help="run code that lies in the model's folder, where its configuration asks"
    )
    inputs.add_argument("--no-cache", action="store_true", help="build a named model again, and do not cache it")
    inputs.add_argument("--method", default="", metavar="NAME", help="which method or program of a PyTorch file; where it holds several")
    inputs.add_argument(
        "--ort-level",
        choices=("off", "basic", "extended", "all"),
        default=None,
        help="take an ONNX file as ONNX Runtime optimises it; as a session would, predicted; default: off, as written",
    )
    inputs.add_argument(
        "--use-ort",
        action="store_true",
        help="ask an installed onnxruntime for that graph (level all unless said): it makes a session and never runs it",
    )
    inputs.add_argument(
        "--compile", action="store_true", help="take the model as torch.compile compiles it for CUDA; for models by name, or a script's"
    )
    inputs.add_argument(
        "--compile-with",
        default="",
        metavar="NAME=VALUE,...",
        help="the same with arguments of torch.compile, as mode=reduce-overhead,dynamic=true",
    )
    inputs.add_argument(
        *reading_budget,
        default="",
        metavar="TIME,SIZE",
        dest="reading_budget",
        help="CPU time and memory that reading a file may take, as 60s,4GB; default: 10s, and 500MB beyond ten times the file's size",
    )


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training step."""
    step = group_of(parser, STEP_OPTIONS)
    step.add_argument("--optimizer", default="sgd", help="sgd, momentum, adam, adamw, ...; default: sgd")
    step.add_argument("--loss", default=None, help="auto, cross-entropy, mse, mean or sum; default: the model's own where it has one")
    form = step.add_mutually_exclusive_group()
    form.add_argument("--fused", action="store_true", help="the optimizer's fused kernels")
    form.add_argument("--foreach", action="store_true", help="lists of tensors at once, the default on CUDA")
    form.add_argument("--one-by-one", action="store_true", help="a parameter at a time")
    step.add_argument("--autocast", default="", metavar="TYPE", help="bf16 or f16: forward in mixed precision")
    step.add_argument(
        "--accumulate", type=amount_of(COUNT), default=1, metavar="N", help="forwards and backwards before the optimizer's step"
    )
    step.add_argument(
        "--lora", default="", metavar="r=16,...", help="train matrices beside frozen layers, as in r=16,targets=q_proj+v_proj"
    )
    step.add_argument("--as", dest="store_as", default="", metavar="SCHEME", help="frozen linear layers in few bits, as in nf4")
    step.add_argument("--gradient-checkpointing", action="store_true", help="run layers again in the backward, by the model's own switch")
    step.add_argument("--keep-gradients", action="store_true", help="zero_grad(set_to_none=False)")
    step.add_argument("--answers-zero", action="store_true", help="tensor values that the model reads are taken to be zero")


def step_words(args: argparse.Namespace) -> list[str]:
    """Return the options of `add_step_arguments` that were given, as they are typed."""
    parser = argparse.ArgumentParser()
    add_step_arguments(parser)
    defaults = vars(parser.parse_args([]))
    words: list[str] = []
    for name, default in defaults.items():
        value = getattr(args, name)
        if value != default:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def _format_of(own: Sequence[str]) -> Callable[[str], str]:
    """Return what argparse checks the name of a format with: packages are asked only for names that are none of irscope's own."""

    def check(name: str) -> str:
        if name not in own and name not in (offered := offered_formats()):
            raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join((*own, *offered))})")
        return name

    return check


def add_output_arguments(
    parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS, *, to_file: bool = True, rows: int | None = None, plots: str = ""
) -> None:
    """Add the options of `write_answer`: to a file too, unless -o is another thing; `rows` is another default in text; `plots` says what
    --plot draws, for commands whose reports have curves.
    """
    shown = group_of(parser, OUTPUT_OPTIONS)
    more = "default: text; installed packages may add more"
    shown.add_argument("--format", type=_format_of(formats), metavar=f"{{{','.join(formats)}}}", default="text", help=more)
    if to_file:
        add_output_file(parser, help="write there instead of stdout; with csv, FOLDER/ gets one file per table")
    if plots:
        add_output_file(parser, "--plot", help=f"also draw {plots}, as .svg")
    parser.set_defaults(answer_in_file=to_file)
    shown.add_argument("--rows", type=amount_of(COUNT), default=rows, metavar="N", help="rows per table in text, 0 for all")
    shown.add_argument("--sort", default="", metavar="COLUMN", help="sort tables that have this column; COLUMN:up, COLUMN:down")
    shown.add_argument(
        "--top", type=amount_of(COUNT), metavar="N", help="keep the first N rows; of the tables that --sort or --filter is about"
    )
    shown.add_argument("--filter", default="", metavar="EXPR", help='keep rows by a condition: bytes > 1MiB and name ~ "layer1.*"')


def add_output_file(
    parser: argparse.ArgumentParser,
    *flags: str,
    help: str = "write there instead of stdout",
    required: bool = False,
    within: argparse._ArgumentGroup | None = None,
) -> None:
    """An option that names a file to write (default: -o), and --force once; `settle_output_files` looks at what was named."""
    shown = group_of(parser, OUTPUT_OPTIONS)
    action = (within or shown).add_argument(*(flags or ("-o", "--output")), metavar="FILE", help=help, required=required)
    named: tuple[str, ...] = parser.get_default("output_files") or ()
    if not named:
        shown.add_argument("--force", action="store_true", help="write through a link to where it leads")
    parser.set_defaults(output_files=(*named, action.dest))


def settle_output_files(args: argparse.Namespace) -> None:
    """Look at every file that the arguments name as an output, before any work is done."""
    if "plot" in args and args.plot:
        check_plot(Path(args.plot))
    for option in args.output_files:
        text = getattr(args, option)
        if text and text != "-" and not text.endswith(("/", os.sep)):
            setattr(args, option, settled_output(text, args.force))


def settled_output(text: str, force: bool) -> str:
    """Return the path to write to: with `force` where a link leads, else a link is refused. Says so where a file will be replaced."""
    path = Path(text)
    leads = link_target(path)
    if leads is not None and force:
        path = leads
    refuse_link(path)
    if path.is_file() and not is_stream(path):
        sys.stderr.write(f"irscope: {printable(str(path))} is there already and will be replaced\n")
    return str(path) if leads else text


def selection(args: argparse.Namespace) -> Selection:
    """Return what the user wants to see of the tables; a filter that does not parse is an error right away."""
    if args.filter:
        parse_filter(args.filter)
    return Selection(args.sort.strip().replace(" ", "_"), args.top, args.filter)  # tables show "least time" for least_time


def write_answer(document: Document, args: argparse.Namespace, drawn: Callable[[], tuple[Sequence[Panel], str]] | None = None) -> None:
    """Write what a command found, its tables sorted, filtered and cut, where and in the format that its arguments say.

    --plot draws what the reports draw, or with `drawn` other panels under another title.
    """
    output = args.output if args.answer_in_file else None
    options = RenderOptions.for_stream(sys.stdout, rows=args.rows) if output in (None, "-") else RenderOptions(rows=args.rows)
    write_document(select(document, selection(args)), args.format, output, options)
    draw(document, args, drawn)


def draw(document: Document, args: argparse.Namespace, drawn: Callable[[], tuple[Sequence[Panel], str]] | None = None) -> None:
    """Write the picture that --plot asks for, if it was given."""
    if "plot" in args and args.plot:
        panels, title = drawn() if drawn is not None else (report_panels(document.reports), document.about)
        write_plot(panels, Path(args.plot), title)


def write_json(document: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Write a document of a schema of its own where the arguments say."""
    text = json.dumps(document, indent=2) + "\n"
    if args.output is None or args.output == "-":
        write_stream(sys.stdout, [text])
    else:
        write_text(Path(args.output), [text])


def load_options(args: argparse.Namespace) -> LoadOptions:
    """Return what the user said about the model. Operators of scripts that the arguments name are there from then on."""
    if getattr(args, "ops", ()):
        from irscope.passkit.script import load_operators

        for script in args.ops:
            load_operators(Path(script))
    return LoadOptions(
        inputs=dict(_input(text) for text in args.input),
        bind=bindings(args.bind),
        use_torch=args.use_torch,
        method=args.method,
        base=args.base,
        ort_level=args.ort_level or ("all" if args.use_ort else "off"),
        use_ort=args.use_ort,
        trust_remote_code=args.trust_remote_code,
        compile=compile_settings(args.compile_with) if args.compile_with else args.compile,
        use_cache=not args.no_cache,
        allowance=_allowance(args.reading_budget),
    )


def models_from(args: argparse.Namespace, *, keep_calls: bool = False) -> list[Model]:
    """Return the models that the arguments name; `keep_calls` as in LoadOptions."""
    return [open_from(argparse.Namespace(**{**vars(args), "model": path}), keep_calls=keep_calls) for path in args.model]


def open_from(
    args: argparse.Namespace,
    *,
    open_sizes: Iterable[str] | Mapping[str, Sequence[int]] = (),
    keep_calls: bool = False,
    **manager_options: object,
) -> Model:
    """Return the model that the arguments name; progress is shown on stderr.

    `open_sizes` are those that a named model leaves open, with the sizes that they will have where these are known.
    """
    for name in set(open_sizes) & bindings(args.bind).keys():
        raise asked_and_bound(name)
    if isinstance(open_sizes, Mapping) and is_name(str(args.model)):
        for name, sizes in open_sizes.items():
            if min(sizes) < 1:
                raise UsageError(f"{name}={min(sizes)} leaves nothing to run", code="IRS671", where=args.model, hint="sizes are at least 1")
    from irscope.session import open_model  # not at the top: the UI is on the screen before what reads models is imported

    instruments = list(manager_options.pop("instruments", ()))  # type: ignore[call-overload]  # a sequence of instruments
    instruments += progress_from(args)
    model = open_model(
        Path(args.model),
        replace(load_options(args), open_sizes=frozenset(open_sizes), keep_calls=keep_calls),
        settings=opened_for(args),
        instruments=instruments,
        reproducers=True,
        **manager_options,  # type: ignore[arg-type]  # handed on as they are
    )
    return targeted(model)


def check_terminal(hint: str) -> None:
    """Raise UsageError where there is no terminal that a UI could be on; the hint says what does without."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the UI needs a terminal", hint=hint)


def progress_from(args: argparse.Namespace, *, shares_terminal: bool = False) -> list[Progress]:
    """Return what says on stderr how far long work is, unless --quiet; `shares_terminal` where others write there too."""
    return [] if args.quiet else [Progress(sys.stderr, sys.stderr.isatty() and not shares_terminal)]


def step_from(args: argparse.Namespace, batch: int | None = None, watching: Sequence[Progress] = ()) -> Model:
    """Return the captured step; `batch` replaces the size of the batch, of a named model or of a script's function that takes one."""
    from irscope.tools.capture import open_training

    training = replace(step_options(args).setup(), answers_zero=args.answers_zero)
    options = load_options(args)
    if batch is not None:
        options = replace(options, bind={**options.bind, "batch": batch})
    for one in watching:
        one.progress(None, 0, None, f"capturing the step{'' if batch is None else f' at batch {batch}'}")
    model = open_training(str(args.model), options, training, opened_for(args))
    model.manager.instruments.extend(watching)
    return model


def step_options(args: argparse.Namespace) -> StepOptions:
    """Return what the arguments say about a training step."""
    from irscope.training import StepOptions

    if args.accumulate < 1:
        raise UsageError("--accumulate must be at least 1", code="IRS373")
    return StepOptions(
        args.loss or "",
        args.optimizer,
        args.fused,
        args.foreach if args.foreach or args.one_by_one else None,
        not args.keep_gradients,
        args.accumulate,
        args.autocast,
        args.lora,
        args.store_as,
        args.gradient_checkpointing,
    )


def settings_from(args: argparse.Namespace) -> Settings:
    """Return what the arguments, and `irscope config`, say about the run besides its passes; a device that nobody named is left open."""
    return Settings(device=configured_device(args.device), torch=args.torch, alloc_conf=args.alloc_conf, ort=args.ort, strict=args.strict)


def opened_for(args: argparse.Namespace) -> Settings:
    """Return the same with the device that the card is for, where it is not the default of all passes."""
    is_session = args.use_ort or args.ort_level not in (None, "off")
    return settings_for(args.device, args.torch, args.alloc_conf, ort=args.ort, strict=args.strict, is_session=is_session)


def compile_settings(text: str) -> Mapping[str, object]:
    """Return the arguments of torch.compile from "mode=reduce-overhead,dynamic=true"."""
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            said = f"--compile-with {part!r} is not of the form NAME=VALUE"
            raise UsageError(said, code="IRS396", hint="mode=reduce-overhead,dynamic=true")
        found[name.strip()] = {"true": True, "false": False}.get(value.strip().lower(), value.strip())
    return found


def _allowance(text: str) -> Allowance | None:
    if not text:
        return None
    seconds = size = None
    for part in filter(None, text.split(",")):
        time = read_amount(part, SECONDS)
        if time is not None:
            seconds = float(time)
        else:
            size = parse_bytes(part)
    return Allowance(seconds, size)


def _input(text: str) -> tuple[str, Type]:
    name, equals, type_ = text.rpartition("=")
    if equals and not name:
        raise UsageError(f"--input {text!r} is not of the form NAME=TYPE", code="IRS623", hint="for example x=f32[1,3,224,224]")
    return name or SOLE, parse_input_type(type_)


_FLAGS: Final = {"true": 1, "false": 0}


def bindings(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            size = _FLAGS.get(number.strip().lower(), read_size(number))
            if not equals or not name or size is None:
                hint = "for example batch=8,seq=128, or a flag: use_cache=true"
                raise UsageError(f"--bind {part!r} is not of the form NAME=N", code="IRS624", hint=hint)
            if found.setdefault(name.strip(), size) != size:
                raise UsageError(f"--bind gives {name.strip()!r} two sizes", code="IRS624")
    return found
