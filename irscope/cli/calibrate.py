"""`irscope calibrate`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Final

from irscope.amounts import COUNT
from irscope.cli.args import add_amount, add_output_arguments, add_output_file, amount_of, write_answer
from irscope.errors import UsageError
from irscope.measure.calibrate.engine import Engine, SessionRates, measure, measure_sessions, record_of, save
from irscope.report.report import Document, Report
from irscope.tools.devices import device_report


class Command:
    """Measure this machine and remember it as the device "this" (and its NVIDIA GPU, where PyTorch sees one, as "this-gpu").

    Measures matrix products by element type, memory bandwidth by working set, functions such as exp, and the overhead of an operator. Uses
    PyTorch where it is installed, else NumPy; where ONNX Runtime is, its own kernels are measured too. The result is a device file in your
    settings folder (IRSCOPE_HOME chooses another); `irscope run --device this` uses it from then on.
    """

    examples = (
        ("irscope calibrate", "how fast is this machine, so that --device this predicts for it?"),
        ("irscope calibrate --only gpu --seconds 30", "how fast is its GPU, measured for longer?"),
        ("irscope calibrate --only cpu --threads 1 -o one.json", "how fast is one thread, as a device file?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--threads", type=amount_of(COUNT), default=0, metavar="N", help="CPU threads; default: what PyTorch uses")
        add_amount(parser, "--seconds", default=5.0, help="about how long to measure each device; default: 5")
        parser.add_argument("--only", choices=("cpu", "gpu"), help="measure only cpu, or only gpu")
        add_output_file(parser, help="write the device file there instead (needs --only)")
        add_output_arguments(parser, to_file=False, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        if args.output and not args.only:
            raise UsageError("-o writes one file: say which device with --only cpu or --only gpu")
        if args.threads < 0 or not 0 < args.seconds <= 600:
            raise UsageError("--threads is at least 1, --seconds more than 0 and at most 600")
        reports: list[Report] = []
        for engine in engines(args.threads, args.only):
            sys.stderr.write(f"measuring {engine.title} ...\n")
            started = time.perf_counter()
            rates = measure(engine, args.seconds)
            sessions = measured_sessions(args.threads, args.seconds) if engine.kind == "cpu" else None
            record = record_of(engine, rates, time.strftime("%Y-%m-%d"), sessions)
            path, profile = save(record, Path(args.output) if args.output else None)
            sys.stderr.write(f"measured in {time.perf_counter() - started:.1f} s, kept in {path}\n")
            reports.append(device_report(profile))
        write_answer(Document(reports=tuple(reports)), args)
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


_SESSIONS_SHARE: Final = 0.5
"""Of the seconds for a device: ONNX Runtime has some twenty kinds of kernels."""


def measured_sessions(threads: int, seconds: float) -> SessionRates | None:
    """Return the rates of ONNX Runtime's kernels on this processor; None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    from irscope.measure.calibrate.sessions import Sessions

    return measure_sessions(Sessions(threads), seconds * _SESSIONS_SHARE)
