"""What surrounds a run: reproducers from strangers, full disks, homes that cannot be written, plugins and scripts that fail."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from irscope.cli.main import main

posix = pytest.mark.skipif(os.name != "posix", reason="needs limits of POSIX")
MODEL = "irscope 1\ngraph @main {\n  input %x: f32[2,8]\n  %y: f32[2,8] = nn.relu(%x)\n  return %y\n}\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize("pipeline", ["EVIL", "stats,EVIL:Evil", "fixpoint(dce,EVIL)", '"EVIL"'])
def test_a_reproducer_does_not_choose_what_runs(pipeline: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = model.parent / "evil.py"
    evil.write_text(f"import pathlib\npathlib.Path({str(model.parent / 'ran')!r}).touch()\n")
    crash = model.parent / "irscope-crash-1.irs"
    crash.write_text(f"# RUN: {pipeline.replace('EVIL', str(evil))}\n{MODEL}")
    assert main(["repro", str(crash)]) == 2
    err = capsys.readouterr().err
    assert "IRS482" in err and "--trust" in err and not (model.parent / "ran").exists()
    assert main(["repro", "--passes", "stats", str(crash)]) == 0
    main(["repro", "--trust", str(crash)])
    assert (model.parent / "ran").exists()


WRITING = {
    "run": "run --rows 0 --format json -o OUT MODEL",
    "show": "show -o OUT MODEL",
    "devices": "devices -o OUT",
    "timeline": "export --kind csv -o OUT MODEL",
    "snapshot": "export --kind pickle -o OUT MODEL",
    "plan": "export --plan --kind svg -o OUT MODEL",
}


@posix
@pytest.mark.parametrize("command", WRITING.values(), ids=WRITING)
def test_a_full_disk_leaves_the_old_file(command: str, model: Path) -> None:
    out = model.parent / "out"
    out.write_text("old")
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)); from irscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = command.replace("OUT", str(out)).replace("MODEL", str(model)).split()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    assert "IRS610" in done.stderr and "Traceback" not in done.stderr
    assert out.read_text() == "old"
    assert sorted(path.name for path in model.parent.iterdir()) == ["model.irs", "out"]


def test_a_home_that_cannot_be_written(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("IRSCOPE_HOME", "IRSCOPE_CRASH_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(model.parent))
    assert main(["run", str(model)]) == 0
    crash = model.parent / "crash.py"
    crash.write_text("from irscope.api import analysis\n@analysis('crash')\ndef Crash(graph, ctx):\n    'Raises.'\n    return 1 / 0\n")
    assert main(["run", "--passes", f"{crash}:Crash", str(model)]) == 4
    (written,) = model.parent.glob("irscope-*/irscope-crash-*.irs")
    assert str(written) in capsys.readouterr().err


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "raise ImportError('no')", "1/0", "raise Exception('\\x1b[2J' * 1000)"])
def test_a_script_that_ends_the_process_is_an_error(body: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = model.parent / "script.py"
    script.write_text(body + "\n")
    assert main(["run", "--passes", str(script), str(model)]) == 2
    err = capsys.readouterr().err
    assert "IRS609" in err and "\x1b" not in err and len(err) <= 401


@pytest.mark.parametrize("error", [SystemExit(0), ImportError("no"), RuntimeError("broken")])
def test_a_plugin_that_fails_at_import(
    error: BaseException, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> None:
        raise error

    point = SimpleNamespace(name="theirs", value="theirs:P", dist=SimpleNamespace(name="their-package"), load=load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "irscope.passes" else [])
    assert main(["run", "--passes", "stats", str(model)]) == 0
    assert main(["run", "--passes", "theirs", str(model)]) == 2
    assert "their-package cannot be imported" in capsys.readouterr().err
