"""What the documentation shows is what a reader gets: commands are run and compared, tables are checked against the code.

A line `...` in shown output stands for any lines. In a `shell-session` block amounts and widths of columns may be others: it shows what was
measured, or what a command printed beside the files that it wrote. IRSCOPE_UPDATE_DOCS=1 writes the outputs of `console` blocks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.errors import ExitCode
from tests import forked
from tests.cli.test_help import installed
from tests.tables import every
from tests.tools.notebook import NOTEBOOK, cells
from tests.tools.notebook import run as notebook_outputs
from tests.tools.pages import GENERATED

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
_CONSOLE = re.compile(r"```console\n(.*?)```", re.S)
_MEASURED = re.compile(r"```shell-session\n(.*?)```", re.S)
_PYTHON = re.compile(r"```python\n(.*?)```", re.S)


def outputs(block: str) -> list[tuple[str, str]]:
    """Commands of a console block with what is shown under each."""
    parts = re.split(r"^\$ (.+)\n", block, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run(command: str, capsys: pytest.CaptureFixture[str], folder: Path = ROOT) -> str:
    """Return what a documented command prints on stdout."""
    name, *arguments = shlex.split(command)
    assert name == "irscope"
    if arguments[0] in ("simulate", "generate", "train-plan"):
        return forked.irscope(*arguments, folder=folder).stdout
    main(arguments)
    return capsys.readouterr().out


def _has_left_out(shown: str) -> bool:
    return any(line.strip() == "..." for line in shown.splitlines())


def agree(shown: str, printed: str) -> bool:
    """Whether shown output is what was printed, with `...` for left-out lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in shown.splitlines())
    return re.fullmatch(pattern, printed) is not None


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_is_shown(page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    text = page.read_text(encoding="utf-8")
    for block in _CONSOLE.findall(text):
        updated = ""
        for command, shown in outputs(block):
            if not installed(command):
                updated += f"$ {command}\n{shown}"
                continue
            printed = "".join(line.rstrip() + "\n" for line in run(command, capsys).splitlines())
            updated += f"$ {command}\n{shown if _has_left_out(shown) else printed}"
            if not os.environ.get("IRSCOPE_UPDATE_DOCS"):
                assert agree(shown, printed), f"{page.name}: {command}\n{printed}"
        if os.environ.get("IRSCOPE_UPDATE_DOCS"):
            text = text.replace(block, updated)
            page.write_text(text, encoding="utf-8")


def without_numbers(text: str) -> str:
    """Return a text with one sign for each amount, one blank for each gap, and one dash for each rule."""
    return re.sub(r"[ \t]+", " ", re.sub(r"─+", "─", re.sub(r"\d[\d,.]*(?: (?:[num]?s|[KMG]?i?B)\b)?", "0", text)))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _MEASURED.search(page.read_text(encoding="utf-8"))], ids=lambda page: page.name)
def test_commands_that_measure_print_lines_as_shown(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for block in _MEASURED.findall(page.read_text(encoding="utf-8")):
        for command, shown in outputs(block):
            if installed(command):
                printed = "".join(line.rstrip() + "\n" for line in run(command, capsys, tmp_path).splitlines())
                assert agree(without_numbers(shown), without_numbers(printed)), f"{page.name}: {command}\n{printed}"


def test_the_readme_pass_is_the_sample_pass() -> None:
    shown = next(block for block in _PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8")) if "NarrowConvs" in block)
    assert shown.strip() in (ROOT / "samples" / "custom_pass.py").read_text(encoding="utf-8")


def test_the_readme_script_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    script = next(block for block in _PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8")) if "irscope.load" in block)
    exec(script, {})
    flops, peak, *table = capsys.readouterr().out.split(maxsplit=2)
    assert int(flops) > 8 * 400_000_000 and int(peak) > 2**20
    assert table[0].startswith("alive at the peak")


@pytest.mark.full
@pytest.mark.torch
def test_the_notebook_shows_what_it_kept() -> None:
    """Every cell runs, and shows pages with the titles and columns that readers see in the file."""
    pytest.importorskip("torch")
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    made = notebook_outputs(notebook)
    pages = [["".join(output["data"]["text/html"]) for output in cell["outputs"]] for cell in cells(notebook)]
    assert all(len(page) == 1 for page in pages)
    for (kept,), (output,) in zip(pages, made, strict=True):
        shown = "".join(output["data"]["text/html"])
        for tag in ("h2", "h3", "th"):
            assert re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", shown, re.S) == re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", kept, re.S)


def test_the_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)] == [code.value for code in ExitCode]


def test_the_commands_are_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### irscope ([\w-]+)$", page, re.M)) == set(COMMANDS)


@every("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Links to files, and the scripts of the tests."""
    text = page.read_text(encoding="utf-8")
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith(("http", "#"))}
    assert not [link for link in links if not (page.parent / link).exists()]
    scripts = [name.replace(".", "/") for name in re.findall(r"-m ((?:tests\.tools|benchmarks)\b[.\w]*\w)", text)]
    scripts += re.findall(r"\b((?:tests|benchmarks)/[\w/]+\.py)\b", text)
    assert not [name for name in scripts if "NAME" not in name and not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()]


@pytest.mark.parametrize("page", GENERATED)
def test_pages_that_follow_from_the_source_are_fresh(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == GENERATED[page](), "run: make pages"


def test_codes_are_in_order_and_say_something() -> None:
    """Each once: JSON would keep the last of two records silently."""
    written = re.findall(r'^ "(\w+)": \{', (ROOT / "irscope" / "codes.json").read_text(encoding="utf-8"), re.M)
    assert written == sorted(set(written)) == list(CODES)
    assert all(re.fullmatch(r"IRS\d{3}", code) and doc.title and doc.text for code, doc in CODES.items())


def test_every_code_in_the_source_has_a_record_and_every_record_is_used() -> None:
    folders = ("irscope", "frontends", "passes", "tui")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    used = {code for path in sources for code in re.findall(r"\bIRS\d{3}\b", path.read_text(encoding="utf-8"))}
    assert used == set(CODES)
