"""Standard streams that are closed or full, signals, and messages that stay one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.diagnostics import Diagnostic, Severity
from irscope.report.printable import LONGEST_LINE, display_width, one_line

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and shells")

MODEL = "irscope 1\nsymbol batch [1,*]\ngraph @main {\n  input %x: f32[batch,8]\n  %y: f32[batch,8] = nn.relu(%x)\n  return %y\n}\n"
ANSWERING = ("run MODEL", "show MODEL", "passes", "--help", "fit --memory 1GiB MODEL")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    return path


def shell(command: str, model: Path) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m irscope {command.replace('MODEL', str(model))}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)


@posix
@pytest.mark.parametrize(("command", "where"), [*((one, ">/dev/full") for one in ANSWERING), ("run MODEL", ">&-"), ("--version", ">&-")])
def test_an_answer_that_cannot_be_written_is_one_line(command: str, where: str, model: Path) -> None:
    done = shell(f"{command} {where}", model)
    assert done.returncode in (1, 2), done.stderr
    assert "IRS610" in done.stderr.splitlines()[0] and "Traceback" not in done.stderr


@posix
@pytest.mark.parametrize("command", ["run MODEL", "run nothing.onnx"])
def test_a_closed_stderr_changes_nothing_else(command: str, model: Path) -> None:
    whole, closed = shell(command, model), shell(f"{command} 2>&-", model)
    assert (whole.returncode, whole.stdout) == (closed.returncode, closed.stdout)


@posix
def test_closed_input_and_output_do_not_hand_their_numbers_to_the_model(model: Path) -> None:
    before = model.read_text(encoding="utf-8")
    assert shell("run MODEL <&- >&- 2>&-", model).returncode == 2
    assert model.read_text(encoding="utf-8") == before


@posix
def test_sigterm_cleans_up_as_an_interrupt_does(model: Path) -> None:
    script = model.parent / "waits.py"
    script.write_text(
        "import time\nfrom pathlib import Path\nfrom irscope.api import analysis\n"
        "@analysis('waits')\ndef Waits(graph, ctx):\n    'Waits.'\n"
        f"    Path({str(model.parent / 'started')!r}).touch()\n"
        "    try:\n        time.sleep(60)\n    finally:\n"
        f"        Path({str(model.parent / 'cleaned')!r}).touch()\n"
    )
    command = [sys.executable, "-m", "irscope", "run", "--passes", f"{script}:Waits", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (model.parent / "started").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert err == "irscope: terminated\n"
    assert (model.parent / "cleaned").exists()


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
    path.write_text(MODEL.replace("  return", f"{body}  return"))
    main(["run", str(path)])
    err = capsys.readouterr().err
    assert len(err) < 21 * (LONGEST_LINE + 1)
    main(["run", "--passes", "shapes", "--bind", "q" * 100_000 + "=1", str(path)])
    assert all(len(line) <= LONGEST_LINE for line in capsys.readouterr().err.splitlines())
