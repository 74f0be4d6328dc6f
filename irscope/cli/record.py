"""`irscope record`."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from irscope.amounts import COUNT, SECONDS
from irscope.cli.args import (
    add_input_arguments,
    add_output_arguments,
    add_output_file,
    add_step_arguments,
    amount_of,
    load_options,
    settled_output,
    step_options,
    step_words,
    write_answer,
)
from irscope.cli.run import report_diagnostics
from irscope.cli.train_plan import is_loop
from irscope.errors import PassError, UsageError
from irscope.frontends.detect import detect
from irscope.frontends.load import path_of
from irscope.frontends.zoo.names import is_name, is_script
from irscope.ir.bind import input_option, symbol_named, typed
from irscope.ir.dims import SymDim, bounds
from irscope.ir.graph import Graph, Value
from irscope.ir.program import Program
from irscope.measure.record.process import record_in_process
from irscope.measure.record.request import ORT, TORCH, InputSpec, Loop, Options, Request
from irscope.recording.records import Input, ModelRecord, Recording
from irscope.report.printable import printable
from irscope.session import file_digest, open_model
from irscope.tools.capture import FACTORY, STEP_FACTORY
from irscope.tools.recorded import STEP_PICTURES, batches_document, failure_text, picture_words, recorded_panels, recording_document

_FORMATS = {"pt2": TORCH, "torchscript": TORCH, "onnx": ORT}
_AT_STAKE = {
    "pt2": "torch.export.load evaluates expressions that it holds, which can be any Python code",
    "torchscript": "it is a program, which can read and write files",
    "onnx": "ONNX Runtime takes whatever memory it requests, and its native code was not made for crafted files",
}
"""Harm that a hostile file of a format could do when it is run."""
_MOST = 10_000
_BATCH, _LENGTH, _PICTURE = 1, 128, 224
_PICTURE_RANK = 4
_LENGTHS = ("len", "seq", "time", "token", "frame")
"""Parts of the names of sequence lengths."""


class Command:
    """Run a model, or a training program, and write a recording of it: times and memory of every operator.

    This executes the model, in a process of its own; no other command of irscope does. MODEL is a .pt2, .onnx or TorchScript file, which
    needs --trust because its author decides what runs, or a name such as torchvision:resnet50, for which random weights are made.

    With --train it records training steps of a model: ./train.py:build, or a name, as `irscope train-plan` takes them. A script,
    ./train.py, runs as `python train.py ARGS` would, with options of irscope before it: irscope follows its loop, records a few steps
    after the first ones, and then lets it continue, or ends it with --stop.

    The recording is one JSON Lines file, explained in docs/recording.md; `irscope run RECORDING` summarises it, and `irscope compare
    MODEL RECORDING` compares it with the prediction.
    """

    examples = (
        ("irscope record --trust model.pt2 -o run.jsonl", "how long does each operator take, and what memory, on this machine?"),
        ("irscope record --trust --device cuda --repeats 50 model.pt2", "the same on its GPU?"),
        ("irscope record torchvision:resnet50", "the same of a model by name, with random weights?"),
        ("irscope record --train ./train.py:build --optimizer adamw", "what does a training step take, forward, backward and optimizer?"),
        ("irscope record --stop ./train.py", "the same of my training script as it is, ended once it is known?"),
        ("irscope record --train ./train.py:build --batches 4,8,16 --plot latency.svg", "how does a step grow with the batch?"),
    )
    common = ("--trust", "--output", "--executor", "--device", "--input", "--bind", "--train", "--batches", "--repeats", "--format")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "model", metavar="MODEL", help="a .pt2, .onnx or TorchScript file, a name such as torchvision:resnet50, or a training script"
        )
        parser.add_argument("arguments", nargs="*", metavar="ARGS", help="arguments of a script: all that follows it is its own")
        add_output_file(parser, help="the recording; default: NAME.EXECUTOR.jsonl in this folder")
        parser.add_argument("--executor", choices=(TORCH, ORT), help="what runs the model; default: ort for .onnx files, else torch")
        parser.add_argument("--device", default="", metavar="DEVICE", help="cpu or cuda; default: cpu, of a script cuda where there is one")
        add_input_arguments(parser)
        parser.add_argument(
            "--values", default="", metavar="FILE", help="values of inputs by name, as numpy.savez writes them; default: random"
        )
        parser.add_argument("--repeats", type=amount_of(COUNT), metavar="N", help="timed runs of each kind; default: 20, steps 5")
        parser.add_argument("--warmup", type=amount_of(COUNT), metavar="N", help="runs before those that are timed; default: 3")
        parser.add_argument(
            "--threads", type=amount_of(COUNT), default=0, metavar="N", help="CPU threads; default: what the executor takes"
        )
        parser.add_argument("--seed", type=amount_of(COUNT), default=0, metavar="N", help="for random inputs; default: 0")
        parser.add_argument("--timeout", type=amount_of(SECONDS), metavar="S", help="end the run after this many seconds")
        parser.add_argument("--no-optimize", action="store_true", help="ONNX Runtime runs the graph as it is in the file")
        parser.add_argument("--no-arena", action="store_true", help="ONNX Runtime without its arena and memory patterns")
        parser.add_argument("--trust", action="store_true", help="execute the file, which can run any code: only for sources you trust")
        steps = parser.add_argument_group("training steps")
        steps.add_argument("--train", action="store_true", help="record training steps of the model, not a forward")
        steps.add_argument("--batches", default="", metavar="LIST", help="one recording for each size of the batch, such as 4,8,16,32,64")
        steps.add_argument("--stop", action="store_true", help="end a script once enough is recorded")
        steps.add_argument("-m", dest="is_module", action="store_true", help="MODEL is a module, as with python -m")
        add_step_arguments(parser)
        shown = ", ".join(STEP_PICTURES)
        parser.add_argument(
            "--picture", choices=tuple(STEP_PICTURES), help=f"what --plot draws of steps: {shown}; default: all of one step"
        )
        add_output_arguments(parser, to_file=False, plots="bytes alive and times by operator, of steps what --picture says")
        parser.set_defaults(use_torch=False)
        parser.add_argument("-v", "--verbose", action="count", default=0, help="say on stderr what is done")

    def run(self, args: argparse.Namespace) -> int:
        follows = args.is_module or is_loop(args.model)
        is_steps = follows or args.train
        options = Options(
            args.executor or "",
            args.device or ("" if follows else "cpu"),
            args.repeats if args.repeats is not None else 5 if is_steps else 20,
            args.warmup if args.warmup is not None else 3,
            args.threads,
            args.seed,
            not args.no_optimize,
            not args.no_arena,
            args.values,
        )
        _check_options(options)
        _check_steps(args, follows=follows)
        requests = _step_requests(args, options, follows=follows) if is_steps else {0: _request_from(args, options)}
        if not args.output or len(requests) > 1:
            for one in requests.values():
                settled_output(one.output, args.force)
        found = {batch: self._recorded(request, args) for batch, request in requests.items()}
        if is_steps:
            picture = args.picture or ("latency" if len(found) > 1 else "")
            document = batches_document(found) if len(found) > 1 else recording_document(next(iter(found.values())), rows=args.rows)
            write_answer(document, args, lambda: (recorded_panels(picture, found), picture_words(picture, found)))
        else:
            write_answer(recording_document(found[0], rows=args.rows), args)
        for recording in found.values():
            if not recording.complete:
                hint = f"{recording.path} has what was recorded until then"
                raise PassError(failure_text(recording), code="IRS480", where=recording.header.model.name, hint=hint)
        return 0

    def _recorded(self, request: Request, args: argparse.Namespace) -> Recording:
        executor = {TORCH: "torch", ORT: "onnxruntime"}[request.options.executor]
        if importlib.util.find_spec(executor) is None:
            raise UsageError(
                f"{executor} is not installed, and it is what runs the model", code="IRS479", hint="`irscope doctor` shows how"
            )
        what = "following the steps of " if request.loop is not None and request.loop.script else "running "
        sizes = "".join(f" at {name} {size}" for name, size in request.model.bind.items()) if request.loop is not None else ""
        where = f" on {request.options.device}" if request.options.device else ""
        sys.stderr.write(f"irscope: {what}{printable(request.model.name)}{sizes} with {executor}{where}\n")
        return record_in_process(request, args.timeout, bool(args.verbose))


def _check_options(options: Options) -> None:
    """Raise UsageError for numbers and devices that make no sense."""
    kind, _, number = options.device.partition(":")
    if kind not in ("", "cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"--device {options.device!r} is neither cpu nor cuda", hint="cuda:1 is the second GPU")
    if not 1 <= options.repeats <= _MOST or not 0 <= options.warmup <= _MOST:
        raise UsageError(f"--repeats is 1 to {_MOST}, --warmup 0 to {_MOST}")
    if not 0 <= options.threads <= 1024:
        raise UsageError("--threads is 0 to 1024")


def _check_steps(args: argparse.Namespace, *, follows: bool) -> None:
    """Raise UsageError for options of steps where no such steps are recorded."""
    if args.arguments and not follows:
        raise UsageError(f"{args.arguments[0]!r} is one argument too many", hint="options of irscope stand before a script")
    given = step_words(args)
    if follows and (given or args.train or args.batches):
        word = given[0] if given else "--train" if args.train else "--batches"
        raise UsageError(
            f"{args.model} has a loop of its own, which says how it trains: {word} is about steps of a model",
            code="IRS384",
            hint=f"leave it out, or {args.model}:build for a function that returns (module, inputs, loss, optimizer)",
        )
    if not follows and not args.train and (given or args.batches or args.picture):
        raise UsageError(f"{given[0] if given else '--batches and --picture'} is about training steps", hint="add --train")
    if args.stop and not follows:
        raise UsageError("--stop ends a script", hint="give a script")
    if args.train and (args.values or args.executor == ORT):
        raise UsageError("training steps are run with PyTorch, on inputs that are made for them", code="IRS478", where=args.model)


def _step_requests(args: argparse.Namespace, options: Options, *, follows: bool) -> Mapping[int, Request]:
    """Return what to record, by size of the batch; 0 stands for the model's own."""
    options = replace(options, executor=TORCH)
    place = options.device.replace(":", "") or "steps"
    if follows:
        name = args.model if args.is_module else Path(args.model).stem
        loop = Loop(args.model, tuple(args.arguments), args.is_module, args.stop)
        path = "" if args.is_module else str(Path(args.model).resolve())
        model = ModelRecord(name, "program", path)
        return {0: Request(model, options, args.output or f"{name}.{TORCH}-{place}.jsonl", loop=loop)}
    if not is_name(args.model):
        raise UsageError(
            "training steps are those of a module",
            code="IRS384",
            where=args.model,
            hint="./train.py:build, or a name such as torchvision:resnet50",
        )
    loading = load_options(args)
    inputs = tuple(Input(name, str(type_)) for name, type_ in loading.inputs.items())
    step = step_options(args)
    from irscope.tools.train import read_batches  # not at the top: it takes long to import

    stem = re.sub(r"[^\w.-]+", "_", args.model).strip("_.")
    found: dict[int, Request] = {}
    for batch in read_batches(args.batches) if args.batches else [0]:
        bind = {**loading.bind, **({"batch": batch} if batch else {})}
        output = Path(args.output or f"{stem}.{TORCH}-{place}.jsonl")
        target = str(output.with_name(f"{output.stem}.b{batch}{output.suffix}")) if batch else str(output)
        model = ModelRecord(
            args.model,
            "module",
            str(Path(args.model.rpartition(":")[0]).resolve()) if is_script(args.model) else "",
            inputs=inputs,
            bind=bind,
        )
        found[batch] = Request(model, options, target, factory=STEP_FACTORY, trusted=loading.trust_remote_code, loop=Loop(step=step))
    return found


def _request_from(args: argparse.Namespace, options: Options) -> Request:
    """Return what the command line asks for."""
    if is_name(args.model):
        return _named_request(args, options)
    path = path_of(args.model)
    kind = detect(path)
    executor = _FORMATS.get(kind.name)
    if executor is None:
        message = f"nothing in a file of kind {kind.name} can be run"
        raise UsageError(message, code="IRS478", where=args.model, hint="bring the model as .pt2, .onnx or TorchScript")
    if args.executor and args.executor != executor:
        raise UsageError(f"files of kind {kind.name} are run with --executor {executor}", code="IRS478", where=args.model)
    if not args.trust:
        hint = "if you know where it comes from, add `--trust`"
        raise UsageError(f"recording would run this file: {_AT_STAKE[kind.name]}", code="IRS482", where=args.model, hint=hint)
    return _of_file(path, kind.name, args, replace(options, executor=executor))


def _of_file(path: Path, format_name: str, args: argparse.Namespace, options: Options) -> Request:
    loading = load_options(args)
    opened = open_model(path, loading)
    report_diagnostics(opened.diagnostics, args.verbose)
    program = opened.program
    assumed = [one.text for one in program.assumed]
    chosen = _usual_sizes(program)
    if chosen:
        assumed += [f"{name}={size} (a usual size; --bind {name}=N)" for name, size in chosen.items()]
        loading = replace(loading, bind={**loading.bind, **chosen})
        program = open_model(path, loading).program
    bind = dict(loading.bind)
    if bind and options.executor == ORT:
        # A session knows sizes by the file's own names alone.
        unbound = open_model(path, replace(loading, bind={})).program
        bind = {symbol_named(unbound, name) or name: size for name, size in bind.items()}
    inputs = tuple(_spec(number, value) for number, value in enumerate(program.graph.inputs))
    model = ModelRecord(
        path.name,
        format_name,
        str(path),
        file_digest(path),
        tuple(Input(one.name, str(one)) for one in inputs),
        bind,
        tuple(assumed),
    )
    output = args.output or f"{path.stem}.{options.executor}-{options.device.replace(':', '')}.jsonl"
    return Request(model, options, output, inputs, "", _scopes(program.graph))


def _named_request(args: argparse.Namespace, options: Options) -> Request:
    if options.executor == ORT:
        raise UsageError(
            "ONNX Runtime runs files",
            code="IRS478",
            where=args.model,
            hint="`irscope export MODEL -o file.onnx` makes one of a model by name",
        )
    if args.values:
        raise UsageError("--values is for files", code="IRS478", where=args.model)
    loading = load_options(args)
    inputs = tuple(Input(name, str(type_)) for name, type_ in loading.inputs.items())
    model = ModelRecord(args.model, "module", inputs=inputs, bind=dict(loading.bind))
    name = re.sub(r"[^\w.-]+", "_", args.model).strip("_")
    output = args.output or f"{name}.{TORCH}-{options.device.replace(':', '')}.jsonl"
    return Request(model, replace(options, executor=TORCH), output, factory=FACTORY, trusted=loading.trust_remote_code)


def _usual_sizes(program: Program) -> dict[str, int]:
    """Return a usual size for each symbol without a chosen one, within its bounds: a batch of 1, pictures of 224, other lengths 128."""
    places: dict[str, tuple[int, int]] = {}
    for value in program.graph.inputs:
        shape = value.type.shape
        for axis, size in enumerate(shape or ()):
            if isinstance(size, SymDim):
                places.setdefault(str(size), (axis, len(shape or ())))
    return {name: _within(_usual_size(name, *places.get(name, (1, 2))), symbol) for name, symbol in program.symbols.items()}


def _usual_size(name: str, axis: int, rank: int) -> int:
    if "batch" in name.lower():
        return _BATCH
    if any(part in name.lower() for part in _LENGTHS):
        return _LENGTH
    return _BATCH if axis == 0 else _PICTURE if rank >= _PICTURE_RANK and axis >= rank - 2 else _LENGTH


def _within(size: int, symbol: SymDim) -> int:
    """Return the nearest size that a symbol may have."""
    low, high = bounds(symbol)
    return max(1, low or 1, size if high is None else min(size, high))


def _spec(number: int, value: Value) -> InputSpec:
    name = value.name or str(number)
    type_ = value.type
    if type_.shape is None:
        raise UsageError(f"input {name} is {type_}, which has no sizes", code="IRS478", hint=f"say {typed(input_option(value))}")
    sizes = [dim for dim in type_.shape if not isinstance(dim, SymDim)]
    if len(sizes) != len(type_.shape):
        raise UsageError(f"input {name} is {type_}, with sizes that are open", code="IRS478", hint=f"say {typed(input_option(value))}")
    return InputSpec(name, type_.dtype.text, tuple(sizes))


def _scopes(graph: Graph) -> dict[str, str]:
    """Module calls by the names of the nodes' results."""
    named = ((value.name, node.scope.path) for node in graph for value in node.outputs)
    return {name: path for name, path in named if name and path}
