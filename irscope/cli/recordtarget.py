"""From what the user names to a request that a process can carry out."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from irscope.cli.args import load_options
from irscope.cli.run import report_diagnostics
from irscope.errors import UsageError
from irscope.frontends.detect import detect
from irscope.frontends.zoo.names import is_name
from irscope.ir.bind import input_option, typed
from irscope.ir.dims import SymDim, bounds
from irscope.ir.graph import Graph, Value
from irscope.ir.program import Program
from irscope.measure.record.request import ORT, TORCH, InputSpec, Options, Request
from irscope.recording.records import Input, ModelRecord
from irscope.session import file_digest, open_model

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
_FACTORY = "irscope.cli.recordnamed:make"


def check_options(options: Options) -> None:
    """Raise UsageError for numbers and devices that make no sense."""
    kind, _, number = options.device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"--device {options.device!r} is neither cpu nor cuda", hint="cuda:1 is the second GPU")
    if not 1 <= options.repeats <= _MOST or not 0 <= options.warmup <= _MOST:
        raise UsageError(f"--repeats is 1 to {_MOST}, --warmup 0 to {_MOST}")
    if not 0 <= options.threads <= 1024:
        raise UsageError("--threads is 0 to 1024")


def request_from(args: argparse.Namespace, options: Options) -> Request:
    """What the command line asks for."""
    path = Path(args.model)
    if is_name(args.model):
        return _named(args, options)
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


def _named(args: argparse.Namespace, options: Options) -> Request:
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
    return Request(model, replace(options, executor=TORCH), output, factory=_FACTORY)


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
