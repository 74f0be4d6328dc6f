"""Texts, files and samples: one text is one number, files are whole or not at all, the samples are what they say."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope.amounts import ANY, BYTES, COUNT, FLOPS, SECONDS, SHARE, SIZE, Measure, parse_bytes, read_amount, read_size
from irscope.cli.args import add_model_arguments, amount_of, load_options
from irscope.devices.catalogue import all_devices
from irscope.devices.profile import parse_profile
from irscope.errors import OutputError, UsageError
from irscope.files import cache_folder, open_fresh, private_file, private_folder, staged, write_binary, write_text
from irscope.frontends.base import LoadOptions
from irscope.ir.parser import parse_program
from irscope.measure.record.sink import problem_of
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import parse_points
from irscope.passes.order.plan import Plan
from irscope.passes.order.schedule import read_share
from irscope.passes.training.checkpoint import budget_of
from irscope.passkit.options import build
from irscope.report.select import parse_filter as parse_table_filter
from irscope.session import open_model
from irscope.tools.compare.document import parse_thresholds
from irscope.tools.fit import room_of
from irscope.tools.train import read_batches
from irscope.tui.amounts import parse_binding
from irscope.tui.browse.filter import parse_filter as parse_tree_filter
from tests.tables import every

# One text is one number wherever an amount can be written.

PROGRAM = parse_program("irscope 1\nsymbol batch [1,*]\ngraph @main {\n  input %x: f32[batch]\n  return %x\n}\n")


def in_a_table(text: str) -> float:
    """The smallest number that `cell < TEXT` is false for, by bisection."""
    condition = parse_table_filter(f"cell < {text.replace(' ', '')}")
    low, high = 0, 1 << 70
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if condition.test({"cell": middle}) else (low, middle)
    return low


def as_option(measure: Measure) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("--it", type=amount_of(measure))
        found: int | float = parser.parse_args([f"--it={text}"]).it
        return found

    return read


def bound(text: str) -> int:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    return load_options(parser.parse_args(["model.onnx", "--bind", f"n={text}"])).bind["n"]


BYTE_PLACES: dict[str, Callable[[str], int | float]] = {
    "--memory of fit": lambda text: room_of(text, None),  # type: ignore[arg-type]  # no device is needed for a text
    "--memory of train-plan, budget=": parse_bytes,
    "--budget": lambda text: budget_of(text, 0),
    "--filter": in_a_table,
    "--fail-on": lambda text: parse_thresholds([f"peak>{text.replace(' ', '')}"], ["peak"])[0].limit,
    "--alignment": as_option(BYTES),
    "plan{alignment=}": lambda text: build(Plan, {"alignment": text}).alignment,
    "filter of the UI": lambda text: parse_tree_filter(f"mem>{text.replace(' ', '')}")[0].limit,
    "flops in the filter of the UI": lambda text: parse_tree_filter(f"flops>{text.replace(' ', '').rstrip('bB')}")[0].limit,
}


@every("place", BYTE_PLACES)
@every(
    ("text", "number"),
    [
        ("1M", 10**6),
        ("1MB", 10**6),
        ("1mb", 10**6),
        ("1MiB", 2**20),
        ("1Mi", 2**20),
        ("1G", 10**9),
        ("24GiB", 24 << 30),
        ("80GB", 80 * 10**9),
        ("1.5gib", 3 << 29),
        ("2 TiB", 2 << 40),
        ("10kB", 10_000),
        ("4096", 4096),
        ("4_096", 4096),
        ("1e6", 10**6),
        ("1P", 10**15),
    ],
)
def test_one_text_is_one_number_of_bytes(place: str, text: str, number: int) -> None:
    if place == "--memory of fit" and text.isdecimal():  # nobody fits a model into 4096 bytes: a unit was forgotten
        with pytest.raises(UsageError, match="has no unit"):
            BYTE_PLACES[place](text)
        return
    assert BYTE_PLACES[place](text) == number


COUNT_PLACES: dict[str, Callable[[str], int | float]] = {
    "--bind": bound,
    "--over, --sweep": lambda text: parse_points([f"batch={text}"], PROGRAM).columns["batch"][0],
    "--batches": lambda text: read_batches(text)[0],
    "sizes in the UI": lambda text: parse_binding(f"batch={text}", PROGRAM.symbols).env["batch"],
    "--rows, --top, --threads": as_option(COUNT),
    "seed=": lambda text: build(Plan, {"seed": text}).seed,
}


@every("place", COUNT_PLACES)
@every(("text", "number"), [("8", 8), ("1k", 1000), ("1Ki", 1024), ("1_024", 1024), ("1.5k", 1500)])
def test_one_text_is_one_count(place: str, text: str, number: int) -> None:
    assert COUNT_PLACES[place](text) == number


SECOND_PLACES: dict[str, Callable[[str], int | float]] = {
    "--seconds, --timeout": as_option(SECONDS),
    "seconds=": lambda text: build(Plan, {"seconds": text}).seconds,
    "--filter": lambda text: (
        float(parse_table_filter(f"t = {text}").test({"t": read_amount(text, SECONDS)})) and (read_amount(text, ANY) or 0)
    ),
    "--fail-on": lambda text: parse_thresholds([f"peak>{text}"], ["peak"])[0].limit,
}


@every("place", SECOND_PLACES)
@every(("text", "number"), [("10", 10), ("500ms", 0.5), ("2min", 120), ("1us", 1e-6), ("1.5s", 1.5), ("1e-3", 1e-3)])
def test_one_text_is_one_time(place: str, text: str, number: float) -> None:
    assert SECOND_PLACES[place](text) == number


@pytest.mark.parametrize(("text", "number"), [("5%", 0.05), ("0.05", 0.05), ("60%", 0.6), ("1e-2", 0.01)])
def test_one_text_is_one_share(text: str, number: float) -> None:
    assert read_amount(text, SHARE) == read_amount(text, ANY) == read_share(text, "it", "5%") == number
    assert parse_thresholds([f"peak>{text}"], ["peak"])[0].limit == number
    if text.endswith("%"):
        assert budget_of(text, 10**6) == int(number * 10**6)


@pytest.mark.parametrize(
    "text", ["", "many", "-1GiB", "1GiB2", "GiB", "9" * 99, "1e9999999", "5s", "5%", "inf", "nan", "1.2.3", "0.5", "٣"]
)
def test_what_is_no_amount_of_memory_says_how_they_are_written(text: str) -> None:
    with pytest.raises(UsageError, match=r"amount of memory|less than a byte") as caught:
        parse_bytes(text)
    assert caught.value.code == "IRS336"
    assert "K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti powers of 1024" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "measure"), [("1.5", COUNT), ("-1", SIZE), ("1MB", COUNT), ("1ms", BYTES), ("1MB", FLOPS), ("-1", SECONDS), ("3", SIZE)]
)
def test_a_measure_takes_its_own_units_only(text: str, measure: Measure) -> None:
    assert (read_amount(text, measure) is None) == (text != "3")


def test_every_unit_means_the_same_in_every_measure() -> None:
    for measure in (BYTES, FLOPS, COUNT, SIZE, SECONDS, SHARE):
        for unit, factor in measure.units.items():
            assert ANY.factor(unit) == ANY.factor(unit.upper()) == factor


def test_a_size_is_never_negative() -> None:
    assert [read_size(text) for text in ("8", "-8", "0", "x", "")] == [8, None, 0, None, None]


def test_a_wrong_option_says_what_would_be_right() -> None:
    with pytest.raises(argparse.ArgumentError, match=r"'1s' is not an amount of memory; for example 24GiB"):
        as_option(BYTES)("1s")


def test_what_pytorch_says_was_wanted_is_read_by_the_same_rule() -> None:
    assert problem_of(MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), (), ()).requested == 2 << 30
    assert problem_of(MemoryError("Tried to allocate 512 bytes"), (), ()).requested == 512


# -- the memory of a device that is left beside a CUDA context ----------------------------------------------------------


def test_room_is_the_memory_less_the_most_that_a_context_takes() -> None:
    for device in all_devices():
        if device.memory_bytes is None:
            assert device.room_bytes is None
        else:
            assert device.room_bytes == max(device.memory_bytes - (device.context_bytes[1] if device.context_bytes else 0), 0)


def test_no_room_is_none_and_never_below_zero() -> None:
    source = {"source": "here"}
    record = {
        "name": "tiny", "title": "Tiny", "kind": "gpu", "sources": {"here": {"text": "x", "date": "2026-01-01"}},
        "memory": {"value": 100, "unit": "MiB", **source}, "context": {"lo": 1, "hi": 2, "unit": "GiB", **source},
    }  # fmt: skip
    assert parse_profile(json.dumps(record), "here").room_bytes == 0
    del record["memory"]
    assert parse_profile(json.dumps(record), "here").room_bytes is None


def test_nothing_else_takes_the_context_off() -> None:
    folders = ("irscope", "passes", "tui")
    own = {Path("irscope/devices/profile.py")}
    files = [path for folder in folders for path in Path(folder).rglob("*.py") if path not in own]
    assert not [str(path) for path in files if "context_bytes[1]" in path.read_text(encoding="utf-8")]


# Files that irscope writes: whole or not at all, never through a link, its own in private folders.


def _staged(path: Path) -> None:
    with staged(path) as beside:
        beside.write_text("new")


def _fresh(path: Path) -> None:
    with open_fresh(path) as stream:
        stream.write("new")


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_text(path, ["new"]),
    "binary": lambda path: write_binary(path, [b"new"]),
    "staged": _staged,
    "fresh": _fresh,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_a_link(write: Callable[[Path], None], there: bool, tmp_path: Path) -> None:
    target = tmp_path / ".bashrc"
    if there:
        target.write_text("old")
    link = tmp_path / "report.json"
    link.symlink_to(target)
    with pytest.raises(OutputError, match="is a link to"):
        write(link)
    assert target.read_text() == "old" if there else not target.exists()
    assert {path.name for path in tmp_path.iterdir()} == ({".bashrc", "report.json"} if there else {"report.json"})


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_hard_link_loses_nothing(write: Callable[[Path], None], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("old")
    target = tmp_path / "report.json"
    os.link(other, target)
    write(target)
    assert (target.read_text(), other.read_text()) == ("new", "old")


@pytest.mark.parametrize("write", [WRITERS["text"], WRITERS["binary"]])
def test_what_fails_half_way_leaves_the_old_file(write: Callable[[Path], None], tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")

    def pieces() -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_text(target, (piece for piece in pieces()))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_own_files_are_private_and_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRSCOPE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = private_file("crash", ".irs", "a"), private_file("crash", ".irs", "b")
    assert first is not None and second is not None and first != second
    assert first.parent == cache_folder()
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(first.stat().st_mode) == 0o600


def test_a_cache_folder_that_is_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="own folder"):
        private_folder(tmp_path / "cache")
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    written = private_file("crash", ".irs", "a")
    assert written is not None and not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_others_may_enter_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
@pytest.mark.parametrize("writer", ["write_text", "staged"])
def test_a_writer_that_is_killed_leaves_the_old_file(writer: str, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    endless = "def pieces():\n    while True:\n        yield 'x' * 1000\n"
    body = {
        "write_text": "write_text(Path(sys.argv[1]), pieces())",
        "staged": "with staged(Path(sys.argv[1])) as beside:\n    beside.open('w').writelines(pieces())",
    }[writer]
    program = f"import sys\nfrom pathlib import Path\nfrom irscope.files import staged, write_text\n{endless}{body}\n"
    with subprocess.Popen([sys.executable, "-c", program, str(target)]) as process:
        while not any(file.is_file() and file.stat().st_size > 0 for file in tmp_path.rglob("*") if file != target):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert target.read_text() == "old"


# The samples of the documentation are what they say they are.

SAMPLES = Path(__file__).parents[2] / "samples"
TAGGER = SAMPLES / "tagger.irs"


def run(script: str, *arguments: str) -> int:
    """Run a sample as a program; its exit code."""
    before = sys.argv
    sys.argv = [script, *arguments]
    try:
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(SAMPLES / script), run_name="__main__")
    finally:
        sys.argv = before
    code = stopped.value.code
    return code if isinstance(code, int) else 1


@pytest.mark.slow
def test_which_batch_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("which_batch_fits.py", str(TAGGER), "rtx-3060", "h200") == 0
    small, large = capsys.readouterr().out.splitlines()
    assert small.startswith("rtx-3060") and large.startswith("h200")
    assert 0 < int(small.split()[2]) < int(large.split()[2]) == 4096


def test_which_batch_fits_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("which_batch_fits.py", str(TAGGER), "no-such-device") == 2
    assert "IRS420" in capsys.readouterr().err
    assert run("which_batch_fits.py") == 1


@pytest.mark.torch
def test_the_text_of_the_tagger_is_what_its_source_exports(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.tools.torch_files.helpers import save_exported

    made = runpy.run_path(str(SAMPLES / "tagger.py"))["Tagger"]().eval()
    dynamic = ({0: torch.export.Dim("batch", max=4096)},)
    path = save_exported(tmp_path / "tagger.pt2", made, (torch.randn(2, 3, 224, 224),), dynamic=dynamic)
    for batch in (1, 5):
        exported, sample = (open_model(file, LoadOptions(bind={"batch": batch})).run([Liveness()])["liveness"] for file in (path, TAGGER))
        assert exported.value.peak == sample.value.peak and exported.value.alive == sample.value.alive
        for moment in ("before", "cold", "warm"):
            assert exported.report().summary[moment] == sample.report().summary[moment]
