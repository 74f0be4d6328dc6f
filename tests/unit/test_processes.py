"""Processes of irscope's own: what they import, what they leave, and how their end is said."""

from __future__ import annotations

import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from irscope import processes
from irscope.cli.main import main
from irscope.files import TemporaryFolder

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
LEAVES = "import os, tempfile, time; folder = tempfile.mkdtemp(); open(folder + '/x', 'w').close(); print(folder, flush=True)"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which is empty at the end."""
    # multiprocessing keeps the first folder that it made for all later processes; the name of a socket in it has at most 107 bytes.
    multiprocessing.util.get_temp_dir()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("path", [None, "", os.pathsep, f"{os.pathsep}/nowhere"])
def test_nothing_in_the_working_folder_is_imported(path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("irscope", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    assert processes.run(processes.irscope(["--version"])).code == 0
    assert processes.run(processes.python(["-c", "import json, irscope"])).code == 0
    assert list(processes.each(os.getcwd, [()], 1)) == [str(tmp_path)]


@posix
@pytest.mark.parametrize("end", ["", "; time.sleep(60)", "; os.kill(os.getpid(), 9)"])
def test_what_a_process_leaves_is_deleted_however_it_ended(end: str, temporary: Path) -> None:
    command = processes.python(["-c", LEAVES + end])
    if "sleep" in end:
        with pytest.raises(processes.Late):
            processes.run(command, seconds=2)
    else:
        ended = processes.run(command)
        assert Path(ended.text.strip()).parent.parent == temporary
        assert ended.how == ("was ended by SIGKILL, as the system does when memory runs out" if end else "ended with exit code 0")
    assert not list(temporary.iterdir())


@posix
def test_what_a_killed_process_left_goes_when_the_next_one_makes_a_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = "from irscope import processes as p; c = p.Child(p.python(['-c', 'input()']), stdin=p.PIPE, apart=True); "
    killed = child + "from irscope.files import TemporaryFolder; print(TemporaryFolder('a').path, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", killed], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        kept = {temporary / name for name in ("irscope-notes", "irscope-.tmp", "mine-aaaaaaaa.tmp")}
        both = set(temporary.iterdir())
        for folder in kept:
            folder.mkdir()
        monkeypatch.setattr(TemporaryFolder, "_cleared", set())
        with TemporaryFolder():  # while they are in use
            assert len(both) == 2 and both < set(temporary.iterdir())
        process.kill()
    started = time.monotonic()
    while set(temporary.iterdir()) != kept and time.monotonic() - started < 20:  # what the killed one started ends by itself
        TemporaryFolder._cleared.clear()
        TemporaryFolder().remove()
        time.sleep(0.1)
    assert set(temporary.iterdir()) == kept


@posix
def test_an_interrupt_here_ends_the_process(temporary: Path) -> None:
    started = time.monotonic()

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        processes.run(processes.python(["-c", LEAVES + "; time.sleep(60)"]), is_cancelled=interrupted)
    with pytest.raises(processes.Stopped):
        processes.run(processes.python(["-c", LEAVES + "; time.sleep(60)"]), is_cancelled=lambda: True)
    assert time.monotonic() - started < 30 and not list(temporary.iterdir())


def test_a_large_question_and_a_large_answer() -> None:
    text = b"x" * 3_000_000
    echo = processes.python(["-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"])
    assert processes.run(echo, asked=text, is_cancelled=lambda: False).output == text
    assert processes.run(echo).output == b""


def _answer(pipe: Any, end: str) -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "x").touch()
    pipe.send(str(folder))
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    with_end = pipe.recv() if end == "hangs" else None
    assert with_end is None


@posix
@pytest.mark.parametrize(("end", "code"), [("ends", 0), ("killed", -9), ("hangs", None)])
def test_what_a_worker_leaves_is_deleted_too(end: str, code: int | None, temporary: Path) -> None:
    worker = processes.Worker(_answer, end, "test")
    folder = Path(worker.pipe.recv())
    assert folder.parent.parent == temporary
    found = worker.end(0 if end == "hangs" else 10)
    assert (found == code or code is None) and not list(temporary.glob("irscope-*"))


@posix
def test_functions_in_processes_of_their_own_answer_in_order(temporary: Path) -> None:
    assert list(processes.each(_one, [(0.5, 1), (0.0, 2), (0.0, None), (0.0, 4)], 3)) == [1, 2, None, 4]
    with pytest.raises(ZeroDivisionError):
        list(processes.each(divmod, [(1, 0)], 1))
    started = time.monotonic()
    rest = processes.each(_one, [(0.0, 1), (60.0, 2), (60.0, 3), (60.0, 4)], 2)
    assert next(rest) == 1
    rest.close()
    assert time.monotonic() - started < 30 and not list(temporary.glob("irscope-*"))


def _one(seconds: float, answer: int | None) -> int:
    time.sleep(seconds)
    if answer is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(answer or 0)


@pytest.mark.parametrize(
    ("code", "said"), [(3, "ended with exit code 3"), (-11, "was ended by SIGSEGV"), (-250, "was ended by signal 250")]
)
def test_how_it_ended(code: int, said: str) -> None:
    assert processes.how_it_ended(code) == said


@pytest.mark.slow
@pytest.mark.torch
def test_options_of_simulate_reach_the_process_that_simulates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where torch is imported already, as in a notebook, the same command line runs in a process of its own."""
    pytest.importorskip("torch")
    script = tmp_path / "loop.py"
    script.write_text("import torch\nheld = [torch.empty(1 << 20, device='cuda') for _ in range(9)]\nprint('said', flush=True)\n")
    assert main(["simulate", "--quiet", "--all", "--device", "h100", "--top", "1", str(script)]) == 0
    few = capsys.readouterr().out
    assert main(["simulate", "--quiet", "--all", "--device", "h100", str(script)]) == 0
    many = capsys.readouterr().out
    assert "said" in few and len(few.splitlines()) < len(many.splitlines())


def test_workers_start_where_the_folder_for_temporary_files_has_a_long_name(tmp_path: Path) -> None:
    """A Unix socket's path has about a hundred bytes."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    program = "from irscope import processes\nprint(type(processes._copying(['json'])).__name__)"
    for named, kind in ((str(folder), "SpawnContext"), ("/tmp", "ForkServerContext")):
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": named}, capture_output=True, text=True)
        assert done.stdout.strip() == kind, done.stderr


def test_a_folder_is_removed_while_a_copy_of_this_process_runs_on(tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    remover = processes.Remover(str(tmp_path / "written"))
    copy = os.fork()
    if not copy:
        time.sleep(60)
        os._exit(0)
    try:
        remover.remove()
        assert not (tmp_path / "written").exists()
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
