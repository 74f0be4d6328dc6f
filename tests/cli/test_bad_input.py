"""Bad input and bad surroundings: one clear line, a code that `explain` knows, an exit code, no traceback, whatever lies beside a model."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.diagnostics import Diagnostic, Severity
from irscope.report.printable import LONGEST_LINE, display_width, one_line

# Bad input of every kind: one clear line, a code that `explain` knows, the exit code of the table, no traceback, no half-written file.

MODEL = """irscope 1
symbol batch [1,*]
graph @main {
  input %x: f32[batch,8]
  param %w: f32[4,8]
  %y: f32[batch,4] = nn.linear(%x, %w, _)
  %z: f32[batch,4] = nn.relu(%y)
  return %z
}
"""
CRASHING = """
from irscope.api import analysis, transform
@analysis("crashing")
def Crashing(graph, ctx):
    "Raises."
    return 1 / 0
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IRSCOPE_CRASH_DIR", str(tmp_path))
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    (tmp_path / "crash.py").write_text(CRASHING)
    (tmp_path / "raises.py").write_text("raise ValueError('no')\n")
    return path


CASES = {
    "no command": ("", 2),
    "unknown command": ("rnu MODEL", 2),
    "unknown flag": ("run --frobnicate MODEL", 2),
    "unknown format": ("run --format yaml MODEL", 2),
    "unknown pass": ("run --passes livness MODEL", 2),
    "unknown option": ("run --passes liveness{modle=ssa} MODEL", 2),
    "option of the wrong type": ("run --passes liveness{top=many} MODEL", 2),
    "choice that is none": ("run --passes liveness{model=magic} MODEL", 2),
    "broken pipeline": ("run --passes shapes,, MODEL", 2),
    "script that is not there": ("run --passes DIR/none.py:P MODEL", 2),
    "script without that pass": ("run --passes DIR/crash.py:Other MODEL", 2),
    "script that raises": ("run --passes DIR/raises.py:P MODEL", 2),
    "pass that raises": ("run --passes DIR/crash.py:Crashing MODEL", 4),
    "no such file": ("run DIR/none.onnx", 3),
    "a folder": ("run DIR", 3),
    "an empty file": ("run DIR/empty", 3),
    "no model": ("run DIR/crash.py", 3),
    "bad type": ("run --input x=g32[1] MODEL", 2),
    "bad input": ("run --input x MODEL", 2),
    "unknown input": ("run --input y=f32[1,8] MODEL", 2),
    "wrong rank": ("run --input x=f32[8] MODEL", 2),
    "bad binding": ("run --bind batch=big MODEL", 2),
    "unknown symbol": ("run --bind bach=8 MODEL", 2),
    "size out of bounds": ("run --bind batch=0 MODEL", 2),
    "unknown operator": ("ops nn.cnov", 2),
    "unknown family": ("ops --family magic", 2),
    "unknown code": ("explain IRS999", 2),
    "unknown pass explained": ("passes livness", 2),
    "unwritable output": ("run -o DIR/none/out.json MODEL", 2),
    "output is a folder": ("run --format json -o DIR MODEL", 2),
    "reproducer that is none": ("repro MODEL", 3),
    "no terminal": ("tui MODEL", 2),
}


def run(command: str, model: Path) -> int:
    """Run a command line in which MODEL and DIR stand for paths."""
    (model.parent / "empty").touch()
    words = command.replace("MODEL", str(model)).replace("DIR", str(model.parent)).split()
    return main(words)


@pytest.mark.parametrize(("command", "exit_code"), CASES.values(), ids=CASES.keys())
def test_bad_input_gets_one_clear_line(command: str, exit_code: int, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in model.parent.iterdir()} | {"empty"}
    assert run(command, model) == exit_code
    out, err = capsys.readouterr()
    if not command:
        return
    assert "Traceback" not in err
    first = err.splitlines()[0]
    match = re.match(r"irscope: error (IRS\d{3}): \S", first)
    assert match, err
    assert match[1] in CODES
    # Only a caret under the pipeline may follow.
    assert len(err.splitlines()) == 1 or err.splitlines()[-1].strip().startswith("^")
    left = {path.name for path in model.parent.iterdir()} - before
    assert not {name for name in left if not name.startswith(("irscope-crash-", "__pycache__"))}
    assert "{" not in out


@pytest.mark.parametrize("cut", range(0, len(MODEL), 7))
def test_a_truncated_text_is_refused_or_whole(cut: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.irs"
    path.write_text(MODEL[:cut])
    code = main(["run", "--passes", "stats", str(path)])
    err = capsys.readouterr().err
    assert code == 3, err
    assert "Traceback" not in err and re.match(r"irscope: error IRS1\d\d: ", err)


MALFORMED = {
    "undefined value": MODEL.replace("nn.relu(%y)", "nn.relu(%nothing)"),
    "value defined twice": MODEL.replace("%z:", "%y:").replace("return %z", "return %y"),
    "cycle": MODEL.replace("nn.linear(%x, %w, _)", "nn.linear(%z, %w, _)"),
    "unknown type": MODEL.replace("f32[4,8]", "g32[4,8]"),
    "negative size": MODEL.replace("f32[4,8]", "f32[-4,8]"),
    "no return": MODEL.replace("  return %z\n", ""),
    "other version": MODEL.replace("irscope 1", "irscope 99"),
    "junk at the end": MODEL + "and so on\n",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_text_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.irs"
    path.write_text(text)
    assert main(["run", str(path)]) == 3
    err = capsys.readouterr().err
    assert re.match(r"irscope: error IRS12\d: ", err), err


@pytest.mark.parametrize("values", ["[1, 2, 3]", '["a", "b"]', "[nan, inf]", "[]", "[1.5, true]"])
def test_a_constant_that_contradicts_its_type_is_an_unknown_constant(
    values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "constant.irs"
    path.write_text(
        f"irscope 1\ngraph @main {{\n  input %x: f32[4,4]\n  const %c: i64[2] = {values}\n"
        "  %y: ?[*] = view.reshape(%x, %c)\n  return %y\n}\n"
    )
    assert main(["run", "--format", "json", "--passes", "shapes", str(path)]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().err


def test_a_failing_pass_leaves_a_reproducer_that_fails_again(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run --passes DIR/crash.py:Crashing MODEL", model) == 4
    err = capsys.readouterr().err
    assert "crash.py:6" in err
    (written,) = model.parent.glob("irscope-crash-*.irs")
    assert str(written) in err
    assert f"irscope repro --trust {written}" in err
    assert main(["repro", "--trust", str(written)]) == 4
    assert main(["repro", str(written), "--passes", "stats"]) == 0


def test_a_failing_pass_does_not_take_the_answers_before_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run --format json --passes stats,DIR/crash.py:Crashing MODEL", model) == 4
    assert '"pass": "stats"' in capsys.readouterr().out


def test_debug_shows_the_traceback(model: Path) -> None:
    with pytest.raises(Exception, match="livness"):
        run("run --debug --passes livness MODEL", model)


def test_an_existing_output_survives_a_failing_pass(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = model.parent / "report.json"
    target.write_text("old")
    assert run("run --format json -o DIR/report.json --passes livness MODEL", model) == 2
    assert target.read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("words", ["run PIPE", "explain PIPE", "compare MODEL PIPE", "repro PIPE", "check PIPE", "run --device PIPE MODEL"])
def test_a_pipe_is_refused_at_once(words: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert main(words.replace("PIPE", str(pipe)).replace("MODEL", str(model)).split()) in (2, 3)
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "passes", ["default", "liveness{model=eager}", "liveness{model=ort}", "plan{seconds=0.1}", "cuda-memory", "ort-memory"]
)
def test_what_no_device_holds_is_reported_and_no_failure(passes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.irs"
    size = "100000000,100000000"
    path.write_text(
        f"irscope 1\ngraph @main {{\n  input %x: f32[{size}]\n  param %w: f32[{size}]\n"
        f"  %y: f32[{size}] = math.matmul(%x, %w)\n  %z: f32[{size}] = math.exp(%y)\n  return %z\n}}\n"
    )
    assert main(["run", "--passes", passes, "--device", "rtx-3060", str(path)]) == 0
    out = capsys.readouterr().out
    if "eager" in passes:
        assert re.search(r"fits +no", out)


# What surrounds a run: reproducers from strangers, full disks, homes that cannot be written, plugins and scripts that fail.

posix = pytest.mark.skipif(os.name != "posix", reason="needs limits, signals and shells of POSIX")
RELU = "irscope 1\ngraph @main {\n  input %x: f32[2,8]\n  %y: f32[2,8] = nn.relu(%x)\n  return %y\n}\n"


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(RELU)
    return path


@pytest.mark.parametrize("pipeline", ["EVIL", "stats,EVIL:Evil", "fixpoint(dce,EVIL)", '"EVIL"'])
def test_a_reproducer_does_not_choose_what_runs(pipeline: str, relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = relu.parent / "evil.py"
    evil.write_text(f"import pathlib\npathlib.Path({str(relu.parent / 'ran')!r}).touch()\n")
    crash = relu.parent / "irscope-crash-1.irs"
    crash.write_text(f"# RUN: {pipeline.replace('EVIL', str(evil))}\n{RELU}")
    assert main(["repro", str(crash)]) == 2
    err = capsys.readouterr().err
    assert "IRS482" in err and "--trust" in err and not (relu.parent / "ran").exists()
    assert main(["repro", "--passes", "stats", str(crash)]) == 0
    main(["repro", "--trust", str(crash)])
    assert (relu.parent / "ran").exists()


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
def test_a_full_disk_leaves_the_old_file(command: str, relu: Path) -> None:
    out = relu.parent / "out"
    out.write_text("old")
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)); from irscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = command.replace("OUT", str(out)).replace("MODEL", str(relu)).split()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    assert "IRS610" in done.stderr and "Traceback" not in done.stderr
    assert out.read_text() == "old"
    assert sorted(path.name for path in relu.parent.iterdir()) == ["model.irs", "out"]


def test_a_home_that_cannot_be_written(relu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("IRSCOPE_HOME", "IRSCOPE_CRASH_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(relu.parent))
    assert main(["run", str(relu)]) == 0
    crash = relu.parent / "crash.py"
    crash.write_text("from irscope.api import analysis\n@analysis('crash')\ndef Crash(graph, ctx):\n    'Raises.'\n    return 1 / 0\n")
    assert main(["run", "--passes", f"{crash}:Crash", str(relu)]) == 4
    (written,) = relu.parent.glob("irscope-*/irscope-crash-*.irs")
    assert str(written) in capsys.readouterr().err


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "raise ImportError('no')", "1/0", "raise Exception('\\x1b[2J' * 1000)"])
def test_a_script_that_ends_the_process_is_an_error(body: str, relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = relu.parent / "script.py"
    script.write_text(body + "\n")
    assert main(["run", "--passes", str(script), str(relu)]) == 2
    err = capsys.readouterr().err
    assert "IRS609" in err and "\x1b" not in err and len(err) <= 401


@pytest.mark.parametrize("error", [SystemExit(0), ImportError("no"), RuntimeError("broken")])
def test_a_plugin_that_fails_at_import(
    error: BaseException, relu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> None:
        raise error

    point = SimpleNamespace(name="theirs", value="theirs:P", dist=SimpleNamespace(name="their-package"), load=load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "irscope.passes" else [])
    assert main(["run", "--passes", "stats", str(relu)]) == 0
    assert main(["run", "--passes", "theirs", str(relu)]) == 2
    assert "their-package cannot be imported" in capsys.readouterr().err


# Python files that lie beside a model are never imported, whatever they are called and whatever command runs there.

MODELS = Path(__file__).parents[2] / "samples" / "models"
IRSCOPE = Path(sys.executable).with_name("irscope")
PLANTED = (
    "torch",
    "numpy",
    "numba",
    "llvmlite",
    "onnx",
    "onnxruntime",
    "textual",
    "sitecustomize",
    "usercustomize",
    "frontends",
    "passes",
    "json",
    "transformers",
)
COMMAND_LINES = {
    "audit": "audit cnn.onnx -o results -q",
    "run": "run --passes default,params{values} cnn.onnx",
    "show": "show net.pt2",
    "opt": "opt --passes dce net.pt2",
    "tui": "tui cnn.onnx",
    "config": "config",
    "passes": "passes liveness",
    "ops": "ops --coverage cnn.onnx",
    "compare": "compare cnn.onnx net.pt2",
    "compare-flops": "compare-flops net.pt2",
    "devices": "devices h200",
    "fit": "fit --memory 1GiB --bind length=8 transformer.onnx",
    "sweep": "sweep --over batch=1,2 --bind length=8 transformer.onnx",
    "simulate": "simulate ./own/train.py",
    "train-plan": "train-plan ./own/train.py:build",
    "zoo": "zoo",
    "calibrate": "calibrate --help",
    "generate": "generate --help",
    "record": "record --trust --repeats 1 --warmup 0 net.pt2",
    "export": "export -o timeline.csv --bind batch=1 cnn.onnx",
    "explain": "explain IRS482",
    "check": "check --update",
    "cache": "cache ls",
    "mcp": "mcp --list",
    "completion": "completion bash",
    "repro": "repro cnn.onnx",
    "doctor": "doctor",
}
STARTING = {
    "run in processes": "run --jobs 2 cnn.onnx net.pt2",
    "audit in processes": "audit --jobs 2 cnn.onnx net.pt2 -o several -q",
    "explain beside a model": "explain snapshot.pickle net.pt2",
    "explain beside a program": "explain snapshot.pickle ./own/loop.py",
    "compare with a program": "compare ./own/steps.py steps.jsonl",
    "all ranks": "simulate --world 2 --rank all ./own/loop.py",
}
"""Lines that start processes of irscope's own."""
EXIT_CODES = {"tui": 2, "repro": 3}
"""There is no terminal; an ONNX file is not a reproducer."""
STARTS = [
    *(("script", line) for line in COMMAND_LINES.values()),
    ("module", COMMAND_LINES["run"]),
    ("path", COMMAND_LINES["run"]),
    pytest.param("module", COMMAND_LINES["record"], marks=pytest.mark.full),
]
TRAIN = """import torch
def build():
    return torch.nn.Linear(4, 4), (torch.zeros(2, 4),)
"""
LOOP = """import torch
net = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    net(torch.zeros(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    for name in ("cnn.onnx", "net.pt2", "transformer.onnx"):
        if (MODELS / name).exists():
            shutil.copy(MODELS / name, folder)
    (folder / "irscope.toml").write_text('models = ["cnn.onnx"]\n')
    (folder / "own").mkdir()  # a script that the user names may import what lies beside it, as it may under python
    (folder / "own" / "train.py").write_text(TRAIN)
    (folder / "own" / "loop.py").write_text(LOOP)
    (folder / "own" / "steps.py").write_text(LOOP.replace(".cuda()", "").replace(', device="cuda"', ""))
    for name in (*PLANTED, "irscope"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'a').write({name!r} + '\\n')\nraise SystemExit(99)\n")
    return folder


def test_every_command_has_its_line() -> None:
    assert set(COMMAND_LINES) == set(COMMANDS)


@pytest.fixture(scope="module")
def measured(folder: Path) -> Path:
    """The folder with a snapshot and a recording of the program in it."""
    for line in ("simulate -o snapshot.pickle ./own/loop.py", "record --trust --device cpu -o steps.jsonl ./own/steps.py"):
        done = in_folder(folder, [str(IRSCOPE), *line.split()])
        assert done.returncode == 0, done.stderr
    return folder


def in_folder(folder: Path, words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """What a command does in the folder."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")} | more
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("line", STARTING.values(), ids=list(STARTING))
def test_processes_of_irscope_import_nothing_beside_the_model(line: str, measured: Path) -> None:
    done = in_folder(measured, [str(IRSCOPE), *line.split()])
    assert not (measured / "imported").exists(), (measured / "imported").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
@pytest.mark.parametrize(("start", "command"), STARTS)
def test_nothing_beside_the_model_is_imported(start: str, command: str, folder: Path) -> None:
    words = [sys.executable, "-m", "irscope"] if start == "module" else [str(IRSCOPE)]
    # Python itself looks for these in the working folder: nothing of irscope has a say in that.
    away = {"script": (), "module": ("irscope",), "path": ("irscope", "sitecustomize")}[start]
    kept = {folder / f"{name}.py": (folder / f"{name}.py").rename(folder / name) for name in away}
    try:
        done = in_folder(folder, [*words, *command.split()], **({"PYTHONPATH": f"{os.pathsep}/nowhere"} if start == "path" else {}))
    finally:
        assert [there.rename(name) for name, there in kept.items()] == [*kept]
    assert not (folder / "imported").exists(), (folder / "imported").read_text()
    assert done.returncode == EXIT_CODES.get(command.split()[0], 0), done.stderr


@pytest.mark.slow
@posix
def test_machine_code_is_not_made_by_what_lies_beside_the_model(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    size = 2 << 30  # so much that it is compiled also where nothing is kept; a hole, which takes no room
    text = json.dumps({"w": {"dtype": "F32", "shape": [size // 4096, 1024], "data_offsets": [0, size]}}).encode()
    with (folder / "large.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    planted = folder / "irscope.py"
    kept = planted.read_text()
    planted.unlink()
    try:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IRSCOPE"))}
        environment["XDG_CACHE_HOME"] = str(tmp_path)
        command = [sys.executable, "-m", "irscope", "run", "--passes", "params{values histogram=false}", "large.safetensors"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    finally:
        planted.write_text(kept)
        (folder / "large.safetensors").unlink()
    assert not (folder / "imported").exists(), (folder / "imported").read_text()
    assert done.returncode == 0, done.stderr
    found = list((tmp_path / "irscope" / "compiled").rglob("*.nbc"))
    assert found and all((folder.stat().st_mode & 0o077) == 0 for folder in (tmp_path / "irscope", tmp_path / "irscope" / "compiled"))


# Standard streams that are closed or full, signals, and messages that stay one line.

OPEN_RELU = "irscope 1\nsymbol batch [1,*]\ngraph @main {\n  input %x: f32[batch,8]\n  %y: f32[batch,8] = nn.relu(%x)\n  return %y\n}\n"
ANSWERING = ("run MODEL", "show MODEL", "passes", "--help", "fit --memory 1GiB MODEL")


@pytest.fixture
def open_relu(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(OPEN_RELU)
    return path


def shell(command: str, open_relu: Path) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m irscope {command.replace('MODEL', str(open_relu))}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)


@posix
@pytest.mark.parametrize(("command", "where"), [*((one, ">/dev/full") for one in ANSWERING), ("run MODEL", ">&-"), ("--version", ">&-")])
def test_an_answer_that_cannot_be_written_is_one_line(command: str, where: str, open_relu: Path) -> None:
    done = shell(f"{command} {where}", open_relu)
    assert done.returncode in (1, 2), done.stderr
    assert "IRS610" in done.stderr.splitlines()[0] and "Traceback" not in done.stderr


@posix
@pytest.mark.parametrize("command", ["run MODEL", "run nothing.onnx"])
def test_a_closed_stderr_changes_nothing_else(command: str, open_relu: Path) -> None:
    whole, closed = shell(command, open_relu), shell(f"{command} 2>&-", open_relu)
    assert (whole.returncode, whole.stdout) == (closed.returncode, closed.stdout)


@posix
def test_closed_input_and_output_do_not_hand_their_numbers_to_the_model(open_relu: Path) -> None:
    before = open_relu.read_text(encoding="utf-8")
    assert shell("run MODEL <&- >&- 2>&-", open_relu).returncode == 2
    assert open_relu.read_text(encoding="utf-8") == before


@posix
def test_sigterm_cleans_up_as_an_interrupt_does(open_relu: Path) -> None:
    script = open_relu.parent / "waits.py"
    script.write_text(
        "import time\nfrom pathlib import Path\nfrom irscope.api import analysis\n"
        "@analysis('waits')\ndef Waits(graph, ctx):\n    'Waits.'\n"
        f"    try:\n        Path({str(open_relu.parent / 'started')!r}).touch()\n        time.sleep(60)\n    finally:\n"
        f"        Path({str(open_relu.parent / 'cleaned')!r}).touch()\n"
    )
    command = [sys.executable, "-m", "irscope", "run", "--passes", f"{script}:Waits", str(open_relu)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (open_relu.parent / "started").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert err == "irscope: terminated\n"
    assert (open_relu.parent / "cleaned").exists()


@posix
@pytest.mark.slow
@pytest.mark.parametrize("command", ["run --jobs 2 A B C D", "audit --jobs 1 A B C D -o OUT", "run A B C D"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_commands_with_processes_and_leave_nothing(command: str, sent: signal.Signals, open_relu: Path) -> None:
    here = open_relu.parent
    (here / "tmp").mkdir()
    script = here / "waits.py"
    script.write_text(
        "import time\nfrom pathlib import Path\nfrom irscope.api import analysis\n"
        "@analysis('waits')\ndef Waits(graph, ctx):\n    'Waits.'\n"
        f"    Path({str(here / 'started')!r}).touch()\n    time.sleep(4)\n"
    )
    models = {letter: str(open_relu.rename(here / f"{letter}.irs") if letter == "A" else here / f"{letter}.irs") for letter in "ABCD"}
    for letter in "BCD":
        Path(models[letter]).write_text(Path(models["A"]).read_text() + f"# {letter}\n")
    words = [{**models, "OUT": str(here / "out")}.get(word, word) for word in command.split()]
    line = [sys.executable, "-m", "irscope", *words, "--passes", f"{script}:Waits"]
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(here / "tmp")}
    ) as process:
        while not (here / "started").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + sent, err
    assert "Traceback" not in err and not list((here / "tmp").iterdir())


@posix
def test_an_interrupt_while_modules_are_read_is_one_line(tmp_path: Path) -> None:
    """The module of the command line raises what Ctrl-C raises, as it does in the first tenths of a second."""
    code = (
        "import sys, builtins\nreal = builtins.__import__\n"
        "def stops(name, *rest):\n    if name == 'irscope.cli.main':\n        raise KeyboardInterrupt\n    return real(name, *rest)\n"
        "builtins.__import__ = stops\nfrom irscope.__main__ import main\nsys.exit(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "irscope: interrupted\n")


@pytest.mark.parametrize("name", ["x" * 100_000, "\x1b[2J" * 30_000, "名" * 50_000, "a b " * 40_000])
def test_a_message_is_one_short_line(name: str) -> None:
    for text in (name, f"model.onnx: node {name} has no type (irscope explain IRS204)"):
        line = one_line(text)
        assert display_width(line) <= LONGEST_LINE and line.isprintable()
    assert one_line("short words stay as they are " + "x" * 100).endswith("x" * 100)


def test_a_long_message_keeps_its_ends() -> None:
    text = str(Diagnostic(Severity.WARNING, "IRS204", "nothing is known about " + "y" * 5000, "n" * 5000, hint="irscope ops " + "z" * 5000))
    line = one_line(text)
    assert "warning IRS204: nothing is known about y" in line and "[irscope ops z" in line and line.endswith("]")


def test_names_in_a_file_do_not_flood_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "".join(f'  %v{number}: f32[batch,8] = "custom.{"o" * 3000}{number}"(%x)\n' for number in range(200))
    path = tmp_path / "model.irs"
    path.write_text(OPEN_RELU.replace("  return", f"{body}  return"))
    main(["run", str(path)])
    err = capsys.readouterr().err
    assert len(err) < 21 * (LONGEST_LINE + 1)
    main(["run", "--passes", "shapes", "--bind", "q" * 100_000 + "=1", str(path)])
    assert all(len(line) <= LONGEST_LINE for line in capsys.readouterr().err.splitlines())
