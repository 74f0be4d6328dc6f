"""Programs that start their own ranks: the one that is played runs in this process, and the others are taken to do as it does."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data._utils.worker import _worker_loop

from irscope import processes
from irscope.passkit.script import LIBRARIES, run_script

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


def environment(rank: int, world: int, local: int) -> dict[str, str]:
    """Return the variables that torchrun sets."""
    machines = -(-world // local)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "GROUP_WORLD_SIZE": str(machines),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        "TORCHELASTIC_RUN_ID": os.environ.get("TORCHELASTIC_RUN_ID", "none"),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


@contextlib.contextmanager
def set_variables(made: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the environment within the context."""
    before = {key: os.environ.get(key) for key in made}
    os.environ.update(made)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


class Launchers:
    """Replaces `torch.multiprocessing.spawn` and torchrun's own launcher: no process is started."""

    def __init__(self) -> None:
        self.started: list[str] = []
        """Processes that the program started, and which of them was played."""
        self._ranks: dict[Any, int] = {}
        """Number of processes that the program has started with each function, as ranks."""

    def install(self) -> None:
        """Put them in place."""
        import torch.multiprocessing

        processes.play_programs(self._play)
        spawning: Any = sys.modules["torch.multiprocessing.spawn"]
        package: Any = torch.multiprocessing
        spawning.start_processes = package.start_processes = self._start
        processes.take_over(self._decide)
        if not torch.distributed.is_available():
            return
        with contextlib.suppress(ImportError):  # elastic launching has requirements of its own
            from torch.distributed.launcher import api

            launch: Any = api.elastic_launch
            launch.__call__ = lambda launched, *args: self._launch(launched._config, launched._entrypoint, args)

    def _start(self, function: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> Any:
        """Do as `start_processes`: the function is called with its number in place of the processes."""
        played = int(os.environ.get("LOCAL_RANK", "0")) % max(nprocs, 1)
        self.started.append(f"rank {played} of the {nprocs} that it starts")
        function(played, *args)
        return None if join else _Ended()

    def _decide(self, process: BaseProcess) -> processes.Start:
        """Return what becomes of a process that the program starts.

        Ranks are processes that get something of the device, which no other process has, or their number, and no pipe that somebody else
        has the other end of. The worker of a DataLoader is a copy of this process, which has the device, what was declared for it, and the
        program's modules.
        """
        function, args = _function(process), (*getattr(process, "_args", ()), *getattr(process, "_kwargs", {}).values())
        if function is None or _of_a_library(function):
            return "copy" if function is _worker_loop else "start"
        number = self._ranks.get(function, 0)
        numbered = any(type(argument) is int and argument == number for argument in args[:1]) and not any(map(processes.is_pipe, args))
        if not numbered and not any(_on_device(argument) for argument in args):
            return "start"
        self._ranks[function] = number + 1
        if number != int(os.environ.get("LOCAL_RANK", "0")):
            return "leave"
        self.started.append(f"rank {number} of those that it starts with {getattr(function, '__name__', 'a function')}")
        return "play"

    def _launch(self, config: Any, entry: Any, args: Sequence[Any]) -> dict[int, Any]:
        """Do as torchrun: what it starts is called, or run as a script, with its variables."""
        local = int(config.nproc_per_node)
        world = int(config.max_nodes) * local
        played = int(os.environ.get("RANK", "0")) % world
        self.started.append(f"rank {played} of the {world} that it starts")
        with set_variables(environment(played, world, local)):
            if callable(entry):
                return {played: entry(*args)}
            given = [str(one) for one in (args if "python" in os.path.basename(str(entry)) else (entry, *args))]
            _run(given[given[:1] == ["-u"] :])
        return {played: None}

    def _play(self, given: Sequence[str], environ: Mapping[str, str], folder: str | None) -> int | None:
        """Run a program that this one starts, as `accelerate launch` and DeepSpeed's launcher do: in a process of its own it would find
        no device. Of several ranks the one that is played runs; the others are taken to end well. None for what is no such program."""
        if not _is_program(given):
            return None
        own = environ.get("LOCAL_RANK")
        if own not in (None, os.environ.get("LOCAL_RANK", "0")) or _is_running(given[0]):
            return 0
        self.started.append(f"{os.path.basename(given[0]) if given[0] != '-m' else given[1]}, which it starts")
        with _environment(environ), contextlib.nullcontext() if folder is None else contextlib.chdir(folder):
            try:
                _run(given)
            except SystemExit as ended:
                return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return 0


def _run(given: Sequence[str]) -> None:
    """Run what stands after `python` in a command."""
    is_module = given[:1] == ["-m"]
    script, *rest = given[is_module:]
    run_script(script, rest, is_module=is_module)


_LAUNCHER: Final = re.compile(r"(^|[._])(launch|launcher|distributed\.run)$")


def _is_program(given: Sequence[str]) -> bool:
    """Tell whether Python runs a script of the user's, or a launcher as a module, rather than a tool."""
    if given[:1] == ["-m"]:
        return len(given) > 1 and _LAUNCHER.search(given[1]) is not None
    return given[0].endswith(".py") and not any(part in os.path.abspath(given[0]) for part in LIBRARIES)


def _is_running(script: str) -> bool:
    """Tell whether a script is the one that runs: it starts ranks beside itself, as Lightning does."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main is not None and os.path.abspath(main) == os.path.abspath(script)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Make these all the variables of the environment within the context."""
    before, made = dict(os.environ), dict(wanted)
    os.environ.clear()
    os.environ.update(made)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _function(process: BaseProcess) -> Any:
    """Return what a process calls, without arguments that are bound to it; None where a class of processes has a method for that."""
    function = getattr(process, "_target", None)
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _of_a_library(function: Any) -> bool:
    """Return whether a function is none of the program's: that of the worker of a DataLoader or of a pool, say."""
    return str(getattr(function, "__module__", "")).partition(".")[0] in {"torch", *sys.stdlib_module_names}


def _on_device(value: Any) -> bool:
    import torch

    if isinstance(value, torch.nn.Module):
        return any(value.is_cuda for value in torch.nn.Module.parameters(value))
    return isinstance(value, torch.Tensor) and value.is_cuda


class _Ended:
    """Processes that have ended, as `torch.multiprocessing.ProcessContext`."""

    processes: tuple[Any, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True

    def pids(self) -> list[int]:
        return []
