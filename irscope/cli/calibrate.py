"""`irscope calibrate`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from irscope.amounts import COUNT
from irscope.cli.args import add_amount, add_output_arguments, add_output_file, amount_of, write_answer
from irscope.errors import UsageError
from irscope.measure.calibrate.engine import Engine, measure, record_of, save
from irscope.report.report import Document, Report
from irscope.tools.devices import device_report


class Command:
    """Measure this machine and remember it as the device "this" (and its NVIDIA GPU, where PyTorch sees one, as "this-gpu").

    Measures matrix products by element type, memory bandwidth by working set, functions such as exp, and the overhead of an operator. Uses
    PyTorch where it is installed, else NumPy. The result is a device file in your settings folder (IRSCOPE_HOME chooses another);
    `irscope run --device this` uses it from then on.

    With --from PATH it measures nothing: recordings of a device (of `irscope record`, or folders with machine.json and models.jsonl) give
    rules for the workspaces of convolutions, and the ratio of measured to least time. A third of the models is held out of the fit, and
    the report shows the error on them.
    """

    examples = (
        ("irscope calibrate", "how fast is this machine, so that --device this predicts for it?"),
        ("irscope calibrate --only gpu --seconds 30", "how fast is its GPU, measured for longer?"),
        ("irscope calibrate --from run.jsonl -o device.json", "what do recordings of a device say of it?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--threads", type=amount_of(COUNT), default=0, metavar="N", help="CPU threads; default: what PyTorch uses")
        add_amount(parser, "--seconds", default=5.0, help="about how long to measure each device; default: 5")
        parser.add_argument("--only", choices=("cpu", "gpu"), help="measure only this one")
        add_output_file(parser, help="write the device file there instead (needs --only or --from)")
        parser.add_argument(
            "--from",
            action="append",
            default=[],
            metavar="PATH",
            dest="recordings",
            help="measure nothing: fit to this recording or folder",
        )
        parser.add_argument("--device", default="", help="the device whose file --from adds to; default: the one that was recorded")
        add_output_arguments(parser, to_file=False, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        if args.recordings:
            return _from_recordings(args)
        if args.device:
            raise UsageError("--device goes with --from: a measurement is of this machine")
        if args.output and not args.only:
            raise UsageError("-o writes one file: say which device with --only cpu or --only gpu")
        if args.threads < 0 or not 0 < args.seconds <= 600:
            raise UsageError("--threads is at least 1, --seconds more than 0 and at most 600")
        reports: list[Report] = []
        for engine in engines(args.threads, args.only):
            sys.stderr.write(f"measuring {engine.title} ...\n")
            found = measure(engine, args.seconds)
            path, profile = save(record_of(engine, found, time.strftime("%Y-%m-%d")), Path(args.output) if args.output else None)
            sys.stderr.write(f"measured in {found.seconds:.1f} s, kept in {path}\n")
            reports.append(device_report(profile))
        write_answer(Document(reports=tuple(reports)), args)
        return 0


def _from_recordings(args: argparse.Namespace) -> int:
    from irscope.tools.devices import calibrate_from

    record, report = calibrate_from([Path(path) for path in args.recordings], args.device)
    path, _ = save(record, Path(args.output) if args.output else None)
    write_answer(Document(reports=(report,)), args)
    sys.stderr.write(f"kept in {path}\n")
    return 0


def engines(threads: int, only: str | None) -> list[Engine]:
    """Return the devices that can be measured here. Raises UsageError where the one asked for is missing."""
    found: list[Engine] = []
    if importlib.util.find_spec("torch") is not None:
        import torch

        from irscope.measure.calibrate.torchengine import TorchCpu, TorchCuda

        if only != "gpu":
            found.append(TorchCpu(threads or torch.get_num_threads()))
        if only != "cpu" and torch.cuda.is_available():
            found.append(TorchCuda())
    elif only != "gpu":
        from irscope.measure.calibrate.engine import NumpyCpu

        if threads:
            raise UsageError("--threads needs PyTorch; NumPy takes its number of threads from OMP_NUM_THREADS")
        found.append(NumpyCpu())
    if not found:
        raise UsageError("PyTorch sees no NVIDIA GPU here", hint="`irscope doctor` says what is installed")
    return found
