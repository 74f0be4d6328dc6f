"""Programs of names are kept on disk: the same answer without torch, never a stale one, and nothing in an entry is trusted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from irscope import diskcache
from irscope.diagnostics import Diagnostic, DiagnosticSink, Severity
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.frontends.zoo.programform import read_program, written
from irscope.jsoncodec import Misfit
from irscope.training import Trace
from tests.conftest import FULL

PROGRAM = """
import sys
from irscope.cli.main import main
code = main(sys.argv[1:])
print("torch" if "torch" in sys.modules else "light", file=sys.stderr)
sys.exit(code)
"""
SERVER = """
import contextlib, io, json, os, sys
from irscope.frontends.zoo import kept
with kept.noting_changes():
    from irscope.frontends.eager import steptrace
    from irscope.frontends.simulation.process import import_ahead
    from irscope.frontends.zoo import load
    import_ahead()  # what torch imports for captures, or else each run would
from irscope.cli.main import main
for line in sys.stdin:
    reading, writing = os.pipe()
    if not os.fork():
        folder, variables, arguments = json.loads(line)
        os.chdir(folder)
        del os.environ["IRSCOPE_NO_CACHE"]
        os.environ.update(variables)
        kept._BEGUN = kept._process_began()  # as of a process that was started now
        made = []
        for module, name in ((load, "capture_module"), (steptrace, "training_program")):
            def counted(*args, capture=getattr(module, name), **kwargs):
                made.append(1)
                return capture(*args, **kwargs)
            setattr(module, name, counted)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(arguments)
        os.write(writing, json.dumps([code, out.getvalue(), len(made)]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        print(answer.read(), flush=True)
    os.wait()
"""
"""Runs commands each in a process of its own that has torch already, and counts captures."""
TRAIN = """
import json
from pathlib import Path

import torch
from parts import WIDTH


def build():
    more = json.loads(Path(__file__).with_name("more.json").read_text())
    classes = len(list(Path(__file__).with_name("classes").iterdir()))
    layers = torch.nn.Linear(8, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, more["out"] * classes)
    return torch.nn.Sequential(*layers), torch.zeros(4, 8)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of irscope's own with the cache in use."""
    monkeypatch.delenv("IRSCOPE_NO_CACHE")
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "parts.py").write_text("WIDTH = 16\n")
    (folder / "more.json").write_text('{"out": 3}')
    for name in ("one", "two"):
        (folder / "classes" / name).mkdir(parents=True)
    return folder


def environment() -> dict[str, str]:
    """That of all runs: pytest says in a variable which phase of which test runs."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def light(folder: Path, command: str, *arguments: str) -> str:
    """What a run wrote that imports no torch."""
    line = [sys.executable, "-c", PROGRAM, command, "./train.py:build", *arguments]
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "light"
    return done.stdout


class Captures:
    """Runs that have torch."""

    def __init__(self) -> None:
        line = [sys.executable, "-c", SERVER]
        self._process = subprocess.Popen(line, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.folder = Path()

    def run(self, command: str, *arguments: str) -> tuple[str, int]:
        """What a run wrote, and how often it captured the model."""
        assert self._process.stdin is not None and self._process.stdout is not None
        time.sleep(0.1)  # what was written just before a process began may have been read before it was written
        self._process.stdin.write(json.dumps([str(self.folder), environment(), [command, "./train.py:build", *arguments]]) + "\n")
        self._process.stdin.flush()
        code, out, made = json.loads(self._process.stdout.readline())
        assert code == 0
        return out, made

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def process_with_torch() -> Iterator[Captures]:
    found = Captures()
    yield found
    found.end()


@pytest.fixture
def captures(home: Path, project: Path, process_with_torch: Captures) -> Captures:
    process_with_torch.folder = project
    return process_with_torch


@pytest.mark.slow
@pytest.mark.torch
def test_a_second_run_says_the_same_without_torch_until_a_source_changes(home: Path, project: Path, captures: Captures) -> None:
    asked = ("--format", "json")
    fresh, made = captures.run("run", *asked, "--no-cache")
    assert made == 1 and not (home / "cache").exists()
    assert captures.run("run", *asked) == (fresh, 1)
    assert light(project, "run", *asked) == fresh
    light(project, "run", *asked, "--passes", "liveness,flops,modules,params")

    os.utime(project / "parts.py")  # another time, the same content
    assert light(project, "run", *asked) == fresh
    (project / "parts.py").write_text("WIDTH = 24\n")
    wider, made = captures.run("run", *asked)
    assert made == 1 and wider != fresh
    assert light(project, "run", *asked) == wider
    (project / "more.json").write_text('{"out": 7}')
    longer, made = captures.run("run", *asked)
    assert made == 1 and longer != wider
    (project / "classes" / "third").mkdir()
    listed, made = captures.run("run", *asked)
    assert made == 1 and listed != longer


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    "asked",
    [
        ("fit", "--memory", "4KiB", "--counter", "activation"),
        ("sweep", "--over", "batch=2,4,8"),
        ("train-plan",),
        ("train-plan", "--optimizer", "adamw", "--autocast", "bf16", "--passes", "training,activations,checkpoint{seconds=0}"),
    ],
    ids=" ".join,
)
def test_what_takes_several_programs_or_steps_is_answered_again_without_torch(
    asked: tuple[str, ...], project: Path, captures: Captures
) -> None:
    first, made = captures.run(*asked)
    assert made
    assert captures.run(*asked) == (first, 0)
    assert light(project, *asked) == first


@pytest.mark.torch
def test_one_capture_answers_for_all_sizes(captures: Captures) -> None:
    assert captures.run("fit", "--memory", "64KiB", "--counter", "activation")[1] == 1
    assert captures.run("sweep", "--over", "batch=2,4,8")[1] == 0, "the same open size"


@pytest.mark.slow
@pytest.mark.torch
def test_what_a_module_read_once_counts_for_every_program_of_the_process(project: Path, captures: Captures) -> None:
    """`fit` makes several programs, of which the first alone imports the modules and opens what they open."""
    (project / "parts.py").write_text("from pathlib import Path\nWIDTH = int(Path('width').read_text())\n")
    (project / "width").write_text("16")
    asked = ("fit", "--memory", "4KiB", "--counter", "activation")
    narrow, _ = captures.run(*asked)
    (project / "width").write_text("64")
    wide, made = captures.run(*asked)
    assert made and wide != narrow
    assert captures.run(*asked, "--no-cache")[0] == wide


def test_files_and_what_was_not_there_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.frontends.zoo import kept
    from irscope.frontends.zoo.kept import described, still_holds, watching

    data, absent = tmp_path / "data", tmp_path / "absent"
    data.write_text("a")
    with watching() as watched:
        data.read_text()
        list(tmp_path.iterdir())
        with pytest.raises(FileNotFoundError):
            absent.read_text()
    watched.opened = {path for path in watched.opened if path.startswith(str(tmp_path))}
    assert watched.opened == {str(tmp_path), str(data), str(absent)}
    assert described(watched, []) is None, "it may have been written since it was read"
    time.sleep(0.1)
    monkeypatch.setattr(kept, "_BEGUN", time.time_ns())
    about = described(watched, [])
    assert about is not None and still_holds(about)
    before = data.stat()
    data.write_text("b")
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size, the same time
    assert not still_holds(about)
    data.write_text("a")
    assert still_holds(about)
    absent.write_text("")
    assert not still_holds(about)

    monkeypatch.setattr(kept, "_latest", [])
    with watching() as outside:
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert described(outside, []) is None
    with watching() as later:
        pass
    assert described(later, []) is None, "it may have kept what the other program said"
    monkeypatch.setattr(kept, "_latest", [])


def test_an_entry_is_of_this_user_alone_and_damage_is_a_miss(home: Path) -> None:
    assert diskcache.keep("key", "name", {"files": []}, b"body") and diskcache.read("key", lambda about: True) == b"body"
    (entry,) = diskcache.entries()
    assert entry.name == "name" and entry.path.stat().st_mode & 0o777 == 0o600 and entry.path.parent.stat().st_mode & 0o777 == 0o700
    assert diskcache.read("other", lambda about: True) is None
    assert diskcache.read("key", lambda about: False) is None and diskcache.entries() == []

    whole: list[Callable[[bytes], bytes]] = [
        lambda content: content[:-1],
        lambda content: content.replace(b"body", b"bodx"),
        lambda content: b"",
        lambda content: os.urandom(200),
        lambda content: b"irscope cache 1 " + hashlib.sha256(b"[[[\n").hexdigest().encode() + b"\n[[[\n",
    ]
    for change in whole:
        diskcache.keep("key", "name", {"files": []}, b"body")
        entry.path.write_bytes(change(entry.path.read_bytes()))
        assert diskcache.read("key", lambda about: True) is None and not entry.path.exists()

    elsewhere = home / "elsewhere"
    elsewhere.write_bytes(b"mine")
    entry.path.symlink_to(elsewhere)
    assert diskcache.read("key", lambda about: True) is None
    assert diskcache.keep("key", "name", {"files": []}, b"body") and elsewhere.read_bytes() == b"mine"


@pytest.mark.parametrize("variables", [{"IRSCOPE_HOME": "file"}, {"HOME": "file", "XDG_CACHE_HOME": "file/below"}], ids=" ".join)
def test_where_nothing_can_be_written_nothing_is_kept(variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    for name in ("IRSCOPE_HOME", "XDG_CACHE_HOME", "IRSCOPE_NO_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, path in variables.items():
        monkeypatch.setenv(name, str(tmp_path / path))
    assert not diskcache.keep("key", "name", {}, b"body") and diskcache.read("key", lambda about: True) is None
    assert diskcache.entries() == [] and diskcache.clear() == (0, 0)


WRITER = """
import sys
from irscope import diskcache
for number in range(60):
    diskcache.keep("key", "name", {}, sys.argv[1].encode() * 5_000)
    found = diskcache.read("key", lambda about: True)
    assert found is None or found in (b"a" * 5_000, b"b" * 5_000, b"c" * 5_000), found
    diskcache.entries()
    if number % 20 == 0:
        diskcache.clear()
"""


def test_processes_share_the_folder(home: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", WRITER, letter], stderr=subprocess.PIPE, text=True) for letter in "abc"]
    for one in running:
        _, said = one.communicate()
        assert one.returncode == 0, said
    assert diskcache.keep("key", "name", {}, b"last") and diskcache.read("key", lambda about: True) == b"last"


def test_what_was_not_used_for_longest_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskcache, "MOST_BYTES", 4_000)
    for number, key in enumerate(("a", "b", "c")):
        diskcache.keep(key, key, {}, bytes(1_000))
        os.utime(diskcache.folder() / f"{diskcache.digest_of(key)}.entry", (number + 1, number + 1))
    assert diskcache.read("a", lambda about: True) is not None
    diskcache.keep("d", "d", {}, bytes(1_000))
    assert {entry.name for entry in diskcache.entries()} == {"a", "c", "d"}
    assert diskcache.clear()[0] == 3 and diskcache.entries() == []


@pytest.fixture
def root() -> Path:
    return Path(__file__).parents[3]


def _forms(root: Path) -> list[bytes]:
    said = [Diagnostic(Severity.WARNING, "IRS199", "said", count=2)]
    sink = DiagnosticSink()
    return [written(load_program(path, LoadOptions(), sink), said) for path in sorted((root / "samples").glob("*.irs"))]


def test_a_program_reads_back_as_it_was(root: Path) -> None:
    forms = _forms(root)
    assert forms
    for form in forms:
        program, said = read_program(form)
        assert written(program, said) == form


def test_no_entry_makes_anything_but_a_program(root: Path) -> None:
    """Every value of a form replaced in turn, every line of its text cut, doubled, changed or left out: a program, or Misfit."""
    forms = [json.loads(form) for form in _forms(root)]
    tried = sum(map(_changed_in_each_place, forms))
    for form in forms:
        lines = form["text"].split("\n")
        for place, line in enumerate(lines):
            for instead in ([], [line[: len(line) // 2]], [line, line], [line.replace("32", "-1")]):
                form["text"] = "\n".join([*lines[:place], *instead, *lines[place + 1 :]])
                tried += 1
                with contextlib.suppress(Misfit):
                    read_program(json.dumps(form).encode())
    assert tried > 400


def _changed_in_each_place(form: Any, part: str = "", stride: int = 1) -> int:
    """Read a form with every value, or every so many of a part of it, replaced in turn; their number."""
    strange: tuple[object, ...] = (None, -1, 10**30, "x", [], {}, [[0]], True)
    tried = 0

    def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [one for key, value in items for one in ((*path, key), *places(value, (*path, key)))]

    for path in (places(form[part], (part,)) if part else places(form))[::stride]:
        at: Any = form
        for step in path[:-1]:
            at = at[step]
        kept = at[path[-1]]
        at[path[-1]] = strange[tried % len(strange)]
        tried += 1
        with contextlib.suppress(Misfit):
            read_program(json.dumps(form).encode())
        at[path[-1]] = kept
    return tried


@pytest.mark.torch
def test_captures_read_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.frontends.zoo.load import load_named
    from irscope.passkit.settings import Settings

    monkeypatch.chdir(project)
    for options in (LoadOptions(), LoadOptions(open_sizes=frozenset({"batch"}))):
        program = load_named("./train.py:build", options, DiagnosticSink(), Settings())
        form = written(program, [])
        again, _ = read_program(form)
        assert written(again, []) == form and (again.watched is None) == (program.watched is None)


@pytest.mark.slow
@pytest.mark.torch
def test_steps_read_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.passkit.settings import Settings
    from irscope.tools.capture import open_training
    from irscope.training import StepSetup

    monkeypatch.chdir(project)
    program = open_training("./train.py:build", LoadOptions(), StepSetup(optimizer="adamw"), Settings()).program
    form = written(program, [])
    again, _ = read_program(form)
    assert isinstance(again.training, Trace) and written(again, []) == form
    assert _changed_in_each_place(json.loads(form), "training", 7 if FULL else 41) > 20


def test_entries_that_cannot_be_deleted_are_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diskcache.keep("key", "name", {}, b"content")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(UsageError, match="cannot be deleted: Permission denied") as refused:
            diskcache.clear()
    assert refused.value.code == "IRS610"
    assert diskcache.read("key", lambda about: True) == b"content"
