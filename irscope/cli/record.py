"""`irscope record`."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

from irscope.amounts import COUNT, SECONDS
from irscope.cli.args import (
    add_input_arguments,
    add_output_arguments,
    add_output_file,
    amount_of,
    load_options,
    settled_output,
    write_answer,
)
from irscope.cli.run import report_diagnostics
from irscope.errors import PassError, UsageError
from irscope.frontends.detect import detect
from irscope.frontends.load import path_of
from irscope.frontends.zoo.names import is_name
from irscope.ir.bind import input_option, typed
from irscope.ir.dims import SymDim, bounds
from irscope.ir.graph import Graph, Value
from irscope.ir.program import Program
from irscope.measure.record.process import record_in_process
from irscope.measure.record.request import ORT, TORCH, InputSpec, Options, Request
from irscope.recording.records import Input, ModelRecord
from irscope.report.printable import printable
from irscope.session import file_digest, open_model
from irscope.tools.record import FACTORY, failure_text, recording_document

_FORMATS = {"pt2": TORCH, "torchscript": TORCH, "onnx": ORT}
_AT_STAKE = {
    "pt2": "torch.export.load evaluates expressions that it holds, which can be any Python code",
    "torchscript": "it is a program, which can read and write files",
    "onnx": "ONNX Runtime takes what memory it asks for, and its native code was not made for crafted files",
}
"""What a hostile file of a format could do when it is run."""
_MOST = 10_000
_BATCH, _LENGTH, _PICTURE = 1, 128, 224
_PICTURE_RANK = 4
_LENGTHS = ("len", "seq", "time", "token", "frame")
"""What the names of sizes of sequences have in them."""


class Command:
    """Run a model and write a recording of it: times and memory of every operator.

    This executes the model, in a process of its own; no other command of irscope does. MODEL is a .pt2, .onnx or TorchScript file, which
    needs --trust because its author decides what runs, or a name such as torchvision:resnet50, for which random weights are made.
    The recording is one JSON Lines file, explained in docs/recording.md; `irscope compare MODEL RECORDING` holds a prediction against it.
    """

    examples = (
        ("irscope record --trust model.pt2 -o run.jsonl", "how long does each operator take, and what memory, on this machine?"),
        ("irscope record --trust --device cuda --repeats 50 model.pt2", "the same on its GPU?"),
        ("irscope record torchvision:resnet50", "the same of a model by name, with random weights?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", help="a .pt2, .onnx or TorchScript file, or a name such as torchvision:resnet50")
        add_output_file(parser, help="the recording; default: NAME.EXECUTOR.jsonl in this folder")
        parser.add_argument("--executor", choices=(TORCH, ORT), help="default: ort for .onnx files, else torch")
        parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu or cuda; default: cpu")
        add_input_arguments(parser)
        parser.add_argument(
            "--values", default="", metavar="FILE", help="values of inputs by name, as numpy.savez writes them; default: random"
        )
        parser.add_argument("--repeats", type=amount_of(COUNT), default=20, metavar="N", help="timed runs of each kind; default: 20")
        parser.add_argument("--warmup", type=amount_of(COUNT), default=3, metavar="N", help="runs before those that are timed; default: 3")
        parser.add_argument(
            "--threads", type=amount_of(COUNT), default=0, metavar="N", help="CPU threads; default: what the executor takes"
        )
        parser.add_argument("--seed", type=amount_of(COUNT), default=0, metavar="N", help="for random inputs; default: 0")
        parser.add_argument("--timeout", type=amount_of(SECONDS), metavar="S", help="end the run after so many seconds")
        parser.add_argument("--no-optimize", action="store_true", help="ONNX Runtime runs the graph as it is in the file")
        parser.add_argument("--no-arena", action="store_true", help="ONNX Runtime without its arena and memory patterns")
        parser.add_argument("--trust", action="store_true", help="execute the file, which can run any code: only for sources you trust")
        add_output_arguments(parser, to_file=False, plots="bytes alive and times by operator")
        parser.set_defaults(use_torch=False)
        parser.add_argument("-v", "--verbose", action="count", default=0, help="say on stderr what is done")

    def run(self, args: argparse.Namespace) -> int:
        options = Options(
            args.executor or "",
            args.device,
            args.repeats,
            args.warmup,
            args.threads,
            args.seed,
            not args.no_optimize,
            not args.no_arena,
            args.values,
        )
        _check_options(options)
        request = _request_from(args, options)
        if not args.output:
            settled_output(request.output, args.force)
        executor = {TORCH: "torch", ORT: "onnxruntime"}[request.options.executor]
        if importlib.util.find_spec(executor) is None:
            raise UsageError(
                f"{executor} is not installed, and it is what runs the model", code="IRS479", hint="`irscope doctor` tells how"
            )
        sys.stderr.write(f"irscope: running {printable(request.model.name)} with {executor} on {args.device}\n")
        found = record_in_process(request, args.timeout, bool(args.verbose))
        write_answer(recording_document(found), args)
        if not found.complete:
            hint = f"{found.path} has what was recorded until then"
            raise PassError(failure_text(found), code="IRS480", where=found.header.model.name, hint=hint)
        return 0


def _check_options(options: Options) -> None:
    """Raise UsageError for numbers and devices that make no sense."""
    kind, _, number = options.device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"--device {options.device!r} is neither cpu nor cuda", hint="cuda:1 is the second GPU")
    if not 1 <= options.repeats <= _MOST or not 0 <= options.warmup <= _MOST:
        raise UsageError(f"--repeats is 1 to {_MOST}, --warmup 0 to {_MOST}")
    if not 0 <= options.threads <= 1024:
        raise UsageError("--threads is 0 to 1024")


def _request_from(args: argparse.Namespace, options: Options) -> Request:
    """What the command line asks for."""
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
    inputs = tuple(_spec(number, value) for number, value in enumerate(program.graph.inputs))
    model = ModelRecord(
        path.name,
        format_name,
        str(path),
        file_digest(path),
        tuple(Input(one.name, str(one)) for one in inputs),
        {name: size for name, size in loading.bind.items()},
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
    return Request(model, replace(options, executor=TORCH), output, factory=FACTORY)


def _usual_sizes(program: Program) -> dict[str, int]:
    """A usual size for each symbol without a chosen one, within its bounds: a batch of 1, pictures of 224, other lengths 128."""
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
    """The nearest size that a symbol may have."""
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
