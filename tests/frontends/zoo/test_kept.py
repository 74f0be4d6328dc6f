"""Programs of names are kept on disk: the same answer without torch, never a stale one, and nothing in an entry is trusted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope import diskcache
from irscope.diagnostics import Diagnostic, DiagnosticSink, Severity
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.frontends.zoo.programform import read_program, written
from irscope.jsoncodec import Misfit

PROGRAM = """
import sys
from irscope.cli.main import main
code = main(sys.argv[1:])
print("torch" if "torch" in sys.modules else "light", file=sys.stderr)
sys.exit(code)
"""
TRAIN = """
import json
from pathlib import Path

import torch
from parts import WIDTH


def build():
    more = json.loads(Path(__file__).with_name("more.json").read_text())
    return torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, more["out"])), torch.zeros(4, 8)
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
    return folder


def ran(folder: Path, *arguments: str) -> tuple[str, bool]:
    """What a run wrote, and whether it imported torch."""
    command = [sys.executable, "-c", PROGRAM, "run", "./train.py:build", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.splitlines()[-1] == "torch"


@pytest.mark.torch
def test_a_second_run_says_the_same_without_torch_until_a_source_changes(home: Path, project: Path) -> None:
    asked = ("--format", "json")
    fresh, imported = ran(project, *asked, "--no-cache")
    assert imported and not (home / "cache").exists()
    assert ran(project, *asked) == (fresh, True)
    assert ran(project, *asked) == (fresh, False)
    assert ran(project, "--format", "json", "--passes", "liveness,flops,modules,params")[1] is False

    os.utime(project / "parts.py")  # another time, the same content
    assert ran(project, *asked) == (fresh, False)
    (project / "parts.py").write_text("WIDTH = 24\n")
    wider, imported = ran(project, *asked)
    assert imported and wider != fresh
    assert ran(project, *asked) == (wider, False)
    (project / "more.json").write_text('{"out": 7}')
    longer, imported = ran(project, *asked)
    assert imported and longer != wider


def test_files_and_what_was_not_there_are_looked_at_again(tmp_path: Path) -> None:
    from irscope.frontends.zoo.sources import described, still_holds, watching

    data, absent = tmp_path / "data", tmp_path / "absent"
    data.write_text("a")
    time.sleep(0.02)
    with watching() as watched:
        data.read_text()
        with pytest.raises(FileNotFoundError):
            absent.read_text()
    watched.opened = {path for path in watched.opened if path.startswith(str(tmp_path))}
    about = described(watched, [str(tmp_path)])
    assert about is not None and still_holds(about)
    before = data.stat()
    data.write_text("b")
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size, the same time
    assert not still_holds(about)
    data.write_text("a")
    assert still_holds(about)
    absent.write_text("")
    assert not still_holds(about)

    with watching() as outside:
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert described(outside, []) is None


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
    """Every value of a form replaced in turn: a program that keeps the rules, or Misfit."""
    form = json.loads(min(_forms(root), key=len))
    strange: tuple[object, ...] = (None, -1, 10**30, "x", [], {}, [[0]], True)
    tried = 0

    def places(node: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [one for key, value in items for one in ((*path, key), *places(value, (*path, key)))]

    for path in places(form):
        at = form
        for step in path[:-1]:
            at = at[step]
        kept = at[path[-1]]
        at[path[-1]] = strange[tried % len(strange)]
        tried += 1
        with contextlib.suppress(Misfit):
            read_program(json.dumps(form).encode())
        at[path[-1]] = kept
    assert tried > 100


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
