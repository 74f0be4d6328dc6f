"""One budget of work and memory for a whole load: hostile files end within it with one line that names the construct."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pytest

from irscope.budget import DEFAULT_SECONDS, Allowance, OverBudget, claim, reading, spend
from irscope.cli.main import main
from irscope.session import open_model

ROOT = Path(__file__).parents[2]
EXTRA = 3.0
"""CPU seconds for imports and between two looks at the clock."""


def run(path: Path, *options: str) -> tuple[int, float]:
    started = time.process_time()
    return main(["run", "--passes", "stats", *options, str(path)]), time.process_time() - started


def checkpoint(path: Path, pickle: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle)
        archive.writestr("a/version", "3\n")
    return path


def doubled(times: int) -> bytes:
    """A tuple that holds one tuple twice, and so on: as text it is exponentially long."""
    code = b"\x80\x02)q\x00"
    for index in range(times):
        code += b"h%ch%c\x86q%c" % (index, index, index + 1)
    return code


SHARED = doubled(60)
LAST = b"h\x3c"
PICKLES = {
    "text of shared tuples": (SHARED + b"c_codecs\nencode\n" + LAST + b"\x85R.", "IRS161"),
    "a device of shared tuples": (SHARED + b"ctorch\ndevice\n" + LAST + b"\x85R.", "IRS161"),
    "a global named by shared tuples": (SHARED + LAST + LAST + b"\x93.", "IRS161"),
    "a storage of shared tuples": (SHARED + b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + LAST + LAST + b"K\x04tQ.", "IRS161"),
    "keys of shared tuples": (SHARED + b"}" + LAST + b"Ns.", "IRS161"),
    "copies of a list": (b"\x80\x02(" + b"N" * 100_000 + b"lq\x00" + b"cbuiltins\nlist\nh\x00\x85R" * 20_000 + b".", "IRS106"),
    "a deep list": (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "IRS160"),
}


@pytest.mark.parametrize(("pickle", "code"), PICKLES.values(), ids=PICKLES)
def test_pickles(pickle: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, seconds = run(checkpoint(tmp_path / "x.pt", pickle), "--budget", "1s,300MB")
    err = capsys.readouterr().err
    assert exit_code == 3 and code in err and err.count("\n") == 1
    assert seconds < 1 + EXTRA


def test_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ",".join("+".join(f"(a+b+c+d+e+{start + index})**13" for index in range(300)) for start in (0, 1000, 2000))
    symbols = "".join(f"symbol {name} [1,*]\n" for name in "abcde")
    path = tmp_path / "x.irs"
    path.write_text(f"irscope 1\n{symbols}graph @main {{\n  input %x: f32[{sizes}]\n  %y = nn.relu(%x)\n  return %y\n}}\n")
    exit_code, seconds = run(path, "--budget", "1s")
    err = capsys.readouterr().err
    assert exit_code == 3 and "IRS106" in err and "a formula of sizes" in err and "--budget" in err
    assert seconds < 1 + EXTRA


ENDLESS = "the model's code"
CODE = {
    "an endless loop": ("i = 0\n  while True:\n    i = i + 1\n  return x", ENDLESS),
    "lists": ("y = [1]\n  for i in range(2000000):\n    y = y + y[:100000]\n    y = y[:900000]\n  return x", ENDLESS),
    "nodes": ("for i in range(1000000000):\n    x = x + 1\n  return x", ENDLESS),
    "unbind": ("return torch.unbind(x)[0]", "parts"),
    "chunk": ("return torch.chunk(x, 1000000000)[0]", "parts"),
    "split": ("return torch.split(x, 1)[0]", "parts"),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CODE)
def test_code(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    body, what = CODE[name]
    # torch knows a class by its name.
    module = type(f"Hostile{name.title().replace(' ', '')}", (torch.jit.ScriptModule,), {})()
    module.define(f"def forward(self, x):\n  {body}\n")
    module.save(str(tmp_path / "x.pt"))
    exit_code, seconds = run(tmp_path / "x.pt", "--budget", "1s,400MB", "--input", "x=f32[1000000000]")
    err = capsys.readouterr().err
    assert exit_code == 3 and err.startswith("irscope: error IRS1") and what in err, err
    assert seconds < 1 + EXTRA


def test_the_budget_is_one_for_the_whole_load() -> None:
    def work(what: str) -> None:
        ends = time.thread_time() + 0.04
        while time.thread_time() < ends:
            spend(1000, what)

    with reading("model", 0, Allowance(seconds=0.05)):
        work("the first half")
        with pytest.raises(OverBudget, match=r"more than 0\.05 CPU s: the second half") as error:
            work("the second half")
    assert error.value.exit_code == 3 and error.value.where == "model"


def test_bytes_are_refused_before_they_are_taken() -> None:
    with reading("model", 1_000_000, Allowance()):
        claim(400_000_000, "a list")
        with pytest.raises(OverBudget, match="would take 600 MB: a list"):
            claim(600_000_000, "a list")


def test_without_a_budget_nothing_is_refused() -> None:
    claim(10**15, "a list")
    spend(10**15, "a loop")


@pytest.mark.parametrize(
    "path", sorted([*(ROOT / "samples").glob("*.irs"), *(ROOT / "samples" / "models").glob("*.*")]), ids=lambda path: path.name
)
def test_honest_files_stay_far_below(path: Path) -> None:
    open_model(path)  # imports count for the first that is read
    with reading(str(path), path.stat().st_size) as budget:
        open_model(path)
        assert budget.used_share < 0.1


def test_the_option_raises_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "samples" / "mlp.irs"
    assert main(["run", "--budget", "60s,4GB", str(path)]) == 0
    assert main(["run", "--budget", "2min", str(path)]) == 0
    capsys.readouterr()
    assert main(["run", "--budget", "much", str(path)]) == 2
    assert "IRS336" in capsys.readouterr().err
    assert DEFAULT_SECONDS == 10
