"""What works without what only Linux has, as on macOS and Windows, and without torch: files, ONNX, cards, passes and audits."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HIDING = """
import builtins, contextlib, importlib.abc, io, json, os, signal, sys
import asyncio, concurrent.futures, multiprocessing, platform, selectors, shutil, socket, subprocess, tempfile  # before the hiding

platform.uname()
for module, names in (
    (os, "fork forkpty O_NOFOLLOW O_CLOEXEC O_DIRECTORY sysconf getuid geteuid fchmod pread preadv posix_fadvise sched_getaffinity"
         " killpg setsid getpgid mkfifo statvfs getloadavg chown lchown getxattr listxattr setxattr removexattr memfd_create posix_spawn"),
    (signal, "SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGXCPU SIGTSTP SIGCONT SIGPIPE SIGWINCH setitimer alarm pthread_kill pthread_sigmask"),
):
    for name in names.split():
        vars(module).pop(name, None)


class Hides(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hides())
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
real_open = io.open


def open_outside_proc(file, *args, **options):
    if isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(file))
    return real_open(file, *args, **options)


builtins.open = io.open = open_outside_proc
if __name__ == "__main__":
    from irscope.cli.main import main

    answers, commands = [], json.loads(sys.argv[1])
    if len(commands) == 1:  # with the streams of the process itself, as programs are simulated
        sys.platform = commands[0].pop(0)
        sys.exit(main(commands[0]))
    for command in commands:
        said, complaints = io.StringIO(), io.StringIO()
        sys.platform = command.pop(0)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
            code = main(command)
        sys.platform = "linux"
        answers.append([int(code), said.getvalue(), complaints.getvalue()])
    print(json.dumps(answers))
"""


def process(folder: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Return the end of a process that runs commands, each behind the name of its system."""
    script = folder / "hiding.py"
    script.write_text(HIDING)
    return subprocess.run([sys.executable, str(script), json.dumps(commands)], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_what_needs_no_torch_runs_on_other_systems(tmp_path: Path) -> None:
    model, text, script = "samples/models/cnn.onnx", "samples/mlp.irs", "./samples/custom_pass.py:NarrowConvs"
    commands = [
        ["darwin", model],
        ["darwin", "run", text],
        ["darwin", "run", "--passes", f"liveness,flops,{script}", model],
        ["darwin", "fit", model],
        ["darwin", "sweep", "--over", "batch=1,4", model],
        ["darwin", "compare", model, model],
        ["darwin", "export", model, "-o", str(tmp_path / "x.irs")],
        ["darwin", "run", "--format", "html", "-o", str(tmp_path / "x.html"), model],
        ["darwin", "run", "--jobs", "2", model, text],
        ["darwin", "opt", text],
        ["darwin", "devices"],
    ]
    if importlib.util.find_spec("pyarrow"):
        results = str(tmp_path / "results")
        commands += [["darwin", "audit", "samples/models", "-o", results, "--jobs", "2"], ["darwin", "audit", "ask", results]]
    ended = process(tmp_path, *commands)
    assert ended.returncode == 0, ended.stderr
    for command, (code, said, complaints) in zip(commands, json.loads(ended.stdout.splitlines()[-1]), strict=True):
        assert code == 0, (command, code, complaints)
        assert said or "-o" in command, command
    assert (tmp_path / "x.irs").stat().st_size and (tmp_path / "x.html").stat().st_size


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_simulating_elsewhere_says_in_a_line_what_it_needs(system: str, tmp_path: Path) -> None:
    ended = process(tmp_path, [system, "simulate", "samples/train_ddp.py"])
    assert ended.returncode == 2 and not ended.stdout and ended.stderr.count("\n") == 1
    assert "IRS644" in ended.stderr and f"not on {system}" in ended.stderr and "cards" in ended.stderr


WITHOUT_TORCH = """
import contextlib, importlib.util, io, json, sys

sys.modules["torch"] = None
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find_spec(name, package)
from irscope.cli.main import main

answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as complaints:
        code = main(command)
    answers.append([int(code), complaints.getvalue()])
print(json.dumps(answers))
"""


def test_what_needs_torch_says_so_in_a_line(tmp_path: Path) -> None:
    """Every command that runs programs or modules, where torch is not installed (a plain `simulate` is another process)."""
    program, module, folder = "samples/train_ddp.py", "./samples/training.py:build", "samples/llama-3.1-8b"
    commands = [
        ["simulate", "--rank", "all", "--world", "2", program],
        ["simulate", "--grid", "size=1,2", program, "{size}"],
        ["simulate", "--fit", "size=1..4", program, "{size}"],
        ["train-plan", module],
        ["generate", folder, "--prompt", "8", "--new", "2"],
        ["generate", "torchvision:resnet18", "--prompt", "8", "--new", "2"],
        ["generate", folder, "--engine", "vllm"],
        ["fit", folder, "--free", "context"],
        ["fit", module],
        ["sweep", module],
        ["compare", module, "samples/models/cnn.onnx"],
        ["export", module, "-o", str(tmp_path / "x.irs")],
        ["record", "--train", module, "-o", str(tmp_path / "x.jsonl")],
        [module],
    ]
    command = [sys.executable, "-c", WITHOUT_TORCH, json.dumps(commands)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    for command, (code, complaints) in zip(commands, json.loads(ended.stdout), strict=True):
        assert code == 2 and complaints.count("irscope: error") == 1 and "torch" in complaints, (command, code, complaints)
        assert "not installed" in complaints, command
