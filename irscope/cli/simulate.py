"""`irscope simulate`."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from irscope import processes
from irscope.amounts import NUMBER
from irscope.cli.args import (
    DEVICE_OPTIONS,
    add_amount,
    add_memory_argument,
    add_output_arguments,
    amount_of,
    draw,
    group_of,
    progress_from,
    write_answer,
    write_json,
)
from irscope.cli.main import main
from irscope.errors import ExitCode, IrscopeError, UsageError
from irscope.frontends.detect import detect
from irscope.frontends.simulation.imports import check_machine
from irscope.frontends.zoo.names import is_name
from irscope.memory.caching.allocator import PendingFrees
from irscope.report.printable import printable
from irscope.report.report import Document, ModelInfo
from irscope.tools.config import device_for
from irscope.tools.simulate import Interrupted, check_script, simulate_script
from irscope.tools.simulate_many import Tried, try_settings
from irscope.tools.simulate_ranks import Program, Ranks, all_ranks, run_otherwise
from irscope.tools.simulation import Options, Simulation, error_line, world_of
from irscope.tools.simulation_files import KINDS, write_simulation

_CODES = {"finished": ExitCode.OK, "steps": ExitCode.OK, "oom": ExitCode.FINDINGS, "needs_value": ExitCode.PARTIAL, "error": ExitCode.PASS}


_FIT_STEPS: Final = 3
"""Steps of each run of --fit where nobody says how many: the optimizer's state is there from the second on."""
_PATIENCE: Final = 5000
"""Milliseconds that a run has to end by itself when the process that asked for it was killed."""
_alone = False
"""True where this process is for one simulation, although it has imported torch before."""
_served = False
"""True where this process was started for one of several simulations, whose answers are put together elsewhere."""


class Command:
    """Run a training program on simulated GPUs, as any rank of any world, and report the memory it takes.

    The program is your own, unmodified: it runs in this process as `python SCRIPT ARGS` would, and with --world as one rank that
    torchrun starts, with RANK, WORLD_SIZE, LOCAL_RANK and the rest set. If the program starts its ranks itself, irscope plays one of them.
    The program sees CUDA devices and process groups of any size, but nothing is computed on a device and no device memory is allocated.
    The simulated allocator answers torch.cuda's questions about memory, so the program prints what it would print on the card, and
    torch.OutOfMemoryError is raised where it would be. Options of irscope go before SCRIPT, those of the program after it.

    -o names a file by what it is: .jsonl is a recording of the last step, which `irscope compare` reads; .pickle a snapshot as
    torch.cuda.memory._dump_snapshot writes it, for https://pytorch.org/memory_viz; .json a trace for https://ui.perfetto.dev, and with
    --format json the report.

    Exit codes: 0 the program ended, or was stopped after --steps or --time; 1 it ran out of memory; 2 usage; 3 there is no such script;
    4 the program failed; 5 it waits for values that are not computed; 130 interrupted. What was simulated until then is reported.
    """

    examples = (
        ("irscope simulate --device h100 train.py --batch 8", "does this program, unmodified, fit one card?"),
        ("irscope simulate --device h100 --world 64 --rank all train.py", "what does every kind of rank of a job on 64 cards need?"),
        (
            "irscope simulate --device rtx4090 --fit batch=1..512 train.py --batch {batch}",
            "which is the largest batch with which this program trains on this card?",
        ),
        ("irscope simulate --steps 3 -o run.pickle -m mypackage.train", "what held the memory, as a snapshot for PyTorch's memory_viz?"),
    )
    common = ("--device", "--memory", "--world", "--rank", "--steps", "--fit", "--try", "--set", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        device, job, trials = group_of(parser, DEVICE_OPTIONS), group_of(parser, "the job"), group_of(parser, "settings to try")
        device.add_argument(
            "--device",
            default="",
            metavar="NAME",
            help="the GPU, as in h100; `irscope devices` lists them; default: see irscope config, else h200",
        )
        add_memory_argument(parser)
        add_amount(job, "--world", help="ranks of the job, as torchrun starts it; default: python starts it, without RANK and the rest")
        job.add_argument(
            "--rank", default="0", metavar="R", help="which of them this is; `all`: one of each class that differs; default: 0"
        )
        add_amount(job, "--most-ranks", default=64, help="ranks that --rank all simulates; default: 64")
        add_amount(job, "--local", default=0, help="ranks of one machine; default: 8, or all where they are fewer")
        device.add_argument("--torch", default="", metavar="VERSION", help="version of torch, such as 2.13")
        device.add_argument("--alloc-conf", default="", metavar="CONF", help="what PYTORCH_CUDA_ALLOC_CONF holds")
        add_amount(parser, "--steps", help="stop after this many steps of the optimizer; default: 0, never; 3 with --fit and --grid")
        add_amount(parser, "--time", default=0, help="stop after this many seconds")
        parser.add_argument(
            "--allow-unknown-kernels",
            action="store_true",
            help="count what custom operators make, by their fake implementations, where their own kernels do not run here",
        )
        parser.add_argument(
            "--answer",
            type=float,
            metavar="VALUE",
            help="what the program gets for values of the device; default: 0, and for the elements of a mask that hold: all",
        )
        parser.add_argument(
            "--routing",
            choices=("balanced", "skewed"),
            default="balanced",
            help="experts of tokens that the program does not compute: all alike, or the same; default: balanced, the other end beside it",
        )
        parser.add_argument(
            "--events",
            choices=("both", "done", "lazy"),
            default="both",
            help="when work on other streams counts as done: at once, or only when the host waits for it; a real device is between. "
            "default: at once, and the report says where the other makes a difference, and where NCCL's watchdog being a step late does",
        )
        add_amount(device, "--link", default=0, help="what a device can send to others, such as 450GB/s: times of collectives")
        trials.add_argument(
            "--try",
            dest="tries",
            action="store_true",
            help="also simulate settings that may lower the peak; one by one and the best together: the program runs once for each",
        )
        trials.add_argument(
            "--try-compile",
            action="store_true",
            help="the same with settings of torch.compile alone: activation memory budgets from 0 to 1, donated buffers, the order of "
            "kernels, CUDA graphs",
        )
        trials.add_argument(
            "--set",
            dest="settings",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="run as though the program said so, such as ddp.gradient_as_bucket_view=True; an unknown name lists all",
        )
        parser.add_argument(
            "--keep-files",
            action="store_true",
            help="keep new files that the program writes; without it they vanish when it ends, as their tensors hold zeros",
        )
        parser.add_argument(
            "--fit",
            default="",
            metavar="NAME=LOW..HIGH",
            help="the largest size that fits, such as batch=1..512: {batch} in ARGS stands for it, and the program runs for each tried",
        )
        trials.add_argument(
            "--grid",
            action="append",
            default=[],
            metavar="NAME=V,V,...",
            help="simulate each combination of values, such as --grid batch=8,16 --grid ac=none,full: {batch} in ARGS stands for "
            "the value, or NAME is a setting of --set; memory, time and what is worth it",
        )
        trials.add_argument("--gpus", default="", metavar="N,N,...", help="with --grid, or alone: worlds of this many ranks")
        trials.add_argument("--price", type=amount_of(NUMBER), default=0, metavar="P", help="with --grid: what a GPU costs an hour")
        parser.add_argument("--all", action="store_true", help="the whole report; without it the verdict and the lines that decide")
        device.add_argument("--no-limit", action="store_true", help="the device has as much memory as is requested: how much is needed")
        parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module, as with python -m")
        add_output_arguments(parser, plots="memory over the program, by category")
        parser.add_argument("script", metavar="SCRIPT", help="the program")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")

    def run(self, args: argparse.Namespace) -> int:
        if args.rank != "all" and not args.rank.isdecimal():
            raise UsageError(f"{args.rank!r} is not a rank", code="IRS643", hint="a number from 0 on, or all")
        if not args.is_module:
            _refuse_model(args.script)
        frees: PendingFrees = "synchronize" if args.events == "lazy" else "next_malloc"
        rank = 0 if args.rank == "all" else int(args.rank)
        watching = progress_from(args, shares_terminal=args.rank != "all")
        told = functools.partial(watching[0].progress, None) if watching else None
        options = Options(
            device=device_for(args.device),
            torch=args.torch,
            alloc_conf=args.alloc_conf,
            world=world_of(args.world),
            rank=rank,
            local=args.local,
            steps=(_FIT_STEPS if args.fit or args.grid or args.gpus else 0) if args.steps is None else args.steps,
            seconds=args.time,
            answer=args.answer,
            routing=args.routing,
            allow_unknown=args.allow_unknown_kernels,
            pending_frees=frees,
            both_ends=args.events == "both",
            link=args.link,
            settings=tuple(args.settings),
            boundless=args.no_limit,
            keep_files=args.keep_files,
            told=told,
        )
        program = Program(args.script, args.arguments, args.is_module)
        if args.fit or args.grid or args.gpus:
            return self._runs(args, program, options)
        if args.price:
            raise UsageError("--price is about combinations", code="IRS643", hint="`--grid batch=8,16,32`, with {batch} in the arguments")
        if args.rank == "all":
            if _is_export(args):
                raise UsageError("-o for another viewer is about one rank", code="IRS643", hint="--rank R")
            ranks = all_ranks(program, options, max(args.most_ranks, 1))
            options = replace(options, rank=ranks.classes[0].document["rank"])
            tried = self._tried(args, program, options, ranks)
            for watcher in watching:
                watcher.ended()
            return self._answer(args, ranks, tried, interrupted=ranks.interrupted)
        if not _alone and ("torch" in sys.modules or sys.stdout is not sys.__stdout__):
            return _apart(args.command_line)
        interrupted = False
        with _own_output(args.format != "text" and (args.output is None or _is_export(args))):
            try:
                simulation = simulate_script(args.script, args.arguments, options, is_module=args.is_module)
            except Interrupted as stop:
                simulation, interrupted = stop.simulation, True
        again = None if interrupted or _served else _answered(args, simulation)
        return self._whole(args, program, options, simulation, interrupted=interrupted) if again is None else again

    def _whole(self, args: argparse.Namespace, program: Program, options: Options, run: Simulation, *, interrupted: bool) -> int:
        """Answer with a run of one rank, and with what further runs tell."""
        if options.both_ends and not _served and run.outcome in ("finished", "steps", "oom"):
            if run.counts_all:
                run.fewest = run_otherwise(program, replace(options, answer=0), "masks without elements")
            if run.routes and options.routing == "balanced":
                run.skewed = run_otherwise(program, replace(options, routing="skewed"), "all tokens to the same experts")
        return self._answer(args, run, None if interrupted else self._tried(args, program, options, run), interrupted=interrupted)

    def _runs(self, args: argparse.Namespace, program: Program, options: Options) -> int:
        """Run the program several times: for the largest size of an option of its own, or for each combination of values."""
        from irscope.tools.fit_runs import Range, fit_program  # it imports all that plans steps
        from irscope.tools.simulate_many import Axis, run_grid

        option = "--fit" if args.fit else "--grid" if args.grid else "--gpus"
        asked = {"--rank all": args.rank == "all", "--try": args.tries, "--try-compile": args.try_compile, "--no-limit": args.no_limit}
        asked |= {f"-o {args.output}": _is_export(args), "--grid": args.fit and args.grid, "--gpus": args.fit and args.gpus}
        asked["--world"] = args.gpus and args.world is not None
        for said, is_asked in asked.items():
            if is_asked:
                raise UsageError(f"{said} does not go with {option}", code="IRS643", hint="leave one of them out")
        check_machine()
        check_script(program.script, program.is_module)
        if args.fit:
            fitted = fit_program(program, options, Range.parse(args.fit))
            write_answer(fitted.document(), args)
            return fitted.exit_code
        axes = [*map(Axis.parse, args.grid), *([Axis.gpus(args.gpus)] if args.gpus else [])]
        grid = run_grid(program, options, axes, args.price)
        write_answer(grid.document(), args)
        return grid.exit_code

    def _tried(self, args: argparse.Namespace, program: Program, options: Options, found: Simulation | Ranks) -> Tried | None:
        document = found.to_json()
        if not (args.tries or args.try_compile):
            return None
        if not document.get("peak", {}).get("reserved"):
            sys.stderr.write("irscope: nothing was reserved on the device, so no setting was tried\n")
            return None
        return try_settings(program, options, document, found.target.device.room_bytes, compiler_alone=not args.tries)

    def _answer(self, args: argparse.Namespace, found: Simulation | Ranks, tried: Tried | None, *, interrupted: bool) -> int:
        if isinstance(found, Simulation) and _is_export(args):
            write_simulation(Path(args.output), found, () if tried is None else tried.tables())
            sys.stderr.write(f"wrote {printable(args.output)}\n")
            args.output = None
        short = args.format == "text" and args.output is None and not args.all
        report = found.brief() if short and isinstance(found, Simulation) else found.report()
        document = Document("", ModelInfo("", ""), (report,)) if tried is None else tried.with_report(report)
        if args.format == "json":
            write_json(found.to_json() | ({"tried": tried.to_json()} if tried is not None else {}), args)
            draw(document, args)
        else:
            write_answer(document, args)
        ends = [("", one) for one in [found.to_json()]] if isinstance(found, Simulation) else found.ends()
        for who, one in ends:
            if one["error"]:
                place = f"{one['line']}: " if one["line"] and one["outcome"] != "needs_value" else ""
                whole = found.whole_traceback if isinstance(found, Simulation) and args.debug else ""
                sys.stderr.write(whole or one.get("traceback", ""))
                sys.stderr.write(f"irscope: {who}{printable(place + error_line(one['error']))}\n")
                made_up = [said["message"] for said in one.get("diagnostics", ()) if said["code"] == "IRS646" and one.get("traceback")]
                sys.stderr.writelines(f"irscope: {printable(said)}\n" for said in made_up if "--answer" in said)
        if interrupted or (tried is not None and tried.interrupted):
            return ExitCode.INTERRUPTED
        return _CODES[found.outcome] if isinstance(found, Simulation) else found.exit_code


def _refuse_model(text: str) -> None:
    """Raise UsageError for a model where a program is asked for."""
    if not is_name(text):
        try:
            detect(Path(text))
        except IrscopeError:
            return
    message = "this is a model, and what is simulated is a program"
    raise UsageError(
        message, code="IRS643", where=text, hint=f"`irscope train-plan {text}` predicts a training step, `irscope run {text}` a run"
    )


def _is_export(args: argparse.Namespace) -> bool:
    """Return whether -o names a file for another viewer, which stands beside the report; .json is the report itself with --format json."""
    kind = Path(args.output or "").suffix
    return kind in KINDS and (kind != ".json" or args.format == "text")


def _apart(line: Sequence[str]) -> int:
    """Run the same command line in a process of its own: a simulated device stays in its process, which other users of torch would find
    changed."""
    return _write_on(processes.run(processes.irscope(line), asked=None))


def _answered(args: argparse.Namespace, run: Simulation) -> int | None:
    """Run a program that failed after it had read a made-up value once more, with ones. None where it did not, or fails then too."""
    if run.outcome != "error" or run.made_up is None or args.answer is not None:
        return None
    line: Sequence[str] = args.command_line
    begin = line.index("simulate") + 1
    done = processes.run(processes.irscope([*line[:begin], "--answer", "1", *line[begin:]]), asked=None)
    if done.code not in (ExitCode.OK, ExitCode.FINDINGS):
        return None
    why = f"{run.made_up.line} read a value of the device, which is not computed, got {run.made_up.value}, and the program failed"
    sys.stderr.write(f"irscope: {printable(f'{why} at {run.line}')}: this is the run with --answer 1\n")
    return _write_on(done)


def _write_on(done: processes.Ended) -> int:
    """Write what another process wrote, and return its exit code."""
    sys.stdout.write(done.text)
    sys.stderr.write(done.errors.decode("utf-8", "replace"))
    return done.code


@contextlib.contextmanager
def _own_output(apart: bool) -> Iterator[None]:
    """Keep the streams for the answer, whatever the program puts in their place, as programs do that log what they print; its standard
    output is redirected to standard error where the answer is a document."""
    sys.stdout.flush()
    streams, kept = (sys.stdout, sys.stderr), os.dup(1)
    if apart:
        os.dup2(2, 1)
    try:
        yield
    finally:
        for stream in (sys.stdout, *streams):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # of the program's own, or closed
                stream.flush()
        sys.stdout, sys.stderr = streams
        os.dup2(kept, 1)
        os.close(kept)


def serve() -> None:
    """Simulate what is asked for in children of this process, which has imported torch and what it imports for devices.

    The arguments are file descriptors, two for each server that is forked: requests are read from the first, a line of JSON each,
    `{"line": [...], "stderr": PATH}`. Into the second go the child's process id and, when it has ended, its exit status, negative for a
    signal, a line each.
    """
    global _alone, _served
    # Until a child can take it: ignored, an interrupt of one that has just been forked would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    importlib.import_module("irscope.frontends.simulation.process").import_ahead()
    _alone = _served = True
    ends = list(map(int, sys.argv[1:]))
    servers = []
    while ends:
        requests, answers, *ends = ends
        server = processes.fork()
        if not server:
            for end in ends:  # where others hold it too, nobody learns that a server has died
                os.close(end)
            _serve(requests, answers)
        servers.append(server)
        os.close(requests)
        os.close(answers)
    for server in servers:
        os.waitpid(server, 0)


def _serve(requests: int, answers: int) -> NoReturn:
    # Where nobody is left who asks, nobody hears the answer either.
    with contextlib.suppress(BrokenPipeError), os.fdopen(requests) as asked, os.fdopen(answers, "w") as answering:
        for request in asked:
            child = processes.fork()
            if not child:
                os.close(requests)
                os.close(answers)
                _serve_one(json.loads(request))
            with contextlib.suppress(BrokenPipeError):
                answering.write(f"{child}\n")
                answering.flush()
            _end_with(requests, child)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answering.write(f"{status}\n")
            answering.flush()
    os._exit(0)


def _end_with(requests: int, child: int) -> None:
    """Return when a child has ended; where nobody is left who asks, because that process was killed, end the child too."""
    ends = select.poll()
    ends.register(requests, 0)  # that the other end is closed is always told
    ended = os.pidfd_open(child)
    ends.register(ended, select.POLLIN)
    if ended not in dict(ends.poll()):
        os.kill(child, signal.SIGTERM)
        ends.unregister(requests)
        if not ends.poll(_PATIENCE):  # a callback of Python's swallows the exception that a signal is, and so may the program
            os.kill(child, signal.SIGKILL)
    os.close(ended)


def _serve_one(asked: dict[str, Any]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = sys.argv[:1]
    for number, name in ((0, os.devnull), (1, os.devnull), (2, asked["stderr"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # for the rest of this process
    code: int = ExitCode.PASS
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = main(asked["line"])
    except KeyboardInterrupt:  # before it began
        sys.stderr.write("irscope: interrupted\n")
        code = ExitCode.INTERRUPTED
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()  # the program's, and those that remove its temporary files
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
